"""The pictures that the story of `sinks.ipynb` alone has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drawing import (
    FILL,
    GRID,
    INK,
    ON_TIME,
    REMOVED,
    SOFT,
    STRAGGLER,
    blank,
    cell,
    key_of,
)
from matplotlib.figure import Figure


def counted(targets: Mapping[str, Mapping[int, int]], title: str, subtitle: str) -> Figure:
    """How often every micro-batch is in each target."""
    batches = sorted({number for counts in targets.values() for number in counts})
    height = 1.9 + 0.55 * len(targets)
    figure, axes = blank(title, subtitle, height, left=0.15)
    for y, (name, counts) in enumerate(targets.items()):
        axes.text(-0.6, y, name, ha="right", va="center", fontsize=12, color=INK)
        for number in batches:
            times = counts.get(number, 0)
            edge = ON_TIME if times == 1 else STRAGGLER if times else REMOVED
            label = {0: "lost", 1: "once"}.get(times, f"{times} times")
            cell(axes, number - 0.45, y, 0.9, FILL[edge], edge, label)
    axes.set_xlim(-0.5, len(batches) - 0.5)
    axes.set_ylim(len(targets) - 0.45, -0.55)
    axes.set_yticks([])
    axes.set_xticks(batches, [f"micro-batch {number}" for number in batches])
    axes.grid(visible=False)
    key_of(figure, height, {"exactly once": ON_TIME, "more than once": STRAGGLER})
    return figure


def decisions(rows: Sequence[Mapping[str, Any]], title: str, subtitle: str) -> Figure:
    """What a sink did with each delivery, and the entry of its ledger after it."""
    height = 1.85 + 0.55 * len(rows)
    figure, axes = blank(title, subtitle, height, left=0.02)
    for x, name in ((0.0, "delivery"), (0.44, "the sink"), (0.8, "ledger: batch, query")):
        axes.text(x, -0.85, name, fontsize=11.5, color=INK, fontweight="bold", va="center")
    for y, row in enumerate(rows):
        axes.text(0.0, y, row["delivery"], fontsize=11, color=INK, va="center")
        refused = row["outcome"] not in ("written", "skipped")
        edge = STRAGGLER if refused else ON_TIME if row["outcome"] == "written" else REMOVED
        cell(axes, 0.44, y, 0.3, FILL[edge], edge, row["outcome"])
        axes.text(0.8, y, row["ledger"], fontsize=11, color=INK, va="center")
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows) - 0.4, -1.2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    key_of(figure, height, {"written": ON_TIME, "skipped": REMOVED, "refused": STRAGGLER})
    return figure


def race(
    begun: Sequence[float],
    in_database: Sequence[float],
    in_index: Sequence[float],
    title: str,
    subtitle: str,
) -> Figure:
    """When the requests of two clients begin, and reach the database and the index; in milliseconds."""
    figure, axes = blank(title, subtitle, 4.1, left=0.12)
    lanes = ("client 1", "database", "index", "client 2")
    start = min(begun)
    for client, (y, colour) in enumerate(((0, ON_TIME), (3, STRAGGLER))):
        times = [when[client] - start for when in (begun, in_database, in_index)]
        axes.scatter(times, [y, 1, 2], s=90, color=colour, zorder=4)
        for at, lane in ((1, 1), (2, 2)):
            # The second request leaves when the first one has arrived.
            axes.annotate(
                "", (times[at], lane), (times[at - 1], y),
                arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.6, "shrinkB": 6},
            )  # fmt: skip
    end = max(*in_database, *in_index) - start
    for lane, when in ((1, in_database), (2, in_index)):
        last = int(when[1] > when[0])
        edge = (ON_TIME, STRAGGLER)[last]
        cell(axes, end * 1.04, lane, end * 0.2, FILL[edge], edge, f"of client {last + 1}")
    axes.set_xlim(-0.02 * end, end * 1.26)
    axes.set_ylim(3.5, -0.5)
    axes.set_yticks(range(4), lanes, fontsize=12, color=INK)
    axes.set_xlabel("milliseconds, and the name that stays", color=SOFT, fontsize=10.5)
    axes.grid(axis="y", color=GRID, linewidth=0.9)
    return figure
