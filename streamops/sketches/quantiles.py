"""Running quantiles per key, and quantiles per key and window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from streamops.sketches.kll import DEFAULT_K, approx_quantiles
from streamops.sketches.per_key import PerKey, per_key
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform

__all__ = ["quantiles"]


def quantiles(
    column: str,
    probabilities: Sequence[float],
    *,
    k: int = DEFAULT_K,
    into: str = "quantiles",
    **said: Unpack[PerKey],
) -> Transform | RunningTransform:
    """Quantiles of a column per key, told whenever they change; or per key and window.

    By a KLL sketch per key: up to `k` values they are exact; beyond, the rank of each is off by a
    stated error at most, with a confidence of 99 %. What they are, and what is said of them, is
    that of :func:`approx_quantiles`.

    Input        `column`: numbers; null is not counted, NaN is the greatest · key columns of any
                 type but maps (null is a key) · with `size` `time`: timestamp (event time) · a row
                 that is delivered twice counts twice: drop duplicates before
    Output       key columns · `into`: struct<quantiles: array<double>, lower: array<double>,
                 upper: array<double>, rank_error: double, count: bigint> · revision: int, 0 is told
                 first · with changes="retract" _change_type: string · with `size` the columns of
                 windows.tumbling instead of these two
    Output mode  append: an upsert by the key columns, or a change stream
    Watermark    none; with `size` as in windows.tumbling
    State        per shard: one sketch per key, of at most some 3 k values, 24 k bytes; never
                 forgotten, at most `max_keys`. With `size` one per key and window that may change
    Order        rows may come in any order. A sketch beyond k values depends on how its rows were
                 cut into pieces, its error does not
    Batch        one row per key, of all rows; with `size` one per key and window

    Parameters
    ----------
    column : str
        Numbers.
    probabilities : sequence of float
        Which quantiles, from 0 (the least value) to 1 (the greatest).
    k : int
        From 8 to 65,535: how much is kept. See :func:`approx_quantiles`.
    into : str
        Name of the result.
    by : str or sequence of str
        Key columns. Left out: one group for all rows.
    changes : "update" or "retract"
        How quantiles that changed are told: the new ones; or the old ones taken back, and the new ones.
    max_keys : int
        Keys that are kept: 1,000,000 if left out.
    when_full : "fail" or "ignore_new"
        What happens to rows of further keys.
    size, hop : duration
        Quantiles per window instead, as in ``windows.tumbling`` and ``windows.hopping``, with their
        parameters: time, delay, allowed_lateness, stragglers, too_late, early, empty, empty_for,
        origin.
    shards, state_api, name
        As in ``windows.tumbling``.

    Returns
    -------
    Transform or RunningTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``SKETCH_CANNOT_FORGET``: the frame is a change
        stream.
    CapacityError
        While the query runs: ``KEYS_FULL``.
    RequirementError
        The state API needs something that is not there.

    Examples
    --------
    The 99th percentile of the response time over the last five minutes, every minute:

    >>> from streamops import sketches
    >>> slow = sketches.quantiles(
    ...     "ms",
    ...     [0.5, 0.99],
    ...     by="service",
    ...     size="5 minutes",
    ...     hop="1 minute",
    ...     time="ts",
    ...     delay="30 seconds",
    ... )
    >>> requests.transform(slow).selectExpr(  # doctest: +SKIP
    ...     "service", "window_end", "quantiles.quantiles[1] AS p99"
    ... )
    DataFrame[service: string, window_end: timestamp, p99: double]

    See Also
    --------
    approx_quantiles : the same as an aggregate, beside others.
    streamops.aggregates.quantiles : exact, and keeps every value.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream analytics".
    Karnin, Lang, Liberty: "Optimal Quantile Approximation in Streams", FOCS 2016.
    """
    asked = approx_quantiles(column, probabilities, k=k)
    return per_key("sketches.quantiles", {into: asked}, said)
