"""The contract of a core with two inputs: what two sides of a join are to the machinery.

As :class:`streamops.kernel.contract.Core`, with a left and a right side. Both sides of a step are
judged by one watermark: Spark's is the minimum over what each side has seen, less its delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from streamops.kernel.contract import State, StateFormat, Step

__all__ = ["PairCore", "PairSpec", "Side", "SideName"]

SideName = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a pair.

    Parameters
    ----------
    by : tuple of str
        Columns that say which shard a row goes to: rows that may meet agree in their values and
        types, side by side. They need not be called the same.
    time : str, optional
        Event-time column; None where the operator asks for none.
    input : Schema
        Columns that ``PairCore.pack`` reads.
    delay : int, optional
        Delay of the watermark that the operator defines on this side, in microseconds; None: the
        frame brings one, or none is needed.
    """

    by: tuple[str, ...]
    time: str | None
    input: pa.Schema
    delay: int | None = None


class PairSpec(Protocol):
    """An operator's settings, bound to the schemas of both its inputs."""

    @property
    def left(self) -> Side:
        """The input that the transform is called on."""

    @property
    def right(self) -> Side:
        """The input that it is given."""

    @property
    def output(self) -> pa.Schema:
        """Columns of what is emitted."""

    @property
    def origins(self) -> Mapping[str, tuple[SideName, str]]:
        """Columns of the output that hold values of one of an input: of which side, which one."""

    @property
    def event_time(self) -> str | None:
        """Column of the output that carries its event time, if it has one."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own, in microseconds."""

    @property
    def held_back(self) -> int:
        """The part of ``lag`` by which results lie behind the operator's watermark on time already.

        An operator that follows has so much less room for late rows.
        """

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that a checkpoint depends on: changing one makes its state unreadable."""


class PairCore(Protocol):
    """The algorithm of an operator with two inputs: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Columns of the state's tables."""

    def pack(self, spec: Any, side: SideName, rows: pa.Table) -> pa.Table:
        """What ``step`` wants of the rows of one side: stateless, done before the shuffle."""

    def empty(self, spec: Any) -> State:
        """The state before the first step."""

    def step(
        self, spec: Any, state: State, left: pa.Table, right: pa.Table, watermark: int | None
    ) -> Step:
        """One micro-batch: judge the rows by ``state.watermark``, decide by ``watermark``.

        ``watermark`` is None where there is none yet, and always where no side has a time.
        """

    def finish(self, spec: Any, state: State) -> pa.Table:
        """What is still undecided when both streams are over."""

    def run(self, spec: Any, left: pa.Table, right: pa.Table) -> pa.Table:
        """The batch result over all packed rows: one step, then finish. Nothing is late."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        """Watermark at which the next step has something to do even without rows."""

    def check(self, spec: Any, state: State) -> None:
        """Fail, printing the state, if an invariant does not hold."""
