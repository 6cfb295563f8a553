"""The cores by the name of the state that they write, and the formats that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamops.changes.core import aggregate, history, latest
from streamops.joins.core import asof, enrich, interval, tables, timeline
from streamops.kernel.core import StateFormat
from streamops.kernel.placement import Placement
from streamops.patterns.core import match as patterns
from streamops.process.core import per_key
from streamops.search.core import asof as search_as_of
from streamops.search.core import match as search
from streamops.sketches.core import seen
from streamops.time.core import producers, track_clock
from streamops.windows.core import compare, grid, running, session, sliding

_CORES: tuple[Any, ...] = (
    *(aggregate, history, latest),
    *(asof, enrich, interval, tables, timeline),
    *(patterns, search, search_as_of),
    per_key,
    seen,
    *(producers, track_clock),
    *(compare, grid, running, session, sliding),
)

FORMATS: Mapping[str, StateFormat] = {core.STATE.kind: core.STATE for core in _CORES}
"""The current format of each layout."""

PLACEMENTS: Mapping[str, Placement] = {core.STATE.kind: core.PLACEMENT for core in _CORES}
"""The placement of each layout."""
