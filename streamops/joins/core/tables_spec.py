"""Settings of a join of two tables, bound to the schemas of their change streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names
from streamops.joins.core.untimed import UntimedSpec
from streamops.kernel.pairs import Side, SideName

__all__ = ["REASONS", "How", "Rejected", "TableSide", "TablesSpec"]

How = Literal["inner", "left", "right", "full"]
Rejected = Literal["drop", "route"]

REASONS = ("bad_change", "null_key", "null_sequence", "not_there", "contradiction")
"""Why a change is rejected; its number is its position, counted from 1."""


@dataclass(frozen=True, slots=True)
class TableSide:
    """One of the two tables.

    Parameters
    ----------
    input : Schema
        Columns of its change stream, ``_change_type`` among them.
    by : tuple of str
        Columns that are joined on.
    key : tuple of str
        Primary key; none: its rows have no identity but their values.
    sequence : str, optional
        Column that orders the changes of a key.
    outer : bool
        Whether its rows come out without a partner, too.
    """

    input: pa.Schema
    by: tuple[str, ...]
    key: tuple[str, ...]
    sequence: str | None
    outer: bool

    @property
    def rows(self) -> pa.Schema:
        """Columns of the table: those of the stream but for what happens to a row."""
        return pa.schema([field for field in self.input if field.name != CHANGE_TYPE])

    @property
    def names(self) -> tuple[str, ...]:
        """The same by name: in which order the frame has them may change."""
        return tuple(sorted(self.rows.names))

    @property
    def entries(self) -> pa.Schema:
        """Columns of the state."""
        columns = [(f"c.{i}", self.input.field(n).type) for i, n in enumerate(self.names)]
        return pa.schema([*columns, ("weight", pa.int64())])

    @property
    def identity(self) -> dict[str, Any]:
        """What the state of this side depends on."""
        return {
            "columns": [[name, str(self.input.field(name).type)] for name in self.names],
            "by": list(self.by),
            "key": list(self.key),
            "sequence": self.sequence,
        }


@dataclass(frozen=True, slots=True)
class TablesSpec(UntimedSpec):
    """The settings of both tables, and of what becomes of them.

    Parameters
    ----------
    where : str
        The operator, for errors.
    how : str
        Which rows come out without a partner.
    tables : tuple of TableSide
        Left, right.
    names : Names
        Columns of the joined rows.
    remember : int
        With sequences: rows that are gone whose sequence one shard keeps, per side.
    rejected : str
        What happens to changes that cannot be.
    """

    where: str
    how: How
    tables: tuple[TableSide, TableSide]
    names: Names
    remember: int
    rejected: Rejected

    @property
    def left(self) -> Side:
        """The change stream that the transform is called on."""
        return Side(self.tables[0].by, None, self.tables[0].input)

    @property
    def right(self) -> Side:
        """The change stream that it is given."""
        return Side(self.tables[1].by, None, self.tables[1].input)

    @property
    def output(self) -> pa.Schema:
        """Joined rows, what happens to them, and rejected changes where they are routed."""
        added = [pa.field(CHANGE_TYPE, pa.string())]
        if self.rejected == "route":
            left, right = self.tables
            added.append(pa.field("late", late_type(left.input, right.input)))
        return pa.schema([*self.names.schema, *added])

    @property
    def origins(self) -> Mapping[str, tuple[SideName, str]]:
        """Columns of the output that hold values of one of an input."""
        found: dict[str, tuple[SideName, str]] = {
            name: ("left", name) for name in self.tables[0].rows.names
        }
        return found | {name: ("right", column) for column, name in self.names.right}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. How much is remembered is not in it: it may change."""
        left, right = self.tables
        return {"how": self.how, "left": left.identity, "right": right.identity}
