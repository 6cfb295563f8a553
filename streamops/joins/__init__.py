"""Joins of streams: which one do I want?

=================  ==============================================================
``interval``       rows of two streams that have one key and lie close in time
``tables``         two tables that change, kept joined
``split_late``     results and late rows of a micro-batch, apart
=================  ==============================================================
"""

from streamops.joins.interval import interval
from streamops.joins.late import split_late
from streamops.joins.tables import tables

__all__ = ["interval", "split_late", "tables"]
