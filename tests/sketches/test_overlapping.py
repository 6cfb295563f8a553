"""Overlaps of audiences as an aggregate, in windows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import windows
from streamops.aggregates import approx_overlap
from streamops.kernel.errors import SchemaError, SpecError
from streamops.testing import at, fold, replay
from tests.oracles import theta as oracle
from tests.sketches.core.theta_cases import items

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("page", pa.string()), ("user", pa.int64())])


def visits(second: int, page: str | None, users: Any) -> list[dict[str, Any]]:
    return [{"ts": at(second), "page": page, "user": user} for user in users]


def estimates(arguments: dict[str, Any]) -> Any:
    sizes = {entry["audience"]: entry["estimate"] for entry in arguments["audiences"]}
    pairs = {
        (entry["left"], entry["right"]): {
            name: part["estimate"] for name, part in entry.items() if isinstance(part, dict)
        }
        for entry in arguments["pairs"]
    }
    return sizes, pairs


def test_overlaps_in_windows_are_corrected() -> None:
    script = [
        [*visits(1, "a", range(60)), *visits(2, "b", range(40, 90)), *visits(3, None, [1, 2])],
        [*visits(4, "c", [5, None]), *visits(70, "b", [1])],
        [*visits(75, "other", [1])],
        [*visits(30, "c", range(50, 60)), *visits(150, "a", [3])],
    ]
    played = replay(
        windows.tumbling(
            "1 minute",
            time="ts",
            agg={"who": approx_overlap("user", of="page", between=["a", "b", "c"], k=32)},
            delay="0 seconds",
            allowed_lateness="1 hour",
            stragglers="retract",
        ),
        script,
        schema=SCHEMA,
        restart=True,
    )
    rows = [row for batch in played for row in batch.rows if row["window_start"] == at(0)]
    final = [row for row in rows if row["_change_type"] != "update_preimage"][-1]
    pages = {"a": range(60), "b": range(40, 90), "c": [5, *range(50, 60)]}
    users = {name: items(seen) for name, seen in pages.items()}
    assert estimates(final["who"]) == oracle.overlaps(users, 32)
    assert {row["_change_type"] for row in rows} == {
        "insert",
        "update_preimage",
        "update_postimage",
    }


def test_it_has_a_format_and_parameters() -> None:
    between = ["a", dt.date(2024, 1, 2), 3, True, b"x"]
    arguments = repr(approx_overlap("user", of="page", between=between))
    assert arguments == (
        "approx_overlap('user', of='page', "
        "between=['a', datetime.date(2024, 1, 2), 3, True, b'x'], k=4096)"
    )
    assert approx_overlap("user", of="page", between=("a", "b")).columns == ("user", "page")


@pytest.mark.parametrize(
    "between",
    [
        "ab",
        b"ab",
        None,
        [],
        ["a"],
        ["a", "a"],
        [1, True],
        [1.5, 2.5],
        ["a", None],
        ["a", ["b"]],
        [at(0), at(1)],
        list(range(17)),
        pytest.param({"a", "b"}, id="a set"),
    ],
    ids=repr,
)
def test_invalid_audiences_are_refused(between: Any) -> None:
    with pytest.raises(SpecError, match="2 to 16 different values") as caught:
        approx_overlap("user", of="page", between=between)
    assert caught.value.code == "INVALID_PARAMETER"


@pytest.mark.parametrize(("column", "of"), [(1, "page"), ("user", None)])
def test_columns_are_named(column: Any, of: Any) -> None:
    with pytest.raises(SpecError, match="PARAMETER_TYPE"):
        approx_overlap(column, of=of, between=["a", "b"])


@pytest.mark.parametrize(
    ("dtype", "between"),
    [
        (pa.string(), [1, 2]),
        (pa.int64(), ["a", "b"]),
        (pa.int8(), [1, 300]),
        (pa.float64(), [1, 2]),
        (pa.timestamp("us", "UTC"), [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
    ],
    ids=str,
)
def test_audiences_are_values_of_their_column(dtype: pa.DataType, between: Any) -> None:
    schema = SCHEMA.set(1, pa.field("page", dtype))
    aggregate = approx_overlap("user", of="page", between=between)
    with pytest.raises(SchemaError) as caught:
        aggregate.bind(schema, time="ts")
    assert caught.value.code == "VALUE_TYPE"
    assert f"between={between!r}, column 'page' of type" in str(caught.value)


def test_k_is_as_for_a_sketch() -> None:
    with pytest.raises(SpecError, match="PARAMETER_OUT_OF_RANGE"):
        approx_overlap("user", of="page", between=["a", "b"], k=100)


def test_there_is_no_spark_expression() -> None:
    with pytest.raises(SpecError, match="SKETCH_UNSUPPORTED"):
        approx_overlap("user", of="page", between=["a", "b"]).to_spark()


KEYED = SCHEMA.append(pa.field("country", pa.string()))


def in_country(country: str | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"country": country} for row in rows]


BY_COUNTRY = [
    [*in_country("x", visits(1, "a", range(5))), *in_country("y", visits(2, "b", [1]))],
    [*in_country("x", visits(70, "b", range(3, 9))), *in_country("y", visits(3, "other", [2, 3]))],
    in_country("x", visits(71, "b", [3, 4])),
    in_country(None, visits(200, None, [7])),
]
TWO = {"overlap": approx_overlap("user", of="page", between=["a", "b"], k=32)}


def test_running_overlaps_are_emitted_when_they_change() -> None:
    running = windows.running(by="country", agg=TWO, changes="retract")
    played = replay(running, BY_COUNTRY, schema=KEYED, restart=True)
    # The second time y saw another page; the third time x saw nothing new.
    assert [
        [(r["country"], r["revision"]) for r in item.rows if r["_change_type"] != "update_preimage"]
        for item in played
    ] == [[("x", 0), ("y", 0)], [("x", 1)], [], [(None, 0)]]
    folded = fold((row for item in played for row in item.rows), key=["country"])
    (final,) = (row for row in folded if row["country"] == "x")
    assert estimates(final["overlap"]) == (
        {"a": 5, "b": 6},
        {("a", "b"): {"both": 2, "only_left": 3, "only_right": 4, "either": 9, "jaccard": 2 / 9}},
    )
    assert repr(running).startswith("windows.running(agg={'overlap': ")
    assert repr(TWO["overlap"]) in repr(running)


def test_overlaps_per_key_and_window() -> None:
    tumbling = windows.tumbling("1 minute", time="ts", by="country", agg=TWO, delay="0 seconds")
    played = replay(tumbling, BY_COUNTRY, schema=KEYED, flush=True)
    sizes = {
        (row["country"], row["window_start"]): estimates(row["overlap"])[0]
        for item in played
        for row in item.rows
    }
    assert sizes == {
        ("x", at(0)): {"a": 5, "b": 0},
        ("y", at(0)): {"a": 0, "b": 1},
        ("x", at(60)): {"a": 0, "b": 6},
        (None, at(180)): {"a": 0, "b": 0},
    }
