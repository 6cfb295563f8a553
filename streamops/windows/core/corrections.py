"""Corrections of windows on a grid: what is published when results that are out change.

The published value is not stored. It is computed from the panes before the step, because every change to
a published window is published.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import concat, integers, rows_differ, take
from streamops.kernel.core import Metrics
from streamops.kernel.groups import Groups, Ids, pair_codes
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL
from streamops.windows.core.grid_spec import GridSpec
from streamops.windows.core.panes import Windows, windows_of_panes
from streamops.windows.core.tables import EARLY, LATE, ON_TIME, publish_windows, revision_schema

Coded = tuple[pa.Table, Ids]
"""A table and the key number of each of its rows."""


@dataclass(frozen=True, slots=True)
class Borders:
    """Numbers of the last windows that were final before the step, closed before it, and are closed now."""

    final: int
    before: int
    now: int

    @staticmethod
    def of(spec: GridSpec, previous_watermark: int | None, watermark: int | None) -> Borders:
        """The borders of a step from one watermark to the next."""
        return Borders(
            final=last_final(spec, previous_watermark),
            before=last_closed(spec, previous_watermark),
            now=last_closed(spec, watermark),
        )


def last_closed(spec: GridSpec, watermark: int | None) -> int:
    """The number of the last window that is closed."""
    return BEFORE_ALL if watermark is None else spec.grid.last_closed(watermark)


def last_final(spec: GridSpec, watermark: int | None) -> int:
    """The number of the last window that cannot change any more."""
    return BEFORE_ALL if watermark is None else spec.grid.last_closed(spec.final_by(watermark))


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows to publish, the table of revisions, and metrics."""

    emitted: pa.Table
    revisions: pa.Table
    counts: Metrics


def evict_revisions(spec: GridSpec, revisions: pa.Table, watermark: int) -> pa.Table:
    """Evict revisions of windows that cannot change any more."""
    ends = spec.grid.end_of(integers(revisions, "window"))
    alive = ends > spec.final_by(watermark)
    return revisions if alive.all() else revisions.filter(pa.array(alive)).combine_chunks()


def correct(
    spec: GridSpec, *, new: Coded, before: Coded, after: Coded, revisions: Coded, borders: Borders
) -> Correction:
    """Publish the windows that were on time before and that new panes change.

    With early results, also open windows, and windows that are on time now.

    Parameters
    ----------
    new, before, after : (Table, array)
        The new panes, the panes before the step, and the panes after it.
    revisions : (Table, array)
    borders : Borders
    """
    lowest = borders.final + 1
    # Empty windows are published on time, never early.
    highest = AFTER_ALL if spec.is_early else borders.before
    touched = [_pairs(spec, new, lowest, highest, last_empty=borders.before)]
    if spec.is_early:
        last = AFTER_ALL if spec.turned == "on" else borders.now  # publish all open windows
        touched.append(_pairs(spec, after, borders.before + 1, last, last_empty=borders.now))
    if not any(len(pairs.numbers) for pairs in touched):
        return Correction(spec.output.empty_table(), revisions[0], Metrics())
    keys = np.concatenate([pairs.keys for pairs in touched])
    highest = max(int(pairs.numbers.max(initial=BEFORE_ALL)) for pairs in touched)
    last = min(highest, borders.before) if spec.turned == "on" else highest  # what was published
    old = _pairs(spec, before, lowest, last, only=keys, last_empty=borders.before)
    now = _pairs(spec, after, lowest, highest, only=keys, last_empty=borders.now)
    revised = _Pairs(*revisions, np.arange(len(revisions[1])), integers(revisions[0], "window"))
    count = _number(touched, [old, now, revised])

    old_windows, old_ids = _windows(spec, old, count)
    new_windows, window = _windows(spec, now, count)
    old_results, new_results = old_windows.results, new_windows.results
    # From here on one entry per touched window, in the order of `new_windows`.
    previous = _look_up(old_ids, np.arange(len(old_ids)), count, missing=-1)[window]
    revision = _look_up(revised.ids, integers(revised.table, "revision"), count, missing=0)[window]
    numbers = new_windows.numbers
    timing = np.select([numbers <= borders.before, numbers <= borders.now], [LATE, ON_TIME], EARLY)
    last_timing = np.full(len(numbers), ON_TIME)  # of the last publication
    existed = previous >= 0
    differs = ~existed
    both = np.flatnonzero(existed)
    differs[both] = rows_differ(
        old_results.take(previous[both]).values, new_results.take(both).values
    )
    if spec.is_early:
        last_timing = _look_up(
            revised.ids, integers(revised.table, "timing"), count, missing=ON_TIME
        )[window]
        last_timing = np.where(numbers > borders.before, EARLY, last_timing)
        # Re-emit an unchanged value: its timing changed to on time.
        differs |= (last_timing == EARLY) & (timing != EARLY)

    again, first = np.flatnonzero(differs & existed), np.flatnonzero(differs & ~existed)
    # The first revision of a window that only stragglers have reached is 1. If early results were taken
    # back, the next revision is stored.
    first_revision = np.maximum(revision, timing == LATE)
    raised = np.where(existed, revision + 1, first_revision).astype(np.int32)
    if spec.stragglers == "retract":
        old_values = old_results.take(previous[again])
        replaced = revision[again].astype(np.int32)
        emitted = [
            publish_windows(spec, new_results.take(first), raised[first], INSERT, timing[first]),
            publish_windows(spec, old_values, replaced, PREIMAGE, last_timing[again]),
            publish_windows(spec, new_results.take(again), raised[again], POSTIMAGE, timing[again]),
        ]
    else:
        rows = np.flatnonzero(differs)
        emitted = [publish_windows(spec, new_results.take(rows), raised[rows], timing=timing[rows])]
    # A window without a stored revision was published once: early if it is open, else on time.
    revised_rows = np.flatnonzero(differs & (raised > 0))
    changes = new_results.take(revised_rows)
    columns = [*changes.keys, pa.array(numbers[revised_rows]), pa.array(raised[revised_rows])]
    if spec.is_early:
        columns.append(pa.array(timing[revised_rows]).cast(pa.int8()))
    latest = pa.table(columns, schema=revision_schema(spec, "window"))
    unchanged = revised.table.filter(pa.array(~np.isin(revised.ids, window[differs])))
    return Correction(
        concat(emitted),
        concat([unchanged, latest]),
        Metrics(results=len(first), corrections=len(again)),
    )


@dataclass(slots=True)
class _Pairs:
    """Pairs of a row of a table and a window; ``ids`` numbers the windows of all tables together."""

    table: pa.Table
    codes: Ids
    rows: npt.NDArray[np.intp]
    numbers: Ids
    ids: Ids = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def keys(self) -> Ids:
        """Key number of each pair."""
        return self.codes[self.rows]


def _pairs(
    spec: GridSpec,
    coded: Coded,
    lowest: int,
    highest: int,
    *,
    last_empty: int,
    only: Ids | None = None,
) -> _Pairs:
    """Pairs of the panes and these windows, optionally only of some keys."""
    table, codes = coded
    if only is not None:
        chosen = np.flatnonzero(np.isin(codes, only))
        table, codes = take(table, chosen), codes[chosen]
    return _Pairs(*windows_of_panes(spec, table, codes, lowest, highest, last_empty=last_empty))


def _number(touched: list[_Pairs], others: list[_Pairs]) -> int:
    """Number the windows of all pairs together. The touched ones are below the returned count."""
    everything = [*touched, *others]
    keys = np.concatenate([pairs.keys for pairs in everything])
    numbers = np.concatenate([pairs.numbers for pairs in everything])
    # Groups are numbered in order of first appearance, and the touched windows appear first.
    groups, _ = Groups.of(pair_codes(keys, numbers))
    ends = np.cumsum([len(pairs.numbers) for pairs in everything])
    for pairs, ids in zip(everything, np.split(groups.ids, ends[:-1]), strict=True):
        pairs.ids = ids
    return max(int(pairs.ids.max(initial=-1)) for pairs in touched) + 1


def _windows(spec: GridSpec, pairs: _Pairs, count: int) -> tuple[Windows, Ids]:
    """The touched windows of a table of panes, and their ids."""
    touched = pairs.ids < count
    ids = pairs.ids[touched]
    rows, numbers = pairs.rows[touched], pairs.numbers[touched]
    windows = Windows.over(spec, pairs.table, pairs.codes, rows, numbers)
    # ``over`` keeps the order of first appearance.
    return windows, ids[Groups.of(ids)[1]]


def _look_up(ids: Ids, values: Ids, count: int, *, missing: int) -> Ids:
    """Look up the value of each id below ``count``."""
    result = np.full(count, missing, np.int64)
    known = ids < count
    result[ids[known]] = values[known]
    return result
