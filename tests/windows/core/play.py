"""A stream of small integers through the core, one micro-batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.aggregates.core.functions import Count, IntSum
from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.core import Metrics, State
from streamops.kernel.grids import FixedGrid, Grid
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from streamops.windows.core.grid_spec import GridSpec

SCHEMA = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.int64())])

COUNT: dict[str, Summary] = {"n": Count(None)}
SUM: dict[str, Summary] = {"total": IntSum("v", pa.int64())}


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOf(GridSpec):
    """Windows on any grid, without a public function."""

    operator: str = field(default="windows.test", repr=False)
    agg: tuple[tuple[str, Aggregation], ...] = ()
    on: Grid

    @property
    def grid(self) -> Grid:
        return self.on


def table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows of (time, key, value); the defaults are "a" and 1."""
    full = [(*row, *("a", 1)[len(row) - 1 :]) for row in rows]
    times, keys, values = zip(*full, strict=True) if full else ((), (), ())
    instants = pa.array(times, pa.int64()).cast(SCHEMA.field("t").type)
    return pa.table([instants, pa.array(keys, pa.string()), pa.array(values, pa.int64())], SCHEMA)


def batch(spec: GridSpec, rows: pa.Table) -> pa.Table:
    """The batch result over raw rows."""
    return GridCore().run(spec, [GridCore().pack(spec, rows)]).rows


class Stream:
    """Windows over small integers, or on a grid. ``step`` returns the output as sorted tuples."""

    def __init__(
        self,
        size: int | Grid,
        hop: int | None = None,
        origin: int = 0,
        *,
        by: Sequence[str] = ("k",),
        agg: dict[str, Summary] | None = None,
        stragglers: Any = "drop",
        too_late: Any = "drop",
        lateness: int = 0,
        early: Any = "never",
        empty_for: int | None = None,
    ) -> None:
        self.spec = GridOf(
            on=FixedGrid(size, hop or size, origin) if isinstance(size, int) else size,
            empty_for=empty_for,
            by=tuple(by),
            time="t",
            aggregates=tuple((name, name, summary) for name, summary in (agg or COUNT).items()),
            input=SCHEMA,
            delay=0,
            allowed_lateness=lateness,
            stragglers=stragglers,
            too_late=too_late,
            early=early,
        )
        self.state: State = State.empty(GridCore().layout(self.spec))
        self.counts = Metrics()
        self.late: list[tuple[Any, ...]] = []

    def step(
        self, *rows: tuple[Any, ...] | int | None, watermark: int | None = None
    ) -> list[tuple[Any, ...]]:
        """One micro-batch: rows of (time, key, value), or a time alone."""
        packed = GridCore().pack(
            self.spec, table([r if isinstance(r, tuple) else (r,) for r in rows])
        )
        step = GridCore().step(self.spec, self.state, [packed], watermark)
        GridCore().check(self.spec, step.state)
        self.state, self.counts = step.state, step.metrics
        self.late = late(step.late)
        return as_tuples(step.output)

    def finish(self) -> list[tuple[Any, ...]]:
        """Publish open windows."""
        return as_tuples(GridCore().finish(self.spec, self.state))

    def run(self, *rows: tuple[Any, ...] | int | None) -> list[tuple[Any, ...]]:
        """The batch result, late rows left out."""
        given = table([r if isinstance(r, tuple) else (r,) for r in rows])
        return as_tuples(batch(self.spec, given))

    @property
    def deadline(self) -> int | None:
        """The next deadline."""
        return GridCore().next_deadline(self.spec, self.state)


def as_tuples(emitted: pa.Table) -> list[tuple[Any, ...]]:
    """Result rows in their order per key and window, as tuples without the end of the window."""
    rows = [row for row in to_rows(emitted) if row.get("late") is None]
    rows.sort(key=lambda row: (row.get("k") or "", row["window_start"]))  # stable
    hidden = ("window_end", "late")
    return [tuple(v for name, v in row.items() if name not in hidden) for row in rows]


def late(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Late rows: reason, start of the missed window, lateness, watermark, time."""
    pairs = ((row["window_start"], row["late"]) for row in to_rows(rows))
    found = (
        (late["reason"], start, late["lateness"], late["watermark"], late["row"]["t"])
        for start, late in pairs
    )
    return sorted(found, key=str)
