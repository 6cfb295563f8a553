"""The parameters of a join of two tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import refuse_change_type
from streamops.joins.core.inputs import refuse_missing, sequence_of_revisions, shown_keys
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names, named, refuse_reserved
from streamops.kernel.columns import type_name
from streamops.kernel.core import Input
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.parameters import require_choice, require_keys, require_name

__all__ = [
    "REASONS",
    "How",
    "Rejected",
    "TableSide",
    "TablesSpec",
    "WithoutEventTime",
    "parse_key_pair",
    "parse_name_pair",
]

How = Literal["inner", "left", "right", "full"]
Rejected = Literal["drop", "route"]
Columns = tuple[str, ...]

REASONS = ("bad_change", "null_key", "null_sequence", "not_there", "contradiction")
"""Why a change is rejected; its number is its position, counted from 1."""


@dataclass(frozen=True, slots=True)
class TableSide:
    """One of the two tables.

    Parameters
    ----------
    schema : Schema
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

    schema: pa.Schema
    by: tuple[str, ...]
    key: tuple[str, ...]
    sequence: str | None
    outer: bool

    @property
    def rows(self) -> pa.Schema:
        """Columns of the table: those of the stream but for what happens to a row."""
        return pa.schema([field for field in self.schema if field.name != CHANGE_TYPE])

    @property
    def names(self) -> tuple[str, ...]:
        """The same by name: in which order the frame has them may change."""
        return tuple(sorted(self.rows.names))

    @property
    def entries(self) -> pa.Schema:
        """Columns of the state."""
        columns = [(f"c.{i}", self.schema.field(n).type) for i, n in enumerate(self.names)]
        return pa.schema([*columns, ("weight", pa.int64())])

    @property
    def identity(self) -> dict[str, Any]:
        """What the state of this side depends on."""
        return {
            "columns": [[name, str(self.schema.field(name).type)] for name in self.names],
            "by": list(self.by),
            "key": list(self.key),
            "sequence": self.sequence,
        }


class WithoutEventTime:
    """Parameters and spec of a join of change streams: no event time, no watermark."""

    __slots__ = ()

    times: ClassVar[tuple[None, None]] = (None, None)
    delays: ClassVar[tuple[None, None]] = (None, None)
    accepts_revisions: ClassVar[tuple[bool, bool]] = (True, True)
    needs_preimages: ClassVar[bool] = True
    event_time: ClassVar[str | None] = None
    lag: ClassVar[int] = 0
    held_back: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSpec(WithoutEventTime):
    """The parameters of a join of two tables, and what is resolved against their schemas.

    Parameters
    ----------
    where : str
        The operator, for errors.
    by, how, key, sequence, remember, rejected
        As in :func:`streamops.joins.tables`, in pairs: left, right.
    tables : tuple of TableSide
        Resolved: left, right.
    names : Names
        Resolved: columns of the joined rows.
    remember_per_shard : int
        Resolved: deleted rows whose sequence one shard stores, per side.
    """

    where: str = field(default="joins.tables", repr=False)
    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    how: How
    key: tuple[Columns, Columns] | None
    sequence: tuple[str, str] | None
    remember: int | None
    rejected: Rejected
    tables: tuple[TableSide, ...] = field(default=(), repr=False)
    names: Names = field(default=Names(pa.schema([]), ()), repr=False)
    remember_per_shard: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        require_choice(self.how, How, parameter="how", where=self.where)
        require_choice(self.rejected, Rejected, parameter="rejected", where=self.where)
        _refuse_remembered(self.key, self.sequence, self.remember, self.where)
        named_columns: dict[str, Columns] = {
            "by": tuple(name for pair in self.by for name in pair),
            "key": () if self.key is None else self.key[0] + self.key[1],
            "sequence": () if self.sequence is None else self.sequence,
        }
        refuse_change_type(named_columns, where=self.where)

    @property
    def reads(self) -> tuple[Columns, Columns]:
        """Columns whose values are compared."""
        return self._reads(0), self._reads(1)

    def _reads(self, side: int) -> Columns:
        columns = [*(pair[side] for pair in self.by), *(self.key[side] if self.key else ())]
        if self.sequence is not None:
            columns.append(self.sequence[side])
        return tuple(dict.fromkeys(columns))

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> TablesSpec:
        """The parameters over these columns."""
        tables = tuple(self._side(at, schema) for at, schema in enumerate(schemas))
        names = named(tables[0].rows, tables[1].rows, self.by, self.where)
        fix = "rename the column before the join"
        added = (CHANGE_TYPE, *(["late"] if self.rejected == "route" else []))
        refuse_reserved(names.schema.names, added, fix, self.where)
        remembered = -(-(self.remember or 0) // shards)
        return replace(self, tables=tables, names=names, remember_per_shard=remembered)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The change streams of the left and of the right table."""
        return tuple(Input(table.by, None, table.schema) for table in self.tables)

    @property
    def output(self) -> pa.Schema:
        """Joined rows, what happens to them, and rejected changes where they are routed."""
        added = [pa.field(CHANGE_TYPE, pa.string())]
        if self.rejected == "route":
            left, right = self.tables
            added.append(pa.field("late", late_type(left.schema, right.schema)))
        return pa.schema([*self.names.schema, *added])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output that hold values of one of an input."""
        found = {name: (0, name) for name in self.tables[0].rows.names}
        return found | {name: (1, own) for own, name in self.names.right}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that the state depends on. `remember` may change."""
        left, right = self.tables
        return {"how": self.how, "left": left.identity, "right": right.identity}

    def _side(self, at: int, schema: pa.Schema) -> TableSide:
        name = ("left", "right")[at]
        by = tuple(pair[at] for pair in self.by)
        key = self.key[at] if self.key else ()
        sequence = self.sequence[at] if self.sequence else None
        where = f"{self.where}, {name} side"
        required = {"by": by, "key": key, "sequence": (sequence,) if sequence else ()}
        refuse_missing(schema, required, where=where)
        if CHANGE_TYPE not in schema.names or schema.field(CHANGE_TYPE).type != pa.string():
            _refuse_no_changes(schema, where)
        require_keys(schema, (*by, *key), where=where)
        if sequence is not None and not is_comparable(schema.field(sequence).type):
            raise SchemaError(
                "SEQUENCE_TYPE",
                f"column {sequence!r} cannot say which change is newer",
                where=where,
                got=type_name(schema.field(sequence).type),
                expected="a type with an order: numbers, strings, binary, timestamps, structs of them",
                fix="take the position in the log: an LSN, an offset, a commit version",
            )
        outer = self.how == "full" or self.how == name
        return TableSide(schema, by, key, sequence, outer)


def parse_key_pair(key: Any, *, where: str) -> tuple[Columns, Columns]:
    """Key columns of both tables: one name or several, for both or for each.

    Raises
    ------
    SpecError
        ``NOT_A_PAIR``, ``NOT_A_NAME``.
    """
    parts = (key, key) if isinstance(key, str | list) else key
    if isinstance(parts, tuple) and len(parts) == 2 and all(parts):
        both = [
            (part,) if isinstance(part, str) or not isinstance(part, Sequence) else tuple(part)
            for part in parts
        ]
        for names in both:
            for name in names:
                require_name(name, parameter="key", where=where)
        return both[0], both[1]
    raise _not_two(
        "key", key, '("order_id", "customer_id"), or with lists: (["a", "b"], "id")', where
    )


def parse_name_pair(value: Any, *, parameter: str, where: str) -> tuple[str, str]:
    """A column of both tables: one name for both, or one for each.

    Raises
    ------
    SpecError
        ``NOT_A_PAIR``, ``NOT_A_NAME``.
    """
    both = (value, value) if isinstance(value, str) else value
    if isinstance(both, tuple) and len(both) == 2:
        for name in both:
            require_name(name, parameter=parameter, where=where)
        return both
    raise _not_two(parameter, value, '"lsn", or ("lsn", "version")', where)


def _not_two(parameter: str, got: Any, example: str, where: str) -> SpecError:
    return SpecError(
        "NOT_A_PAIR",
        f"`{parameter}` is neither one value for both inputs nor a pair",
        where=where,
        got=f"{parameter}={got!r}",
        expected="one value for both inputs, or a pair: left, right",
        fix=f"{parameter}={example}",
    )


def _refuse_remembered(keys: Any, sequences: Any, remember: Any, where: str) -> None:
    if sequences is not None and keys is None:
        raise SpecError(
            "SEQUENCE_WITHOUT_KEY",
            "a sequence orders the changes of a key, and there is none",
            where=where,
            got=f"sequence={sequences!r}, key=None",
            expected="key=... beside it",
            fix='name what identifies a row on each side: key=("order_id", "customer_id")',
        )
    if sequences is not None and REVISION in sequences:
        fix = (
            "leave sequence and remember out: what operators of streamops publish comes once and "
            "in order"
        )
        raise sequence_of_revisions(sequences, fix, where=where)
    if (sequences is None) != (remember is None):
        raise SpecError(
            "REMEMBER_WITH_SEQUENCE",
            "`sequence` and `remember` go together",
            where=where,
            got=f"sequence={sequences!r}, remember={remember!r}",
            expected="both or neither",
            fix="remember=100_000 keeps the sequences of that many rows that are gone, so that late "
            "changes do not bring them back; remember=0: none",
        )
    if remember is not None and (type(remember) is not int or remember < 0):
        raise SpecError(
            "REMEMBER_OUT_OF_RANGE",
            "`remember` is not a number of rows",
            where=where,
            got=f"remember={remember!r}",
            expected="an integer, 0 or more",
            fix="remember=100_000, or as many deletes as may come between a change and its late copy",
        )


def _refuse_no_changes(schema: pa.Schema, where: str) -> None:
    dtype = schema.field(CHANGE_TYPE).type if CHANGE_TYPE in schema.names else None
    raise SchemaError(
        "NOT_A_CHANGE_STREAM",
        "the frame is not a change stream",
        where=where,
        got=f"columns {', '.join(schema.names)}"
        if dtype is None
        else f"{CHANGE_TYPE} {type_name(dtype)}",
        expected=f"a column {CHANGE_TYPE!r} of type string: insert, update_preimage, update_postimage, "
        "delete",
        fix=f"of rows that are only ever added: df.withColumn({CHANGE_TYPE!r}, F.lit('insert'))",
    )
