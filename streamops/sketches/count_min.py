"""Frequencies as aggregates: how often stated items occur, or the sketch that knows it of any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from streamops.kernel.errors import SpecError
from streamops.sketches.aggregation import require_item
from streamops.sketches.core.contract import Parameter, Sketch
from streamops.sketches.core.countmin import MOST_CELLS, CountMin, depth_for, width_for
from streamops.sketches.core.types import flat_type
from streamops.sketches.counting import CountingAggregate, StoredCounts, items_of
from streamops.sketches.stored import SketchType

__all__ = ["Frequencies", "count_min", "count_min_sketch"]

RELATIVE_ERROR = 0.001
CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Frequencies(CountingAggregate):
    """How often items of a column occur. Made by the functions of this module.

    Parameters
    ----------
    of : tuple, optional
        The items whose counts are returned.
    relative_error, confidence : float
        Of the counts.

    Raises
    ------
    SpecError
        ``NO_ITEMS``; ``RELATIVE_ERROR_OUT_OF_RANGE``, ``CONFIDENCE_OUT_OF_RANGE``,
        ``SKETCH_TOO_LARGE``; and what any aggregate of counts refuses.
    """

    of: tuple[Any, ...] | None = None
    relative_error: float = RELATIVE_ERROR
    confidence: float = CONFIDENCE

    instead: ClassVar[str] = "aggregates.count per item"
    counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        CountingAggregate.__post_init__(self)
        where = self.where
        for name, usual in (("relative_error", RELATIVE_ERROR), ("confidence", CONFIDENCE)):
            value = getattr(self, name)
            if not isinstance(value, float) or not 0 < value < 1:
                raise SpecError(
                    f"{name.upper()}_OUT_OF_RANGE",
                    f"`{name}` is out of range",
                    where=where,
                    got=f"{name}={value!r}",
                    expected="a number above 0 and below 1",
                    fix=f"leave `{name}` out: {usual}",
                )
        cells = width_for(self.relative_error) * depth_for(self.confidence)
        if cells > MOST_CELLS:
            raise SpecError(
                "SKETCH_TOO_LARGE",
                "a table of this error and this confidence has too many cells",
                where=where,
                got=f"{cells:,} cells of eight bytes per group",
                expected=f"at most {MOST_CELLS:,}",
                fix="allow a greater `relative_error`",
            )

    def sketch(self, dtype: pa.DataType | None, where: str) -> Sketch:
        """The sketch over a column of this type."""
        if dtype is not None:
            require_item(dtype, column=self.column, where=where)
        item = self.type_of_items(dtype, where)
        requested = None
        if self.of is not None:
            requested = items_of(self.of, item, parameter="of", where=where)
        width, depth = width_for(self.relative_error), depth_for(self.confidence)
        return CountMin(self.column, item, width, depth, requested, self.weight)


def count_min(
    column: str,
    *,
    of: Iterable[Any],
    relative_error: float = RELATIVE_ERROR,
    confidence: float = CONFIDENCE,
    weight: str | None = None,
    item_type: str | None = None,
) -> Frequencies:
    """How often each of some items occurs, never below the truth, and rarely far above it.

    A ``struct<items: array<struct<item, lower: bigint, upper: bigint>>, error: bigint, count: bigint>``.
    The items stand in the order of `of`. ``upper`` is never below the truth; ``lower`` is ``error``
    less, and not above it with the confidence. ``count`` is the number of values, or the sum of their
    weights. A null is not counted.

    Error        ``error`` is 0, and counts are exact, while the distinct items of a group are no more
                 than half the cells of the table: ceil(e / relative_error) times
                 ceil(ln(1 / (1 - confidence))). Beyond, it is never above count * relative_error
    Merge        sketches of equal `relative_error` and `confidence`, and of one type

    For items that are known beforehand and stay the same, counting the rows of each is exact and needs
    less. The state of this one knows any item, as that of :func:`count_min_sketch` does.

    Parameters
    ----------
    column : str
        The items, of any type that has a hash: not maps.
    of : iterable
        The items whose counts are returned, of the column's type.
    relative_error : float
        How far a count may be above the truth, as a share of ``count``: above 0, below 1.
    confidence : float
        In which share of all counts this holds: above 0, below 1.
    weight : str, optional
        A column of integers of 0 or more: how often the item of a row counts. A row in which it is null
        does not count.
    item_type : str, optional
        The type of the items, such as "string", where the aggregate stands for stored sketches in
        ``like=``.

    Raises
    ------
    SpecError
        ``NO_ITEMS``, ``RELATIVE_ERROR_OUT_OF_RANGE``, ``CONFIDENCE_OUT_OF_RANGE``, ``SKETCH_TOO_LARGE``,
        ``UNKNOWN_TYPE``, ``NOT_A_NAME``; while the plan is built ``NOT_AN_ITEM``.
    SchemaError
        While the plan is built: ``KEY_NOT_HASHABLE``, ``SKETCH_CANNOT_FORGET``. While the query runs:
        ``WEIGHT_NEGATIVE``.
    CapacityError
        ``SUM_OVERFLOW``: more than 2^63 - 1 are counted.

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
        raise SpecError(
            "NO_ITEMS",
            "`of` must name the items whose counts are returned",
            where="aggregates.count_min",
            got=f"of={of!r}",
            expected="a list of at least one item; a null is none",
            fix=f'count_min({column!r}, of=["a", "b"])',
        )
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
    """The sketch of how often any item occurs, as bytes: to be stored, merged and asked later.

    ``sketches.estimate_count`` asks it in a column, ``sketches.read(blob).estimate_counts([...])`` in Python; and
    ``sketches.merge`` merges it. The parameters are those of :func:`count_min`; the items are of
    a type that is not nested.

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


def _of(parameters: Mapping[str, Parameter]) -> Sketch:
    width, depth, name = (parameters[entry] for entry in ("width", "depth", "type"))
    dtype = flat_type(str(name))
    if type(width) is not int or type(depth) is not int or min(width, depth) < 1:
        msg = "a width and a depth of 1 or more"
        raise ValueError(msg)
    if width * depth > MOST_CELLS:
        msg = f"at most {MOST_CELLS} cells"
        raise ValueError(msg)
    if dtype is None:
        msg = "a type that is not nested"
        raise ValueError(msg)
    return CountMin("", dtype, width, depth)


SKETCH_TYPE = SketchType(CountMin.format, _of, StoredCounts)
