"""Versions of one key, version time and sequence: duplicates, and those that contradict them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import TOMBSTONE
from streamops.joins.core.asof_spec import AsofSpec
from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.ordering import ranks

__all__ = ["settled"]


def settled(spec: AsofSpec, table: pa.Table, groups: Groups, gone: Mask) -> tuple[Ids, Ids]:
    """The row that stands for each group, and the rows that contradict it.

    It is the greatest by its values, in the order of the columns' names, in which state has them: a
    choice that neither arrival nor the order of the frame's columns has a part in. A row that says
    "deleted" is below all others; where the versions come as changes, it is no contradiction, but
    what was taken away to be replaced.
    """
    members = np.flatnonzero(groups.sizes()[groups.ids] > 1)
    few, firsts = Groups.of(groups.ids[members])
    rows, missing = take(table, members), gone[members]
    aside = {*spec.right.by, spec.version, spec.sequence, spec.deleted, CHANGE_TYPE, TOMBSTONE}
    content = [combine_chunks(rows.column(name)) for name in rows.column_names if name not in aside]
    # The columns that were left aside come last: they decide which of two equal rows is kept.
    rest = [combine_chunks(rows.column(name)) for name in rows.column_names if name in aside]
    said = Groups.of(key_codes(content, len(rows)))[0].ids
    # Most are duplicates, whose values need not be put in order.
    differ = np.bincount(few.ids, said != said[firsts][few.ids], few.count) > 0
    disputed = np.flatnonzero(differ[few.ids])
    order = [missing.astype(np.int64), *(_falling(c, disputed) for c in content)]
    winners = few.first_by(*order, *(~ranks(c) for c in rest))
    said[missing] = -1
    clashing = said != said[winners][few.ids]
    if spec.changes:
        clashing &= ~missing

    chosen = np.empty(groups.count, np.int64)
    chosen[groups.ids] = np.arange(len(groups.ids))
    chosen[groups.ids[members[firsts]]] = members[winners]
    return chosen, members[clashing]


def _falling(column: pa.Array, among: Ids) -> Ints:
    """Integers that compare as the values of these rows do, the greatest first; 0 for all others."""
    order = np.zeros(len(column), np.int64)
    if len(among):
        order[among] = ~ranks(column.take(pa.array(among)))
    return order
