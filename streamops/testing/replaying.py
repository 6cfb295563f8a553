"""A transform over scripted micro-batches, without Spark.

What Spark does is done here by its rules: the watermark, the shards, the micro-batch without
data at the end of a run. What streamops does is done by the drive's own code, from the packing
of rows to the step of a shard and the bytes it stores.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.types import StructField, StructType, TimestampType

from streamops.kernel.codec import decode, ipc_read, ipc_write
from streamops.kernel.columns import concat, conform, instants
from streamops.kernel.contract import Counts, Spec, State
from streamops.kernel.time import Duration, parse_duration, spark_watermark
from streamops.spark.packing import packer
from streamops.spark.preflight import WATERMARK, carried_watermark
from streamops.spark.runners import COUNTS, STORED, Advance, Stored
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform
from streamops.testing.batches import canonical, schema_of, to_table
from streamops.testing.clocks import Frame, ReplayedClock, chained
from streamops.testing.results import BatchResult, split
from streamops.testing.running import replayed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamops.testing.batches import Batch
    from streamops.testing.clocks import Chain

__all__ = ["Replay", "replay"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ARROW = {"bigint": pa.int64(), "string": pa.string()}
_STORED = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, STORED.split(", "))])


def replay(
    transform: Chain,
    batches: Iterable[Batch],
    *,
    watermark: Duration | None = None,
    shards: int | None = None,
    schema: pa.Schema | None = None,
    restart: bool = False,
    flush: bool = False,
) -> list[BatchResult]:
    """Run a streaming transform over scripted micro-batches, without Spark.

    The results are those of a query with the trigger ``availableNow``: one per micro-batch,
    and one more for the micro-batch without data that Spark adds where the last one moved the
    watermark. The kernel runs, whatever the transform says of engines and state APIs.

    Parameters
    ----------
    transform : Transform, RunningTransform, or list of ClockTransform and Transform
        Such as ``windows.tumbling(...)``, or ``[time.producers(...), windows.tumbling(...)]``.
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches. An empty one is a micro-batch, too.
    watermark : duration, optional
        Delay of a watermark that the frame brings, as ``withWatermark`` would define it.
    shards : int, optional
        Instead of the transform's own number.
    schema : Schema, optional
        The columns; by default those of the first table, or what all rows together suggest.
    restart : bool, default False
        Keep nothing between two micro-batches but the bytes that a checkpoint would hold.
    flush : bool, default False
        Add a last result with what is still open: no stream would publish it.

    Returns
    -------
    list of BatchResult

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> from streamops.testing import at, replay
    >>> per_key = windows.tumbling(
    ...     "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds"
    ... )
    >>> first, second, after = replay(
    ...     per_key, [[{"k": "a", "ts": at(1)}, {"k": "a", "ts": at(9)}], [{"k": "a", "ts": at(15)}]]
    ... )
    >>> len(first.rows), len(second.rows), [row["n"] for row in after.rows]
    (0, 0, [2])
    """
    script = list(batches)
    if isinstance(transform, RunningTransform):
        columns = schema_of(script, schema)
        return replayed(transform, script, columns, shards=shards, restart=restart)
    played = Replay(
        transform,
        schema_of(script, schema),
        watermark=watermark,
        shards=shards,
        restart=restart,
    )
    results = played.run(script)
    return [*results, played.flush()] if flush else results


class Replay:
    """A query over scripted micro-batches that can be stopped and continued.

    Parameters
    ----------
    transform : Transform, or list of ClockTransform and Transform
    schema : Schema
        The columns of every micro-batch.
    watermark, shards, restart
        As in :func:`replay`.
    """

    def __init__(
        self,
        transform: Chain,
        schema: pa.Schema,
        *,
        watermark: Duration | None = None,
        shards: int | None = None,
        restart: bool = False,
    ) -> None:
        clock, transform = chained(transform)
        self._transform = transform
        self._schema = canonical(schema)
        self._clock: ReplayedClock | None = None
        if clock is not None:
            self._clock = ReplayedClock(clock, self._schema, watermark=watermark is not None)
            self._carried = _carried(transform, clock.settings.delay, clock.settings.time)
        else:
            self._carried = _carried(transform, _parsed(watermark), transform.settings.time)
        self._shards = transform.options.shards if shards is None else shards
        self._restart = restart
        self._start()
        # Everything below is what Spark keeps in a checkpoint.
        self._stored: dict[int, Sequence[Any]] = {}
        self._batches = 0
        self._used = 0  # Spark's watermark of the last micro-batch, in milliseconds
        self._next = 0  # and of the one to come

    def run(self, batches: Iterable[Batch]) -> list[BatchResult]:
        """Run until all micro-batches are done and no more could be said, as ``availableNow``."""
        results = [self._data(to_table(batch, self._schema)) for batch in batches]
        if self._next > self._used:
            # Nobody came: every shard is woken by its timer.
            results.append(self._step({shard: [] for shard in self._stored}))
        return results

    def flush(self) -> BatchResult:
        """What is still open, as if the stream were over. Changes nothing."""
        core, spec = self._transform.core, self._spec
        tables = [
            core.finish(spec, State(stored.watermark, self._decoded(stored)))
            for stored in (Stored(*fields) for fields in self._stored.values())
        ]
        emitted = concat([spec.output.empty_table(), *tables])
        return BatchResult(
            self._batches,
            *split(emitted, self._spec.event_time),
            self._operators(self._used),
            Counts(),
            0,
            0,
        )

    def _start(self) -> None:
        self._spec: Spec = self._transform.settings.bind(self._schema, carried=self._carried)
        self._advance = Advance(
            self._transform.operator, self._transform.core, self._spec, self._shards
        )

    def _data(self, rows: pa.Table) -> BatchResult:
        packs, newest = self._packed(rows)
        result = self._step(packs)
        # The watermark moves at the end of a micro-batch, and never back.
        if self._carried is None:
            assert self._spec.delay is not None
            delay = self._spec.delay + self._spec.lag
        else:
            delay = self._carried
            newest = _newest(rows, self._spec.time)
        if self._clock is not None:
            told = self._clock.tick(rows)
            newest, result = told.clock, replace(result, clock=told)
        self._next = max(self._next, spark_watermark(newest, delay))
        return result

    def _packed(self, rows: pa.Table) -> tuple[dict[int, list[bytes]], int | None]:
        """Packs of each shard, and the greatest event time."""
        core, spec = self._transform.core, self._spec
        pack = packer(core, spec, self._shards, newest=self._carried is None)
        packs: dict[int, list[bytes]] = {}
        newest = None
        for row in pack(iter(rows.select(spec.input.names).to_batches())):
            (number,), (packed,), (event_time,) = (column.to_pylist() for column in row.columns)
            if packed is None:
                newest = (event_time - _EPOCH) // dt.timedelta(microseconds=1)
            else:
                packs.setdefault(number, []).append(packed)
        return packs, newest

    def _step(self, packs: dict[int, list[bytes]]) -> BatchResult:
        if self._restart:
            self._start()
            self._stored = {shard: _kept(fields) for shard, fields in self._stored.items()}
            if self._clock is not None and self._clock.stored is not None:
                self._clock.stored = _kept(self._clock.stored)
        self._used = self._next
        emitted, told = [self._spec.output.empty_table()], []
        for shard, came in packs.items():
            before = self._stored.get(shard)
            self._stored[shard], frame = self._advance(before, came, self._used)
            told += [counts for counts in frame["counts"] if counts is not None]
            emitted += [
                conform(ipc_read(cell), self._spec.output)
                for cell in frame["emitted"]
                if cell is not None
            ]
        totals = {
            name: sum(each)
            for name, each in zip(COUNTS, zip(*told, strict=True), strict=False)
            if name != "watermark"
        }
        result = BatchResult(
            self._batches,
            *split(concat(emitted), self._spec.event_time),
            self._operators(self._used),
            Counts(*(totals.get(f.name, 0) for f in fields(Counts))),
            totals.get("state_rows", 0),
            totals.get("state_bytes", 0),
        )
        self._batches += 1
        return result

    def _decoded(self, stored: Stored) -> dict[str, pa.Table]:
        transform = self._transform
        return decode(
            stored.frame,
            transform.core.STATE,
            self._spec.identity,
            self._shards,
            where=transform.operator,
        )

    def _operators(self, spark: int) -> dt.datetime | None:
        """The operator's watermark at this one of Spark's."""
        if spark <= 0:
            return None
        return _EPOCH + dt.timedelta(milliseconds=spark, microseconds=self._spec.lag)


def _parsed(watermark: Duration | None) -> int | None:
    if watermark is None:
        return None
    return parse_duration(
        watermark, parameter="watermark", where="streamops.testing", minimum=0, whole=1_000
    )


def _carried(transform: Transform, delay: int | None, on: str) -> int | None:
    """What the preflight says of a frame with a watermark of this delay on that column."""
    settings = transform.settings
    marks = {settings.time: {}, on: {} if delay is None else {WATERMARK: delay // 1_000}}
    schema = StructType(
        [StructField(name, TimestampType(), metadata=mark) for name, mark in marks.items()]
    )
    return carried_watermark(
        cast("DataFrame", Frame(schema)),
        settings.delay,
        settings.lag,
        time=settings.time,
        where=transform.operator,
    )


def _newest(rows: pa.Table, time: str) -> int | None:
    micros, valid = instants(rows.column(time))
    return int(micros[valid].max()) if valid.any() else None


def _kept(fields: Sequence[Any]) -> Sequence[Any]:
    """The same through Spark's types and back: a number that does not fit is an error here."""
    columns = [pa.array([value], kind) for value, kind in zip(fields, _STORED.types, strict=True)]
    table = ipc_read(ipc_write(pa.table(columns, schema=_STORED)))
    return tuple(column[0].as_py() for column in table.columns)
