"""Totals over the micro-batches of queries: what is displayed and exported as a counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamops.observe.core.progress import OperatorProgress, Progress


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
