"""Intervals on lanes, key by key, over the events of the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from streamops.kernel.palette import COLORS
from streamops.kernel.parameters import Text
from streamops.plots import artists
from streamops.plots.artists import EVENT, Style
from streamops.plots.data import (
    Data,
    Floats,
    add_key,
    read_keys,
    read_rows,
    require_time,
    to_coordinates,
    zone_of,
)

LANE = 0.4
GAP = Style("gap", COLORS["on_time"], is_dashed=True, is_light=True)


def draw_lanes(
    rows: pd.DataFrame,
    events: Data | None,
    *,
    by: str | Sequence[str] | None,
    time: str | None,
    label: str | None,
    start: str,
    end: str,
    styles: Sequence[Style],
    ax: Axes | None,
    zone: Text | None = None,
    tail: float = 0.0,
    is_closed: bool = False,
    order: Sequence[Style] = (),
    axis: str = "event time",
    draw_events: Callable[[Axes, pd.DataFrame, Floats, Floats], artists.Entries] | None = None,
) -> Axes:
    """Draw intervals on lanes over the events of their key.

    ``tail``: the length of the gap at the end of every interval. ``is_closed``: both ends belong to the
    interval, which is drawn a little wider, so that its events are below it. ``order``: the entries of
    the legend, by default in the order of the rows. ``axis``: the name of the x axis. ``draw_events``: draws the
    events at their coordinates and returns what they add to the legend; by default they are dots.
    """
    names = read_keys(by)
    require_time(events, time)
    rows = add_key(rows, names)
    starts, ends = (to_coordinates(rows[column]) for column in (start, end))
    points, times = _read_events(events, time, names)
    keys = sorted({*rows["_key"], *points["_key"]}, key=_sort_key)
    lanes = {
        key: artists.lanes_of(starts[mask], np.where(np.isnan(ends[mask]), np.inf, ends[mask]))
        for key in keys
        for mask in [(rows["_key"] == key).to_numpy()]
    }
    below = 0.25 if events is not None else 0.0
    heights = {key: below + LANE * (max(lanes[key], default=-1) + 1) + 0.18 for key in keys}
    ax = artists.new_axes(ax, 1.15 + 1.15 * sum(heights.values()))
    span = artists.set_limits(ax, starts, ends, times)
    if np.isnan(ends).any():  # so that an interval without an end is visible
        ax.set_xlim(right=ax.get_xlim()[1] + 0.25 * span)
        span *= 1.25
    if is_closed:
        starts, ends = starts - 0.008 * span, ends + 0.008 * span
    y, positions = 0.0, {}
    for key in reversed(keys):
        positions[key] = y if events is not None else y + LANE / 2
        mask = (rows["_key"] == key).to_numpy()
        for number, lane in zip(np.flatnonzero(mask).tolist(), lanes[key], strict=True):
            text = (
                ""
                if label is None
                else artists.format_value(rows[label].iloc[number], styles[number])
            )
            _draw_interval(
                ax, (starts[number], ends[number]), y + below + LANE * (lane + 0.5), text,
                styles[number], span=span, tail=tail,
            )  # fmt: skip
        if events is not None:
            artists.draw_line(ax, y)
        y += heights[key]
    entries: artists.Entries = {}
    if events is not None:
        y_of = points["_key"].map(positions).to_numpy(dtype=np.float64)
        entries |= (draw_events or _draw_dots)(ax, points, times, y_of)
    entries |= artists.patches_of(dict.fromkeys(order or styles))
    if tail:
        entries |= artists.patches_of([GAP])
    ax.set_ylim(-0.25, max(y - 0.05, 0.3))
    artists.set_keys(ax, [positions[key] for key in keys], keys)
    time_columns = [rows[start], rows[end], *([points[time]] if time in points else [])]
    display = zone_of(*time_columns, zone=zone)
    artists.add_axis(ax, rows[start] if len(rows) else time_columns[-1], display)
    artists.label_axes(ax, axis)
    artists.add_legend(ax, entries)
    return ax


def _draw_interval(
    ax: Axes,
    bounds: tuple[float, float],
    y: float,
    label: str,
    style: Style,
    *,
    span: float,
    tail: float,
) -> None:
    """Draw an interval; an end that is NaN is the right edge."""
    start, end = bounds
    if np.isnan(end):
        end = ax.get_xlim()[1] + 0.02 * span
    last = end
    if tail and not style.is_hatched:
        last = max(end - tail, start + 0.004 * span)  # a session of one event is a line
        artists.draw_bar(ax, last, end, y, GAP, span=span)
    artists.draw_bar(ax, start, last, y, style, span=span)
    # The label does not cross the border between a session and its gap.
    left, right = (start, last) if last - start >= end - last else (last, end)
    artists.draw_label(ax, left, min(right, ax.get_xlim()[1]), y, label, style, span=span)


def _read_events(
    events: Data | None, time: str | None, names: Sequence[str]
) -> tuple[pd.DataFrame, Floats]:
    if events is None or time is None:
        return pd.DataFrame({"_key": []}), np.array([])
    points = add_key(read_rows(events, {"time": time}), names)
    return points, to_coordinates(points[time])


def _draw_dots(ax: Axes, points: pd.DataFrame, times: Floats, y: Floats) -> artists.Entries:
    artists.draw_dots(ax, times, y, EVENT)
    return artists.dots_of([EVENT])


def _sort_key(key: str) -> tuple[int, float, str]:
    """Numbers by value, before text."""
    try:
        return 0, float(key), key
    except ValueError:
        return 1, 0.0, key
