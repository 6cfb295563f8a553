"""The contract of a clock: rows in, one instant out, over the whole stream.

A clock is a core whose result is no table but an event time that the watermark follows. It has
no key: every task sums up its rows, and all sums meet in one place.
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
    """What a step tells of the producers of a stream, exactly.

    Parameters
    ----------
    rows, rejected : int
        Rows that came; those of them that moved nothing, because their event time, or their
        arrival, is null or outside the years 1 to 9999.
    active, behind : int
        Producers that are active; those of them that are behind the clock.
    joined, forgotten : int
        Producers that became active in this step; those that have been silent for too long.
    clock, newest : int, optional
        In microseconds: the clock, and the greatest event time of an active producer.
    held_by, led_by : str, optional
        An active producer whose newest event time is the clock, and one whose is `newest`: the
        first in the alphabet. ``held_by`` is None where nobody's is the clock.
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
    """What one step leaves behind.

    Parameters
    ----------
    state : State
        For the next step. Its watermark is the clock: the watermark before a delay is taken off.
    told : Told
        What happened.
    """

    state: State
    told: ClockMetrics


class ClockSpec(Protocol):
    """Settings of a clock, bound to the columns of a frame."""

    @property
    def input(self) -> pa.Schema:
        """Columns that ``ClockCore.pack`` reads, under names of their own."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that a checkpoint depends on: changing one makes its state unreadable."""


class ClockCore(Protocol):
    """The algorithm of a clock: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Columns of the state's tables."""

    def pack(self, spec: Any, rows: pa.Table) -> pa.Table:
        """What ``step`` wants of the rows of a task: stateless."""

    def empty(self, spec: Any) -> State:
        """The state before the first step."""

    def step(self, spec: Any, state: State, packed: pa.Table) -> ClockStep:
        """One micro-batch."""

    def check(self, spec: Any, state: State) -> None:
        """Fail, printing the state, if an invariant does not hold."""
