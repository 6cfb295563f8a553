"""Read the progress of a query, from the JVM or over Connect."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from streamops.kernel.time import MAX_INSTANT

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BEYOND = re.compile(r"\+?\d{5,}-")


def parse_metrics(observed: Any) -> dict[str, Any]:
    """Return observed metrics by name; empty if there are none."""
    row: dict[str, Any] = {} if observed is None else observed.asDict()
    if row.keys() == {"values", "schema"}:  # over Connect
        return dict(zip((f["name"] for f in row["schema"]["fields"]), row["values"], strict=True))
    return row


def parse_progress_time(text: str | None) -> int | None:
    """Return the microseconds since 1970 of an instant, at most the end of the year 9999.

    Examples
    --------
    >>> parse_progress_time("1970-01-01T00:00:01.500Z"), parse_progress_time("12345-01-01T00:00:00.000Z")
    (1500000, 253402300799999999)
    >>> parse_progress_time(None)
    """
    if text is None:
        return None
    if _BEYOND.match(text):
        return MAX_INSTANT
    return (dt.datetime.fromisoformat(text) - _EPOCH) // dt.timedelta(microseconds=1)
