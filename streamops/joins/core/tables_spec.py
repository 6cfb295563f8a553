"""The parameters of a join of two tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import refuse_change_type
from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    Columns,
    JoinSpec,
    added_columns,
)
from streamops.kernel.columns import type_name
from streamops.kernel.core import SIDES, Input
from streamops.kernel.errors import SchemaError, located
from streamops.kernel.ordering import require_sequence
from streamops.kernel.parameters import require_columns, require_keys

How = Literal["inner", "left", "right", "full"]
Rejected = Literal["drop", "route"]

REASONS = ("bad_change", "null_key", "null_sequence", "not_there", "contradiction")
"""Why a change is rejected; its code is its position, counted from 1."""


@dataclass(frozen=True, slots=True)
class TableSide:
    """One of the two tables: the columns of its change stream, and how its rows are identified."""

    schema: pa.Schema
    by: Columns  # columns of the join
    key: Columns  # primary key; empty if rows are identified by all values
    sequence: str | None  # column that orders the changes of a key
    outer: bool  # whether its rows are emitted without a partner, too

    @property
    def rows(self) -> pa.Schema:
        """Columns of the table: those of the stream without the change type."""
        return pa.schema([field for field in self.schema if field.name != CHANGE_TYPE])

    @property
    def names(self) -> Columns:
        """The same by name, as the order of columns in the frame may change."""
        return tuple(sorted(self.rows.names))

    @property
    def stored(self) -> pa.Schema:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSpec(JoinSpec):
    """The parameters of :func:`streamops.joins.tables`, in pairs: left, right.

    ``tables`` and ``remember_per_shard``, the deleted rows that one shard stores per side, are resolved.
    """

    how: How
    key: tuple[Columns, Columns] | None
    sequence: tuple[str, str] | None
    remember: int | None
    rejected: Rejected
    tables: tuple[TableSide, ...] = field(default=(), repr=False)
    remember_per_shard: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self._refuse_contradictions()
        columns = {
            "by": self.left_by + self.right_by,
            "key": () if self.key is None else self.key[0] + self.key[1],
            "sequence": () if self.sequence is None else self.sequence,
        }
        refuse_change_type(columns)

    @property
    def declared(self) -> tuple[Input, Input]:
        """The changes of both tables."""
        left, right = (self._declare(side) for side in range(2))
        return left, right

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> TablesSpec:
        """Resolve the parameters against the schemas of both change streams."""
        left, right = (self._side(at, schema) for at, schema in enumerate(schemas))
        late = (left.schema, right.schema) if self.rejected == "route" else None
        spec = self.with_columns(
            self.resolve_inputs((left.schema, right.schema), carried),
            left.rows,
            right.rows,
            added_columns(None, changes=True, late=late),
            conditions.CHANGE_COLUMN_TAKEN,
        )
        remembered = -(-(self.remember or 0) // shards)
        return replace(spec, tables=(left, right), remember_per_shard=remembered)

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on. `remember` may change."""
        left, right = self.tables
        return {"how": self.how, "left": left.identity, "right": right.identity}

    def _declare(self, side: int) -> Input:
        by, key = (self.left_by, self.right_by)[side], self.key[side] if self.key else ()
        sequence = (self.sequence[side],) if self.sequence else ()
        columns = tuple(name for name in dict.fromkeys((*key, *sequence)) if name not in by)
        return Input(by, columns=columns, accepts_revisions=True, needs_preimages=True)

    def _side(self, at: int, schema: pa.Schema) -> TableSide:
        name, by = SIDES[at], (self.left_by, self.right_by)[at]
        key = self.key[at] if self.key else ()
        sequence = self.sequence[at] if self.sequence else None
        used = {"by": by, "key": key, "sequence": (sequence,) if sequence else ()}
        with located(at=f"{name} side"):
            require_columns(schema.names, used)
            if CHANGE_TYPE not in schema.names or schema.field(CHANGE_TYPE).type != pa.string():
                raise _not_a_change_stream(schema)
            require_keys(schema, (*by, *key))
            require_sequence(schema, used["sequence"])
        return TableSide(schema, by, key, sequence, self.how in ("full", name))

    def _refuse_contradictions(self) -> None:
        if self.sequence is not None and self.key is None:
            raise conditions.SEQUENCE_WITHOUT_KEY.error(got=f"sequence={self.sequence!r}, key=None")
        if self.sequence is not None and REVISION in self.sequence:
            raise conditions.SEQUENCE_OF_CHANGES.error(got=f"sequence={self.sequence!r}")
        if (self.sequence is None) != (self.remember is None):
            raise conditions.REMEMBER_WITH_SEQUENCE.error(
                got=f"sequence={self.sequence!r}, remember={self.remember!r}"
            )
        if self.remember is not None and (type(self.remember) is not int or self.remember < 0):
            raise conditions.REMEMBER_OUT_OF_RANGE.error(got=f"remember={self.remember!r}")


def _not_a_change_stream(schema: pa.Schema) -> SchemaError:
    got = f"columns {', '.join(schema.names)}"
    if CHANGE_TYPE in schema.names:
        got = f"{CHANGE_TYPE} {type_name(schema.field(CHANGE_TYPE).type)}"
    return conditions.NOT_A_CHANGE_STREAM.error(change_type=CHANGE_TYPE, got=got)
