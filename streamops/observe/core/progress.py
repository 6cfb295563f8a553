"""The progress of a micro-batch: what alarms, tables, plots and exporters read.

A progress is parsed once, by :func:`streamops.observe.progress.read_progress`. It has numbers of rows,
not values of rows, except `Progress.metrics`, in which ``time.producers`` names producers: only alarms
read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

COUNTS: Mapping[str, str] = {
    "rows": "Input rows.",
    "changes": "Input changes.",
    "parsed": "Records that were parsed.",
    "rejected": "Input rows that cannot be processed.",
    "side_output": "Rows of the side output.",
    "on_time": "Rows that arrived before their window closed.",
    "stragglers": "Late rows within the allowed lateness.",
    "too_late": "Late rows beyond the allowed lateness.",
    "dropped": "Rows that an operator of Spark dropped as late, after partial aggregation.",
    "results": "Results emitted for the first time.",
    "corrections": "Results emitted again with another value.",
    "deletes": "Rows deleted from the table of an operator.",
    "stale": "Changes older than the stored row of their key.",
    "duplicates": "Changes that arrived before.",
    "ignored": "Input rows without an effect.",
    "tombstones": "Records without a value.",
    "failed": "Calls of a function per key that failed.",
    "timeouts": "Partial matches that ran out of time.",
    "overflowed": "Rows evicted because a key reached its limit.",
    "first": "Rows with an identity that was not seen before.",
    "again": "Rows with an identity that was probably seen before.",
    "too_old": "Rows behind the horizon of the identities.",
    "null_identity": "Rows without an identity.",
    "null_time": "Rows without an event time.",
    "time_out_of_range": "Rows with an event time outside the years 1 to 9999.",
    "full": "Rows that arrived when a filter had reached its capacity.",
    "clamped": "Rows whose event time a guard replaced by its bound.",
    "routed": "Rows with an invalid event time that a guard routed.",
    "future": "Rows with an event time too far ahead.",
    "past": "Rows with an event time too far back.",
    "joined": "Producers that became active.",
    "forgotten": "Producers that became idle.",
}
"""The counts that are displayed and exported. The list is closed: an observation of the user has names
and values that may be those of rows."""

LATE = ("stragglers", "too_late", "dropped")
"""Counts of late rows."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a query is behind a partition of Kafka.

    Parameters
    ----------
    topic : str
        The topic.
    partition : int
        Its partition.
    behind : int
        Offsets between the end of the micro-batch and the end of the partition, as known when the
        micro-batch began. Markers of transactions have an offset, too.
    """

    topic: str
    partition: int
    behind: int


@dataclass(frozen=True, slots=True)
class Loss:
    """When records of a partition of Kafka are deleted before a query reads them, and why.

    Parameters
    ----------
    topic, partition : str, int
        The partition.
    at : int
        The instant, in microseconds.
    reason : str
        What deletes them.
    """

    topic: str
    partition: int
    at: int
    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """A source of a query in a micro-batch: rows; of Kafka the lags, and where the micro-batch ends.

    `offsets` are topic, partition and the next offset.
    """

    description: str
    rows: int
    lags: tuple[PartitionLag, ...] = ()
    offsets: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """An operator in one micro-batch.

    Parameters
    ----------
    name : str
        Its name in ``observedMetrics``, or ``stateOperators[0] (dedupe)`` for an operator of Spark.
    counts : mapping of str to int
        Those of :data:`COUNTS` that it reports.
    state_rows, state_bytes : int, optional
        Rows and bytes of its state. None if it does not report them.
    """

    name: str
    counts: Mapping[str, int]
    state_rows: int | None = None
    state_bytes: int | None = None

    @property
    def late(self) -> int:
        """Late rows, whatever happened to them."""
        return sum(self.counts.get(name, 0) for name in LATE)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one micro-batch. Instants and durations are microseconds.

    Parameters
    ----------
    query : str
        Name of the query, or its id if it has no name.
    run : str
        Id of the run.
    batch : int
        Number of the micro-batch.
    started : int
        When it started.
    rows : int
        Its input rows.
    watermark : int, optional
        0 if there is none yet; None if the query has no event time.
    newest : int, optional
        Greatest event time of the micro-batch.
    sources : tuple of Source
        The sources.
    metrics : mapping
        All that the operators report, by operator and name, for the rules of alarms.
    newest_so_far : int, optional
        Greatest event time of the run, set by ``append_progress``.
    oldest : int, optional
        Least event time of the micro-batch, where Spark reports it.
    input_rate : float, optional
        Rows per second that arrived since the last micro-batch started.
    duration : int, optional
        How long the micro-batch took.
    phases : mapping of str to int
        How long each phase of it took, by Spark's name.
    operators : tuple of OperatorProgress
        The operators, without any values of rows.
    losses : tuple of Loss
        When partitions lose data that the query has not read, if it goes on like this; set by
        ``KafkaRetention``.
    """

    query: str
    run: str
    batch: int
    started: int
    rows: int
    watermark: int | None = None
    newest: int | None = None
    sources: tuple[Source, ...] = ()
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    newest_so_far: int | None = None
    oldest: int | None = None
    input_rate: float | None = None
    duration: int | None = None
    phases: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[OperatorProgress, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def loses_data_at(self) -> int | None:
        """When the first partition loses data."""
        return min((loss.at for loss in self.losses), default=None)

    @property
    def processing_rate(self) -> float | None:
        """Rows per second of the micro-batch; None if its duration is not known."""
        return self.rows * 1e6 / self.duration if self.duration else None

    @property
    def watermark_delay(self) -> int | None:
        """How far the watermark was behind the clock when the micro-batch started."""
        return self.started - self.watermark if self.watermark else None

    @property
    def event_delay(self) -> int | None:
        """How far the newest event time was behind the clock when the micro-batch started."""
        return None if self.newest is None else self.started - self.newest

    @property
    def lateness(self) -> int | None:
        """How far the oldest row was behind the watermark, 0 if it was not.

        None if Spark does not report the oldest event time.
        """
        if self.oldest is None or not self.watermark:
            return None
        return max(self.watermark - self.oldest, 0)

    @property
    def behind(self) -> int | None:
        """Records between the end of the micro-batch and the end of its Kafka topics."""
        lags = [lag.behind for source in self.sources for lag in source.lags]
        return sum(lags) if lags else None

    def count(self, *names: str) -> int:
        """The sum of these counts over all operators."""
        return sum(operator.counts.get(name, 0) for operator in self.operators for name in names)


@dataclass(slots=True)
class QueryTotals:
    """What the micro-batches of a query add up to, and the last of them.

    Parameters
    ----------
    last : Progress
        The last micro-batch.
    is_active : bool
        Whether the query is running.
    batches, rows, duration : int
        Micro-batches, their input rows, and how long they took, in microseconds.
    phases : Counter
        How long each phase took, in microseconds.
    counts : dict
        Counts by operator.
    operators : dict
        The last progress of each operator.
    """

    last: Progress
    is_active: bool = True
    batches: int = 0
    rows: int = 0
    duration: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    operators: dict[str, OperatorProgress] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        """Add a micro-batch."""
        if progress.run != self.last.run:  # of another run, which may have other operators
            self.operators.clear()
        self.last, self.is_active = progress, True
        self.batches += 1
        self.rows += progress.rows
        self.duration += progress.duration or 0
        self.phases.update(progress.phases)
        for operator in progress.operators:
            self.counts.setdefault(operator.name, Counter()).update(operator.counts)
            self.operators[operator.name] = operator

    def count(self, *names: str) -> int:
        """The sum of these counts over all operators."""
        return sum(counts[name] for counts in self.counts.values() for name in names)


class Totals:
    """The totals of the queries of a session.

    Parameters
    ----------
    limit : int
        The greatest number of queries. Beyond it, the query that made no progress for the longest
        time is forgotten, one that has ended first: a session that starts queries without a name,
        each with an id of its own, has a bounded number of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queries: dict[str, QueryTotals] = {}  # the one with the latest progress last

    def __iter__(self) -> Iterator[tuple[str, QueryTotals]]:
        return iter([*self._queries.items()])

    def add(self, progress: Progress) -> QueryTotals:
        """Add a micro-batch, and return the totals of its query."""
        totals = self._queries.pop(progress.query, None) or QueryTotals(progress)
        totals.add(progress)
        self._queries[progress.query] = totals
        if len(self._queries) > self._limit:
            ended = (name for name, query in self._queries.items() if not query.is_active)
            del self._queries[next(ended, next(iter(self._queries)))]
        return totals

    def end(self, run: str) -> None:
        """Note that a run has ended."""
        for query in self._queries.values():
            if query.last.run == run:
                query.is_active = False
