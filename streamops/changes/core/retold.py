"""Intervals as they were and as they are: what is told of the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.emit import emit_changes
from streamops.changelog.table import REJECTED
from streamops.changes.core.intervals import Changes, Intervals
from streamops.changes.core.spec import HistorySpec
from streamops.kernel.groups import Groups, Ints

__all__ = ["Retold", "retold"]


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
    start = np.append(was.start, now.start)
    is_after = np.arange(len(start)) >= len(before)
    rank = np.empty(len(start), np.int64)
    rank[np.lexsort((changes.at[start], is_after, changes.key[start]))] = np.arange(len(start))
    emitted = emit_changes(
        [was.until, *was.values],
        [now.until, *now.values],
        (before, after),
        (revision[before], revision[after] + 1),
        order=(rank[: len(before)], rank[len(before) :]),
    )
    latest = revision.copy()
    latest[after] = emitted.after
    first = pa.array(start[emitted.row])
    since, *row = emitted.take(
        [was.since, was.until, *was.values], [now.since, now.until, *now.values]
    )
    columns = [
        *(column.take(first) for column in changes.names),
        since,
        *row,
        pa.array(emitted.revision.astype(np.int32)),
        emitted.change_type,
        pa.nulls(len(first), spec.output.field(REJECTED).type),
    ]
    rows = pa.table(columns, schema=spec.output)
    counts = emitted.inserts, emitted.updates, emitted.deletes
    return Retold(rows, latest[groups.ids], *counts)
