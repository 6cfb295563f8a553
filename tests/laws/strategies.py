"""Histories of rows in windows, drawn to be as unpleasant as they can be."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.columns import concat
from streamops.kernel.values import comparable
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.windows.core.grid import GridCore
from tests.oracles.windows import GridOracle, Interval, Row, WindowOracle, key_of

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("word", pa.string()),
        ("number", pa.float64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("seq", pa.int64()),
    ]
)

# Every aggregate whose result does not depend on the order of its rows, given exact sums.
AGGREGATES = {
    "rows": agg.count(),
    "present": agg.count("n"),
    "sum_n": agg.sum("n"),
    "sum_x": agg.sum("x"),
    "sum_d": agg.sum("d"),
    "mean_n": agg.mean("n"),
    "mean_x": agg.mean("x"),
    "mean_d": agg.mean("d"),
    "min_x": agg.min("x"),
    "max_word": agg.max("word"),
    "first_word": agg.first("word", tie_break="seq"),
    "last_n": agg.last("n", tie_break="seq"),
    "distinct_x": agg.count_distinct("x", at_most=4, when_full="null"),
    "distinct_word": agg.count_distinct("word", at_most=9),
    "quantiles_x": agg.percentile("x", [0.5, 0.0, 0.3, 1], at_most=6, when_full="null"),
    "median_d": agg.percentile("d", 0.5, at_most=100),
    "collect_word": agg.collect_list("word", at_most=3, tie_break="seq", when_full="null"),
    "earliest_n": agg.collect_list("n", at_most=2, tie_break="seq", when_full="reject_new"),
    "latest_x": agg.collect_list("x", at_most=2, tie_break="seq", when_full="evict_oldest"),
    "top_word": agg.top(2, "word", ranked_by="x", tie_break="seq"),
}

NAN, INFINITY = float("nan"), float("inf")
YEAR_1, YEAR_9999_ENDS = -62_135_596_800_000_000, 253_402_300_799_999_999

# Few values, so that windows have several rows, and some corrections change nothing.
TEXTS = ["a", "a", "b", None]
NUMBERS = [0.0, 0.0, -0.0, NAN, None]
INTEGERS = [0, 1, -1, 2**40, None]
QUARTERS = [0.0, -0.0, 0.25, -1.75, 1e6, INFINITY, -INFINITY, NAN, None]
DECIMALS = [Decimal("0.01"), Decimal("-0.05"), Decimal("9999.99"), None]
# Distance of a row from the time of its micro-batch, in paces, and from a border.
PACES = [0, 1, -1, -2, -3, 0, -6]
NUDGES = [0, 0, 1, -1, 333, 4_000]
STRANGERS = [
    None, YEAR_1, YEAR_1 - 1, YEAR_9999_ENDS, YEAR_9999_ENDS + 1, -1, 0, 10**15, 2**62
]  # fmt: skip

sizes = st.sampled_from([10_000, 4_000, 14_000, 2_500, 60_000, 1_000, 7, 1])
# Streams after 1970, and sometimes one that starts in 1970 or before.
base_times = st.sampled_from([1_700_000_000_000_000] * 6 + [0, -86_400_000_000])

earlies = st.sampled_from(["never", "never", "every batch"])


def latenesses(pace: int, *, corrects: bool, early: str) -> st.SearchStrategy[int]:
    """Allowed lateness: never zero if only stragglers correct results."""
    least = 1_000 if corrects and early == "never" else 0  # Spark keeps milliseconds
    return st.sampled_from([pace * 3, pace * 100, pace, least])


def silences(pace: int) -> st.SearchStrategy[int | None]:
    """How long empty windows are published, for windows at this distance."""
    return st.sampled_from([None, None, pace, pace * 5 // 2, pace * 6])


@st.composite
def oracles(draw: st.DrawFn) -> WindowOracle:
    """Settings of windows, as the oracle takes them."""
    size = draw(sizes)
    hop = max(size * draw(st.sampled_from([10, 10, 5, 3, 6, 2, 1])) // 10, 1)
    stragglers = draw(st.sampled_from(["retract", "update", "route", "drop"]))
    corrects = stragglers in ("update", "retract")
    early = draw(earlies)
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    return WindowOracle(
        size=size,
        hop=hop,
        origin=draw(st.sampled_from([0, 1, hop // 2, hop - 1])),
        by=draw(st.sampled_from([(), (), ("word",), ("number",), ("number", "word")])),
        time="ts",
        agg={name: AGGREGATES[name] for name in names},
        allowed_lateness=draw(latenesses(pace_of(size), corrects=corrects, early=early)),
        stragglers=stragglers,
        too_late=draw(st.sampled_from(["drop", "route"])) if corrects else "drop",
        early=early,
        empty_for=draw(silences(hop)),
    )


Drawn = tuple[tuple[int, int] | int | None, str | None, float | None, Any, Any, Any]
"""A row: its time, as (paces, nudge) or by itself, and its values."""


def batches_row_by_row(odd: int) -> st.SearchStrategy[list[list[Drawn]]]:
    """Micro-batches that shrink well, and are mostly small."""
    near = st.tuples(st.sampled_from(PACES), st.sampled_from(NUDGES))
    times = st.one_of(near, st.sampled_from(STRANGERS)) if odd else near
    values = map(st.sampled_from, (TEXTS, NUMBERS, INTEGERS, QUARTERS, DECIMALS))
    return st.lists(st.lists(st.tuples(times, *values), max_size=6), min_size=1, max_size=8)


@st.composite
def batches_from_a_seed(draw: st.DrawFn, odd: int) -> list[list[Drawn]]:
    """Micro-batches that are full, and in which much happens."""
    seed, count = draw(st.integers(0, 2**32)), draw(st.integers(6, 12))

    def row(dice: random.Random) -> Drawn:
        near = dice.randrange(8 + odd) < 8
        return (
            (dice.choice(PACES), dice.choice(NUDGES)) if near else dice.choice(STRANGERS),
            *(dice.choice(item) for item in (TEXTS, NUMBERS, INTEGERS, QUARTERS, DECIMALS)),
        )

    batches = []
    for number in range(count):  # each from dice of its own: fewer are the same ones
        dice = random.Random(f"{seed} {number}")
        batches.append([row(dice) for _ in range(dice.choice([0, 2, 4, 6, 8]))])
    return batches


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Windows, and micro-batches for them: some empty, with advancing times."""
    settings, base_time = draw(oracles()), draw(base_times)
    pace = pace_of(settings.size)
    batches = draw(tables(base_time, pace))
    spec = spec_of(settings, delay=pace * draw(st.sampled_from([0, 0, 1, 2])))
    return case_of(settings, spec, batches, seed=draw(st.integers(0, 2**16)))


@st.composite
def tables(draw: st.DrawFn, base_time: int, pace: int) -> list[pa.Table]:
    """Micro-batches of rows: the first around this time, and each one pace later than the last."""
    odd = draw(st.sampled_from([0] * 8 + [1, 4]))
    full = draw(st.sampled_from([True, True, True, False]))
    drawn = draw(batches_from_a_seed(odd) if full else batches_row_by_row(odd))
    batches, count = [], 0
    for number, rows in enumerate(drawn):
        placed = []
        for time, *rest in rows:
            near = isinstance(time, tuple)
            instant = base_time + (number + time[0]) * pace + time[1] if near else time
            # A prime number of steps: no two rows share one, and it does not follow arrival.
            placed.append((instant, *rest, count * 7 % 131))
            count += 1
        batches.append(table_of(placed))
    return batches


def pace_of(size: int) -> int:
    """Half a window, in whole milliseconds, as delays are."""
    return max(size // 2_000, 1) * 1_000


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows as tuples in the order of the schema, instants as microseconds."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(columns[0], pa.int64()).cast(SCHEMA[0].type)]
    arrays += [pa.array(c, f.type) for c, f in zip(columns[1:], list(SCHEMA)[1:], strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def case_of(settings: GridOracle, spec: Any, batches: Sequence[pa.Table], seed: int) -> Case:
    """The case of these windows over these micro-batches."""

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        return accepted_rows(settings, spec, arrivals)

    return Case(
        core=GridCore(),
        spec=spec,
        batches=tuple((batch.select(spec.input.names),) for batch in batches),
        key=(*spec.by, "window_start", "window_end"),
        oracle=settings.fresh,
        accepted=accepted,
        seed=seed,
    )


def spec_of(settings: WindowOracle, delay: int, schema: pa.Schema = SCHEMA) -> Any:
    """The core's spec of the oracle's settings."""
    made = windows.hopping(
        dt.timedelta(microseconds=settings.size),
        dt.timedelta(microseconds=settings.hop),
        time=settings.time,
        by=settings.by,
        agg=settings.agg,
        delay=dt.timedelta(microseconds=delay),
        allowed_lateness=dt.timedelta(microseconds=settings.allowed_lateness),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
        too_late=settings.too_late,  # type: ignore[arg-type]
        early=settings.early,
        origin=dt.timedelta(microseconds=settings.origin),
        **empty_parameters(settings),
    ).parameters
    return made.resolve((schema,), carried=(None,), shards=1)


def empty_parameters(settings: GridOracle) -> dict[str, Any]:
    """The parameters of empty windows."""
    if settings.empty_for is None:
        return {}
    return {"empty_for": dt.timedelta(microseconds=settings.empty_for)}


def accepted_rows(settings: GridOracle, spec: Any, arrivals: Sequence[Arrival]) -> list[Row]:
    """The batch result of each window over the rows that it accepted.

    A row can be late for one window and early enough for the next, so the core runs once per
    window that missed a row, and once for all the others together.
    """
    everything = concat([batch for (batch,), _ in arrivals])
    let_in, all_in = settings.fresh(), settings.fresh()
    for (batch,), watermark in arrivals:
        let_in.watermark = watermark
        let_in.step(to_rows(batch), None)
    all_in.step(to_rows(everything), None)
    together = results_of(settings, spec, everything)

    def alone(rows: list[Row]) -> dict[Any, Row]:
        narrow = [f.name for f in spec.input]
        table = table_of([tuple(row.get(f.name) for f in SCHEMA) for row in rows])
        return results_of(settings, spec, table.select(narrow))

    found = []
    for window in [*let_in.contents, *let_in.empty()]:
        rows = let_in.contents.get(window, [])
        if len(rows) < len(all_in.contents.get(window, [])):
            # An empty window exists because of the last window before it.
            results = alone(rows or let_in.contents[let_in.last_before(window)])
        else:
            results = together
        found.append(results[comparable(window)])
    return found


def results_of(settings: GridOracle, spec: Any, rows: pa.Table) -> dict[Any, Row]:
    """Results of the batch, by window."""
    results = (
        row
        for row in to_rows(GridCore().run(spec, [GridCore().pack(spec, rows)]).rows)
        if row.get("late") is None
    )
    return {comparable((key_of(row, settings.by), interval_of(row))): row for row in results}


def interval_of(row: Row) -> Interval:
    """The window of a result."""
    return row["window_start"], row["window_end"]
