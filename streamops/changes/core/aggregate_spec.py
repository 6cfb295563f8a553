"""Parameters of aggregates over a change stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import REJECTED
from streamops.changes import conditions
from streamops.changes.core.totals import CountTotal, DecimalTotal, FloatTotal, IntTotal, Total
from streamops.kernel.aggregation import Aggregation, Summary, aggregate_identity
from streamops.kernel.core import Input
from streamops.kernel.operator import Spec, checkpointed, with_types
from streamops.kernel.parameters import (
    refuse_taken_names,
    require_columns,
    require_keys,
)

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
