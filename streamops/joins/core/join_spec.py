"""Shared by the specs of joins: parameters about both inputs, and the columns of joined rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.joins import conditions
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import Input
from streamops.kernel.errors import Condition, SchemaError, SpecError, located
from streamops.kernel.groups import Ids
from streamops.kernel.lateness import LATE, late_field
from streamops.kernel.operator import Spec, checkpointed
from streamops.kernel.ordering import is_comparable
from streamops.kernel.parameters import (
    parse_distinct_names,
    parse_names,
    refuse_type,
    require_keys,
    require_name,
)

SUFFIX = "_right"
"""Appended to the name of a right column if a left column has the same name."""

ADDED = (CHANGE_TYPE, LATE)
"""Columns that a join may add besides ``into``."""

_STATUS = pa.array(["missing", "matched"])

Columns = tuple[str, ...]
Keys = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JoinedNames:
    """Columns of a joined row: all of the left, then those of the right without its keys.

    ``right`` has the name of each of the latter in the right frame, and in the joined row.
    """

    schema: pa.Schema
    right: tuple[tuple[str, str], ...]


def show_keys(by: Keys) -> str:
    """Format key columns as a user writes them."""
    if any(left != right for left, right in by):
        return repr(dict(by))
    names = [name for name, _ in by]
    return repr(names[0] if len(names) == 1 else names)


def show_pair(names: tuple[str, str]) -> str:
    """Format a column of each input: one name if they are equal."""
    return repr(names[0] if names[0] == names[1] else names)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSpec(Spec):
    """Fields of all joins. ``resolved``, ``names`` and ``output`` are resolved against the schemas."""

    by: Keys = checkpointed(metadata={"shown": show_keys})
    resolved: tuple[Input, ...] = field(default=(), repr=False)
    names: JoinedNames = field(default=JoinedNames(pa.schema([]), ()), repr=False)
    output: pa.Schema = field(default=pa.schema([]), repr=False)

    @property
    def declared(self) -> tuple[Input, Input]:
        """Both inputs before their columns are known."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Both inputs."""
        return self.resolved or self.declared

    @property
    def left_by(self) -> Columns:
        """Key columns of the left input."""
        return tuple(left for left, _ in self.by)

    @property
    def right_by(self) -> Columns:
        """Key columns of the right input."""
        return tuple(right for _, right in self.by)

    @property
    def left(self) -> Input:
        """The left input, resolved."""
        return self.inputs[0]

    @property
    def right(self) -> Input:
        """The right input, resolved."""
        return self.inputs[1]

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Output columns that have values of an input column: which input and column."""
        right = {name: (1, own) for own, name in self.names.right}
        return {name: right.get(name, (0, name)) for name in self.names.schema.names}

    def resolve_inputs(
        self, schemas: Sequence[pa.Schema], carried: Sequence[int | None]
    ) -> tuple[Input, ...]:
        """Both inputs with their columns. The operator defines no watermark on a frame that brings one."""
        parts = zip(self.declared, schemas, carried, strict=True)
        return tuple(of.resolve(schema, mark) for of, schema, mark in parts)

    def with_columns(
        self,
        inputs: tuple[Input, ...],
        left: pa.Schema,
        right: pa.Schema,
        added: Sequence[pa.Field],
        condition: Condition[SchemaError] = conditions.ADDED_NAME_TAKEN,
    ) -> Self:
        """The spec over these inputs, with these columns of the left, the right, and the join itself."""
        names = join_names(left, right, self.by)
        added_names = [column.name for column in added]
        refuse_reserved(names.schema.names, added_names, condition)
        joined = (column.with_nullable(True) for column in names.schema)
        return replace(self, resolved=inputs, names=names, output=pa.schema([*joined, *added]))


def added_columns(
    into: str | None, *, changes: bool, late: tuple[pa.Schema, pa.Schema] | None
) -> list[pa.Field]:
    """Columns that a join adds: the status, the change type, late rows of these two schemas."""
    added = [] if into is None else [pa.field(into, pa.string())]
    added += [pa.field(CHANGE_TYPE, pa.string())] if changes else []
    return added + ([] if late is None else [late_field(*late)])


def join_values(
    output: pa.Schema,
    facts: pa.Table,
    values: Sequence[pa.ChunkedArray],
    found: Ids,
    change: str | None = None,
) -> pa.Table:
    """Facts with the values at the positions found, or nulls at -1; the status, the change type."""
    index, matched = pa.array(found, mask=found < 0), found >= 0
    columns = [*facts.columns, *(combine_chunks(column).take(index) for column in values)]
    columns.append(_STATUS.take(pa.array(matched.astype(np.int8))))
    if change is not None:
        columns.append(pa.repeat(change, len(found)))
    columns += [pa.nulls(len(found), column.type) for column in list(output)[len(columns) :]]
    return pa.table(columns, schema=output)


def join_names(left: pa.Schema, right: pa.Schema, by: Keys) -> JoinedNames:
    """The columns of a left row joined with a right row of the same key.

    Names are compared as in Spark, ignoring case. A right column gets the suffix ``_right`` if its
    name is taken.

    Examples
    --------
    >>> searches = pa.schema([("query", pa.int64()), ("ts", pa.int64())])
    >>> clicks = pa.schema([("query", pa.int64()), ("ts", pa.int64()), ("url", pa.string())])
    >>> joined = join_names(searches, clicks, (("query", "query"),))
    >>> joined.schema.names, joined.right
    (['query', 'ts', 'ts_right', 'url'], (('ts', 'ts_right'), ('url', 'url')))
    """
    keys = {name for _, name in by}
    columns = [column for column in right if column.name not in keys]
    of_left = {name.lower() for name in left.names}
    # A column that keeps its name takes precedence over one that needs the suffix.
    taken = of_left | {column.name.lower() for column in columns}
    pairs = []
    for column in columns:
        name = column.name
        if name.lower() in of_left:
            name += SUFFIX
            if name.lower() in taken:
                raise conditions.NO_FREE_NAME.error(
                    column=column.name,
                    names=", ".join(left.names),
                    suffix=SUFFIX,
                    got=f"{column.name!r} on both sides, and {name!r} as well",
                )
            taken.add(name.lower())
        pairs.append((column.name, name))
    joined = [right.field(own).with_name(name) for own, name in pairs]
    return JoinedNames(pa.schema([*left, *joined]), tuple(pairs))


def refuse_reserved(
    names: Sequence[str],
    added: Iterable[str],
    condition: Condition[SchemaError] = conditions.ADDED_NAME_TAKEN,
) -> None:
    """Refuse joined columns with the name of a column that the operator adds."""
    reserved = {name.lower() for name in added}
    taken = [name for name in names if name.lower() in reserved]
    if taken:
        raise condition.error(
            taken=", ".join(taken),
            added=", ".join(sorted(reserved)),
            got=f"columns {', '.join(names)}",
        )


def parse_keys(by: Any) -> Keys:
    """Key columns as pairs, left and right, from a name, a sequence or a mapping.

    Examples
    --------
    >>> parse_keys({"query": "search"}), parse_keys(["a", "b"])
    ((('query', 'search'),), (('a', 'a'), ('b', 'b')))
    """
    if isinstance(by, Mapping):
        pairs = tuple(by.items())
        for name in chain.from_iterable(pairs):
            require_name(name, parameter="by")
    else:
        names = parse_distinct_names(by, parameter="by", empty=True)
        pairs = tuple((name, name) for name in names)
    if not pairs:
        raise conditions.NO_KEY.error(got=f"by={by!r}")
    return pairs


def parse_times(time: Any) -> tuple[str, str]:
    """Event-time columns of both inputs, from one name or two."""
    left, right = time if isinstance(time, tuple) and len(time) == 2 else (time, time)
    for name in (left, right):
        require_name(name, parameter="time")
    return left, right


def parse_key_pair(key: Any) -> tuple[Columns, Columns]:
    """Key columns of both tables: one name or several, for both or for each."""
    parts = (key, key) if isinstance(key, str | list) else key
    if not (isinstance(parts, tuple) and len(parts) == 2 and all(parts)):
        example = '("order_id", "customer_id"), or with lists: (["a", "b"], "id")'
        raise _not_a_pair("key", key, example)
    left, right = (parse_names(part, parameter="key") for part in parts)
    return left, right


def parse_name_pair(value: Any, *, parameter: str) -> tuple[str, str]:
    """A column of both tables: one name for both, or one for each."""
    pair = (value, value) if isinstance(value, str) else value
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise _not_a_pair(parameter, value, '"lsn", or ("lsn", "version")')
    for name in pair:
        require_name(name, parameter=parameter)
    return pair


def _not_a_pair(parameter: str, got: Any, example: str) -> SpecError:
    return conditions.NOT_A_PAIR.error(
        parameter=parameter, example=example, got=f"{parameter}={got!r}"
    )


def require_into(into: str) -> None:
    """Refuse a value of `into` that is the name of another added column."""
    if into.lower() in ADDED:
        raise conditions.NAME_TAKEN.error(added=", ".join(ADDED), got=f"into={into!r}")


def require_key_types(left: pa.Schema, right: pa.Schema, by: Keys) -> None:
    """Refuse keys that Spark cannot hash."""
    ours, theirs = zip(*by, strict=True)
    with located(at="left frame"):
        require_keys(left, ours)
    with located(at="right frame"):
        require_keys(right, theirs)


def require_order(schema: pa.Schema, name: str, use: str) -> None:
    """Refuse a column whose values have no order."""
    if not is_comparable(schema.field(name).type):
        refuse_type(conditions.NO_ORDER, schema, name, use=use)
