"""The step of one shard in one micro-batch, from the stored state to the state to store."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol
from uuid import uuid4

import pyarrow as pa

from streamops.kernel import segments as segments_
from streamops.kernel.codec import decode, encode, fingerprint, require_checksum
from streamops.kernel.core import Identity, State, StateFormat, Step
from streamops.kernel.errors import located
from streamops.kernel.frame import checksum_of
from streamops.kernel.lag import LAG, correct_watermark, without_lag
from streamops.kernel.operator import Core, S
from streamops.kernel.placement import require_tables
from streamops.kernel.segments import (
    INDEX,
    ROWS,
    UNMERGED,
    Segment,
    Segments,
    index_table,
    read_index,
)
from streamops.kernel.time import advance_watermark
from streamops.spark.packing import NOTHING, emit_frame, read_packs, write_cells
from streamops.spark.retained import STATE, Key, forget_segments, recall, retain
from streamops.spark.state_rows import StoredRow

if TYPE_CHECKING:
    import pandas as pd

Adapt = Callable[[Identity, Mapping[str, pa.Table], int | None], Mapping[str, pa.Table]]
StateHeader = tuple[StateFormat, Identity, int]
"""Format, identity and number of shards: what stored state is checked against."""

STATE_BYTES = "state_bytes"
_OF_EVERY_STEP = ("side_output", "state_rows", STATE_BYTES, "watermark")
"""Metrics that the step adds to those of its core."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The state of a shard as Spark stores it: one row of :data:`streamops.spark.state_rows.STATE_SCHEMA`."""

    fingerprint: int
    watermark: int | None
    deadline: int | None
    entries: int
    blob: str

    @classmethod
    def of(
        cls,
        state: State,
        header: StateHeader,
        *,
        deadline: int | None = None,
        is_due: bool = False,
    ) -> Stored:
        """Encode a state without its segments; ``header`` is what it will be checked against.

        The next step decodes it, also without rows, if it ``is_due``.
        """
        tables = state.tables
        if state.segments is not None and state.segments.index:
            tables = {**tables, INDEX: index_table(state.segments.index)}
        blob = to_text(encode(*header, tables))
        mark = mark_of(state, header, is_due=is_due)
        return cls(mark, state.watermark, deadline, state.rows, blob)

    def state(
        self, header: StateHeader, *, adapt: Adapt | None = None, segments: Segments | None = None
    ) -> State:
        """Decode the state, and adapt it to parameters that have changed.

        ``segments`` have no index yet. Without them, a state that has some is refused.
        """
        if segments is None:
            header = (replace(header[0], segmented=False), *header[1:])
        of_state = None if adapt is None else partial(_adapt, adapt, self.watermark)
        tables = decode(self.frame, *header, adapt=of_state)
        if segments is not None and INDEX in tables:
            segments = replace(segments, index=read_index(tables.pop(INDEX)))
        return State(self.watermark, tables, segments)

    @property
    def row(self) -> StoredRow:
        """The fields."""
        return self.fingerprint, self.watermark, self.deadline, self.entries, self.blob

    @property
    def frame(self) -> bytes:
        """The blob as the kernel's codec wrote it; empty if it is not base64."""
        return to_frame(self.blob)


def mark_of(state: State, header: StateHeader, *, is_due: bool = False) -> int:
    """The fingerprint of a state; its complement if every step, or the next one, decodes it."""
    has_index = state.segments is not None and bool(state.segments.index)
    mark = fingerprint(*header)
    return ~mark if is_due or has_index or state.tables.keys() & {UNMERGED, LAG} else mark


def _adapt(
    adapt: Adapt, watermark: int | None, stored: Identity, tables: Mapping[str, pa.Table]
) -> Mapping[str, pa.Table]:
    return adapt(stored, tables, watermark)


class SegmentStore(Protocol):
    """Where the segments of a shard are stored: frames of the kernel's codec, in base64."""

    def read(self, number: int) -> str:
        """Return a segment; empty if there is none of this number."""

    def write(self, number: int, blob: str) -> None:
        """Store a segment."""

    def remove(self, number: int) -> None:
        """Remove a segment."""


def to_text(frame: bytes) -> str:
    """A frame as it is stored."""
    return binascii.b2a_base64(frame, newline=False).decode("ascii")


def to_frame(blob: str | None) -> bytes:
    """A stored frame; empty if it is not base64."""
    try:
        return binascii.a2b_base64(blob or "", strict_mode=True)
    except binascii.Error:
        return b""


@dataclass(frozen=True, slots=True)
class ShardStep(Generic[S]):
    """The step of one shard.

    Parameters
    ----------
    where : str
        The operator, for errors.
    core, spec
        The algorithm and the resolved spec.
    shards : int
        Number of shards. It is written into the state and checked against it.
    plan : str
        Identifies this step among those of all plans that a worker runs.
    segment_rows : int
        Size beyond which a part of the state of a shard is moved to segments, if the core has any:
        rows of its tables, or words of a filter.
    """

    where: str
    core: Core[S]
    spec: S
    shards: int
    plan: str = field(default_factory=lambda: uuid4().hex, compare=False, repr=False)
    segment_rows: int = field(default_factory=lambda: segments_.LIMIT)

    def __call__(
        self,
        stored: StoredRow | None,
        packs: list[bytes],
        spark_watermark: int | None = None,
        *,
        shard: int = 0,
        store: SegmentStore | None = None,
    ) -> tuple[StoredRow | None, pd.DataFrame]:
        """Advance the shard by one micro-batch.

        Parameters
        ----------
        stored : sequence, optional
            Fields of :class:`Stored`; None if Spark has no state yet.
        packs : list of bytes
            The packed rows of this micro-batch; empty if a timer woke the shard.
        spark_watermark : int, optional
            Milliseconds; 0 or less if there is no watermark yet. None without event time.
        shard : int
            Number of the shard.
        store : SegmentStore, optional
            The segments of the shard, if the state API can store some.

        Returns
        -------
        stored : tuple or None
            Fields of :class:`Stored`; None if nothing changed.
        emitted : DataFrame
            Packed results and metrics, see :data:`streamops.spark.packing.EMITTED`.
        """
        with located(self.where):
            return self._run(stored, packs, spark_watermark, shard, store)

    def _run(
        self,
        stored: StoredRow | None,
        packs: list[bytes],
        spark_watermark: int | None,
        shard: int,
        store: SegmentStore | None,
    ) -> tuple[StoredRow | None, pd.DataFrame]:
        watermark = self._operator_watermark(spark_watermark)
        packs = [pack for pack in packs if pack != NOTHING]
        before = None if stored is None else Stored(*stored)
        # With event time, the first step stores the watermark even if there are no rows.
        may_skip = before is not None or spark_watermark is None
        if not packs and may_skip and self._is_idle(before, watermark):
            # The blob is not decoded, so whatever decode() would refuse must show in the header.
            after = before
            if before is not None and watermark is not None:
                after = replace(before, watermark=advance_watermark(before.watermark, watermark))
            metrics = self._metrics(None, 0, after, watermark)
            changed = after is not None and after != before
            return after.row if after and changed else None, emit_frame([], metrics)
        header = self.header
        segments = self.open_segments(store, shard)
        state = replace(State.empty(self.core.layout(self.spec)), segments=segments)
        if before is not None:
            state = self._read(before, shard, segments)
        state, lag = without_lag(state)
        had_other_lag, spec = lag is not None, self.spec
        if lag is not None:
            lag, watermark, final = correct_watermark(lag, watermark, spec.lag)
            spec = self.core.finalize(spec, final)
        packed = read_packs(self.core, self.spec, packs)
        spec, opened, inputs = self.core.attune(spec, state, packed)
        step: Step = self.core.step(spec, opened, inputs, watermark)
        if step.state.segments is not None:  # this step or another worker has removed some
            there = {of.number for of in step.state.segments.index}
            forget_segments(self.plan, shard, there)
        unchanged = before if step.state is opened and not had_other_lag else None
        if unchanged is not None and unchanged.fingerprint == mark_of(step.state, header):
            after = unchanged  # nothing to encode
        else:
            deadline = self.core.next_deadline(spec, step.state)
            step = replace(step, state=self.core.settle(spec, step.state))
            if store is not None and step.state.segments is not None:
                stored_segments = self._store_segments(step.state.segments, store, shard)
                step = replace(step, state=replace(step.state, segments=stored_segments))
            if lag is not None:
                tables = {**step.state.tables, LAG: lag}
                step = replace(step, state=replace(step.state, tables=tables))
            after = Stored.of(step.state, header, deadline=deadline)
        self._retain(after, step.state, shard)
        cells = [*write_cells(step.output), *write_cells(step.late)]
        segment_bytes = 0 if step.state.segments is None else step.state.segments.size
        metrics = self._metrics(step.metrics, len(step.late), after, watermark, segment_bytes)
        return None if after == before else after.row, emit_frame(cells, metrics)

    @property
    def header(self) -> StateHeader:
        """What stored state is checked against."""
        return self.core.STATE, self.spec.identity, self.shards

    @property
    def adapt(self) -> Adapt:
        """What adapts the tables of a state that was written with other parameters."""
        return partial(self.core.adapt, self.spec)

    @property
    def has_segments(self) -> bool:
        """Whether the state may have segments, maybe from before a change of parameters."""
        return self.core.STATE.segmented

    def open_segments(self, store: SegmentStore | None, shard: int) -> Segments | None:
        """The segments of a shard, without their index; None if it cannot have any."""
        if store is None or not self.has_segments:
            return None

        def load(of: Segment) -> pa.Table:
            key = (self.plan, shard, of.number)
            rows = recall(key, of.checksum)
            if rows is None:
                with located(at=f"segment {of.number}"):
                    frame = require_checksum(to_frame(store.read(of.number)), of.checksum)
                    adapt = partial(_adapt, self.adapt, None)
                    rows = decode(frame, *self.header, adapt=adapt, is_segment=True)[ROWS]
                self._retain_segment(key, of.checksum, rows)
            return rows

        return Segments(load, (), self.segment_rows)

    def _store_segments(self, segments: Segments, store: SegmentStore, shard: int) -> Segments:
        """Store what a step added, and remove what it removed."""
        stored = {}
        for number in segments.removed:
            store.remove(number)
        for number, rows in segments.written.items():
            frame = encode(*self.header, {ROWS: rows})
            blob, checksum = to_text(frame), checksum_of(frame)
            store.write(number, blob)
            stored[number] = {"size": len(blob), "checksum": checksum}
            self._retain_segment((self.plan, shard, number), checksum, rows)
        index = (replace(of, **stored.get(of.number, {})) for of in segments.index)
        return replace(segments, index=tuple(index))

    def _retain_segment(self, key: Key, checksum: int, rows: pa.Table) -> None:
        """Retain a segment for the next steps of its shard, if the core wants that."""
        if self.core.RETAINED_BYTES and checksum:
            retain(key, checksum, rows, rows.nbytes, limit=self.core.RETAINED_BYTES)

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics of a step, in the order in which it emits them."""
        return [*self.core.METRICS, *_OF_EVERY_STEP]

    def last_watermark(self, stored: StoredRow) -> int:
        """Spark's watermark, in milliseconds, at the last visit of the shard."""
        watermark = Stored(*stored).watermark
        return 0 if watermark is None else (watermark - self.spec.lag) // 1_000

    def decode(self, stored: Stored, segments: Segments | None) -> State:
        """Decode a stored state, see :meth:`Stored.state`.

        Raises
        ------
        StateFormatError
            As :func:`streamops.kernel.codec.decode`; ``STATE_VERSION``: a table that this version does not know.
        """
        state = stored.state(self.header, adapt=self.adapt, segments=segments)
        require_tables(state.tables, self.core.STATE, self.core.placement)
        return state

    def _read(self, stored: Stored, shard: int, segments: Segments | None) -> State:
        """The stored state: as this worker retained it, or decoded."""
        found = recall((self.plan, shard, STATE), stored.blob)
        if found is None:
            return self.decode(stored, segments)
        tables, index, derived = found
        opened = None if segments is None else replace(segments, index=index)
        return State(stored.watermark, tables, opened, derived)

    def _retain(self, stored: Stored, state: State, shard: int) -> None:
        """Retain a state for the next step of its shard, if the core wants that."""
        limit = self.core.RETAINED_BYTES
        if not limit:
            return
        index = () if state.segments is None else state.segments.index
        decoded = (*state.tables.values(), *state.derived.values())
        size = len(stored.blob) + sum(of.nbytes for of in decoded)
        key = (self.plan, shard, STATE)
        retain(key, stored.blob, (state.tables, index, state.derived), size, limit=limit)

    def _operator_watermark(self, spark_watermark: int | None) -> int | None:
        """The operator's watermark, ``delay`` behind the newest event time, in microseconds.

        Spark's watermark is ``delay + lag`` behind it, see ``watermark_delays`` in ``chains.py``.
        """
        if spark_watermark is None or spark_watermark <= 0:
            return None
        return spark_watermark * 1_000 + self.spec.lag

    def _is_idle(self, stored: Stored | None, watermark: int | None) -> bool:
        """Whether a step without rows changes nothing but the watermark."""
        if self.core.STEPS_WITHOUT_ROWS:
            return False
        if stored is None:
            return True
        if stored.fingerprint != fingerprint(*self.header):  # also of a state with segments
            return False
        return watermark is None or stored.deadline is None or watermark < stored.deadline

    def _metrics(
        self,
        metrics: Any,
        side_output: int,
        stored: Stored | None,
        watermark: int | None,
        segment_bytes: int = 0,
    ) -> list[int | None]:
        values = [
            0 if metrics is None else getattr(metrics, field)
            for field in self.core.METRICS.values()
        ]
        size = (0, 0) if stored is None else (stored.entries, len(stored.blob) + segment_bytes)
        return [*values, side_output, *size, watermark]
