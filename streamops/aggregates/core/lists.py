"""States that are lists: the values kept of each group, sorted.

A group that has passed its bound has a null for a list. Merged with whatever else, it stays one:
so the order in which states are merged does not matter, and a full group takes no room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import CapacityError
from streamops.kernel.group_states import list_sizes, make_lists, merge_groups
from streamops.kernel.groups import Groups, Ids, Ints, Mask

__all__ = ["Keep", "flat", "gathered", "merged", "refuse_full"]

Keep = Literal["all", "distinct", "first", "last"]


def flat(lists: pa.Array) -> tuple[pa.Array, Ids]:
    """The values of all lists, one below another, and the number of each one's list."""
    return lists.flatten(), np.repeat(np.arange(len(lists)), list_sizes(lists))


def gathered(
    groups: Groups,
    values: pa.Array,
    *order: Ints,
    at_most: int,
    keep: Keep,
    passed: Mask | None = None,
) -> pa.Array:
    """The lists of these values, within the bound.

    Parameters
    ----------
    groups : Groups
        Of the values.
    values : Array
    order : arrays of int64
        The values of a group are sorted by the first of them, then by the next.
    at_most : int
        The longest list.
    keep : "all", "distinct", "first" or "last"
        Of values that are equal in order only the first, or all of them: then a longer list is
        null. Or the first or last so many.
    passed : array of bool, optional
        Groups that are null already.
    """
    rows = np.lexsort((*reversed(order), groups.ids))
    ids = groups.ids[rows]
    if keep == "distinct":
        new = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
        for key in order:
            sorted_ = key[rows]
            new[1:] |= sorted_[1:] != sorted_[:-1]
        rows, ids = rows[new], ids[new]
    sizes = np.bincount(ids, minlength=groups.count).astype(np.int64, copy=False)
    missing = np.zeros(groups.count, np.bool_) if passed is None else passed
    if keep in ("all", "distinct"):
        missing = missing | (sizes > at_most)
    kept = ~missing[ids]
    if sizes.max(initial=0) > at_most and keep in ("first", "last"):
        ends = np.cumsum(sizes)
        place = np.arange(len(ids))
        behind = place - (ends - sizes)[ids] if keep == "first" else ends[ids] - 1 - place
        kept &= behind < at_most
    sizes = np.where(missing, 0, np.minimum(sizes, at_most))
    return make_lists(values.take(pa.array(rows[kept])), sizes, missing)


def merged(
    groups: Groups, lists: pa.Array, gather: Callable[[Groups, pa.Array, Mask], pa.Array]
) -> pa.Array:
    """The lists of the groups over their members' lists.

    ``gather`` makes the lists of the groups over values, told which groups have a null member.
    A list without a companion stays as it is: in most steps, most of them.
    """

    def unite(members: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        (companions,) = states
        passed = np.zeros(members.count, np.bool_)
        passed[members.ids[np.asarray(companions.is_null())]] = True
        values, parents = flat(companions)
        return [gather(Groups(members.ids[parents], members.count), values, passed)]

    return merge_groups(groups, [lists], unite)[0]


def refuse_full(lists: pa.Array, function: str, column: str, at_most: int) -> None:
    """Fail where a group has passed its bound."""
    if lists.null_count:
        raise CapacityError(
            "AGGREGATE_FULL",
            f"a result needs more values of {column!r} than may be kept",
            where=f"aggregates.{function}",
            got=f"more than {at_most:,} in {lists.null_count:,} of {len(lists):,} results",
            expected=f"at most {at_most:,} in each window of each key: at_most={at_most}",
            fix="raise at_most, or have null there: when_full='null'. On a stream, with a new "
            "checkpoint",
        )
