"""One step of a core per shard and micro-batch, behind either of Spark's state APIs."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)

from streamops.kernel.codec import decode, encode, fingerprint
from streamops.kernel.contract import Core, Counts, Spec, State, StateFormat, Step
from streamops.kernel.pairs import PairCore, PairSpec
from streamops.spark.garbage_collection import freeze_imports
from streamops.spark.packing import NOTHING
from streamops.spark.wire import EMITTED, Opener, cells_of, framed, opened

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COUNTS",
    "STORED",
    "Advance",
    "Known",
    "Stored",
    "packs_of",
    "timed",
]

Known = tuple[StateFormat, Mapping[str, Any], int]
"""Format, identity and number of shards: what a stored state is checked against."""

COUNTS = (*(f.name for f in fields(Counts)), "state_rows", "state_bytes", "watermark")
"""What is told of a step, in this order: sums, but the watermark (microseconds)."""

STORED = "fingerprint bigint, watermark bigint, deadline bigint, entries bigint, blob string"
"""Flat types only; the blob is a frame of the kernel's codec, in base64.

As text, because Spark hands binary state to Python by appending it to a string builder byte by
byte: with 14 MB of state that was an eighth of the Java samples of a profile.
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A shard as Spark keeps it."""

    fingerprint: int
    watermark: int | None
    deadline: int | None
    entries: int
    blob: str

    @classmethod
    def of(cls, state: State, known: Known, *, deadline: int | None = None) -> Stored:
        """What to keep of a state; ``known`` is what it will be checked against."""
        frame = encode(*known, state.tables)
        blob = binascii.b2a_base64(frame, newline=False).decode("ascii")
        return cls(fingerprint(*known), state.watermark, deadline, state.rows, blob)

    def state(self, known: Known, *, where: str) -> State:
        """The state again; ``where`` is for the error of a checkpoint of other parameters."""
        return State(self.watermark, decode(self.frame, *known, where=where))

    @property
    def frame(self) -> bytes:
        """The blob as the kernel's codec wrote it; what is no base64 is no frame."""
        try:
            return binascii.a2b_base64(self.blob or "", strict_mode=True)
        except binascii.Error:
            return b""


@dataclass(frozen=True, slots=True)
class Advance:
    """The step of one shard, from what Spark stored to what Spark shall store.

    Parameters
    ----------
    operator : str
        For errors.
    core, spec : the operator
    shards : int
        As written into the state and checked against it.
    opener : callable
        What the step takes of the packs: one table, or one of each of two inputs.
    """

    operator: str
    core: Core | PairCore
    spec: Spec | PairSpec
    shards: int
    opener: Opener = opened

    def __call__(
        self, stored: Sequence[Any] | None, packs: list[bytes], spark_watermark: int
    ) -> tuple[tuple[Any, ...], pd.DataFrame]:
        """Advance by one micro-batch.

        Parameters
        ----------
        stored : sequence, optional
            Fields of :class:`Stored`; None where Spark has nothing yet.
        packs : list of bytes
            The packed rows of this micro-batch; empty when the shard was merely woken.
        spark_watermark : int
            Milliseconds; 0 or less means none yet.
        """
        watermark = None
        if spark_watermark > 0:
            watermark = spark_watermark * 1_000 + self.spec.lag
        packs = [pack for pack in packs if pack != NOTHING]
        known = self.known
        before = None if stored is None else Stored(*stored)
        if (
            before is not None
            and not packs
            and before.fingerprint == fingerprint(*known)
            and self._idle(before, watermark)
        ):
            # Not opened, so what a frame is refused for must be seen from outside.
            after = replace(before, watermark=watermark)
            counts = [*astuple(Counts()), before.entries, len(before.blob), watermark]
            return astuple(after), framed([], counts)
        state = self.core.empty(self.spec)
        if before is not None:
            state = before.state(known, where=self.operator)
        rows = self.opener(self.core, self.spec, packs)
        take: Callable[..., Step] = self.core.step
        step = take(self.spec, state, *rows, watermark)
        if before is not None and step.state is state:  # nothing to write anew
            kept = before
        else:
            deadline = self.core.next_deadline(self.spec, step.state)
            kept = Stored.of(step.state, known, deadline=deadline)
        cells = [*cells_of(step.emitted), *cells_of(step.late)]
        counts = [*astuple(step.counts), kept.entries, len(kept.blob), watermark]
        return astuple(kept), framed(cells, counts)

    @property
    def known(self) -> Known:
        """What a stored state is checked against."""
        return self.core.STATE, self.spec.identity, self.shards

    def last_watermark(self, stored: Sequence[Any]) -> int:
        """Spark's watermark, in milliseconds, when the shard was last visited."""
        watermark = Stored(*stored).watermark
        return 0 if watermark is None else (watermark - self.spec.lag) // 1_000

    def _idle(self, stored: Stored, watermark: int | None) -> bool:
        return watermark is None or stored.deadline is None or watermark < stored.deadline


def timed(packs: DataFrame, advance: Advance, api: str) -> DataFrame:
    """What the steps of all shards put out, as :data:`EMITTED`; each follows the watermark.

    Parameters
    ----------
    packs : DataFrame
        As :func:`streamops.spark.inputs.packed` makes it, streaming, with a watermark.
    advance : Advance
        The step.
    api : str
        The state API.
    """
    shards = packs.groupBy("shard")
    if api == "applyInPandasWithState":
        step, timeout = _by_group_state(advance), GroupStateTimeout.EventTimeTimeout
        return shards.applyInPandasWithState(step, EMITTED, STORED, "append", timeout)
    processor = _ShardProcessor(advance)
    return shards.transformWithStateInPandas(processor, EMITTED, "append", "EventTime")


def packs_of(frames: Iterator[pd.DataFrame]) -> list[bytes]:
    """The packs of a group, empty ones among them."""
    return [bytes(pack) for frame in frames for pack in frame["packed"]]


def _by_group_state(advance: Advance) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for ``applyInPandasWithState`` with event-time timeouts."""

    def run(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        freeze_imports("step")
        watermark = state.getCurrentWatermarkMs()
        packs = [] if state.hasTimedOut else packs_of(frames)
        stored, frame = advance(state.get if state.exists else None, packs, watermark)
        state.update(stored)
        # Fires once the watermark has moved: each shard follows every watermark.
        state.setTimeoutTimestamp(max(watermark, 1))
        yield frame

    return run


class _ShardProcessor(StatefulProcessor):
    """The processor for ``transformWithStateInPandas`` in event time."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one value per shard."""
        freeze_imports("step")
        self.handle = handle
        self.stored = handle.getValueState("stored", STORED)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Rows came for the shard, or an empty pack."""
        yield self._step(packs_of(rows), timerValues, fired=None)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """The watermark moved while no rows came."""
        fired = expiredTimerInfo.getExpiryTimeInMs()
        yield self._step([], timerValues, fired=fired)

    def _step(self, packs: list[bytes], timers: Any, fired: int | None) -> pd.DataFrame:
        watermark = timers.getCurrentWatermarkInMs()
        before = self.stored.get()  # None where there is nothing: each call is a round trip
        timer = None if before is None else self.advance.last_watermark(before) + 1
        if timer is not None and timer not in (fired, watermark + 1):
            # Spark removes the timer that fired; this one would wake the shard once more.
            self.handle.deleteTimer(timer)
        stored, frame = self.advance(before, packs, watermark)
        self.stored.update(stored)
        if timer != watermark + 1:
            self.handle.registerTimer(watermark + 1)
        return frame

    def close(self) -> None:
        """Nothing is held between calls."""
