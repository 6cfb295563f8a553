"""Streams of changes: captured from a database, remembered, applied, folded to tables."""

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
