"""States as columns: lists of so many values, members that become one, several summaries at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.contract import Summary
from streamops.kernel.groups import Groups, Ints, Mask

__all__ = ["estimate_all", "list_sizes", "make_lists", "merge_all", "merge_groups", "update_all"]

States = list[pa.Array]


def list_sizes(lists: pa.Array) -> Ints:
    """Values per list; 0 where it is null."""
    return np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)


def make_lists(values: pa.Array, sizes: Ints, missing: Mask | None = None) -> pa.Array:
    """Lists of so many values each, null where missing (and of size 0 there).

    Examples
    --------
    >>> make_lists(pa.array([1, 2, 3]), np.array([2, 0, 1]), np.array([False, True, False])).to_pylist()
    [[1, 2], None, [3]]
    """
    # Cast, so that more values than a list array can hold are an error.
    offsets = pa.array(np.append(0, np.cumsum(sizes))).cast(pa.int32())
    mask = pa.array(missing) if missing is not None and missing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def merge_groups(
    groups: Groups,
    states: Sequence[pa.Array],
    unite: Callable[[Groups, Sequence[pa.Array]], States],
) -> States:
    """The states of the groups, by ``unite`` where a group has not exactly one member.

    A state without a companion stays as it is: in most steps, most of them.
    """
    alone = groups.sizes() == 1
    if not alone.any():
        return unite(groups, states)
    joined = ~alone[groups.ids]
    numbers = np.cumsum(~alone) - 1
    among = Groups(numbers[groups.ids[joined]], groups.count - int(np.count_nonzero(alone)))
    fresh = unite(among, [state.filter(pa.array(joined)) for state in states])
    place = len(groups.ids) + numbers
    place[groups.ids[~joined]] = np.flatnonzero(~joined)
    index = pa.array(place)
    return [
        pa.concat_arrays([combine_chunks(kept), new]).take(index)
        for kept, new in zip(states, fresh, strict=True)
    ]


def update_all(summaries: Sequence[Summary], groups: Groups, rows: pa.Table) -> States:
    """States of the groups over rows, those of all summaries in one row."""
    return [state for summary in summaries for state in summary.update(groups, rows)]


def merge_all(summaries: Sequence[Summary], groups: Groups, states: Sequence[pa.Array]) -> States:
    """States of the groups over states, those of all summaries in one row."""
    result: States = []
    for summary in summaries:
        width, position = len(summary.fields), len(result)
        result += summary.merge(groups, states[position : position + width])
    return result


def estimate_all(summaries: Sequence[Summary], states: Sequence[pa.Array]) -> States:
    """The values that the states stand for, one column for each summary."""
    result, position = [], 0
    for summary in summaries:
        width = len(summary.fields)
        result.append(summary.estimate(states[position : position + width]))
        position += width
    return result
