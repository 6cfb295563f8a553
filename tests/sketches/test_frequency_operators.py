"""Heavy hitters and frequencies as operators: per key, and per key and window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates, sketches
from streamops.kernel.errors import SchemaError, SpecError
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


def rows_of(transform: Any, **said: Any) -> list[dict[str, Any]]:
    return [
        each for batch in replay(transform, SCRIPT, schema=SCHEMA, **said) for each in batch.rows
    ]


def told(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(item.values()) for item in result["items"]]


@pytest.mark.parametrize("restart", [False, True])
def test_heavy_hitters_of_a_key_are_told_when_they_change(restart: bool) -> None:
    operator = sketches.heavy_hitters("page", at_least=0.3, weight="n", by="k")
    assert isinstance(operator, Operator)
    found = rows_of(operator, restart=restart)
    assert [(r["k"], r["revision"], told(r["heavy_hitters"])) for r in found] == [
        ("k", 0, [("a", 6, 6)]),
        ("other", 0, [("x", 1, 1)]),
        ("other", 1, [("x", 1, 1), ("y", 1, 1)]),
        ("k", 1, [("c", 9, 9), ("a", 6, 6)]),
    ]
    assert found[-1]["heavy_hitters"]["count"] == 16


@pytest.mark.parametrize("restart", [False, True])
def test_frequencies_of_a_key_are_told_and_asked(restart: bool) -> None:
    operator = sketches.frequency("page", of=["b", "a"], into="seen", sketch_into="any", by="k")
    last = {r["k"]: r for r in rows_of(operator, restart=restart)}
    assert told(last["k"]["seen"]) == [("b", 1, 1), ("a", 2, 2)]
    sketch = sketches.read(last["k"]["any"])
    assert isinstance(sketch, sketches.StoredCounts)
    assert sketch.count_of(["c", "x"]) == [(1, 1), (0, 0)]
    alone = rows_of(sketches.frequency("page", sketch_into="any", by="k", changes="retract"))
    assert set(alone[0]) == {"k", "any", "revision", "_change_type"}


def test_with_a_size_they_are_windows() -> None:
    operator = sketches.heavy_hitters(
        "page", counters=9, top=1, size="1 minute", time="ts", by="k", delay="0 seconds"
    )
    assert isinstance(operator, Operator)
    assert [(r["k"], told(r["heavy_hitters"])) for r in rows_of(operator)] == [
        ("k", [("a", 2, 2)]),
        ("other", [("x", 1, 1)]),
    ]
    hopping = sketches.frequency(
        "page", of=["a", "b"], size="1 minute", hop="30 seconds", time="ts"
    )
    assert isinstance(hopping, Operator)
    assert hopping.operator == "windows.hopping"


@pytest.mark.parametrize(
    ("make", "code", "where"),
    [
        (lambda: sketches.heavy_hitters("p"), "NO_SHARE", "sketches.approx_heavy_hitters"),
        (lambda: sketches.frequency("p"), "NO_ITEMS", "sketches.approx_frequency"),
        (
            lambda: sketches.frequency("p", of=["a"], sketch_into="frequency"),
            "NAME_TAKEN",
            "sketches.frequency",
        ),
        (lambda: sketches.frequency("p", sketch_into=3), "NOT_A_NAME", "sketches.frequency"),  # type: ignore[arg-type]
        (
            lambda: sketches.heavy_hitters("p", counters=9, into=3),
            "NOT_A_NAME",
            "sketches.heavy_hitters",
        ),  # type: ignore[arg-type]
        (
            lambda: sketches.heavy_hitters("p", counters=9, time="ts"),
            "WINDOW_WITHOUT_SIZE",
            "sketches.heavy_hitters",
        ),
        (
            lambda: sketches.frequency("p", of=["a"], size="1 hour"),
            "TIME_REQUIRED",
            "sketches.frequency",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any, code: str, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert (caught.value.code, caught.value.where) == (code, where)


def test_a_change_stream_is_refused_while_the_plan_is_built() -> None:
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    operator = sketches.heavy_hitters("page", at_least=0.1, by="k")
    assert isinstance(operator, Operator)
    with pytest.raises(SchemaError) as caught:
        operator.settings.bind(changes, shards=8)
    assert caught.value.code == "SKETCH_CANNOT_FORGET"
    assert caught.value.where == "sketches.heavy_hitters"


def test_the_estimates_stand_among_the_aggregates() -> None:
    assert aggregates.approx_heavy_hitters is sketches.approx_heavy_hitters
    assert aggregates.approx_frequency is sketches.approx_frequency
