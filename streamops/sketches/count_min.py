"""Sketches of item counts: count-min, and what it shares with the heavy hitters of ``top_k``."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.aggregation import Summary
from streamops.kernel.errors import located
from streamops.kernel.groups import Ids, Ints
from streamops.kernel.parameters import require_columns
from streamops.sketches import conditions
from streamops.sketches.aggregation import (
    SketchAggregate,
    parse_items,
    refuse_like,
    require_flat,
    require_item,
    require_item_type,
    require_range,
    resolve_item_type,
    wrong_type,
)
from streamops.sketches.core.countmin import (
    COUNT,
    MOST_CELLS,
    CountMin,
    count_fields,
    depth_for,
    width_for,
)
from streamops.sketches.core.frequent import MOST_COUNTERS, Frequent
from streamops.sketches.core.items import flat_type, type_name
from streamops.sketches.core.sketch import Parameter, Sketch, fill_rows, read_states
from streamops.sketches.stored import SketchType, StoredSketch, as_item, map_columns
from streamops.spark.columns import column as quoted

RELATIVE_ERROR = 0.001
CONFIDENCE = 0.99


class _Counting(Sketch, Protocol):
    """A sketch of item counts."""

    @property
    def type(self) -> pa.DataType: ...

    def counts_of(
        self, states: Sequence[pa.Array], owners: Ids, queries: pa.Array
    ) -> tuple[Ints, Ints]: ...


class CountBounds(NamedTuple):
    """Lower and upper bound of the count of an item. The estimate is the upper one."""

    lower: int
    upper: int

    @property
    def estimate(self) -> int:
        """The upper bound."""
        return self.upper


class StoredCounts(StoredSketch):
    """A stored sketch of item counts: of count-min, or of the most frequent items."""

    __slots__ = ()

    def estimate_counts(self, values: Sequence[Any] | pa.Array) -> list[CountBounds]:
        """How often each of these values has occurred.

        Parameters
        ----------
        values : sequence, or Array
            Items of the type that was counted. One call with many is much faster than many calls.

        Returns
        -------
        list of CountBounds
            0 and 0 for None.

        Raises
        ------
        SpecError
            ``VALUE_TYPE``: a value that is not of the type.
        """
        sketch: _Counting = self.sketch  # type: ignore[assignment]
        with located(at=f"sketches, {self.type}"):
            queries = parse_items(values, type_name(sketch.type), parameter="values")
        lower, upper = sketch.counts_of(self.states, np.zeros(len(queries), np.int64), queries)
        return [CountBounds(*pair) for pair in zip(lower.tolist(), upper.tolist(), strict=True)]

    @classmethod
    def from_datasketches(
        cls, image: bytes, *, counters: int, item_type: str = "string"
    ) -> StoredCounts:
        """Read a frequent-items sketch of Apache DataSketches as a sketch of the most frequent items.

        Parameters
        ----------
        image : bytes
        counters : int
            Stored items, 1 or more. The error of a sketch with 2^k slots is at most 3.5 / 2^k of the total
            count: it can always be read with fewer than 2^k / 3.5 counters.
        item_type : "string" or "bigint"
            Type of its items.

        Raises
        ------
        SpecError
            ``PARAMETER_OUT_OF_RANGE``; ``VALUE_TYPE``.
        SchemaError
            ``SKETCH_UNSUPPORTED``.
        SketchFormatError
            ``SKETCH_CORRUPT``: the bytes are not a DataSketches image, or the stated error exceeds what the counters allow.
        """
        example = "400: more of them require a smaller error of the image"
        with located("StoredCounts.from_datasketches"):
            require_range(counters, "counters", 1, MOST_COUNTERS, example=example)
            require_item_type(item_type)
        core = Frequent("item", flat_type(item_type), counters)
        return cls.of(core, core.from_images(pa.array([bytes(image)], pa.binary())))


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CountingAggregate(SketchAggregate, ABC):
    """Counts of items, or sums of the integers in the column `weight`."""

    weight: str | None = None
    item_type: str | None = None

    instead: ClassVar[str] = "aggregates.count per item"
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_item_type(self.item_type)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, besides the event time."""
        return (self.column,) if self.weight is None else (self.column, self.weight)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        found = SketchAggregate.bind(self, schema, time=time)
        if self.weight is None:
            return found
        require_columns(schema.names, {f"agg: {self!r}": [self.weight]})
        dtype = schema.field(self.weight).type
        if not pa.types.is_integer(dtype):
            condition = conditions.WEIGHT_TYPE
            raise wrong_type(dtype, self.weight, condition, text=repr(self))
        return found

    def type_of_items(self, dtype: pa.DataType | None) -> pa.DataType:
        """The type of the items: that of the column, or `item_type`; not nested if it is stored."""
        name = resolve_item_type(self, self.item_type, dtype)
        if dtype is None:
            return flat_type(name)
        if self.is_stored:
            require_flat(dtype, column=self.column)
        return dtype


def estimate_count(column: str, item: Column | str, *, like: CountingAggregate) -> Column:
    """How often an item has occurred, by the sketch in the same row, for ``select``.

    A ``struct<estimate: bigint, lower: bigint, upper: bigint>``. The true count is never above ``upper``,
    which is also the estimate. It is never below ``lower`` for sketches of the most frequent items; for count-min with its confidence.

    Parameters
    ----------
    column : str
        Stored sketches: ``binary``. The result is null for a null.
    item : Column or str
        The item, or the name of its column; cast to the type that was counted. The result is null for a
        null, and for a value that the type does not have, such as 1.5 of a ``bigint``.
    like : CountingAggregate
        The aggregate that made the sketches, with `item_type`.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``PARAMETER_MISSING``.
    SketchFormatError
        While the query runs: bytes that are not such a sketch.

    Examples
    --------
    >>> like = count_min_sketch("page", item_type="string")
    >>> days.select(estimate_count("pages", F.lit("/cart"), like=like).alias("cart"))
    DataFrame[cart: struct<estimate:bigint,lower:bigint,upper:bigint>]
    """
    if not isinstance(like, CountingAggregate):
        refuse_like(like, "top_k_sketch_agg(...), ...")
    sketch: _Counting = like.sketch(None)  # type: ignore[assignment]
    location = f"sketches.estimate_count({column!r}, like={like!r})"

    def run(blobs: pa.Array, queries: pa.Array) -> pa.Array:
        with located(location):
            return count_rows(sketch, blobs, queries)

    requested = quoted(item) if isinstance(item, str) else item
    query = as_item(requested, type_name(sketch.type))
    return map_columns(
        run, COUNT, quoted(column), query, name="estimate_count", inputs=[pa.binary(), sketch.type]
    )


def count_rows(sketch: _Counting, blobs: pa.Array, queries: pa.Array) -> pa.Array:
    """Bounds of the count of each item in the sketch of the same row; null if one of both is null."""
    # A sketch that is repeated in many rows is read once.
    known = blobs.dictionary_encode()
    states = read_states(sketch, known.dictionary)
    present = np.asarray(blobs.is_valid()) & np.asarray(queries.is_valid())
    owners = np.asarray(known.indices.filter(pa.array(present))).astype(np.int64)
    items = queries.filter(pa.array(present)).cast(sketch.type)
    found = count_fields(*sketch.counts_of(states, owners, items))
    return fill_rows(pa.StructArray.from_arrays(found, fields=list(COUNT)), present)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Frequencies(CountingAggregate):
    """Counts of the items `of` a column, by count-min."""

    of: tuple[Any, ...] | None = None
    relative_error: float = RELATIVE_ERROR
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        CountingAggregate.__post_init__(self)
        for name, default in (("relative_error", RELATIVE_ERROR), ("confidence", CONFIDENCE)):
            value = getattr(self, name)
            if not isinstance(value, float) or not 0 < value < 1:
                raise conditions.PARAMETER_OUT_OF_RANGE.error(
                    parameter=name, default=default, got=f"{name}={value!r}"
                )
        cells = width_for(self.relative_error) * depth_for(self.confidence)
        if cells > MOST_CELLS:
            raise conditions.SKETCH_TOO_LARGE.error(
                most_cells=MOST_CELLS, got=f"{cells:,} cells of eight bytes per group"
            )

    def sketch(self, dtype: pa.DataType | None) -> Sketch:
        """The sketch over a column of this type."""
        require_item(dtype, column=self.column)
        item, queries = self.type_of_items(dtype), None
        if self.of is not None:
            queries = parse_items(self.of, type_name(item), parameter="of")
        width, depth = width_for(self.relative_error), depth_for(self.confidence)
        return CountMin(self.column, item, width, depth, queries, self.weight)


def count_min(
    column: str,
    *,
    of: Iterable[Any],
    relative_error: float = RELATIVE_ERROR,
    confidence: float = CONFIDENCE,
    weight: str | None = None,
    item_type: str | None = None,
) -> Frequencies:
    """Approximate counts of given items: never too small, and rarely much too large.

    A ``struct<items: array<struct<item, estimate: bigint, lower: bigint, upper: bigint>>, relative_error:
    double, count: bigint>``. The items are in the order of `of`. ``upper`` is never below the true count,
    and is the estimate. ``lower`` is ``relative_error * count`` less, and with the confidence not above
    the true count. ``count`` is the number of values, or the sum of their weights. Nulls are not counted.

    Error        ``relative_error`` is 0, and counts are exact, while a group has at most half as many
                 distinct items as the table has cells: ceil(e / relative_error) times
                 ceil(ln(1 / (1 - confidence))). Beyond, it is at most the parameter
    Merge        sketches of equal `relative_error` and `confidence`, and of one type

    For a fixed set of items, counting their rows is exact and needs less state. The state of this
    aggregate has the counts of all items, like :func:`count_min_sketch`.

    Parameters
    ----------
    column : str
        The items, of any type that has a hash: not maps.
    of : iterable
        The items whose counts are returned, of the column's type.
    relative_error : float
        Maximum error of a count, as a share of ``count``: above 0, below 1.
    confidence : float
        The share of all counts within that error: above 0, below 1.
    weight : str, optional
        Column of integers >= 0: how often the item of a row counts. Rows with a null are ignored.
    item_type : str, optional
        Type of the items, such as "string": required in ``like=``, for stored sketches.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, ``PARAMETER_OUT_OF_RANGE``, ``VALUE_TYPE``,
        ``PARAMETER_TYPE``; while the plan is built ``VALUE_TYPE``.
    SchemaError
        While the plan is built: ``TYPE_UNSUPPORTED``, ``CHANGE_STREAM_INPUT``. While the query runs:
        ``CHANGE_STREAM_INPUT``.
    CapacityError
        ``NUMERIC_OVERFLOW``: more than 2^63 - 1 are counted.

    Examples
    --------
    >>> count_min("page", of=["/", "/cart"])
    count_min('page', of=('/', '/cart'), relative_error=0.001, confidence=0.99)

    References
    ----------
    Cormode, Muthukrishnan: "An Improved Data Stream Summary: The Count-Min Sketch and its
    Applications", 2005.
    """
    given: Any = of
    requested = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
    if not requested or any(item is None for item in requested):
        raise conditions.NO_ITEMS.error(column=column, got=f"of={of!r}")
    return Frequencies(
        function="count_min",
        column=column,
        is_stored=False,
        of=requested,
        relative_error=relative_error,
        confidence=confidence,
        weight=weight,
        item_type=item_type,
    )


def count_min_sketch(
    column: str,
    *,
    relative_error: float = RELATIVE_ERROR,
    confidence: float = CONFIDENCE,
    weight: str | None = None,
    item_type: str | None = None,
) -> Frequencies:
    """A sketch of the counts of all items, as bytes: to be stored, merged and queried.

    ``sketches.estimate_count`` queries it in a column, ``sketches.read(blob).estimate_counts([...])`` in
    Python, and ``sketches.merge`` merges it. The parameters are those of :func:`count_min`; the type of
    the items is not nested.

    Examples
    --------
    >>> count_min_sketch("page", relative_error=0.01)
    count_min_sketch('page', relative_error=0.01, confidence=0.99)
    """
    return Frequencies(
        function="count_min_sketch",
        column=column,
        is_stored=True,
        relative_error=relative_error,
        confidence=confidence,
        weight=weight,
        item_type=item_type,
    )


def _make(parameters: Mapping[str, Parameter]) -> Sketch:
    width, depth, name = (parameters[entry] for entry in ("width", "depth", "type"))
    dtype = flat_type(str(name))
    if type(width) is not int or type(depth) is not int or min(width, depth) < 1:
        raise ValueError("a width and a depth of 1 or more")
    if width * depth > MOST_CELLS:
        raise ValueError(f"at most {MOST_CELLS} cells")
    if dtype is None:
        raise ValueError("a type that is not nested")
    return CountMin("", dtype, width, depth)


SKETCH_TYPE = SketchType(CountMin.format, _make, StoredCounts)
