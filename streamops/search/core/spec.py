"""Parameters of stored queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.table import (
    CHANGE_COLUMNS,
    DEFAULT_MAX_KEYS,
    REJECTED,
    KeyedTable,
    WhenFull,
    refuse_change_type,
    require_change_columns,
)
from streamops.kernel import conditions as common
from streamops.kernel.core import Input
from streamops.kernel.errors import SchemaError, located
from streamops.kernel.lateness import late_field
from streamops.kernel.operator import Spec
from streamops.kernel.parameters import (
    Delays,
    refuse_type,
    require_columns,
    require_distinct_columns,
    require_instant,
    require_keys,
    require_most_keys,
    show_delays,
    unused_watermark,
)
from streamops.search import conditions
from streamops.search.core.nodes import EXPECTED, NODES, field_type
from streamops.search.core.parse import DefaultOperator, Language

Rejected = Literal["drop", "route"]
WaitsFor = Literal["both", "documents"]

COMPILED = "_compiled"
"""Column of packed changes with the compiled query."""

_ERROR = (("position", pa.int32()), ("message", pa.string()))
REASON = pa.struct([("reason", pa.string()), *_ERROR])
"""Type of the column of packed changes with the reason for which one is rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSpec(Spec):
    """The parameters of :func:`streamops.search.match`.

    The horizon is in microseconds, or in units of the sequence without ``time``. ``resolved``, ``output``
    and ``limit``, the queries that one shard may store, are resolved.
    """

    text: tuple[str, ...]
    fields: tuple[str, ...]
    id: str
    query: str
    default_operator: DefaultOperator
    as_of: str | None
    sequence: tuple[str, ...]
    horizon: int
    time: str | None
    waits_for: WaitsFor
    delay: Delays = field(metadata={"shown": show_delays})
    max_keys: int
    when_full: WhenFull
    rejected: Rejected
    into: str
    resolved: tuple[Input, ...] = field(default=(), repr=False)
    output: pa.Schema = field(default=pa.schema([]), repr=False)
    limit: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS)
        require_distinct_columns(id=self.id, query=self.query)
        both = [name for name in self.text if name in self.fields]
        if both or not self.text + self.fields:
            condition = conditions.TEXT_AND_FIELD if both else conditions.NOTHING_TO_SEARCH
            raise condition.error(got=f"text={self.text!r}, fields={self.fields!r}")
        reserved = {self.id, self.query} & {*self.sequence, self.time}
        if reserved:
            raise conditions.SAME_COLUMN.error(
                got=f"id={self.id!r}, query={self.query!r}, sequence={self.sequence!r}, "
                f"time={self.time!r}"
            )
        columns = {"id": (self.id,), "sequence": self.sequence, "time": (self.time,)}
        refuse_change_type(columns)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Refuse parameters about event time without the event time of documents, and the reverse."""
        if self.as_of is None and (self.delay != (None, None) or self.waits_for != "both"):
            raise conditions.DELAY_WITHOUT_AS_OF.error(
                got=f"delay={show_delays(self.delay)}, waits_for={self.waits_for!r}, as_of=None"
            )

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The documents, which every shard receives, and the changes of the queries."""
        if self.resolved:
            return self.resolved
        owners = () if self.as_of is None else (self.as_of,)
        waits_for_queries = self.as_of is not None and self.waits_for == "both"
        time = self.time if waits_for_queries else None
        compared = tuple(name for name in (*self.text, *self.fields) if name not in owners)
        documents = Input(
            owners, self.as_of, delay=self.delay[0], columns=compared, is_broadcast=True
        )
        queries = Input(
            (self.id,), time, delay=self.delay[1], columns=self.sequence, accepts_revisions=True
        )
        return documents, queries

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> MatchSpec:
        """Resolve the parameters against the schemas of the documents and of the queries."""
        documents, queries = schemas
        self._refuse_documents(documents)
        times = () if self.time is None else (self.time,)
        used = {"id": (self.id,), "query": (self.query,), "sequence": self.sequence, "time": times}
        self._refuse_queries(queries, used)
        if self.as_of is not None and self.waits_for != "both" and carried[1] is not None:
            raise unused_watermark(carried[1], waits_for=self.waits_for)
        named = {name for names in used.values() for name in names}
        read = pa.schema([f for f in queries if f.name in named | {*CHANGE_COLUMNS}])
        added = [pa.field(self.into, queries.field(self.id).type)]
        if self.rejected == "route":
            row = pa.schema([column for column in read if column.name in named])
            added.append(late_field(documents, row, further=_ERROR))
        taken = {column.name.lower() for column in added}
        if len(taken) < len(added) or taken & {name.lower() for name in documents.names}:
            raise self._name_taken(documents.names, sorted(taken))
        columns = [column.with_nullable(True) for column in documents]
        parts = zip(self.inputs, (documents, read), carried, strict=True)
        return replace(
            self,
            resolved=tuple(of.resolve(schema, mark) for of, schema, mark in parts),
            output=pa.schema([*columns, *added]),
            limit=-(-self.max_keys // shards),
        )

    @located(at="documents")
    def _refuse_documents(self, documents: pa.Schema) -> None:
        used = {"text": self.text, "fields": self.fields, "as_of": (self.as_of,)}
        require_columns(documents.names, used)
        if self.as_of is not None:
            require_instant(documents, self.as_of)
        for name in self.text:
            if not pa.types.is_string(documents.field(name).type):
                refuse_type(conditions.TEXT_TYPE, documents, name)
        for name in self.fields:
            if field_type(documents.field(name).type) is None:
                refuse_type(conditions.FIELD_TYPE, documents, name, expected=EXPECTED)

    @located(at="queries")
    def _refuse_queries(self, queries: pa.Schema, used: Mapping[str, Sequence[str]]) -> None:
        require_columns(queries.names, used)
        require_keys(queries, (self.id,))
        if self.as_of is not None and self.time is not None:
            require_instant(queries, self.time)
        require_change_columns(queries, self.sequence, self.time)
        if not pa.types.is_string(queries.field(self.query).type):
            facts = {"role": "query", "expected": "string"}
            refuse_type(common.CHANGE_COLUMN_TYPE, queries, self.query, **facts)
        if COMPILED in queries.names and COMPILED in {name for n in used.values() for name in n}:
            raise self._name_taken(queries.names, [COMPILED])

    def _name_taken(self, names: Sequence[str], added: Sequence[str]) -> SchemaError:
        return conditions.NAME_TAKEN.error(
            added=", ".join(added), got=f"columns {', '.join(names)}"
        )

    @property
    def documents(self) -> pa.Schema:
        """Columns of the documents, resolved."""
        return self.inputs[0].schema

    @property
    def language(self) -> Language:
        """What queries may refer to, resolved."""
        fields = []
        for name in self.fields:
            dtype = field_type(self.documents.field(name).type)
            assert dtype is not None
            fields.append((name, dtype))
        return Language(self.text, tuple(fields), self.default_operator)

    @property
    def table(self) -> KeyedTable:
        """The table of queries, resolved."""
        columns = [column for column in self.inputs[1].schema if column.name != REJECTED]
        added = [pa.field(REJECTED, REASON), pa.field(COMPILED, NODES)]
        return KeyedTable(
            key=(self.id,),
            sequence=self.sequence,
            time=self.time,
            horizon=self.horizon,
            # The text comes first: it decides which of two changes in conflict is effective.
            values=(self.query, COMPILED),
            input=pa.schema([*columns, *added]),
            snapshots="below_log",  # the log has all changes since the snapshot was started
            limit=self.limit,
            when_full=self.when_full,
        )

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Output columns that have values of an input column: which input and column."""
        return {**{name: (0, name) for name in self.documents.names}, self.into: (1, self.id)}

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on: the table, what a query means, and documents that wait."""
        schema = self.inputs[1].schema
        parts = {"by": (self.id,), "sequence": self.sequence}
        columns = {
            part: [[name, str(schema.field(name).type)] for name in names]
            for part, names in parts.items()
        }
        fields = [[name, str(self.documents.field(name).type)] for name in self.fields]
        waiting = {
            "as_of": self.as_of,
            "documents": sorted([column.name, str(column.type)] for column in self.documents),
        }
        return {
            **columns,
            "time": self.time,
            "text": list(self.text),
            "fields": fields,
            "default_operator": self.default_operator,
            **({} if self.as_of is None else waiting),
        }
