"""Enrichment: each fact with the current row of a table, when the fact is processed.

A step applies the changes of the table to its stored copy first, then joins all facts: no fact waits,
and no result is revised. :mod:`streamops.changelog.latest` defines the copy, and which changes count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import key_columns
from streamops.changelog.change_types import CHANGE_TYPE, INSERT, REVISION
from streamops.changelog.latest import (
    apply_changes,
    check_latest_rows,
    evicted_schema,
    latest_schema,
    map_values,
)
from streamops.changelog.table import (
    DEFAULT_MAX_KEYS,
    SNAPSHOT,
    KeyedTable,
    WhenFull,
    refuse_change_type,
    require_change_columns,
    value_columns,
)
from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    JoinSpec,
    added_columns,
    join_values,
    require_into,
    require_key_types,
    show_keys,
)
from streamops.kernel import conditions as common
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, take
from streamops.kernel.core import Identity, Input, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.errors import located
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.lateness import build_late
from streamops.kernel.operator import Core, Table
from streamops.kernel.parameters import require_columns, require_most_keys
from streamops.kernel.placement import GREATEST, ByKey, Placement, key_names

How = Literal["left", "inner"]
Rejected = Literal["drop", "route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichSpec(JoinSpec):
    """The parameters of :func:`streamops.joins.enrich`.

    The horizon is in microseconds, or in units of the sequence without ``time``. ``limit``, the keys
    that one shard may store, is resolved.
    """

    sequence: tuple[str, ...]
    horizon: int
    time: str | None
    how: How
    max_keys: int
    when_full: WhenFull
    rejected: Rejected
    into: str
    limit: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        require_into(self.into)
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS)
        if {*self.right_by} & {*self.sequence, self.time}:
            raise common.KEY_AS_SEQUENCE.error(
                got=f"by={show_keys(self.by)}, sequence={self.sequence!r}, time={self.time!r}",
            )
        columns = {"by": self.right_by, "sequence": self.sequence, "time": (self.time,)}
        refuse_change_type(columns)
        if self.sequence == (REVISION,):
            raise conditions.SEQUENCE_OF_A_TABLE.error(got=f"sequence={self.sequence[0]!r}")

    @property
    def declared(self) -> tuple[Input, Input]:
        """The facts, and the changes of the table."""
        changes = Input(self.right_by, columns=self.sequence, accepts_revisions=True)
        return Input(self.left_by), changes

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> EnrichSpec:
        """Resolve the parameters against the schemas of the facts and of the changes."""
        left, right = schemas
        used = {"by": self.right_by, "sequence": self.sequence, "time": self.times_of_table}
        with located(at="left frame"):
            require_columns(left.names, {"by": self.left_by})
        with located(at="right frame"):
            require_columns(right.names, used)
        require_key_types(left, right, self.by)
        with located(at="right frame"):
            require_change_columns(right, self.sequence, self.time)
        inputs = self.resolve_inputs(schemas, carried)
        names = {*self.right_by, *value_columns(right, self.right_by, self.sequence)}
        row = pa.schema([column for column in right if column.name in names])
        late = (left, right) if self.rejected == "route" else None
        added = added_columns(self.into, changes=False, late=late)
        limit = -(-self.max_keys // shards)
        return replace(self.with_columns(inputs, left, row, added), limit=limit)

    @property
    def times_of_table(self) -> tuple[str, ...]:
        """The column ``time`` of the table, if there is one."""
        return () if self.time is None else (self.time,)

    @property
    def table(self) -> KeyedTable:
        """The table whose latest rows are stored, resolved."""
        schema = self.right.schema
        if SNAPSHOT not in schema.names:
            schema = schema.append(pa.field(SNAPSHOT, pa.bool_()))
        return KeyedTable(
            key=self.right_by,
            sequence=self.sequence,
            time=self.time,
            horizon=self.horizon,
            values=tuple(sorted(value_columns(schema, self.right_by, self.sequence))),
            input=schema,
            snapshots="below_log",  # the log has all changes since the snapshot was started
            limit=self.limit,
            when_full=self.when_full,
        )

    @property
    def snapshot_columns(self) -> tuple[str, ...]:
        """Columns that a row of a snapshot must have."""
        columns = (*self.right_by, *self.sequence, *self.times_of_table, *self.table.values)
        return tuple(dict.fromkeys(columns))

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on: the table. The horizon and the limit may change."""
        table = self.table
        parts = {"by": table.by, "sequence": table.sequence, "values": table.values}
        columns = {
            part: [[name, str(table.input.field(name).type)] for name in names]
            for part, names in parts.items()
        }
        return {**columns, "time": table.time}


def _snapshot_schema(spec: EnrichSpec) -> pa.Schema:
    types = (spec.table.input.field(name).type for name in spec.snapshot_columns)
    return pa.schema([(f"column.{i}", dtype) for i, dtype in enumerate(types)])


class EnrichCore(Core[EnrichSpec]):
    """Enrichment: each fact with the current row of a table, when the fact is processed."""

    STATE = StateFormat("joins.enrich", 1)
    TABLES: ClassVar = {
        "rows": Table(lambda spec: latest_schema(spec.table)),
        "evicted": Table(lambda spec: evicted_schema(spec.table), GREATEST),
        # Rows of a snapshot that no step has applied. The key columns are the first ones.
        "snapshot": Table(_snapshot_schema, ByKey(columns=key_names, key=key_names)),
    }
    PLACEMENT = Placement(watermark="greatest")

    def begin(self, spec: EnrichSpec, state: State, snapshot: pa.Table) -> State:
        """The state with packed rows of a snapshot, which the first step applies before all changes.

        So that step counts them, and emits those that are rejected.
        """
        columns = snapshot.select(list(spec.snapshot_columns)).columns
        rows = pa.table(columns, schema=_snapshot_schema(spec))
        return State(
            state.watermark, {**state.tables, "snapshot": concat([state.tables["snapshot"], rows])}
        )

    def pack(self, spec: EnrichSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """The rows unchanged. Changes without a column ``_snapshot`` are not from a snapshot."""
        if side == "left":
            return conform(rows, spec.left.schema)
        rows, schema = conform(rows, spec.right.schema), spec.table.input
        if len(schema) > len(rows.schema):
            rows = rows.append_column(schema.field(SNAPSHOT), pa.nulls(len(rows), pa.bool_()))
        return rows

    def step(
        self, spec: EnrichSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring. The watermark does not matter."""
        left, right = inputs
        waiting = state.tables["snapshot"]
        if len(waiting):
            right = concat([_to_changes(spec, waiting), right])
        late, metrics = spec.output.empty_table(), Metrics()
        if len(right):
            state, late, metrics = _apply_changes(spec, state, right)
        output = _join_facts(spec, state.tables["rows"], left)
        metrics += Metrics(rows=len(left), on_time=len(left), results=len(output))
        return Step(state, output, late, metrics)

    def adapt(
        self,
        spec: EnrichSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the values by name."""
        by, sequence, values = (
            [name for name, _ in stored[part]] for part in ("by", "sequence", "values")
        )
        before = dict.fromkeys((*by, *sequence, *spec.times_of_table, *values))
        snapshot = map_columns(
            spec.snapshot_columns, before, tables["snapshot"], _snapshot_schema(spec)
        )
        rows = map_values(spec.table, values, tables["rows"])
        return {**tables, "rows": rows, "snapshot": snapshot}

    def check(self, spec: EnrichSpec, state: State) -> None:
        """Each key is stored once; tombstones are within the horizon and have no values."""
        check_latest_rows(spec.table, state)


def _to_changes(spec: EnrichSpec, snapshot: pa.Table) -> pa.Table:
    """Rows of a snapshot as changes."""
    columns = dict(zip(spec.snapshot_columns, snapshot.columns, strict=True))
    constants = {SNAPSHOT: True, CHANGE_TYPE: INSERT}
    schema = spec.table.input
    for column in schema:
        if column.name not in columns:
            value = pa.scalar(constants.get(column.name), column.type)
            columns[column.name] = pa.repeat(value, len(snapshot))
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _apply_changes(
    spec: EnrichSpec, state: State, rows: pa.Table
) -> tuple[State, pa.Table, Metrics]:
    """The state after the changes, the rejected ones as side output, and metrics."""
    snapshot = state.tables["snapshot"].slice(0, 0)
    state, changes, metrics = apply_changes(spec.table, state, rows)
    state = State(state.watermark, {**state.tables, "snapshot": snapshot})
    rejected = np.flatnonzero(changes.is_rejected)
    late = spec.output.empty_table()
    if spec.rejected == "route" and len(rejected):
        bad = take(rows.select(spec.right.schema.names), rejected)
        reasons = {"reason": changes.reasons(rejected)}
        late = build_late(spec.output, bad, reasons, side="right")
    return state, late, metrics


def _join_facts(spec: EnrichSpec, rows: pa.Table, facts: pa.Table) -> pa.Table:
    """Facts with the stored rows of their keys; nulls where there is none."""
    if not len(facts):
        return spec.output.empty_table()
    found = _find_rows(spec, rows, facts)
    if spec.how == "inner":
        chosen = np.flatnonzero(found >= 0)
        facts, found = take(facts, chosen), found[chosen]
    values = spec.table.values
    columns = [rows.column(f"value.{values.index(name)}") for name, _ in spec.names.right]
    return join_values(spec.output, facts, columns, found)


def _find_rows(spec: EnrichSpec, rows: pa.Table, facts: pa.Table) -> Ids:
    """The stored row of the key of each fact; -1 if there is none. Stored keys are not null."""
    pairs = zip(key_columns(spec.table), spec.left_by, strict=True)
    keys = [
        pa.concat_arrays([combine_chunks(rows.column(own)), combine_chunks(facts.column(name))])
        for own, name in pairs
    ]
    groups, _ = Groups.of(key_codes(keys, len(rows) + len(facts)))
    # Every stored row has a key of its own.
    present = np.flatnonzero(~np.asarray(combine_chunks(rows.column("is_deleted"))))
    position = np.full(groups.count, -1, np.int64)
    position[groups.ids[present]] = present
    found: Ids = position[groups.ids[len(rows) :]]
    return found
