"""The step of a shard as a processor of ``transformWithStateInPandas``, which Spark has since 4.0.

When a query starts, Spark starts a Python process in the driver for each of its processors, only to ask
which state it has. That process imports what it unpickles. So this module imports little, and the step
is pickled by itself and loaded when the first rows of a shard arrive: without that the process takes
four times the CPU, and a query of ten operators starts six seconds later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from streamops.kernel.prompt import Acknowledgement
from streamops.spark.state_rows import SEGMENT_SCHEMAS, SEGMENTS, STATE_SCHEMA, read_group

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
    )

    from streamops.spark.state_rows import Begin
    from streamops.spark.step import ShardStep

    _Functions = tuple[ShardStep[Any], Begin | None]

_PICKLE: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]


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
    """Runs the step of a shard."""

    def __init__(self, step: ShardStep[Any], event_time: bool, begin: Begin | None = None) -> None:
        self.event_time, self.has_segments = event_time, step.has_segments
        self._functions: _Functions | None = (step, begin)
        self._pickled, self._acknowledge = b"", Acknowledgement()

    def __getstate__(self) -> dict[str, Any]:
        pickled = _PICKLE.dumps(self._functions)
        return {**self.__dict__, "_functions": None, "_pickled": pickled}

    def _load(self) -> _Functions:
        """The step, and what begins a state."""
        if self._functions is None:
            from streamops.spark.packing import freeze_imports

            self._functions = _PICKLE.loads(self._pickled)
            freeze_imports("step")
        assert self._functions is not None
        return self._functions

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one value per shard, and its segments."""
        self.handle = handle
        self.stored = handle.getValueState("stored", STATE_SCHEMA)
        self.store: _MapStore | None = None
        if self.has_segments:
            self.store = _MapStore(handle.getMapState(SEGMENTS, *SEGMENT_SCHEMAS))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        """Store rows that were there before the first micro-batch; Spark may call it repeatedly."""
        packs = [pack for pack in read_group(iter([initialState])) if pack]
        begin = self._load()[1]
        if packs and begin is not None:
            self.stored.update(begin(self.stored.get(), packs))

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
        step = self._load()[0]
        before = self.stored.get()  # None if there is no state: each call is a round trip
        if not self.event_time:
            after, emitted = step(before, packs, shard=shard, store=self.store)
            if after is not None:
                self.stored.update(after)
            return emitted
        watermark = timers.getCurrentWatermarkInMs()
        timer = None if before is None else step.last_watermark(before) + 1
        if timer is not None and timer not in (fired, watermark + 1):
            # Spark removes the timer that fired; this one would wake the shard once more.
            self.handle.deleteTimer(timer)
        after, emitted = step(before, packs, watermark, shard=shard, store=self.store)
        if after is not None:
            self.stored.update(after)
        # With another lag after a restart, the watermark of the last visit is another one: register it again.
        if fired is not None or timer != watermark + 1:
            self.handle.registerTimer(watermark + 1)
        return emitted

    def close(self) -> None:
        """Nothing to release."""
