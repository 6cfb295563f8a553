"""Spark expressions for instants, as microseconds since 1970.

Spark adds intervals to timestamps by the calendar of the session's time zone, in which a day may
have 23 hours, so all arithmetic uses microseconds.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

__all__ = ["micros", "now"]


def micros(value: Column) -> Column:
    """Convert a timestamp to microseconds; null outside the years 1 to 9999."""
    count = F.unix_micros(value)
    return F.when(count.between(F.lit(MIN_INSTANT), F.lit(MAX_INSTANT)), count)


def now() -> Column:
    """Return the start of the micro-batch or the batch.

    Spark writes it to the checkpoint before a micro-batch runs, so a repeated one has the same.
    """
    return F.unix_micros(F.current_timestamp())
