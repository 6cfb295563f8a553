"""Joins of streams: which one do I want?

=================  ==============================================================
``interval``       rows of two streams that have one key and lie close in time
``temporal``       facts, and the version of a table's row that held at their event time
``split_late``     results and late rows of a micro-batch, apart
=================  ==============================================================
"""

from streamops.joins.interval import interval
from streamops.joins.late import split_late
from streamops.joins.temporal import temporal

__all__ = ["interval", "split_late", "temporal"]
