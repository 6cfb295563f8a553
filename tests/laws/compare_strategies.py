"""Histories of windows to be compared, drawn to be as unpleasant as they can be."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import windows
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.windows.core.compare import CompareCore
from streamops.windows.core.compare_spec import CompareSpec
from tests.laws.strategies import NUMBERS, TEXTS, YEAR_9999_ENDS
from tests.oracles.compare import CompareOracle
from tests.oracles.windows import Row

INSTANT = pa.timestamp("us", tz="UTC")
PLAIN = pa.schema(
    [
        ("window_start", INSTANT),
        ("word", pa.string()),
        ("n", pa.int32()),
        ("window_end", INSTANT),
        ("x", pa.float64()),
        ("number", pa.float64()),
        ("d", pa.decimal128(6, 2)),
    ]
)
SCHEMAS = {
    "never": PLAIN,
    "upserts": PLAIN.append(pa.field("revision", pa.int32())),
    "changes": PLAIN.append(pa.field("revision", pa.int64())).append(
        pa.field("_change_type", pa.string())
    ),
}
INTEGERS = [0, 1, 1, -1, 7, 2**31 - 1, -(2**31), None]
QUARTERS = [0.0, -0.0, 0.25, -1.75, 1e6, float("inf"), float("-inf"), float("nan"), None]
DECIMALS = [Decimal("0.25"), Decimal("-0.50"), Decimal("0.00"), Decimal("9999.75"), None]
CHANGES = ["insert", "update_postimage", "update_postimage", "update_preimage", "delete"]

HOUR = 3_600_000_000
# Two days before the clock was put forward, and back, in Berlin.
CHANGED = [1_364_515_200_000_000, 1_382_659_200_000_000]


@st.composite
def oracles(draw: st.DrawFn) -> tuple[CompareOracle, int]:
    """Settings of a comparison, as the oracle takes them, and the size of its windows."""
    stragglers = draw(st.sampled_from(["retract", "update", "retract", "update", "route", "drop"]))
    types = {"retract": ["changes", "upserts", "never"], "update": ["upserts", "never"]}
    corrects = stragglers in types
    size, zone = draw(st.sampled_from([1_000, 10_000, 7_000])), ""
    period: int | str = size * draw(st.sampled_from([2, 1, 4, 6, 3])) // 2
    lateness = size * draw(st.sampled_from([6, 3, 200, 4, 0]))
    if draw(st.sampled_from([False, False, True])):
        size, period, zone = HOUR, draw(st.sampled_from(["day", "day", "week"])), "Europe/Berlin"
        lateness = HOUR * draw(st.sampled_from([60, 30, 500, 0]))
    periods = draw(st.sampled_from([1, 2, 5, 3, 4]))
    settings = CompareOracle(
        period=period,
        zone=zone,
        by=draw(st.sampled_from([(), (), (), ("word",), ("number",), ("number", "word")])),
        values=tuple(draw(st.permutations("nxd"))[: draw(st.integers(1, 3))]),
        revised=draw(st.sampled_from(types.get(stragglers, ["never"]))),
        allowed_lateness=lateness,
        stragglers=stragglers,
        too_late=draw(st.sampled_from(["drop", "route"])) if corrects else "drop",
        periods=periods,
        threshold=draw(st.sampled_from([3.5, 1.0, 0.5])) if periods > 1 else 3.5,
        min_periods=draw(st.integers(1, periods)),
    )
    return settings, size


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Comparisons, and micro-batches for them: some empty, with advancing times."""
    settings, size = draw(oracles())
    is_calendar = isinstance(settings.period, str)
    base_time = 1_700_000_000_000_000
    if is_calendar:
        base_time = draw(st.sampled_from(CHANGED))
    seed, count = draw(st.integers(0, 2**32)), draw(st.sampled_from([12, 8, 5, 2, 1]))
    odd = draw(st.sampled_from([0, 0, 0, 1]))
    pace = draw(st.sampled_from([12, 24, 13])) if is_calendar else 1
    batches = []
    for number in range(count):  # each from dice of its own: fewer are the same ones
        dice = random.Random(f"{seed} {number}")
        rows = [
            _row(dice, settings, base_time, size, number * pace, odd)
            for _ in range(dice.choice([0, 4, 8, 12]))
        ]
        batches.append(table_of(rows, settings.revised))
    delay = size * draw(st.sampled_from([0, 0, 1, 2]))
    return case_of(settings, batches, delay=delay, seed=draw(st.integers(0, 2**16)))


def _row(
    dice: random.Random, settings: CompareOracle, base_time: int, size: int, position: int, odd: int
) -> Row:
    back = [0, 0, 1, -1, -2, -3, -7]
    if settings.zone:
        back = [0, 0, 1, 2, -12, -24, -25, -23, -36, -48]
    start: int | None = base_time + (position + dice.choice(back)) * size
    end: int | None = start + size * dice.choice([1, 1, 1, 2])
    if dice.randrange(20) < odd:
        start, end = None, dice.choice([None, YEAR_9999_ENDS + 1])
    row: Row = {
        "window_start": start,
        "window_end": end,
        "word": dice.choice(TEXTS),
        "number": dice.choice(NUMBERS),
    }
    row["revision"] = dice.choice([0, 0, 1, 2, 3])
    row["_change_type"] = dice.choice(CHANGES)
    if settings.revised == "never":
        row["revision"] = 0
    # The values depend on the window only, so a repeated row is equal.
    key = [str(row[name] if row[name] else None) for name in settings.by]
    same = random.Random(f"{key} {start} {end} {row['revision']}")
    row |= {"n": same.choice(INTEGERS), "x": same.choice(QUARTERS), "d": same.choice(DECIMALS)}
    return row


def table_of(rows: Sequence[Row], revised: str) -> pa.Table:
    """Rows with their instants as microseconds."""
    schema = SCHEMAS[revised]
    columns = []
    for item in schema:
        values = [row[item.name] for row in rows]
        plain = pa.int64() if item.type == INSTANT else item.type
        columns.append(pa.array(values, plain).cast(item.type))
    return pa.table(columns, schema=schema)


def case_of(settings: CompareOracle, batches: Sequence[pa.Table], *, delay: int, seed: int) -> Case:
    """The case of this comparison over these micro-batches."""
    spec = spec_of(settings, delay)

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        oracle = settings.fresh()
        for (batch,), watermark in arrivals:
            oracle.watermark = watermark
            oracle.step(to_rows(batch), None)
        plain = [
            {name: row.get(name) for name in SCHEMAS[settings.revised].names}
            for row in oracle.arrived
        ]
        rows = table_of(plain, settings.revised).select(spec.input.names)
        return to_rows(CompareCore().run(spec, [CompareCore().pack(spec, rows)]).rows)

    return Case(
        core=CompareCore(),
        spec=spec,
        batches=tuple((batch.select(spec.input.names),) for batch in batches),
        key=(*spec.by, "window_start", "window_end"),
        oracle=settings.fresh,
        accepted=accepted,
        seed=seed,
    )


def spec_of(settings: CompareOracle, delay: int) -> CompareSpec:
    """The core's spec of the oracle's settings."""
    period: Any = settings.period
    if not settings.zone:
        period = dt.timedelta(microseconds=period)
    made = windows.compare(
        period,
        zone=settings.zone or None,
        values=settings.values,
        by=settings.by,
        delay=dt.timedelta(microseconds=delay),
        allowed_lateness=dt.timedelta(microseconds=settings.allowed_lateness),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
        too_late=settings.too_late,  # type: ignore[arg-type]
        periods=settings.periods,
        threshold=settings.threshold,
        min_periods=settings.min_periods if settings.periods > 1 else None,
    ).parameters
    return made.resolve((SCHEMAS[settings.revised],), carried=(None,), shards=1)
