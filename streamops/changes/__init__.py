"""Streams of changes: captured from a database, remembered, applied, folded to tables."""

from __future__ import annotations

from streamops.changes.debezium import from_debezium
from streamops.changes.delta import from_delta
from streamops.changes.normalize import normalize
from streamops.changes.rejected import split_rejected

__all__ = ["from_debezium", "from_delta", "normalize", "split_rejected"]
