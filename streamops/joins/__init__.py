"""Joins of streams: which one do I want?

=================  ==============================================================
``tables``         two tables that change, kept joined
=================  ==============================================================
"""

from streamops.joins.tables import tables

__all__ = ["tables"]
