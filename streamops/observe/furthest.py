"""Who sends event times from the future."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.kernel.errors import SpecError
from streamops.observe.names import key_names, require_columns
from streamops.spark.columns import column, instant_field, refuse_duplicates, require_name
from streamops.spark.operator import show_fields

__all__ = ["furthest_ahead"]

_WHERE = "observe.furthest_ahead"
_ADDED = ("newest", "ahead", "rows")


def furthest_ahead(
    time: str, *, by: str | Sequence[str] = (), most: int = 10
) -> Callable[[DataFrame], DataFrame]:
    """Who sends event times from the future: the furthest ahead first.

    Counts the rows whose event time is later than the present, and of those of each of `by` the
    greatest event time. No rows out: nobody is ahead.

    Input        `time`: timestamp (event time) · `by` columns
    Output       `by` columns · newest: timestamp · ahead: interval day to second, from the present
                 to newest · rows: bigint, that are ahead
    Output mode  a batch only, such as that of ``foreachBatch``, or a table
    Watermark    ignored
    State        none
    Order        rows may come in any order
    Batch        as above

    Parameters
    ----------
    time : str
        Event-time column, of type timestamp.
    by : str or sequence of str
        Columns that tell who sent the row: the device, the file, the partition. Left out: all rows
        together.
    most : int
        How many rows to return, >= 1.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range; ``BATCH_ONLY``: the frame is a stream.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.furthest_ahead("ts", by="device")
    observe.furthest_ahead(time='ts', by=('device',), most=10)

    Notes
    -----
    An event time after the year 9999 is one that Python cannot hold: cast ``newest`` to a string
    before ``collect()``.

    See Also
    --------
    PoisonedWatermark : the alarm after which one asks.
    """
    require_name(time, parameter="time", where=_WHERE)
    names = key_names(by, _ADDED, where=_WHERE)
    if type(most) is not int or most < 1:
        raise SpecError(
            "ROWS_OUT_OF_RANGE",
            "`most` is no number of rows",
            where=_WHERE,
            got=f"most={most!r}",
            expected="an integer, 1 or more",
            fix="leave it out for the first 10",
        )
    return _Furthest(time, names, most)


@dataclass(frozen=True, slots=True, repr=False)
class _Furthest:
    time: str
    by: tuple[str, ...]
    most: int

    def __repr__(self) -> str:
        return f"{_WHERE}({', '.join(show_fields(self))})"

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Who is ahead, in this batch."""
        refuse_duplicates(frame, where=_WHERE)
        instant_field(frame, self.time, role="time", where=_WHERE)
        require_columns(self.by, frame.schema.names, role="by", where=_WHERE)
        if frame.isStreaming:
            raise SpecError(
                "BATCH_ONLY",
                "a stream has no furthest row, for it has no end",
                where=_WHERE,
                got="a streaming frame",
                expected="a batch",
                fix="call it in foreachBatch, on the batch",
            )
        now, instant = F.unix_micros(F.current_timestamp()), F.unix_micros(column(self.time))
        # A constant stands for no columns: without any, Spark makes a row of nothing.
        keys: list[Any] = [column(name) for name in self.by] or [F.lit("")]
        newest = F.max(column(self.time))
        return (
            frame.where(instant > now)
            .groupBy(*keys)
            .agg(
                newest.alias("newest"),
                (F.lit(dt.timedelta(microseconds=1)) * (F.unix_micros(newest) - now)).alias(
                    "ahead"
                ),
                F.count(F.lit(1)).alias("rows"),
            )
            .select(*(column(name) for name in (*self.by, *_ADDED)))
            .orderBy(F.col("newest").desc(), *(column(name) for name in self.by))
            .limit(self.most)
        )
