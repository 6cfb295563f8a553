"""Overlaps of audiences, per key, or per key and window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from streamops.sketches.overlapping import approx_overlap
from streamops.sketches.per_key import PerKey, per_key
from streamops.sketches.theta import DEFAULT_K
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform

__all__ = ["overlap"]


def overlap(
    column: str,
    *,
    of: str,
    between: Sequence[Any],
    k: int = DEFAULT_K,
    into: str = "overlap",
    **said: Unpack[PerKey],
) -> Transform | RunningTransform:
    """How many distinct values audiences have, and how many each two of them share.

    "Of how many users did we reach both with the spring campaign and with the summer campaign?"
    Per key over everything that came, told whenever it changes; or, with `size`, per key and window.

    Input        `column`: the values, of any type but maps, null is not counted · `of`: string,
                 integer, boolean, date or binary · key columns of any type but maps (null is a key) ·
                 with `size` also `time`: timestamp · no column _change_type
    Output       key columns · with `size` window_start, window_end: timestamp, [start, end) · `into`:
                 struct<audiences, pairs>, see :func:`approx_overlap` · revision: int (without `size`;
                 or with corrections or `early`) · with "retract" _change_type: string · where rows
                 may be routed late: struct<reason, lateness, watermark, row>
    Output mode  append
    Watermark    without `size` none is needed; with it as in ``windows.tumbling``
    State        per shard: one entry per key, and window that can still change, of at most 8 k bytes
                 for each of the audiences; without `size` for good, of at most `max_keys` keys
    Order        rows may come in any order, and more than once
    Batch        same rows out; without `size` one row per key, revision 0

    Parameters
    ----------
    column : str
        The values, such as users.
    of : str
        The column that says which audience a row speaks of. Rows of other audiences, and of none,
        are left out; their keys have results all the same.
    between : sequence
        The audiences, 2 to 16 of them: strings, integers, booleans, dates or binary values.
    k : int
        Hashes kept per audience, a power of two from 16 to 65,536. Up to so many distinct values
        all is exact; beyond, the size of an audience errs by 1 / sqrt(k - 1).
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
        ``NOT_AUDIENCES``, ``K_OUT_OF_RANGE``, ``WINDOW_WITHOUT_SIZE``, ``RUNNING_WITH_SIZE``; or
        another parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type: ``AUDIENCE_TYPE``, ``KEY_NOT_HASHABLE``; or
        the frame is a change stream: ``SKETCH_CANNOT_FORGET``.
    CapacityError
        While the query runs: ``KEYS_FULL``.

    Examples
    --------
    >>> from streamops import sketches
    >>> reached = sketches.overlap(
    ...     "user_id", of="campaign", between=["spring", "summer"], by="country"
    ... )
    >>> views.transform(reached)  # doctest: +SKIP
    DataFrame[country: string, overlap: struct<audiences:..., pairs:...>, revision: int]

    See Also
    --------
    approx_overlap : the same as an aggregate, beside others.
    theta_sketch : a sketch of each audience, stored, to be compared with any other later.

    References
    ----------
    Dasgupta et al.: "A Framework for Estimating Stream Expression Cardinalities", ICDT 2016.
    """
    agg = {into: approx_overlap(column, of=of, between=between, k=k)}
    return per_key("sketches.overlap", agg, said)
