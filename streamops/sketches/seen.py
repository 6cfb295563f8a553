"""Membership, and the suppression of duplicates, over long horizons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame

from streamops.changelog.chains import WATERMARK
from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.parameters import parse_names, require_columns
from streamops.kernel.time import Duration, parse_duration
from streamops.sketches import conditions
from streamops.sketches.aggregation import require_range
from streamops.sketches.core.seen import Again, SeenCore, SeenParameters, WhenFull
from streamops.spark.annotate import AnnotatedSpec, annotate_rows
from streamops.spark.columns import instant_field
from streamops.spark.operator import Operator

_MOST_GENERATIONS = 64


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
) -> Operator:
    """Deduplicate rows over a period longer than a watermark can cover.

    The first row of an identity passes, and the identity is stored. Later rows of the same identity are
    duplicates until the newest event time is `horizon` after the first row, and up to
    ``horizon / generations`` longer. Then the identity is removed, and passes again.

    Identities are stored in Bloom filters. A duplicate never passes within the horizon. As long as at
    most `capacity` distinct identities occur within ``horizon * (1 + 1 / generations)``, at most a share
    of `false_positive_rate` of the rows with new identities is taken for duplicates.

    Input        `identity`: columns of any type but maps · `time`: timestamp · other columns of any
                 type that PySpark can convert to Arrow
    Output       the same columns · seen: string: "first"; "again", a duplicate; or for rows that
                 cannot be decided and always pass: "null_identity", "null_time",
                 "time_out_of_range", "too_old" (more than a horizon behind, and not stored) ·
                 seen_full: boolean, whether there are more identities than the rate allows
    Output mode  append
    Watermark    the frame must not have one; define it on the output. An event time in the future
                 removes identities early: apply ``time.guard`` first
    State        per shard: filters of 1.44 log2((generations + 1) / rate) bits for each of
                 capacity / shards identities, and one generation more: 2.8 MB over
                 all shards for a million at 0.001. Never more than three times that; with
                 transformWithStateInPandas and large filters, up to 65,536 hashes in addition
    Order        each row is emitted in its own micro-batch. Of the rows of an identity in one
                 micro-batch the first by event time passes; of the same event time, the one with the
                 lowest hash of all columns. Across micro-batches, the first to arrive
    Batch        the same rows, decided in the order of event time, and without false positives

    Parameters
    ----------
    identity : str or sequence of str
        Columns that identify a row: rows with equal values are duplicates. A row with a null in one
        of them has no identity.
    capacity : int
        Distinct identities within ``horizon * (1 + 1 / generations)``, over all shards, however they
        are distributed in time.
    false_positive_rate : float
        Maximum share of rows of new identities that are taken for duplicates: 1e-9 to 0.5.
    time : str, optional
        Event time. Without it there is no horizon, and the first row of a micro-batch is chosen by
        the hash of its columns.
    horizon : duration, optional
        How long an identity is stored, in event time. By default forever, or with
        ``when_full="evict_oldest"`` until `capacity` others have been seen.
    generations : int
        Number of parts of the horizon, 1 to 64. Identities are removed one part at a time: more parts
        are more precise, and take more time per row.
    again : "drop" or "flag"
        What happens to duplicates: they are dropped and counted, or emitted with the value "again" in
        the column `seen`.
    when_full : "fail", "flag" or "evict_oldest"
        What happens beyond `capacity`, where the rate would be exceeded. "fail": the query fails.
        "flag": more new identities are taken for duplicates. "evict_oldest": the oldest identities are
        removed early, and pass again. Rows decided in this state have `seen_full`. This
        parameter may change when a query is restarted.

    Returns
    -------
    Operator
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
        The frame already has a watermark.
    CapacityError
        While the query runs: there are more identities than `capacity`, and `when_full` is "fail".
    RequirementError
        The state API requires RocksDB or protobuf, which is missing.

    Examples
    --------
    >>> from streamops import sketches
    >>> sketches.seen("order_id", capacity=10_000_000, time="ts", horizon="30 days")
    sketches.seen(identity=('order_id',), capacity=10000000, time='ts', horizon='30 days')

    Notes
    -----
    Identities are compared by a digest of 64 bits: two among ten million have the same one with a
    probability of 3 in a million. ``[1, null]`` and ``[1]`` are two identities. A checkpoint of an
    earlier version, which took them for one, goes on: what it has seen is seen.

    A new identity that is taken for a duplicate is not stored itself: it is forgotten with the
    identities that it was taken for.

    The metrics of a query are `rows`, the number of rows with each value of `seen`, and `full`, rows
    with `seen_full`. A batch is counted only if ``.options(name=...)`` is set.

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
    example = "4, the default: an identity is stored up to a fourth longer than the horizon"
    require_range(generations, "generations", 1, _MOST_GENERATIONS, example=example)
    micros = None
    if horizon is not None:
        micros = parse_duration(horizon, parameter="horizon", minimum=generations)
    parameters = _Seen(
        by=parse_names(identity, parameter="identity"),
        capacity=capacity,
        false_positive_rate=false_positive_rate,
        time=time,
        horizon=micros,
        generations=generations,
        again=again,
        when_full=when_full,
    )
    return annotate_rows("sketches.seen", parameters, SeenCore())


class _Seen(SeenParameters, AnnotatedSpec):
    """The parameters, and the checks of a frame."""

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns, with a watermark, or with changes."""
        fields = {column.name: column for column in frame.schema.fields}
        require_columns(fields, {"identity": self.by})
        if self.time is not None:
            instant_field(frame, self.time, role="time")
        if CHANGE_TYPE in fields:
            raise conditions.CHANGES_OF_ONE_ROW.error(
                change_type=CHANGE_TYPE, got=f"a frame with the column {CHANGE_TYPE!r}"
            )
        watermarks = [name for name, of in fields.items() if WATERMARK in (of.metadata or {})]
        if frame.isStreaming and watermarks:
            raise conditions.SEEN_BEHIND_WATERMARK.error(
                got=f"a frame with a watermark on {watermarks[0]!r}"
            )

    def build_result(self, rows: DataFrame, columns: list[str]) -> DataFrame:
        """The rows of the core are the result."""
        return rows

    def counts(self) -> Mapping[str, Column]:
        """The core counts, including rows that it drops."""
        return {}
