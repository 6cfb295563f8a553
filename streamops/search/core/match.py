"""Match documents against the stored queries that are in effect when they are processed.

A step applies the changes of the queries to their stored copy first, then matches all documents: none
waits, and no result is revised. :mod:`streamops.changelog.latest` defines the copy, and which changes
count. Each shard stores a part of the queries, and receives all documents.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.latest import (
    apply_changes,
    check_latest_rows,
    evicted_schema,
    latest_schema,
)
from streamops.kernel.columns import combine_chunks, conform
from streamops.kernel.core import (
    Metrics,
    SideName,
    State,
    StateFormat,
    Step,
)
from streamops.kernel.operator import Core, Table
from streamops.kernel.placement import GREATEST, Placement
from streamops.search.core.index import QueryIndex
from streamops.search.core.queries import (
    build_matches,
    compile_changes,
    find_index,
    find_matches,
    route_changes,
)
from streamops.search.core.spec import MatchSpec
from streamops.search.core.tokens import split_tokens


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
