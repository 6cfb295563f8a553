"""Which summary computes an aggregate over a column of a type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from streamops.aggregates.core.moments import Variance
from streamops.aggregates.core.picks import ByTime, Extreme
from streamops.aggregates.core.sums import (
    Count,
    DecimalMean,
    DecimalSum,
    FloatSum,
    IntSum,
    Mean,
)
from streamops.kernel.contract import Summary
from streamops.kernel.errors import SchemaError
from streamops.kernel.ordering import is_orderable
from streamops.spark.columns import type_name

__all__ = ["ORDERED", "TIE_BREAK", "Request", "is_number", "summary", "wrong_type"]

ORDERED = "a type with an order: numbers, strings, binary, booleans, dates, timestamps"
TIE_BREAK = "a tie_break column of a type with an order"

_WIDEST = 38  # digits of Spark's and of Arrow's 128-bit decimals


@dataclass(frozen=True, slots=True)
class Request:
    """An aggregate by name, and the types it meets."""

    function: str
    column: str
    tie_break: str | None
    time: str
    schema: pa.Schema

    @property
    def type(self) -> pa.DataType:
        """Type of the column."""
        return self.schema.field(self.column).type


def summary(request: Request, *, shown: str, where: str) -> Summary:
    """The summary, or an error that says which types would do."""
    found = _BINDERS[request.function](request)
    if found is None:
        raise _unusable(request, shown, where)
    return found


def _bind_count(request: Request) -> Summary:
    return Count(request.column)


def _bind_sum(request: Request) -> Summary | None:
    column, kind = request.column, request.type
    if pa.types.is_integer(kind):
        return IntSum(column, pa.int64())
    if pa.types.is_duration(kind):
        return IntSum(column, kind)
    if pa.types.is_floating(kind):
        return FloatSum(column)
    return DecimalSum(column, _wider(kind, 10, 0)) if pa.types.is_decimal(kind) else None


def _bind_mean(request: Request) -> Summary | None:
    column, kind = request.column, request.type
    if pa.types.is_decimal(kind):
        return DecimalMean(column, _wider(kind, 10, 0), _wider(kind, 4, 4))
    return Mean(column) if is_number(kind) else None


def _bind_variance(request: Request) -> Summary | None:
    column, kind = request.column, request.type
    number = is_number(kind) or pa.types.is_decimal(kind)
    return Variance(column, root=request.function == "stddev") if number else None


def _bind_extreme(request: Request) -> Summary | None:
    column, kind = request.column, request.type
    greatest = request.function == "max"
    return Extreme(column, kind, greatest) if is_orderable(kind) else None


def _bind_by_time(request: Request) -> Summary | None:
    column, kind = request.column, request.type
    assert request.tie_break is not None
    tie_type = request.schema.field(request.tie_break).type
    if not is_orderable(tie_type):
        return None
    return ByTime(
        column,
        request.time,
        request.tie_break,
        kind,
        request.schema.field(request.time).type,
        tie_type,
        latest=request.function == "last",
    )


_BINDERS: dict[str, Callable[[Request], Summary | None]] = {
    "count": _bind_count,
    "sum": _bind_sum,
    "mean": _bind_mean,
    "min": _bind_extreme,
    "max": _bind_extreme,
    "variance": _bind_variance,
    "stddev": _bind_variance,
    "first": _bind_by_time,
    "last": _bind_by_time,
}


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type are integers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _wider(kind: pa.DataType, digits: int, scale: int) -> pa.DataType:
    precision, wider_scale = kind.precision + digits, kind.scale + scale
    return pa.decimal128(min(precision, _WIDEST), min(wider_scale, _WIDEST))


def _unusable(request: Request, shown: str, where: str) -> SchemaError:
    column = request.column if request.tie_break is None else request.tie_break
    return wrong_type(
        request.schema,
        column,
        shown=shown,
        expected={"min": ORDERED, "max": ORDERED, "first": TIE_BREAK, "last": TIE_BREAK}.get(
            request.function, "numbers"
        ),
        where=where,
    )


def wrong_type(
    schema: pa.Schema, column: str, *, shown: str, expected: str, where: str
) -> SchemaError:
    """The error for a column that the aggregate cannot work with."""
    return SchemaError(
        "AGGREGATE_TYPE",
        f"{shown} cannot be computed over this type",
        where=where,
        got=f"column {column!r} of type {type_name(schema.field(column).type)}",
        expected=expected,
        fix="cast the column, or pick a field of it",
    )
