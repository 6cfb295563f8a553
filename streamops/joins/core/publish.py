"""Joined rows as a change stream: net, what goes before what comes, updates as pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import consolidate
from streamops.changelog.emit import order_changes
from streamops.joins.core.delta import Delta
from streamops.joins.core.late import deliver
from streamops.joins.core.tables_spec import REASONS, TablesSpec
from streamops.kernel.columns import combine_chunks, key_codes, null_table, take
from streamops.kernel.contract import Counts
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.pairs import SideName

__all__ = ["Found", "published", "rejects"]


@dataclass(frozen=True, slots=True)
class Found:
    """Entries of one side that joined rows are made of.

    Parameters
    ----------
    rows : Table
        Their rows, with the names of the table.
    join : array of int64
        Number of what each is joined on.
    """

    rows: pa.Table
    join: Ids


def published(spec: TablesSpec, left: Found, right: Found, found: Delta) -> tuple[pa.Table, Counts]:
    """The rows of the output, and how many results and corrections they are."""
    rows = _joined(spec, left.rows, right.rows, found.left, found.right)
    times = found.times
    if spec.how != "inner":
        # A row without partner may be the row with a partner of nulls: one goes, the other comes.
        first, times = consolidate(key_codes(rows.columns, len(rows)), times)
        if len(first) < len(rows):
            rows = take(rows, first)
            found = Delta(found.left[first], found.right[first], times)
    persists = _persists(spec, left, right, found)
    copies, change_type = order_changes(times, persists)
    emitted = [*take(rows, copies).columns, change_type]
    emitted += [null_table(pa.schema([field]), len(copies)).column(0) for field in _rest(spec)]
    added = np.maximum(times, 0)
    counts = Counts(results=int(added[~persists].sum()), corrections=int(added[persists].sum()))
    return pa.table(emitted, schema=spec.output), counts


def _rest(spec: TablesSpec) -> list[pa.Field]:
    return list(spec.output)[len(spec.names.schema) + 1 :]


def _joined(spec: TablesSpec, left: pa.Table, right: pa.Table, lefts: Ids, rights: Ids) -> pa.Table:
    """Rows of both sides beside one another, nulls where there is none."""
    places = [pa.array(side, mask=side < 0) for side in (lefts, rights)]
    columns = {
        name: combine_chunks(left.column(name)).take(places[0])
        for name in spec.tables[0].rows.names
    }
    if spec.tables[1].outer:
        # Where there is no left row, the columns that are joined on say what the right one has.
        lonely = pa.array(lefts < 0)
        for name, other in zip(spec.tables[0].by, spec.tables[1].by, strict=True):
            columns[name] = pc.if_else(
                lonely, combine_chunks(right.column(other)).take(places[1]), columns[name]
            )
    columns |= {
        name: combine_chunks(right.column(own)).take(places[1]) for own, name in spec.names.right
    }
    return pa.table(list(columns.values()), schema=spec.names.schema)


def _persists(spec: TablesSpec, left: Found, right: Found, found: Delta) -> Mask:
    """Where one row goes and one comes of the same identity: that of both rows, and what joins them."""
    if not spec.tables[0].key:
        return np.zeros(len(found.times), np.bool_)
    identity: Ids | None = None
    for side, own, at in zip(spec.tables, (left, right), (found.left, found.right), strict=True):
        codes = key_codes([own.rows.column(name) for name in side.key], len(own.rows))
        code = _looked_up(pair_codes(codes, own.join), at)
        identity = code if identity is None else pair_codes(identity, code)
    assert identity is not None
    groups, _ = Groups.of(identity)
    goes = groups.sum_ints(np.maximum(-found.times, 0))
    comes = groups.sum_ints(np.maximum(found.times, 0))
    persists: Mask = ((goes == 1) & (comes == 1))[groups.ids]
    return persists


def _looked_up(codes: Ids, at: Ids) -> Ids:
    """The codes at these positions, and for position -1 one that nobody has."""
    nobody: Ints = np.append(codes, codes.min(initial=0) - 1)
    return nobody[at]


def rejects(
    spec: TablesSpec, side: SideName, pack: pa.Table, refused: npt.NDArray[np.int8]
) -> pa.Table:
    """The changes of one side that are rejected, as rows of the output."""
    if spec.rejected == "drop":
        return spec.output.empty_table()
    at = np.flatnonzero(refused)
    reasons = np.array(REASONS)[refused[at] - 1]
    return deliver(spec.output, side, take(pack, at), reasons, None, None)
