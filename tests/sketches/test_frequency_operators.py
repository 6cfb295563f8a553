"""Heavy hitters and frequencies: running per key, and per window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates, sketches, windows
from streamops.kernel.errors import SchemaError, SpecError, located
from streamops.spark.operator import Operator
from streamops.testing import at, replay

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("page", pa.string()),
        ("n", pa.int64()),
    ]
)


def row(second: int, page: str | None, n: int = 1, key: str = "k") -> dict[str, Any]:
    return {"k": key, "ts": at(second), "page": page, "n": n}


SCRIPT = [
    [row(1, "a"), row(2, "b"), row(3, "a", 5), row(4, "x", key="other")],
    [row(5, None), row(6, "y", key="other")],
    [row(70, "c", 9)],
]


def rows_of(transform: Any, **arguments: Any) -> list[dict[str, Any]]:
    return [
        entry
        for batch in replay(transform, SCRIPT, schema=SCHEMA, **arguments)
        for entry in batch.rows
    ]


def emitted(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    assert all(item["estimate"] == item["upper"] for item in result["items"])
    return [(item["item"], item["lower"], item["upper"]) for item in result["items"]]


@pytest.mark.parametrize("restart", [False, True])
def test_heavy_hitters_of_a_key_are_emitted_when_they_change(restart: bool) -> None:
    heavy = aggregates.approx_top_k("page", at_least=0.3, weight="n")
    operator = windows.running(by="k", agg={"heavy_hitters": heavy})
    assert isinstance(operator, Operator)
    found = rows_of(operator, restart=restart)
    assert [(r["k"], r["revision"], emitted(r["heavy_hitters"])) for r in found] == [
        ("k", 0, [("a", 6, 6)]),
        ("other", 0, [("x", 1, 1)]),
        ("other", 1, [("x", 1, 1), ("y", 1, 1)]),
        ("k", 1, [("c", 9, 9), ("a", 6, 6)]),
    ]
    assert found[-1]["heavy_hitters"]["count"] == 16


@pytest.mark.parametrize("restart", [False, True])
def test_frequencies_of_a_key_are_emitted_and_queried(restart: bool) -> None:
    agg = {
        "seen": aggregates.count_min("page", of=["b", "a"]),
        "any": sketches.count_min_sketch("page"),
    }
    operator = windows.running(by="k", agg=agg)
    last = {r["k"]: r for r in rows_of(operator, restart=restart)}
    assert emitted(last["k"]["seen"]) == [("b", 1, 1), ("a", 2, 2)]
    sketch = sketches.read(last["k"]["any"])
    assert isinstance(sketch, sketches.StoredCounts)
    assert sketch.estimate_counts(["c", "x"]) == [(1, 1), (0, 0)]
    alone = rows_of(windows.running(by="k", agg={"any": agg["any"]}, changes="retract"))
    assert set(alone[0]) == {"k", "any", "revision", "_change_type"}


def test_both_are_aggregates_of_windows() -> None:
    given: dict[str, Any] = {"time": "ts", "by": "k", "delay": "0 seconds"}
    top = {"top": aggregates.approx_top_k("page", counters=9, top=1)}
    tumbling = windows.tumbling("1 minute", agg=top, **given)
    assert [(r["k"], emitted(r["top"])) for r in rows_of(tumbling)] == [
        ("k", [("a", 2, 2)]),
        ("other", [("x", 1, 1)]),
    ]
    counts = {"counts": aggregates.count_min("page", of=["a", "b"])}
    hopping = windows.hopping("1 minute", "30 seconds", agg=counts, **given)
    found = [(r["window_start"], emitted(r["counts"])) for r in rows_of(hopping) if r["k"] == "k"]
    assert found == [(at(start), [("a", 2, 2), ("b", 1, 1)]) for start in (-30, 0)]


@pytest.mark.parametrize(
    ("make", "code", "where"),
    [
        (lambda: aggregates.approx_top_k("p"), "PARAMETER_MISSING", "aggregates.approx_top_k"),
        (lambda: aggregates.count_min("p", of=()), "PARAMETER_MISSING", "aggregates.count_min"),
        (
            lambda: windows.running(by="p", agg={"p": sketches.count_min_sketch("p")}),
            "NAME_TAKEN",
            "windows.running",
        ),
        (
            lambda: windows.running(agg={3: sketches.count_min_sketch("p")}),  # type: ignore[dict-item]
            "PARAMETER_TYPE",
            "windows.running",
        ),
    ],
)
def test_contradicting_parameters_are_refused(make: Any, code: str, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert (caught.value.code, caught.value.where) == (code, where)


def test_a_change_stream_is_refused_while_the_plan_is_built() -> None:
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    operator = windows.running(
        by="k", agg={"heavy_hitters": aggregates.approx_top_k("page", at_least=0.1)}
    )
    assert isinstance(operator, Operator)
    with pytest.raises(SchemaError) as caught, located("windows.running"):
        operator.parameters.resolve((changes,), carried=(None,), shards=8)
    assert caught.value.code == "CHANGE_STREAM_INPUT"
    assert caught.value.where == "windows.running"
