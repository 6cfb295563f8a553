"""Change streams: read, normalize, apply, aggregate, compact, fold and compare.

==================  =============================================================
``from_debezium``   read Debezium's records
``from_delta``      read Delta's change data feed
``normalize``       upserts and deletes as a change stream with the rows before and after
``apply``           maintain a table, or the history of its rows
``aggregate``       aggregates of a table that changes
``compact``         shorten a log for readers that start at its beginning
``fold``            the table of a change stream
``differences``     compare two tables
``parse_lsn``       positions in PostgreSQL's log, from text to numbers
==================  =============================================================
"""

from __future__ import annotations

from streamops.changes.aggregate import aggregate
from streamops.changes.apply import apply
from streamops.changes.compact import compact
from streamops.changes.debezium import from_debezium, parse_lsn
from streamops.changes.delta import from_delta
from streamops.changes.differences import Difference, Differences, differences
from streamops.changes.fold import fold
from streamops.changes.normalize import normalize
from streamops.kernel.calls import explain_calls

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
    "parse_lsn",
]

explain_calls(globals())
