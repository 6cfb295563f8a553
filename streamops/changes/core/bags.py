"""Rows of groups with how often each is there: for what cannot be said from less.

The least value of a group says nothing about the next one, which is the least once that one is
deleted. So the rows are kept, of the columns that are asked for, equal ones once, and of the
groups that changed the aggregates are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.contract import Summary
from streamops.kernel.groups import Groups, Ids, Ints
from streamops.kernel.ordering import ranks

__all__ = ["COUNTED_ONCE", "by_value", "estimated", "netted"]

COUNTED_ONCE = ("min", "max", "distinct")
"""Aggregates to which equal rows are one."""


def netted(rows: pa.Table, ids: Ids, weights: Ints) -> tuple[pa.Table, Ids, Ints]:
    """Equal rows of a group as one, with the sum of their weights: rows, groups, weights.

    In order of first appearance; also those whose weight is 0.
    """
    codes = key_codes([pa.array(ids), *rows.columns], len(rows))
    groups, firsts = Groups.of(codes)
    return take(rows, firsts), ids[firsts], groups.sum_ints(weights)


def by_value(
    aggregates: Sequence[tuple[Summary, bool]], rows: pa.Table, groups: Groups
) -> list[Ids]:
    """For each aggregate, the rows in the order in which it takes them.

    Those of a group by the values that it reads, unless equal rows are one to it. A variance is
    rounded as its values stand, and of rows that nothing else tells apart ``top`` takes those that
    stand last: what is said must depend on the rows that are there, and not on how they came.
    """
    orders = []
    for summary, counted_once in aggregates:
        if counted_once:
            orders.append(np.arange(len(groups.ids)))
            continue
        values = [ranks(combine_chunks(rows.column(name))) for name in summary.inputs]
        orders.append(np.lexsort((*reversed(values), groups.ids)))
    return orders


def estimated(
    aggregates: Sequence[tuple[Summary, bool]],
    rows: pa.Table,
    groups: Groups,
    weights: Ints,
    orders: Sequence[Ids],
) -> list[pa.Array]:
    """What the aggregates say of the groups, whose rows are there so many times.

    An aggregate comes with whether equal rows are one to it, and has an order: :func:`by_value`. Rows
    of a weight below 1 are not there.
    """
    found = []
    for (summary, counted_once), order in zip(aggregates, orders, strict=True):
        at = np.repeat(order, np.clip(weights[order], 0, 1 if counted_once else None))
        table = take(rows.select(list(dict.fromkeys(summary.inputs))), at)
        among = Groups(groups.ids[at], groups.count)
        found.append(summary.estimate(summary.update(among, table)))
    return found
