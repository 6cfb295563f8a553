"""What a user says about a join of two tables, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import refuse_change_type
from streamops.joins.core.inputs import (
    keys_of,
    refuse_missing,
    sequence_of_revisions,
    shown_keys,
)
from streamops.joins.core.naming import named, refuse_reserved
from streamops.joins.core.tables_spec import How, Rejected, TableSide, TablesSpec
from streamops.joins.core.untimed import UntimedSettings
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.ordering import is_comparable
from streamops.spark.columns import require_name, type_name
from streamops.spark.parameters import require_keys
from streamops.spark.transform import require_choice

__all__ = ["TablesSettings"]

Names = str | Sequence[str]
Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablesSettings(UntimedSettings):
    """Settings of a join of two tables. What it says of both sides stands in pairs, left first."""

    where: str = field(repr=False)
    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    how: How
    key: tuple[Columns, Columns] | None
    sequence: tuple[str, str] | None
    remember: int | None
    rejected: Rejected
    shards: int = field(repr=False)

    of_results: ClassVar[tuple[bool, bool]] = (True, True)
    needs_preimages: ClassVar[bool] = True

    @staticmethod
    def of(
        where: str,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        how: How,
        key: Names | tuple[Names, Names] | None,
        sequence: str | tuple[str, str] | None,
        remember: int | None,
        rejected: Rejected,
        shards: int,
    ) -> TablesSettings:
        """Settings as the user wrote them, normalised, or an error."""
        require_choice(how, How, parameter="how", where=where)
        require_choice(rejected, Rejected, parameter="rejected", where=where)
        keys = None if key is None else _keys(key, where)
        sequences = None if sequence is None else _two(sequence, "sequence", where)
        _refuse_remembered(keys, sequences, remember, where)
        on = keys_of(by, where=where)
        asked: dict[str, Columns] = {
            "by": tuple(name for pair in on for name in pair),
            "key": () if keys is None else keys[0] + keys[1],
            "sequence": () if sequences is None else sequences,
        }
        refuse_change_type(asked, where=where)
        return TablesSettings(where, on, how, keys, sequences, remember, rejected, shards)

    @property
    def reads(self) -> tuple[Columns, Columns]:
        """Columns whose values are compared."""
        return self._reads(0), self._reads(1)

    def _reads(self, side: int) -> Columns:
        columns = [*(pair[side] for pair in self.by), *(self.key[side] if self.key else ())]
        if self.sequence is not None:
            columns.append(self.sequence[side])
        return tuple(dict.fromkeys(columns))

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Any) -> TablesSpec:
        """The spec over these columns."""
        tables = [self._side(at, schema) for at, schema in enumerate((left, right))]
        names = named(tables[0].rows, tables[1].rows, self.by, self.where)
        fix = "rename the column before the join"
        added = (CHANGE_TYPE, *(["late"] if self.rejected == "route" else []))
        refuse_reserved(names.schema.names, added, fix, self.where)
        remember = -(-(self.remember or 0) // self.shards)
        return TablesSpec(
            self.where, self.how, (tables[0], tables[1]), names, remember, self.rejected
        )

    def _side(self, at: int, schema: pa.Schema) -> TableSide:
        name = ("left", "right")[at]
        by = tuple(pair[at] for pair in self.by)
        key = self.key[at] if self.key else ()
        sequence = self.sequence[at] if self.sequence else None
        where = f"{self.where}, {name} side"
        asked = {"by": by, "key": key, "sequence": (sequence,) if sequence else ()}
        refuse_missing(schema, asked, where=where)
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


def _keys(key: Any, where: str) -> tuple[Columns, Columns]:
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


def _two(value: Any, parameter: str, where: str) -> tuple[str, str]:
    both = (value, value) if isinstance(value, str) else value
    if isinstance(both, tuple) and len(both) == 2:
        for name in both:
            require_name(name, parameter=parameter, where=where)
        return both
    raise _not_two(parameter, value, '"lsn", or ("lsn", "version")', where)


def _not_two(parameter: str, got: Any, example: str, where: str) -> SpecError:
    return SpecError(
        "NOT_A_PAIR",
        f"`{parameter}` does not say it of both sides",
        where=where,
        got=f"{parameter}={got!r}",
        expected="what holds for both sides, or a pair: left, right",
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
    kind = schema.field(CHANGE_TYPE).type if CHANGE_TYPE in schema.names else None
    raise SchemaError(
        "NOT_A_CHANGE_STREAM",
        "the frame does not say what happens to its rows",
        where=where,
        got=f"columns {', '.join(schema.names)}"
        if kind is None
        else f"{CHANGE_TYPE} {type_name(kind)}",
        expected=f"a column {CHANGE_TYPE!r} of type string: insert, update_preimage, update_postimage, "
        "delete",
        fix=f"of rows that are only ever added: df.withColumn({CHANGE_TYPE!r}, F.lit('insert'))",
    )
