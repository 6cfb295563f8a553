"""Joins of streams, and of a stream with a table.

============  ==================================================================
``interval``  rows of two streams with the same key whose event times are close
``asof``      facts with the version of a table's row at their event time
``enrich``    facts with the current row of a table that changes, at once
``lookup``    rows with the current row of a small table
``tables``    two tables that change, joined incrementally
``timeline``  the newest posts of the authors that each user follows
============  ==================================================================
"""

from streamops.joins.asof import asof
from streamops.joins.enrich import enrich
from streamops.joins.interval import interval
from streamops.joins.lookup import lookup
from streamops.joins.tables import tables
from streamops.joins.timeline import timeline
from streamops.kernel.calls import explain_calls

__all__ = ["asof", "enrich", "interval", "lookup", "tables", "timeline"]

explain_calls(globals())
