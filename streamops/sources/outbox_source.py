"""The outbox of a service as a data source of Spark.

All of it runs in one process beside the driver of Spark: it reads the log, and puts the rows of a micro-batch
into its partitions. So only one place connects to the database, a row is decoded once, and a task that
is repeated does not need the slot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streamops.kernel.databases import format_lsn, parse_lsn
from streamops.kernel.errors import located_methods
from streamops.kernel.versions import spark_class
from streamops.sources import conditions
from streamops.sources.core.outbox import Outbox, Range, Read, partition_rows
from streamops.sources.core.status import Names, Status
from streamops.sources.postgres_log import PostgresLog


@dataclass(frozen=True, slots=True)
class Offset:
    """A position of the log of a server: transactions whose commit is before it were read.

    Examples
    --------
    >>> Offset("7301", 0x16B3748).to_json()
    {'system': '7301', 'lsn': '0/16B3748'}
    """

    system: str
    lsn: int

    def to_json(self) -> dict[str, Any]:
        """The offset as the checkpoint stores it."""
        return {"system": self.system, "lsn": format_lsn(self.lsn)}

    @staticmethod
    def from_json(stored: Any) -> Offset:
        """The offset of a checkpoint.

        Raises
        ------
        CheckpointError
            ``OTHER_SERVER``.
        """
        lsn = parse_lsn(stored.get("lsn")) if isinstance(stored, dict) else None
        if lsn is None or not isinstance(stored.get("system"), str):
            raise conditions.OFFSET_UNREADABLE.error(got=stored)
        return Offset(stored["system"], lsn)

    def check(self, status: Status, slot: str, confirmed: int) -> None:
        """Refuse to continue at this offset if rows after it may be missing.

        Raises
        ------
        CheckpointError
            ``OTHER_SERVER``, ``LOG_BEHIND``, ``SLOT_AHEAD``.
        """
        if self.system != status.system:
            raise conditions.OTHER_SERVER.error(system=self.system, got=f"server {status.system}")
        if self.lsn > status.flushed:
            raise conditions.LOG_BEHIND.error(
                lsn=format_lsn(self.lsn), got=f"the log ends at {format_lsn(status.flushed)}"
            )
        if confirmed > self.lsn:
            raise conditions.SLOT_AHEAD.error(
                slot=slot, lsn=format_lsn(self.lsn), got=f"the slot is at {format_lsn(confirmed)}"
            )


if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    DataSource, DataSourceReader, DataSourceStreamReader, InputPartition = (
        spark_class("sql.datasource", name)
        for name in ("DataSource", "DataSourceReader", "DataSourceStreamReader", "InputPartition")
    )
    # Without them, before Spark 4.2, Spark reads all there is in each micro-batch.
    ReadMaxRows, SupportsTriggerAvailableNow = (
        spark_class("sql.streaming.datasource", name)
        for name in ("ReadMaxRows", "SupportsTriggerAvailableNow")
    )


OPTION = "parameters"

_PART = 2 << 20
"""In bytes, before compression: rows of a partition. Spark warns of tasks of more than 1 MB."""
_COMPRESSION = "zstd"
_WINDOW = 1 << 30
"""In bytes: how much of the log is decoded at a time."""
_IDLE = 16 << 20
"""Bytes of log without an event after which an empty micro-batch advances the slot."""
_MESSAGES_PER_ROW = 3
"""A transaction with one row has a begin, the row, and a commit."""
_PAUSE = 0.2
"""In seconds: between two looks at a log that has no new event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxParameters:
    """Parameters of ``outbox``, without secrets: they are part of the plan of a query."""

    url: str
    names: Names
    max_rows: int

    def to_options(self) -> dict[str, str]:
        """The options of the data source."""
        names, outbox = self.names, self.names.outbox
        stored = {
            "url": self.url,
            "schema": outbox.schema,
            "table": outbox.table,
            "columns": dict(outbox.columns),
            "keep": outbox.keep,
            "publication": names.publication,
            "slot": names.slot,
            "max_rows": self.max_rows,
        }
        return {OPTION: json.dumps(stored)}

    @staticmethod
    def from_options(options: MutableMapping[str, str]) -> OutboxParameters:
        """The parameters in the options of the data source."""
        stored = json.loads(options[OPTION])
        outbox = Outbox(
            schema=stored["schema"],
            table=stored["table"],
            columns=stored["columns"],
            keep=tuple(stored["keep"]),
        )
        names = Names(outbox=outbox, publication=stored["publication"], slot=stored["slot"])
        return OutboxParameters(url=stored["url"], names=names, max_rows=stored["max_rows"])

    def log(self) -> PostgresLog:
        """The log, without a connection yet."""
        return PostgresLog(self.url, self.names)


@located_methods("sources.outbox")
class OutboxSource(DataSource):
    """The data source ``streamops_outbox``; :func:`streamops.sources.outbox` registers it."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "streamops_outbox"

    def schema(self) -> StructType:
        """The columns of an event."""
        return from_arrow_schema(self._parameters.names.outbox.rows, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of what the slot has now."""
        return _BatchReader(self._parameters)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of a stream."""
        return _StreamReader(self._parameters)

    @property
    def _parameters(self) -> OutboxParameters:
        return OutboxParameters.from_options(self.options)


@dataclass(frozen=True, slots=True)
class _Taken:
    """The events of a range, packed, and the number of messages that it has in the log."""

    start: int
    end: int
    parts: tuple[bytes, ...]
    messages: int


def _take(log: PostgresLog, wanted: Range, messages: int | None = None) -> _Taken:
    """Read the events of a range, or its first ones.

    With a limit of rows, the result ends after a commit, unless the range has no event. The server
    counts `messages` from the position of the slot, which may be before the range.
    """
    while True:
        parts: list[bytes] = []
        read = Read()
        for events, read in log.read(wanted, messages):  # noqa: B007  (the last one counts)
            parts += [_pack(part) for part in partition_rows(events, _PART)]
        is_cut = read.is_full or (messages is not None and read.messages >= messages)
        if is_cut and read.end is None:
            assert messages is not None
            messages *= 4
            continue
        is_whole = wanted.most is None or not (is_cut or parts)
        end = wanted.end if is_whole or read.end is None else read.end
        return _Taken(wanted.start, end, tuple(parts), read.inside)


def _pack(events: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
    with pa.ipc.new_stream(sink, events.schema, options=options) as stream:
        stream.write_batch(events)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _partitions(taken: _Taken) -> list[InputPartition]:
    return [InputPartition(part) for part in taken.parts]


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if partition.value is not None:  # a batch without rows has a partition without a value
        with pa.ipc.open_stream(partition.value) as stream:
            yield from stream


@located_methods("sources.outbox")
class _BatchReader(DataSourceReader):
    def __init__(self, parameters: OutboxParameters) -> None:
        self._parameters = parameters

    def partitions(self) -> list[InputPartition]:
        log = self._parameters.log()
        try:
            status, confirmed = log.check()
            return _partitions(_take(log, Range(confirmed, status.flushed)))
        finally:
            log.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


@located_methods("sources.outbox")
class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, parameters: OutboxParameters) -> None:
        self._parameters = parameters
        self._log = parameters.log()
        self._target: int | None = None
        """With the trigger `availableNow`: where the query ends."""
        self._taken: _Taken | None = None
        """The last range that was read: Spark asks for its rows next, maybe more than once."""
        self._seen = -1
        """Up to here the log has no event since the last range."""
        self._status: Status | None = None
        self._looked = 0.0

    def initialOffset(self) -> dict[str, Any]:
        status, confirmed = self._log.check()
        return Offset(status.system, confirmed).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._parameters.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._check()[0].flushed

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        if start is None:  # PySpark 4.1
            status, _ = self._check()
            return Offset(status.system, status.flushed).to_json()
        begin, status = self._position(start)
        end = self._next_end(begin, status, getattr(limit, "max_rows", None))
        return start if end == begin else Offset(status.system, end).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        status = self._status
        return None if status is None else Offset(status.system, status.flushed).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = Offset.from_json(start).lsn, Offset.from_json(end).lsn
        if begin == until:
            return []
        known = self._taken
        if known is None or (known.start, known.end) != (begin, until):
            _, status = self._position(start)
            Offset.from_json(end).check(status, self._parameters.names.slot, begin)
            known = self._taken = _take(self._log, Range(begin, until))
        return _partitions(known)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._log.advance(Offset.from_json(end).lsn)

    def stop(self) -> None:
        self._log.close()

    def _check(self) -> tuple[Status, int]:
        self._status, confirmed = self._log.check()
        return self._status, confirmed

    def _position(self, start: dict[str, Any]) -> tuple[int, Status]:
        """The position of an offset, if all events that follow it are in the log."""
        status, confirmed = self._check()
        offset = Offset.from_json(start)
        offset.check(status, self._parameters.names.slot, confirmed)
        return offset.lsn, status

    def _next_end(self, begin: int, status: Status, most: int | None) -> int:
        """The end of the next range: after events, or after much of the log without any; else `begin`."""
        target = status.flushed if self._target is None else self._target
        if self._taken is not None and self._taken.start == begin:
            return self._taken.end  # Spark has asked before, and has not used the answer
        end = min(target, begin + _WINDOW) if most is not None else target
        if end <= max(begin, self._seen):
            self._pause()
            return begin
        before = self._taken.messages if self._taken is not None else 0  # not released yet
        messages = None if most is None else most * _MESSAGES_PER_ROW + before
        found = _take(self._log, Range(begin, end, most), messages)
        if found.parts or found.end - begin >= _IDLE:
            self._taken, self._seen = found, -1
            return found.end
        self._seen = end
        self._pause()
        return begin

    def _pause(self) -> None:
        """Limit how often the log is looked at: Spark asks again at once if there is nothing."""
        if self._target is None:
            time.sleep(max(0.0, self._looked + _PAUSE - time.monotonic()))
            self._looked = time.monotonic()
