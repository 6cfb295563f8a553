"""Functions of users over shredded values, whose types they declare as binary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from streamops import process, sourcing
from streamops.errors import FunctionError
from streamops.testing import at
from tests.erasure.operators import SUBJECTS, as_multiset, run, shredded, unshredded
from tests.process.silences import Silences, SilencesSpec
from tests.sourcing.folding import fold_log

TS = pa.timestamp("us", tz="UTC")
EVENT = pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.string()), ("id", pa.int64())])
VALUES = ("x", "x", "yy", None, "yy")
BATCHES = [
    (
        pa.Table.from_pylist(
            [
                {
                    "k": SUBJECTS[n % 3],
                    "ts": at(start + n),
                    "v": VALUES[n * 2 % 5],
                    "id": start + n,
                }
                for n in range(12)
            ],
            EVENT,
        ),
    )
    for start in (0, 20, 40, 600)
]
SHREDDED = shredded(BATCHES, ["v"], ["k"])


def find_changes(key: Any, rows: Iterator[Any], state: Any) -> Iterator[tuple[Any, Any]]:
    for row in rows:
        if row.v != state.last:
            yield row.v, state.last
        state.last = row.v


def set_value(state: Any, command: Any) -> Any:
    if command.v == state.held:
        return sourcing.Rejected("unchanged")
    return [("set", command.v)]


def hold(state: Any, event: Any) -> Any:
    return state._replace(held=event.value)


def per_key(dtype: str) -> Any:
    return process.per_key(
        find_changes,
        by="k",
        state=f"last {dtype}",
        output=f"value {dtype}, before {dtype}",
        time="ts",
        delay="5 seconds",
    )


def decide(dtype: str) -> Any:
    return sourcing.decide(
        set_value,
        hold,
        by="k",
        command_id="id",
        time="ts",
        state=f"held {dtype}",
        event=f"type string, value {dtype}",
        delay="5 seconds",
    )


def per_shard(*by: str) -> Any:
    """An operator of one's own that compares the rows of a key."""
    spec = {"time": "ts", "delay": 5_000_000, "longest": 3_000_000}
    return process.per_shard(Silences(), SilencesSpec(operator="acme.silences", by=by, **spec))


@pytest.mark.parametrize("make", [per_key, decide])
def test_functions_that_compare_values_of_a_subject_give_the_same_result(
    make: Callable[[str], Any],
) -> None:
    expected = run(make("string"), BATCHES)
    found = run(make("binary"), SHREDDED)
    assert {row["value"] for row in expected} >= {"x", "yy"}
    assert {type(row["value"]) for row in found} == {bytes, type(None)}
    assert as_multiset(unshredded(found, "k")) == as_multiset(expected)


def test_an_operator_of_ones_own_groups_by_subject_and_value() -> None:
    expected = run(per_shard("k", "v"), BATCHES)
    found = run(per_shard("k", "v"), SHREDDED)
    assert {row["v"] for row in expected} >= {"x", "yy"}
    assert as_multiset(unshredded(found, "k")) == as_multiset(expected)
    # Without the subject, each value is that of one subject.
    values = {row["v"] for row in run(per_shard("v"), SHREDDED)}
    assert len(values) > len({row["v"] for row in run(per_shard("v"), BATCHES)})


def test_shredded_values_are_not_declared_as_strings() -> None:
    with pytest.raises(FunctionError, match="VALUE_TYPE"):
        run(per_key("string"), SHREDDED)


def test_the_fold_of_shredded_events_is_the_shredded_state() -> None:
    logs = {
        dtype: [row for row in run(decide(dtype), batches) if row["rejection"] is None]
        for dtype, batches in (("string", BATCHES), ("binary", SHREDDED))
    }
    folded = {}
    for dtype, log in logs.items():
        schema = pa.schema(
            [
                ("k", pa.string()),
                ("version", pa.int64()),
                ("value", {"string": pa.string(), "binary": pa.binary()}[dtype]),
            ]
        )
        operator = sourcing.fold(hold, by="k", state=f"held {dtype}")
        folded[dtype] = fold_log(operator, log, schema)
    assert {row["held"] for row in folded["string"]} & {"x", "yy"}
    assert as_multiset(unshredded(folded["binary"], "k")) == as_multiset(folded["string"])
