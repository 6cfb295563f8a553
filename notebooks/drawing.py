"""The pictures of the notebooks: one palette, one way to draw a window.

Everything here takes plain tables, as the operators give them, and returns a figure.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from PIL import Image as pillow

INK, SOFT, GRID, PAPER = "#1c2530", "#5c6672", "#e4e7ea", "#ffffff"
ON_TIME, STRAGGLER, TOO_LATE, REMOVED = "#2a6f97", "#d9711c", "#1c2530", "#b9c1c9"
"""Colours of events, and the edges of windows: good, late but counted, lost, taken back."""

FILL = {ON_TIME: "#d3e4ef", STRAGGLER: "#f9dcc3", TOO_LATE: "#c9ced3", REMOVED: "#f1f3f5"}

WIDTH = 10.5


def blank(
    title: str, subtitle: str, height: float, *, left: float = 0.085, head: float = 0, **grid: Any
) -> tuple[Figure, Any]:
    """A figure with a headline, and its axes; `head` inches more between the two."""
    figure = Figure(figsize=(WIDTH, height), dpi=100, facecolor=PAPER)
    top = 1 - (0.92 + 0.22 * subtitle.count("\n") + head) / height
    space = {name: grid.pop(name) for name in ("hspace", "wspace") if name in grid}
    axes = figure.subplots(
        gridspec_kw={"left": left, "right": 0.973, "top": top, "bottom": 0.5 / height, **space},
        **grid,
    )
    headline(figure, height, title, subtitle)
    for entry in [axes] if isinstance(axes, Axes) else axes.flat:
        without_frame(entry)
    return figure, axes


def without_frame(axes: Axes) -> None:
    """Nothing but a grid of soft vertical lines."""
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(colors=SOFT, length=0, labelsize=10.5)
    axes.grid(axis="x", color=GRID, linewidth=0.9)
    axes.set_axisbelow(True)


def in_utc(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its timestamps aware: Spark's `toPandas` tells them in the session's zone."""
    naive = table.select_dtypes("datetime").columns
    return table.assign(**{name: table[name].dt.tz_localize("UTC") for name in naive})


def time_axis(axes: Axes, every: int, label: str = "%H:%M", zone: str = "UTC") -> None:
    """A time axis with a tick every so many minutes."""
    # A locator by minutes repeats within the hour only, one by hours within the day.
    minutes = {"byminute": range(0, 60, every)}
    hours = {"byhour": range(0, 24, max(every // 60, 1)), "tz": zone}
    locator = mdates.HourLocator(**hours) if every >= 60 else mdates.MinuteLocator(**minutes)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.DateFormatter(label, tz=zone))


def key_of(figure: Figure, height: float, named: Mapping[str, Any]) -> None:
    """What the colours mean, at the lower right."""
    handles = [
        entry
        if isinstance(entry, Line2D | Patch)
        else Patch(
            facecolor=FILL[entry], edgecolor=entry, hatch="////" if entry == REMOVED else None
        )
        for entry in named.values()
    ]
    figure.legend(
        handles, [*named], loc="upper right", bbox_to_anchor=(0.99, 1 - 0.1 / height), frameon=False,
        ncols=len(handles), fontsize=10.5, labelcolor=INK, handlelength=1.1, columnspacing=1.4,
        handletextpad=0.5,
    )  # fmt: skip


def dot(colour: str, marker: str = "o") -> Line2D:
    """An event, for a key of colours."""
    return Line2D([], [], color=colour, marker=marker, markersize=8, linestyle="none")


def dots(axes: Axes, when: Any, y: Any, colour: Any = ON_TIME, size: float = 62) -> None:
    """Events as dots."""
    axes.scatter(when, y, s=size, c=colour, edgecolors=PAPER, linewidths=1.2, zorder=4)


def bar(
    axes: Axes,
    start: dt.datetime,
    end: dt.datetime,
    y: float,
    label: object = "",
    *,
    colour: str = ON_TIME,
    height: float = 0.7,
    at: str = "center",
    removed: bool = False,
    dashed: bool = False,
) -> None:
    """A window, from its start to its end, with what it says."""
    left, right = (mdates.date2num(entry) for entry in (start, end))
    low, high = axes.get_xlim()
    inset = 0.0011 * (high - low)  # so that windows that touch are two
    box = FancyBboxPatch(
        (left + inset, y - height / 2), right - left - 2 * inset, height,
        boxstyle="square,pad=0", facecolor=FILL[REMOVED if removed else colour],
        edgecolor=REMOVED if removed else colour, linewidth=1.4,
        linestyle="--" if removed or dashed else "-", hatch="////" if removed else None, zorder=2,
    )  # fmt: skip
    axes.add_patch(box)
    x = {"center": (left + right) / 2, "right": right - 0.006 * (high - low)}[at]
    axes.text(
        x, y, str(label), ha=at, va="center_baseline", fontsize=11, zorder=3,
        color=SOFT if removed else INK, clip_on=True,
        bbox={"facecolor": FILL[REMOVED], "edgecolor": "none", "pad": 1.2} if removed else None,
    )  # fmt: skip


def cell(
    axes: Axes,
    left: float,
    y: float,
    width: float,
    fill: str,
    edge: str,
    label: str,
    *,
    removed: bool = False,
    height: float = 0.74,
) -> None:
    """A cell of a grid, with what it says."""
    axes.add_patch(
        Rectangle(
            (left, y - height / 2), width, height, facecolor=fill, edgecolor=edge, linewidth=1.4,
            hatch="////" if removed else None, zorder=2,
        )
    )  # fmt: skip
    axes.text(
        left + width / 2, y, label, ha="center", va="center_baseline", fontsize=11, zorder=3,
        color=SOFT if removed else INK,
        bbox={"facecolor": fill, "edgecolor": "none", "pad": 1.2} if removed else None,
    )  # fmt: skip


def picture(axes: Axes, title: str, subtitle: str) -> Image:
    """A plot of `streamops.plots`, with a headline above it."""
    figure = axes.get_figure(root=True)
    head = 0.85 + 0.22 * subtitle.count("\n")
    height = figure.get_figheight() + head
    figure.set_size_inches(WIDTH, height)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - head / height))
    headline(figure, height, title, subtitle)
    plt.close(figure)  # or Jupyter would display it once more
    return show(figure)


def panels(names: Sequence[str], height: float, **options: Any) -> Sequence[Axes]:
    """Axes side by side, with their names above them; or one without a name."""
    options |= {"layout": "constrained", "squeeze": False}
    _, (row,) = plt.subplots(1, len(names), figsize=(WIDTH, height), **options)
    for axes, name in zip(row, names, strict=True):
        without_frame(axes)
        axes.set_title(name, loc="left", fontsize=11.5, color=INK)
    return row


def legend(axes: Axes, **options: Any) -> None:
    """What lines, dots and areas mean, below the axes."""
    below = 0.5 if axes.get_xlabel() else 0.3
    at = {"bbox_to_anchor": (0, -below / axes.get_figure(root=True).get_figheight() * 1.35)}
    axes.legend(
        loc="upper left", ncols=9, frameon=False, fontsize=10.5, labelcolor=INK, handlelength=1.2,
        borderaxespad=0, **at, **options,
    )  # fmt: skip


def grid(
    table: pd.DataFrame,
    color: Callable[[str], str],
    colors: Mapping[str, str] = MappingProxyType({}),
) -> Axes:
    """Draw a table as cells whose color follows from their text; a cell that is None is left out."""
    _, axes = plt.subplots(figsize=(WIDTH, 0.75 + 0.5 * len(table)), layout="constrained")
    without_frame(axes)
    axes.grid(visible=False)
    for (y, x), text in np.ndenumerate(table.to_numpy(dtype=object)):
        if text is not None:
            edge = color(text)
            box = (x + 0.04, y - 0.37), 0.92, 0.74
            axes.add_patch(Rectangle(*box, facecolor=to_rgba(edge, 0.18), edgecolor=edge, lw=1.3))
            axes.text(x + 0.5, y, text, ha="center", va="center", fontsize=10, color=INK)
    axes.set(xlim=(0, table.shape[1]), ylim=(len(table) - 0.5, -0.5))
    axes.set_xticks(np.arange(table.shape[1]) + 0.5, [*table.columns], fontsize=11, color=INK)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(table)), [*table.index], fontsize=11, color=INK)
    handles = [
        Patch(facecolor=to_rgba(edge, 0.18), edgecolor=edge, label=name)
        for name, edge in colors.items()
    ]
    if handles:
        legend(axes, handles=handles)
    return axes


def headline(figure: Figure, height: float, title: str, subtitle: str) -> None:
    """What a picture is about, at its upper left."""
    figure.text(
        0.012, 1 - 0.16 / height, title, fontsize=15, fontweight="bold", color=INK, va="top"
    )
    figure.text(
        0.012, 1 - 0.5 / height, subtitle, fontsize=11, color=SOFT, va="top", linespacing=1.35
    )


def show(figure: Figure) -> Image:
    """The figure as a small picture, with its headline for those who cannot see it."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=120)
    small = io.BytesIO()
    # Flat colours: a palette is enough, and a quarter of the bytes.
    pillow.open(drawn).convert("RGB").quantize(
        255, method=pillow.Quantize.MAXCOVERAGE, dither=pillow.Dither.NONE
    ).save(small, "PNG", optimize=True)
    return Image(small.getvalue(), width=int(96 * WIDTH), alt=figure.texts[0].get_text())
