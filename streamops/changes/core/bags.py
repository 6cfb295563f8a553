"""Rows of groups with how often each is there: for what cannot be said from less.

The least value of a group says nothing about the next one, which is the least once that one is
deleted. So the rows are kept, of the columns that are asked for, equal ones once, and of the
groups that changed the aggregates are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import key_codes, take
from streamops.kernel.contract import Summary
from streamops.kernel.groups import Groups, Ids, Ints

__all__ = ["COUNTED_ONCE", "estimated", "netted"]

COUNTED_ONCE = ("min", "max", "distinct")
"""Aggregates to which equal rows are one."""


def netted(rows: pa.Table, ids: Ids, weights: Ints) -> tuple[pa.Table, Ids, Ints]:
    """Equal rows of a group as one, with the sum of their weights: rows, groups, weights.

    In order of first appearance; also those whose weight is 0.
    """
    codes = key_codes([pa.array(ids), *rows.columns], len(rows))
    groups, firsts = Groups.of(codes)
    return take(rows, firsts), ids[firsts], groups.sum_ints(weights)


def estimated(
    aggregates: Sequence[tuple[Summary, bool]], rows: pa.Table, groups: Groups, weights: Ints
) -> list[pa.Array]:
    """What the aggregates say of the groups, whose rows are there so many times.

    An aggregate comes with whether equal rows are one to it. Rows of a weight below 1 are not there.
    """
    there = np.flatnonzero(weights > 0)
    once = take(rows, there), Groups(groups.ids[there], groups.count)
    several = np.repeat(there, weights[there])
    each = take(rows, several), Groups(groups.ids[several], groups.count)
    found = []
    for summary, counted_once in aggregates:
        table, among = once if counted_once else each
        found.append(summary.estimate(summary.update(among, table)))
    return found
