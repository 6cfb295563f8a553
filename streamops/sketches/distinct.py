"""How many distinct values, per key, or per key and window."""

from __future__ import annotations

from typing import Unpack

from streamops.sketches.hll import approx_distinct
from streamops.sketches.per_key import PerKey, per_key
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform

__all__ = ["distinct"]


def distinct(
    column: str, *, p: int = 12, into: str = "distinct", **said: Unpack[PerKey]
) -> Transform | RunningTransform:
    """About how many distinct values there are, with bounds.

    Per key over everything that came, told whenever it changes; or, with `size`, per key and window.

    Input        `column`: the values, of any type but maps, null is not counted · key columns of any
                 type but maps (null is a key) · with `size` also `time`: timestamp · no column
                 _change_type
    Output       key columns · with `size` window_start, window_end: timestamp, [start, end) · `into`:
                 struct<estimate: bigint, lower: bigint, upper: bigint, relative_error: double>,
                 bounds at two standard errors · revision: int (without `size`; or with corrections or
                 `early`) · with "retract" _change_type: string · where rows may be routed late:
                 struct<reason, lateness, watermark, row>
    Output mode  append
    Watermark    without `size` none is needed; with it as in ``windows.tumbling``
    State        per shard: one entry per key, and window that can still change, of 4 bytes per
                 distinct value up to ``3 * 2**(p - 5)`` of them (7, where ``p < 8``), of ``2**p``
                 bytes beyond; without `size` for good, of at most `max_keys` keys
    Order        rows may come in any order, and more than once
    Batch        same rows out; without `size` one row per key, revision 0

    Parameters
    ----------
    column : str
        The values, such as users.
    p : int
        From 4 to 16. Few values are counted; many are estimated with a standard error of
        ``1.04 / sqrt(2**p)``. 12: 4 KB, 1.6 %. 14: 16 KB, 0.8 %.
    into : str
        Name of the result.
    **said
        ``by``, ``size``, ``hop``, ``time``, ``delay`` and so on: see
        :class:`streamops.sketches.per_key.PerKey`.

    Returns
    -------
    Transform or RunningTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        ``PRECISION_OUT_OF_RANGE``, ``WINDOW_WITHOUT_SIZE``, ``RUNNING_WITH_SIZE``; or another
        parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type: ``KEY_NOT_HASHABLE``; or the frame is a
        change stream: ``SKETCH_CANNOT_FORGET``.
    CapacityError
        While the query runs: ``KEYS_FULL``.

    Examples
    --------
    >>> from streamops import sketches
    >>> users = sketches.distinct("user_id", by="page", into="users")
    >>> views.transform(users)  # doctest: +SKIP
    DataFrame[page: string, users: struct<estimate:bigint,...>, revision: int]
    >>> per_minute = sketches.distinct(
    ...     "user_id", by="page", size="1 minute", time="ts", delay="30 seconds"
    ... )

    See Also
    --------
    approx_distinct : the same as an aggregate, beside others.
    hll_sketch : the sketch itself, stored, to be merged to hours and days.
    streamops.aggregates.distinct : exactly, within a bound.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream analytics".
    Flajolet, Fusy, Gandouet, Meunier: "HyperLogLog: the analysis of a near-optimal cardinality
    estimation algorithm", 2007. Heule, Nunkesser, Hall: "HyperLogLog in Practice", 2013.
    """
    return per_key("sketches.distinct", {into: approx_distinct(column, p=p)}, said)
