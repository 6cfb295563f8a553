"""Match documents against the stored queries that were valid at their event time.

A document at ``t`` waits until the operator's watermark has reached ``t``. It is then matched with the
version of each query that was in effect at ``t``: the newest at or before it. Rows are late if their time is
not above the watermark of the previous step. A late document is not matched; a late version counts for
every document that is still waiting.

Versions, and when they are evicted, are those of as-of joins: :mod:`streamops.changelog.versions`. Of every
query the newest version at or below the watermark is stored, and all above it; a query that was deleted
longer ago than the horizon is evicted. Each shard stores the versions of a part of the queries, and all
documents that wait. One index has all stored versions; of the matches that it finds, those are emitted
whose version was valid at the time of the document.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import first_of_runs, last_of_runs, over_limit
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.versions import Direction, KeyedRows, Versions, is_deleted
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import (
    by_name,
    combine_chunks,
    concat,
    conform,
    filter_rows,
    key_codes,
    take,
    timestamp_micros,
)
from streamops.kernel.core import OWNED, Identity, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.lateness import Lateness, build_late
from streamops.kernel.operator import Core, Table
from streamops.kernel.placement import EVERYWHERE, GREATEST
from streamops.kernel.time import (
    AFTER_ALL,
    BEFORE_ALL,
    Instants,
    advance_watermark,
)
from streamops.search.core.match import (
    build_matches,
    compile_changes,
    find_index,
    find_matches,
    route_changes,
)
from streamops.search.core.nodes import NODES
from streamops.search.core.parse import split_tokens
from streamops.search.core.spec import MatchSpec


@dataclass(frozen=True, slots=True)
class _StoredVersions:
    """The columns of stored versions, see :class:`streamops.changelog.versions.VersionedTable`."""

    right_by: tuple[str, ...] = ("key.0",)
    version: str = "time"
    sequence: str = "sequence"
    until: str | None = None
    deleted: str | None = "is_deleted"
    changes: bool = False
    tolerance: int | None = None
    direction: Direction = "backward"
    allow_exact: bool = True


_STORED = _StoredVersions()


def _version_schema(spec: MatchSpec) -> pa.Schema:
    table = spec.table
    return pa.schema(
        [
            ("key.0", table.input.field(spec.id).type),
            ("time", pa.int64()),
            ("sequence", table.position),
            ("is_deleted", pa.bool_()),
            ("value.0", pa.string()),
            ("value.1", NODES),
        ]
    )


class SearchAsofCore(Core[MatchSpec]):
    """Match documents against the stored queries that were valid at their event time."""

    STATE = StateFormat("search.match_as_of", 1)
    TABLES: ClassVar = {
        "versions": Table(_version_schema),
        "documents": Table(lambda spec: by_name(spec.documents), EVERYWHERE),
        "evicted": Table(lambda spec: pa.schema([("time", pa.int64())]), GREATEST),
    }
    METRICS: ClassVar = {
        name: name for name in ("rows", "rejected", "on_time", "too_late", "results")
    }
    RETAINED_BYTES = sys.maxsize

    def pack(self, spec: MatchSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Documents with their columns in the order of the state; changes with compiled queries."""
        if side == "right":
            return compile_changes(spec, conform(rows, spec.inputs[1].schema))
        rows = conform(rows, by_name(spec.documents))
        return rows.append_column(OWNED, pa.array(np.ones(len(rows), np.bool_)))

    def adapt(
        self,
        spec: MatchSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the columns of waiting documents by name."""
        schema, waiting = by_name(spec.documents), tables["documents"]
        mapped = map_columns(schema.names, waiting.column_names, waiting, schema)
        return {**tables, "documents": mapped}

    def step(
        self, spec: MatchSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring."""
        left, right = inputs
        previous = state.watermark
        watermark = advance_watermark(previous, watermark)
        current = BEFORE_ALL if watermark is None else watermark
        arrived, late_documents, metrics = _accept_documents(spec, left, previous)
        versions = _read(state.tables["versions"])
        late = [late_documents]
        if len(right):
            versions, late_changes, counted = _accept_changes(spec, state, right)
            late, metrics = [*late, late_changes], metrics + counted

        documents = concat([state.tables["documents"], arrived])
        times, _ = _times_of(spec, documents)
        due = times <= current
        output = _match_documents(spec, versions, filter_rows(documents, due), times[due])
        stored, evicted = _evict(spec, versions, state.tables["evicted"], current)
        tables = {"versions": stored, "documents": filter_rows(documents, ~due), "evicted": evicted}
        metrics += Metrics(results=len(output))
        return Step(State(watermark, tables), output, concat(late), metrics)

    def next_deadline(self, spec: MatchSpec, state: State) -> int | None:
        """The next watermark at which a document is matched, or a version is evicted."""
        versions = _read(state.tables["versions"])
        times, _ = _times_of(spec, state.tables["documents"])
        forgotten = versions.times[_is_deleted_alone(versions)] + spec.horizon
        due = np.concatenate([times, versions.evicted_at(_STORED), forgotten])
        return int(due.min()) if len(due) else None

    def check(self, spec: MatchSpec, state: State) -> None:
        """Every version is stored once, in order, and no row longer than needed."""
        current = BEFORE_ALL if state.watermark is None else state.watermark
        versions = _read(state.tables["versions"])
        details = f"watermark {state.watermark}\n{state.tables['versions'].to_string()}"
        keys = int(np.count_nonzero(first_of_runs(versions.keys)))
        assert keys == len(np.unique(versions.keys)) <= spec.limit, f"not in order: {details}"
        same = versions.keys[1:] == versions.keys[:-1]
        assert (np.diff(versions.times)[same] >= 0).all(), f"not in order: {details}"
        assert versions.is_needed(_STORED, current).all(), f"versions overdue: {details}"
        deletes = versions.times[_is_deleted_alone(versions)]
        assert (deletes + spec.horizon > current).all(), f"deletes overdue: {details}"
        documents = state.tables["documents"]
        times, _ = _times_of(spec, documents)
        assert (times > current).all(), f"watermark {state.watermark}\n{documents.to_string()}"
        assert len(state.tables["evicted"]) <= 1, state.tables["evicted"].to_string()


def _accept_documents(
    spec: MatchSpec, packed: pa.Table, previous: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """The documents to match; the others as side output of the shard that owns them; its metrics."""
    schema = by_name(spec.documents)
    rows = packed.select(list(range(len(schema))))
    is_owned = np.asarray(combine_chunks(packed.column(packed.num_columns - 1)))
    assert spec.as_of is not None
    lateness = Lateness.of(rows.column(spec.as_of), previous)
    accepted = lateness.on_time
    missed: Ids = np.flatnonzero(is_owned & ~accepted)
    late = spec.output.empty_table()
    if spec.rejected == "route" and len(missed):
        fields = lateness.take(missed).fields
        late = build_late(spec.output, take(rows, missed), fields, side="left")
    return filter_rows(rows, accepted), late, lateness.take(np.flatnonzero(is_owned)).metrics


def _accept_changes(
    spec: MatchSpec, state: State, rows: pa.Table
) -> tuple[Versions, pa.Table, Metrics]:
    """Stored and new versions; side output for changes that are rejected or late; metrics."""
    stored, evicted = state.tables["versions"], state.tables["evicted"]
    changes = ClassifiedChanges.of(spec.table, rows)
    # An update that did not send the query did not change it.
    changes = changes.without(changes.missing[:, 0])
    keys = pa.concat_arrays([combine_chunks(stored.column("key.0")), changes.column(spec.id)])
    known, new = np.split(key_codes([keys], len(keys)), [len(stored)])
    if len(evicted):
        # It may be older than a delete that is not stored any more.
        bound = combine_chunks(evicted.column("time"))[0].as_py()
        forgotten = ~np.isin(new, known) & (changes.clock <= bound)
        changes, new = changes.without(forgotten, "forgotten"), new[~forgotten]
    unknown, firsts = np.unique(new, return_index=True)
    is_added = ~np.isin(unknown, known)
    ids = changes.column(spec.id).take(pa.array(firsts[is_added]))
    count = int(np.count_nonzero(first_of_runs(known)))  # versions of a query are neighbours
    out = over_limit(spec.table, [ids], count)
    is_over = np.isin(new, unknown[is_added][out])
    changes, new = changes.without(is_over, "full"), new[~is_over]

    merged = Versions.merge(
        _STORED,
        KeyedRows(stored, known, _times(stored)),
        KeyedRows(_build_versions(spec, changes), new, changes.clock),
    )
    changes.reject(np.flatnonzero(merged.is_rejected), "conflict")
    rejected = np.flatnonzero(changes.is_rejected)
    lateness = Lateness.compare(changes.clock, state.watermark)
    is_late = lateness.too_late & ~merged.is_rejected
    missed = changes.positions[is_late]
    metrics = Metrics(
        rows=len(rows),
        rejected=len(rejected),
        on_time=len(rows) - len(rejected) - len(missed),
        too_late=len(missed),
    )
    late = [
        route_changes(spec, rows, rejected, {"reason": changes.reasons(rejected)}),
        route_changes(spec, rows, missed, lateness.take(np.flatnonzero(is_late)).fields),
    ]
    return merged.versions, concat(late), metrics


def _build_versions(spec: MatchSpec, changes: ClassifiedChanges) -> pa.Table:
    """Changes as rows of the state. A delete has no query."""
    schema = _version_schema(spec)
    has_query = pa.array(np.arange(len(changes)), mask=changes.is_delete)
    columns = [changes.column(spec.id), pa.array(changes.clock), changes.sequence]
    columns.append(pa.array(changes.is_delete))
    columns += [changes.column(name).take(has_query) for name in spec.table.values]
    return pa.table(columns, schema=schema)


def _match_documents(
    spec: MatchSpec, versions: Versions, documents: pa.Table, times: Instants
) -> pa.Table:
    """One row for each document and query that was valid at its time."""
    if not len(documents) or not len(versions):
        return spec.output.empty_table()
    ends = np.append(versions.times[1:], AFTER_ALL)
    ends[last_of_runs(versions.keys)] = AFTER_ALL
    is_live = ~is_deleted(_STORED, versions.table) & (versions.times < ends)
    index, ids = find_index(spec, SearchAsofCore.STATE, versions.table, pa.array(is_live))
    if not len(ids):
        return spec.output.empty_table()
    begins, ends = versions.times[is_live], ends[is_live]
    tokens = [split_tokens(documents.column(name)) for name in spec.text]
    document, query = find_matches(index, documents, tokens, spec.fields)
    at = times[document]
    is_valid = (begins[query] <= at) & (at < ends[query])
    return build_matches(spec, documents, ids, document[is_valid], query[is_valid])


def _evict(
    spec: MatchSpec, versions: Versions, evicted: pa.Table, watermark: int
) -> tuple[pa.Table, pa.Table]:
    """The versions that a later document may need; the newest delete that was evicted, if any."""
    needed = np.flatnonzero(versions.is_needed(_STORED, watermark))
    if len(needed) < len(versions):
        versions = Versions.in_order(
            _STORED,
            KeyedRows(take(versions.table, needed), versions.keys[needed], versions.times[needed]),
        )
    is_old = _is_deleted_alone(versions) & (versions.times + spec.horizon <= watermark)
    if is_old.any():
        newest = max([*evicted.column("time").to_pylist(), int(versions.times[is_old].max())])
        evicted = pa.table([pa.array([newest])], schema=evicted.schema)
    return filter_rows(versions.table, ~is_old), evicted


def _is_deleted_alone(versions: Versions) -> Mask:
    """Which versions are deletes of queries that have no other version."""
    is_alone = first_of_runs(versions.keys) & last_of_runs(versions.keys)
    return is_alone & is_deleted(_STORED, versions.table)


def _read(stored: pa.Table) -> Versions:
    """The versions of a state: those of a query are neighbours, in order."""
    codes = key_codes([combine_chunks(stored.column("key.0"))], len(stored))
    return Versions.in_order(_STORED, KeyedRows(stored, codes, _times(stored)))


def _times_of(spec: MatchSpec, documents: pa.Table) -> tuple[Instants, Mask]:
    """The event times of documents, and which of them are there."""
    assert spec.as_of is not None
    return timestamp_micros(documents.column(spec.as_of))


def _times(stored: pa.Table) -> Instants:
    times: Instants = np.asarray(combine_chunks(stored.column("time")))
    return times
