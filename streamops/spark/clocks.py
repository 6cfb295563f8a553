"""Define the watermark of a frame by a clock that is computed from all of its rows.

The frame is read by two branches of a union. In one of them the rows stay as they are. In the other
branch the state operator of the clock emits one row per micro-batch, with the time of the clock. The
watermark is defined after the union, where the rows of the clock are filtered out.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.changelog.chains import Columns, Metadata, clock_mark, refuse_watermark
from streamops.kernel.errors import located
from streamops.kernel.operator import Core, Spec
from streamops.spark.checks import columns_of
from streamops.spark.columns import arrow_schema, column, refuse_collated
from streamops.spark.definition import Frames
from streamops.spark.operator import Operator

_CLOCK = "__streamops_clock"
_INSTANTS = ("clock", "newest")


def define_watermark(
    time: str,
    delay: int,
    frame: DataFrame,
    ticks: DataFrame,
    metadata: Metadata | None,
    observed: str,
) -> DataFrame:
    """Add a watermark to a streaming frame.

    Parameters
    ----------
    time : str
        The event-time column.
    delay : int
        How far the watermark is behind the clock, in microseconds.
    frame : DataFrame
        The rows.
    ticks : DataFrame
        One row per micro-batch: the columns ``clock`` and ``newest``, and further metrics.
    metadata : mapping
        For the next operator.
    observed : str
        Name of the observed metrics.
    """
    assert metadata is not None, "a batch has no clock"
    # Spark observes aggregates only; there is one row.
    metrics = {name: F.max(F.col(name)) for name in ticks.columns}
    # A progress shows an instant without its time zone. The microseconds can be compared.
    exact = {f"{name}_micros": metrics[name] for name in _INSTANTS}
    metrics |= {name: F.timestamp_micros(metrics[name]) for name in _INSTANTS} | exact
    ticks = ticks.observe(observed, *(value.alias(name) for name, value in metrics.items()))
    fields = frame.schema.fields
    clock = F.timestamp_micros("clock").alias(_CLOCK)
    nothing = [F.lit(None).cast(f.dataType).alias(f.name) for f in fields]
    rows = frame.select("*", F.lit(None).cast("timestamp_ltz").alias(_CLOCK))
    # A tick before the first producer has no clock, as the rows: it must not be taken for a row.
    united = rows.union(ticks.where(F.col("clock").isNotNull()).select(*nothing, clock))
    milliseconds = delay // 1_000
    marked = united.withWatermark(_CLOCK, f"{milliseconds} milliseconds")
    # Spark would push a later filter on a column of the rows below the union, where the rows of the
    # clock are null, and drop the clock. It does not push a filter past one that is not
    # deterministic, such as a condition on the partition.
    result = marked.where(F.col(_CLOCK).isNull() & (F.spark_partition_id() >= 0))
    mark = clock_mark(delay, metadata)
    columns = []
    for field in fields:
        own = {**(field.metadata or {}), **(mark if field.name == time else {})}
        columns.append(column(field.name).alias(field.name, metadata=own))
    return result.select(*columns)


class ClockSpec(Spec, ABC):
    """The parameters of a clock.

    ``time`` is the event-time column, and ``delay`` how far the watermark is behind the clock, in
    microseconds.
    """

    __slots__ = ()

    time: str
    delay: int

    @abstractmethod
    def check(self, frame: DataFrame) -> None:
        """Refuse a frame that does not suit."""

    @abstractmethod
    def projected(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Compute the columns of a table: what the test kit packs."""

    @abstractmethod
    def columns(self) -> Sequence[Column]:
        """Column expressions that the core reads, with the names that they have in its input."""


@dataclass(frozen=True, slots=True, repr=False)
class Clock(Operator):
    """An operator that passes its rows on, and defines their watermark by a clock."""

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Build the result frame. A batch frame stays as it is: no row is late in it."""
        if frame.isStreaming:
            return Operator.__call__(self, frame)
        assert self.check is not None
        with located(self.name):
            self.check(frame, columns_of(frame))
        return frame


def follow_clock(name: str, parameters: ClockSpec, core: Core[Any]) -> Clock:
    """Build an operator that passes its rows on, and defines their watermark by a clock.

    The core emits one row per micro-batch: ``clock`` and ``newest``, in microseconds, and further
    metrics; ``core.STEPS_WITHOUT_ROWS`` is true, and its placement is that of a single shard.
    """

    def check(frame: DataFrame, columns: Columns) -> None:
        parameters.check(frame)
        if columns.is_streaming:
            refuse_watermark(columns, parameters.time)
        # The driver sees the columns of `prepare` only.
        (reads,) = parameters.reads
        schema = arrow_schema(frame, only=reads)
        refuse_collated(frame, reads)
        parameters.resolve((schema,), carried=(None,), shards=1)

    def prepare(frames: Frames) -> Frames:
        return Frames((frames.sides[0].select(*parameters.columns()),))

    build = functools.partial(define_watermark, parameters.time, parameters.delay)
    return Clock(name, parameters, core, check=check, prepare=prepare, build_result=build)
