"""What heavy hitters and count-min sketches have in common for a user: weights, types, questions."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.aggregation import Summary
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.groups import Ids, Ints
from streamops.sketches.aggregation import SketchAggregate
from streamops.sketches.core.contract import Sketch
from streamops.sketches.core.stored import revived
from streamops.sketches.core.types import flat_type, is_flat
from streamops.sketches.expressions import as_item, mapped
from streamops.sketches.stored import StoredSketch
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name, type_name

__all__ = ["CountBounds", "Counting", "CountingAggregate", "StoredCounts", "estimate_count"]

_BOUNDS = pa.struct([("lower", pa.int64()), ("upper", pa.int64())])
_FLAT = "a type that is not nested: boolean, number, string, binary, date, timestamp, interval"


class Counting(Sketch, Protocol):
    """A sketch that says how often an item has occurred."""

    @property
    def type(self) -> pa.DataType:
        """Of the items."""

    def counts_of(
        self, states: Sequence[pa.Array], owners: Ids, requested: pa.Array
    ) -> tuple[Ints, Ints]:
        """How often items have occurred, each in a state of its own: at least, and at most."""


class CountBounds(NamedTuple):
    """How often an item has occurred: at least, and at most."""

    lower: int
    upper: int


class StoredCounts(StoredSketch):
    """A stored sketch that is asked by item."""

    __slots__ = ()

    def estimate_counts(self, values: Sequence[Any] | pa.Array) -> list[CountBounds]:
        """How often each of these values has occurred.

        Parameters
        ----------
        values : sequence, or Array
            Items, of the type that was counted. All at once is much faster than one by one.

        Returns
        -------
        list of CountBounds
            0 and 0 for None.

        Raises
        ------
        SpecError
            ``NOT_AN_ITEM``: a value that is not of the type.
        """
        sketch: Counting = self.sketch  # type: ignore[assignment]
        requested = items_of(
            values, sketch.type, parameter="values", where=f"sketches, {self.type}"
        )
        lower, upper = sketch.counts_of(self.states, np.zeros(len(requested), np.int64), requested)
        return [CountBounds(*pair) for pair in zip(lower.tolist(), upper.tolist(), strict=True)]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CountingAggregate(SketchAggregate, ABC):
    """A sketch of how often items occur.

    Parameters
    ----------
    weight : str, optional
        A column of integers of 0 or more: how often the item of a row counts.
    item_type : str, optional
        The type of the items, where no column tells it.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``UNKNOWN_TYPE``.
    """

    weight: str | None = None
    item_type: str | None = None

    def __post_init__(self) -> None:
        SketchAggregate.__post_init__(self)
        where = self.where
        if self.weight is not None:
            require_name(self.weight, parameter="weight", where=where)
        if self.item_type is not None:
            require_name(self.item_type, parameter="item_type", where=where)
            if flat_type(self.item_type) is None:
                raise SpecError(
                    "UNKNOWN_TYPE",
                    "`item_type` is no type that items may have",
                    where=where,
                    got=f"item_type={self.item_type!r}",
                    expected=f"{_FLAT}; in the words of Spark's simpleString()",
                    fix='item_type="string", "bigint", "decimal(6,2)", ...',
                )

    def __repr__(self) -> str:
        own = (field.name for field in fields(self) if field.name not in _FIRST_FIELDS)
        arguments = ((name, getattr(self, name)) for name in own)
        names_ = [f"{name}={value!r}" for name, value in arguments if value is not None]
        return f"{self.function}({', '.join([repr(self.column), *names_])})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return (self.column,) if self.weight is None else (self.column, self.weight)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        found = SketchAggregate.bind(self, schema, time=time, where=where)
        if self.weight is None:
            return found
        if self.weight not in schema.names:
            raise ColumnNotFound(self.weight, schema.names, where=where, role=f"agg: {self!r}")
        dtype = schema.field(self.weight).type
        if not pa.types.is_integer(dtype):
            raise SchemaError(
                "AGGREGATE_TYPE",
                f"{self!r} cannot be weighed by this type",
                where=where,
                got=f"column {self.weight!r} of type {type_name(dtype)}",
                expected="integers of 0 or more",
                fix="cast the column, in a unit in which it is whole: cents, bytes",
            )
        return found

    def type_of_items(self, dtype: pa.DataType | None, where: str) -> pa.DataType:
        """The type that is counted: that of the column, or `item_type`.

        Raises
        ------
        SpecError
            ``ITEM_TYPE_REQUIRED``.
        SchemaError
            ``ITEM_TYPE_DIFFERS``; ``ITEM_TYPE_NESTED``: such items have no bytes.
        """
        arguments = None if self.item_type is None else flat_type(self.item_type)
        if dtype is None:
            if arguments is None:
                raise SpecError(
                    "ITEM_TYPE_REQUIRED",
                    "nothing tells the type of the items in stored sketches",
                    where=where,
                    got=f"like={self!r}",
                    expected="an aggregate with `item_type`",
                    fix=f'{self.function}({self.column!r}, item_type="string", ...)',
                )
            return arguments
        if arguments is not None and type_name(arguments) != type_name(dtype):
            raise SchemaError(
                "ITEM_TYPE_DIFFERS",
                "the column has another type than `item_type` says",
                where=where,
                got=f"column {self.column!r} of type {type_name(dtype)}",
                expected=type_name(arguments),
                fix="leave `item_type` out: the column tells it",
            )
        if self.is_stored and not is_flat(dtype):
            raise SchemaError(
                "ITEM_TYPE_NESTED",
                "a sketch of nested items cannot be stored",
                where=where,
                got=f"column {self.column!r} of type {type_name(dtype)}",
                expected=_FLAT,
                fix="make one value of it first: F.to_json(column), or F.concat_ws of its fields",
            )
        return dtype


def estimate_count(column: str, item: Column | str, *, like: CountingAggregate) -> Column:
    """How often an item has occurred, by the sketch in the same row: for ``select``.

    A ``struct<lower: bigint, upper: bigint>``. The truth is never above ``upper``. It is never below
    ``lower`` in a sketch of heavy hitters; in one of frequencies with its confidence.

    Parameters
    ----------
    column : str
        Sketches, as an aggregate that stores them made them: ``binary``. A null gives a null.
    item : Column or str
        The item that is asked for, or the name of its column; cast to the type that was counted. A
        null gives a null, and so does what is none of that type, such as 1.5 of a ``bigint``.
    like : CountingAggregate
        The aggregate that made the sketches, with `item_type`.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``; ``NOT_A_COUNTING_SKETCH``; ``ITEM_TYPE_REQUIRED``.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> like = count_min_sketch("page", item_type="string")  # doctest: +SKIP
    >>> days.select(estimate_count("pages", F.lit("/cart"), like=like).alias("cart"))  # doctest: +SKIP
    DataFrame[cart: struct<lower:bigint,upper:bigint>]
    """
    where = "sketches.estimate_count"
    require_name(column, parameter="column", where=where)
    if not isinstance(like, CountingAggregate):
        raise SpecError(
            "NOT_A_COUNTING_SKETCH",
            "`like` does not say which sketches these are",
            where=where,
            got=f"like={like!r}",
            expected="the aggregate that made them: of heavy hitters, or of frequencies",
            fix='like=count_min_sketch("page", item_type="string")',
        )
    sketch: Counting = like.sketch(None, where)  # type: ignore[assignment]
    location = f"{where}({column!r}, like={like!r})"

    def run(blobs: pa.Array, requested: pa.Array) -> pa.Array:
        return counted(sketch, blobs, requested, where=location)

    requested = quoted(item) if isinstance(item, str) else item
    of = as_item(requested, type_name(sketch.type))
    return mapped(run, _BOUNDS, quoted(column), of, name="estimate_count")


def counted(sketch: Counting, blobs: pa.Array, requested: pa.Array, *, where: str) -> pa.Array:
    """How often each item has occurred, by the sketch beside it."""
    # A sketch that stands beside many items is read once.
    known = blobs.dictionary_encode()
    states = revived(sketch, known.dictionary, where=where)
    there = np.asarray(blobs.is_valid()) & np.asarray(requested.is_valid())
    owners = np.asarray(known.indices.filter(pa.array(there))).astype(np.int64)
    items = requested.filter(pa.array(there)).cast(sketch.type)
    pair = [pa.array(entry) for entry in sketch.counts_of(states, owners, items)]
    found = pa.StructArray.from_arrays(pair, fields=list(_BOUNDS))
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


def items_of(values: Any, dtype: pa.DataType, *, parameter: str, where: str) -> pa.Array:
    """Values as items of this type.

    Raises
    ------
    SpecError
        ``NOT_AN_ITEM``.
    """
    try:
        if isinstance(values, str | bytes):
            raise TypeError("one value, and no list of values")
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return combine_chunks(values).cast(dtype)
        return pa.array(values, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            "NOT_AN_ITEM",
            "a value is not of the type that is counted",
            where=where,
            got=f"{parameter}={values!r:.60}: {error}",
            expected=f"values of type {type_name(dtype)}",
            fix="ask for values of that type",
        ) from None


_FIRST_FIELDS = ("function", "column", "is_stored")
