"""What the pages state about ties, of values that stay, and of parts and rows without a result."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.testing import at, replay

INFINITY, NAN = math.inf, math.nan
SCHEMA = pa.schema(
    [
        ("b", pa.float64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("a", pa.string()),
    ]
)


def row(second: float, **values: Any) -> dict[str, Any]:
    return {"ts": at(second), "a": "", "b": 0.0, **values}


def rows_of(operator: Any, *batches: list[dict[str, Any]], **given: Any) -> list[dict[str, Any]]:
    return [
        found for result in replay(operator, batches, flush=True, **given) for found in result.rows
    ]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("b", [None, -INFINITY, -1.0, 0.0, 2.5, INFINITY, NAN]),
        ("a", [None, "", "B", "a", "b", "\u00e9"]),
    ],
)
def test_ties_are_ordered_by_value_with_null_first_and_nan_last(
    column: str, expected: list[Any]
) -> None:
    over = windows.over(
        time="ts", values={"p": windows.lag("b")}, within="1 hour", delay="0 seconds"
    )
    grid = windows.resample(
        "1 second",
        time="ts",
        values={column: "previous"},
        max_gap="1 second",
        delay="0 seconds",
    )
    for seed in range(5):
        tied = [row(1, **{column: value}) for value in expected]
        random.Random(seed).shuffle(tied)
        assert repr([found[column] for found in rows_of(over, tied, schema=SCHEMA)]) == repr(
            expected
        )
        (first, *_) = rows_of(grid, tied, schema=SCHEMA)
        assert repr(first[column]) == repr(expected[-1])


def test_ties_are_ordered_by_the_tie_break_and_then_by_the_names_of_columns() -> None:
    tied = [row(1, a="x", b=2.0), row(1, a="y", b=1.0), row(1, a="x", b=1.0)]
    for tie_break, expected in (
        ((), [("x", 1.0), ("x", 2.0), ("y", 1.0)]),
        ("b", [("x", 1.0), ("y", 1.0), ("x", 2.0)]),
    ):
        over = windows.over(
            time="ts",
            values={"p": windows.lag("b")},
            within="1 hour",
            delay="0 seconds",
            tie_break=tie_break,
        )
        found = rows_of(over, tied, schema=SCHEMA)
        assert [(one["a"], one["b"]) for one in found] == expected


def test_a_part_of_a_long_session_without_events_has_no_result() -> None:
    for seconds, expected in (
        ([0, 9], [(0, 10, 2)]),
        ([0, 5, 9, 19], [(0, 10, 3), (10, 20, 1)]),
    ):
        session = windows.session(
            "10 seconds",
            time="ts",
            agg={"n": agg.count()},
            delay="0 seconds",
            max_length="10 seconds",
        )
        found = rows_of(session, [row(second) for second in seconds])
        cut = [(one["window_start"].second, one["window_end"].second, one["n"]) for one in found]
        assert cut == expected


def test_without_lateness_only_a_row_that_would_extend_a_published_session_is_a_straggler() -> None:
    session = windows.session(
        "10 seconds", time="ts", by="a", agg={"n": agg.count()}, delay="0 seconds"
    )
    script = [
        [row(10, a="x"), row(20, a="x")],
        [row(30, a="y")],
        [row(31, a="y")],  # [10, 30) of x is published
        [row(25, a="x"), row(26, a="z"), row(12, a="x"), row(12, a="z")],
    ]
    last = replay(session, script)[-1].counts
    assert last is not None
    assert (last.on_time, last.stragglers, last.too_late) == (1, 1, 2)
    for operator in (
        windows.tumbling("10 seconds", time="ts", agg={"n": agg.count()}, delay="0 seconds"),
        windows.hopping(
            "20 seconds", "10 seconds", time="ts", agg={"n": agg.count()}, delay="0 seconds"
        ),
    ):
        counts = replay(operator, [[row(10)], [row(35)], [row(1), row(2)]])[-1].counts
        assert counts is not None
        assert (counts.stragglers, counts.too_late) == (0, 2)


@pytest.mark.parametrize("seed", range(40))
def test_nan_and_infinities_stay_in_an_average_until_it_begins_anew(seed: int) -> None:
    dice, second = random.Random(seed), 0
    script, expected, special, known = [], [], 0.0, False
    for _ in range(dice.randint(2, 25)):
        gap = dice.choice([1, 5, 100, 130, 300, 1000, 3600, 3700])
        second += gap  # of half-lives
        if gap > 3600:
            special, known = 0.0, False
        value = dice.choice([1.0, -3.0, 4.5, None, 2.0])
        if dice.random() < 0.15:
            value = dice.choice([NAN, INFINITY, -INFINITY])
        known = known or value is not None
        if value is not None and not math.isfinite(value):
            special += value
        script.append(row(second, b=value))
        expected.append("null" if not known else "finite" if special == 0 else str(special))
    over = windows.over(
        time="ts",
        values={"mean": windows.ewma("b", half_life="1 second")},
        within="1 hour",
        delay="0 seconds",
    )
    cut = dice.randrange(len(script))
    once = rows_of(over, script, schema=SCHEMA)
    twice = rows_of(over, script[:cut], script[cut:], schema=SCHEMA, restart=True)
    assert repr(once) == repr(twice)
    for one, outcome in zip(once, expected, strict=True):
        mean = one["mean"]
        formatted = "null" if mean is None else "finite" if math.isfinite(mean) else str(mean)
        assert formatted == outcome


def test_a_variance_is_that_of_doubles_so_a_constant_is_subtracted_before() -> None:
    base = 2**60
    for constant, expected in ((0, 0.0), (base, 4.0)):
        tumbling = windows.tumbling(
            "10 seconds", time="ts", agg={"v": agg.variance("n")}, delay="0 seconds"
        )
        found = rows_of(tumbling, [row(1, n=base + number - constant) for number in (0, 2, 4)])
        assert found[0]["v"] == expected
