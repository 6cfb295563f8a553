"""Pictures of event time against arrival: the watermark, and how late rows are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from streamops.kernel.calendar import DAY
from streamops.kernel.palette import COLORS, lighten
from streamops.kernel.parameters import Text
from streamops.kernel.time import Duration
from streamops.plots import artists, conditions
from streamops.plots.artists import EVENT, ON_TIME, STRAGGLER, TOO_LATE, Style
from streamops.plots.data import (
    Data,
    Floats,
    Mask,
    is_time,
    read_rows,
    to_coordinates,
    to_width,
    zone_of,
)
from streamops.spark.operator import Operator
from streamops.testing.replaying import classify_rows

REJECTED = Style("rejected", COLORS["retracted"], marker="s")
STYLES = {
    "on_time": ON_TIME,
    "stragglers": STRAGGLER,
    "too_late": TOO_LATE,
    "rejected": REJECTED,
}
"""The styles of rows, by the metric that counts them."""
UNITS = {"days": 1.0, "hours": 24.0, "minutes": 1440.0, "seconds": 86_400.0}


def plot_watermark(
    events: Data,
    *,
    time: str,
    arrival: str,
    delay: Duration | float | None = None,
    allowed_lateness: Duration | float | None = None,
    operator: Operator | None = None,
    watermark: str | None = None,
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot event time against arrival, with the watermark as a staircase.

    Rows with an equal `arrival` are one micro-batch. A row is compared with the watermark that the
    micro-batches before it have reached: their greatest event time, less `delay`. It is late if its
    event time is at or below the watermark, and too late if it is at or below it by more than
    `allowed_lateness`. An operator may compare the end of a window instead, and compares with the
    watermark of the micro-batch before, as Spark does: pass it as `operator`, and rows have the colors of
    what it counts them as.

    Parameters
    ----------
    events : frame
        A frame of PySpark, pandas, Arrow or Polars, rows as dicts, or columns by name. All rows are
        collected.
    time : str
        Event-time column. Timestamps without a time zone are taken as UTC.
    arrival : str
        Column with the time or the number of the micro-batch.
    delay : timedelta, str or float, optional
        Delay of the watermark, such as "10 minutes"; a number if event times are numbers. Without
        `delay` and `watermark`, there is no staircase.
    allowed_lateness : timedelta, str or float, optional
        Draws a second staircase, this far below the watermark.
    operator : Operator, optional
        Such as ``windows.tumbling(...)``: it runs over the rows, without Spark, and decides which of them
        are late. Its `delay` and `allowed_lateness` are drawn.
    watermark : str, optional
        Column with the watermark that each row was compared with, instead of `delay`. Null if there
        was none.
    zone : str, optional
        Time zone of the axes, such as "Europe/Berlin". By default that of the columns, or UTC.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError
        ``PARAMETERS_CONTRADICT``: both are given. ``NOT_REPLAYABLE``: the operator has no event time, or
        two inputs. A duration or `zone` is invalid.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> events = {"batch": [0, 0, 1, 1], "t": [3, 8, 12, 4]}
    >>> ax = plots.plot_watermark(events, time="t", arrival="batch", delay=2)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['on time', 'late', 'watermark']

    See Also
    --------
    plot_late_share : how long `delay` has to be.
    """
    twice = (watermark, delay), (watermark, operator), (operator, allowed_lateness)
    if any(one is not None and other is not None for one, other in twice):
        raise conditions.DELAY_AND_WATERMARK.error(
            got=f"{delay=!r}, {allowed_lateness=!r}, {operator=!r}, {watermark=!r}"
        )
    columns = {"time": time, "arrival": arrival, "watermark": watermark}
    rows = read_rows(events, columns)
    times, arrivals = (to_coordinates(rows[name]) for name in (time, arrival))
    known = np.isfinite(times) & np.isfinite(arrivals)
    rows, times, arrivals = rows[known], times[known], arrivals[known]
    steps, levels, allowed = np.unique(arrivals), None, 0.0
    if allowed_lateness is not None:
        allowed = to_width(allowed_lateness, parameter="allowed_lateness")
    if operator is not None and len(rows):
        masks, levels, allowed = _classify(operator, rows, time, arrivals, delay)
    else:
        if watermark is not None:
            levels = _levels_of(to_coordinates(rows[watermark]), arrivals, steps)
        elif delay is not None:
            width = to_width(delay, parameter="delay")
            levels = _watermarks(times, arrivals, steps) - width
        masks = _compare(times, arrivals, steps, levels, allowed)
    ax = artists.new_axes(ax, 4.6)
    ax.grid(axis="both", color=artists.GRID, linewidth=0.9)
    artists.set_limits(ax, arrivals)
    masks = {style: mask for style, mask in masks.items() if mask.any() or style is EVENT}
    for style, mask in masks.items():
        artists.draw_dots(ax, arrivals[mask], times[mask], style)
    entries = artists.dots_of(masks)
    if levels is not None and len(steps):
        is_numbered = pd.api.types.is_integer_dtype(rows[arrival])
        entries |= _draw_staircase(ax, steps, levels, allowed, is_numbered=is_numbered)
    display = zone_of(rows[time], rows[arrival], zone=zone)
    artists.add_axis(ax, rows[arrival], display)
    if is_time(rows[time]):
        artists.add_time_axis(ax, display, axis="y")
    artists.label_axes(ax, "arrival" if is_time(rows[arrival]) else "micro-batch", "event time")
    artists.add_legend(ax, entries)
    return ax


def plot_late_share(
    events: Data,
    *,
    time: str,
    arrival: str,
    delay: Duration | float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of rows that are late, against the delay of the watermark.

    A row is late if it is behind the greatest event time of all earlier arrivals by at least the
    delay. The curve says how much a longer delay saves.

    Parameters
    ----------
    events, time, arrival, ax
        As in :func:`plot_watermark`.
    delay : timedelta, str or float, optional
        Marks this delay, and writes its share beside it.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError, SchemaError, ColumnNotFound
        As in :func:`plot_watermark`.

    Examples
    --------
    Of four rows one is 4 behind the greatest event time before it:

    >>> from streamops import plots
    >>> events = {"batch": [0, 1, 2, 3], "t": [3, 8, 4, 12]}
    >>> ax = plots.plot_late_share(events, time="t", arrival="batch", delay=2)
    >>> [text.get_text() for text in ax.texts]
    ['25 % late']
    """
    rows = read_rows(events, {"time": time, "arrival": arrival})
    times, arrivals = (to_coordinates(rows[name]) for name in (time, arrival))
    known = np.isfinite(times) & np.isfinite(arrivals)
    times, arrivals = times[known], arrivals[known]
    steps = np.unique(arrivals)
    newest = _watermarks(times, arrivals, steps)[np.searchsorted(steps, arrivals)]
    behind = np.sort(newest - times)
    width = 0.0 if delay is None else to_width(delay, parameter="delay")
    unit, factor = ("", 1.0)
    if is_time(rows[time]):
        reach = max(float(behind[-1]) if len(behind) else 0.0, width, 1 / 86_400)
        unit, factor = next((name, n) for name, n in UNITS.items() if reach * n >= 2 or n == 86_400)
    late = behind[behind >= 0]
    # A row that is behind by d is late up to a delay of d: the share falls to the right of it.
    levels = np.arange(len(late), -1, -1) / max(len(times), 1)
    ax = artists.new_axes(ax, 3.6)
    ax.grid(axis="both", color=artists.GRID, linewidth=0.9)
    edges = np.concatenate([[0.0], late * factor])
    # The marked delay is in the picture, also if it exceeds all that is behind.
    ends = np.append(edges, max(edges[-1], width * factor) * 1.05 or 1.0)
    ax.stairs(
        levels, ends, color=ON_TIME.color, linewidth=1.8, fill=False, baseline=None,
        label="late rows",
    )  # fmt: skip
    ax.fill_between(ends, np.append(levels, levels[-1]), step="post", color=ON_TIME.fill, zorder=0)
    ax.set_xlim(0, ends[-1])
    ax.set_ylim(0, max(float(levels[0]) * 1.1, 0.01))
    ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    artists.label_axes(ax, f"delay, in {unit}" if unit else "delay", "late rows")
    if delay is not None:
        share = float(np.mean(behind >= width)) if len(behind) else 0.0
        ax.axvline(width * factor, color=COLORS["corrected"], linewidth=1.6, linestyle="--")
        is_right = width * factor > ends[-1] / 2  # the text is on the side that has room
        ax.annotate(
            f"{share * 100:.3g} % late", (width * factor, 0.92), xycoords=("data", "axes fraction"),
            xytext=(-7 if is_right else 7, 0), ha="right" if is_right else "left",
            textcoords="offset points", color=artists.TEXT, fontsize=artists.FONT,
        )  # fmt: skip
    return ax


def _watermarks(times: Floats, arrivals: Floats, steps: Floats) -> Floats:
    """For every arrival the greatest event time of all before it; minus infinity for the first."""
    newest = np.full(len(steps), -np.inf)
    np.maximum.at(newest, np.searchsorted(steps, arrivals), times)
    return np.concatenate([[-np.inf], np.maximum.accumulate(newest)[:-1]])[: len(steps)]


def _levels_of(watermarks: Floats, arrivals: Floats, steps: Floats) -> Floats:
    """The watermark of every arrival, which is the greatest of its rows."""
    levels = np.full(len(steps), -np.inf)
    np.maximum.at(levels, np.searchsorted(steps, arrivals), np.nan_to_num(watermarks, nan=-np.inf))
    return levels


def _compare(
    times: Floats, arrivals: Floats, steps: Floats, levels: Floats | None, allowed: float
) -> dict[Style, Mask]:
    """The rows of each style, by how their event times compare with the watermark."""
    if levels is None:
        return {EVENT: np.full(len(times), True)}
    level = levels[np.searchsorted(steps, arrivals)]
    is_late = times <= level
    is_too_late = is_late & (times <= level - allowed) & (allowed > 0)
    late = STRAGGLER if allowed else replace(STRAGGLER, name="late")
    return {ON_TIME: ~is_late, late: is_late & ~is_too_late, TOO_LATE: is_too_late}


def _classify(
    operator: Operator,
    rows: pd.DataFrame,
    time: str,
    arrivals: Floats,
    delay: Duration | float | None,
) -> tuple[dict[Style, Mask], Floats, float]:
    """The rows of each style and the watermarks, as the operator counts and computes them."""
    given: Any = operator
    times = given.spec.times if isinstance(given, Operator) and given.core else ()
    if len(times) != 1 or times[0] is None:
        raise conditions.OPERATOR_WITHOUT_WATERMARK.error(got=repr(operator))
    metrics = np.full(len(rows), "", "U10")
    batches = [arrivals == step for step in np.unique(arrivals)]
    tables = [_to_arrow(rows[mask], time) for mask in batches]
    watermark: Any = delay
    levels = np.full(len(batches), -np.inf)
    classified = classify_rows(operator, tables, watermark=watermark)
    for at, (mark, found) in enumerate(classified):
        metrics[batches[at]] = found
        if mark is not None:
            levels[at] = mark / DAY
    allowed = getattr(operator.parameters, "allowed_lateness", 0) / DAY
    return (
        {style: metrics == name for name, style in STYLES.items()},
        levels,
        allowed,
    )


def _to_arrow(rows: pd.DataFrame, time: str) -> pa.Table:
    table = pa.Table.from_pandas(rows, preserve_index=False)
    at = table.column_names.index(time)
    if table.field(at).type != pa.timestamp(getattr(table.field(at).type, "unit", "us")):
        return table
    # Timestamps without a time zone are taken as UTC.
    return table.set_column(at, time, table.column(at).cast(pa.timestamp("us", tz="UTC")))


def _draw_staircase(
    ax: Axes, steps: Floats, levels: Floats, allowed: float, *, is_numbered: bool
) -> artists.Entries:
    """Draw the watermark, and the end of the allowed lateness below it."""
    left, right = ax.get_xlim()
    if is_numbered:  # a micro-batch is as wide as its number
        edges = np.concatenate([steps - 0.5, [steps[-1] + 0.5]])
        ax.set_xlim(min(left, edges[0]), max(right, edges[-1]))
    else:  # the watermark rises right after the row that raises it
        edges = np.concatenate([[left], steps[:-1], [right]])
    bottom = ax.get_ylim()[0]
    ax.set_ylim(bottom, ax.get_ylim()[1])
    drawn = np.where(np.isfinite(levels), levels, np.nan)
    entries: artists.Entries = {}
    horizons: dict[str, tuple[Floats, artists.LineStyle]] = {"watermark": (drawn, "-")}
    if allowed:
        horizons["end of the allowed lateness"] = (drawn - allowed, ":")
    for name, (values, linestyle) in horizons.items():
        ax.stairs(
            values, edges, color=artists.TEXT, linewidth=1.8, linestyle=linestyle, baseline=None,
            label=name, zorder=3,
        )  # fmt: skip
        entries[name] = artists.line_entry(artists.TEXT, linestyle)
    shade = np.repeat(np.where(np.isfinite(drawn), drawn, bottom), 2)
    ax.fill_between(
        np.repeat(edges, 2)[1:-1], bottom, np.maximum(shade, bottom), color=lighten(artists.GRID, 0.4), zorder=0,
        linewidth=0,
    )  # fmt: skip
    return entries
