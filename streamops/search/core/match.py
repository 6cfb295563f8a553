"""Match documents against the stored queries that are in effect when they are processed.

A step applies the changes of the queries to their stored copy first, then matches all documents: none
waits, and no result is revised. :mod:`streamops.changelog.latest` defines the copy, and which changes
count. Each shard stores a part of the queries, and receives all documents.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from weakref import ReferenceType, WeakValueDictionary, ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE
from streamops.changelog.latest import (
    apply_changes,
    check_latest_rows,
    evicted_schema,
    latest_schema,
)
from streamops.changelog.table import REJECTED, TOMBSTONE, UNAVAILABLE
from streamops.kernel.codec import ipc_write
from streamops.kernel.columns import combine_chunks, conform, take
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Ids
from streamops.kernel.lateness import build_late
from streamops.kernel.operator import Core, Table
from streamops.kernel.placement import GREATEST, Placement
from streamops.search.core.evaluate import Documents, QueryIndex
from streamops.search.core.parse import compile_queries, split_tokens
from streamops.search.core.spec import COMPILED, REASON, MatchSpec

INVALID_QUERY = "invalid_query"

_DOCUMENTS_AT_ONCE = 1 << 15


@dataclass(frozen=True, weakref_slot=True, slots=True)
class StoredQueries:
    """The index of the queries that are live in a table of the state, and their ids."""

    index: QueryIndex
    ids: pa.Array


_by_content: WeakValueDictionary[bytes, StoredQueries] = WeakValueDictionary()
_by_table: dict[int, tuple[ReferenceType[pa.Table], str, StoredQueries]] = {}
"""By the address of a table, which is an entry until the table is freed."""


def compile_changes(spec: MatchSpec, rows: pa.Table) -> pa.Table:
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
        fields=list(REASON),
        mask=pa.array(mask),
    )
    columns = {name: rows.column(name) for name in rows.column_names}
    columns |= {REJECTED: reasons, COMPILED: compiled.take(index)}
    schema = spec.table.input
    return pa.table([columns[name] for name in schema.names], schema=schema)


def route_changes(
    spec: MatchSpec, rows: pa.Table, at: Ids, fields: Mapping[str, pa.Array]
) -> pa.Table:
    """Packed changes as side output, with the error in the query of each."""
    if spec.rejected != "route" or not len(at):
        return spec.output.empty_table()
    some = take(rows, at)
    error = combine_chunks(some.column(REJECTED))
    found = {name: pc.struct_field(error, name) for name in ("position", "message")}
    return build_late(spec.output, some, {**fields, **found}, side="right")


def find_matches(
    index: QueryIndex,
    documents: pa.Table,
    tokens: Sequence[pa.ChunkedArray],
    fields: Sequence[str],
) -> tuple[Ids, Ids]:
    """The documents and the queries that match: pairs of positions."""
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for first in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        some = documents.slice(first, _DOCUMENTS_AT_ONCE)
        document, query = index.match(
            Documents(
                [column.slice(first, _DOCUMENTS_AT_ONCE) for column in tokens],
                [some.column(name) for name in fields],
                len(some),
            )
        )
        parts.append((document + first, query))
    document, query = (np.concatenate(part) for part in zip(*parts, strict=True))
    return document, query


def build_matches(
    spec: MatchSpec, documents: pa.Table, ids: pa.Array, document: Ids, query: Ids
) -> pa.Table:
    """The output for pairs of documents and queries."""
    at = pa.array(document)
    columns = [combine_chunks(documents.column(name)).take(at) for name in spec.documents.names]
    columns.append(ids.take(pa.array(query)))
    columns += [pa.nulls(len(at), of.type) for of in list(spec.output)[len(columns) :]]
    return pa.table(columns, schema=spec.output)


def find_index(
    spec: MatchSpec, layout: StateFormat, rows: pa.Table, is_live: pa.Array
) -> tuple[QueryIndex, pa.Array]:
    """The index of the stored queries that are live, and their ids; built if this worker has none of them.

    The index of the same table is found by its address, so that a step without changes does not read all
    queries; that of an equal table by a digest of its content. A query is known by its text: the compiled
    one is a function of it and of the parameters.
    """
    parameters = f"{layout} {spec.identity}"
    table, known, found = _by_table.get(id(rows), (None, "", None))
    if found is None or table is None or table() is not rows or known != parameters:
        found = _find_by_content(spec, parameters, rows, is_live)
        address = id(rows)
        table = ref(rows, lambda _: _by_table.pop(address, None))
        _by_table[address] = table, parameters, found
    return found.index, found.ids


def _find_by_content(
    spec: MatchSpec, parameters: str, rows: pa.Table, is_live: pa.Array
) -> StoredQueries:
    content = ipc_write(rows.select(["key.0", "value.0"]).append_column("is_live", is_live))
    digest = hashlib.blake2b(parameters.encode()).digest()
    key = hashlib.blake2b(content, key=digest).digest()
    found = _by_content.get(key)
    if found is None:
        live = rows.filter(is_live)
        nodes = combine_chunks(live.column("value.1"))
        index = QueryIndex.of(nodes, len(spec.text), len(spec.fields))
        found = StoredQueries(index, combine_chunks(live.column("key.0")))
        _by_content[key] = found
    return found


class SearchCore(Core[MatchSpec]):
    """Match documents against the stored queries that are in effect when they are processed."""

    STATE = StateFormat("search.match", 1)
    TABLES: ClassVar = {
        "rows": Table(lambda spec: latest_schema(spec.table)),
        "evicted": Table(lambda spec: evicted_schema(spec.table), GREATEST),
    }
    PLACEMENT = Placement(watermark="greatest")
    METRICS: ClassVar = {
        "changes": "rows",  # every shard sees all documents: Spark counts them
        **{name: name for name in ("rejected", "on_time", "too_late", "results")},
    }
    RETAINED_BYTES = sys.maxsize

    def pack(self, spec: MatchSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Documents with the words of their text columns; changes with compiled queries."""
        if side == "left":
            rows = conform(rows, spec.documents)
            for number, name in enumerate(spec.text):
                rows = rows.append_column(f"_tokens.{number}", split_tokens(rows.column(name)))
            return rows
        return compile_changes(spec, conform(rows, spec.inputs[1].schema))

    def step(
        self, spec: MatchSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring. The watermark does not matter."""
        documents, changes = inputs
        late, metrics = spec.output.empty_table(), Metrics()
        if len(changes):
            state, applied, metrics = apply_changes(spec.table, state, changes)
            rejected = np.flatnonzero(applied.is_rejected)
            late = route_changes(spec, changes, rejected, {"reason": applied.reasons(rejected)})
        output = _match_documents(spec, state.tables["rows"], documents)
        return Step(state, output, late, metrics + Metrics(results=len(output)))

    def check(self, spec: MatchSpec, state: State) -> None:
        """Each query is stored once; tombstones are within the horizon and have no query."""
        check_latest_rows(spec.table, state)


def _match_documents(spec: MatchSpec, rows: pa.Table, documents: pa.Table) -> pa.Table:
    """One row for each document and matching query."""
    if not len(documents) or not len(rows):
        return spec.output.empty_table()
    index, ids = _find_index(spec, rows)
    if not len(ids):
        return spec.output.empty_table()
    count = len(spec.documents)
    tokens = [documents.column(count + number) for number in range(len(spec.text))]
    document, query = find_matches(index, documents, tokens, spec.fields)
    return build_matches(spec, documents, ids, document, query)


def _find_index(spec: MatchSpec, rows: pa.Table) -> tuple[QueryIndex, pa.Array]:
    """The index of the stored queries, and their ids."""
    has_query = combine_chunks(rows.column("value.1")).is_valid()
    is_live = pc.and_(pc.invert(combine_chunks(rows.column("is_deleted"))), has_query)
    return find_index(spec, SearchCore.STATE, rows, is_live)
