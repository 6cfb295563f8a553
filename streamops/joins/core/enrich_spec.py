"""Settings of latest-value joins, bound to the schemas of facts and of the table's changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.table import KeyedTable
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names
from streamops.joins.core.untimed import UntimedSpec
from streamops.kernel.pairs import Side, SideName

__all__ = ["CopiedTable", "How", "LatestSpec", "Rejected"]

How = Literal["left", "inner"]
Rejected = Literal["drop", "route"]


@dataclass(frozen=True, kw_only=True)
class CopiedTable(KeyedTable):
    """A table, of whose changes a local copy is made.

    Parameters
    ----------
    came : Schema
        Columns of the frame of changes. What is read always says whether a change is of a snapshot.
    """

    came: pa.Schema

    @property
    def row(self) -> tuple[str, ...]:
        """Columns without which a row of a snapshot is none."""
        return tuple(dict.fromkeys((*self.by, *self.sequence, *self.ages, *self.values)))

    @property
    def ages(self) -> tuple[str, ...]:
        """The column of ``time``, if there is one."""
        return () if self.time is None else (self.time,)


@dataclass(frozen=True)
class LatestSpec(UntimedSpec):
    """A latest-value join over columns of known types.

    Parameters
    ----------
    by : tuple of (str, str)
        Key columns, of facts and of the table.
    facts : Schema
        All columns of facts.
    table : CopiedTable
    names : Names
        Columns of the join.
    into : str
        Name of the column that says whether the table has a row.
    how : str
        What becomes of facts without one.
    rejected : str
        What happens to rows of the table that are no changes of it.
    """

    by: tuple[tuple[str, str], ...]
    facts: pa.Schema
    table: CopiedTable
    names: Names
    into: str
    how: How
    rejected: Rejected

    @property
    def left(self) -> Side:
        """The facts."""
        return Side(tuple(name for name, _ in self.by), None, self.facts)

    @property
    def right(self) -> Side:
        """The changes."""
        return Side(self.table.by, None, self.table.came)

    @cached_property
    def output(self) -> pa.Schema:
        """Facts, rows without their keys, the status; rejected rows where they are routed."""
        extra: list[tuple[str, pa.DataType]] = [(self.into, pa.string())]
        if self.rejected == "route":
            extra.append(("late", late_type(self.facts, self.table.came)))
        joined = (field.with_nullable(True) for field in self.names.schema)
        return pa.schema([*joined, *extra])

    @property
    def origins(self) -> Mapping[str, tuple[SideName, str]]:
        """Columns of the output that hold values of one of an input: of which side, which one."""
        found: dict[str, tuple[SideName, str]] = {n: ("left", n) for n in self.facts.names}
        return found | {name: ("right", column) for column, name in self.names.right}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on: the table. The horizon is not in it, nor is the limit."""
        table = self.table
        parts = {"by": table.by, "sequence": table.sequence, "values": table.values}
        said = {
            part: [[name, str(table.came.field(name).type)] for name in names]
            for part, names in parts.items()
        }
        return {**said, "time": table.time}
