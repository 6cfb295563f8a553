"""What all pictures are made of: axes, dots, bars, lanes, legends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from streamops.kernel.palette import CATEGORIES, COLORS, MARKERS, lighten
from streamops.kernel.parameters import Text
from streamops.plots import conditions
from streamops.plots.data import (
    Data,
    Floats,
    Mask,
    add_key,
    read_keys,
    read_rows,
    require_time,
    to_coordinates,
    zone_of,
)

WIDTH = 9.5
MAX_HEIGHT = 40.0
FONT = 10.0
TEXT, LABEL, GRID, BACKGROUND = (COLORS[name] for name in ("text", "label", "grid", "background"))

LineStyle = Literal["-", "--", ":"]

Entries = dict[str, Artist]
"""The entries of a legend, by their text."""


@dataclass(frozen=True, slots=True)
class Style:
    """The looks of a bar or a dot, with its text in the legend."""

    name: str
    color: str
    marker: str = "o"
    is_hatched: bool = False
    is_dashed: bool = False
    is_light: bool = False

    @property
    def fill(self) -> str:
        """The color of the area."""
        return BACKGROUND if self.is_light else lighten(self.color)

    def patch(self) -> Patch:
        """A bar, for a legend."""
        return Patch(
            facecolor=self.fill, edgecolor=self.color, hatch="////" if self.is_hatched else None,
            linestyle="--" if self.is_dashed else "-", linewidth=1.3,
        )  # fmt: skip

    def dot(self) -> Line2D:
        """A dot, for a legend."""
        return Line2D(
            [], [], color=self.color, marker=self.marker, markersize=9 if self.marker == "X" else 7,
            linestyle="none",
            markeredgecolor=BACKGROUND, markeredgewidth=0.8,
        )  # fmt: skip


EVENT = Style("event", COLORS["on_time"])
WINDOW = Style("window", COLORS["on_time"])
ON_TIME = Style("on time", COLORS["on_time"])
FIRST = Style("first result", COLORS["on_time"])
EARLY = Style("early", COLORS["on_time"], is_dashed=True)
CORRECTED = Style("corrected", COLORS["corrected"])
RETRACTED = Style("retracted", COLORS["retracted"], is_hatched=True)
STRAGGLER = Style("straggler", COLORS["corrected"], marker="D")
TOO_LATE = Style("too late", COLORS["too_late"], marker="X")


RETRACTIONS = ("update_preimage", "delete")
"""Change types of rows that are retracted."""


def style_of(row: Mapping[str, object], *, plain: Style = ON_TIME) -> Style:
    """Return the style of a result: whether it is early, on time, corrected or retracted."""
    if row.get("_change_type") in RETRACTIONS:
        return RETRACTED
    if row.get("timing") == "early":
        return EARLY
    revision = row.get("revision")
    is_revised = isinstance(revision, int | float | np.number) and revision > 0
    if is_revised and row.get("timing", "late") == "late":
        return CORRECTED
    return plain


def styles_of(rows: pd.DataFrame, *, plain: Style = ON_TIME) -> list[Style]:
    """Return the style of every result."""
    names = [name for name in ("_change_type", "timing", "revision") if name in rows.columns]
    if not names:
        return [plain] * len(rows)
    records: list[dict[Any, Any]] = rows[names].to_dict("records")
    return [style_of(row, plain=plain) for row in records]


def new_axes(ax: Axes | None, height: float) -> Axes:
    """Return the given axes, or those of a new figure of this height in inches."""
    if ax is not None:
        return ax
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    _, ax = plt.subplots(figsize=(WIDTH, min(height, MAX_HEIGHT)), layout=layout)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(colors=LABEL, length=0, labelsize=FONT)
    ax.grid(axis="x", color=GRID, linewidth=0.9)
    ax.set_axisbelow(True)
    return ax


def add_time_axis(ax: Axes, zone: dt.tzinfo, *, axis: Literal["x", "y"] = "x") -> None:
    """Let an axis display the days since 1970 as times."""
    target = ax.xaxis if axis == "x" else ax.yaxis
    inches = ax.get_window_extent().width / ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    # With fewer than five, matplotlib finds no interval for some spans, and warns.
    most = min(9, max(5, int(inches / 0.8))) if axis == "x" else 9
    locator = AutoDateLocator(tz=zone, minticks=min(4, most - 3), maxticks=most)  # type: ignore[no-untyped-call]
    target.set_major_locator(locator)
    target.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]


def add_number_axis(ax: Axes, *, axis: Literal["x", "y"], whole: bool = False) -> None:
    """Let an axis display numbers with commas; of micro-batches, whole numbers only."""
    target = ax.xaxis if axis == "x" else ax.yaxis
    if whole:
        target.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    target.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))


def add_axis(ax: Axes, column: pd.Series[Any], zone: dt.tzinfo) -> None:
    """Let the x axis display what is in a column: times or numbers."""
    if pd.api.types.is_numeric_dtype(column):
        add_number_axis(ax, axis="x", whole=pd.api.types.is_integer_dtype(column))
    else:
        add_time_axis(ax, zone)


def label_axes(ax: Axes, x: str = "", y: str = "") -> None:
    """Name the axes, unless the caller did."""
    if x and not ax.get_xlabel():
        ax.set_xlabel(x, color=LABEL, fontsize=FONT)
    if y and not ax.get_ylabel():
        ax.set_ylabel(y, color=LABEL, fontsize=FONT)


def set_limits(ax: Axes, *values: Floats, margin: float = 0.03) -> float:
    """Let the x axis show all values, with a margin. Return the span of the axis."""
    known = np.concatenate([value[np.isfinite(value)] for value in values])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    span = (high - low) or 1.0 / 1440
    ax.set_xlim(low - margin * span, high + margin * span)
    return span * (1 + 2 * margin)


def draw_dots(ax: Axes, x: Floats, y: Floats, style: Style, *, size: float = 46) -> None:
    """Draw events as dots, with the name of their style as the label."""
    if style.marker == "X":  # it has less area than the others
        size *= 1.7
    ax.scatter(
        x, y, s=size, c=style.color, marker=style.marker, edgecolors=BACKGROUND, linewidths=0.8,
        zorder=4, label=style.name,
    )  # fmt: skip


def draw_bar(
    ax: Axes, left: float, right: float, y: float, style: Style, *, span: float, height: float = 0.3
) -> None:
    """Draw an interval as a bar."""
    inset = min(0.0011 * span, (right - left) / 8)  # so that adjacent windows are two bars
    ax.add_patch(
        Rectangle(
            (left + inset, y - height / 2), right - left - 2 * inset, height, facecolor=style.fill,
            edgecolor=style.color, linewidth=1.3, linestyle="--" if style.is_dashed else "-",
            hatch="////" if style.is_hatched else None, zorder=2, label=style.name,
        )
    )  # fmt: skip


def draw_label(
    ax: Axes, left: float, right: float, y: float, label: str, style: Style, *, span: float
) -> None:
    """Write a label into a bar, if it fits."""
    if not label or not _fits(ax, label, (right - left) / span):
        return
    behind = {"facecolor": style.fill, "edgecolor": "none", "pad": 1.0}
    ax.text(
        (left + right) / 2, y, label, ha="center", va="center_baseline", fontsize=FONT,
        color=LABEL if style.is_hatched else TEXT, zorder=3, clip_on=True,
        bbox=behind if style.is_hatched else None,
    )  # fmt: skip


def format_value(value: object, style: Style) -> str:
    """Return the label of a value, with a minus sign if the result is retracted."""
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"−{text}" if style.is_hatched else text


def _fits(ax: Axes, label: str, share: float) -> bool:
    """Whether a label is narrower than its bar, which is a share of the axes."""
    points = ax.get_window_extent().width / ax.get_figure(root=True).dpi * 72  # type: ignore[union-attr]
    return len(label) * 0.62 * FONT <= share * points


def draw_line(ax: Axes, y: float) -> None:
    """Draw the line of a key."""
    ax.axhline(y, color=GRID, linewidth=1.1, zorder=0)


def lanes_of(starts: Floats, ends: Floats) -> list[int]:
    """Return for every interval the lowest lane on which no earlier one is in its way."""
    lanes = [0] * len(starts)
    free: list[float] = []
    for number in np.lexsort((ends, starts)):
        start = starts[number]
        lane = next((n for n, end in enumerate(free) if end <= start), len(free))
        free[lane : lane + 1] = [float(ends[number])]
        lanes[number] = lane
    return lanes


def add_legend(ax: Axes, entries: Mapping[str, Artist]) -> None:
    """Explain the colors and shapes below the axes."""
    if not entries:
        return
    below = 38 if ax.get_xlabel() else 24
    moved = ScaledTranslation(0, -below / 72, ax.get_figure(root=True).dpi_scale_trans)  # type: ignore[union-attr]
    ax.legend(
        [*entries.values()], [*entries], loc="upper left", bbox_to_anchor=(0, 0), borderpad=0,
        bbox_transform=ax.transAxes + moved, ncols=len(entries), frameon=False, fontsize=FONT,
        labelcolor=TEXT, handlelength=1.2, columnspacing=1.6, handletextpad=0.6, borderaxespad=0,
    )  # fmt: skip


def patches_of(styles: Iterable[Style]) -> Entries:
    """Return the bars of a legend."""
    return {style.name: style.patch() for style in styles}


def dots_of(styles: Iterable[Style]) -> Entries:
    """Return the dots of a legend."""
    return {style.name: style.dot() for style in styles}


def line_entry(color: str, linestyle: LineStyle = "-", width: float = 1.8) -> Line2D:
    """Return a line of a legend."""
    return Line2D([], [], color=color, linestyle=linestyle, linewidth=width)


def groups_of(
    table: pd.DataFrame, by: str | None, *, parameter: str = "by"
) -> list[tuple[Mask, Style]]:
    """Return the rows of every value of a column, with a color and a shape of their own.

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``: there are more values than colors.
    """
    if by is None:
        return [(np.full(len(table), True), EVENT)]
    codes, values = pd.factorize(table[by], use_na_sentinel=False)
    if len(values) > len(CATEGORIES):
        raise conditions.TOO_MANY_COLORS.error(
            parameter=parameter, categories=len(CATEGORIES), got=f"{len(values)} values of {by!r}"
        )
    names = ["null" if pd.isna(value) else str(value) for value in values]
    looks = zip(names, CATEGORIES, MARKERS, strict=False)
    return [(codes == n, Style(*look)) for n, look in enumerate(looks)]


def set_keys(ax: Axes, positions: Sequence[float], keys: Sequence[str]) -> None:
    """Name the rows of a picture; a single key without a name has none."""
    if [*keys] == [""]:
        ax.set_yticks([])
    else:
        ax.set_yticks(positions, keys, fontsize=FONT + 0.5, color=TEXT)


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
    draw_events: Callable[[Axes, pd.DataFrame, Floats, Floats], Entries] | None = None,
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
        key: lanes_of(starts[mask], np.where(np.isnan(ends[mask]), np.inf, ends[mask]))
        for key in keys
        for mask in [(rows["_key"] == key).to_numpy()]
    }
    below = 0.25 if events is not None else 0.0
    heights = {key: below + LANE * (max(lanes[key], default=-1) + 1) + 0.18 for key in keys}
    ax = new_axes(ax, 1.15 + 1.15 * sum(heights.values()))
    span = set_limits(ax, starts, ends, times)
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
            text = "" if label is None else format_value(rows[label].iloc[number], styles[number])
            _draw_interval(
                ax, (starts[number], ends[number]), y + below + LANE * (lane + 0.5), text,
                styles[number], span=span, tail=tail,
            )  # fmt: skip
        if events is not None:
            draw_line(ax, y)
        y += heights[key]
    entries: Entries = {}
    if events is not None:
        y_of = points["_key"].map(positions).to_numpy(dtype=np.float64)
        entries |= (draw_events or _draw_dots)(ax, points, times, y_of)
    entries |= patches_of(dict.fromkeys(order or styles))
    if tail:
        entries |= patches_of([GAP])
    ax.set_ylim(-0.25, max(y - 0.05, 0.3))
    set_keys(ax, [positions[key] for key in keys], keys)
    time_columns = [rows[start], rows[end], *([points[time]] if time in points else [])]
    display = zone_of(*time_columns, zone=zone)
    add_axis(ax, rows[start] if len(rows) else time_columns[-1], display)
    label_axes(ax, axis)
    add_legend(ax, entries)
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
        draw_bar(ax, last, end, y, GAP, span=span)
    draw_bar(ax, start, last, y, style, span=span)
    # The label does not cross the border between a session and its gap.
    left, right = (start, last) if last - start >= end - last else (last, end)
    draw_label(ax, left, min(right, ax.get_xlim()[1]), y, label, style, span=span)


def _read_events(
    events: Data | None, time: str | None, names: Sequence[str]
) -> tuple[pd.DataFrame, Floats]:
    if events is None or time is None:
        return pd.DataFrame({"_key": []}), np.array([])
    points = add_key(read_rows(events, {"time": time}), names)
    return points, to_coordinates(points[time])


def _draw_dots(ax: Axes, points: pd.DataFrame, times: Floats, y: Floats) -> Entries:
    draw_dots(ax, times, y, EVENT)
    return dots_of([EVENT])


def _sort_key(key: str) -> tuple[int, float, str]:
    """Numbers by value, before text."""
    try:
        return 0, float(key), key
    except ValueError:
        return 1, 0.0, key
