"""Match documents against stored queries.

A step applies the changes of the queries to their stored copy first, then matches all documents: none
waits, and no result is revised. :mod:`streamops.changelog.latest` defines the copy, and which changes
count. Each shard stores a part of the queries, and receives all documents.

Queries are parsed once, before the shuffle. A step needs an index of its queries; a worker keeps the
indexes of its shards for later steps, and builds them again from the state if it has none.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.batch import carry_forward, gather_values
from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.latest import (
    accept_changes,
    advance_clock,
    build_latest_rows,
    check_latest_rows,
    evict_tombstones,
    find_effective,
    latest_layout,
)
from streamops.changelog.table import (
    CHANGE_COLUMNS,
    DEFAULT_MAX_KEYS,
    REJECTED,
    TOMBSTONE,
    UNAVAILABLE,
    KeyedTable,
    WhenFull,
    refuse_change_type,
    require_change_columns,
)
from streamops.kernel.codec import ipc_write
from streamops.kernel.columns import combine_chunks, concat, conform, take
from streamops.kernel.core import (
    Input,
    Metrics,
    SideName,
    State,
    StateFormat,
    Step,
    finish,
    next_deadline,
)
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.parameters import (
    refuse_type,
    require_choice,
    require_columns,
    require_distinct_columns,
    require_keys,
    require_most_keys,
    require_name,
)
from streamops.kernel.placement import BY_KEY, GREATEST, Placement
from streamops.search.core.evaluate import Documents
from streamops.search.core.fields import EXPECTED, field_type
from streamops.search.core.index import QueryIndex
from streamops.search.core.nodes import NODES
from streamops.search.core.parse import DefaultOperator, Language, compile_queries
from streamops.search.core.tokens import split_tokens

__all__ = [
    "METRICS",
    "PLACEMENT",
    "STATE",
    "MatchSpec",
    "Rejected",
    "check",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

Rejected = Literal["drop", "route"]

STATE = StateFormat("search.match", 1)
PLACEMENT = Placement({"rows": BY_KEY, "evicted": GREATEST}, watermark="greatest")
METRICS = {
    "changes": "rows",  # every shard sees all documents: Spark counts them
    **{name: name for name in ("rejected", "on_time", "too_late", "results")},
}

INVALID_QUERY = "invalid_query"
COMPILED = "_compiled"
"""Column of packed changes with the compiled query."""

_DOCUMENTS_AT_ONCE = 1 << 15
_INDEXES = 32
_REASON = pa.struct([("reason", pa.string()), ("position", pa.int32()), ("message", pa.string())])
_indexes: OrderedDict[bytes, tuple[QueryIndex, pa.Array]] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSpec:
    """The parameters of :func:`streamops.search.match`.

    The horizon is in microseconds, or in units of the sequence without ``time``. ``inputs``, ``output``
    and ``limit``, the queries that one shard may store, are resolved.
    """

    times: ClassVar[tuple[None, None]] = (None, None)
    delays: ClassVar[tuple[None, None]] = (None, None)
    accepts_revisions: ClassVar[tuple[bool, bool]] = (False, True)
    needs_preimages: ClassVar[bool] = False
    event_time: ClassVar[str | None] = None
    lag: ClassVar[int] = 0
    held_back: ClassVar[int] = 0

    where: str = field(repr=False)  # name of the operator, for errors
    text: tuple[str, ...]
    fields: tuple[str, ...]
    id: str
    query: str
    default_operator: DefaultOperator
    sequence: tuple[str, ...]
    horizon: int
    time: str | None
    max_keys: int
    when_full: WhenFull
    rejected: Rejected
    into: str
    inputs: tuple[Input, ...] = field(default=(), repr=False)
    output: pa.Schema = field(default=pa.schema([]), repr=False)
    limit: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        choices = {
            "default_operator": DefaultOperator,
            "when_full": WhenFull,
            "rejected": Rejected,
        }
        for name, choice in choices.items():
            require_choice(getattr(self, name), choice, parameter=name, where=self.where)
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS, where=self.where)
        require_distinct_columns(self.where, id=self.id, query=self.query)
        require_name(self.into, parameter="into", where=self.where)
        both = [name for name in self.text if name in self.fields]
        if both or not self.text + self.fields:
            raise SpecError(
                "SAME_COLUMN" if both else "NO_COLUMNS",
                "a column cannot be text and a field"
                if both
                else "the documents have neither text nor fields",
                where=self.where,
                got=f"text={self.text!r}, fields={self.fields!r}",
                expected="each column once",
                fix="name it as text to search its words, or as a field to compare its whole value",
            )
        reserved = {self.id, self.query} & {*self.sequence, self.time}
        if reserved:
            raise SpecError(
                "SAME_COLUMN",
                "the id and the query cannot order the changes of a query",
                where=self.where,
                got=f"id={self.id!r}, query={self.query!r}, sequence={self.sequence!r}, "
                f"time={self.time!r}",
                expected="other columns",
                fix="name the position in the log as `sequence`",
            )
        columns = {"id": (self.id,), "sequence": self.sequence, "time": (self.time,)}
        refuse_change_type(columns, where=self.where)

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        return (*self.text, *self.fields), (self.id, *self.sequence)

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> MatchSpec:
        """Resolve the parameters against the schemas of the documents and of the queries."""
        documents, queries = schemas
        where = f"{self.where}, documents"
        require_columns(documents.names, {"text": self.text, "fields": self.fields}, where=where)
        for name in self.text:
            if not pa.types.is_string(documents.field(name).type):
                fix = f"F.array_join({name!r}, ' ') for an array; or name it in `fields`"
                refuse_type(documents, name, "text", "string", fix, where=where)
        for name in self.fields:
            if field_type(documents.field(name).type) is None:
                fix = "cast it: a decimal to bigint or double"
                refuse_type(documents, name, "a field", EXPECTED, fix, where=where)
        where = f"{self.where}, queries"
        times = () if self.time is None else (self.time,)
        used = {"id": (self.id,), "query": (self.query,), "sequence": self.sequence, "time": times}
        require_columns(queries.names, used, where=where)
        require_keys(queries, (self.id,), where=where)
        require_change_columns(queries, self.sequence, self.time, where=where)
        if not pa.types.is_string(queries.field(self.query).type):
            refuse_type(queries, self.query, "the query", "string", "cast it", where=where)
        if COMPILED in queries.names and COMPILED in {name for n in used.values() for name in n}:
            raise self._name_taken(queries.names, [COMPILED])
        wanted = {name for names in used.values() for name in names} | {*CHANGE_COLUMNS}
        read = pa.schema([column for column in queries if column.name in wanted])
        added = [pa.field(self.into, queries.field(self.id).type)]
        if self.rejected == "route":
            row = pa.struct([column for column in read if column.name not in CHANGE_COLUMNS])
            added.append(pa.field(REJECTED, pa.struct([*_REASON, ("row", row)])))
        taken = {column.name.lower() for column in added}
        if len(taken) < len(added) or taken & {name.lower() for name in documents.names}:
            raise self._name_taken(documents.names, sorted(taken))
        columns = [column.with_nullable(True) for column in documents]
        return replace(
            self,
            inputs=(Input((), None, documents, is_broadcast=True), Input((self.id,), None, read)),
            output=pa.schema([*columns, *added]),
            limit=-(-self.max_keys // shards),
        )

    def _name_taken(self, names: Sequence[str], added: Sequence[str]) -> SchemaError:
        return SchemaError(
            "NAME_TAKEN",
            "two columns of the result have the same name",
            where=self.where,
            got=f"columns {', '.join(names)}",
            expected=f"columns unlike {', '.join(added)}, which the operator adds",
            fix="rename the column before, or set another name for the id with into=...",
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
        """The table of queries whose latest rows are stored, resolved."""
        columns = [column for column in self.inputs[1].schema if column.name != REJECTED]
        added = [pa.field(REJECTED, _REASON), pa.field(COMPILED, NODES)]
        return KeyedTable(
            where=self.where,
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
        """All that the state depends on: the table, and what a query means."""
        schema = self.inputs[1].schema
        parts = {"by": (self.id,), "sequence": self.sequence}
        columns = {
            part: [[name, str(schema.field(name).type)] for name in names]
            for part, names in parts.items()
        }
        fields = [[name, str(self.documents.field(name).type)] for name in self.fields]
        operator = self.default_operator
        return {
            **columns,
            "time": self.time,
            "text": list(self.text),
            "fields": fields,
            "default_operator": operator,
        }


def layout(spec: MatchSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables: the compiled queries."""
    return latest_layout(spec.table)


def pack(spec: MatchSpec, rows: pa.Table, side: SideName) -> pa.Table:
    """Documents with the words of their text columns; changes with compiled queries."""
    if side == "left":
        rows = conform(rows, spec.documents)
        for number, name in enumerate(spec.text):
            rows = rows.append_column(f"_tokens.{number}", split_tokens(rows.column(name)))
        return rows
    rows = conform(rows, spec.inputs[1].schema)
    return _compile_changes(spec, rows)


def step(spec: MatchSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    documents, changes = inputs
    late, metrics = spec.output.empty_table(), Metrics()
    if len(changes):
        state, late, metrics = _apply_changes(spec, state, changes)
    output = _match_documents(spec, state, documents)
    return Step(state, output, late, metrics + Metrics(results=len(output)))


def run(spec: MatchSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result: all in one step, so that documents are matched with the final queries."""
    only = step(spec, State.empty(layout(spec)), inputs, None)
    return concat([only.output, only.late])


def check(spec: MatchSpec, state: State) -> None:
    """Each query is stored once; tombstones are within the horizon and have no query."""
    check_latest_rows(spec.table, state)


def _compile_changes(spec: MatchSpec, rows: pa.Table) -> pa.Table:
    """Changes with their compiled queries; those whose query is invalid are rejected."""
    count, names = len(rows), rows.column_names
    is_read = np.ones(count, np.bool_)
    if CHANGE_TYPE in names:
        types = combine_chunks(rows.column(CHANGE_TYPE))
        wanted = pa.array([INSERT, POSTIMAGE])
        is_read &= np.asarray(pc.is_in(types, value_set=wanted))
    if TOMBSTONE in names:
        is_read &= ~np.asarray(combine_chunks(rows.column(TOMBSTONE)).fill_null(False))
    before = pa.nulls(count, pa.string())
    if REJECTED in names:
        before = pc.struct_field(combine_chunks(rows.column(REJECTED)), "reason")
        was_rejected = np.asarray(combine_chunks(rows.column(REJECTED)).is_valid())
        is_read &= ~was_rejected
    else:
        was_rejected = np.zeros(count, np.bool_)
    if UNAVAILABLE in names:
        lists = combine_chunks(rows.column(UNAVAILABLE))
        sizes = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
        is_query = np.asarray(pc.equal(lists.flatten(), spec.query).fill_null(False))
        lacks = np.zeros(count, np.bool_)
        lacks[np.repeat(np.arange(count), sizes)[is_query]] = True
        is_read &= ~lacks
        ends = 2 * np.append(0, np.cumsum(lacks)).astype(np.int32)
        missing = pa.array([spec.query, COMPILED] * int(lacks.sum()), pa.string())
        column = pa.ListArray.from_arrays(pa.array(ends), missing)
        at = names.index(UNAVAILABLE)
        rows = rows.set_column(at, UNAVAILABLE, column)
    at = np.flatnonzero(is_read)
    queries = combine_chunks(rows.column(spec.query)).take(pa.array(at))
    compiled, errors = compile_queries(spec.language, queries.to_pylist())
    number = np.full(count, -1)
    number[at] = np.arange(len(at))
    index = pa.array(number, mask=number < 0)
    reason = pa.array([None if error is None else INVALID_QUERY for error in errors], pa.string())
    position = pa.array([error and error.position for error in errors], pa.int32())
    message = pa.array([error and error.message for error in errors], pa.string())
    is_invalid = np.array([error is not None for error in errors], np.bool_)
    mask = ~was_rejected
    mask[at[is_invalid]] = False
    reasons = pa.StructArray.from_arrays(
        [
            pc.if_else(pa.array(is_read), reason.take(index), before),
            position.take(index),
            message.take(index),
        ],
        fields=list(_REASON),
        mask=pa.array(mask),
    )
    columns = {name: rows.column(name) for name in rows.column_names}
    columns |= {REJECTED: reasons, COMPILED: compiled.take(index)}
    schema = spec.table.input
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _apply_changes(
    spec: MatchSpec, state: State, rows: pa.Table
) -> tuple[State, pa.Table, Metrics]:
    """The state after the changes, the rejected ones as side output, and metrics."""
    table = spec.table
    changes = ClassifiedChanges.of(table, rows)
    batch, duplicates = accept_changes(table, state, changes)
    ordered = batch.ordered
    is_effective, stale = find_effective(batch, ordered)
    last = np.flatnonzero(is_effective & ordered.ends)
    source = carry_forward(ordered, batch.missing)[last]
    values = gather_values(batch.values, ordered, source)
    latest = build_latest_rows(batch, ordered, last, source, values, {})
    clock = advance_clock(state.watermark, changes.clock)
    stored = concat([batch.untouched, latest])
    tables = evict_tombstones(table, clock, stored, state.tables["evicted"])
    rejected = np.flatnonzero(changes.is_rejected)
    late = spec.output.empty_table()
    if spec.rejected == "route" and len(rejected):
        late = _build_rejected(spec, take(rows, rejected), changes.reasons(rejected))
    metrics = Metrics(
        rows=len(rows),
        rejected=len(rejected),
        on_time=len(rows) - len(rejected) - stale - duplicates,
        too_late=stale + duplicates,
    )
    return State(clock, tables), late, metrics


def _build_rejected(spec: MatchSpec, rows: pa.Table, reasons: pa.Array) -> pa.Table:
    """Rejected changes in the output schema: all columns are null except ``rejected``."""
    dtype = spec.output.field(REJECTED).type
    fields = list(dtype.field("row").type)
    row = pa.StructArray.from_arrays(
        [combine_chunks(rows.column(column.name)) for column in fields], fields=fields
    )
    of = combine_chunks(rows.column(REJECTED))
    details = [pc.struct_field(of, name) for name in ("position", "message")]
    tag = pa.StructArray.from_arrays([reasons, *details, row], fields=list(dtype))
    count = len(rows)
    columns = [tag if f.name == REJECTED else pa.nulls(count, f.type) for f in spec.output]
    return pa.table(columns, schema=spec.output)


def _match_documents(spec: MatchSpec, state: State, documents: pa.Table) -> pa.Table:
    """One row for each document and matching query."""
    if not len(documents) or not len(state.tables["rows"]):
        return spec.output.empty_table()
    index, ids = _find_index(spec, state.tables["rows"])
    if not len(ids):
        return spec.output.empty_table()
    count, parts = len(spec.documents), []
    for first in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        some = documents.slice(first, _DOCUMENTS_AT_ONCE)
        tokens = [some.column(count + number) for number in range(len(spec.text))]
        fields = [some.column(name) for name in spec.fields]
        document, query = index.match(Documents(tokens, fields, len(some)))
        parts.append((document + first, query))
    document, query = (np.concatenate(part) for part in zip(*parts, strict=True))
    at = pa.array(document)
    columns = [combine_chunks(column).take(at) for column in documents.columns[:count]]
    columns.append(ids.take(pa.array(query)))
    columns += [pa.nulls(len(at), column.type) for column in list(spec.output)[count + 1 :]]
    return pa.table(columns, schema=spec.output)


def _find_index(spec: MatchSpec, rows: pa.Table) -> tuple[QueryIndex, pa.Array]:
    """The index of the stored queries, and their ids; built if this worker has none of them.

    A query is known by its text: the compiled one is a function of it and of the parameters.
    """
    parameters = f"{STATE} {spec.identity}".encode()
    content = ipc_write(rows.select(["key.0", "is_deleted", "value.0"]))
    key = hashlib.blake2b(content, key=hashlib.blake2b(parameters).digest()).digest()
    found = _indexes.get(key)
    if found is None:
        is_live = pc.invert(combine_chunks(rows.column("is_deleted")))
        has_query = combine_chunks(rows.column("value.1")).is_valid()
        live = rows.filter(pc.and_(is_live, has_query))
        nodes = combine_chunks(live.column("value.1"))
        index = QueryIndex.of(nodes, len(spec.text), len(spec.fields))
        found = index, combine_chunks(live.column("key.0"))
        _indexes[key] = found
        if len(_indexes) > _INDEXES:
            _indexes.popitem(last=False)
    _indexes.move_to_end(key)
    return found
