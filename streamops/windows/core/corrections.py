"""Windows that are published more than once: by stragglers, or because results come early.

The value published before is not stored: it is the union of the window's panes as they were
before this step, because every change to a published window is itself published.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import concat, rows_differ, take
from streamops.kernel.core import Metrics
from streamops.kernel.groups import Groups, Ids, pair_codes
from streamops.windows.core.grid_spec import FixedSpec
from streamops.windows.core.output import EARLY, LATE, ON_TIME, publish_windows
from streamops.windows.core.panes import Windows, members
from streamops.windows.core.state_rows import key_fields, micros

__all__ = ["Borders", "Correction", "correct", "forget", "no_revisions", "revision_schema"]

_BEGINNING, _END = -(1 << 62), 1 << 62

Coded = tuple[pa.Table, Ids]
"""A table, and the key of each of its rows as a number."""


@dataclass(frozen=True, slots=True)
class Borders:
    """Numbers of the newest windows with these properties.

    Parameters
    ----------
    final : int
        It could not change any more when the rows came.
    before, now : int
        It was on time before the step; it is on time now.
    """

    final: int
    before: int
    now: int

    @staticmethod
    def of(spec: FixedSpec, previous_watermark: int | None, watermark: int | None) -> Borders:
        """Those of a step from one watermark to the next."""
        return Borders(
            final=_closed(spec, previous_watermark, spec.retention),
            before=_closed(spec, previous_watermark),
            now=_closed(spec, watermark),
        )


def _closed(spec: FixedSpec, watermark: int | None, retention: int = 0) -> int:
    return _BEGINNING if watermark is None else spec.grid.last_closed(watermark - retention)


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows to publish, the revisions to remember, and how many there were."""

    emitted: pa.Table
    revisions: pa.Table
    counts: Metrics


def revision_schema(spec: FixedSpec) -> pa.Schema:
    """Columns of the table of revisions: one row per window that was published again."""
    own = [("window", pa.int64()), ("revision", pa.int32())]
    return pa.schema([*key_fields(spec), *own, *([("timing", pa.int8())] if spec.is_early else [])])


def no_revisions(spec: FixedSpec) -> pa.Table:
    """Nothing was ever published again."""
    return revision_schema(spec).empty_table()


def forget(spec: FixedSpec, revisions: pa.Table, watermark: int) -> pa.Table:
    """Drop the windows that cannot change any more."""
    ends = spec.grid.end_of(micros(revisions, "window"))
    alive = ends + spec.retention > watermark
    return revisions if alive.all() else revisions.filter(pa.array(alive)).combine_chunks()


def correct(
    spec: FixedSpec, *, new: Coded, before: Coded, after: Coded, revisions: Coded, borders: Borders
) -> Correction:
    """The windows that were on time and that the new panes changed.

    Where results come early, also those that are still open, and those that are on time now.

    Parameters
    ----------
    new, before, after : table of panes, with key numbers
        What came, what was there, and the union of both.
    revisions : table of revisions, with key numbers
    borders : Borders
    """
    lowest = borders.final + 1
    # Empty windows are published on time, never early.
    highest = _END if spec.is_early else borders.before
    touched = [_pairs(spec, new, lowest, highest, filled=borders.before)]
    if spec.is_early:
        touched.append(_pairs(spec, after, borders.before + 1, borders.now, filled=borders.now))
    if not any(len(pairs.numbers) for pairs in touched):
        return Correction(spec.output.empty_table(), revisions[0], Metrics())
    keys = np.concatenate([pairs.keys for pairs in touched])
    highest = max(int(pairs.numbers.max(initial=_BEGINNING)) for pairs in touched)
    old = _pairs(spec, before, lowest, highest, of=keys, filled=borders.before)
    now = _pairs(spec, after, lowest, highest, of=keys, filled=borders.now)
    revised = _Pairs(*revisions, np.arange(len(revisions[1])), micros(revisions[0], "window"))
    count = _number(touched, [old, now, revised])

    was, was_window = _windows(spec, old, count)
    becomes, window = _windows(spec, now, count)
    # One entry per touched window from here on, in the order of `becomes`.
    previous = _look_up(was_window, np.arange(len(was)), count, missing=-1)[window]
    revision = _look_up(revised.ids, micros(revised.table, "revision"), count, missing=0)[window]
    numbers = becomes.numbers
    timing = np.select([numbers <= borders.before, numbers <= borders.now], [LATE, ON_TIME], EARLY)
    last_timing = np.full(len(numbers), ON_TIME)  # the timing of the publication before
    existed = previous >= 0
    differs = ~existed
    both = np.flatnonzero(existed)
    differs[both] = rows_differ(was.take(previous[both]).values, becomes.take(both).values)
    if spec.is_early:
        last_timing = _look_up(
            revised.ids, micros(revised.table, "timing"), count, missing=ON_TIME
        )[window]
        last_timing = np.where(numbers > borders.before, EARLY, last_timing)
        # Re-emit an unchanged value: it went from early to on time.
        differs |= (last_timing == EARLY) & (timing != EARLY)

    again, first = np.flatnonzero(differs & existed), np.flatnonzero(differs & ~existed)
    # What only stragglers made starts at 1.
    raised = np.where(existed, revision + 1, timing == LATE).astype(np.int32)
    if spec.stragglers == "retract":
        taken_back = was.take(previous[again])
        replaced = revision[again].astype(np.int32)
        emitted = [
            publish_windows(spec, becomes.take(first), raised[first], INSERT, timing[first]),
            publish_windows(spec, taken_back, replaced, PREIMAGE, last_timing[again]),
            publish_windows(spec, becomes.take(again), raised[again], POSTIMAGE, timing[again]),
        ]
    else:
        rows = np.flatnonzero(differs)
        emitted = [publish_windows(spec, becomes.take(rows), raised[rows], timing=timing[rows])]
    # A window that is not remembered was published once: early while it is open, else on time.
    noted = np.flatnonzero(differs & (raised > 0))
    changes = becomes.take(noted)
    columns = [*changes.keys, pa.array(changes.numbers), pa.array(raised[noted])]
    if spec.is_early:
        columns.append(pa.array(timing[noted]).cast(pa.int8()))
    latest = pa.table(columns, schema=revision_schema(spec))
    standing = revised.table.filter(pa.array(~np.isin(revised.ids, window[differs])))
    return Correction(
        concat(emitted),
        concat([standing, latest]),
        Metrics(results=len(first), corrections=len(again)),
    )


@dataclass(slots=True)
class _Pairs:
    """Pairs (row, window) of a table; ``ids`` numbers the windows across tables."""

    table: pa.Table
    codes: Ids
    rows: npt.NDArray[np.intp]
    numbers: Ids
    ids: Ids = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def keys(self) -> Ids:
        """The key of each pair."""
        return self.codes[self.rows]


def _pairs(
    spec: FixedSpec,
    coded: Coded,
    lowest: int,
    highest: int,
    *,
    filled: int,
    of: Ids | None = None,
) -> _Pairs:
    """All pairs of the panes with these windows; of the keys in ``of``, if given."""
    table, codes = coded
    if of is not None:
        ours = np.flatnonzero(np.isin(codes, of))
        table, codes = take(table, ours), codes[ours]
    return _Pairs(*members(spec, table, codes, lowest, highest, filled=filled))


def _number(touched: list[_Pairs], others: list[_Pairs]) -> int:
    """Number the windows alike everywhere: the touched ones from 0 to the returned count."""
    everything = [*touched, *others]
    keys = np.concatenate([pairs.keys for pairs in everything])
    numbers = np.concatenate([pairs.numbers for pairs in everything])
    # In order of first appearance, and the touched ones appear first.
    groups, _ = Groups.of(pair_codes(keys, numbers))
    ends = np.cumsum([len(pairs.numbers) for pairs in everything])
    for pairs, ids in zip(everything, np.split(groups.ids, ends[:-1]), strict=True):
        pairs.ids = ids
    return max(int(pairs.ids.max(initial=-1)) for pairs in touched) + 1


def _windows(spec: FixedSpec, pairs: _Pairs, count: int) -> tuple[Windows, Ids]:
    """The touched windows of a table of panes, and the number of each."""
    ours = pairs.ids < count
    ids = pairs.ids[ours]
    windows = Windows.over(spec, pairs.table, pairs.codes, pairs.rows[ours], pairs.numbers[ours])
    # ``over`` keeps the order of first appearance.
    return windows, ids[Groups.of(ids)[1]]


def _look_up(ids: Ids, values: Ids, count: int, *, missing: int) -> Ids:
    """The value of each of ``count`` ids."""
    result = np.full(count, missing, np.int64)
    known = ids < count
    result[ids[known]] = values[known]
    return result
