"""Display the progress of a running query."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.contents import OUTPUTS, QUERIES
from examples.flights.flights import NEW_YORK

__all__ = ["Progress"]

_COLUMNS = 6  # as many counts as there is room for, of all windows
_LOOK = 1  # seconds from one look at a query to the next


class Progress:
    """Adds up the counts of each micro-batch of a query, and shows them.

    It polls the query: a listener in Python costs the JVM a tenth of a CPU second per micro-batch and
    query.

    Parameters
    ----------
    query : str
        The name of the query. Others may run in parallel.
    batches : int
        How many micro-batches it will take.
    screen : text file
        On a terminal one line is written over and over; elsewhere, a line per micro-batch.

    Attributes
    ----------
    counts : dict of str to Counter
        The totals of each operator, under its name: of what the query publishes, and of what is
        before that.
    watermark : datetime or None
        The operators' own watermark at the last micro-batch.
    """

    def __init__(self, query: str, batches: int, screen: TextIO) -> None:
        self._outputs = QUERIES[query].outputs
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in self._outputs}
        self.watermark: dt.datetime | None = None
        self._batches = batches
        self._columns = QUERIES[query].shows[: _COLUMNS // len(self._outputs)]
        self._screen = screen
        self._alive = screen.isatty()
        self._done = 0
        self._seen = -1  # the number of the last micro-batch that was displayed

    def follow(self, query: StreamingQuery, batches: int | None = None) -> None:
        """Show each micro-batch of the query until it has ended, or `batches` are done.

        Raises
        ------
        StreamingQueryException
            The query failed.
        """
        ended = False
        while not ended and (batches is None or self._done < batches):
            ended = bool(query.awaitTermination(_LOOK))
            last = query.lastProgress
            if last is not None and last.batchId > self._seen:
                self._take(query.recentProgress)
        if ended and self._alive:
            print(file=self._screen)

    def _take(self, reports: Iterable[StreamingQueryProgress]) -> None:
        for report in reports:
            if report.batchId > self._seen:
                self._seen = report.batchId
                metrics = {name: row.asDict() for name, row in report.observedMetrics.items()}
                self.add(metrics, rows=bool(report.numInputRows))

    def add(self, metrics: Mapping[str, Mapping[str, Any]], *, rows: bool) -> None:
        """Add the metrics of a micro-batch, and display the totals."""
        self._done += rows
        state: Counter[str] = Counter()
        for name, observed in metrics.items():
            counted = {k: v for k, v in observed.items() if isinstance(v, int)}
            # State is what there is now; everything else adds up.
            state.update({k: counted.pop(k, 0) for k in ("state_rows", "state_bytes")})
            self.counts.setdefault(name, Counter()).update(counted)
            if observed.get("watermark") is not None:  # values without windows have none
                # Spark formats it in the session's time zone, which is UTC.
                watermark = dt.datetime.fromisoformat(str(observed["watermark"]))
                self.watermark = watermark.replace(tzinfo=dt.UTC)
        self._show(self.line(state))

    def header(self) -> str:
        """Return the column headings."""
        titles = "".join(f"{OUTPUTS[name].title:>9}" for name in self._outputs)
        groups = "".join(f"{what.replace('_', ' '):^{len(titles)}}" for what in self._columns)
        return (
            f"{'state':>50}{groups.rstrip()}\n"
            f"  batch     rows  watermark (New York)   rows   kB{titles * len(self._columns)}"
        )

    def line(self, state: Mapping[str, int]) -> str:
        """The totals so far, under the header's columns."""
        clock = "none yet"
        if self.watermark is not None:
            clock = self.watermark.astimezone(NEW_YORK).strftime("%-d %b %H:%M %Z")
        totals = [self.counts[name] for name in self._outputs]
        cells = "".join(f"{total[what]:>9,}" for what in self._columns for total in totals)
        return (
            f"{self._done:>3}/{self._batches:<3} {totals[0]['rows']:>8,}  {clock:>19}"
            f"{state.get('state_rows', 0):>8,}{state.get('state_bytes', 0) // 1000:>5,}{cells}"
        )

    def _show(self, line: str) -> None:
        if self._alive:
            width = shutil.get_terminal_size().columns - 1
            self._screen.write(f"\r\x1b[2K{line[:width]}")
            self._screen.flush()
        else:
            print(line, file=self._screen, flush=True)
