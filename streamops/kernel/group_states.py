"""Helpers for states as columns: lists, merging by group, several summaries at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.aggregation import Summary
from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ints, Mask

States = list[pa.Array]


def list_sizes(lists: pa.Array) -> Ints:
    """Return the number of values per list; 0 where null."""
    return np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)


def make_lists(values: pa.Array, sizes: Ints, missing: Mask | None = None) -> pa.Array:
    """Return lists of the given sizes, null where missing (with size 0).

    Examples
    --------
    >>> make_lists(pa.array([1, 2, 3]), np.array([2, 0, 1]), np.array([False, True, False])).to_pylist()
    [[1, 2], None, [3]]
    """
    # The cast raises an error if there are more values than a list array can contain.
    offsets = pa.array(np.append(0, np.cumsum(sizes))).cast(pa.int32())
    mask = pa.array(missing) if missing is not None and missing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def merge_groups(
    groups: Groups,
    states: Sequence[pa.Array],
    unite: Callable[[Groups, Sequence[pa.Array]], States],
) -> States:
    """Merge the states of every group by ``unite``; a group of one state is copied.

    In most steps most groups have one state.
    """
    single = groups.sizes() == 1
    if not single.any():
        return unite(groups, states)
    grouped = ~single[groups.ids]
    numbers = np.cumsum(~single) - 1
    subgroups = Groups(numbers[groups.ids[grouped]], groups.count - int(np.count_nonzero(single)))
    merged = unite(subgroups, [state.filter(pa.array(grouped)) for state in states])
    position = len(groups.ids) + numbers
    position[groups.ids[~grouped]] = np.flatnonzero(~grouped)
    index = pa.array(position)
    return [
        pa.concat_arrays([combine_chunks(old), new]).take(index)
        for old, new in zip(states, merged, strict=True)
    ]


def update_all(summaries: Sequence[Summary], groups: Groups, rows: pa.Table) -> States:
    """Return the states of the groups over rows, concatenated for all summaries."""
    return [state for summary in summaries for state in summary.update(groups, rows)]


def merge_all(summaries: Sequence[Summary], groups: Groups, states: Sequence[pa.Array]) -> States:
    """Return the merged states of the groups, concatenated for all summaries."""
    result: States = []
    for summary in summaries:
        width, position = len(summary.fields), len(result)
        result += summary.merge(groups, states[position : position + width])
    return result


def estimate_all(summaries: Sequence[Summary], states: Sequence[pa.Array]) -> States:
    """Return the values of the states, one column per summary."""
    result, position = [], 0
    for summary in summaries:
        width = len(summary.fields)
        result.append(summary.estimate(states[position : position + width]))
        position += width
    return result
