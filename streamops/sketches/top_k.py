"""Heavy hitters as aggregates: the items that occur most, or the sketch that knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.ordering import is_comparable
from streamops.sketches.core.contract import Parameter, Sketch
from streamops.sketches.core.frequent import MOST_COUNTERS, Frequent, counters_for
from streamops.sketches.core.types import flat_type
from streamops.sketches.counting import CountingAggregate, StoredCounts
from streamops.sketches.stored import SketchType
from streamops.spark.columns import type_name

__all__ = ["HeavyHitters", "StoredTopK", "approx_top_k", "top_k_sketch_agg"]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class HeavyHitters(CountingAggregate):
    """The most frequent items of a column. Made by the functions of this module.

    Parameters
    ----------
    at_least : float, optional
        The least share of a returned item.
    counters : int, optional
        Items stored per group.
    top : int, optional
        The maximum number of returned items.

    Raises
    ------
    SpecError
        ``NO_SHARE``; ``SHARE_OUT_OF_RANGE``, ``COUNTERS_OUT_OF_RANGE``, ``TOP_OUT_OF_RANGE``; and what
        any aggregate of counts refuses.
    """

    at_least: float | None = None
    counters: int | None = None
    top: int | None = None

    instead: ClassVar[str] = "aggregates.count per item"
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        CountingAggregate.__post_init__(self)
        where = self.where
        if self.at_least is None and self.counters is None:
            raise SpecError(
                "NO_SHARE",
                "nothing says which items are frequent",
                where=where,
                got="neither `at_least` nor `counters`",
                expected="one of them",
                fix="at_least=0.01 finds every item that is 1 % of all",
            )
        least = 4 / MOST_COUNTERS
        if self.at_least is not None and not (
            _is_number(self.at_least) and least <= self.at_least <= 1
        ):
            raise SpecError(
                "SHARE_OUT_OF_RANGE",
                "`at_least` is no share",
                where=where,
                got=f"at_least={self.at_least!r}",
                expected=f"a number from {least} to 1",
                fix="at_least=0.01 for 1 %",
            )
        fewest = 1 if self.at_least is None else int(1 / self.at_least)
        _refuse_count(self.counters, "counters", fewest, MOST_COUNTERS, where)
        _refuse_count(self.top, "top", 1, MOST_COUNTERS, where)

    @property
    def stored_items(self) -> int:
        """Items kept per group."""
        if self.counters is not None:
            return self.counters
        assert self.at_least is not None
        return counters_for(self.at_least)

    def sketch(self, dtype: pa.DataType | None, where: str) -> Sketch:
        """The sketch over a column of this type."""
        if dtype is not None and not is_comparable(dtype):
            raise SchemaError(
                "AGGREGATE_TYPE",
                f"{self!r} cannot be computed over this type",
                where=where,
                got=f"column {self.column!r} of type {type_name(dtype)}",
                expected="a type whose values can be compared: any without a map in it",
                fix="cast the column, or pick a field of it",
            )
        item = self.type_of_items(dtype, where)
        return Frequent(self.column, item, self.stored_items, self.at_least, self.top, self.weight)


def approx_top_k(
    column: str,
    *,
    at_least: float | None = None,
    counters: int | None = None,
    top: int | None = None,
    weight: str | None = None,
    item_type: str | None = None,
) -> HeavyHitters:
    """The items that occur most, with bounds of how often; no item of the share is missing.

    A ``struct<items: array<struct<item, lower: bigint, upper: bigint>>, error: bigint, count: bigint>``.
    The items stand most frequent first, by ``lower`` and then by themselves. Each has occurred at
    least ``lower`` and at most ``upper`` times; these are ``error`` apart. ``count`` is the number of
    values, or the sum of their weights. A null is not counted.

    Error        ``error`` is 0 while the distinct items of a group are no more than `counters`, and
                 never above count / (counters + 1). Both bounds hold always: nothing is left to chance
    Merge        sketches of equal `counters` and of one type

    Parameters
    ----------
    column : str
        The items, of any type but maps. They are stored unchanged.
    at_least : float, optional
        A share of ``count``: every item that has it is returned, and none that has less than three
        quarters of it (with a given number of counters: less than it by ``error`` or more).
    counters : int, optional
        Items stored per group. By default ceil(4 / at_least). With `at_least` 1 / at_least or more.
        Without it all stored items are returned: every item that occurs more than ``error`` times.
    top : int, optional
        The maximum number of returned items: the most frequent.
    weight : str, optional
        A column of integers of 0 or more: how often the item of a row counts. A row in which it is null
        does not count.
    item_type : str, optional
        The type of the items, such as "string", where the aggregate stands for stored sketches in
        ``like=``.

    Raises
    ------
    SpecError
        ``NO_SHARE``, ``SHARE_OUT_OF_RANGE``, ``COUNTERS_OUT_OF_RANGE``, ``TOP_OUT_OF_RANGE``,
        ``UNKNOWN_TYPE``, ``NOT_A_NAME``.
    SchemaError
        While the plan is built: ``AGGREGATE_TYPE``, ``SKETCH_CANNOT_FORGET``. While the query runs:
        ``WEIGHT_NEGATIVE``.
    CapacityError
        ``SUM_OVERFLOW``: more than 2^63 - 1 are counted.

    Examples
    --------
    >>> approx_top_k("page", at_least=0.01, top=10)
    approx_top_k('page', at_least=0.01, top=10)

    Notes
    -----
    Spark's ``approx_top_k`` counts with as many counters by the same family of algorithms. It returns no
    bounds, and not which items are sure, so it never computes this aggregate.

    References
    ----------
    Misra, Gries: "Finding Repeated Elements", 1982.
    Agarwal et al.: "Mergeable Summaries", PODS 2012.
    """
    return HeavyHitters(
        function="approx_top_k",
        column=column,
        is_stored=False,
        at_least=at_least,
        counters=counters,
        top=top,
        weight=weight,
        item_type=item_type,
    )


def top_k_sketch_agg(
    column: str,
    *,
    at_least: float | None = None,
    counters: int | None = None,
    weight: str | None = None,
    item_type: str | None = None,
) -> HeavyHitters:
    """The sketch of the items that occur most, as bytes: to be stored, merged and asked later.

    ``sketches.merge``, ``sketches.estimate`` and ``sketches.estimate_count`` read it in a column,
    ``sketches.read`` in Python. The parameters are those of :func:`approx_top_k`; the items are
    of a type that is not nested.

    Examples
    --------
    >>> top_k_sketch_agg("page", counters=400)
    top_k_sketch_agg('page', counters=400)
    """
    return HeavyHitters(
        function="top_k_sketch_agg",
        column=column,
        is_stored=True,
        at_least=at_least,
        counters=counters,
        weight=weight,
        item_type=item_type,
    )


class StoredTopK(StoredCounts):
    """Stored heavy hitters, as ``sketches.read`` makes them."""

    __slots__ = ()

    def to_datasketches(self) -> bytes:
        """The image that Apache's frequent-items sketch reads, of items that are strings or longs.

        Raises
        ------
        SchemaError
            ``NO_APACHE_ITEMS``.
        """
        core: Frequent = self.sketch  # type: ignore[assignment]
        return bytes(core.images(self.states)[0].as_py())

    @classmethod
    def from_datasketches(
        cls, image: bytes, *, counters: int, item_type: str = "string"
    ) -> StoredTopK:
        """The sketch of such an image.

        Parameters
        ----------
        image : bytes
        counters : int
            Items that are kept, 1 or more. Apache's sketch of 2^k slots errs by at most 3.5 / 2^k of all
            that it has counted: with fewer than 2^k / 3.5 counters it is read for sure.
        item_type : "string" or "bigint"
            What its items are.

        Raises
        ------
        SpecError
            ``COUNTERS_OUT_OF_RANGE``; ``UNKNOWN_TYPE``.
        SchemaError
            ``NO_APACHE_ITEMS``.
        SketchFormatError
            ``SKETCH_CORRUPT``: it is no image, or its error is above that of so many counters.
        """
        like = HeavyHitters(
            function="top_k_sketch_agg",
            column="item",
            is_stored=True,
            counters=counters,
            item_type=item_type,
        )
        core: Frequent = like.sketch(None, "StoredTopK.from_datasketches")  # type: ignore[assignment]
        return cls.of(core, core.from_images(pa.array([bytes(image)], pa.binary())))


def _of(parameters: Mapping[str, Parameter]) -> Sketch:
    counters, name = parameters["counters"], parameters["type"]
    dtype = flat_type(str(name))
    if type(counters) is not int or not 1 <= counters <= MOST_COUNTERS:
        msg = f"1 to {MOST_COUNTERS} counters"
        raise ValueError(msg)
    if dtype is None:
        msg = "a type that is not nested"
        raise ValueError(msg)
    return Frequent("", dtype, counters)


SKETCH_TYPE = SketchType(Frequent.format, _of, StoredTopK)


def _refuse_count(value: object, parameter: str, least: int, most: int, where: str) -> None:
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise SpecError(
            f"{parameter.upper()}_OUT_OF_RANGE",
            f"`{parameter}` is out of range",
            where=where,
            got=f"{parameter}={value!r}",
            expected=f"an integer from {least:,} to {most:,}",
            fix=f"leave `{parameter}` out, or give another number",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
