"""The pictures that the story of `sketches.ipynb` alone has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from drawing import FILL, GRID, INK, ON_TIME, REMOVED, SOFT, STRAGGLER, blank, dot, key_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

COLOURS = (ON_TIME, STRAGGLER)


def error_for_bytes(table: pd.DataFrame, everything: int, items: int) -> Figure:
    """What a byte buys: promised as a line, measured as dots; `everything` has no error."""
    best = table[table["kind"] == "HyperLogLog"].set_index("p").loc[12]
    figure, axes = blank(
        f"{best['measured']:.1%} off in {best['bytes'] / 1000:.1f} kB; to be exact takes "
        f"{everything / 1000:.0f} kB",
        f"Relative error of the number of {items:,} distinct users, against the bytes of the "
        "sketch. Four times the bytes halve the error.",
        4.6,
    )
    for colour, (_, rows) in zip(COLOURS, table.groupby("kind"), strict=True):
        axes.plot(rows["bytes"], rows["promised"], color=colour, linewidth=1.6)
        axes.scatter(rows["bytes"], rows["measured"], s=62, color=colour, zorder=4)
    axes.axvline(everything, color=REMOVED, linewidth=1.6, linestyle="--")
    axes.annotate(
        "all of them,\n8 bytes each", (everything, 0.2), xytext=(-8, 0), fontsize=10.5,
        textcoords="offset points", ha="right", color=SOFT,
    )  # fmt: skip
    _bytes(axes)
    _share(axes)
    named = {name: dot(colour) for colour, name in zip(COLOURS, _names(table), strict=True)}
    key_of(figure, 4.6, {**named, "promised": Line2D([], [], color=INK, linewidth=1.6)})
    return figure


def small_counts(table: pd.DataFrame, counted: Mapping[int, int]) -> Figure:
    """Errors against how many there are, for several precisions."""
    figure, panels = blank(
        "Few are counted, many are estimated",
        "Relative error against the number of distinct users: within one standard error (dark) "
        "in two of three cases,\nwithin two (light) in nineteen of twenty. "
        "Left of the dashed line the sketch keeps hashes.",
        4.4, ncols=3, sharey=True, wspace=0.08, head=0.35,
    )  # fmt: skip
    for axes, (p, rows) in zip(panels, table.groupby("p"), strict=True):
        promise = 1.04 / np.sqrt(2**p)
        span = (counted[p], rows["n"].max())
        for width, shade in ((2, "#eaf2f8"), (1, FILL[ON_TIME])):
            axes.fill_between(span, -width * promise, width * promise, color=shade, linewidth=0)
        axes.axvline(counted[p], color=REMOVED, linestyle="--")
        axes.scatter(rows["n"], rows["error"], s=14, color=ON_TIME, zorder=4)
        axes.set_xscale("log")
        axes.tick_params(which="minor", length=0)
        axes.text(0, 1.03, f"p={p}: {2**p:,} bytes", transform=axes.transAxes, color=INK, size=11.5)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[1].set_xlabel("distinct users", color=SOFT)
    return figure


def rolled_up(table: pd.DataFrame) -> Figure:
    """Minutes merged one after another, beside the sum of their counts."""
    last = table.iloc[-1]
    figure, axes = blank(
        f"{last['truth']:,} users in the hour, and not {last['summed']:,}",
        "Distinct users from noon on. Counts of minutes do not add up: who stays is counted again. "
        "Their sketches do.",
        4.2, left=0.09,
    )  # fmt: skip
    axes.plot(table.index, table["summed"], color=STRAGGLER, linewidth=2)
    axes.fill_between(table.index, table["lower"], table["upper"], color=FILL[ON_TIME], linewidth=0)
    axes.plot(table.index, table["merged"], color=ON_TIME, linewidth=2)
    axes.plot(table.index, table["truth"], color=INK, linewidth=1.2, linestyle=":")
    axes.set_xlim(1, len(table))
    axes.set_ylim(0)
    axes.set_xlabel("minutes after noon", color=SOFT)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    _lines(figure, 4.2, {"summed": STRAGGLER, "merged": ON_TIME, "exact": INK})
    return figure


def percentiles(table: pd.DataFrame) -> Figure:
    """The 99th percentile of five minutes: averaged, merged, and as it is."""
    wrong = (table["averaged"] / table["exact"]).to_numpy()
    figure, axes = blank(
        f"The average: {1 / wrong.min():.1f} times too little, then {wrong.max():.1f} times too much",
        "99th percentile of the response time over five minutes: the mean of the percentiles of "
        "the minutes,\nthe sketches of the minutes merged (with bounds), and what it is.",
        4.8, left=0.09,
    )  # fmt: skip
    positions = np.arange(len(table))
    axes.vlines(
        positions, table["lower"], table["upper"], color=FILL[ON_TIME], linewidth=15, zorder=1
    )
    axes.scatter(positions, table["merged"], s=52, color=ON_TIME, zorder=3)
    axes.hlines(
        table["exact"], positions - 0.3, positions + 0.3, color=INK, linewidth=1.6, zorder=4
    )
    axes.scatter(positions, table["averaged"], s=58, color=STRAGGLER, marker="X", zorder=5)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,.0f} ms"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks([300, 1_000, 3_000])
    axes.tick_params(which="minor", length=0)
    axes.grid(axis="x", visible=False)
    axes.grid(axis="y", color=GRID)
    axes.set_xticks(positions, [f"{start:%H:%M}" for start in table.index])
    key_of(
        figure, 4.8,
        {
            "averaged": dot(STRAGGLER, "X"), "merged": dot(ON_TIME),
            "exact": Line2D([], [], color=INK, linewidth=1.6),
        },
    )  # fmt: skip
    return figure


def ranks(errors: pd.DataFrame, tails: Mapping[int, pd.DataFrame]) -> Figure:
    """Left what a byte buys, right what a rank that is nearly right means for the value."""
    figure, (left, right) = blank(
        "The rank is nearly right; the value is what stands there",
        "Left: the error of a rank against the bytes of the sketch, promised and measured at its "
        "worst. Right: response times\nby percentile with their bounds, for two sizes.",
        4.8, ncols=2, wspace=0.22, left=0.075,
    )  # fmt: skip
    left.plot(errors["bytes"], errors["promised"], color=ON_TIME, linewidth=1.6)
    left.scatter(errors["bytes"], errors["measured"], s=62, color=ON_TIME, zorder=4)
    for k, row in errors.iterrows():
        left.annotate(
            f"k={k}", (row["bytes"], row["promised"]), xytext=(4, 5), fontsize=9.5, color=SOFT,
            textcoords="offset points",
        )  # fmt: skip
    _bytes(left)
    _share(left)
    left.margins(x=0.12)
    for colour, (k, tail) in zip((STRAGGLER, ON_TIME), tails.items(), strict=True):
        right.fill_between(
            1 - tail.index, tail["lower"], tail["upper"], color=FILL[colour], linewidth=0,
            label=f"k={k}",
        )  # fmt: skip
    right.plot(1 - tail.index, tail["exact"], color=INK, linewidth=1.6, label="exact")
    right.set_xscale("log")
    right.set_yscale("log")
    right.invert_xaxis()
    right.xaxis.set_major_formatter(FuncFormatter(lambda q, _: f"{1 - q:.4g}"))
    right.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,.0f} ms"))
    right.tick_params(which="minor", length=0)
    right.grid(axis="y", color=GRID)
    right.legend(frameon=False, labelcolor=INK, fontsize=10.5, loc="upper left")
    return figure


def hitters(table: pd.DataFrame, least: float, title: str) -> Figure:
    """How often pages were read: bounds as bars, the truth as a dot."""
    figure, axes = blank(
        title,
        "Views of the reported pages: between the bounds, which are certain. The dot is the "
        "truth,\nthe dashed line the share that none may have and be missing.",
        5.2, left=0.07,
    )  # fmt: skip
    positions = np.arange(len(table))
    axes.barh(
        positions, table["upper"] - table["lower"], left=table["lower"], color=FILL[ON_TIME],
        edgecolor=ON_TIME, height=0.62,
    )  # fmt: skip
    axes.scatter(table["truth"], positions, s=30, color=INK, zorder=4)
    axes.axvline(least, color=STRAGGLER, linestyle="--", linewidth=1.6)
    axes.set_yticks(positions, list(table.index))
    axes.invert_yaxis()
    axes.set_xlim(0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    return figure


def filters(table: pd.DataFrame, as_ids: float) -> Figure:
    """False positives against bytes per id."""
    one = table.loc[0.001]
    figure, axes = blank(
        f"{one['per_id']:.1f} bytes for an id of {as_ids:.0f}; {one['measured']:.2%} of new ones "
        "taken for old",
        "Of ids that never came, the share that the filter says came: promised, and measured. "
        "Of those that came it denies none.",
        4.2,
    )
    axes.plot(table["per_id"], table.index, color=ON_TIME, linewidth=1.6)
    axes.scatter(table["per_id"], table["measured"], s=62, color=ON_TIME, zorder=4)
    for at, label in ((8, "a hash of 64 bits"), (as_ids, "the ids themselves")):
        axes.axvline(at, color=REMOVED, linestyle="--", linewidth=1.6)
        axes.annotate(
            label, (at, table.index.max()), xytext=(-7, -8), textcoords="offset points",
            ha="right", va="top", rotation=90, fontsize=10.5, color=SOFT,
        )  # fmt: skip
    axes.set_xlim(0.4, as_ids * 1.1)
    _bytes(axes)
    axes.set_xlabel("bytes per id", color=SOFT)
    axes.set_xticks([0.5, 1, 2, 4, 8, 16, 32], ["0.5", "1", "2", "4", "8", "16", "32"])
    _share(axes)
    promised = Line2D([], [], color=ON_TIME, linewidth=1.6)
    key_of(figure, 4.2, {"promised": promised, "measured": dot(ON_TIME)})
    return figure


def overlaps(table: pd.DataFrame) -> Figure:
    """What is shared by two audiences, against the estimate."""
    figure, axes = blank(
        "What few share is found in few hashes",
        "Estimated size of what two audiences share, as a multiple of the truth, with its bounds: "
        "against the share.",
        4.6,
    )
    for shift, colour, (_, rows) in zip(
        (0.94, 1.06), COLOURS[::-1], table.groupby("k"), strict=True
    ):
        x = rows["share"] * shift
        axes.vlines(x, rows["lower"], rows["upper"], color=FILL[colour], linewidth=11)
        axes.scatter(x, rows["estimate"], s=52, color=colour, zorder=4)
    axes.axhline(1, color=INK, linewidth=1.2, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xticks(sorted(set(table["share"])))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("shared, of either", color=SOFT)
    axes.set_ylim(0)
    key_of(
        figure, 4.6,
        {f"k={k}": dot(colour) for colour, k in zip(COLOURS[::-1], sorted(set(table["k"])), strict=True)},
    )  # fmt: skip
    return figure


def _names(table: pd.DataFrame) -> list[Any]:
    return sorted(set(table["kind"]))


def _bytes(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("bytes", color=SOFT)
    axes.tick_params(which="minor", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))


def _share(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.tick_params(which="minor", length=0)
    axes.grid(axis="y", color=GRID)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:g} %"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _lines(figure: Figure, height: float, named: Mapping[str, str]) -> None:
    key_of(
        figure, height,
        {
            label: Line2D([], [], color=colour, linewidth=2, linestyle=":" if colour == INK else "-")
            for label, colour in named.items()
        },
    )  # fmt: skip
