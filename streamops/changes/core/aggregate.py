"""Aggregates of groups over a change stream, emitted as a change stream.

Counts, sums and means are stored as totals, from which rows can be retracted exactly. For other
aggregates the rows of the group are stored, and the aggregate is computed again: once the row with the
minimum is deleted, the minimum does not determine the next one. A group has a result while it has more
added than retracted rows. State is a sum of changes: their order does not matter, and a row that is
both added and retracted, in either order, leaves no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, change_weights
from streamops.changelog.emit import EmittedChanges, emit_changes
from streamops.changelog.table import REJECTED, SIDE_OUTPUT, UNKNOWN_OPERATION, is_rejected_type
from streamops.changes import conditions
from streamops.changes.core.totals import CountTotal, DecimalTotal, FloatTotal, IntTotal, Total
from streamops.kernel.aggregation import Aggregation, Summary, aggregate_identity
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, null_table, take
from streamops.kernel.core import Input, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.operator import Core, Spec, Table, checkpointed, with_types
from streamops.kernel.ordering import ranks
from streamops.kernel.parameters import refuse_taken_names, require_columns, require_keys

Rejected = Literal["drop", "route"]

_BY_EVENT_TIME = ("first", "last", "collect_list")
_IGNORE_EQUAL_ROWS = ("min", "max", "count_distinct")


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate, bound to the columns of a frame."""

    name: str
    text: str  # the aggregate as the user wrote it
    summary: Summary  # computes the aggregate of rows that are never retracted
    total: Total | None  # None if the rows are stored, and the aggregate is computed again
    ignores_equal_rows: bool  # whether equal rows count once


def _identity_of(spec: AggregateSpec, aggregates: tuple[BoundAggregate, ...]) -> list[list[str]]:
    return [
        [
            *aggregate_identity(bound.name, bound.text, bound.summary, spec.input),
            *(f"{name} {spec.input.field(name).type}" for name in bound.summary.inputs),
            *(["rows"] if bound.total is None else [name for name, _ in bound.total.fields]),
        ]
        for bound in aggregates
    ]


@dataclass(frozen=True, kw_only=True)
class AggregateSpec(Spec):
    """Parameters of ``aggregate``."""

    by: tuple[str, ...] = checkpointed(with_types)
    agg: tuple[tuple[str, Aggregation], ...]
    functions: tuple[str, ...] = field(
        repr=False
    )  # function of each aggregate; "" for the user's own
    rejected: Rejected  # what happens to rows that are not changes
    # Set by ``resolve``. Columns to read are all columns if rejected rows are routed.
    aggregates: tuple[BoundAggregate, ...] = checkpointed(
        _identity_of, {"parameter": "agg"}, default=(), repr=False
    )
    input: pa.Schema = field(default_factory=lambda: pa.schema([]), repr=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if not self.agg:
            raise conditions.NO_AGGREGATE.error(got="agg={}")
        for (name, aggregation), function in zip(self.agg, self.functions, strict=True):
            if function in _BY_EVENT_TIME:
                column = aggregation.columns[0]
                raise conditions.AGGREGATE_BY_TIME.error(
                    aggregation=aggregation, column=column, got=f"{name}={aggregation!r}"
                )
        names = [name for name, _ in self.agg]
        added = (CHANGE_TYPE, *([REJECTED] if self.rejected == "route" else []))
        given = {"by": list(self.by), "agg": names}
        refuse_taken_names([*self.by, *names], added, given)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input."""
        columns = tuple(name for _, item in self.agg for name in item.columns)
        return (
            Input(
                self.by,
                schema=self.input,
                columns=columns,
                accepts_revisions=True,
                needs_preimages=True,
            ),
        )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> AggregateSpec:
        """The parameters, with the columns of a frame."""
        (schema,) = schemas
        if CHANGE_TYPE not in schema.names or schema.field(CHANGE_TYPE).type != pa.string():
            raise conditions.NOT_A_CHANGE_STREAM.error(
                change_type=CHANGE_TYPE, got=f"columns {', '.join(schema.names)}"
            )
        require_columns(schema.names, {"by": self.by})
        require_keys(schema, self.by)
        pairs = zip(self.agg, self.functions, strict=True)
        aggregates = tuple(self._bound(*pair, function, schema) for pair, function in pairs)
        if self.rejected == "drop":
            read = {*self.by, CHANGE_TYPE}
            read |= {name for aggregate in aggregates for name in aggregate.summary.inputs}
            schema = pa.schema([column for column in schema if column.name in read])
        return replace(self, aggregates=aggregates, input=schema)

    def _bound(
        self, name: str, aggregation: Aggregation, function: str, schema: pa.Schema
    ) -> BoundAggregate:
        # An aggregate of the user's own may not check this.
        role = f"agg: {aggregation!r}"
        require_columns(schema.names, {role: aggregation.columns})
        # Sketches raise an error here, as rows cannot be retracted from them.
        summary = aggregation.bind(schema, time="")
        total = _total(function, summary, schema)
        return BoundAggregate(
            name, repr(aggregation), summary, total, function in _IGNORE_EQUAL_ROWS
        )

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns, with their names in the state."""
        return [self.input.field(name).with_name(f"key.{i}") for i, name in enumerate(self.by)]

    @cached_property
    def totals(self) -> list[Total]:
        """Totals of the aggregates that have one."""
        return [aggregate.total for aggregate in self.aggregates if aggregate.total is not None]

    @cached_property
    def recomputed(self) -> list[BoundAggregate]:
        """Aggregates that are computed again from the rows."""
        return [aggregate for aggregate in self.aggregates if aggregate.total is None]

    @cached_property
    def read_columns(self) -> list[str]:
        """Columns that the aggregates read, sorted: their order in a frame must not matter."""
        return sorted({name for aggregate in self.aggregates for name in aggregate.summary.inputs})

    @cached_property
    def stored_columns(self) -> list[str]:
        """Columns of the stored rows, sorted."""
        return sorted({name for aggregate in self.recomputed for name in aggregate.summary.inputs})

    @cached_property
    def groups(self) -> pa.Schema:
        """Stored groups: the number of rows of each, and its totals."""
        states = [
            (f"agg.{i}.{name}", dtype)
            for i, total in enumerate(self.totals)
            for name, dtype in total.fields
        ]
        return pa.schema([*self.keys, ("rows", pa.int64()), *states])

    @cached_property
    def rows(self) -> pa.Schema:
        """The stored rows, each with its group and multiplicity."""
        columns = [
            self.input.field(name).with_name(f"c.{i}") for i, name in enumerate(self.stored_columns)
        ]
        return pa.schema([*self.keys, *columns, ("weight", pa.int64())])

    @property
    def routed(self) -> list[pa.Field]:
        """The column of rejected rows, if they are routed."""
        if self.rejected == "drop":
            return []
        dtype = pa.struct([("reason", pa.string()), ("row", pa.struct(list(self.input)))])
        return [pa.field(REJECTED, dtype)]

    @cached_property
    def packed(self) -> pa.Schema:
        """Net changes per group, or per distinct row if rows are stored; and routed rejected rows."""
        counts = [(name, pa.int64()) for name in ("weight", "changes", "bad")]
        if not self.recomputed:
            totals = list(self.groups)[len(self.by) + 1 :]
            return pa.schema([*self.keys, *counts, *totals, *self.routed])
        columns = [
            self.input.field(name).with_name(f"c.{i}") for i, name in enumerate(self.read_columns)
        ]
        return pa.schema([*self.keys, *columns, *counts, *self.routed])

    @cached_property
    def output(self) -> pa.Schema:
        """Keys, aggregates, the change type, and rejected rows if they are routed."""
        keys = [self.input.field(name) for name in self.by]
        values = [(aggregate.name, aggregate.summary.result) for aggregate in self.aggregates]
        return pa.schema([*keys, *values, (CHANGE_TYPE, pa.string()), *self.routed])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output that hold values of a column of the input, or lists of them."""
        found = {name: (0, name) for name in self.by}
        for aggregate in self.aggregates:
            summary = aggregate.summary
            if summary.inputs:
                dtype = self.input.field(summary.inputs[0]).type
                if summary.result in (dtype, pa.list_(dtype)):
                    found[aggregate.name] = (0, summary.inputs[0])
        return found


def _total(function: str, summary: Summary, schema: pa.Schema) -> Total | None:
    """The total of an aggregate from which rows can be retracted exactly; None for others."""
    if function == "count":
        return CountTotal(summary)
    if function not in ("sum", "mean"):
        return None
    dtype, mean = schema.field(summary.inputs[0]).type, function == "mean"
    if pa.types.is_decimal(dtype):
        return DecimalTotal(summary, dtype, mean)
    return FloatTotal(summary, mean) if pa.types.is_floating(dtype) else IntTotal(summary, mean)


Columns = list[pa.Array]


class AggregateCore(Core[AggregateSpec]):
    """Aggregates of groups over a change stream, emitted as a change stream."""

    STATE = StateFormat("changes.aggregate", 1)
    TABLES: ClassVar = {
        "groups": Table(lambda spec: spec.groups),
        "rows": Table(lambda spec: spec.rows if spec.recomputed else None),
    }
    METRICS: ClassVar = {name: name for name in ("rows", "rejected", "results", "corrections")}
    """Observed metrics of a micro-batch: names, and fields of the metrics."""

    def pack(self, spec: AggregateSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Sum changes per group, or per distinct row if rows are stored.

        Rows with an unknown change type are counted, and passed on whole if they are routed.
        """
        rows = conform(rows, spec.input)
        weight = change_weights(rows.column(CHANGE_TYPE))
        if not spec.routed or weight.all():
            return _net_changes(spec, rows, weight)
        good, bad = np.flatnonzero(weight), np.flatnonzero(weight == 0)
        net = _net_changes(spec, take(rows, good), weight[good])
        return concat([net, _pack_rejected(spec, take(rows, bad))])

    def step(
        self,
        spec: AggregateSpec,
        state: State,
        inputs: Sequence[pa.Table],
        watermark: int | None = None,
    ) -> Step:
        """Process one micro-batch."""
        (packed,) = inputs
        received, bad = (
            int(np.asarray(combine_chunks(packed.column(name))).sum())
            for name in ("changes", "bad")
        )
        packed, rejected = _split_rejected(spec, packed)
        stored = state.tables["groups"]
        groups = _TouchedGroups.of(spec, state, packed)
        states_before = [
            combine_chunks(column).take(pa.array(groups.stored)) for column in _totals(spec, stored)
        ]
        size_before = np.zeros(groups.count, np.int64)
        size_before[: len(groups.stored)] = np.asarray(combine_chunks(stored.column("rows")))[
            groups.stored
        ]
        weight = np.asarray(combine_chunks(packed.column("weight")))
        size_after = size_before + Groups(groups.of_changes, groups.count).sum_ints(weight)
        states = _merge_totals(spec, groups, states_before, packed, weight)

        before, after = np.flatnonzero(size_before > 0), np.flatnonzero(size_after > 0)
        values_before = _estimate_totals(spec, states_before, before)
        values_after = _estimate_totals(spec, states, after)
        rows_table: dict[str, pa.Table] = {}
        has_rows = np.zeros(groups.count, np.bool_)
        if spec.recomputed:
            rows = _Multiset.of(spec, state, groups, packed, weight)
            rows_table["rows"] = rows.store(spec, state, groups)
            has_rows[rows.groups.ids[rows.after != 0]] = True
            recomputed_before, recomputed_after = rows.estimate(spec.recomputed)
            values_before = _in_order(spec, values_before, recomputed_before, before)
            values_after = _in_order(spec, values_after, recomputed_after, after)

        remains = (size_after != 0) | has_rows | ~_is_empty(spec, states, groups.count)
        touched = pa.table([*groups.keys, pa.array(size_after), *states], schema=spec.groups)
        untouched = np.ones(len(stored), np.bool_)
        untouched[groups.stored] = False
        table = concat([stored.filter(pa.array(untouched)), touched.filter(pa.array(remains))])
        emitted, changes = _emit(spec, groups.keys, (before, values_before), (after, values_after))
        metrics = Metrics(
            rows=received, rejected=bad, results=changes.inserts, corrections=changes.updates
        )
        tables = {"groups": table, **rows_table}
        return Step(
            State(None, tables), concat([emitted, rejected]), spec.output.empty_table(), metrics
        )

    def check(self, spec: AggregateSpec, state: State) -> None:
        """Groups and rows are stored once, and only if they are not empty."""
        groups = state.tables["groups"]
        found = str({name: format_rows(table) for name, table in state.tables.items()})
        keys = [combine_chunks(column) for column in groups.columns[: len(spec.by)]]
        distinct, _ = Groups.of(key_codes(keys, len(groups)))
        assert distinct.count == len(groups), f"a group twice: {found}"
        if spec.recomputed:
            rows = state.tables["rows"]
            weight = np.asarray(combine_chunks(rows.column("weight")))
            assert (weight != 0).all(), f"a row with weight 0: {found}"
            distinct, _ = Groups.of(key_codes(rows.columns[:-1], len(rows)))
            assert distinct.count == len(rows), f"a row twice: {found}"
        else:
            is_empty = np.asarray(combine_chunks(groups.column("rows"))) == 0
            states = [combine_chunks(column) for column in _totals(spec, groups)]
            is_empty &= _is_empty(spec, states, len(groups))
            assert not is_empty.any(), f"an empty group: {found}"


def _net_changes(spec: AggregateSpec, rows: pa.Table, weight: Ints) -> pa.Table:
    names = [*spec.by, *spec.read_columns] if spec.recomputed else [*spec.by]
    columns = [combine_chunks(rows.column(name)) for name in names]
    groups, firsts = Groups.of(key_codes(columns, len(rows)))
    index = pa.array(firsts)
    counts = [groups.sum_ints(weight), groups.sizes(), groups.sum_ints((weight == 0) * 1)]
    states = [] if spec.recomputed else _update_totals(spec, groups, rows, weight)
    arrays = [*(column.take(index) for column in columns), *map(pa.array, counts), *states]
    arrays += [pa.nulls(groups.count, field.type) for field in spec.routed]
    return pa.table(arrays, schema=spec.packed)


def _pack_rejected(spec: AggregateSpec, rows: pa.Table) -> pa.Table:
    """Rejected rows, as packed rows that change no group. An earlier operator's reason is preserved."""
    count = len(rows)
    reason = pa.repeat(UNKNOWN_OPERATION, count)
    for name in SIDE_OUTPUT:
        if name in spec.input.names and is_rejected_type(spec.input.field(name).type):
            own = pc.struct_field(combine_chunks(rows.column(name)), "reason")
            reason = pc.coalesce(own, reason)
    (field,) = spec.routed
    columns = [combine_chunks(column) for column in rows.columns]
    row = pa.StructArray.from_arrays(columns, fields=list(spec.input))
    values: dict[str, pa.Array] = {
        "weight": pa.repeat(0, count),
        "changes": pa.repeat(1, count),
        "bad": pa.repeat(1, count),
        REJECTED: pa.StructArray.from_arrays([reason, row], fields=list(field.type)),
    }
    arrays = [values.get(column.name, pa.nulls(count, column.type)) for column in spec.packed]
    return pa.table(arrays, schema=spec.packed)


def _split_rejected(spec: AggregateSpec, packed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split packed rows into net changes and rejected rows, in the columns of the output."""
    if not spec.routed:
        return packed, spec.output.empty_table()
    *columns, last = packed.columns
    rejected = combine_chunks(last).drop_null()
    net = pa.table(columns, schema=pa.schema(list(spec.packed)[:-1])).filter(last.is_null())
    blank = null_table(pa.schema(list(spec.output)[:-1]), len(rejected))
    return net, pa.table([*blank.columns, rejected], schema=spec.output)


@dataclass(frozen=True, slots=True)
class _TouchedGroups:
    """The groups with changes: first the stored ones, in their order, then new ones."""

    stored: Ids  # positions of the stored groups
    count: int
    of_changes: Ids  # group of each packed row
    of_rows: Ids  # group of each stored row; -1 for rows of other groups
    keys: Columns

    @staticmethod
    def of(spec: AggregateSpec, state: State, packed: pa.Table) -> _TouchedGroups:
        """Find the groups."""
        tables = [state.tables["groups"], packed]
        if spec.recomputed:
            tables.append(state.tables["rows"])
        columns = [
            pa.concat_arrays([combine_chunks(table.column(i)) for table in tables])
            for i in range(len(spec.by))
        ]
        sizes = [len(table) for table in tables]
        # Stored groups are distinct and come first: the number of each is its position.
        groups, firsts = Groups.of(key_codes(columns, sum(sizes)))
        numbers = np.split(groups.ids, np.cumsum(sizes)[:-1])
        touched = np.unique(numbers[1])
        slot = np.full(groups.count, -1, np.int64)
        slot[touched] = np.arange(len(touched))
        keys = [column.take(pa.array(firsts[touched])) for column in columns]
        of_rows = slot[numbers[2]] if spec.recomputed else np.zeros(0, np.int64)
        stored = touched[touched < sizes[0]]
        return _TouchedGroups(stored, len(touched), slot[numbers[1]], of_rows, keys)


def _totals(spec: AggregateSpec, table: pa.Table) -> list[pa.ChunkedArray]:
    """The columns of totals, which are the last ones of a table."""
    width = sum(len(total.fields) for total in spec.totals)
    columns: list[pa.ChunkedArray] = table.columns
    return columns[len(columns) - width :]


def _update_totals(spec: AggregateSpec, groups: Groups, rows: pa.Table, weight: Ints) -> Columns:
    """The totals of the rows of each group."""
    return [state for total in spec.totals for state in total.update(groups, rows, weight)]


def _merge_totals(
    spec: AggregateSpec, groups: _TouchedGroups, before: Columns, packed: pa.Table, weight: Ints
) -> Columns:
    """The totals of the groups after the changes."""
    if spec.recomputed:
        members = Groups(groups.of_changes, groups.count)
        added = _update_totals(spec, members, _changed_rows(spec, packed), weight)
        slots = np.arange(groups.count)
    else:
        added = [combine_chunks(column) for column in _totals(spec, packed)]
        slots = groups.of_changes
    pools = [pa.concat_arrays(pair) for pair in zip(before, added, strict=True)]
    members = Groups(np.concatenate([np.arange(len(groups.stored)), slots]), groups.count)
    return [state for total, own in _by_total(spec, pools) for state in total.merge(members, own)]


def _changed_rows(spec: AggregateSpec, packed: pa.Table) -> pa.Table:
    """The rows of net changes, with the names of their columns."""
    start = len(spec.by)
    names = spec.read_columns
    return packed.select(range(start, start + len(names))).rename_columns(names)


def _by_total(spec: AggregateSpec, columns: Columns) -> Iterator[tuple[Total, Columns]]:
    """Each total, and its columns."""
    remaining = iter(columns)
    for total in spec.totals:
        yield total, list(islice(remaining, len(total.fields)))


def _estimate_totals(spec: AggregateSpec, states: Columns, groups: Ids) -> Columns:
    """The aggregates of these groups that have totals."""
    selected = [state.take(pa.array(groups)) for state in states]
    return [total.estimate(own) for total, own in _by_total(spec, selected)]


def _is_empty(spec: AggregateSpec, states: Columns, count: int) -> Mask:
    """Which groups have only empty totals."""
    empty = np.ones(count, np.bool_)
    for total, own in _by_total(spec, states):
        empty &= total.is_empty(own)
    return empty


@dataclass(frozen=True, slots=True)
class _Multiset:
    """The distinct rows of the touched groups."""

    rows: pa.Table
    groups: Groups  # group of each row
    before: Ints  # multiplicity of each row before the step
    after: Ints  # multiplicity of each row after the step

    @staticmethod
    def of(
        spec: AggregateSpec,
        state: State,
        touched: _TouchedGroups,
        packed: pa.Table,
        weight: Ints,
    ) -> _Multiset:
        """Add the changes to the stored rows."""
        active = np.flatnonzero(touched.of_rows >= 0)
        stored = take(state.tables["rows"], active)
        stored_weight = np.asarray(combine_chunks(stored.column("weight")))
        columns = [field.name for field in spec.rows][len(spec.by) : -1]
        rows = concat(
            [
                stored.select(columns).rename_columns(spec.stored_columns),
                _changed_rows(spec, packed).select(spec.stored_columns),
            ]
        )
        ids = np.concatenate([touched.of_rows[active], touched.of_changes])
        distinct, firsts = Groups.of(key_codes([pa.array(ids), *rows.columns], len(rows)))
        after = distinct.sum_ints(np.concatenate([stored_weight, weight]))
        before = np.zeros(len(firsts), np.int64)
        before[: len(active)] = stored_weight  # stored rows are distinct and come first
        return _Multiset(take(rows, firsts), Groups(ids[firsts], touched.count), before, after)

    def store(self, spec: AggregateSpec, state: State, touched: _TouchedGroups) -> pa.Table:
        """The rows to store, with those of the other groups."""
        remaining = np.flatnonzero(self.after)
        index = pa.array(self.groups.ids[remaining])
        keys = [key.take(index) for key in touched.keys]
        columns = take(self.rows, remaining).columns
        rows = pa.table([*keys, *columns, pa.array(self.after[remaining])], schema=spec.rows)
        return concat([state.tables["rows"].filter(pa.array(touched.of_rows < 0)), rows])

    def estimate(self, aggregates: Sequence[BoundAggregate]) -> tuple[Columns, Columns]:
        """Aggregates of all groups, before and after the step."""
        orders = [self._order(aggregate) for aggregate in aggregates]
        before, after = (
            [
                self._estimate(aggregate, order, weight)
                for aggregate, order in zip(aggregates, orders, strict=True)
            ]
            for weight in (self.before, self.after)
        )
        return before, after

    def _order(self, aggregate: BoundAggregate) -> Ids:
        """The order in which an aggregate reads the rows: by group and value.

        The rounding of a variance depends on the order of values, and of tied rows ``top`` takes the
        last ones. The result must not depend on the order of arrival.
        """
        if aggregate.ignores_equal_rows:
            return np.arange(len(self.groups.ids))
        inputs = aggregate.summary.inputs
        values = [ranks(combine_chunks(self.rows.column(name))) for name in inputs]
        return np.lexsort((*reversed(values), self.groups.ids))

    def _estimate(self, aggregate: BoundAggregate, order: Ids, weight: Ints) -> pa.Array:
        """An aggregate of all groups. Rows with a weight below 1 are not read."""
        summary, most = aggregate.summary, 1 if aggregate.ignores_equal_rows else None
        index = np.repeat(order, np.clip(weight[order], 0, most))
        rows = take(self.rows.select(list(dict.fromkeys(summary.inputs))), index)
        groups = Groups(self.groups.ids[index], self.groups.count)
        return summary.estimate(summary.update(groups, rows))


def _in_order(spec: AggregateSpec, totals: Columns, recomputed: Columns, groups: Ids) -> Columns:
    """The aggregates of these groups, in the order of `agg`."""
    from_totals = iter(totals)
    from_rows = (column.take(pa.array(groups)) for column in recomputed)
    return [
        next(from_rows if aggregate.total is None else from_totals) for aggregate in spec.aggregates
    ]


def _emit(
    spec: AggregateSpec, keys: Columns, before: tuple[Ids, Columns], after: tuple[Ids, Columns]
) -> tuple[pa.Table, EmittedChanges]:
    """Emit the difference between the results before and after the step."""
    changes = emit_changes(before[1], after[1], (before[0], after[0]))
    index = pa.array(changes.take_ints(before[0], after[0]))
    columns = [key.take(index) for key in keys] + changes.take(before[1], after[1])
    columns.append(changes.change_type)
    columns += [pa.nulls(len(index), field.type) for field in spec.routed]
    return pa.table(columns, schema=spec.output), changes
