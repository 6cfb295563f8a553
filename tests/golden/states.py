"""Histories whose state is kept, as bytes, for as long as anybody may have a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.codec import encode
from streamops.kernel.core import State
from streamops.kernel.operator import Core
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from streamops.windows.core.grid_spec import CalendarSpec, CumulativeSpec, FixedSpec
from tests.oracles.calendars import CalendarOracle, CumulativeOracle
from tests.oracles.windows import GridOracle, WindowOracle

FOLDER = Path(__file__).parent
SHARDS = 16

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("origin", pa.string()),
        ("gate", pa.float64()),
        ("delay", pa.int64()),
        ("price", pa.decimal128(6, 2)),
        ("seq", pa.int64()),
    ]
)
AGG = {
    "n": agg.count(),
    "known": agg.count("delay"),
    "sum": agg.sum("delay"),
    "sum_gate": agg.sum("gate"),
    "sum_price": agg.sum("price"),
    "mean": agg.mean("delay"),
    "mean_price": agg.mean("price"),
    "variance": agg.variance("delay"),
    "min": agg.min("price"),
    "max": agg.max("origin"),
    "first": agg.first("origin", tie_break="seq"),
    "last": agg.last("delay", tie_break="seq"),
}
LISTS = {
    "distinct": agg.count_distinct("gate", at_most=9),
    "few": agg.count_distinct("seq", at_most=1, when_full="null"),
    "median": agg.percentile("delay", 0.5, at_most=9),
    "spread": agg.percentile("price", [0.0, 0.3, 1.0], at_most=9),
    "collect": agg.collect_list("origin", at_most=9, tie_break="seq"),
    "latest": agg.collect_list("delay", at_most=2, tie_break="seq", when_full="evict_oldest"),
    "top": agg.top(2, "origin", ranked_by="delay", tie_break="seq"),
}
SECOND = 1_000_000
HOUR = 3_600 * SECOND
NOW = 1_700_000_000 * SECOND
AUTUMN = 1_383_364_800 * SECOND  # midnight of 2 November 2013 in New York, a day before a change


@dataclass(frozen=True)
class History:
    """Micro-batches, and the watermark each of them closed by."""

    name: str
    settings: dict[str, Any]
    batches: tuple[tuple[list[tuple[Any, ...]], int | None], ...]
    operator: str = "hopping"
    start: int = NOW
    pace: int = SECOND

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.bin"

    @property
    def spec(self) -> FixedSpec:
        arguments = {
            "time": "ts",
            "by": ("origin", "gate"),
            "agg": AGG,
            "delay": "1 second",
            "allowed_lateness": "0 seconds",
            "stragglers": "drop",
            "too_late": "drop",
            "early": "never",
        } | self.settings
        operator: Any = getattr(windows, self.operator)
        return operator(**arguments).parameters.resolve((SCHEMA,), carried=(None,), shards=1)

    @property
    def watermark(self) -> int | None:
        return self.batches[-1][1]

    def at(self, number: float) -> int:
        """The instant so many paces after the start."""
        return self.start + int(number * self.pace)

    def table(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        """Rows of (pace, origin, gate, delay, price, seq)."""
        return table(rows, self.start, self.pace)

    def oracle(self) -> GridOracle:
        """The oracle, after the history."""
        spec = self.spec
        dtype: Any
        names: tuple[str, ...]
        if isinstance(spec, CalendarSpec):
            dtype, names = CalendarOracle, ("unit", "zone", "week_start")
        elif isinstance(spec, CumulativeSpec):
            own = ("zone", "week_start") if spec.zone is not None else ("origin",)
            dtype, names = CumulativeOracle, ("size", "every", *own)
        else:
            dtype, names = WindowOracle, ("size", "hop", "origin")
        grid = {name: getattr(spec, name) for name in names}
        oracle: GridOracle = dtype(
            **grid,
            by=spec.by,
            time=spec.time,
            agg=self.settings.get("agg", AGG),
            allowed_lateness=spec.allowed_lateness,
            stragglers=spec.stragglers,
            early=spec.early,
            empty_for=spec.empty_for,
        )
        for batch, watermark in self.batches:
            oracle.step(to_rows(self.table(batch)), watermark)
        return oracle

    def state(self) -> State:
        """The core's state after the history."""
        spec, state = self.spec, State.empty(GridCore().layout(self.spec))
        for batch, watermark in self.batches:
            packed = GridCore().pack(spec, self.table(batch))
            state = GridCore().step(spec, state, [packed], watermark).state
        return state


def table(rows: list[tuple[Any, ...]], start: int = NOW, pace: int = SECOND) -> pa.Table:
    """Rows of (so many paces after the start, origin, gate, delay, price, seq)."""
    paces, *columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    instants = [None if item is None else start + int(item * pace) for item in paces]
    arrays = [pa.array(instants, pa.int64()).cast(SCHEMA[0].type)]
    arrays += [pa.array(c, f.type) for c, f in zip(columns, list(SCHEMA)[1:], strict=True)]
    return pa.table(arrays, schema=SCHEMA)


NAN = float("nan")
EARLY = [
    (0, "EWR", 0.5, 7, Decimal("9.99"), 1),
    (0.25, "EWR", 0.5, None, None, 2),
    (3, None, -0.0, -4, Decimal("-0.05"), 3),
    (3, None, 0.0, 2**40, Decimal("0.01"), 4),
    (4, "JFK", NAN, 1, Decimal("1.00"), 5),
    (9, "ä", None, 0, None, 6),
    (None, "EWR", 0.5, 1, None, 7),
]
LATER = [
    (1, "EWR", 0.5, 3, Decimal("0.01"), 8),
    (2, "new", 1.5, 5, None, 9),
    (11, "JFK", NAN, -1, Decimal("2.00"), 10),
    (14, "EWR", 0.5, 100, Decimal("0.02"), 11),
]
LAST = [(6, "JFK", NAN, 8, None, 12), (1, "EWR", 0.5, 4, None, 13), (13, "ä", None, 1, None, 14)]

HISTORIES = [
    # Hop does not divide size, so panes have different lengths.
    History(
        "windows.grid-v1-drop",
        {"size": "10 seconds", "hop": "4 seconds", "origin": "1 second"},
        ((EARLY, None), (LATER, NOW + 6 * SECOND), (LAST, NOW + 9 * SECOND)),
    ),
    History(
        "windows.grid-v1-retract",
        {
            "size": "5 seconds",
            "hop": "5 seconds",
            "origin": "1 second",
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
        },
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    History(
        "windows.grid-v1-lists",
        {
            "size": "10 seconds",
            "hop": "5 seconds",
            "origin": "1 second",
            "agg": LISTS,
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
        },
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    # Some windows are still early, some on time, some were corrected since.
    History(
        "windows.grid-v1-early",
        {
            "size": "10 seconds",
            "hop": "5 seconds",
            "origin": "1 second",
            "stragglers": "retract",
            "allowed_lateness": "20 seconds",
            "early": "every batch",
        },
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    History(
        "windows.grid-v1-update",
        {
            "size": "6 seconds",
            "hop": "3 seconds",
            "origin": "1 second",
            "stragglers": "update",
            "allowed_lateness": "20 seconds",
        },
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    # Early results without corrections.
    History(
        "windows.grid-v1-first",
        {"size": "12 seconds", "hop": "6 seconds", "origin": "1 second", "early": "every batch"},
        ((EARLY, None), (LATER, NOW + 6 * SECOND), (LAST, NOW + 9 * SECOND)),
    ),
    # One key has only a row for empty windows, without aggregates; others have open windows.
    History(
        "windows.grid-v1-empty",
        {
            "size": "5 seconds",
            "hop": "5 seconds",
            "origin": "1 second",
            "empty_for": "20 seconds",
        },
        ((EARLY, NOW + 7 * SECOND), (LATER, NOW + 12 * SECOND), (LAST, NOW + 13 * SECOND)),
    ),
    # Days with a clock change: the third one starts an hour later than after 24 hours.
    History(
        "windows.grid-v1-calendar",
        {
            "unit": "day",
            "zone": "America/New_York",
            "week_start": "monday",
            "stragglers": "retract",
            "allowed_lateness": "5 days",
        },
        ((EARLY, AUTUMN + 42 * HOUR), (LATER, AUTUMN + 72 * HOUR), (LAST, AUTUMN + 78 * HOUR)),
        operator="calendar",
        start=AUTUMN,
        pace=6 * HOUR,
    ),
    # Panes in the same open windows have been merged.
    History(
        "windows.grid-v1-cumulative",
        {
            "size": "day",
            "every": "5 hours",
            "zone": "America/New_York",
            "week_start": "monday",
            "origin": "0 seconds",
            "stragglers": "update",
            "allowed_lateness": "9 hours",
        },
        ((EARLY, AUTUMN + 10 * HOUR), (LATER, AUTUMN + 18 * HOUR), (LAST, AUTUMN + 19 * HOUR)),
        operator="cumulative",
        start=AUTUMN,
        pace=2 * HOUR,
    ),
]


def stored(core: type[Core[Any]], spec: Any, state: State, shards: int = SHARDS) -> bytes:
    """The frame of a state."""
    return encode(core.STATE, spec.identity, shards, state.tables)


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(GridCore, of.spec, of.state()) for of in HISTORIES}
