"""Micro-batches of one run, as short as a test can say them. Seconds, where the rest is micros."""

from __future__ import annotations

from typing import Any

from streamops.observe.core.episodes import QUIET, Alarm, take_in
from streamops.observe.core.facts import Facts, Source
from streamops.observe.core.rules import Rule

SECOND = 1_000_000
START = 1_700_000_000  # where the seconds of a test begin


def micro_batch(
    rows: int = 10,
    *,
    batch: int = 0,
    watermark: int | None = None,
    newest: int | None = None,
    sources: tuple[tuple[str, int], ...] = (),
    started: int = 0,
    **counts: dict[str, Any],
) -> Facts:
    """Seconds after START; a watermark of None is none yet."""
    return Facts(
        query="views",
        run="r",
        batch=batch,
        started=(START + started) * SECOND,
        rows=rows,
        watermark=0 if watermark is None else (START + watermark) * SECOND,
        newest=None if newest is None else (START + newest) * SECOND,
        sources=tuple(Source(name, count) for name, count in sources),
        counts=counts,
    )


def raised(rule: Rule, *batches: Facts) -> list[list[Alarm]]:
    """The alarms of each micro-batch."""
    watch, told = QUIET, []
    for each in batches:
        watch, alarms = take_in([rule], watch, each)
        told.append(alarms)
    return told


def when(rule: Rule, *batches: Facts) -> list[int]:
    """The positions of the micro-batches that raised an alarm."""
    return [number for number, alarms in enumerate(raised(rule, *batches)) if alarms]
