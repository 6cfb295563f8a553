"""The processing time of each row, as a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.spark.operator import Operator


def processing_time(into: str = "processed_at") -> Operator:
    """Add the processing time of each row: the start of its micro-batch.

    Use it for windows by processing time: pass the column to any window as its `time`, with
    ``delay="0 seconds"``. Processing times never decrease from one micro-batch to the next, so no
    row has to wait and no row is late.

    Processing time describes when *this query* read a row, not when the event happened: a query
    that processes a backlog shows a spike that did not occur, and a query that reads the same rows
    again produces different windows. Use it to monitor the query, and for rows without a timestamp
    of their own; use event time for everything else.

    Input        columns of any type
    Output       the same columns · `into`: timestamp, in whole milliseconds, never null
    Output mode  any
    Watermark    none on the input; define it on the output, on `into`, by ``withWatermark`` or an
                 operator's `delay`
    State        none; Spark writes the start of a micro-batch to the checkpoint before it runs, so
                 a repeated micro-batch has the same processing time
    Order        rows may arrive in any order; all rows of a micro-batch have the same processing time
    Batch        one processing time for all rows: the start of the batch

    Parameters
    ----------
    into : str
        Name of the added column.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        `into` is not a string.
    SchemaError
        The frame already has a column `into`.

    Examples
    --------
    >>> from streamops import aggregates as agg, time, windows
    >>> time.processing_time()
    time.processing_time()
    >>> per_minute = windows.tumbling(
    ...     "1 minute", time="processed_at", agg={"rows": agg.count()}, delay="0 seconds"
    ... )
    >>> views.transform(time.processing_time()).transform(per_minute)
    DataFrame[window_start: timestamp, window_end: timestamp, rows: bigint]

    Notes
    -----
    A window is emitted by the first micro-batch after one that started at or after the end of the
    window, so the last window of an idle stream stays open. If the clock of the driver is set back,
    rows are late until the clock has caught up.

    See Also
    --------
    guard : validate event times.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11 (12 in the second edition),
    "Event time versus processing time".
    """
    return Operator(_ProcessingTime.where, _ProcessingTime(into))


@dataclass(frozen=True, slots=True)
class _ProcessingTime:
    """The parameters of the operator, and its Spark expressions."""

    where: ClassVar[str] = "time.processing_time"

    into: str

    @property
    def adds(self) -> tuple[str, ...]:
        """The processing time."""
        return (self.into,)

    @property
    def marked(self) -> str:
        """The processing time: downstream operators read it."""
        return self.into

    def check(self, frame: DataFrame) -> None:
        """Accept every frame: no column is read."""

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the frame with the start of its micro-batch, which Spark stores in the checkpoint."""
        return frame.select("*", F.current_timestamp().alias(self.into))

    def counts(self) -> Mapping[str, Column]:
        """Count the rows."""
        return {"rows": F.count(F.lit(1))}
