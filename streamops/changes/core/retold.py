"""Intervals as they were and as they are: what is told of the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.changelog.table import REJECTED
from streamops.changes.core.intervals import Changes, Intervals
from streamops.changes.core.spec import HistorySpec
from streamops.kernel.columns import rows_differ
from streamops.kernel.groups import Groups, Ints

__all__ = ["Retold", "retold"]

_WORDS = pa.array([DELETE, PREIMAGE, INSERT, POSTIMAGE])


@dataclass(frozen=True, slots=True)
class Retold:
    """What is published.

    Parameters
    ----------
    rows : Table
        In the columns of the output: of a key, what is taken back comes first.
    revision : array of int64
        Of each change: of the interval that begins there, as it is told now.
    inserts, updates, deletes : int
    """

    rows: pa.Table
    revision: Ints
    inserts: int
    updates: int
    deletes: int


def retold(spec: HistorySpec, changes: Changes, was: Intervals, now: Intervals) -> Retold:
    """Tell how the intervals changed. One is told by its key and its begin."""
    groups, _ = Groups.of(changes.interval)
    revision = np.full(groups.count, -1)
    np.maximum.at(revision, groups.ids, changes.revision)
    before, after = groups.ids[was.start], groups.ids[now.start]
    match = np.full(groups.count, -1)
    match[before] = np.arange(len(before))
    stood = np.flatnonzero(match[after] >= 0)
    old, new = pa.array(match[after][stood]), pa.array(stood)
    pairs = [
        (ours.take(old), theirs.take(new))
        for ours, theirs in zip([was.until, *was.values], [now.until, *now.values], strict=True)
    ]
    again = stood[rows_differ(*zip(*pairs, strict=True))]
    came = np.flatnonzero(match[after] < 0)
    stays = np.zeros(groups.count, np.bool_)
    stays[after] = True
    went, back = np.flatnonzero(~stays[before]), match[after][again]

    told = revision.copy()
    told[after[np.append(came, again)]] += 1
    counts = [len(went), len(back), len(came), len(again)]
    word = np.repeat(np.arange(4), counts)
    row = np.concatenate([went, back, len(before) + came, len(before) + again])
    group = np.concatenate([before[went], before[back], after[came], after[again]])
    start = np.append(was.start, now.start)[row]
    order = np.lexsort((changes.at[start], word >= 2, changes.key[start]))
    index, first = pa.array(row[order]), pa.array(start[order])

    def both(ours: pa.Array, theirs: pa.Array) -> pa.Array:
        return pa.concat_arrays([ours, theirs]).take(index)

    number = np.where(word < 2, revision[group], told[group])[order]
    columns = [
        *(column.take(first) for column in changes.names),
        both(was.since, now.since),
        both(was.until, now.until),
        *map(both, was.values, now.values),
        pa.array(number.astype(np.int32)),
        _WORDS.take(pa.array(word[order])),
        pa.nulls(len(row), spec.output.field(REJECTED).type),
    ]
    rows = pa.table(columns, schema=spec.output)
    return Retold(rows, told[groups.ids], len(came), len(again), len(went))
