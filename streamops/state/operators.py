"""The cores by the name of the state that they write, and the formats that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamops.changes.core.aggregate import AggregateCore
from streamops.changes.core.history import HistoryCore
from streamops.changes.core.latest import LatestCore
from streamops.joins.core.asof import AsofCore
from streamops.joins.core.enrich import EnrichCore
from streamops.joins.core.interval import IntervalCore
from streamops.joins.core.tables import TablesCore
from streamops.joins.core.timeline import TimelineCore
from streamops.kernel.core import StateFormat
from streamops.kernel.operator import Core
from streamops.kernel.placement import Placement
from streamops.patterns.core.match import PatternCore
from streamops.process.core.per_key import PerKeyCore
from streamops.search.core.asof import SearchAsofCore
from streamops.search.core.match import SearchCore
from streamops.sketches.core.seen import SeenCore
from streamops.time.core.producers import ProducersCore
from streamops.time.core.track_clock import TrackClockCore
from streamops.windows.core.compare import CompareCore
from streamops.windows.core.grid import GridCore
from streamops.windows.core.over import OverCore
from streamops.windows.core.resample import ResampleCore
from streamops.windows.core.rolling import RollingCore
from streamops.windows.core.running import RunningCore
from streamops.windows.core.session import SessionCore
from streamops.windows.core.sliding import SlidingCore

_CORES: tuple[type[Core[Any]], ...] = (
    *(AggregateCore, HistoryCore, LatestCore),
    *(AsofCore, EnrichCore, IntervalCore, TablesCore, TimelineCore),
    *(PatternCore, SearchCore, SearchAsofCore, PerKeyCore, SeenCore),
    *(ProducersCore, TrackClockCore),
    *(CompareCore, GridCore, OverCore, ResampleCore, RollingCore, RunningCore),
    *(SessionCore, SlidingCore),
)

FORMATS: Mapping[str, StateFormat] = {core.STATE.kind: core.STATE for core in _CORES}
"""The current format of each layout."""

PLACEMENTS: Mapping[str, Placement] = {core.STATE.kind: core().placement for core in _CORES}
"""The placement of each layout."""
