"""Frequencies per key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import SpecError
from streamops.sketches.counts import (
    CONFIDENCE,
    RELATIVE_ERROR,
    approx_frequency,
    frequency_sketch,
)
from streamops.sketches.per_key import PerKey, per_key
from streamops.spark.columns import require_name
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform

__all__ = ["frequency"]


def frequency(
    column: str,
    *,
    of: Iterable[Any] | None = None,
    relative_error: float = RELATIVE_ERROR,
    confidence: float = CONFIDENCE,
    weight: str | None = None,
    into: str = "frequency",
    sketch_into: str | None = None,
    **said: Unpack[PerKey],
) -> Transform | RunningTransform:
    """How often items occur, per key, or per key and window: stated ones, or any, asked afterwards.

    With `of` those items are told. With `sketch_into` the sketch is: ``sketches.count_of`` asks it in a
    column, ``sketches.read(blob).count_of([...])`` in Python, for any item. One of them is needed.

    Input        the column: the items, of any type that has a hash; null is not counted · key columns of
                 any type but maps (null is a key) · `weight`: integers of 0 or more · with `size`,
                 `time`: timestamp
    Output       key columns · with `size` window_start, window_end: timestamp, [start, end) · with `of`
                 the column `into`: struct<items: array<struct<item, lower: bigint, upper: bigint>>,
                 error: bigint, count: bigint>, in the order of `of` · the column `sketch_into`: binary ·
                 revision: int, without `size` or with corrections · with "retract" _change_type: string
    Output mode  append; without `size` a key that changed is told in every micro-batch
    Watermark    none; with `size` as in ``windows.tumbling``
    State        per key, or key and window, and for each of the two columns: sixteen bytes per distinct
                 item, at most eight bytes for each of ceil(e / relative_error) *
                 ceil(ln(1 / (1 - confidence))) cells: 109 kB if not said otherwise; of keys at most
                 `max_keys`, never forgotten; with `size` until no row can change the window any more
    Order        rows may come in any order, and a stream may be cut in any way: the result is the same
    Batch        one row per key, or key and window

    Error        ``upper`` is never below the truth. ``lower`` is ``error`` less, and above the truth with a
                 probability of at most 1 - confidence. ``error`` is 0 while the distinct items of a group
                 are no more than half the cells, and never above count * relative_error
    Merge        sketches of equal `relative_error` and `confidence`, and of one type

    Parameters
    ----------
    column : str
        The items.
    of : iterable, optional
        Items that are told, of the column's type. If they are known and stay the same, and nothing else is
        ever asked, counting the rows of each is exact and needs less.
    relative_error : float
        How far a count may be above the truth, as a share of ``count``: above 0, below 1.
    confidence : float
        In which share of all counts this holds: above 0, below 1.
    weight : str, optional
        How often the item of a row counts. A row in which it is null does not count.
    into : str
        The column with the counts of the items in `of`.
    sketch_into : str, optional
        The column with the sketch itself.
    **said
        `by`, `size`, `hop`, `time` and all else: see :class:`streamops.sketches.per_key.PerKey`.

    Returns
    -------
    Transform or RunningTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another; ``NO_ITEMS``: neither `of`
        nor `sketch_into`.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``SKETCH_CANNOT_FORGET``. While the query runs:
        ``WEIGHT_NEGATIVE``.
    CapacityError
        While the query runs: ``KEYS_FULL``; ``SUM_OVERFLOW``.

    Examples
    --------
    >>> from streamops import sketches
    >>> pages = sketches.frequency("page", sketch_into="pages", by="site")
    >>> views.transform(pages)  # doctest: +SKIP
    DataFrame[site: string, pages: binary, revision: int]
    >>> cart = sketches.frequency("page", of=["/cart"], by="site", size="1 hour", time="ts")

    See Also
    --------
    heavy_hitters : the items that occur most, whichever they are.

    References
    ----------
    Cormode, Muthukrishnan: "An Improved Data Stream Summary: The Count-Min Sketch and its
    Applications", 2005.
    """
    agg: dict[str, Aggregation] = {}
    size: dict[str, Any] = {"relative_error": relative_error, "confidence": confidence}
    if of is not None or sketch_into is None:
        agg[into] = approx_frequency(column, of=() if of is None else of, weight=weight, **size)
    if sketch_into is not None:
        require_name(sketch_into, parameter="sketch_into", where="sketches.frequency")
        if sketch_into in agg:
            raise SpecError(
                "NAME_TAKEN",
                f"a name stands for two columns of the result: {sketch_into}",
                where="sketches.frequency",
                got=f"into={into!r}, sketch_into={sketch_into!r}",
                expected="two names",
                fix="name one of them differently",
            )
        agg[sketch_into] = frequency_sketch(column, weight=weight, **size)
    return per_key("sketches.frequency", agg, said)
