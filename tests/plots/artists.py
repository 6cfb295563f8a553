"""What was drawn: bars, dots and texts, by their coordinates."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.dates import date2num
from matplotlib.patches import Rectangle

NINE = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after nine."""
    return NINE + dt.timedelta(minutes=minute)


def minutes(x: Any) -> Any:
    """Minutes after nine of coordinates."""
    return np.round((np.asarray(x, dtype=float) - date2num(NINE)) * 1440, 1)


def bars(ax: Axes, name: str | None = None) -> list[tuple[float, float, float]]:
    """Left end, right end and height of the bars, rounded; of one entry of the legend."""
    found = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    return [
        (round(bar.get_x(), 1), round(bar.get_x() + bar.get_width(), 1), bar.get_y())
        for bar in found
        if name in (None, bar.get_label())
    ]


def bars_in_minutes(ax: Axes, name: str | None = None) -> list[tuple[float, float]]:
    """Ends of the bars in minutes after nine."""
    spans = [
        (bar.get_x(), bar.get_x() + bar.get_width())
        for bar in ax.patches
        if isinstance(bar, Rectangle) and name in (None, bar.get_label())
    ]
    return [(round(float(minutes(a))), round(float(minutes(b)))) for a, b in spans]


def dots(ax: Axes, name: str) -> list[tuple[float, float]]:
    """Coordinates of the dots of one entry of the legend."""
    groups = [c for c in ax.collections if isinstance(c, PathCollection) and c.get_label() == name]
    return [(float(x), float(y)) for group in groups for x, y in np.asarray(group.get_offsets())]


def texts(ax: Axes) -> list[str]:
    """Texts in the picture."""
    return [text.get_text() for text in ax.texts]


def legend(ax: Axes) -> list[str]:
    """Texts of the legend."""
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def rows_of(ax: Axes) -> dict[str, float]:
    """The height of every key on the vertical axis."""
    labels = [label.get_text() for label in ax.get_yticklabels()]
    return dict(zip(labels, map(float, ax.get_yticks()), strict=True))
