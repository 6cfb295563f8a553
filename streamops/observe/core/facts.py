"""What micro-batches told, as plain values; and which of it is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["LEVELS", "Facts", "History", "Source", "remember"]

LEVELS = (
    *("state_rows", "state_bytes", "active", "behind"),
    *("watermark", "clock", "newest", "clock_micros", "newest_micros"),
)
"""What operators tell that is no count: a sum over micro-batches would mean nothing."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source of a query, and how many rows came from it."""

    description: str
    rows: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What one micro-batch told. Instants are microseconds since 1970.

    Parameters
    ----------
    query, run : str
        The query's name, or its id where it has none; the id of this start of it.
    batch : int
        Number of the micro-batch.
    started : int
        When it was started.
    rows : int
        Rows that came in.
    watermark : int, optional
        Spark's watermark; 0 where there is none yet, None where the query has no event time.
    newest : int, optional
        The greatest event time of the micro-batch.
    sources : tuple of Source
    counts : mapping of str to mapping
        What each operator told, by its name. A value may be None.
    highest : int, optional
        The greatest event time since the query was started.
    """

    query: str
    run: str
    batch: int
    started: int
    rows: int
    watermark: int | None = None
    newest: int | None = None
    sources: tuple[Source, ...] = ()
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    highest: int | None = None


History = tuple[Facts, ...]
"""Micro-batches with rows, the oldest first; each with those without rows that followed it."""


def remember(history: History, facts: Facts, most: int) -> History:
    """The history with one more micro-batch, and of the past no more than is needed.

    A micro-batch without rows belongs to the one before: it closes windows, and feeds the
    operators behind them.
    """
    before = history[-1] if history else None
    highest = _greater(before.highest if before else None, facts.newest)
    present = replace(facts, highest=highest)
    if before is None or facts.rows:
        return (*history, present)[-most:]
    together = replace(
        present,
        rows=before.rows,
        newest=_greater(before.newest, facts.newest),
        sources=before.sources,
        counts=_added(before.counts, facts.counts),
    )
    return (*history[:-1], together)


def _greater(one: int | None, other: int | None) -> int | None:
    there = [each for each in (one, other) if each is not None]
    return max(there, default=None)


def _added(
    one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Counts added up; of levels, and of what is no number, the later that is there."""
    added = {name: dict(told) for name, told in one.items()}
    for name, told in other.items():
        total = added.setdefault(name, {})
        for count, value in told.items():
            was = total.get(count)
            if isinstance(value, int) and isinstance(was, int) and count not in LEVELS:
                total[count] = was + value
            elif value is not None:
                total[count] = value
            else:
                total.setdefault(count, None)
    return added
