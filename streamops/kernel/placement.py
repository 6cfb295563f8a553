"""Which shard each part of a state belongs to, and how states of shards are merged and split.

A core declares the placement of its tables next to their layout, as ``PLACEMENT``. So the number of
shards of a checkpoint can change without the operator that wrote it: a frame has its identity, which
names the key columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa

from streamops.kernel import conditions
from streamops.kernel.columns import combine_chunks, concat, take
from streamops.kernel.core import Identity, State, StateFormat
from streamops.kernel.hashing import shard_of, xxhash64
from streamops.kernel.ordering import ranks

Names = Callable[[Identity], Sequence[str]]
Tables = Mapping[str, pa.Table]
Upgrade = Callable[[Identity, Tables], tuple[Identity, Tables]]
"""From the identity and the tables of an older version to those of the next one."""

Redistribute = Callable[
    [Identity, Mapping[int, Tables], int, int], tuple[Identity, Sequence[Tables]]
]

_KEY = "key."


@dataclass(frozen=True, slots=True)
class ByKey:
    """A table whose rows belong to the shard of their key.

    Parameters
    ----------
    columns : callable, optional
        From the identity to the names of the numbered columns, ``c.0``, ``column.0`` and so on.
        None if the columns have their own names, or the key columns are ``key.0``, ``key.1``, ….
    key : callable, optional
        From the identity to the names of the key columns, among ``columns`` or among the columns of
        the table. None if they are ``key.0``, ``key.1``, ….
    is_sorted : bool
        Whether the rows are sorted by the hash of their key. Rows of one hash keep their order.
    """

    columns: Names | None = None
    key: Names | None = None
    is_sorted: bool = False

    def key_columns(self, identity: Identity, table: pa.Table) -> list[str]:
        """The columns of the table that are the key, in order."""
        if self.key is None:
            return [name for name in table.column_names if name.startswith(_KEY)]
        key = list(self.key(identity))
        if self.columns is None:
            return key
        names = list(self.columns(identity))
        return [table.column_names[names.index(name)] for name in key]

    def merge(self, identity: Identity, tables: Sequence[pa.Table]) -> pa.Table:
        """One table with the rows of all shards."""
        merged = concat(tables)
        if not self.is_sorted or not len(merged):
            return merged
        # Equal hashes, also of different keys, are in the same shard, so a stable sort keeps the order of their rows.
        hashes = xxhash64([merged.column(n) for n in self.key_columns(identity, merged)])
        return take(merged, np.argsort(hashes, kind="stable"))

    def split(self, identity: Identity, table: pa.Table, shards: int) -> list[pa.Table]:
        """The rows of each shard, in their order."""
        if not len(table):
            return [table] * shards
        shard = shard_of(table, self.key_columns(identity, table), shards)
        order = np.argsort(shard, kind="stable")
        bounds = np.searchsorted(shard[order], np.arange(shards + 1))
        rows = take(table, order)
        return [rows.slice(a, b - a) for a, b in pairwise(bounds.tolist())]


@dataclass(frozen=True, slots=True)
class Greatest:
    """A table of at most one row, the limits of a shard: the greatest of each column is for all shards."""

    def merge(self, identity: Identity, tables: Sequence[pa.Table]) -> pa.Table:
        """The greatest of each column, in one row, or no row."""
        merged = concat(tables)
        if len(merged) < 2:
            return merged
        columns = []
        for column in map(combine_chunks, merged.columns):
            valid = column.drop_null()
            greatest = valid.slice(int(np.argmax(ranks(valid))), 1) if len(valid) else column[:1]
            columns.append(greatest)
        return pa.table(columns, schema=merged.schema)

    def split(self, identity: Identity, table: pa.Table, shards: int) -> list[pa.Table]:
        """A copy for every shard."""
        return [table] * shards


@dataclass(frozen=True, slots=True)
class Everywhere:
    """A table with the same rows in every shard: rows of a broadcast input."""

    def merge(self, identity: Identity, tables: Sequence[pa.Table]) -> pa.Table:
        """The rows of one shard."""
        return tables[0]

    def split(self, identity: Identity, table: pa.Table, shards: int) -> list[pa.Table]:
        """A copy for every shard."""
        return [table] * shards


Rule = ByKey | Greatest | Everywhere

BY_KEY = ByKey()
GREATEST = Greatest()
EVERYWHERE = Everywhere()


def key_names(identity: Identity) -> list[str]:
    """The names of the key columns: those of ``by``, or of ``key``."""
    return [name for name, _ in identity.get("by", identity.get("key", ()))]


@dataclass(frozen=True, slots=True)
class Placement:
    """How the state of an operator is placed on shards.

    Parameters
    ----------
    tables : mapping of str to ByKey, Greatest or Everywhere
        The rule of each table. A core takes them from its ``TABLES``.
    watermark : "equal" or "greatest"
        "equal" if all shards follow the watermark of the query. "greatest" if each shard has its own
        clock: after a change of the number of shards, all of them have the one furthest ahead.
    key : callable
        From the identity to the names of the key columns, as users know them.
    is_single : bool
        Whether the operator has one shard, whatever the number of shards of the query.
    upgrades : mapping of int to callable
        By version: the function that converts the state of this version to the next one.
    redistribute : callable, optional
        Instead of the rules of tables: from the identity, the tables by shard, and both numbers of
        shards, to the identity and the tables of the new shards.
    """

    tables: Mapping[str, Rule] = field(default_factory=dict)
    watermark: Literal["equal", "greatest"] = "equal"
    key: Names = key_names
    is_single: bool = False
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    redistribute: Redistribute | None = None


def require_tables(names: Iterable[str], layout: StateFormat, placement: Placement) -> None:
    """Refuse a state with a table that this version does not know: a later one wrote it.

    Raises
    ------
    StateFormatError
        ``STATE_VERSION``.
    """
    if unknown := sorted({*names} - {*placement.tables}):
        known = ", ".join(sorted(placement.tables))
        raise conditions.STATE_FORMAT.error(
            expected=f"{layout.kind} version {layout.version}, with the tables {known}",
            got=f"a table {unknown[0]!r}, which a later release wrote",
        )


def redistribute_states(
    placement: Placement, identity: Identity, states: Mapping[int, State], before: int, shards: int
) -> tuple[Identity, list[State]]:
    """Redistribute the states of shards on another number of shards.

    Parameters
    ----------
    placement : Placement
    identity : mapping
        The parameters of the operator.
    states : mapping of int to State
        By shard. A shard without a state is missing; at least one is there.
    before, shards : int
        Number of shards, before and after.

    Returns
    -------
    identity : mapping
        The parameters on the new number of shards.
    states : list of State
        One per new shard.
    """
    if placement.redistribute is None:
        merged = merge_states(placement, identity, list(states.values()))
        parts = {
            name: placement.tables[name].split(identity, table, shards)
            for name, table in merged.tables.items()
        }
        tables: Sequence[Tables] = [
            {name: of_table[number] for name, of_table in parts.items()} for number in range(shards)
        ]
    else:
        by_shard = {shard: state.tables for shard, state in states.items()}
        identity, tables = placement.redistribute(identity, by_shard, before, shards)
    watermark = _merge_watermarks(placement, list(states.values()))
    return identity, [State(watermark, of_shard) for of_shard in tables]


def merge_states(placement: Placement, identity: Identity, states: Sequence[State]) -> State:
    """Merge the states of all shards to the state of one, by the rules of the tables."""
    names = dict.fromkeys(name for state in states for name in state.tables)
    tables = {
        name: placement.tables[name].merge(
            identity, [state.tables[name] for state in states if name in state.tables]
        )
        for name in names  # a table that only some shards have is from before a change of parameters
    }
    return State(_merge_watermarks(placement, states), tables)


def _merge_watermarks(placement: Placement, states: Sequence[State]) -> int | None:
    watermarks = [state.watermark for state in states]
    if placement.watermark == "equal":
        assert len(set(watermarks)) == 1, watermarks
        return watermarks[0]
    return max((mark for mark in watermarks if mark is not None), default=None)


def upgrade(
    placement: Placement,
    stored: StateFormat,
    current: StateFormat,
    identity: Identity,
    tables: Tables,
) -> tuple[Identity, Tables]:
    """Convert the state of an older version, one version at a time.

    Raises
    ------
    StateFormatError
        ``STATE_VERSION``: there is no conversion from this version.
    """
    for version in range(stored.version, current.version):
        convert = placement.upgrades.get(version)
        if convert is None:
            break
        identity, tables = convert(identity, tables)
    else:
        if stored.version <= current.version:
            return identity, tables
    raise conditions.STATE_VERSION.error(
        expected=f"{current.kind} version {current.version}"
        + "".join(f", or {v}" for v in sorted(placement.upgrades)),
        got=f"{stored.kind} version {stored.version}",
    )
