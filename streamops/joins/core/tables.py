"""A join of two tables, maintained incrementally: changes of both in, changes of the join out.

A step reads only the entries of join keys that occur in its changes, before and after them. What was
emitted for these keys follows from the entries before, so it is not stored.

The product rule, ``d(L * R) = dL * R_old + L_new * dR``, looks at each pair of entries once, so the
changes are net: the weight of a joined row after the micro-batch less that before. In outer joins an
entry without a partner is joined with nulls: what counts is whether it has partners before all changes,
and after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import consolidate
from streamops.changelog.emit import order_changes
from streamops.joins.core.entries import Changes, Entries, advanced, read, valid, within
from streamops.joins.core.late import deliver
from streamops.joins.core.sides import expanded
from streamops.joins.core.tables_spec import REASONS, TableSide, TablesSpec
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, null_table, take
from streamops.kernel.core import (
    SIDES,
    Metrics,
    SideName,
    State,
    StateFormat,
    Step,
    finish,
    next_deadline,
)
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes

__all__ = [
    "STATE",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("joins.tables", 1)


def layout(spec: TablesSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {name: side.entries for name, side in zip(SIDES, spec.tables, strict=True)}


def pack(spec: TablesSpec, rows: pa.Table, side: SideName) -> pa.Table:
    """Return the rows unchanged: changes of a key meet in its shard."""
    return conform(rows, spec.tables[SIDES.index(side)].schema)


def empty(spec: TablesSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def step(spec: TablesSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring."""
    changes = [read(side, rows) for side, rows in zip(spec.tables, inputs, strict=True)]
    stored = [state.tables[name] for name in SIDES]
    numbers, count, touched = _numbered(spec, stored, changes)

    moved = [
        _moved(side, stored[at], changes[at], numbers[at], numbers[2 + at], touched)
        for at, side in enumerate(spec.tables)
    ]
    one_side, other = moved
    change = delta(one_side.weighted, other.weighted, count)
    emitted, counts = published(spec, one_side.found, other.found, change)
    refused = [moved_side.entries.refused for moved_side in moved]
    late = [reject(spec, name, inputs[at], refused[at]) for at, name in enumerate(SIDES)]
    outdated = sum(moved_side.entries.outdated for moved_side in moved)
    rows, bad = sum(map(len, inputs)), sum(int(np.count_nonzero(codes)) for codes in refused)
    metrics = replace(
        counts, rows=rows, rejected=bad, too_late=outdated, on_time=rows - bad - outdated
    )
    tables: dict[str, pa.Table] = {
        name: within(side, moved_side.table, spec.remember_per_shard)
        for name, side, moved_side in zip(SIDES, spec.tables, moved, strict=True)
    }
    return Step(State(None, tables), emitted, concat(late), metrics)


@dataclass(frozen=True, slots=True)
class _Moved:
    """One side after its changes.

    Parameters
    ----------
    entries : Entries
        Those of the keys that something came for.
    weighted, found : Weighted, Found
        How often they are there, and what joined rows are made of.
    table : Table
        The state of the side.
    """

    entries: Entries
    weighted: Weighted
    found: Found
    table: pa.Table


def _moved(
    side: TableSide, stored: pa.Table, changes: Changes, join: Ids, arrived: Ids, touched: Mask
) -> _Moved:
    """The side after its changes, of which only the entries of these keys are looked at."""
    active = touched[join]
    mask = pa.array(active)
    of = np.concatenate([join[active], arrived])
    entries = advanced(side, stored.filter(mask), changes, of)
    fresh = pa.table([*entries.rows.columns, pa.array(entries.after)], schema=side.entries)
    fresh = fresh.filter(pa.array(entries.stays))
    rows = entries.rows.rename_columns(side.names)
    join = of[entries.of]
    return _Moved(
        entries,
        Weighted(join, valid(rows, side.by), entries.before, entries.after, side.outer),
        Found(rows, join),
        concat([stored.filter(pc.invert(mask)), fresh]),
    )


def _numbered(
    spec: TablesSpec, stored: list[pa.Table], changes: list[Changes]
) -> tuple[list[Ids], int, Mask]:
    """What rows are joined on as numbers: of both kept tables, then of the changes of both sides."""
    tables = [*stored, *(of_side.rows for of_side in changes)]
    positions = [[side.names.index(name) for name in side.by] for side in spec.tables]
    columns = [
        pa.concat_arrays(
            [combine_chunks(table.column(positions[i % 2][at])) for i, table in enumerate(tables)]
        )
        for at in range(len(positions[0]))
    ]
    sizes = [len(table) for table in tables]
    groups, _ = Groups.of(key_codes(columns, sum(sizes)))
    numbers = np.split(groups.ids, np.cumsum(sizes)[:-1])
    touched = np.zeros(groups.count, np.bool_)
    touched[numbers[2]] = True
    touched[numbers[3]] = True
    return numbers, groups.count, touched


def run(spec: TablesSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result: all changes in one step."""
    only = step(spec, empty(spec), inputs, None)
    return concat([only.output, only.late])


def check(spec: TablesSpec, state: State) -> None:
    """Each entry is there once, and what is gone is only remembered where there are sequences."""
    for name, side in zip(SIDES, spec.tables, strict=True):
        table = state.tables[name]
        formatted = f"{name}: {table.to_pylist()}"
        names = side.names
        identity = [*side.by, *side.key] if side.key else names
        columns = [table.column(names.index(name_)) for name_ in identity]
        groups, _ = Groups.of(key_codes(columns, len(table)))
        assert groups.count == len(table), f"an entry twice: {formatted}"
        weight = np.asarray(combine_chunks(table.column("weight")))
        removed = int(np.count_nonzero(weight == 0))
        assert removed <= (0 if side.sequence is None else spec.remember_per_shard), (
            f"not forgotten: {formatted}"
        )
        most = 1 if side.key else None
        assert (weight >= 0).all(), formatted
        assert most is None or (weight <= most).all(), f"a key twice: {formatted}"


_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Weighted:
    """Entries of one side.

    Parameters
    ----------
    join : array of int64
        Number of what they are joined on, from 0.
    joins : array of bool
        Whether they can match at all.
    before, after : array of int64
        How often each is there.
    outer : bool
        Whether they come out without a partner.
    """

    join: Ids
    joins: Mask
    before: Ints
    after: Ints
    outer: bool

    def present(self, count: int) -> tuple[Mask, Mask]:
        """Whether there is any entry of each number, before and after."""
        found = []
        for weight in (self.before, self.after):
            there = np.zeros(count, np.bool_)
            there[self.join[weight > 0]] = True
            found.append(there)
        return found[0], found[1]


@dataclass(frozen=True, slots=True)
class Delta:
    """Joined rows that are there more or less often than before.

    Parameters
    ----------
    left, right : array of int64
        Positions of the two entries; -1: there is none on this side.
    times : array of int64
        How much more often; not 0.
    """

    left: Ids
    right: Ids
    times: Ints


def delta(left: Weighted, right: Weighted, count: int) -> Delta:
    """The difference of the joins before and after, over numbers below ``count``."""
    moved, other = left.before != left.after, right.before != right.after
    # dL * R, and what of L did not change, * dR.
    pairs = [
        _pairs(left, right, moved & left.joins, right.joins),
        _pairs(left, right, ~moved & left.joins, other & right.joins),
    ]
    parts = [*pairs, _alone(left, right, count)]
    rights, lefts, times = _alone(right, left, count)
    parts.append((lefts, rights, times))
    one, two, how = (np.concatenate(column) for column in zip(*parts, strict=True))
    differs = how != 0
    return Delta(one[differs], two[differs], how[differs])


def _pairs(left: Weighted, right: Weighted, some: Mask, others: Mask) -> tuple[Ids, Ids, Ints]:
    these, those = np.flatnonzero(some), np.flatnonzero(others)
    one, two = matches(left.join[these], right.join[those])
    one, two = these[one], those[two]
    times = left.after[one] * right.after[two] - left.before[one] * right.before[two]
    return one, two, times


def _alone(side: Weighted, other: Weighted, count: int) -> tuple[Ids, Ids, Ints]:
    """Entries beside nothing."""
    if not side.outer:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    was, is_ = other.present(count)
    before = side.before * ~(was[side.join] & side.joins)
    after = side.after * ~(is_[side.join] & side.joins)
    return np.arange(len(side.join)), np.full(len(side.join), _NOBODY), after - before


def matches(left: Ids, right: Ids) -> tuple[Ids, Ids]:
    """Positions of all pairs of equal numbers, those of one left number beside one another.

    Examples
    --------
    >>> one, two = matches(np.array([7, 8, 7]), np.array([7, 9, 7]))
    >>> one.tolist(), two.tolist()
    ([0, 0, 2, 2], [0, 2, 0, 2])
    """
    if not len(left) or not len(right):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = np.searchsorted(ordered, left, "left")
    one, positions = expanded(starts, np.searchsorted(ordered, left, "right"))
    return one, order[positions]


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


def published(
    spec: TablesSpec, left: Found, right: Found, found: Delta
) -> tuple[pa.Table, Metrics]:
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
    counts = Metrics(results=int(added[~persists].sum()), corrections=int(added[persists].sum()))
    return pa.table(emitted, schema=spec.output), counts


def _rest(spec: TablesSpec) -> list[pa.Field]:
    return list(spec.output)[len(spec.names.schema) + 1 :]


def _joined(spec: TablesSpec, left: pa.Table, right: pa.Table, lefts: Ids, rights: Ids) -> pa.Table:
    """Rows of both sides beside one another, nulls where there is none."""
    positions = [pa.array(side, mask=side < 0) for side in (lefts, rights)]
    columns = {
        name: combine_chunks(left.column(name)).take(positions[0])
        for name in spec.tables[0].rows.names
    }
    if spec.tables[1].outer:
        # Where there is no left row, the columns that are joined on say what the right one has.
        lonely = pa.array(lefts < 0)
        for name, other in zip(spec.tables[0].by, spec.tables[1].by, strict=True):
            columns[name] = pc.if_else(
                lonely, combine_chunks(right.column(other)).take(positions[1]), columns[name]
            )
    columns |= {
        name: combine_chunks(right.column(own)).take(positions[1]) for own, name in spec.names.right
    }
    return pa.table(list(columns.values()), schema=spec.names.schema)


def _persists(spec: TablesSpec, left: Found, right: Found, found: Delta) -> Mask:
    """Where one row goes and one results from the same identity: that of both rows, and what joins them."""
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


def reject(
    spec: TablesSpec, side: SideName, pack: pa.Table, refused: npt.NDArray[np.int8]
) -> pa.Table:
    """The changes of one side that are rejected, as rows of the output."""
    if spec.rejected == "drop":
        return spec.output.empty_table()
    at = np.flatnonzero(refused)
    reasons = np.array(REASONS)[refused[at] - 1]
    return deliver(spec.output, side, take(pack, at), reasons, None, None)
