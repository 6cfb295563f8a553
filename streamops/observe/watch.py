"""A live view of a query, in a terminal or in a notebook."""

from __future__ import annotations

import base64
import html
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from streamops.kernel.packages import require_package
from streamops.kernel.time import Duration, parse_duration
from streamops.observe.core.progress import Progress
from streamops.observe.core.totals import QueryTotals
from streamops.observe.history import QueryHistory, not_a_query
from streamops.observe.progress import read_progress
from streamops.observe.view import Table, View, build_view

__all__ = ["watch"]

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
        reported = self._query.lastProgress
        if reported is None:
            return
        last = self._progress[-1].batch if self._progress else -1
        if reported.batchId <= last:
            return
        # The other ones are read only if some were missed: there are up to a hundred.
        missed = self._query.recentProgress if reported.batchId > last + 1 else [reported]
        for progress in map(read_progress, missed):
            if progress.batch > last:
                self._totals = self._totals or QueryTotals(progress)
                self._totals.add(progress)
                self._progress.append(progress)
                last = progress.batch
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
