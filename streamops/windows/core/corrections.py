"""What stragglers change: published windows, taken back and published again.

The value published before is not stored: it is the union of the window's panes as they were
before this step, because every change to a published window is itself published.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import changed, concat, take
from streamops.kernel.contract import Counts
from streamops.kernel.groups import Groups, Ids, pair
from streamops.windows.core.entries import key_fields, micros
from streamops.windows.core.panes import Windows, members
from streamops.windows.core.publish import published
from streamops.windows.core.spec import FixedSpec

__all__ = ["Correction", "correct", "forget", "no_revisions", "revision_schema"]

Coded = tuple[pa.Table, Ids]
"""A table, and the key of each of its rows as a number."""


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows to publish, the revisions to remember, and how many there were."""

    emitted: pa.Table
    revisions: pa.Table
    counts: Counts


def revision_schema(spec: FixedSpec) -> pa.Schema:
    """Columns of the table of revisions: one row per corrected window."""
    return pa.schema([*key_fields(spec), ("window", pa.int64()), ("revision", pa.int32())])


def no_revisions(spec: FixedSpec) -> pa.Table:
    """Nothing was ever corrected."""
    return revision_schema(spec).empty_table()


def forget(spec: FixedSpec, revisions: pa.Table, watermark: int) -> pa.Table:
    """Drop the windows that cannot change any more."""
    ends = spec.grid.end_of(micros(revisions, "window"))
    alive = ends + spec.retention > watermark
    return revisions if alive.all() else revisions.filter(pa.array(alive)).combine_chunks()


def correct(
    spec: FixedSpec, *, new: Coded, before: Coded, after: Coded, revisions: Coded, judged_by: int
) -> Correction:
    """The windows that the new panes changed after they were on time.

    Parameters
    ----------
    new, before, after : table of panes, with key numbers
        What came, what was there, and the union of both.
    revisions : table of revisions, with key numbers
    judged_by : int
        The watermark by which windows were on time.
    """
    lowest = spec.grid.last_closed(judged_by - spec.allowed_lateness) + 1
    highest = spec.grid.last_closed(judged_by)
    touched = _pairs(spec, new, lowest, highest)
    if not len(touched.numbers):
        return Correction(spec.output.empty_table(), revisions[0], Counts())
    old, now = (_pairs(spec, coded, lowest, highest, of=touched.keys) for coded in (before, after))
    told = _Pairs(*revisions, np.arange(len(revisions[1])), micros(revisions[0], "window"))
    count = _number(touched, old, now, told)

    was, was_window = _windows(spec, old, count)
    becomes, window = _windows(spec, now, count)
    # One entry per touched window from here on, in the order of `becomes`.
    previous = _looked_up(was_window, np.arange(len(was)), count, missing=-1)[window]
    revision = _looked_up(told.ids, micros(told.table, "revision"), count, missing=0)[window]
    existed = previous >= 0
    differs = ~existed
    both = np.flatnonzero(existed)
    differs[both] = changed(was.take(previous[both]).values, becomes.take(both).values)

    again, first = np.flatnonzero(differs & existed), np.flatnonzero(differs & ~existed)
    raised = (revision + 1).astype(np.int32)
    if spec.stragglers == "retract":
        taken_back = was.take(previous[again])
        emitted = [
            published(spec, becomes.take(first), raised[first], "insert"),
            published(spec, taken_back, revision[again].astype(np.int32), "update_preimage"),
            published(spec, becomes.take(again), raised[again], "update_postimage"),
        ]
    else:
        rows = np.flatnonzero(differs)
        emitted = [published(spec, becomes.take(rows), raised[rows])]
    changes = becomes.take(np.flatnonzero(differs))
    latest = pa.table(
        [*changes.keys, pa.array(changes.numbers), pa.array(raised[differs])],
        schema=revision_schema(spec),
    )
    standing = told.table.filter(pa.array(~np.isin(told.ids, window[differs])))
    return Correction(
        concat(emitted),
        concat([standing, latest]),
        Counts(results=len(first), corrections=len(again)),
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
    spec: FixedSpec, coded: Coded, lowest: int, highest: int, *, of: Ids | None = None
) -> _Pairs:
    """All pairs of the panes with these windows; of the keys in ``of``, if given."""
    table, codes = coded
    if of is not None:
        ours = np.flatnonzero(np.isin(codes, of))
        table, codes = take(table, ours), codes[ours]
    return _Pairs(*members(spec, table, codes, lowest, highest))


def _number(touched: _Pairs, *others: _Pairs) -> int:
    """Number the windows alike everywhere: the touched ones from 0 to the returned count."""
    everything = (touched, *others)
    keys = np.concatenate([pairs.keys for pairs in everything])
    numbers = np.concatenate([pairs.numbers for pairs in everything])
    # In order of first appearance, and the touched ones appear first.
    groups, _ = Groups.of(pair(keys, numbers))
    ends = np.cumsum([len(pairs.numbers) for pairs in everything])
    for pairs, ids in zip(everything, np.split(groups.ids, ends[:-1]), strict=True):
        pairs.ids = ids
    return int(touched.ids.max(initial=-1)) + 1


def _windows(spec: FixedSpec, pairs: _Pairs, count: int) -> tuple[Windows, Ids]:
    """The touched windows of a table of panes, and the number of each."""
    ours = pairs.ids < count
    ids = pairs.ids[ours]
    windows = Windows.over(spec, pairs.table, pairs.codes, pairs.rows[ours], pairs.numbers[ours])
    # ``over`` keeps the order of first appearance.
    return windows, ids[Groups.of(ids)[1]]


def _looked_up(ids: Ids, values: Ids, count: int, *, missing: int) -> Ids:
    """The value of each of ``count`` ids."""
    result = np.full(count, missing, np.int64)
    known = ids < count
    result[ids[known]] = values[known]
    return result
