"""What Spark keeps of an operator, and its part in a micro-batch: every shard steps once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.types import StructField, StructType, TimestampType

from streamops.kernel.codec import decode, ipc_read, ipc_write
from streamops.kernel.columns import concat, conform, timestamp_micros
from streamops.kernel.contract import Counts, State
from streamops.kernel.time import Duration
from streamops.spark.checks import WATERMARK, carried_watermark
from streamops.spark.packing import Packable, packer
from streamops.spark.pairs import PairTransform
from streamops.spark.parameters import parse_delay
from streamops.spark.runners import COUNTS, STORED, Advance, Stored
from streamops.spark.untimed import Standing
from streamops.spark.wire import Opener, opened, opened_pair
from streamops.testing.clocks import Frame
from streamops.testing.results import BatchResult, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Packs", "Shards", "carried_delay", "newest_of", "packs_of", "parsed", "through_spark"]

Packs = dict[int, list[bytes]]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ARROW = {"bigint": pa.int64(), "string": pa.string()}
_STORED = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, STORED.split(", "))])


class Shards:
    """The shards of an operator, from micro-batch to micro-batch.

    Parameters
    ----------
    transform : Transform or PairTransform
    bind : callable
        Makes the spec anew, as a restarted query does.
    count : int
        Number of shards.
    restart : bool
        Keep nothing between two micro-batches but the bytes that a checkpoint would hold.
    whole : bool
        Leave late rows among the results, as another step of the operator takes them.
    """

    def __init__(
        self,
        transform: Any,
        bind: Callable[[], Any],
        count: int,
        *,
        restart: bool,
        whole: bool = False,
    ) -> None:
        self._transform = transform
        self._whole = whole
        self._bind = bind
        self._is_pair = isinstance(transform, PairTransform)
        self._restart = restart
        self.count = count
        self._start()
        # What Spark keeps in a checkpoint; its watermarks in milliseconds.
        self.stored: dict[int, Sequence[Any]] = {}
        self.batches = 0
        self._used = 0  # of the last micro-batch
        self._next = 0  # of the one to come

    def _start(self) -> None:
        self.spec = self._bind()
        opener: Opener = opened_pair if self._is_pair else opened
        operator, core = self._transform.operator, self._transform.core
        advance = Advance(operator, core, self.spec, self.count, opener)
        self._step: Callable[..., Any] = advance
        if self._is_pair and self.spec.left.time is None and self.spec.right.time is None:
            standing = Standing(advance)
            self._step = lambda stored, packs, _: standing(stored, packs)

    def step(self, packs: Mapping[int, list[bytes]]) -> BatchResult:
        """A micro-batch with these packs."""
        self._used = spark = self._next
        if self._restart:
            self._start()
            self.stored = {shard: through_spark(kept) for shard, kept in self.stored.items()}
        emitted, told = [self.spec.output.empty_table()], []
        for shard, came in packs.items():
            before = self.stored.get(shard)
            kept, frame = self._step(before, came, spark)
            self.stored |= {} if kept is None else {shard: kept}
            told += [counts for counts in frame["counts"] if counts is not None]
            emitted += [
                conform(ipc_read(cell), self.spec.output)
                for cell in frame["emitted"]
                if cell is not None
            ]
        totals = {
            name: sum(each)
            for name, each in zip(COUNTS, zip(*told, strict=True), strict=False)
            if name != "watermark"
        }
        result = BatchResult(
            self.batches,
            *self._halves(concat(emitted)),
            self._operators(spark),
            Counts(*(totals.get(f.name, 0) for f in fields(Counts))),
            totals.get("state_rows", 0),
            totals.get("state_bytes", 0),
        )
        self.batches += 1
        return result

    def move(self, spark: int) -> None:
        """The watermark moves at the end of a micro-batch, and never back."""
        self._next = max(self._next, spark)

    def end(self) -> list[BatchResult]:
        """The micro-batch without data, if the watermark moved: every shard is woken by its timer."""
        return [self.step({shard: [] for shard in self.stored})] if self._next > self._used else []

    def flush(self) -> BatchResult:
        """What is still open, as if the stream were over. Changes nothing."""
        spark = self._used
        core = self._transform.core
        tables = [
            core.finish(self.spec, State(stored.watermark, self._decoded(stored)))
            for stored in (Stored(*kept) for kept in self.stored.values())
        ]
        halves = self._halves(concat([self.spec.output.empty_table(), *tables]))
        return BatchResult(self.batches, *halves, self._operators(spark), Counts(), 0, 0)

    def _halves(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        if self._whole:
            return table, pa.table({})
        return split(table, None if self._is_pair else self.spec.event_time)

    def _decoded(self, stored: Stored) -> dict[str, pa.Table]:
        known = self._transform.core.STATE, self.spec.identity, self.count
        return decode(stored.frame, *known, where=self._transform.operator)

    def _operators(self, spark: int) -> dt.datetime | None:
        """The operator's watermark at this one of Spark's."""
        if spark <= 0:
            return None
        return _EPOCH + dt.timedelta(milliseconds=spark, microseconds=self.spec.lag)


def packs_of(
    rows: pa.Table,
    pack: Callable[[pa.Table], pa.Table],
    of: Packable,
    shards: int,
    *,
    newest: bool,
) -> tuple[Packs, int | None]:
    """Packs of each shard, and the greatest event time where it is asked for."""
    packs: Packs = {}
    greatest = None
    names = of.input.names
    for row in packer(pack, of, shards, newest=newest)(iter(rows.select(names).to_batches())):
        (number,), (packed,), (event_time,) = (column.to_pylist() for column in row.columns)
        if packed is None:
            greatest = (event_time - _EPOCH) // dt.timedelta(microseconds=1)
        else:
            packs.setdefault(number, []).append(packed)
    return packs, greatest


def parsed(watermark: Duration | None) -> int | None:
    """Microseconds of the delay of a watermark that a frame brings."""
    if watermark is None:
        return None
    return parse_delay(watermark, parameter="watermark", where="streamops.testing")


def carried_delay(
    time: str, delay: int | None, lag: int, *, brought: int | None, on: str, where: str
) -> int | None:
    """What the preflight says of a frame with a watermark of this delay on that column."""
    marks = {time: {}, on: {} if brought is None else {WATERMARK: brought // 1_000}}
    schema = StructType(
        [StructField(name, TimestampType(), metadata=mark) for name, mark in marks.items()]
    )
    frame = cast("DataFrame", Frame(schema))
    return carried_watermark(frame, delay, lag, time=time, where=where)


def newest_of(rows: pa.Table, time: str) -> int | None:
    """The greatest event time, as ``withWatermark`` on the frame sees it."""
    micros, valid = timestamp_micros(rows.column(time))
    return int(micros[valid].max()) if valid.any() else None


def through_spark(kept: Sequence[Any]) -> Sequence[Any]:
    """The same through Spark's types and back: a number that does not fit is an error here."""
    columns = [pa.array([value], kind) for value, kind in zip(kept, _STORED.types, strict=True)]
    table = ipc_read(ipc_write(pa.table(columns, schema=_STORED)))
    return tuple(column[0].as_py() for column in table.columns)
