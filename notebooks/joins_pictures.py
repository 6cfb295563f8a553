"""The pictures of the notebook on joins."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from drawing import (
    FILL,
    GRID,
    INK,
    ON_TIME,
    PAPER,
    REMOVED,
    SOFT,
    STRAGGLER,
    bar,
    blank,
    cell,
    clock,
    dot,
    event,
    in_utc,
    key_of,
)
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

Row = Mapping[str, Any]
MINUTE = pd.Timedelta(minutes=1)

SELLERS = {
    "blue": ("#d3e4ef", "#2a6f97"),
    "gold": ("#f6e6b4", "#a67c00"),
    "red": ("#f6cfc9", "#b5403a"),
}
"""Sellers by their colour: of a cell, and of its edge."""


def waiting(
    results: Sequence[Any],
    searched: Mapping[str, dt.datetime],
    clicked: Sequence[tuple[str, dt.datetime]],
    minutes: int,
) -> Figure:
    """Searches as bars as long as they wait, their clicks as dots, and what became of each."""
    status_of: dict[str, str] = {}
    for result in results:
        for row in result.rows:
            before = status_of.get(row["query"])
            status = f"{row['status']} in micro-batch {result.batch}"
            status_of[row["query"]] = (
                status if before is None else f"{before}, and in {result.batch}"
            )
    drawn = list(searched)[:5]
    height = 1.7 + 0.5 * len(drawn)
    figure, axes = blank(
        "Found, or in vain",
        f"A search waits {minutes} minutes for a click, as long as its bar. "
        "That none can come any more is a result, too.",
        height, left=0.095,
    )  # fmt: skip
    first = min(searched.values())
    axes.set_xlim(first - 2 * MINUTE, first + 86 * MINUTE)
    for y, query in enumerate(reversed(drawn)):
        start = searched[query]
        end = start + dt.timedelta(minutes=minutes)
        in_vain = status_of[query].startswith("expired")
        bar(axes, start, end, y, colour=REMOVED if in_vain else ON_TIME, height=0.5)
        event(axes, [start], [y], INK, 46)
        for whose, when in clicked:
            if whose == query:
                event(axes, [when], [y], ON_TIME if when <= end else STRAGGLER, 90)
        axes.text(
            first + 59 * MINUTE, y, status_of[query], va="center_baseline", fontsize=11, color=INK
        )  # fmt: skip
    axes.set_yticks(range(len(drawn)), drawn[::-1], fontsize=11.5, color=INK)
    axes.set_ylim(-0.6, len(drawn) - 0.4)
    clock(axes, 10)
    axes.set_xticks([first + minute * MINUTE for minute in range(0, 60, 10)])
    key_of(
        figure, height,
        {
            "search": dot(INK), "click": dot(ON_TIME), "click that is too far": dot(STRAGGLER),
            "matched": ON_TIME, "expired": Patch(facecolor=FILL[REMOVED], edgecolor=REMOVED),
        },
    )  # fmt: skip
    return figure


def rate(rates: pd.DataFrame) -> Figure:
    """Searches of each half hour, clicked and expired, and the share of the first."""
    height = 4.4
    figure, axes = blank(
        "Without the searches that came to nothing there is no rate",
        "Searches per half hour, by what became of them; the number is the share that was clicked "
        "on.",
        height, head=0.15, left=0.05,
    )  # fmt: skip
    rates = in_utc(rates)
    clicked = (rates["searches"] * rates["rate"]).round()
    for x, (row, hits) in enumerate(zip(rates.itertuples(), clicked, strict=True)):
        axes.bar(x, row.searches, 0.8, color=FILL[REMOVED], edgecolor=REMOVED, linewidth=1.4)
        axes.bar(x, hits, 0.8, color=FILL[ON_TIME], edgecolor=ON_TIME, linewidth=1.4)
        axes.text(
            x, row.searches + 1.5, f"{row.rate:.0%}", ha="center", fontsize=12,
            fontweight="bold", color=INK,
        )  # fmt: skip
    breaks = sum(row.window_start.hour < 20 for row in rates.itertuples()) - 0.5
    axes.axvline(breaks, color=STRAGGLER, linewidth=1.6, linestyle="--")
    top = 1.32 * rates["searches"].max()
    axes.text(breaks + 0.08, 0.93 * top, "the button breaks", color=STRAGGLER, fontsize=11)
    axes.set_ylim(0, top)
    axes.grid(axis="x", visible=False)
    axes.grid(axis="y", color=GRID)
    starts = [f"{row.window_start:%H:%M}" for row in rates.itertuples()]
    axes.set_xticks(range(len(rates)), starts)
    key_of(
        figure, height,
        {"clicked": ON_TIME, "expired": Patch(facecolor=FILL[REMOVED], edgecolor=REMOVED)},
    )  # fmt: skip
    return figure


def known(
    batches: Sequence[Sequence[Row]],
    of: str | Callable[[Row], str],
    label: Callable[[Row], str],
    title: str,
    subtitle: str,
) -> Figure:
    """What is known of each thing after each micro-batch, and what was taken back in it."""
    name = of if callable(of) else lambda row: row[of]
    things = sorted({name(row) for rows in batches for row in rows})
    height = 1.75 + 0.52 * len(things) + 0.22 * subtitle.count("\n")
    figure, axes = blank(title, subtitle, height, left=0.1)
    now: dict[str, tuple[str, str]] = {}
    for number, rows in enumerate(batches):
        back = {
            name(r): label(r) for r in rows if r["_change_type"] in ("delete", "update_preimage")
        }
        for row in rows:
            if row["_change_type"] in ("insert", "update_postimage"):
                now[name(row)] = label(row), STRAGGLER if name(row) in back else ON_TIME
        for thing, (text, colour) in now.items():
            y = things.index(thing)
            tone = REMOVED if text == "expired" else colour
            if thing in back:
                cell(
                    axes, number - 0.45, y, 0.42, FILL[REMOVED], REMOVED, back[thing], removed=True
                )
                cell(axes, number + 0.03, y, 0.42, FILL[tone], tone, text)
            else:
                cell(axes, number - 0.45, y, 0.9, FILL[tone], tone, text)
    axes.set_xlim(-0.6, len(batches) - 0.4)
    axes.set_ylim(len(things) - 0.45, -0.55)
    axes.set_yticks(range(len(things)), things, fontsize=11.5, color=INK)
    axes.set_xticks(range(len(batches)), [f"micro-batch {n}" for n in range(len(batches))])
    axes.grid(visible=False)
    key_of(figure, height, {"first value": ON_TIME, "corrected": STRAGGLER, "taken back": REMOVED})
    return figure


def steps(
    price_at: Sequence[tuple[dt.datetime, int]], results: Sequence[Any], end: dt.datetime
) -> Figure:
    """The price as a line of steps, and each order at the price that it was given."""
    height = 4.6
    figure, axes = blank(
        "What the lamp cost when it was ordered",
        "The line is the price over event time; the rise (dashed) became known late. Two orders had "
        "been answered by then.",
        height, left=0.055,
    )  # fmt: skip
    times = [when for when, _ in price_at] + [end]
    for number, (when, price) in enumerate(price_at):
        late = number == 1
        axes.plot(
            [when, times[number + 1]], [price, price], color=STRAGGLER if late else INK,
            linewidth=2.4, linestyle="--" if late else "-", solid_capstyle="butt", zorder=2,
        )  # fmt: skip
        if number:
            axes.plot(
                [when] * 2, [price_at[number - 1][1], price], color=GRID, linewidth=2, zorder=1
            )
    answers: dict[dt.datetime, list[int]] = {}
    for result in results:
        for row in result.rows:
            if row["_change_type"] in ("insert", "update_postimage"):
                answers.setdefault(row["ordered_at"], []).append(row["price"])
    for when, (*back, price) in answers.items():
        for other in back:
            axes.annotate(
                "", (when, price - 2), (when, other + 2), zorder=3,
                arrowprops={"arrowstyle": "->", "color": STRAGGLER, "linewidth": 1.6},
            )  # fmt: skip
            axes.scatter(
                [when], [other], s=90, facecolors=PAPER, edgecolors=REMOVED, linewidths=1.8,
                hatch="/////", zorder=5,
            )  # fmt: skip
        event(axes, [when], [price], STRAGGLER if back else ON_TIME, 100)
        axes.annotate(
            f"{when:%H:%M}", (when, price), xytext=(0, 10), textcoords="offset points",
            ha="center", fontsize=10, color=SOFT,
        )  # fmt: skip
    axes.set_xlim(times[0] - MINUTE, end)
    axes.set_ylim(80, 142)
    axes.set_yticks([90, 100, 130])
    clock(axes, 10)
    key_of(
        figure, height,
        {
            "price": Line2D([], [], color=INK, linewidth=2.4), "order": dot(ON_TIME),
            "answered anew": dot(STRAGGLER),
            "taken back": Line2D(
                [], [], marker="o", markersize=8, markerfacecolor=PAPER, markeredgecolor=REMOVED,
                markeredgewidth=1.8, linestyle="none",
            ),
        },
    )  # fmt: skip
    return figure


def timeline(happened: Sequence[str], pages: Sequence[Sequence[Row]], cap: int) -> Figure:
    """A timeline as a grid over time: a column per micro-batch, the newest post on top."""
    height = 2.2 + 0.56 * cap
    figure, axes = blank(
        "The page that Ann starts from",
        "After each micro-batch, the newest on top: news by the colour of their seller. A thick edge "
        "is what just came in.",
        height, head=0.45, left=0.03,
    )  # fmt: skip
    before: set[int] = set()
    for number, rows in enumerate(pages):
        for y, row in enumerate(rows):
            fill, edge = SELLERS[row["seller"]]
            fresh = number > 0 and row["post"] not in before
            cell(axes, number - 0.42, y, 0.84, fill, edge, str(row["post"]))
            if fresh:
                axes.add_patch(
                    Rectangle(
                        (number - 0.42, y - 0.37), 0.84, 0.74, facecolor="none",
                        edgecolor=edge, linewidth=3.4, zorder=4,
                    )
                )  # fmt: skip
        before = {row["post"] for row in rows}
        axes.text(number, -0.62, happened[number], ha="center", va="bottom", fontsize=10.5,
                  color=INK, linespacing=1.3)  # fmt: skip
    axes.set_xlim(-0.55, len(pages) - 0.45)
    axes.set_ylim(cap - 0.5, -0.55)
    axes.set_yticks(range(cap), [str(n + 1) for n in range(cap)])
    axes.set_xticks(range(len(pages)), [f"micro-batch {n}" for n in range(len(pages))])
    axes.grid(visible=False)
    key_of(
        figure, height,
        {who: Patch(facecolor=fill, edgecolor=edge) for who, (fill, edge) in SELLERS.items()},
    )  # fmt: skip
    return figure


def costs(sizes: pd.DataFrame, posting: int, most: int) -> Figure:
    """Rows stored, rows shown and changes emitted, micro-batch by micro-batch."""
    height = 5.2
    figure, (above, below) = blank(
        "The cap bounds what is shown, and not what is kept",
        "Forty people and twelve sellers: 20 posts in each micro-batch, then deletes of 50 in each.",
        height, head=0.3, left=0.06, nrows=2, sharex=True, height_ratios=[1.6, 1], hspace=0.28,
    )  # fmt: skip
    number = sizes.index
    above.plot(number, sizes["kept"], color=INK, linewidth=2.2, marker="o")
    above.plot(number, sizes["shown"], color=ON_TIME, linewidth=2.2, marker="o")
    above.axhline(most, color=ON_TIME, linewidth=1.1, linestyle=":")
    above.text(4.5, 1.9 * most, f"cap × people = {most}", fontsize=10.5, ha="center", color=ON_TIME)
    above.set_ylim(0, None)
    below.bar(number, sizes["told"], 0.7, color=FILL[STRAGGLER], edgecolor=STRAGGLER, linewidth=1.4)
    for axes, label in ((above, "rows after the micro-batch"), (below, "changes it published")):
        axes.axvline(posting - 0.5, color=REMOVED, linewidth=1.4, linestyle="--")
        axes.grid(axis="x", visible=False)
        axes.grid(axis="y", color=GRID)
        axes.text(0, 1.04, label, transform=axes.transAxes, fontsize=11.5, color=INK)
    above.text(posting - 0.4, 0.9 * sizes["kept"].max(), "all is deleted", color=SOFT, fontsize=11)
    below.set_xticks(number)
    below.set_xlabel("micro-batch", color=SOFT, fontsize=10.5)
    key_of(
        figure, height,
        {
            "kept": Line2D([], [], color=INK, linewidth=2.2),
            "shown": Line2D([], [], color=ON_TIME, linewidth=2.2),
            "told": STRAGGLER,
        },
    )  # fmt: skip
    return figure
