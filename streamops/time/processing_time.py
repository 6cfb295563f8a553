"""When rows were processed, as a column."""

from __future__ import annotations

from streamops.spark.rowwise import RowTransform
from streamops.time.processing_settings import ProcessingTimeSettings

__all__ = ["processing_time"]


def processing_time(into: str = "processed_at", *, name: str | None = None) -> RowTransform:
    """Adds the processing time of each row: the start of the micro-batch that took it.

    For windows by processing time: give the column to any window as its `time`, with
    ``delay="0 seconds"``. No row of a later micro-batch has an earlier one, so nothing has to be
    waited for and nothing is late.

    It says when *this query* saw a row, and nothing about when anything happened: a query that
    works off a backlog sees a spike that never was, and one that reads the same rows again sees
    other windows. Use it to watch the query, and where rows have no time of their own; for
    everything that is about the world, use event time.

    Input        columns of any type
    Output       the same columns · `into`: timestamp, in whole milliseconds, never null
    Output mode  any
    Watermark    none before it on `into`: it is defined after it, by ``withWatermark`` or an
                 operator's `delay`
    State        none; Spark keeps the start of a micro-batch in the checkpoint before it runs, so
                 a micro-batch that is repeated has the same
    Order        rows may come in any order; those of a micro-batch have one processing time
    Batch        one processing time for all rows: the start of the batch

    Parameters
    ----------
    into : str
        The column that is added.
    name : str, optional
        Under which the count of rows appears in the query's ``observedMetrics``. A batch is
        counted only where it is given.

    Returns
    -------
    RowTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        `into` or `name` is not text.
    SchemaError
        The frame has a column of this name.

    Examples
    --------
    >>> from streamops import aggregates as agg, time, windows
    >>> time.processing_time()
    time.processing_time(into='processed_at', name='processing_time')
    >>> per_minute = windows.tumbling(
    ...     "1 minute", time="processed_at", agg={"rows": agg.count()}, delay="0 seconds"
    ... )
    >>> views.transform(time.processing_time()).transform(per_minute)  # doctest: +SKIP
    DataFrame[window_start: timestamp, window_end: timestamp, rows: bigint]

    Notes
    -----
    A window is published by the first micro-batch that follows one that started at its end or
    later, so the last window of a stream that falls silent stays open. Where the clock of the
    driver is set back, rows are late until it has caught up.

    See Also
    --------
    guard : event times that can be trusted.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11 (12 in the second edition),
    "Event time versus processing time".
    """
    settings = ProcessingTimeSettings.of("time.processing_time", into=into)
    return RowTransform.of("time.processing_time", settings, name)
