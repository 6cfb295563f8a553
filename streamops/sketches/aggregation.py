"""Sketches as aggregates: their base class, the checks of their parameters, and ``merge``.

The module of a sketch has a subclass of :class:`SketchAggregate` with the parameters of the sketch, and
a function per result: the estimate (``approx_...``), or the sketch as bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NoReturn

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import Condition, SchemaError, SpecError, located
from streamops.kernel.hashing import require_hashable
from streamops.kernel.parameters import require_columns
from streamops.sketches import conditions
from streamops.sketches.core import items as core
from streamops.sketches.core.sketch import Framed, Merged, Sketch
from streamops.spark.columns import column as quoted
from streamops.spark.columns import type_name
from streamops.spark.json_columns import exact_json

_FLAT = "a type that is not nested: boolean, number, string, binary, date, timestamp, interval"
_NESTED = ("array<", "struct<")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class SketchAggregate(Aggregation, ABC):
    """A sketch of a column, before it is resolved against a schema; subclasses add its parameters.

    The result of ``is_stored`` is the sketch itself, as framed bytes, instead of its estimate.
    """

    function: str
    column: str
    is_stored: bool

    native: ClassVar[bool] = False
    instead: ClassVar[str] = "an aggregate of streamops.aggregates"
    """The exact alternative, for the error of a change stream."""
    counts: ClassVar[bool] = False
    """Whether a sketch that is merged twice counts twice."""

    def __repr__(self) -> str:
        common = {field.name for field in fields(SketchAggregate)}
        names = [field.name for field in fields(self) if field.name not in common]
        given = [
            f"{name}={value!r}" for name in names if (value := getattr(self, name)) is not None
        ]
        return f"{self.function}({', '.join([repr(self.column), *given])})"

    @property
    def where(self) -> str:
        """Its public name, for errors: estimates are in ``aggregates``."""
        return f"{'sketches' if self.is_stored else 'aggregates'}.{self.function}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, besides the event time."""
        return (self.column,)

    @abstractmethod
    def sketch(self, dtype: pa.DataType | None) -> Sketch:
        """The sketch over a column of this type; of stored sketches, which have no column, for None."""

    def answer(self, sketch: Sketch) -> Summary:
        """The summary over the states of the sketch whose result is the estimate: here, the sketch."""
        return sketch

    def result(self, sketch: Sketch) -> Summary:
        """The summary over the states of the sketch with the result of this aggregate."""
        return Framed(sketch) if self.is_stored else self.answer(sketch)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        require_column(self.column, schema, repr(self), self.instead)
        return self.result(self.sketch(schema.field(self.column).type))

    def to_spark(self, *, time: str | None = None) -> Column:
        """The equivalent Spark expression, if Spark has the sketch: not here."""
        raise no_spark(self.where, repr(self))


def refuse_changes(schema: pa.Schema, *, text: str, instead: str) -> None:
    """Refuse a change stream: a sketch cannot forget what a change retracts."""
    if CHANGE_TYPE in schema.names:
        raise conditions.SKETCH_CANNOT_FORGET.error(
            text=text,
            instead=instead,
            change_type=CHANGE_TYPE,
            got=f"a frame with the column {CHANGE_TYPE!r}",
        )


def require_column(column: str, schema: pa.Schema, text: str, instead: str) -> None:
    """Refuse a schema without the column, or one of a change stream."""
    require_columns(schema.names, {f"agg: {text}": [column]})
    refuse_changes(schema, text=text, instead=instead)


def require_item(dtype: pa.DataType | None, *, column: str) -> None:
    """Refuse a type that has no hash; None, of stored sketches, is accepted."""
    if dtype is not None:
        with located(at=f"column {column!r}"):
            require_hashable(dtype)


def require_range(value: object, parameter: str, least: int, most: int, *, example: str) -> None:
    """Refuse anything but an integer in this range; ``example`` is a good one, and why."""
    if type(value) is not int or not least <= value <= most:
        raise conditions.INTEGER_OUT_OF_RANGE.error(
            parameter=parameter,
            least=least,
            most=most,
            example=example,
            got=f"{parameter}={value!r}",
        )


def parse_percentages(
    percentage: object,
    *,
    expected: str = "a list of at least one number from 0 to 1",
    call: str,
) -> tuple[float, ...]:
    """Percentages as a tuple, at least one."""
    requested: tuple[float, ...] = ()
    if isinstance(percentage, Iterable) and not isinstance(percentage, str):
        requested = tuple(percentage)
    if not requested:
        raise conditions.NO_PERCENTAGE.error(
            expected=expected, call=call, got=f"percentage={percentage!r}"
        )
    return requested


def require_percentages(percentages: Sequence[object]) -> None:
    """Refuse percentages that are not numbers from 0 to 1."""
    for value in percentages:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:  # type: ignore[operator]
            raise conditions.PROBABILITY_OUT_OF_RANGE.error(got=f"{value!r}")


def require_item_type(item_type: str | None, *, nested: bool = False) -> None:
    """Refuse a name of a type that items cannot have; None is accepted."""
    if item_type is None:
        return
    if core.flat_type(item_type) is None and not (nested and item_type.startswith(_NESTED)):
        raise conditions.UNKNOWN_TYPE.error(
            nested="a type" if nested else _FLAT, got=f"item_type={item_type!r}"
        )


def resolve_item_type(
    like: SketchAggregate, item_type: str | None, dtype: pa.DataType | None
) -> str:
    """The name of the type of the items: that of the column, or `item_type` of stored sketches."""
    name = item_type if dtype is None else core.type_name(dtype)
    if name is None:
        raise conditions.ITEM_TYPE_REQUIRED.error(
            function=like.function, column=like.column, got=f"like={like!r}"
        )
    if item_type not in (None, name):
        raise conditions.ITEM_TYPE_DIFFERS.error(
            expected=str(item_type), got=f"column {like.column!r} of type {name}"
        )
    return name


def require_flat(dtype: pa.DataType, *, column: str) -> None:
    """Refuse a nested type of items, which have no bytes."""
    if not core.is_flat(dtype):
        raise conditions.ITEM_TYPE_NESTED.error(
            column=exact_json(column, is_map=pa.types.is_map(dtype)),
            got=f"column {column!r} of type {type_name(dtype)}",
        )


def parse_items(values: Any, name: str, *, parameter: str) -> pa.Array:
    """Values as items of the type with this name; values of a nested type are an Arrow array."""
    dtype = core.flat_type(name)
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            array = combine_chunks(values)
            if dtype is None and core.type_name(array.type) != name:
                raise TypeError(f"they are of type {core.type_name(array.type)}")
            return array if dtype is None else array.cast(dtype)
        if isinstance(values, str | bytes):
            raise TypeError("one value instead of a list of values")
        if dtype is None:
            raise TypeError("values of a nested type are given as an Arrow array")
        values = list(values)
        if pa.types.is_integer(dtype) and pa.types.is_floating(pa.array(values).type):
            raise TypeError("they are not integers")  # Arrow would truncate them
        return pa.array(values, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise conditions.NOT_AN_ITEM.error(
            name=name, got=f"{parameter}={values!r:.60}: {error}"
        ) from None


def spark_items(column: str) -> Column:
    """The items of a column for Spark's own sketches; null for a null, which Spark would hash, too."""
    return F.when(quoted(column).isNotNull(), F.xxhash64(quoted(column)))


def wrong_type(
    dtype: pa.DataType,
    column: str,
    condition: Condition[SchemaError] = conditions.TYPE_NOT_SUPPORTED,
    *,
    text: str,
    expected: str = "",
) -> SchemaError:
    """The error for a column of a type that the aggregate does not support."""
    got = f"column {column!r} of type {type_name(dtype)}"
    return condition.error(text=text, column=column, expected=expected, got=got)


def no_spark(at: str, text: str) -> SpecError:
    """The error for an aggregate that Spark does not have."""
    return conditions.NO_SPARK_SKETCH.error(at=at, got=f"{text}.to_spark()")


def require_like(like: object) -> None:
    """Refuse anything but an aggregate of sketches as ``like``."""
    if not isinstance(like, SketchAggregate):
        refuse_like(like, "an aggregate of streamops.sketches")


def refuse_like(like: object, expected: str) -> NoReturn:
    """Refuse an aggregate that did not make the sketches."""
    raise conditions.NOT_LIKE.error(expected=expected, got=f"like={like!r}")


@dataclass(frozen=True, slots=True, repr=False)
class MergedSketches:
    """Stored sketches of a column, merged. Made by :func:`merge`."""

    column: str
    like: SketchAggregate

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_like(self.like)

    def __repr__(self) -> str:
        return f"merge({self.column!r}, like={self.like!r})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, besides the event time."""
        return (self.column,)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        text = repr(self)
        require_column(self.column, schema, text, self.like.instead)
        dtype = schema.field(self.column).type
        if not (pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype)):
            raise wrong_type(dtype, self.column, conditions.NOT_SKETCHES, text=text)
        if self.like.counts and REVISION in schema.names:
            raise conditions.SKETCH_REVISED.error(
                text=text, column=REVISION, got=f"results with a column {REVISION!r}"
            )
        sketch = self.like.sketch(None)
        return Merged(self.column, sketch, self.like.result(sketch), text)

    def to_spark(self, *, time: str | None = None) -> Column:
        """The equivalent Spark expression: there is none."""
        raise no_spark("sketches.merge", repr(self))


def merge(column: str, *, like: SketchAggregate) -> MergedSketches:
    """Merge stored sketches of a column: those of minutes to hours, of hours to days.

    The result is that of `like` over all rows of the sketches: identical to the last bit if the sketch
    depends on its items alone, otherwise within the stated error. ``docs/sketches.md`` lists both. Nulls
    are ignored.

    Parameters
    ----------
    column : str
        Stored sketches: ``binary``.
    like : SketchAggregate
        The aggregate that made them, with their type and parameters, and with the desired result.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: `like` is not an aggregate of a sketch.
    SchemaError
        ``CHANGE_STREAM_INPUT``: they are a change stream; ``ROWS_REVISED``: they have revisions,
        and a sketch that is merged twice counts twice (quantiles, heavy hitters, frequencies).
    SketchFormatError
        While the query runs: bytes that are not a sketch, are damaged, or are a sketch of another
        type, version or with other parameters.

    Examples
    --------
    >>> from streamops import aggregates as agg, sketches
    >>> per_minute = {"users": sketches.hll_sketch_agg("user")}
    >>> per_hour = {"users": sketches.merge("users", like=sketches.hll_sketch_agg("user"))}
    >>> per_day = {"users": sketches.merge("users", like=agg.approx_count_distinct("user"))}
    """
    return MergedSketches(column, like)
