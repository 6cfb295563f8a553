"""Bloom filters: membership in a set, as aggregates, as a value and as a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.groups import Mask
from streamops.sketches.aggregation import SketchAggregate, require_item
from streamops.sketches.core.bloom import Bloom
from streamops.sketches.core.contract import Parameter
from streamops.sketches.core.filters import (
    MOST_BITS,
    FilterBits,
    Shape,
    contained,
    positions,
    require_capacity,
    require_rate,
    too_large,
)
from streamops.sketches.core.hashes import items
from streamops.sketches.core.types import flat_type, type_name
from streamops.sketches.expressions import as_item, mapped
from streamops.sketches.stored import SketchType, StoredSketch, read
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name

__all__ = [
    "SKETCH_TYPE",
    "BloomFilter",
    "StoredBloomFilter",
    "bloom_filter_agg",
    "bloom_filter_stats",
    "may_contain",
]

_NESTED = ("array<", "struct<")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BloomFilter(SketchAggregate):
    """A set of values. Made by :func:`bloom_filter_agg` and :func:`bloom_filter_stats`.

    Parameters
    ----------
    capacity : int
        Distinct values that it is made for.
    false_positive_rate : float
        With so many, the share of other values that it says yes to.
    item_type : str, optional
        The type of the values, where no column tells it.

    Raises
    ------
    SpecError
        ``CAPACITY_OUT_OF_RANGE``, ``RATE_OUT_OF_RANGE``, ``FILTER_TOO_LARGE``, ``UNKNOWN_TYPE``.
    """

    capacity: int
    false_positive_rate: float = 0.001
    item_type: str | None = None

    instead: ClassVar[str] = "aggregates.count_distinct(column, at_most=...)"

    def __post_init__(self) -> None:
        SketchAggregate.__post_init__(self)
        where = self.where
        require_capacity(self.capacity, where=where)
        require_rate(self.false_positive_rate, where=where)
        if Shape.of(self.capacity, self.false_positive_rate).bits > MOST_BITS:
            raise too_large(
                f"capacity={self.capacity}, false_positive_rate={self.false_positive_rate}",
                fix="a smaller capacity or a higher rate, or a filter for each of several groups",
                where=where,
            )
        if self.item_type is None:
            return
        require_name(self.item_type, parameter="item_type", where=where)
        if flat_type(self.item_type) is None and not self.item_type.startswith(_NESTED):
            raise SpecError(
                "UNKNOWN_TYPE",
                "`item_type` is no type that values may have",
                where=where,
                got=f"item_type={self.item_type!r}",
                expected="a type in the words of Spark's simpleString()",
                fix='item_type="string", "bigint", "decimal(6,2)", ...',
            )

    def __repr__(self) -> str:
        arguments = [repr(self.column), f"capacity={self.capacity}"]
        arguments += [f"false_positive_rate={self.false_positive_rate}"]
        arguments += [] if self.item_type is None else [f"item_type={self.item_type!r}"]
        return f"{self.function}({', '.join(arguments)})"

    def sketch(self, dtype: pa.DataType | None, where: str) -> Bloom:
        """The sketch over a column of this type."""
        if dtype is not None:
            require_item(dtype, column=self.column, where=where)
        name = self.item_type if dtype is None else type_name(dtype)
        if name is None:
            raise SpecError(
                "ITEM_TYPE_REQUIRED",
                "nothing tells the type of the values in stored filters",
                where=where,
                got=f"like={self!r}",
                expected="an aggregate with `item_type`",
                fix=f'{self.function}({self.column!r}, ..., item_type="string")',
            )
        if self.item_type not in (None, name):
            raise SchemaError(
                "ITEM_TYPE_DIFFERS",
                "the column has another type than `item_type` says",
                where=where,
                got=f"column {self.column!r} of type {name}",
                expected=self.item_type,
                fix="leave `item_type` out: the column tells it",
            )
        return Bloom.of(self.column, name, self.capacity, self.false_positive_rate)


def bloom_filter_agg(
    column: str,
    *,
    capacity: int,
    false_positive_rate: float = 0.001,
    item_type: str | None = None,
) -> BloomFilter:
    """A set of values as a Bloom filter, as framed bytes: to be stored, merged and asked.

    There are no false negatives. Of values that are not in the filter, a share of
    `false_positive_rate` are false positives once it contains `capacity` values: fewer before, more
    after. Nulls are not in it. Query it by :func:`may_contain`, or with ``read(blob).may_contain(values)``.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    capacity : int
        Distinct values that it is made for.
    false_positive_rate : float
        From 1e-9 to 0.5. A filter has 1.44 log2(1 / rate) bits per value of its capacity, 1.2 MB
        for a million at 0.01; and as long as they take less room, 8 bytes per value.
    item_type : str, optional
        The type of the values in Spark's words, needed in ``like=`` only. A filter of ``int`` says
        nothing about a ``bigint``.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``CAPACITY_OUT_OF_RANGE``, ``RATE_OUT_OF_RANGE``, ``FILTER_TOO_LARGE``,
        ``UNKNOWN_TYPE``.

    Examples
    --------
    >>> bloom_filter_agg("user_id", capacity=1_000_000)
    bloom_filter_agg('user_id', capacity=1000000, false_positive_rate=0.001)

    See Also
    --------
    seen : duplicates of a stream, by such filters.

    References
    ----------
    B. H. Bloom: "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970.
    """
    return BloomFilter(
        function="bloom_filter_agg",
        column=column,
        is_stored=True,
        capacity=capacity,
        false_positive_rate=false_positive_rate,
        item_type=item_type,
    )


def bloom_filter_stats(
    column: str,
    *,
    capacity: int,
    false_positive_rate: float = 0.001,
    item_type: str | None = None,
) -> BloomFilter:
    """How full a :func:`bloom_filter_agg` is, with the same parameters and the same state.

    A struct: ``estimate``, about how many distinct values are in it, with ``lower`` and ``upper`` at
    two standard errors and ``relative_error``, the standard error; ``false_positive_rate``, as it is
    now; and ``full``, whether there are certainly more than `capacity`.

    Examples
    --------
    >>> bloom_filter_stats("user_id", capacity=1_000_000, false_positive_rate=0.01)
    bloom_filter_stats('user_id', capacity=1000000, false_positive_rate=0.01)
    """
    return BloomFilter(
        function="bloom_filter_stats",
        column=column,
        is_stored=False,
        capacity=capacity,
        false_positive_rate=false_positive_rate,
        item_type=item_type,
    )


class StoredBloomFilter(StoredSketch):
    """A Bloom filter, as :func:`~streamops.sketches.read` returns it."""

    __slots__ = ()

    def may_contain(self, values: Sequence[Any] | pa.Array) -> Mask:
        """Whether each of these values may be in it: False is certain.

        Parameters
        ----------
        values : sequence, or Array
            Of the type of the values in it; an Arrow array where that is nested. All at once is
            much faster than one by one.

        Returns
        -------
        array of bool
            False for None.

        Raises
        ------
        SpecError
            ``NOT_AN_ITEM``: a value is not of the type.
        """
        found, valid = items(_values(values, self.core.type))
        return self.core.contains(self.states, found) & valid

    @property
    def filter(self) -> FilterBits:
        """Its bits, as words of 64, from the least significant one on."""
        return self.core.filter(self.states)

    @property
    def core(self) -> Bloom:
        """The sketch."""
        sketch = self.sketch
        assert isinstance(sketch, Bloom), sketch
        return sketch


def _values(values: Any, name: str) -> pa.Array:
    dtype = flat_type(name)
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            array = combine_chunks(values)
            if dtype is None and type_name(array.type) != name:
                raise TypeError(f"they are of type {type_name(array.type)}")
            return array if dtype is None else array.cast(dtype)
        if dtype is None:
            raise TypeError("values of a nested type are given as an Arrow array")
        if pa.types.is_integer(dtype) and pa.types.is_floating(pa.array(values).type):
            raise TypeError("they are not whole")  # Arrow would cut them
        return pa.array(values, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            "NOT_AN_ITEM",
            "a value is not of the type of those in the filter",
            where="sketches, bloom",
            got=f"{values!r:.60}: {error}",
            expected=f"values of type {name}",
            fix="ask for values of that type",
        ) from None


def _of(parameters: Mapping[str, Parameter]) -> Bloom:
    counts = [parameters[name] for name in ("capacity", "bits", "probes")]
    rate, name = parameters["false_positive_rate"], parameters["type"]
    capacity, bits, probes = (_whole(count) for count in counts)
    if bits % 64 or bits > MOST_BITS or probes > bits or not isinstance(name, str):
        raise ValueError("bits in words of 64, fewer probes, and the name of a type")
    return Bloom("", name, capacity, require_rate(rate, where="bloom"), Shape(bits, probes))


def _whole(value: Parameter) -> int:
    if type(value) is not int or value < 1:
        raise ValueError("whole numbers above 0")
    return value


SKETCH_TYPE = SketchType(Bloom.format, _of, StoredBloomFilter)


def may_contain(filter: bytes | StoredSketch, column: Column | str) -> Column:
    """Whether a value may be in a Bloom filter: a condition for ``where`` and ``select``.

    In batch and stream; never null, and false where the value is. Spark hashes the values, and only
    their hashes pass through Python.

    Parameters
    ----------
    filter : bytes or StoredBloomFilter
        Of a ``bloom_filter_agg``, at hand where the plan is built. It is sent to the tasks once.
    column : Column or str
        Values, or the name of their column. Cast to the type of the values in the filter: what is none
        of that type, such as 1.5 of a ``bigint``, is not in it. Where that type is nested, the column must have it.

    Raises
    ------
    SketchFormatError
        The bytes are no sketch.
    SpecError
        ``NOT_A_BLOOM_FILTER``: it is another sketch; ``NOT_A_NAME``.

    Examples
    --------
    >>> blob = days.where("day = '2026-11-21'").first()["users"]  # doctest: +SKIP
    >>> events.where(~may_contain(blob, "user_id"))  # certainly new users  # doctest: +SKIP
    """
    where = "sketches.may_contain"
    stored = filter if isinstance(filter, StoredSketch) else read(filter)
    if not isinstance(stored, StoredBloomFilter):
        raise SpecError(
            "NOT_A_BLOOM_FILTER",
            "`filter` does not tell which values are in it",
            where=where,
            got=f"a sketch of the type {stored.type!r}",
            expected="a Bloom filter",
            fix="make it by sketches.bloom_filter_agg(...)",
        )
    if not isinstance(column, Column):
        require_name(column, parameter="column", where=where)
        column = quoted(column)
    shape, names_ = stored.core.shape, stored.filter
    dtype = stored.core.type
    value = column if flat_type(dtype) is None else as_item(column, dtype)

    def run(items: pa.Array) -> pa.Array:
        requested = np.asarray(items)
        result = np.zeros(len(requested), np.bool_)
        result[contained(names_, positions(shape, requested), np.arange(len(requested)))] = True
        return pa.array(result)

    return value.isNotNull() & mapped(run, pa.bool_(), F.xxhash64(value), name="may_contain")
