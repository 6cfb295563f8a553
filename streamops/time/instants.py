"""Instants as expressions: microseconds since 1970.

Not as timestamps and intervals: Spark adds and subtracts those by the calendar of the session's
time zone, where a day may have 23 hours.
"""

from __future__ import annotations

import datetime as dt

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

__all__ = ["FROM_YEAR_1", "as_instant", "interval", "micros", "now"]

FROM_YEAR_1 = "0001-01-01 00:00:00Z"


def as_instant(value: Column, kind: DataType) -> Column:
    """The timestamp that a column of this type holds; null where text is none."""
    return value.try_cast("timestamp") if isinstance(kind, StringType) else value


def micros(value: Column) -> Column:
    """Microseconds of a timestamp; null outside of the years 1 to 9999."""
    count = F.unix_micros(value)
    return F.when(count.between(F.lit(MIN_INSTANT), F.lit(MAX_INSTANT)), count)


def now() -> Column:
    """When this micro-batch, or this batch, was started; the same if it runs again.

    Spark writes it into the checkpoint before a micro-batch runs.
    """
    return F.unix_micros(F.current_timestamp())


def interval(count: Column) -> Column:
    """So many microseconds as an interval, day to second."""
    return F.lit(dt.timedelta(microseconds=1)) * count
