"""A watermark per producer, and their minimum for the stream."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.parameters import parse_delay, require_columns
from streamops.kernel.time import MAX_INSTANT, Duration, parse_duration
from streamops.spark.clocks import ClockSpec, follow_clock
from streamops.spark.columns import column, instant_field, micros, now
from streamops.spark.operator import Operator
from streamops.time.core.producers import ARRIVAL, ProducersCore, ProducersSpec


def producers(
    producer: str,
    *,
    time: str,
    delay: Duration,
    idle: Duration,
    arrival: str | None = None,
    punctuation: str | None = None,
    expected: Sequence[Any] = (),
) -> Operator:
    """Define a watermark that follows the slowest active producer.

    Spark derives the watermark from the greatest event time of the whole stream: if one device is a
    minute behind the others, all its rows are late. This operator tracks the newest event time of
    each producer. The *clock* is their minimum, and the watermark is `delay` behind the clock.

    A producer is active from its first row until it has been silent for `idle`; then it no longer
    holds back the clock and is evicted. A producer that joins or returns with event times behind
    the clock does not stop the clock, because a clock never goes back. Its rows are late by the
    rules of the downstream operators until it has caught up; then it holds the clock like the
    others.

    Input        `producer`: any type but maps (null is a producer) · `time`: timestamp (event time) ·
                 `arrival`, `punctuation`: timestamp · other columns of any type
    Output       the same rows and columns, all nullable
    Output mode  that of the downstream operators; append if there are none
    Watermark    none on the input; the operator defines one on `time`. Downstream operators take no
                 `delay`: theirs is this `delay` minus their `allowed_lateness`
    State        in a single task: one entry per producer with a row within `idle` before the newest
                 arrival
    Order        rows may arrive in any order within a micro-batch
    Batch        the frame unchanged: no row is late in a batch

    Parameters
    ----------
    producer : str
        Column that identifies the sender of the row: a device, a partition of a log, a server.
    time : str
        Event-time column, of type timestamp.
    delay : duration
        How far the watermark is behind the clock, >= 0, in whole milliseconds: the disorder of the
        rows of one producer. If a downstream operator has an `allowed_lateness`, `delay` is the
        sum of the time that its results wait and the time for which stragglers are accepted.
    idle : duration
        How long a producer may be silent, > 0, before it no longer holds back the clock.
    arrival : str, optional
        Column with the time at which the row arrived, by a trusted clock, such as the time at
        which the server or the log received it. Silence is measured by it. An arrival later than
        the start of the micro-batch is replaced by that start. Default: the start of the
        micro-batch. With the default, producers are rarely idle in a backlog that is read faster
        than it was written, and after a pause of the query longer than `idle` every producer
        without a row in the first micro-batch is idle.
    punctuation : str, optional
        Column of type timestamp. A value says that the producer sends no more events before it. The
        producer then holds the watermark back no further than this, and at once: without `delay`. The
        event time of such a row may be null. Null: the row says nothing.
    expected : list of values of `producer`
        Producers to wait for when the query starts for the first time: until each of them has sent
        a row, or `idle` has passed since the first micro-batch, there is no watermark. By default,
        the producers in the first micro-batch hold the clock, and rows of producers that join
        later may be late.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or names the same column as another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.
    WatermarkError
        The frame already has a watermark.
    RequirementError
        A requirement of the state API is not met.

    Examples
    --------
    >>> from streamops import time
    >>> time.producers("device", time="ts", delay="10 seconds", idle="5 minutes")
    time.producers(producer='device', time='ts', delay='10 seconds', idle='5 minutes')
    >>> by_device = time.producers("device", time="ts", delay="1 minute", idle="1 hour")
    >>> readings.transform(by_device).transform(per_minute)

    Notes
    -----
    A row whose event time or `arrival` is null or outside the years 1 to 9999 is passed on and
    counted as ``rejected``. It affects neither the clock nor the idle timeout of its producer.

    The producer with the newest arrival is never idle, so the clock does not move while all
    producers are silent.

    The frame is read twice, and all upstream computations run twice: once for the rows, and once
    for the three columns named here.

    See Also
    --------
    guard : validate event times; apply it before this operator. It limits how far a producer can
        run ahead of the current time.

    References
    ----------
    Akidau et al.: "Watermarks in Stream Processing Systems", VLDB 2021.
    Flink: WatermarkStrategy.withIdleness.
    """
    spec = _Producers(
        producer=producer,
        time=time,
        delay=parse_delay(delay, parameter="delay"),
        idle=parse_duration(idle, parameter="idle", minimum=1),
        arrival=arrival,
        punctuation=punctuation,
        expected=expected,
    )
    return follow_clock(_Producers.where, spec, ProducersCore())


class _Producers(ProducersSpec, ClockSpec):
    """The specification with its Spark expressions."""

    __slots__ = ()

    def check(self, frame: DataFrame) -> None:
        """Reject frames without the columns."""
        require_columns(frame.schema.names, {"producer": [self.producer]})
        instant_field(frame, self.time, role="time")
        if self.arrival is not None:
            instant_field(frame, self.arrival, role="arrival")
        if self.punctuation is not None:
            instant_field(frame, self.punctuation, role="punctuation")

    def columns(self) -> Sequence[Column]:
        """Return the producer, the event time, and the arrival."""
        arrived = now()
        if self.arrival is not None:
            arrival = micros(column(self.arrival))
            # An arrival after the start of the micro-batch is wrong; without the limit, it would
            # make all other producers look silent. A null stays null; `least` alone ignores it.
            arrived = F.when(arrival.isNotNull(), F.least(arrival, arrived))
        arrived = F.timestamp_micros(arrived).alias(self.arrival or ARRIVAL)
        time = column(self.time)
        if self.punctuation is not None:
            # The watermark is `delay` behind the clock, which has a greatest time.
            until = micros(column(self.punctuation))
            latest = F.least(F.try_add(until, F.lit(self.delay)), F.lit(MAX_INSTANT))
            until = F.timestamp_micros(F.when(until.isNotNull(), latest))
            time = F.greatest(time, until).alias(self.time)
        return column(self.producer), time, arrived

    def projected(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Compute the same for a table: what the test kit packs."""
        arrival_type = schema.field(2).type
        now_ = pa.scalar(dt.datetime.now(dt.UTC), arrival_type)  # when the micro-batch starts
        arrived = pa.chunked_array([pa.repeat(now_, len(rows))])
        if self.arrival is not None:
            given = rows.column(self.arrival).cast(arrival_type)
            arrived = pc.if_else(pc.greater(given, arrived), arrived, given)  # null stays null
        times = rows.column(self.time)
        if self.punctuation is not None:
            until, own = (
                rows.column(name).cast(schema.field(1).type).cast(pa.int64())
                for name in (self.punctuation, self.time)
            )
            until = pc.min_element_wise(pc.add(until, self.delay), MAX_INSTANT, skip_nulls=False)
            times = pc.max_element_wise(own, until).cast(schema.field(1).type)
        columns = [rows.column(self.producer), times, arrived]
        return pa.table(columns, schema=schema)
