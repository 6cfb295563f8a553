"""The contract of a core with two inputs, such as a join.

As :class:`streamops.kernel.contract.Core`, with a left and a right side. One watermark applies to
both sides: Spark's is the minimum of the watermarks of the sides.
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
        Key columns that determine the shard of a row. Those of the two sides have equal types in
        order; their names may differ.
    time : str, optional
        Event-time column; None if the operator does not use one.
    input : Schema
        Columns that ``PairCore.pack`` reads.
    delay : int, optional
        Delay of the watermark that the operator defines on this side, in microseconds; None if the
        frame already has one, or none is needed.
    """

    by: tuple[str, ...]
    time: str | None
    input: pa.Schema
    delay: int | None = None


class PairSpec(Protocol):
    """The parameters of an operator, resolved against the schemas of both inputs."""

    @property
    def left(self) -> Side:
        """The input that the transform is applied to."""

    @property
    def right(self) -> Side:
        """The input that is passed as a parameter."""

    @property
    def output(self) -> pa.Schema:
        """Schema of the output."""

    @property
    def origins(self) -> Mapping[str, tuple[SideName, str]]:
        """Output columns that contain values of an input column, with its side and name."""

    @property
    def event_time(self) -> str | None:
        """Event-time column of the output, if it has one."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must stay behind the operator's own, in microseconds."""

    @property
    def held_back(self) -> int:
        """The part of ``lag`` by which results on time are behind the operator's watermark.

        A downstream operator accepts late rows for that much less time.
        """

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that the state depends on: changing one makes a checkpoint unreadable."""


class PairCore(Protocol):
    """The algorithm of an operator with two inputs: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Return the schemas of the state tables by name."""

    def pack(self, spec: Any, side: SideName, rows: pa.Table) -> pa.Table:
        """Prepare the rows of one side for ``step``: stateless, executed before the shuffle."""

    def empty(self, spec: Any) -> State:
        """Return the state before the first step."""

    def step(
        self, spec: Any, state: State, left: pa.Table, right: pa.Table, watermark: int | None
    ) -> Step:
        """Process a micro-batch: rows late by ``state.watermark``, results due by ``watermark``.

        ``watermark`` is None if there is none yet, and always if no side has an event time.
        """

    def finish(self, spec: Any, state: State) -> pa.Table:
        """Return the results that are still pending when both streams end."""

    def run(self, spec: Any, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the batch result over all packed rows: one step, then finish. Nothing is late."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        """Return the watermark at which the next step has output even without rows."""

    def check(self, spec: Any, state: State) -> None:
        """Raise an AssertionError that shows the state if an invariant is violated."""
