"""Heavy hitters per key."""

from __future__ import annotations

from typing import Unpack

from streamops.sketches.heavy import approx_heavy_hitters
from streamops.sketches.per_key import PerKey, per_key
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform

__all__ = ["heavy_hitters"]


def heavy_hitters(
    column: str,
    *,
    at_least: float | None = None,
    counters: int | None = None,
    top: int | None = None,
    weight: str | None = None,
    into: str = "heavy_hitters",
    **said: Unpack[PerKey],
) -> Transform | RunningTransform:
    """The items that occur most, per key, or per key and window; none of the share is missing.

    An item has the share if it is at least ``at_least * count`` of the ``count`` items of its key.

    Input        the column: the items, of any type but maps; null is not counted · key columns of any
                 type but maps (null is a key) · `weight`: integers of 0 or more · with `size`, `time`:
                 timestamp
    Output       key columns · with `size` window_start, window_end: timestamp, [start, end) · the
                 column `into`: struct<items: array<struct<item, lower: bigint, upper: bigint>>, error:
                 bigint, count: bigint>, most frequent first · revision: int, without `size` or with
                 corrections · with "retract" _change_type: string
    Output mode  append; without `size` a key that changed is told in every micro-batch
    Watermark    none; with `size` as in ``windows.tumbling``
    State        per key, or key and window: at most `counters` items with eight bytes each, and sixteen
                 more; of keys at most `max_keys`, never forgotten; with `size` until no row can change
                 the window any more
    Order        rows may come in any order; how a stream was cut may change bounds, within the error
    Batch        one row per key, or key and window

    Error        ``error`` is 0 while the distinct items of a group are no more than `counters`, and
                 never above count / (counters + 1). Both bounds hold always: nothing is left to chance
    Merge        sketches of equal `counters` and of one type: see :func:`heavy_hitters_sketch`

    Parameters
    ----------
    column : str
        The items.
    at_least : float, optional
        A share of ``count``: every item that has it is told, and none that has less than three quarters
        of it (with a given number of counters: less than it by ``error`` or more).
    counters : int, optional
        Items kept per group. Left out: ceil(4 / at_least). With `at_least` 1 / at_least or more.
        Without it all items that are kept are told: every item that occurs more than ``error`` times.
    top : int, optional
        How many items are told at most: the first of them.
    weight : str, optional
        How often the item of a row counts. A row in which it is null does not count.
    into : str
        The column with the result.
    **said
        `by`, `size`, `hop`, `time` and all else: see :class:`streamops.sketches.per_key.PerKey`.

    Returns
    -------
    Transform or RunningTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``SKETCH_CANNOT_FORGET``. While the query runs:
        ``WEIGHT_NEGATIVE``.
    CapacityError
        While the query runs: ``KEYS_FULL``; ``SUM_OVERFLOW``.

    Examples
    --------
    >>> from streamops import sketches
    >>> pages = sketches.heavy_hitters("page", at_least=0.01, top=10, by="site")
    >>> views.transform(pages)  # doctest: +SKIP
    DataFrame[site: string, heavy_hitters: struct<...>, revision: int]
    >>> routes = sketches.heavy_hitters(
    ...     "route", at_least=0.05, by="airline", size="1 day", time="ts", delay="1 hour"
    ... )

    See Also
    --------
    frequency : how often stated items occur, whether they are frequent or not.
    aggregates.top : the rows that are greatest in a column, exactly.

    References
    ----------
    Misra, Gries: "Finding Repeated Elements", 1982.
    Agarwal et al.: "Mergeable Summaries", PODS 2012.
    """
    heavy = approx_heavy_hitters(
        column, at_least=at_least, counters=counters, top=top, weight=weight
    )
    return per_key("sketches.heavy_hitters", {into: heavy}, said)
