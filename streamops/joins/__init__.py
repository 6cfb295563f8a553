"""Joins of streams: which one do I want?

=================  ==============================================================
``interval``       rows of two streams that have one key and lie close in time
``temporal``       facts, and the version of a table's row that held at their event time
``latest``         facts, and what the local copy of a table that changes says of them now
``lookup``         rows, and what a small table says of them now
``tables``         two tables that change, kept joined
``timeline``       the newest posts of those whom each user follows
``split_late``     results and late rows of a micro-batch, apart
=================  ==============================================================
"""

from streamops.joins.interval import interval
from streamops.joins.late import split_late
from streamops.joins.latest import latest
from streamops.joins.lookup import lookup
from streamops.joins.tables import tables
from streamops.joins.temporal import temporal
from streamops.joins.timeline import timeline

__all__ = ["interval", "latest", "lookup", "split_late", "tables", "temporal", "timeline"]
