"""Panes in segments: stored apart until their windows close.

When a shard has more panes than a limit, they are moved to segments. The time axis is that of the windows:
a segment has the panes whose first window is in one interval of window numbers, whose length is a power of
two. It is read when one of its windows closes, and removed when the last one does.

A pane whose rows arrive in several steps is in several segments. Four segments of one interval with similar
numbers of rows are merged. So each row is written again once for each power of four between the limit and
the number of rows in the interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import concat, integers, key_codes, take
from streamops.kernel.segments import Segment, Segments
from streamops.windows.core.grid_spec import GridSpec
from streamops.windows.core.panes import add_panes, merge_panes
from streamops.windows.core.tables import keys_of

_MERGED = 4
"""How many segments are merged, and by how many times the numbers of rows of similar ones differ."""

_INTERVALS = 8
"""Intervals that panes are moved to, at most."""


def read_closing(segments: Segments | None, last: int) -> list[pa.Table]:
    """The rows of all segments with windows up to ``last``."""
    if segments is None:
        return []
    return [segments.read(of) for of in segments.index if of.first <= last]


def evict_segments(segments: Segments, last: int) -> Segments:
    """Remove the segments all of whose windows are closed; ``last`` is the last closed one."""
    closed = [of for of in segments.index if of.last <= last]
    return segments.remove(closed) if closed else segments


def move_panes(spec: GridSpec, panes: pa.Table, segments: Segments) -> Segments:
    """Move panes to segments, and merge segments."""
    first, last = spec.grid.windows_of(integers(panes, "pane"))
    distinct, scale = np.unique(first), 0
    while len(np.unique(distinct >> scale)) > _INTERVALS:
        scale += 1
    for interval in np.unique(distinct >> scale):
        found = np.flatnonzero(first >> scale == interval)
        rows = panes if len(found) == len(panes) else take(panes, found)
        limits = int(first[found].min()), int(last[found].max())
        segments = segments.add(rows, first=limits[0], last=limits[1], scale=scale)
    return _merge_similar(spec, segments)


def merge_duplicates(spec: GridSpec, panes: pa.Table) -> pa.Table:
    """Merge panes of the same key and start."""
    codes = key_codes(keys_of(panes, spec), len(panes))
    return merge_panes(spec, panes.slice(0, 0), codes, panes)[0]


def merge_tables(spec: GridSpec, tables: Sequence[pa.Table]) -> pa.Table:
    """Merge panes of several tables, each of which has a pane at most once."""
    largest, *others = sorted(tables, key=len, reverse=True)
    # Only rows of the others, and those that are equal to them, are numbered.
    return add_panes(spec, largest, merge_duplicates(spec, concat(others))) if others else largest


def _merge_similar(spec: GridSpec, segments: Segments) -> Segments:
    groups = defaultdict[tuple[int, int, int], list[Segment]](list)
    for of in segments.index:
        groups[of.scale, of.first >> of.scale, _level(of.rows, segments.limit)].append(of)
    full = [group for group in groups.values() if len(group) >= _MERGED]
    if not full:
        return segments
    for group in full:
        rows = merge_duplicates(spec, concat([segments.read(of) for of in group]))
        first, last = min(of.first for of in group), max(of.last for of in group)
        segments = segments.remove(group).add(rows, first=first, last=last, scale=group[0].scale)
    return _merge_similar(spec, segments)  # the merged ones may be similar to others


def _level(rows: int, limit: int) -> int:
    """The power of four by which a number of rows exceeds the limit, rounded."""
    return max(0, round(math.log(max(rows, 1) / max(limit, 1), _MERGED)))
