"""Spark expressions over instants, as microseconds since 1970.

Timestamps and intervals are not used for arithmetic: Spark adds and subtracts them by the calendar
of the session's time zone, in which a day may have 23 hours.
"""

from __future__ import annotations

import datetime as dt

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

__all__ = ["FROM_YEAR_1", "as_instant", "interval", "micros", "now"]

FROM_YEAR_1 = "0001-01-01 00:00:00Z"


def as_instant(value: Column, data_type: DataType) -> Column:
    """Cast a column of this type to a timestamp; null if a string cannot be cast."""
    return value.try_cast("timestamp") if isinstance(data_type, StringType) else value


def micros(value: Column) -> Column:
    """Convert a timestamp to microseconds; null outside the years 1 to 9999."""
    count = F.unix_micros(value)
    return F.when(count.between(F.lit(MIN_INSTANT), F.lit(MAX_INSTANT)), count)


def now() -> Column:
    """Return the start of the micro-batch or the batch; a repeated micro-batch has the same.

    Spark writes it to the checkpoint before a micro-batch runs.
    """
    return F.unix_micros(F.current_timestamp())


def interval(count: Column) -> Column:
    """Convert microseconds to an interval, day to second."""
    return F.lit(dt.timedelta(microseconds=1)) * count
