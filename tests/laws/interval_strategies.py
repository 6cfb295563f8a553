"""Histories of both sides of an interval join with many edge cases."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import joins
from streamops.joins.core.interval import IntervalCore
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.spark.drive import resolve
from streamops.testing.laws import Arrival, Case, to_rows
from tests.laws.strategies import NAN, NUDGES, PACES, STRANGERS, base_times
from tests.oracles.interval import IntervalOracle
from tests.oracles.windows import Row

TIME = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("word", pa.string()), ("ts", TIME), ("number", pa.float64()), ("n", pa.int64())])
RIGHT = pa.schema([("at", TIME), ("key", pa.string()), ("number", pa.float64()), ("n", pa.int64())])
SCHEMAS = (LEFT, RIGHT)

# Few keys, so that rows meet; and those that need care.
NAMES = ["a", "a", "b", "", None]
NUMBERS = [0.0, 0.0, -0.0, NAN, None]
PACE = 1_000

HOWS = ["inner", "left", "right", "full", "semi", "anti"]

Drawn = list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]


@st.composite
def oracles(draw: st.DrawFn) -> IntervalOracle:
    """Parameters of interval joins, for the oracle."""
    matches = draw(st.sampled_from(["every", "every", "first", "last"]))
    how = draw(st.sampled_from(HOWS if matches == "every" else ["inner", "left"]))
    stragglers = draw(st.sampled_from(["retract", "retract", "route", "drop"]))
    lower = draw(st.sampled_from([0, 0, -PACE, -4 * PACE, 2 * PACE, 1, -7]))
    width = draw(st.sampled_from([0, PACE, 3 * PACE, 6 * PACE, 1, 333]))
    alone = how in ("left", "right", "full", "anti") or matches != "every"
    return IntervalOracle(
        columns=(tuple(LEFT.names), tuple(RIGHT.names)),
        by=draw(st.sampled_from([(("word", "key"),)] * 2 + [(("number", "number"),), BOTH])),
        time=("ts", "at"),
        lower=lower,
        upper=lower + width,
        how=how,
        matches=matches,
        tie_break=None if matches == "every" else "n",
        allowed_lateness=PACE * draw(st.sampled_from([3, 100, 1, 0])),
        stragglers=stragglers,
        too_late=draw(st.sampled_from(["drop", "route"])) if stragglers == "retract" else "drop",
        early=draw(st.sampled_from(["never", "every batch"])) if alone else "never",
    )


BOTH = (("word", "key"), ("number", "number"))


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """A join, and micro-batches for it: some empty, each somewhat later than the one before."""
    settings, timestamp = draw(oracles()), draw(base_times)
    odd = draw(st.sampled_from([0] * 8 + [1, 4]))
    seed, count = draw(st.integers(0, 2**32)), draw(st.integers(1, 10))
    behind = draw(st.sampled_from([0, 0, 2, -2]))  # how far the right is behind the left, in paces
    placed, numbered = [], 0
    for number in range(count):  # each from dice of its own: fewer are the same ones
        dice = random.Random(f"{seed} {number}")
        pair = []
        for side in (0, 1):
            here = timestamp + (number - behind * side) * PACE
            rows = []
            for _ in range(dice.choice([0, 0, 1, 2, 4, 6])):
                numbered += 1
                near = dice.randrange(8 + odd) < 8
                jump = dice.choice(PACES) * PACE + dice.choice(NUDGES)
                time = here + jump if near else dice.choice(STRANGERS)
                word, value = dice.choice(NAMES), dice.choice(NUMBERS)
                # A prime number of steps: it does not follow arrival. Some are of one rank, or none.
                rank = dice.choice([numbered * 7 % 131] * 3 + [1, None])
                rows.append(row_of(side, word, time, value, rank))
            if rows and not dice.randrange(5):
                rows.append(dice.choice(rows))
            pair.append(rows)
        placed.append((pair[0], pair[1]))
    delay = PACE * draw(st.sampled_from([0, 0, 1, 2]))
    batches = [tables_of(*pair) for pair in placed]
    return case_of(settings, batches, delay=delay, seed=draw(st.integers(0, 2**16)))


def row_of(
    side: int, word: str | None, time: int | None, number: float | None, n: int | None
) -> tuple[Any, ...]:
    """A row in the order of its side's columns."""
    return (word, time, number, n) if side == 0 else (time, word, number, n)


def tables_of(
    left: Sequence[tuple[Any, ...]], right: Sequence[tuple[Any, ...]]
) -> tuple[pa.Table, pa.Table]:
    """Rows as tuples in the order of the schemas, instants as microseconds."""
    return _table(left, LEFT), _table(right, RIGHT)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(column, pa.int64()).cast(TIME)
        if field.type == TIME
        else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def case_of(
    settings: IntervalOracle,
    batches: Sequence[tuple[pa.Table, pa.Table]],
    *,
    delay: int = 0,
    seed: int = 0,
) -> Case:
    """The case of this join over these micro-batches."""
    spec = spec_of(settings, delay)

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        oracle = settings.fresh()
        for (left, right), watermark in arrivals:
            oracle.watermark = watermark
            oracle.left += oracle.accepted(to_rows(left), 0)
            oracle.right += oracle.accepted(to_rows(right), 1)
        rows = [
            [tuple(row.get(name) for name in schema.names) for row in arrived]
            for schema, arrived in zip(SCHEMAS, (oracle.left, oracle.right), strict=True)
        ]
        left, right = tables_of(*rows)
        packed = (
            IntervalCore().pack(spec, left, "left"),
            IntervalCore().pack(spec, right.select(spec.right.schema.names), "right"),
        )
        return to_rows(IntervalCore().run(spec, packed).rows)

    return Case(
        core=IntervalCore(),
        spec=spec,
        batches=tuple((left, right.select(spec.right.schema.names)) for left, right in batches),
        oracle=settings.fresh,
        accepted=accepted,
        # Only a stream has late matches.
        ignore=("status",) if settings.corrects else (),
        seed=seed,
    )


def spec_of(
    settings: IntervalOracle, delay: int, schemas: tuple[pa.Schema, pa.Schema] = SCHEMAS
) -> IntervalSpec:
    """The core's spec of the oracle's settings."""
    made = joins.interval(
        None,
        dt.timedelta(microseconds=settings.lower),
        dt.timedelta(microseconds=settings.upper),
        by=dict(settings.by),
        time=settings.time,
        how=settings.how,  # type: ignore[arg-type]
        matches=settings.matches,  # type: ignore[arg-type]
        tie_break=settings.tie_break,
        delay=dt.timedelta(microseconds=delay),
        allowed_lateness=dt.timedelta(microseconds=settings.allowed_lateness),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
        too_late=settings.too_late,  # type: ignore[arg-type]
        early=settings.early,  # type: ignore[arg-type]
        into="status",
    )
    spec = resolve(made, schemas, (None, None))
    assert isinstance(spec, IntervalSpec)
    return spec
