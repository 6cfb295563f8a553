"""What a user says about aggregates over a change stream, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from streamops.aggregates import Aggregate
from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import REJECTED
from streamops.changes.core.aggregate_spec import AggregateSpec, Asked, Rejected
from streamops.changes.core.bags import COUNTED_ONCE
from streamops.changes.core.totals import Counted, DecimalTotal, FloatTotal, IntTotal, Total
from streamops.kernel.contract import Aggregation, Summary
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.parameters import (
    parse_names,
    refuse_taken_names,
    require_aggregates,
    require_keys,
)
from streamops.spark.transform import require_choice

__all__ = ["AggregateSettings"]

_BY_TIME = ("first", "last", "collect")


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """Settings of aggregates over a change stream."""

    where: str = field(repr=False)
    by: tuple[str, ...]
    agg: tuple[tuple[str, Aggregation], ...]
    rejected: Rejected

    of_results: ClassVar[bool] = True
    needs_preimages: ClassVar[bool] = True

    @staticmethod
    def of(
        where: str,
        *,
        by: str | Sequence[str],
        agg: Mapping[str, Aggregation],
        rejected: Rejected = "drop",
    ) -> AggregateSettings:
        """Settings as the user wrote them, normalised, or an error."""
        require_choice(rejected, Rejected, parameter="rejected", where=where)
        names = parse_names(by, parameter="by", where=where)
        require_aggregates(agg, where=where)
        if not agg:
            raise SpecError(
                "NO_AGGREGATE",
                "nothing to compute",
                where=where,
                got="agg={}",
                expected="at least one named aggregate",
                fix='agg={"rows": aggregates.count()}',
            )
        for name, each in agg.items():
            _refuse_by_time(name, each, where)
        given = {"by": list(names), "agg": list(agg)}
        fix = "name the aggregate, or rename the key column, differently"
        added = (CHANGE_TYPE, *([REJECTED] if rejected == "route" else []))
        refuse_taken_names([*names, *agg], added, given, fix, where)
        return AggregateSettings(where, names, tuple(agg.items()), rejected)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared or computed with."""
        return (*self.by, *(name for _, each in self.agg for name in each.columns))

    def bind(self, schema: pa.Schema, *, shards: int) -> AggregateSpec:
        """The spec over these columns."""
        if CHANGE_TYPE not in schema.names or schema.field(CHANGE_TYPE).type != pa.string():
            raise SchemaError(
                "NOT_A_CHANGE_STREAM",
                "the frame does not say what happens to its rows",
                where=self.where,
                got=f"columns {', '.join(schema.names)}",
                expected=f"a column {CHANGE_TYPE!r} of type string",
                fix=f"of rows that are only ever added: df.withColumn({CHANGE_TYPE!r}, "
                "F.lit('insert'))",
            )
        for name in self.by:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=self.where, role="by")
        require_keys(schema, self.by, where=self.where)
        asked = tuple(self._asked(name, each, schema) for name, each in self.agg)
        read = {*self.by, CHANGE_TYPE}
        read |= {column for each in asked for column in each.summary.inputs}
        if self.rejected == "drop":
            schema = pa.schema([column for column in schema if column.name in read])
        return AggregateSpec(self.where, self.by, asked, schema, self.rejected)

    def _asked(self, name: str, each: Aggregation, schema: pa.Schema) -> Asked:
        for column in each.columns:  # also one that does not look for itself
            if column not in schema.names:
                raise ColumnNotFound(column, schema.names, where=self.where, role=f"agg: {each!r}")
        # A sketch says itself, here, that it cannot forget, and what to take instead.
        summary = each.bind(schema, time="", where=self.where)
        function = each.function if isinstance(each, Aggregate) else ""
        total = _total(function, summary, schema)
        return Asked(name, repr(each), summary, total, function in COUNTED_ONCE)


def _total(function: str, summary: Summary, schema: pa.Schema) -> Total | None:
    """What is kept of an aggregate that can be taken back exactly; of another one None."""
    if function == "count":
        return Counted(summary)
    if function not in ("sum", "mean"):
        return None
    kind, mean = schema.field(summary.inputs[0]).type, function == "mean"
    if pa.types.is_decimal(kind):
        return DecimalTotal(summary, kind, mean)
    return FloatTotal(summary, mean) if pa.types.is_floating(kind) else IntTotal(summary, mean)


def _refuse_by_time(name: str, each: Aggregation, where: str) -> None:
    if isinstance(each, Aggregate) and each.function in _BY_TIME:
        raise SpecError(
            "AGGREGATE_BY_TIME",
            f"{each!r} goes by event time, which rows of a table do not have",
            where=where,
            got=f"{name}={each!r}",
            expected="count, sum, mean, min, max, variance, stddev, distinct, quantiles or top",
            fix=f"aggregates.top(1, {each.column!r}, ranked_by=..., tie_break=...) takes the value "
            "of the row that is greatest in a column",
        )
