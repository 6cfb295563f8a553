"""Find the producers of event times in the future."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.errors import located
from streamops.kernel.parameters import parse_names, require_columns
from streamops.observe import conditions
from streamops.observe.core.rules import require_count
from streamops.spark.columns import column, instant_field, refuse_duplicates
from streamops.spark.operator import show_call


@dataclass(frozen=True, slots=True, repr=False)
class KeyedTransform:
    """Parameters of a transform with key columns. `where` is its public name."""

    where: str = field(repr=False)
    by: tuple[str, ...]

    def __repr__(self) -> str:
        return show_call(self.where, self)


def parse_keys(by: object, reserved: Sequence[str]) -> tuple[str, ...]:
    """Return the key columns. They must differ from each other and from the `reserved` columns.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, or ``NAME_TAKEN``: Spark ignores upper and lower case.
    """
    names = parse_names(by, parameter="by")
    folded = [name.lower() for name in names]
    taken = [name for name in names if folded.count(name.lower()) > 1 or name.lower() in reserved]
    if taken:
        raise conditions.NAME_TAKEN.error(
            names=", ".join(dict.fromkeys(taken)), reserved=", ".join(reserved), got=f"by={names!r}"
        )
    return names


def group_keys(by: Sequence[str]) -> list[Column]:
    """Return the grouping columns. A constant replaces an empty list, which has a row for no input.

    They have no watermark metadata: Spark would drop late rows.
    """
    return [column(name).alias(name, metadata={}) for name in by] or [F.lit("")]


_ADDED = ("newest", "ahead", "rows")


def furthest_ahead(
    time: str, *, by: str | Sequence[str] = (), most: int = 10
) -> Callable[[DataFrame], DataFrame]:
    """Find the keys with the newest event times in the future.

    Count the rows of each key whose event time is later than the current time, and compute their
    greatest event time; the newest is first. The result is empty if there are no such rows.

    Input        `time`: timestamp (event time) · `by` columns
    Output       `by` columns · newest: timestamp · ahead: interval day to second, from the current
                 time to newest · rows: bigint, in the future
    Output mode  batch frames only, such as the one of ``foreachBatch``, or a table
    Watermark    ignored
    State        none
    Order        rows may arrive in any order
    Batch        as above

    Parameters
    ----------
    time : str
        Event-time column, of type timestamp.
    by : str or sequence of str
        Columns that identify the producer of a row: the device, the file, the partition. Default:
        one result for all rows.
    most : int
        Maximum number of rows to return, >= 1.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range; ``STREAMING_FRAME``: the frame is a stream.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.furthest_ahead("ts", by="device")
    observe.furthest_ahead(time='ts', by=('device',))

    Notes
    -----
    Python cannot represent an event time after the year 9999: cast ``newest`` to a string before
    ``collect()``.

    See Also
    --------
    PoisonedWatermark : the alarm that this function helps to explain.
    """
    keys = parse_keys(by, _ADDED)
    require_count(most, "10", parameter="most")
    return _FurthestAhead("observe.furthest_ahead", keys, time, most)


@dataclass(frozen=True, slots=True, repr=False)
class _FurthestAhead(KeyedTransform):
    """Parameters and plan of :func:`furthest_ahead`."""

    time: str
    most: int

    @located("observe.furthest_ahead")
    def __call__(self, frame: DataFrame) -> DataFrame:
        refuse_duplicates(frame)
        instant_field(frame, self.time, role="time")
        require_columns(frame.schema.names, {"by": self.by})
        if frame.isStreaming:
            raise conditions.BATCH_ONLY.error(got="a streaming frame")
        now, newest = F.unix_micros(F.current_timestamp()), F.max(column(self.time))
        microsecond = F.lit(dt.timedelta(microseconds=1))
        return (
            frame.where(F.unix_micros(column(self.time)) > now)
            .groupBy(*group_keys(self.by))
            .agg(
                newest.alias("newest"),
                (microsecond * (F.unix_micros(newest) - now)).alias("ahead"),
                F.count(F.lit(1)).alias("rows"),
            )
            .select(*(column(name) for name in (*self.by, *_ADDED)))
            .orderBy(F.col("newest").desc(), *(column(name) for name in self.by))
            .limit(self.most)
        )
