"""Pictures of windows, sessions and versions: intervals of a key, with its events below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from streamops.kernel.palette import COLORS
from streamops.kernel.parameters import Text
from streamops.kernel.time import Duration
from streamops.plots import artists
from streamops.plots.artists import WINDOW, Style, draw_lanes
from streamops.plots.data import Data, read_rows, to_width

SESSION = replace(WINDOW, name="session")
VERSION = Style("past version", COLORS["retracted"])
CURRENT = replace(WINDOW, name="current version")


def plot_windows(
    windows: Data,
    events: Data | None = None,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    label: str | None = None,
    start: str = "window_start",
    end: str = "window_end",
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot windows as bars over the events of their key.

    Windows of a key that overlap are on separate lanes. In results with corrections, the columns
    ``revision``, ``timing`` and ``_change_type`` determine the style: corrected results are orange,
    early ones dashed, retracted ones hatched.

    Parameters
    ----------
    windows : frame
        A frame of PySpark, pandas, Arrow or Polars, rows as dicts, columns by name, or the results
        of ``testing.replay``. All rows are collected.
    events : frame, optional
        The input, to be drawn as dots.
    by : str or sequence of str, optional
        Key columns of both frames: one row of the picture per key.
    time : str, optional
        Event-time column of the events. Timestamps without a time zone are taken as UTC.
    label : str, optional
        Column to write into the bars, such as an aggregate. A label that is wider than its bar is
        left out.
    start, end : str
        Columns with the bounds of the windows, ``[start, end)``: timestamps or numbers.
    zone : str, optional
        Time zone of the axis, such as "Europe/Berlin". By default that of the column, or UTC.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``: more than 5,000 rows or 60 keys. ``PARAMETER_MISSING``: events without `time`.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> windows = [{"window_start": 0, "window_end": 10, "n": 2}]
    >>> ax = plots.plot_windows(windows, [{"t": 3}, {"t": 8}], time="t", label="n")
    >>> [text.get_text() for text in ax.texts]
    ['2']

    See Also
    --------
    plot_sessions : shows the gap of sessions.
    plot_corrections : shows what every micro-batch emitted.
    """
    columns = {"start": start, "end": end, "label": label}
    rows = read_rows(windows, columns)
    return draw_lanes(
        rows, events, by=by, time=time, label=label, start=start, end=end,
        styles=artists.styles_of(rows, plain=WINDOW), zone=zone, ax=ax, )  # fmt: skip


def plot_sessions(
    sessions: Data,
    events: Data | None = None,
    *,
    gap: Duration | float,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    label: str | None = None,
    start: str = "window_start",
    end: str = "window_end",
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot sessions as bars over the events of their key, and the gap after the last event of each.

    A session ends one gap after its last event: the bar is filled up to that event, and dashed from
    there to the end.

    Parameters
    ----------
    sessions, events : frame
        As in :func:`plot_windows`.
    gap : timedelta, str or float
        The gap of the sessions, such as "20 minutes"; a number if the bounds are numbers.
    by, time, label, start, end, zone, ax
        As in :func:`plot_windows`.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError, SchemaError, ColumnNotFound
        As in :func:`plot_windows`; a `gap` that is not a duration.

    Examples
    --------
    >>> from streamops import plots
    >>> sessions = [{"window_start": 0, "window_end": 13}]
    >>> ax = plots.plot_sessions(sessions, [{"t": 0}, {"t": 8}], gap=5, time="t")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['event', 'session', 'gap']
    """
    width = to_width(gap, parameter="gap", minimum=1)
    rows = read_rows(sessions, {"start": start, "end": end, "label": label})
    return draw_lanes(
        rows, events, by=by, time=time, label=label, start=start, end=end, tail=width,
        styles=artists.styles_of(rows, plain=SESSION), zone=zone, ax=ax, )  # fmt: skip


def plot_history(
    versions: Data,
    *,
    by: str | Sequence[str],
    label: str | None = None,
    start: str = "valid_from",
    end: str = "valid_to",
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the versions of rows as bars, such as a type 2 history of ``changes.apply``.

    A version without an end is the current one. Its bar reaches the right edge of the picture.
    Earlier versions are gray.

    Parameters
    ----------
    versions : frame
        As in :func:`plot_windows`.
    by : str or sequence of str
        Key columns: one row of the picture per key.
    label : str, optional
        Column to write into the bars.
    start, end : str
        Columns with the bounds of the versions, ``[start, end)``; an end that is null is open.
    zone : str, optional
        Time zone of the axis, such as "Europe/Berlin". By default that of the column, or UTC.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError, SchemaError, ColumnNotFound
        As in :func:`plot_windows`.

    Examples
    --------
    >>> from streamops import plots
    >>> versions = [
    ...     {"id": 1, "city": "Bonn", "valid_from": 0, "valid_to": 10},
    ...     {"id": 1, "city": "Köln", "valid_from": 10, "valid_to": None},
    ... ]
    >>> ax = plots.plot_history(versions, by="id", label="city")
    >>> [text.get_text() for text in ax.texts]
    ['Bonn', 'Köln']
    """
    rows = read_rows(versions, {"start": start, "end": end, "label": label})
    styles = [CURRENT if is_open else VERSION for is_open in rows[end].isna()]
    return draw_lanes(
        rows, None, by=by, time=None, label=label, start=start, end=end, styles=styles, zone=zone,
        ax=ax, order=[style for style in (VERSION, CURRENT) if style in styles])  # fmt: skip
