"""The contract of a clock: rows in, one instant out, for the whole stream.

A clock is a core whose result is an event time that the watermark follows. It has no key: every
task aggregates its rows, and one task combines the aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from streamops.kernel.contract import State, StateFormat

__all__ = ["ClockCore", "ClockMetrics", "ClockSpec", "ClockStep"]


@dataclass(frozen=True, slots=True)
class ClockMetrics:
    """Exact metrics of a step about the producers of a stream.

    Parameters
    ----------
    rows, rejected : int
        Input rows; those of them that were ignored, because their event time or their arrival is
        null or outside the years 1 to 9999.
    active, behind : int
        Producers that are active; those of them that are behind the clock.
    joined, forgotten : int
        Producers that became active in this step; those that became idle.
    clock, newest : int, optional
        In microseconds: the clock, and the greatest event time of an active producer.
    held_by, led_by : str, optional
        The alphabetically first active producer whose newest event time is the clock, and the
        first whose is `newest`. ``held_by`` is None if there is none.
    """

    rows: int = 0
    rejected: int = 0
    active: int = 0
    behind: int = 0
    joined: int = 0
    forgotten: int = 0
    clock: int | None = None
    newest: int | None = None
    held_by: str | None = None
    led_by: str | None = None


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The result of one step.

    Parameters
    ----------
    state : State
        The state for the next step. Its watermark is the clock, before a delay is subtracted.
    told : ClockMetrics
        Metrics of the step.
    """

    state: State
    told: ClockMetrics


class ClockSpec(Protocol):
    """The parameters of a clock, resolved against the columns of a frame."""

    @property
    def input(self) -> pa.Schema:
        """Columns that ``ClockCore.pack`` reads, under internal names."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that the state depends on: changing one makes a checkpoint unreadable."""


class ClockCore(Protocol):
    """The algorithm of a clock: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Return the schemas of the state tables by name."""

    def pack(self, spec: Any, rows: pa.Table) -> pa.Table:
        """Prepare the rows of a task for ``step``: stateless."""

    def empty(self, spec: Any) -> State:
        """Return the state before the first step."""

    def step(self, spec: Any, state: State, packed: pa.Table) -> ClockStep:
        """Process a micro-batch."""

    def check(self, spec: Any, state: State) -> None:
        """Raise an AssertionError that shows the state if an invariant is violated."""
