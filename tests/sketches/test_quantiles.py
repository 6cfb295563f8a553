"""Running quantiles per key, and per key and window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import sketches, windows
from streamops.kernel.errors import SchemaError, SpecError
from streamops.testing import at, replay
from tests.oracles import kll as oracle

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("ms", pa.float64())],
)
SHARES = [0.25, 0.5, 1.0]


def row(key: str | None, ms: float | None, second: int = 0) -> dict[str, Any]:
    return {"k": key, "ts": at(second), "ms": ms}


def played(transform: Any, batches: Any, **said: Any) -> list[list[dict[str, Any]]]:
    return [batch.rows for batch in replay(transform, batches, schema=SCHEMA, **said)]


def test_quantiles_of_a_key_are_told_whenever_they_change() -> None:
    running = sketches.quantiles("ms", [0.5], by="k")
    first, second, third = played(
        running,
        [
            [row("a", 5.0), row("a", 7.0), row(None, 1.0), row("b", None)],
            [row("a", None), row("b", 2.0)],
            [row("a", 9.0), row("a", 6.0), row("a", 8.0)],
        ],
        restart=True,
    )
    found = [
        {each["k"]: (each["quantiles"]["quantiles"], each["revision"]) for each in rows}
        for rows in (first, second, third)
    ]
    assert found == [
        {"a": ([5.0], 0), None: ([1.0], 0), "b": (None, 0)},
        {"b": ([2.0], 1)},
        {"a": ([7.0], 1)},
    ]


def test_what_was_told_is_taken_back_to_the_last_bit_beyond_k_values_too() -> None:
    rng = np.random.default_rng(5)
    batches = [[row("a", float(ms)) for ms in rng.normal(size=40)] for _ in range(12)]
    running = sketches.quantiles("ms", SHARES, k=8, by="k", changes="retract", into="said")
    told: list[Any] = []
    for rows in played(running, batches):
        old = [each["said"] for each in rows if each["_change_type"] == "update_preimage"]
        new = [each["said"] for each in rows if each["_change_type"] != "update_preimage"]
        assert old == told[-1:]
        told += new
    assert [each["count"] for each in told] == [40 * (i + 1) for i in range(12)]
    plain = oracle.of([each["ms"] for each in batches[0]], 8)
    for batch in batches[1:]:
        plain = oracle.union([plain, oracle.of([each["ms"] for each in batch], 8)])
    assert told[-1]["quantiles"] == [plain.quantile(share) for share in SHARES]


def test_with_a_size_they_are_those_of_windows() -> None:
    rows = [row("a", float(i), i) for i in range(300)]
    given: dict[str, Any] = {"by": "k", "time": "ts", "delay": "0 seconds"}
    agg = {"quantiles": sketches.approx_quantiles("ms", SHARES, k=20)}
    ours = sketches.quantiles("ms", SHARES, k=20, size="1 minute", hop="30 seconds", **given)
    theirs = windows.hopping("1 minute", "30 seconds", agg=agg, **given)
    assert repr(ours) == repr(theirs)
    expected = played(theirs, [rows[:100], rows[100:]], flush=True)
    assert played(ours, [rows[:100], rows[100:]], flush=True) == expected
    whole = sketches.quantiles("ms", SHARES, size="5 minutes", **given)
    (last,) = played(whole, [rows], flush=True)[-1]
    assert (last["window_start"], last["quantiles"]["count"]) == (at(0), 300)


def test_what_cannot_be_meant_is_refused() -> None:
    for said, code, where in (
        ({"probabilities": []}, "NO_PROBABILITY", "sketches.approx_quantiles"),
        ({"probabilities": [2]}, "PROBABILITY_OUT_OF_RANGE", "sketches.approx_quantiles"),
        ({"k": 1}, "K_OUT_OF_RANGE", "sketches.approx_quantiles"),
        ({"column": None}, "NOT_A_NAME", "sketches.approx_quantiles"),
        ({"into": 3}, "NOT_A_NAME", "sketches.quantiles"),
        ({"hop": "1 minute"}, "WINDOW_WITHOUT_SIZE", "sketches.quantiles"),
        ({"max_keys": 0}, "MAX_KEYS_OUT_OF_RANGE", "sketches.quantiles"),
    ):
        given: dict[str, Any] = {"column": "ms", "probabilities": [0.5], "by": "k"} | said
        with pytest.raises(SpecError) as caught:
            sketches.quantiles(**given)
        assert (caught.value.code, caught.value.where) == (code, where)


def test_a_column_that_has_no_order_of_numbers_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        replay(sketches.quantiles("k", [0.5]), [[row("a", 1.0)]], schema=SCHEMA)
    assert caught.value.code == "AGGREGATE_TYPE"
    assert caught.value.where == "sketches.quantiles"
