"""Windows that grow: each holds all that the one before it holds, so totals run through them.

Pairs of panes and windows would be a great many: a day by the minute has a million of them for
one busy key. Instead the panes of a period are put in order and united from the left, by doubling
(Hillis and Steele, "Data Parallel Algorithms", CACM 29(12), 1986): ten unions per pane or so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import take
from streamops.kernel.grids import expand_ranges
from streamops.kernel.groups import Groups, Ids, pair_codes
from streamops.kernel.time import Instants
from streamops.windows.core.entries import (
    entry_schema,
    keys_of,
    merged,
    micros,
    rounds,
    states_of,
)
from streamops.windows.core.spec import FixedSpec

__all__ = ["running"]


def running(
    spec: FixedSpec, panes: pa.Table, codes: Ids, lowest: int, highest: int
) -> tuple[pa.Table, Ids, npt.NDArray[np.intp], Instants]:
    """The windows numbered from ``lowest`` to ``highest`` that have a pane.

    Returns
    -------
    totals : Table
        Entries: of each pane, united with those before it of its key and period.
    codes : array of int64
        The key of each of its rows.
    rows, windows : arrays of int
        The row of ``totals`` that a window is, and its number.
    """
    first, last = spec.grid.windows_of(micros(panes, "pane"))
    # Panes that count from the same of these windows on are one, unless rounding would tell.
    if not rounds(spec):
        first = np.maximum(first, lowest)
    last = np.minimum(last, highest)
    inside = np.flatnonzero(np.maximum(first, lowest) <= last)
    panes, codes, first, last = take(panes, inside), codes[inside], first[inside], last[inside]
    # In order, per key and period.
    groups, heads = Groups.of(pair_codes(codes, first))
    order = np.lexsort((first[heads], codes[heads]))
    index = pa.array(order)
    states = [state.take(index) for state in merged(spec, groups, states_of(panes, spec))]
    heads = heads[order]
    codes, first, last = codes[heads], first[heads], last[heads]

    goes_on = (codes[1:] == codes[:-1]) & (last[1:] == last[:-1])
    begins = np.concatenate([np.ones(min(len(heads), 1), np.bool_), ~goes_on])
    place = np.arange(len(heads)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    totals = pa.table(
        [*keys_of(take(panes, heads), spec), *_united(spec, states, place)],
        schema=entry_schema(spec),
    )
    # A total stands until the next one of its period takes over.
    until = last.copy()
    until[:-1][goes_on] = first[1:][goes_on] - 1
    return totals, codes, *expand_ranges(np.maximum(first, lowest), until)


def _united(spec: FixedSpec, states: list[pa.Array], place: Ids) -> list[pa.Array]:
    """Each state united with all before it; ``place`` is its place in its period, from 0."""
    reach = 1  # each is the union of so many, up to itself
    while reach <= place.max(initial=0):
        rows = np.flatnonzero(place >= reach)
        groups = Groups(np.concatenate([np.arange(len(place)), rows]), len(place))
        before = pa.array(rows - reach)
        both = [pa.concat_arrays([state, state.take(before)]) for state in states]
        states = merged(spec, groups, both)
        reach *= 2
    return states
