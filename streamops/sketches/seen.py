"""Membership, and the suppression of duplicates, over long horizons."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.kernel.time import Duration
from streamops.sketches.core import seen as core
from streamops.sketches.seen_settings import Again, SeenSettings, WhenFull
from streamops.spark.annotate import AnnotateTransform
from streamops.spark.transform import DEFAULT_SHARDS, Options, StateApi

__all__ = ["seen"]


def seen(
    identity: str | Sequence[str],
    *,
    capacity: int,
    false_positive_rate: float = 0.001,
    time: str | None = None,
    horizon: Duration | None = None,
    generations: int = 4,
    again: Again = "drop",
    when_full: WhenFull = "fail",
    state_api: StateApi = "auto",
    shards: int = DEFAULT_SHARDS,
    name: str | None = None,
) -> AnnotateTransform:
    """Whether the identity of each row was seen before, within a horizon far beyond any watermark.

    The first row of an identity passes and is remembered, from its own event time on; those that
    come after it are duplicates, until the newest event time is `horizon` past it, and at most a
    part of `generations` longer. Then the identity is forgotten, and passes again.

    It is remembered by Bloom filters. So no duplicate ever passes within the horizon, and of the
    rows of new identities at most a share of `false_positive_rate` is taken for duplicates, over all
    generations together, while there are no more than `capacity` identities within a horizon and one
    of its parts.

    Input        `identity`: columns of any type but maps · `time`: timestamp · other columns of any
                 type that Spark hands to Python
    Output       the same columns · seen: string, what the row is: "first"; "again", a duplicate;
                 or what could not be judged, and always passes: "null_identity", "null_time",
                 "time_out_of_range", "too_old" (more than a horizon behind, and not known) ·
                 seen_full: boolean, whether there are so many more identities than `capacity` that
                 the rate is not kept
    Output mode  append
    Watermark    none before it: it is defined after it. A row from the future makes it forget: put
                 ``time.guard`` before it
    State        per shard: filters of 1.44 log2((generations + 1) / rate) bits for each of
                 capacity / shards identities, and a part of `generations` more: 2.8 MB over
                 all shards for a million at 0.001. Never more than three times that
    Order        each row comes out in its own micro-batch. Of the rows of an identity in one
                 micro-batch the first by event time passes; of the same event time, that with the
                 lowest hash of all columns. Across micro-batches, the one that came first
    Batch        same rows out, judged in the order of event time, and without false positives

    Parameters
    ----------
    identity : str or sequence of str
        Columns that are the same in two rows that are duplicates. A row with a null in one of them
        has no identity.
    capacity : int
        Distinct identities within a horizon and a part of `generations` more, which is what is
        remembered at once; over all shards, however they are spread in time.
    false_positive_rate : float
        Of rows of new identities, the share that is taken for duplicates at most: 1e-9 to 0.5.
    time : str, optional
        Event time. Left out, there is no horizon, and which row of a micro-batch is the first goes
        by the hash of its columns alone.
    horizon : duration, optional
        How long an identity is remembered, in event time. Left out: for good, or with
        ``when_full="rotate"`` until `capacity` others have been seen.
    generations : int
        Parts of the horizon, 1 to 64, of which the oldest is forgotten as a whole. More of them
        forget more exactly, and take more time for each row.
    again : "drop" or "flag"
        What happens to duplicates: they are left out and counted, or delivered as the others are,
        told apart by the column `seen`.
    when_full : "fail", "flag" or "rotate"
        What happens when there are more than `capacity`, so that the rate would not be kept. "fail": the query fails. "flag": it goes
        on, and more new identities than promised are taken for duplicates. "rotate": the oldest
        are forgotten before their time, and pass again. Rows judged so have `seen_full`. It may be
        changed when a query is started again.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        "auto" is ``transformWithStateInPandas``: it needs RocksDB and lets operators be chained.
    shards : int
        Pieces that the identities are spread over. Belongs to the checkpoint.
    name : str, optional
        Under which the counts appear in the query's ``observedMetrics``: `rows`, rows by what they
        are, and `full`, rows with `seen_full`. A batch is counted only where it is given.

    Returns
    -------
    AnnotateTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or needs another; or a filter would be too
        large for one shard.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or the frame has a column of the result; or
        it is a change stream.
    WatermarkError
        The frame has a watermark already.
    CapacityError
        While the query runs: there are more identities than `capacity`, and `when_full` is "fail".
    RequirementError
        The state API needs something that is not there.

    Examples
    --------
    >>> from streamops import sketches
    >>> sketches.seen("order_id", capacity=10_000_000, time="ts", horizon="30 days")
    sketches.seen(identity=('order_id',), capacity=10000000, false_positive_rate=0.001, time='ts', horizon='30 days', generations=4, again='drop', when_full='fail', state_api='auto', shards=8, name='seen')

    Notes
    -----
    Identities are compared by a hash of 64 bits, ``xxhash64``: two among ten million have the same
    one with a probability of 3 in a million. Of arrays and structs it passes over nulls: ``[1, null]``
    and ``[1]`` are one identity.

    A new identity that is taken for a duplicate is not remembered by itself: it is for as long as
    those are that it was taken for.

    See Also
    --------
    aggregates.count_distinct : how many there are, exactly.
    pyspark.sql.DataFrame.dropDuplicatesWithinWatermark : exact, with state for each identity, and
        rows behind the watermark are lost.

    References
    ----------
    B. H. Bloom: "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970.
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Idempotence" and "Stream
    analytics".
    """
    where = "sketches.seen"
    options = Options("kernel", state_api, shards, name or "seen").validated(where)
    settings = SeenSettings.of(
        where,
        identity,
        capacity=capacity,
        false_positive_rate=false_positive_rate,
        time=time,
        horizon=horizon,
        generations=generations,
        again=again,
        when_full=when_full,
        shards=shards,
    )
    return AnnotateTransform(where, settings, options, core)
