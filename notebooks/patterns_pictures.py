"""The pictures of the notebook on patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from drawing import (
    FILL,
    INK,
    ON_TIME,
    SOFT,
    STRAGGLER,
    blank,
    clock,
    dot,
    event,
    key_of,
)
from matplotlib.figure import Figure

Row = Mapping[str, Any]


def variants(
    letters: str, found: Mapping[str, Sequence[Sequence[int]]], title: str, subtitle: str
) -> Figure:
    """A sequence of letters, and below it the matches of several patterns."""
    height = 1.7 + 0.44 * (len(found) + 1)
    figure, axes = blank(title, subtitle, height, left=0.26)
    axes.set_xlim(-0.6, len(letters) - 0.4)
    for x, letter in enumerate(letters):
        axes.text(x, len(found), letter, ha="center", va="center", fontsize=13, color=INK)
    for y, (name, matches) in enumerate(reversed(found.items())):
        last = -1
        for number, rows in enumerate(matches):
            shift = 0.13 if rows[0] <= last and number % 2 else 0
            axes.plot([rows[0] - 0.3, rows[-1] + 0.3], [y - shift] * 2, color=ON_TIME, linewidth=5,
                      solid_capstyle="round", alpha=0.55)  # fmt: skip
            event(axes, rows, [y - shift] * len(rows), INK, 26)
            last = rows[-1]
        axes.text(
            -0.9, y, name, ha="right", va="center", fontsize=11, color=INK, family="monospace"
        )
    axes.set_ylim(-0.6, len(found) + 0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def prices(rows: Sequence[Row], matches: Sequence[Row], title: str, subtitle: str) -> Figure:
    """A price over time, with the rows of each match."""
    table = pd.DataFrame(rows)
    height = 3.4
    figure, axes = blank(title, subtitle, height)
    axes.plot(table["ts"], table["price"], color=SOFT, linewidth=1.2, zorder=2)
    for match in matches:
        part = table[(table["ts"] >= match["match_start"]) & (table["ts"] <= match["match_end"])]
        axes.axvspan(match["match_start"], match["match_end"], color=FILL[ON_TIME], zorder=1)
        colours = [STRAGGLER if name == "down" else ON_TIME for name in match["names"]]
        event(axes, part["ts"], part["price"], colours, 44)
    clock(axes, 10)
    key_of(figure, height, {"start, up": dot(ON_TIME), "down": dot(STRAGGLER), "matches": ON_TIME})
    return figure


def funnel(reached: Mapping[str, int], title: str, subtitle: str) -> Figure:
    """How many reached each step."""
    height = 1.5 + 0.5 * len(reached)
    figure, axes = blank(title, subtitle, height, left=0.13)
    most = max(reached.values())
    for y, (name, count) in enumerate(reversed(reached.items())):
        axes.barh(y, count, height=0.7, color=FILL[ON_TIME], edgecolor=ON_TIME, linewidth=1.4)
        axes.text(count + most / 90, y, f"{count:,}  ({count / most:.0%})", va="center", fontsize=11, color=INK)  # fmt: skip
        axes.text(-most / 60, y, name, ha="right", va="center", fontsize=12, color=INK)
    axes.set_xlim(0, most * 1.15)
    axes.set_yticks([])
    return figure
