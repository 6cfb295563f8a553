"""Pictures of the matches of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes

from streamops.kernel.parameters import Text
from streamops.plots import artists
from streamops.plots.artists import WINDOW, draw_lanes
from streamops.plots.data import Data, Floats, read_rows

MATCH = replace(WINDOW, name="match")


def plot_matches(
    matches: Data,
    events: Data,
    *,
    time: str,
    by: str | Sequence[str] | None = None,
    category: str | None = None,
    label: str | None = None,
    start: str = "match_start",
    end: str = "match_end",
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the matches of a pattern as bars over the events of their key.

    Parameters
    ----------
    matches : frame
        The output of ``patterns.match``: a frame of PySpark, pandas, Arrow or Polars, rows as dicts,
        columns by name, or the results of ``testing.replay``. All rows are collected.
    events : frame
        The input.
    time : str
        Event-time column of the events. Timestamps without a time zone are taken as UTC.
    by : str or sequence of str, optional
        Key columns of both frames: one row of the picture per key.
    category : str, optional
        Column of the events, such as their type: one color and shape for each of its values. At most 6
        of them differ.
    label : str, optional
        Column of the matches to write into the bars, such as a measure.
    start, end : str
        Columns with the event times of the first and the last row of a match, both included.
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
        ``PARAMETER_OUT_OF_RANGE``: more than 5,000 rows or 60 keys.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> events = [{"t": 1, "type": "fail"}, {"t": 2, "type": "fail"}, {"t": 3, "type": "ok"}]
    >>> matches = [{"match_start": 1, "match_end": 3}]
    >>> ax = plots.plot_matches(matches, events, time="t", category="type")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['fail', 'ok', 'match']
    """
    rows = read_rows(matches, {"start": start, "end": end, "label": label})
    points = read_rows(events, {"time": time, "category": category})

    def draw_categories(
        ax: Axes, points: pd.DataFrame, times: Floats, y: Floats
    ) -> artists.Entries:
        groups = artists.groups_of(points, category, parameter="category")
        for mask, style in groups:
            artists.draw_dots(ax, times[mask], y[mask], style)
        return artists.dots_of(style for _, style in groups)

    return draw_lanes(
        rows, points, by=by, time=time, label=label, start=start, end=end,
        styles=[MATCH] * len(rows), zone=zone, ax=ax, is_closed=True,
        draw_events=draw_categories)  # fmt: skip
