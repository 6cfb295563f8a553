"""Bloom filters: membership in a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.errors import located
from streamops.kernel.groups import Mask
from streamops.kernel.parameters import require_name
from streamops.sketches import conditions
from streamops.sketches.aggregation import (
    SketchAggregate,
    parse_items,
    require_item,
    require_item_type,
    resolve_item_type,
)
from streamops.sketches.core.bloom import (
    MOST_BITS,
    Bloom,
    FilterBits,
    Shape,
    contained,
    positions,
    refuse_large,
    require_capacity,
    require_rate,
)
from streamops.sketches.core.items import flat_type, items
from streamops.sketches.core.sketch import Parameter
from streamops.sketches.stored import SketchType, StoredSketch, as_item, map_columns, read
from streamops.spark.columns import column as quoted


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BloomFilter(SketchAggregate):
    """A set of values, with this rate of false positives for `capacity` values."""

    capacity: int
    false_positive_rate: float = 0.001
    item_type: str | None = None

    instead: ClassVar[str] = "aggregates.count_distinct(column, at_most=...)"

    def __post_init__(self) -> None:
        require_capacity(self.capacity)
        require_rate(self.false_positive_rate)
        if Shape.of(self.capacity, self.false_positive_rate).bits > MOST_BITS:
            got = f"capacity={self.capacity}, false_positive_rate={self.false_positive_rate}"
            refuse_large(conditions.FILTER_TOO_LARGE, got)
        require_item_type(self.item_type, nested=True)

    def sketch(self, dtype: pa.DataType | None) -> Bloom:
        """The sketch over a column of this type."""
        require_item(dtype, column=self.column)
        name = resolve_item_type(self, self.item_type, dtype)
        return Bloom.of(self.column, name, self.capacity, self.false_positive_rate)


def bloom_filter_agg(
    column: str,
    *,
    capacity: int,
    false_positive_rate: float = 0.001,
    item_type: str | None = None,
) -> BloomFilter:
    """A set of values as a Bloom filter, as bytes: to be stored, merged and queried.

    There are no false negatives. Of values that are not in the filter, a share of
    `false_positive_rate` are false positives once it contains `capacity` values: fewer before, more
    after. Nulls are not in it. :func:`may_contain` and ``read(blob).may_contain(values)`` query it.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    capacity : int
        Number of distinct values with this rate of false positives.
    false_positive_rate : float
        From 1e-9 to 0.5. A filter has 1.44 log2(1 / rate) bits per value of its capacity, 1.2 MB
        for a million at 0.01; or 8 bytes per value while these take less room.
    item_type : str, optional
        Spark's name of the type of the values: required in ``like=``, for stored filters. A filter of
        ``int`` does not contain values of ``bigint``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``PARAMETER_OUT_OF_RANGE``, ``VALUE_TYPE``.

    Examples
    --------
    >>> bloom_filter_agg("user_id", capacity=1_000_000)
    bloom_filter_agg('user_id', capacity=1000000, false_positive_rate=0.001)

    See Also
    --------
    seen : suppress duplicates of a stream by such filters.

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
    """How full a :func:`bloom_filter_agg` with the same parameters is.

    A struct: ``estimate``, the approximate number of distinct values, with ``lower`` and ``upper`` at
    two standard errors and ``relative_error``, the standard error; the current
    ``false_positive_rate``; and ``full``, whether there are certainly more than `capacity` values.

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
    """A stored Bloom filter, as :func:`~streamops.sketches.read` returns it."""

    __slots__ = ()

    def may_contain(self, values: Sequence[Any] | pa.Array) -> Mask:
        """Whether each of these values may be in the filter: False is certain.

        Parameters
        ----------
        values : sequence, or Array
            Of the type of the values in the filter; an Arrow array if it is nested. One call with many
            values is much faster than many calls.

        Returns
        -------
        array of bool
            False for None.

        Raises
        ------
        SpecError
            ``VALUE_TYPE``: a value is not of the type.
        """
        with located(at="sketches, bloom"):
            requested = parse_items(values, self.core.type, parameter="values")
        found, valid = items(requested)
        return self.core.contains(self.states, found) & valid

    @property
    def filter(self) -> FilterBits:
        """Its bits, as 64-bit integers, from the least significant bit on."""
        return self.core.filter(self.states)

    @property
    def core(self) -> Bloom:
        """The sketch."""
        sketch = self.sketch
        assert isinstance(sketch, Bloom), sketch
        return sketch


def _make(parameters: Mapping[str, Parameter]) -> Bloom:
    counts = [parameters[name] for name in ("capacity", "bits", "probes")]
    rate, name = parameters["false_positive_rate"], parameters["type"]
    capacity, bits, probes = (_positive(count) for count in counts)
    if bits % 64 or bits > MOST_BITS or probes > bits or not isinstance(name, str):
        raise ValueError("a multiple of 64 bits, fewer probes, and the name of a type")
    with located(at="bloom"):
        return Bloom("", name, capacity, require_rate(rate), Shape(bits, probes))


def _positive(value: Parameter) -> int:
    if type(value) is not int or value < 1:
        raise ValueError("integers above 0")
    return value


SKETCH_TYPE = SketchType(Bloom.format, _make, StoredBloomFilter)


def may_contain(filter: bytes | StoredSketch, column: Column | str) -> Column:
    """Whether a value may be in a Bloom filter: a condition for ``where`` and ``select``.

    For batches and streams. It is never null: false for a null. Spark hashes the values, and only the
    hashes pass through Python.

    Parameters
    ----------
    filter : bytes or StoredBloomFilter
        A filter of ``bloom_filter_agg``, which is sent to the tasks once.
    column : Column or str
        Values, or the name of their column, cast to the type of the values in the filter: a value that
        the type does not have, such as 1.5 of a ``bigint``, is not in the filter. If the type is nested,
        the column must have it.

    Raises
    ------
    SketchFormatError
        The bytes are not a sketch.
    SpecError
        ``PARAMETER_TYPE``: it is not a Bloom filter.

    Examples
    --------
    >>> blob = days.where("day = '2026-11-21'").first()["users"]
    >>> events.where(~may_contain(blob, "user_id"))  # certainly new users
    """
    stored = filter if isinstance(filter, StoredSketch) else read(filter)
    if not isinstance(stored, StoredBloomFilter):
        raise conditions.NOT_A_BLOOM_FILTER.error(got=f"a sketch of the type {stored.type!r}")
    if not isinstance(column, Column):
        require_name(column, parameter="column")
        column = quoted(column)
    shape, bits = stored.core.shape, stored.filter
    dtype = stored.core.type
    value = column if flat_type(dtype) is None else as_item(column, dtype)

    def run(items: pa.Array) -> pa.Array:
        requested = np.asarray(items)
        result = np.zeros(len(requested), np.bool_)
        result[contained(bits, positions(shape, requested), np.arange(len(requested)))] = True
        return pa.array(result)

    return value.isNotNull() & map_columns(
        run, pa.bool_(), F.xxhash64(value), name="may_contain", inputs=[pa.int64()]
    )
