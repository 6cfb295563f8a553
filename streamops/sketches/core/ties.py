"""The order of rows with the same item: by event time, then by content."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take
from streamops.kernel.errors import SchemaError
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import require_hashable, xxhash64
from streamops.kernel.time import Instants


def order_by_time(rows: pa.Table, chosen: Ids, order: Ids, begins: Mask, time: Instants) -> Ids:
    """Sort rows of the same item by event time, and those of the same event time by content."""
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins)
    several = ~begins | ~np.append(begins[1:], True)
    some = np.sort(order[several])
    some = some[np.lexsort((time[some], number[some]))]
    same = (np.diff(number[some]) == 0) & (np.diff(time[some]) == 0)
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():
        content = np.zeros(len(some), np.int64)
        content[tied] = _hash_content(take(rows, chosen[some[tied]]))
        some = some[np.lexsort((content, time[some], number[some]))]
    result = order.copy()
    result[several] = some
    return result


def _hash_content(rows: pa.Table) -> Ids:
    """A hash of all columns whose type has one, and of where they are null."""
    columns = []
    for column in map(combine_chunks, rows.columns):
        try:
            require_hashable(column.type, where="")
        except SchemaError:
            continue
        columns += [column.is_valid(), column]
    return xxhash64(columns)
