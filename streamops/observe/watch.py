"""A live view of a query, in a terminal or in a notebook."""

from __future__ import annotations

import base64
import html
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from streamops.kernel.parameters import require_package
from streamops.kernel.time import Duration, format_instant, parse_duration
from streamops.observe.core.progress import LATE, Progress, QueryTotals
from streamops.observe.history import QueryHistory, not_a_query
from streamops.observe.progress import read_new_progress

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


Display = Literal["auto", "terminal", "notebook"]
Show = Callable[[View, QueryHistory], None]

_RETAINED = 1_000  # micro-batches


def watch(
    query: Any,
    *,
    refresh: Duration = "1 second",
    timeout: Duration | None = None,
    display: Display = "auto",
) -> QueryHistory:
    """Display a running query live, until it ends or you interrupt it.

    A terminal displays a dashboard, a notebook a table and a plot: rows per second, the watermark
    and its delay, late rows, corrections, side output, rows and bytes of state per operator, and the
    time that each phase takes. No values of rows are displayed, and no message of an error, which
    may contain some.

    Parameters
    ----------
    query : StreamingQuery
        The query, of a classic session or of Spark Connect. An interrupt (Ctrl-C, or the stop button
        of a notebook) ends the view, not the query.
    refresh : duration
        How often the view is updated.
    timeout : duration, optional
        End the view after this time. Default: when the query ends.
    display : {"auto", "terminal", "notebook"}
        Where to display it. "auto" is a notebook if the function is called in one.

    Returns
    -------
    QueryHistory
        The last 1,000 micro-batches that were displayed.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``UNKNOWN_CHOICE``, or a duration that is not one.
    RequirementError
        ``PACKAGE_MISSING``: rich, or matplotlib and IPython in a notebook, are not installed.

    Examples
    --------
    >>> history = observe.watch(query, timeout="1 minute")
    >>> history.batches["rows_per_second"].median()

    Notes
    -----
    The view asks the query for its progress, and adds no listener to the session.

    See Also
    --------
    history : the same as frames, once.
    """
    period = parse_duration(refresh, parameter="refresh", minimum=1)
    end = None
    if timeout is not None:
        limit = parse_duration(timeout, parameter="timeout", minimum=1)
        end = time.monotonic() + limit / 1e6
    # Of the type: a property would ask Spark.
    if not all(hasattr(type(query), name) for name in ("lastProgress", "isActive", "exception")):
        raise not_a_query(query)
    is_notebook = display == "notebook" or (display == "auto" and _in_notebook())
    recorder = _Recorder(query)
    with _notebook() if is_notebook else _terminal() as show:
        try:
            while True:
                is_active = bool(query.isActive)  # before its progress is read: the last one counts
                recorder.read()
                show(recorder.view(_status(query, is_active)), recorder.history)
                now = time.monotonic()
                if not is_active or (end is not None and now >= end):
                    break
                time.sleep(min(period / 1e6, period / 1e6 if end is None else end - now))
        except KeyboardInterrupt:
            pass
    return recorder.history


class _Recorder:
    """Collects the progress of a query."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._progress: list[Progress] = []
        self._totals: QueryTotals | None = None

    def read(self) -> None:
        """Read the micro-batches since the last call."""
        last = self._progress[-1].batch if self._progress else -1
        for progress in read_new_progress(self._query, last):
            self._totals = self._totals or QueryTotals(progress)
            self._totals.add(progress)
            self._progress.append(progress)
        del self._progress[:-_RETAINED]

    @property
    def history(self) -> QueryHistory:
        return QueryHistory(tuple(self._progress))

    def view(self, status: str) -> View:
        return build_view(self._totals, self._progress, status)


def _status(query: Any, is_active: bool) -> str:
    """Whether the query runs, or how it ended, without the message of an error."""
    if is_active:
        return "running"
    error = query.exception()
    if error is None:
        return "ended"
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    return f"failed ({condition or type(error).__name__}; query.exception() has the message)"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _rich(module: str) -> Any:
    return require_package(module, package="rich", extra="watch")


@contextmanager
def _terminal() -> Iterator[Show]:
    live = _rich("rich.live")
    with live.Live(auto_refresh=False) as display:
        yield lambda view, _: display.update(render(view), refresh=True)


def render(view: View) -> Any:
    """The view as a renderable of rich."""
    console = _rich("rich.console")
    tables = _rich("rich.table")
    text = _rich("rich.text")
    facts = tables.Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    for fact in view.facts:
        facts.add_row(*map(text.Text, fact))
    parts = [text.Text(view.title, style="bold"), facts]
    for table in (view.operators, view.phases):
        if table is not None and table.rows:
            drawn = tables.Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
            name, *numbers = table.columns
            drawn.add_column(name, overflow="fold")  # numbers need their room, names do not
            for column in numbers:
                drawn.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)
            for row in table.rows:
                drawn.add_row(*map(text.Text, row))
            parts += [text.Text(), drawn]
    # Spark's own progress line is written where the cursor is: on a line of its own.
    return console.Group(*parts, text.Text())


@contextmanager
def _notebook() -> Iterator[Show]:
    display = require_package("IPython.display", package="ipython", extra="watch")
    handle = display.display(display.HTML(""), display_id=True)

    def show(view: View, history: QueryHistory) -> None:
        picture = io.BytesIO()
        if history.progress:
            figure: Any = history.plot()[0].figure
            figure.savefig(picture, format="png", dpi=80)
        handle.update(display.HTML(to_html(view, picture.getvalue())))

    yield show


def to_html(view: View, picture: bytes = b"") -> str:
    """The view as HTML, with a picture in PNG."""
    facts = Table(("", ""), view.facts)
    tables = [facts, *(table for table in (view.operators, view.phases) if table is not None)]
    parts = [f"<b>{html.escape(view.title)}</b>", *map(_table, tables)]
    if picture:
        data = base64.b64encode(picture).decode("ascii")
        parts.append(f'<img src="data:image/png;base64,{data}" alt="plot of the micro-batches">')
    return "\n".join(parts)


def _table(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        first, *rest = map(html.escape, cells)
        align = "right" if any(table.columns) else "left"  # facts have no titles, and are text
        others = "".join(f'<{tag} style="text-align:{align}">{cell}</{tag}>' for cell in rest)
        return f'<tr><{tag} style="text-align:left">{first}</{tag}>{others}</tr>'

    head = row(table.columns, "th") if any(table.columns) else ""
    body = "".join(row(cells, "td") for cells in table.rows)
    return f"<table>{head}{body}</table>"
