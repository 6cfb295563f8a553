"""What is displayed of a query, as text: the same facts in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamops.kernel.time import format_instant
from streamops.observe.core.progress import LATE, Progress
from streamops.observe.core.totals import QueryTotals

_BARS = "▁▂▃▄▅▆▇█"
_TREND = 40  # micro-batches
_COUNTED = ("rows", "results", "late", "corrections", "side_output", "rejected")
_NONE = "–"


@dataclass(frozen=True)
class Table:
    """A table of text: the first column is a name, all others are numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class View:
    """What is displayed of a query.

    Parameters
    ----------
    title : str
        The query, whether it is running, and its last micro-batch.
    facts : tuple of (str, str)
        Names and values.
    operators, phases : Table
        The operators; the phases of a micro-batch.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    operators: Table | None = None
    phases: Table | None = None


def build_view(totals: QueryTotals | None, recent: Sequence[Progress], status: str) -> View:
    """The view of a query: its totals, and its recent micro-batches, of which the last is displayed."""
    if totals is None:
        return View(f"{status}, no micro-batch yet")
    last = totals.last
    return View(
        f"query {last.query}: {status}, micro-batch {last.batch}",
        _facts(totals, last, recent[-_TREND:]),
        _operators(totals),
        _phases(totals, last),
    )


def _facts(
    totals: QueryTotals, last: Progress, recent: Sequence[Progress]
) -> tuple[tuple[str, str], ...]:
    rates = [progress.processing_rate or 0.0 for progress in recent]
    newest = next((p.newest for p in reversed(recent) if p.newest is not None), None)
    facts = {
        "rows per second": f"{_rate(last.processing_rate)}  {_trend(rates)}",
        "arriving rows per second": _rate(last.input_rate),
        "rows": f"{totals.rows:,} in {totals.batches:,} micro-batches",
        "micro-batch": f"{format_length(last.duration)}, started {format_instant(last.started)}",
        "watermark": format_instant(last.watermark or None),
        "delay of the watermark": format_length(last.watermark_delay),
        "newest event time": format_length(None if newest is None else last.started - newest)
        + " ago",
        "lateness": format_length(last.lateness),
        "late rows": f"{totals.count(*LATE):,}",
        "corrections": f"{totals.count('corrections'):,}",
        "side output": f"{totals.count('side_output'):,} rows",
        "behind Kafka": _NONE if last.behind is None else f"{last.behind:,} records",
    }
    without_event_time = {"watermark", "delay of the watermark", "newest event time", "lateness"}
    hidden = without_event_time if last.watermark is None else set()
    hidden |= {name for name, value in facts.items() if value.startswith(_NONE)}
    return tuple((name, value) for name, value in facts.items() if name not in hidden)


def _operators(totals: QueryTotals) -> Table:
    rows = []
    for name, operator in totals.operators.items():
        counts = {**totals.counts[name], "late": sum(totals.counts[name][late] for late in LATE)}
        is_late = any(late in operator.counts for late in LATE)
        counted = [
            f"{counts[column]:,}"
            if column in operator.counts or (column == "late" and is_late)
            else _NONE
            for column in _COUNTED
        ]
        state = _NONE if operator.state_rows is None else f"{operator.state_rows:,}"
        rows.append((name, *counted, state, format_bytes(operator.state_bytes)))
    titles = (column.replace("_", " ") for column in _COUNTED)
    return Table(("operator", *titles, "state rows", "state"), tuple(rows))


def _phases(totals: QueryTotals, last: Progress) -> Table:
    whole = totals.duration or 1
    rows = [
        (
            phase,
            format_length(last.phases.get(phase)),
            format_length(spent // totals.batches),
            f"{100 * spent / whole:.0f} %",
        )
        for phase, spent in totals.phases.most_common()
    ]
    return Table(("phase", "last", "mean", "share"), tuple(rows))


def format_length(micros: int | None) -> str:
    """A duration in one or two units, for display.

    Examples
    --------
    >>> [format_length(1_000_000 * seconds) for seconds in (0, 12, 200, 20_000, 5_000_000)]
    ['0 ms', '12.0 s', '3 min', '5 h 33 min', '57 days']
    >>> format_length(-90_000), format_length(None)
    ('-90 ms', '–')
    """
    if micros is None:
        return _NONE
    sign, seconds = "-" * (micros < 0), abs(micros) / 1e6
    if seconds < 1:
        return f"{sign}{1_000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{sign}{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{sign}{minutes} min"
    if minutes < 2 * 1_440:
        return f"{sign}{minutes // 60} h {minutes % 60} min"
    return f"{sign}{minutes // 1_440:,} days"


def format_bytes(size: int | None) -> str:
    """A number of bytes, for display.

    Examples
    --------
    >>> [format_bytes(size) for size in (0, 999, 5_168, 14_000_000, None)]
    ['0 B', '999 B', '5.2 kB', '14.0 MB', '–']
    """
    if size is None:
        return _NONE
    amount, units = float(size), iter(("kB", "MB", "GB", "TB"))
    if amount < 1_000:
        return f"{size} B"
    unit = ""
    while amount >= 1_000 and (following := next(units, "")):
        amount, unit = amount / 1_000, following
    return f"{amount:,.1f} {unit}"


def _rate(rate: float | None) -> str:
    if rate is None:
        return _NONE
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def _trend(values: Sequence[float]) -> str:
    """Values as bars, from zero to the greatest."""
    greatest = max(values, default=0.0)
    if greatest <= 0:
        return ""
    return "".join(_BARS[round(value / greatest * (len(_BARS) - 1))] for value in values)
