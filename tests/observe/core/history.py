"""Short notation for the micro-batches of one run. Times are seconds after START."""

from __future__ import annotations

from typing import Any

from streamops.observe.core.alarms import Alarm, Rule, Run, raise_alarms
from streamops.observe.core.progress import Progress, Source

SECOND = 1_000_000
START = 1_700_000_000


def micro_batch(
    rows: int = 10,
    *,
    batch: int = 0,
    watermark: int | None = None,
    newest: int | None = None,
    sources: tuple[tuple[str, int], ...] = (),
    started: int = 0,
    **metrics: dict[str, Any],
) -> Progress:
    """A micro-batch. Without `watermark`, the query has event time, but no watermark yet."""
    return Progress(
        query="views",
        run="r",
        batch=batch,
        started=(START + started) * SECOND,
        rows=rows,
        watermark=0 if watermark is None else (START + watermark) * SECOND,
        newest=None if newest is None else (START + newest) * SECOND,
        sources=tuple(Source(name, count) for name, count in sources),
        metrics=metrics,
    )


def alarms_of(rule: Rule, *batches: Progress) -> list[list[Alarm]]:
    """Return the alarms of each micro-batch."""
    run, alarms = Run(), []
    for batch in batches:
        run, raised = raise_alarms([rule], run, batch)
        alarms.append(raised)
    return alarms


def alarm_positions(rule: Rule, *batches: Progress) -> list[int]:
    """Return the positions of the micro-batches that raise an alarm."""
    return [index for index, raised in enumerate(alarms_of(rule, *batches)) if raised]
