"""Windows without rows, published for keys that had some not long ago.

A window of a key is *empty* if the key has no row in it. It is published if it ends at most
``spec.empty_for`` after a window of the key that has rows and comes before it. So what is
published of a key depends on its own rows alone, and ends by itself.

What has to be known of the rows is where the panes lie. Of the panes in which no window can change
any more, the newest of each key is therefore retained, as long as an empty window after it can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import concat, take
from streamops.kernel.grids import expand_ranges
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.time import MAX_INSTANT, Instants
from streamops.windows.core.grid_spec import FixedSpec
from streamops.windows.core.state_rows import micros, update_states

__all__ = ["deadlines", "known", "nothing", "with_empties"]

Members = tuple[pa.Table, Ids, npt.NDArray[np.intp], Instants]
"""Entries, the key of each, and pairs of one of them and the number of a window."""

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class _Silences:
    """What comes after each pane of a key, up to the next. Windows are numbers.

    Parameters
    ----------
    order : array of int64
        The panes by key, and then by time. All else is in this order.
    first, last : arrays of int64
        The windows that the pane lies in.
    until : array of int64
        The newest window that is published though it is empty, for the sake of this pane.
    then, end : arrays of int64
        The first and the last window that the next pane of its key lies in; never, if there is
        none.
    """

    order: Ids
    first: Instants
    last: Instants
    until: Instants
    then: Instants
    end: Instants

    @staticmethod
    def of(spec: FixedSpec, panes: pa.Table, codes: Ids) -> _Silences:
        pane = micros(panes, "pane")
        order = np.lexsort((pane, codes))
        first, last = spec.grid.windows_of(pane[order])
        then, end = np.full(len(order), _NEVER), np.full(len(order), _NEVER)
        follows = np.flatnonzero(codes[order][1:] == codes[order][:-1])
        then[follows], end[follows] = first[follows + 1], last[follows + 1]
        assert spec.empty_for is not None, "only asked where empty windows are published"
        # Not beyond the calendar.
        limit = np.minimum(spec.grid.end_of(last) + spec.empty_for, MAX_INSTANT)
        until = np.maximum(spec.grid.windows_of(limit)[0] - 1, last)
        return _Silences(order, first, last, until, then, end)

    @property
    def ends(self) -> Instants:
        """The last of the windows, empty ones included, that are published of this pane."""
        return np.maximum(self.last, np.minimum(self.until, self.then - 1))


def nothing(spec: FixedSpec, count: int) -> list[pa.Array]:
    """So many states of the aggregates over no rows."""
    return update_states(spec, Groups(np.empty(0, np.int64), count), spec.input.empty_table())


def with_empties(
    spec: FixedSpec, panes: pa.Table, codes: Ids, found: Members, lowest: int, highest: int
) -> Members:
    """Windows that have panes, and with them the empty ones from ``lowest`` to ``highest``.

    Parameters
    ----------
    panes, codes : table of panes, and the key of each
        All that there are of these keys.
    found : Members
        The windows that have panes.
    """
    silences = _Silences.of(spec, panes, codes)
    low = np.maximum(silences.last + 1, lowest)
    which, numbers = expand_ranges(low, np.minimum(silences.ends, highest))
    there = spec.grid.exist(numbers)
    which, numbers = which[there], numbers[there]
    if not len(numbers):
        return found
    # One entry without rows for all that follow a pane.
    quiet, position = np.unique(which, return_inverse=True)
    owners = silences.order[quiet]
    table, keys, rows, windows = found
    blank = _blank(spec, take(panes, owners)).select(table.column_names)
    return (
        concat([table, blank]),
        np.concatenate([keys, codes[owners]]),
        np.concatenate([rows, len(table) + position]),
        np.concatenate([windows, numbers]),
    )


def known(
    spec: FixedSpec, panes: pa.Table, codes: Ids, published: tuple[int, int], final: int
) -> pa.Table:
    """The panes in which a window can still change, and those that a key is known by.

    The latter lose their aggregates, with the next window that is published for their sake: so
    nothing changes in a step in which nothing happens to them.

    Parameters
    ----------
    published : (int, int)
        The windows that this step publishes.
    final : int
        The newest window that cannot change any more.
    """
    silences = _Silences.of(spec, panes, codes)
    alive = silences.last > final
    stays = ~alive & (silences.until > final) & (silences.end > final)
    is_published = np.maximum(silences.first, published[0]) <= np.minimum(
        silences.ends, published[1]
    )
    emptied = stays & is_published
    if (alive | stays).all() and not emptied.any():
        return panes
    retained = np.sort(silences.order[(alive | stays) & ~emptied])
    fresh = _blank(spec, take(panes, np.sort(silences.order[emptied])))
    return concat([take(panes, retained), fresh])


def deadlines(spec: FixedSpec, panes: pa.Table, codes: Ids, first_open: int) -> Instants:
    """When each pane makes a window end, empty or not, or else when it can be forgotten."""
    silences = _Silences.of(spec, panes, codes)
    opens = np.maximum(silences.first, first_open)
    last = np.minimum(silences.until, silences.end)
    return np.where(
        opens <= silences.ends,
        spec.grid.end_of(np.minimum(opens, silences.ends)),
        spec.grid.end_of(last) + spec.retention,
    )


def _blank(spec: FixedSpec, panes: pa.Table) -> pa.Table:
    """The same panes without what was aggregated."""
    own = panes.columns[: len(spec.by) + 1]
    return pa.table([*own, *nothing(spec, len(panes))], schema=panes.schema)
