"""Streams of changes: captured from a database, remembered, applied, folded to tables.

==================  =============================================================
``from_debezium``   records of Debezium's as changes
``from_delta``      records of Delta's change data feed as changes
``split_rejected``  changes and what is none, apart
``normalize``       upserts and deletes as a change stream with the row before and after
``apply``           a table, or the history of its rows
``aggregate``       counts, sums, least, greatest of a table that changes
``compact``         what is left of a log for a reader who starts at its beginning
``fold``            the table of a change stream
``differences``     where two tables differ
==================  =============================================================
"""

from __future__ import annotations

from streamops.changes.aggregate import aggregate
from streamops.changes.apply import apply
from streamops.changes.compact import compact
from streamops.changes.debezium import from_debezium
from streamops.changes.delta import from_delta
from streamops.changes.differences import Difference, Differences, differences
from streamops.changes.fold import fold
from streamops.changes.normalize import normalize
from streamops.changes.rejected import split_rejected

__all__ = [
    "Difference",
    "Differences",
    "aggregate",
    "apply",
    "compact",
    "differences",
    "fold",
    "from_debezium",
    "from_delta",
    "normalize",
    "split_rejected",
]
