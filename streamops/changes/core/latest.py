"""The latest row of each key, emitted as a change stream with the rows before and after.

:mod:`streamops.changelog.latest` determines the effective changes and evicts tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.batch import (
    NONE,
    KeyedBatch,
    OrderedChanges,
    carry_forward,
    first_of_runs,
    gather_values,
    last_of_runs,
)
from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.classify import ClassifiedChanges, copy_truncates
from streamops.changelog.emit import EmittedChanges, emit_changes
from streamops.changelog.latest import (
    accept_changes,
    advance_clock,
    apply_truncates,
    build_latest_rows,
    check_latest_rows,
    evict_tombstones,
    evicted_schema,
    find_effective,
    latest_schema,
    map_values,
)
from streamops.changelog.table import (
    DEFAULT_MAX_KEYS,
    DELTA_SEQUENCE,
    REJECTED,
    KeyedTable,
    require_change_columns,
    value_columns,
)
from streamops.changes import conditions
from streamops.kernel import conditions as common
from streamops.kernel.columns import combine_chunks, concat, null_table
from streamops.kernel.core import Identity, Input, Metrics, State, StateFormat, Step
from streamops.kernel.groups import Ids, Ints, Mask
from streamops.kernel.hashing import digest_version
from streamops.kernel.operator import Core, Spec, Table, checkpointed
from streamops.kernel.parameters import (
    refuse_taken_names,
    require_columns,
    require_keys,
    require_most_keys,
)
from streamops.kernel.placement import GREATEST, Placement

Publish = Literal["every change", "last"]
History = Literal["overwrite", "intervals"]

VALID_FROM, VALID_TO = "valid_from", "valid_to"


@dataclass(frozen=True, slots=True)
class ChangeMetrics(Metrics):
    """Metrics of a step."""

    stale: int = 0  # changes older than the stored row of their key, or below a truncate
    duplicates: int = 0  # changes that arrived before
    ignored: int = 0  # rows that do not change the table: preimages, tombstones
    deletes: int = 0  # rows that were deleted


METRICS = {
    name: name
    for name in (
        *("rows", "rejected", "stale", "duplicates"),
        *("ignored", "results", "corrections", "deletes"),
    )
}
"""Observed metrics of a micro-batch: names, and fields of the metrics."""


@dataclass(frozen=True, kw_only=True)
class TableSpec(KeyedTable, Spec):
    """Parameters of an operator that stores the latest row of each key, and emits its changes."""

    max_keys: int  # number of keys that the operator may store, over all shards
    publish: Publish  # which changes of a micro-batch are emitted

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if {*self.key} & {*self.sequence, self.time}:
            raise common.KEY_AS_SEQUENCE.error(
                got=f"key={self.key!r}, sequence={self.sequence!r}, time={self.time!r}"
            )
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS)

    @property
    def truncates(self) -> bool:
        """Whether a truncate is a change, and not an unknown operation."""
        return True

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input. Every shard receives the truncates."""
        return (
            Input(
                self.key,
                schema=self.input,
                columns=self.sequence,
                accepts_revisions=True,
                replicate=partial(copy_truncates, self),
            ),
        )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> TableSpec:
        """The parameters, with the columns of a frame.

        Raises
        ------
        SchemaError, ColumnNotFound
            A column does not exist or has the wrong type, or a name is taken.
        """
        (schema,) = schemas
        roles = {"key": self.key, "sequence": self.sequence, "time": (self.time,)}
        for role, names in roles.items():
            require_columns(schema.names, {role: names})
        require_keys(schema, self.key)
        require_change_columns(schema, self.sequence, self.time)
        values = value_columns(schema, self.key, self.sequence)
        self._refuse_taken((*self.key, *values), (REVISION, CHANGE_TYPE, REJECTED))
        limit = -(-self.max_keys // shards)
        return replace(self, input=schema, values=values, limit=limit)

    def _refuse_taken(self, names: Sequence[str], added: Sequence[str]) -> None:
        taken = sorted(name for name in names if name.lower() in added)
        if taken:
            raise conditions.NAME_TAKEN.error(
                taken=", ".join(taken),
                name=taken[0],
                added=", ".join(added),
                got=f"columns {', '.join(names)}",
            )

    @property
    def row(self) -> list[pa.Field]:
        """Fields of a row of the table, the key first."""
        return [self.input.field(name) for name in (*self.by, *self.values)]

    @cached_property
    def output(self) -> pa.Schema:
        """The row, the revision of its key, and its change type; or a rejected row."""
        rejected = pa.struct([("reason", pa.string()), ("row", pa.struct(list(self.input)))])
        own = [(REVISION, pa.int32()), (CHANGE_TYPE, pa.string()), (REJECTED, rejected)]
        return pa.schema([*self.row, *own])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output that hold values of a column of the input."""
        return {name: (0, name) for name in (*self.by, *self.values)}


def _tracked_values(spec: ApplySpec, track: tuple[str, ...] | None) -> list[str]:
    """The values whose changes begin an interval: the state depends on them."""
    return [] if spec.history == "overwrite" else list(spec.tracked)


@dataclass(frozen=True, kw_only=True)
class ApplySpec(TableSpec):
    """Parameters of ``apply``."""

    publish: Publish = field(default="last", repr=False)
    history: History = (
        checkpointed()
    )  # whether a row replaces the previous one, or ends its interval
    track: tuple[str, ...] | None = checkpointed(
        _tracked_values
    )  # values that begin a new interval when they change; None is all
    surrogate: str | None = None  # the column that identifies an interval

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if self.surrogate is not None and self.history == "overwrite":
            raise conditions.SURROGATE_WITHOUT_HISTORY.error(
                got=f"surrogate={self.surrogate!r}, history={self.history!r}"
            )
        if self.track is not None and self.history == "overwrite":
            raise conditions.TRACK_WITHOUT_HISTORY.error(
                got=f"track={self.track!r}, history={self.history!r}"
            )
        super().__post_init__()

    @property
    def identity(self) -> Identity:
        """With what identifies intervals."""
        if self.history == "overwrite":
            return super().identity
        types = (self.input.field(name).type for name in self.key)
        return {**super().identity, **digest_version(types)}

    @property
    def truncates(self) -> bool:
        """Whether a truncate is a change. It does not end intervals."""
        return self.history == "overwrite"

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> TableSpec:
        """The parameters, with the columns of a frame."""
        spec = super().resolve(schemas, carried=carried, shards=shards)
        if self.history == "intervals":
            require_columns(spec.values, {"track": self.track or ()})
            self._refuse_taken((*spec.by, *spec.values), (VALID_FROM, VALID_TO))
            if self.surrogate is not None:
                refuse_taken_names(spec.output.names, (), {"surrogate": self.surrogate})
        return spec

    @property
    def tracked(self) -> tuple[str, ...]:
        """Values that begin a new interval when they change."""
        return self.values if self.track is None else self.track

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of ``TableSpec``; with ``history="intervals"``, also those of the interval."""
        schema = super().output
        if self.history == "overwrite":
            return schema
        interval = [pa.field(VALID_FROM, self.position), pa.field(VALID_TO, self.position)]
        if self.surrogate is not None:
            interval.insert(0, pa.field(self.surrogate, pa.string()))
        size = len(self.by)
        return pa.schema([*list(schema)[:size], *interval, *list(schema)[size:]])


def rejected_rows(spec: TableSpec, changes: ClassifiedChanges) -> pa.Table:
    """The rejected rows, as rows of the output."""
    positions = np.flatnonzero(changes.is_rejected)
    index, dtype = pa.array(positions), spec.output.field(REJECTED).type
    rows = [combine_chunks(changes.rows.column(name)).take(index) for name in spec.input.names]
    row = pa.StructArray.from_arrays(rows, fields=list(spec.input))
    rejected = pa.StructArray.from_arrays([changes.reasons(positions), row], fields=list(dtype))
    table = null_table(pa.schema(list(spec.output)[:-1]), len(positions))
    return table.append_column(spec.output.field(REJECTED), rejected)


def is_replaced(spec: KeyedTable, key: Ids, sequence: pa.Array, is_delete: Mask) -> Mask:
    """Which deletes are followed by another change of their key in the same Delta commit.

    Only Delta's log has an update as two changes of one commit. The changes are sorted by key and
    sequence.
    """
    if len(spec.sequence) > 1 or sequence.type != DELTA_SEQUENCE or not len(sequence):
        return np.zeros(len(sequence), np.bool_)
    version = np.asarray(pc.struct_field(sequence, "version"))
    continues = (key[1:] == key[:-1]) & (version[1:] == version[:-1])
    result: Mask = is_delete & np.append(continues, False)
    return result


_REVISION = ("revision", pa.int32())


class LatestCore(Core[TableSpec]):
    """The latest row of each key, emitted as a change stream with the rows before and after."""

    STATE = StateFormat("changes.latest", 1)
    TABLES: ClassVar = {
        "rows": Table(lambda spec: latest_schema(spec, [_REVISION])),
        "evicted": Table(lambda spec: evicted_schema(spec, [_REVISION]), GREATEST),
        "truncated": Table(lambda spec: pa.schema([("sequence", spec.position)]), GREATEST),
    }
    PLACEMENT = Placement(watermark="greatest")
    METRICS_TYPE = ChangeMetrics
    METRICS = METRICS

    def step(
        self,
        spec: TableSpec,
        state: State,
        inputs: Sequence[pa.Table],
        watermark: int | None = None,
    ) -> Step:
        """Process one micro-batch."""
        (packed,) = inputs
        received = ClassifiedChanges.of(spec, packed)
        clock = advance_clock(
            advance_clock(state.watermark, received.clock), received.truncates.clock
        )
        truncation = apply_truncates(spec, state, received)
        changes = truncation.changes
        batch, duplicates = accept_changes(spec, state, changes)
        ordered = batch.ordered
        source = carry_forward(ordered, batch.missing)
        is_effective, stale = find_effective(batch, ordered)
        if spec.publish == "last":
            is_effective &= ordered.ends
        effective = np.flatnonzero(is_effective)
        sequence = batch.sequences.take(pa.array(ordered.row[effective]))
        effective = effective[
            ~is_replaced(spec, ordered.key[effective], sequence, ordered.is_delete[effective])
        ]
        values = gather_values(batch.values, ordered, source[effective])
        output, emitted, revision = _emit(spec, state, batch, ordered, effective, values)
        ends = np.flatnonzero(last_of_runs(ordered.key[effective]))
        rows = build_latest_rows(
            batch,
            ordered,
            effective[ends],
            source[effective[ends]],
            [value.take(pa.array(ends)) for value in values],
            {"revision": pa.array(revision[ends].astype(np.int32))},
        )
        metrics = ChangeMetrics(
            rows=changes.counted,
            rejected=int(np.count_nonzero(changes.is_rejected)),
            results=emitted.inserts,
            corrections=emitted.updates,
            deletes=emitted.deletes,
            stale=stale + truncation.stale,
            duplicates=duplicates + truncation.duplicates,
            ignored=changes.ignored,
        )
        tables = evict_tombstones(
            spec, clock, concat([batch.untouched, rows]), state.tables["evicted"]
        )
        tables["truncated"] = truncation.truncated
        output = concat([output, rejected_rows(spec, changes)])
        return Step(State(clock, tables), output, spec.output.empty_table(), metrics)

    def adapt(
        self,
        spec: TableSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the values by name."""
        before = [name for name, _ in stored["values"]]
        return {**tables, "rows": map_values(spec, before, tables["rows"], [_REVISION])}

    def check(self, spec: TableSpec, state: State) -> None:
        """A key is stored once; tombstones are within the horizon and have no values."""
        check_latest_rows(spec, state)
        assert len(state.tables["truncated"]) <= 1, str(state.tables)


def _emit(
    spec: TableSpec,
    state: State,
    batch: KeyedBatch,
    ordered: OrderedChanges,
    effective: Ids,
    values: Sequence[pa.Array],
) -> tuple[pa.Table, EmittedChanges, Ints]:
    """Emit each version of a row that differs from the previous one.

    Each effective change makes a version. Returns rows of the output, the emitted changes, and the
    revision of the key after each version.
    """
    key, has_row, stored = ordered.key[effective], ~ordered.is_delete[effective], batch.stored
    number, begins = np.arange(len(key)), first_of_runs(key)
    before_batch = [combine_chunks(stored.column(f"value.{i}")) for i in range(len(values))]
    pools = [pa.concat_arrays(pair) for pair in zip(values, before_batch, strict=True)]
    keys = int(ordered.key.max(initial=NONE)) + 1
    previous = np.full(keys, NONE)  # position of the stored row of each key in the pools
    is_deleted = np.asarray(combine_chunks(stored.column("is_deleted")))
    previous[: len(stored)] = np.where(is_deleted, NONE, len(key) + np.arange(len(stored)))
    # An unknown key may be an evicted one: it continues above the highest revision evicted.
    evicted = state.tables["evicted"].column("revision").to_pylist()
    revision = np.full(keys, max(evicted, default=NONE))
    revision[: len(stored)] = np.asarray(combine_chunks(stored.column("revision")))

    before = np.where(begins, previous[key], number - 1)
    existed = np.where(begins, before != NONE, has_row[number - 1])
    old, new = np.flatnonzero(existed), np.flatnonzero(has_row)
    changes = emit_changes(
        [value.take(pa.array(before[old])) for value in pools],
        [value.take(pa.array(new)) for value in pools],
        (old, new),
        order=(2 * old, 2 * new + 1),
    )
    publishes = np.zeros(len(number), np.int64)
    publishes[new] = changes.is_emitted
    total = np.cumsum(publishes)
    start = (total - publishes)[begins]
    after = revision[key] + total - start[np.cumsum(begins) - 1]
    row = pa.array(changes.take_ints(before[old], new))
    emitted = changes.take_ints((after - publishes)[old], after[new])
    columns = [
        *batch.keys_of(key[changes.take_ints(old, new)]),
        *(value.take(row) for value in pools),
        pa.array(emitted.astype(np.int32)),
        changes.change_type,
        pa.nulls(len(row), spec.output.field(REJECTED).type),
    ]
    return pa.table(columns, schema=spec.output), changes, after
