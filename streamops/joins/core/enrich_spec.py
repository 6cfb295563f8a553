"""The parameters of a join with the local copy of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa

from streamops.changelog.change_types import REVISION
from streamops.changelog.table import (
    DEFAULT_MAX_KEYS,
    SNAPSHOT,
    KeyedTable,
    WhenFull,
    refuse_change_type,
    require_change_columns,
    value_columns,
)
from streamops.joins.core.inputs import (
    refuse_into,
    refuse_keys,
    refuse_missing,
    sequence_of_revisions,
    shown_keys,
)
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names, named, refuse_reserved
from streamops.joins.core.tables_spec import WithoutEventTime
from streamops.kernel.core import Input
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import require_choice, require_most_keys

__all__ = ["CopiedTable", "EnrichSpec", "How", "Rejected"]

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


_UNRESOLVED = CopiedTable(
    where="joins.enrich",
    key=(),
    sequence=(),
    horizon=0,
    time=None,
    snapshots="below_log",
    when_full="fail",
    came=pa.schema([]),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichSpec(WithoutEventTime):
    """The parameters of the join, and what is resolved against the schemas of its inputs.

    Parameters
    ----------
    by : tuple of (str, str)
        Key columns: name among the facts, name in the table.
    horizon : int
        Microseconds, or units of the sequence without ``time``.
    sequence, time, how, max_keys, when_full, rejected, into
        As in :func:`streamops.joins.enrich`.
    inputs : tuple of Input
        Resolved: the facts and the changes.
    table : CopiedTable
        Resolved: the table whose latest rows are stored.
    names : Names
        Resolved: columns of a joined row.
    """

    where: ClassVar[str] = "joins.enrich"
    accepts_revisions: ClassVar[tuple[bool, bool]] = (False, True)
    needs_preimages: ClassVar[bool] = False

    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    sequence: tuple[str, ...]
    horizon: int
    time: str | None
    how: How
    max_keys: int
    when_full: WhenFull
    rejected: Rejected
    into: str
    inputs: tuple[Input, ...] = field(default=(), repr=False)
    table: CopiedTable = field(default=_UNRESOLVED, repr=False)
    names: Names = field(default=Names(pa.schema([]), ()), repr=False)

    def __post_init__(self) -> None:
        for value, known, parameter in (
            (self.how, How, "how"),
            (self.when_full, WhenFull, "when_full"),
            (self.rejected, Rejected, "rejected"),
        ):
            require_choice(value, known, parameter=parameter, where=self.where)
        refuse_into(self.into, where=self.where)
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS, where=self.where)
        theirs = tuple(name for _, name in self.by)
        if {*theirs} & {*self.sequence, self.time}:
            raise SpecError(
                "SAME_COLUMN",
                "a column of the key cannot order the changes of a key",
                where=self.where,
                got=f"by={shown_keys(self.by)}, sequence={self.sequence!r}, time={self.time!r}",
                expected="other columns",
                fix="name the position in the log as `sequence`",
            )
        columns = {"by": theirs, "sequence": self.sequence, "time": (self.time,)}
        refuse_change_type(columns, where=self.where)
        if self.sequence == (REVISION,):
            fix = (
                "sequence='position' behind .withColumn('position', 2 * F.col('revision') + "
                "F.when(F.col('_change_type') == 'delete', 1).otherwise(0))"
            )
            raise sequence_of_revisions(self.sequence[0], fix, where=self.where)

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        left, right = zip(*self.by, strict=True)
        return left, (*right, *self.sequence)

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> EnrichSpec:
        """The parameters over these columns."""
        left, right = schemas
        ours, theirs = zip(*self.by, strict=True)
        columns = {"by": theirs, "sequence": self.sequence}
        columns |= {} if self.time is None else {"time": (self.time,)}
        refuse_missing(left, {"by": ours}, where=f"{self.where}, left frame")
        refuse_missing(right, columns, where=f"{self.where}, right frame")
        refuse_keys(left, right, self.by, where=self.where)
        require_change_columns(right, self.sequence, self.time, where=f"{self.where}, right frame")
        values = value_columns(right, theirs, self.sequence)
        row = pa.schema([column for column in right if column.name in {*theirs, *values}])
        names = named(left, row, self.by, self.where)
        added = [self.into, *(["late"] if self.rejected == "route" else [])]
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        marked = right if SNAPSHOT in right.names else right.append(pa.field(SNAPSHOT, pa.bool_()))
        table = CopiedTable(
            where=self.where,
            key=theirs,
            sequence=self.sequence,
            time=self.time,
            horizon=self.horizon,
            values=tuple(sorted(values)),
            input=marked,
            snapshots="below_log",  # the log has all changes since the snapshot was begun
            limit=-(-self.max_keys // shards),
            when_full=self.when_full,
            came=right,
        )
        inputs = (Input(ours, None, left), Input(theirs, None, right))
        return replace(self, inputs=inputs, table=table, names=names)

    @property
    def left(self) -> Input:
        """The facts, resolved."""
        return self.inputs[0]

    @property
    def facts(self) -> pa.Schema:
        """All columns of the facts."""
        return self.inputs[0].schema

    @property
    def output(self) -> pa.Schema:
        """Facts, rows without their keys, the status; rejected rows where they are routed."""
        extra: list[tuple[str, pa.DataType]] = [(self.into, pa.string())]
        if self.rejected == "route":
            extra.append(("late", late_type(self.facts, self.table.came)))
        joined = (column.with_nullable(True) for column in self.names.schema)
        return pa.schema([*joined, *extra])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output with values of a column of an input: of which input and column."""
        found = {name: (0, name) for name in self.facts.names}
        return found | {name: (1, column) for column, name in self.names.right}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on: the table. The horizon is not in it, nor is the limit."""
        table = self.table
        parts = {"by": table.by, "sequence": table.sequence, "values": table.values}
        columns = {
            part: [[name, str(table.came.field(name).type)] for name in names]
            for part, names in parts.items()
        }
        return {**columns, "time": table.time}
