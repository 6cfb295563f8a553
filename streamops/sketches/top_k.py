"""Heavy hitters: the most frequent items."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamops.kernel.ordering import is_comparable
from streamops.sketches import conditions
from streamops.sketches.aggregation import require_range, wrong_type
from streamops.sketches.core.frequent import MOST_COUNTERS, Frequent, counters_for
from streamops.sketches.core.sketch import Sketch
from streamops.sketches.count_min import CountingAggregate, StoredCounts
from streamops.sketches.stored import SketchType, make_by


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class HeavyHitters(CountingAggregate):
    """The most frequent items of a column: at most `top` with the share `at_least`."""

    at_least: float | None = None
    counters: int | None = None
    top: int | None = None

    def __post_init__(self) -> None:
        CountingAggregate.__post_init__(self)
        share = self.at_least
        if share is None and self.counters is None:
            raise conditions.NO_SHARE.error(got="neither `at_least` nor `counters`")
        least = 4 / MOST_COUNTERS
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (number and least <= share <= 1):
            raise conditions.SHARE_OUT_OF_RANGE.error(least=least, got=f"at_least={share!r}")
        fewest = {"counters": 1 if share is None else int(1 / share), "top": 1}
        for name, minimum in fewest.items():
            if getattr(self, name) is not None:
                given = getattr(self, name)
                example = f"{max(100, minimum)}, or leave it out"
                require_range(given, name, minimum, MOST_COUNTERS, example=example)

    def sketch(self, dtype: pa.DataType | None) -> Sketch:
        """The sketch over a column of this type."""
        if dtype is not None and not is_comparable(dtype):
            expected = "a type whose values can be compared: any without a map in it"
            raise wrong_type(dtype, self.column, text=repr(self), expected=expected)
        item, counters = self.type_of_items(dtype), self.counters
        if counters is None:
            assert self.at_least is not None
            counters = counters_for(self.at_least)
        return Frequent(self.column, item, counters, self.at_least, self.top, self.weight)


def approx_top_k(
    column: str,
    *,
    at_least: float | None = None,
    counters: int | None = None,
    top: int | None = None,
    weight: str | None = None,
    item_type: str | None = None,
) -> HeavyHitters:
    """The most frequent items, with bounds of their counts; none with the given share is missing.

    A ``struct<items: array<struct<item, estimate: bigint, lower: bigint, upper: bigint>>, relative_error:
    double, count: bigint>``. The items are sorted by ``estimate``, most frequent first, and then by value.
    Each has occurred at least ``lower`` and at most ``upper`` times; the estimate is ``upper``, and the
    difference of the bounds is ``relative_error * count``. ``count`` is the number of values, or the sum
    of their weights. Nulls are not counted.

    Error        ``relative_error`` is 0 while a group has at most `counters` distinct items, and never
                 above 1 / (counters + 1). Both bounds always hold: there is no randomness
    Merge        sketches of equal `counters` and of one type

    Parameters
    ----------
    column : str
        The items, of any type but maps.
    at_least : float, optional
        A share of ``count``: every item with this share is returned, and none with less than three
        quarters of it (with a given number of counters: with less by ``relative_error`` or more).
    counters : int, optional
        Items stored per group. By default ceil(4 / at_least). With `at_least` 1 / at_least or more.
        Without it all stored items are returned: every item whose share is more than ``relative_error``.
    top : int, optional
        The maximum number of returned items: the most frequent.
    weight : str, optional
        Column of integers >= 0: how often the item of a row counts. Rows with a null are ignored.
    item_type : str, optional
        Type of the items, such as "string": required in ``like=``, for stored sketches.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, ``PARAMETER_OUT_OF_RANGE``, ``VALUE_TYPE``,
        ``PARAMETER_TYPE``.
    SchemaError
        While the plan is built: ``COLUMN_TYPE``, ``CHANGE_STREAM_INPUT``. While the query runs:
        ``CHANGE_STREAM_INPUT``.
    CapacityError
        ``NUMERIC_OVERFLOW``: more than 2^63 - 1 are counted.

    Examples
    --------
    >>> approx_top_k("page", at_least=0.01, top=10)
    approx_top_k('page', at_least=0.01, top=10)

    Notes
    -----
    Spark's ``approx_top_k`` has an algorithm of the same family. It returns no bounds, so windows never
    use it for this aggregate.

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
    """A sketch of the most frequent items, as bytes: to be stored, merged and queried.

    ``sketches.merge``, ``sketches.estimate`` and ``sketches.estimate_count`` read it in a column,
    ``sketches.read`` in Python. The parameters are those of :func:`approx_top_k`; the type of the items
    is not nested.

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


SKETCH_TYPE = SketchType(Frequent.format, make_by(HeavyHitters, type="item_type"), StoredCounts)
