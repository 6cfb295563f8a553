"""Interval joins played by hand: small integers are instants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamops.joins.core.interval import IntervalCore
from streamops.kernel.core import State, Step
from streamops.testing.laws import to_rows
from tests.laws.interval_strategies import row_of, spec_of, tables_of
from tests.oracles.interval import IntervalOracle

__all__ = ["Play", "describe"]

Rows = Sequence[tuple[Any, ...]]
"""Rows as (key, time), (key, time, n) or (key, time, n, number)."""


class Play:
    """A join, and its state after the steps played so far."""

    def __init__(self, lower: int, upper: int, **settings: Any) -> None:
        columns = (("word", "ts", "number", "n"), ("at", "key", "number", "n"))
        known: dict[str, Any] = {"by": (("word", "key"),), "time": ("ts", "at")}
        oracle = IntervalOracle(columns, lower=lower, upper=upper, **known | settings)
        self.spec = spec_of(oracle, 0)
        self.state: State = State.empty(IntervalCore().layout(self.spec))

    def step(self, left: Rows = (), right: Rows = (), watermark: int | None = None) -> list[str]:
        """One micro-batch; what came out of it, in words."""
        return describe(self.stepped(left, right, watermark).output)

    def stepped(self, left: Rows = (), right: Rows = (), watermark: int | None = None) -> Step:
        """One micro-batch."""
        step = IntervalCore().step(self.spec, self.state, self.packed(left, right), watermark)
        IntervalCore().check(self.spec, step.state)
        self.state = step.state
        return step

    def packed(self, left: Rows, right: Rows) -> tuple[pa.Table, pa.Table]:
        """Both sides as the core wants them."""
        one, other = tables_of(
            [_row(0, *item) for item in left],
            [_row(1, *item) for item in right],
        )
        other = other.select(self.spec.right.schema.names)
        return IntervalCore().pack(self.spec, one, "left"), IntervalCore().pack(
            self.spec, other, "right"
        )

    @property
    def stored(self) -> tuple[list[int], list[int]]:
        """Times of the rows in state, left and right."""
        tables, spec = self.state.tables, self.spec
        left, right = (
            sorted(
                rows[f"column.{spec.stored_columns(side).index(spec.side(side).time)}"]
                for rows in to_rows(tables[side])
            )
            for side in ("left", "right")
        )
        return left, right


def describe(emitted: pa.Table) -> list[str]:
    """Rows in words: ``+ a 5 ~ 7 matched``; ``-`` where they are taken back."""
    lines = []
    for row in to_rows(emitted):
        sign = "-" if row.get("_change_type") == "delete" else "+"
        partner = f" ~ {row['at']}" if "at" in row else ""
        lines.append(f"{sign} {row['word']} {row['ts']}{partner} {row['status']}")
    return sorted(lines)


def _row(
    side: int, key: str | None, time: int | None, n: int | None = 0, number: float | None = None
) -> tuple[Any, ...]:
    return row_of(side, key, time, number, n)
