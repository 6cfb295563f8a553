"""Steps of shards behind Spark's two state APIs, with and without event time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streamops.kernel.versions import spark_class
from streamops.spark.packing import EMITTED, freeze_imports
from streamops.spark.step import SEGMENT_SCHEMAS, SEGMENTS, STATE_SCHEMA, ShardStep, StoredRow

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        MapState,
        StatefulProcessor,
        StatefulProcessorHandle,
        TimerValues,
    )
else:
    StatefulProcessor = spark_class("sql.streaming.stateful_processor", "StatefulProcessor")

Begin = Callable[[StoredRow | None, list[bytes]], StoredRow]
"""Put packs that were there before the first micro-batch into the stored state, if there is any."""


def run_steps(
    packs: DataFrame,
    step: ShardStep[Any],
    api: str,
    *,
    event_time: bool,
    initial: tuple[DataFrame, Begin] | None = None,
) -> DataFrame:
    """Run the step of every shard in every micro-batch.

    Parameters
    ----------
    packs : DataFrame
        Columns ``shard, packed, event_time``, streaming; with a watermark if ``event_time``.
    step : ShardStep
    api : str
        The state API.
    event_time : bool
        Whether the steps follow the watermark. Then every shard is visited when it moves.
    initial : tuple of DataFrame and callable, optional
        Packs of a batch frame that the state starts with, and the function that stores them; only
        with transformWithStateInPandas and without event time.

    Returns
    -------
    DataFrame
        Columns of :data:`streamops.spark.packing.EMITTED`.
    """
    # Without event time the column must go: Spark would ask for a watermark.
    shards = (packs if event_time else packs.select("shard", "packed")).groupBy("shard")
    if api == "applyInPandasWithState":
        timeout = GroupStateTimeout.EventTimeTimeout if event_time else GroupStateTimeout.NoTimeout
        function = _state_function(step, event_time)
        return shards.applyInPandasWithState(function, EMITTED, STATE_SCHEMA, "append", timeout)
    mode = "EventTime" if event_time else "None"
    if initial is None:
        processor = ShardProcessor(step, event_time)
        return shards.transformWithStateInPandas(processor, EMITTED, "append", mode)
    rows, begin = initial
    return shards.transformWithStateInPandas(
        ShardProcessor(step, event_time, begin),
        EMITTED,
        "append",
        mode,
        initialState=rows.select("shard", "packed").groupBy("shard"),
    )


def read_group(frames: Iterator[pd.DataFrame]) -> list[bytes]:
    """The packs of a group, empty ones included."""
    return [bytes(pack) for frame in frames for pack in frame["packed"]]


def _state_function(
    step: ShardStep[Any], event_time: bool
) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for ``applyInPandasWithState``."""

    def run(
        key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        freeze_imports("step")
        before = state.get if state.exists else None
        packs = [] if event_time and state.hasTimedOut else read_group(frames)
        watermark = state.getCurrentWatermarkMs() if event_time else None
        after, emitted = step(before, packs, watermark, shard=key[0])
        if event_time:
            # A timed-out group that is neither updated nor removed would fire in every batch.
            stored = before if after is None else after
            assert stored is not None, "the first step stores the watermark"
            state.update(stored)
            # Fires once the watermark has moved: each shard follows every watermark.
            state.setTimeoutTimestamp(max(watermark or 0, 1))
        elif after is not None:
            state.update(after)
        yield emitted

    return run


class _MapStore:
    """The segments of the current shard, in a map state."""

    def __init__(self, state: MapState) -> None:
        self.state = state

    def read(self, number: int) -> str:
        """Return a segment; empty if there is none of this number."""
        found = self.state.getValue((number,))
        return "" if found is None else str(found[0])

    def write(self, number: int, blob: str) -> None:
        """Store a segment."""
        self.state.updateValue((number,), (blob,))

    def remove(self, number: int) -> None:
        """Remove a segment."""
        self.state.removeKey((number,))


class ShardProcessor(StatefulProcessor):
    """The processor for ``transformWithStateInPandas``."""

    def __init__(self, step: ShardStep[Any], event_time: bool, begin: Begin | None = None) -> None:
        self.step, self.event_time, self.begin = step, event_time, begin

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one value per shard, and its segments."""
        freeze_imports("step")
        self.handle = handle
        self.stored = handle.getValueState("stored", STATE_SCHEMA)
        self.store: _MapStore | None = None
        if self.step.has_segments:
            self.store = _MapStore(handle.getMapState(SEGMENTS, *SEGMENT_SCHEMAS))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        """Store rows that were there before the first micro-batch; Spark may call it repeatedly."""
        packs = [pack for pack in read_group(iter([initialState])) if pack]
        if packs and self.begin is not None:
            self.stored.update(self.begin(self.stored.get(), packs))

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Process the rows of the shard, or an empty pack."""
        yield self._step(key[0], read_group(rows), timerValues, fired=None)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """The watermark moved while no rows arrived."""
        yield self._step(key[0], [], timerValues, fired=expiredTimerInfo.getExpiryTimeInMs())

    def _step(
        self, shard: int, packs: list[bytes], timers: TimerValues, fired: int | None
    ) -> pd.DataFrame:
        before = self.stored.get()  # None if there is no state: each call is a round trip
        if not self.event_time:
            after, emitted = self.step(before, packs, shard=shard, store=self.store)
            if after is not None:
                self.stored.update(after)
            return emitted
        watermark = timers.getCurrentWatermarkInMs()
        timer = None if before is None else self.step.last_watermark(before) + 1
        if timer is not None and timer not in (fired, watermark + 1):
            # Spark removes the timer that fired; this one would wake the shard once more.
            self.handle.deleteTimer(timer)
        after, emitted = self.step(before, packs, watermark, shard=shard, store=self.store)
        if after is not None:
            self.stored.update(after)
        if timer != watermark + 1:
            self.handle.registerTimer(watermark + 1)
        return emitted

    def close(self) -> None:
        """Nothing to release."""
