"""Joins of streams: which one do I want?

=================  ==============================================================
``interval``       rows of two streams that have one key and lie close in time
``asof``       facts, and the version of a table's row that held at their event time
``enrich``         facts, and what the local copy of a table that changes says of them now
``lookup``         rows, and what a small table says of them now
``tables``         two tables that change, kept joined
``timeline``       the newest posts of those whom each user follows
=================  ==============================================================
"""

from streamops.joins.asof import asof
from streamops.joins.enrich import enrich
from streamops.joins.interval import interval
from streamops.joins.lookup import lookup
from streamops.joins.tables import tables
from streamops.joins.timeline import timeline

__all__ = ["asof", "enrich", "interval", "lookup", "tables", "timeline"]
