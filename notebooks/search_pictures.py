"""The pictures of the notebook on stored queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from drawing import (
    FILL,
    GRID,
    INK,
    ON_TIME,
    REMOVED,
    SOFT,
    STRAGGLER,
    TOO_LATE,
    blank,
    cell,
    dot,
    event,
    key_of,
    plain,
)
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

Pair = tuple[Any, Any]
MONO = {"family": "monospace", "color": INK}


def matrix(
    documents: Sequence[str],
    queries: Mapping[int, str],
    matches: Collection[Pair],
    title: str,
    subtitle: str,
) -> Figure:
    """Documents to the right, queries downwards: a filled cell is a match."""
    height = 1.75 + 0.48 * len(queries)
    figure, axes = blank(title, subtitle, height, left=0.34, head=0.25)
    for x, document in enumerate(documents):
        axes.text(x + 0.5, -0.62, document, ha="center", va="bottom", fontsize=11, color=INK)
        for y, number in enumerate(queries):
            found = (document, number) in matches
            edge = ON_TIME if found else REMOVED
            fill = FILL[ON_TIME] if found else FILL[REMOVED]
            cell(axes, x + 0.06, y, 0.88, fill, edge, "match" if found else "")
    for y, text in enumerate(queries.values()):
        axes.text(-0.12, y, text, ha="right", va="center", fontsize=11, **MONO)
    axes.set_xlim(0, len(documents))
    axes.set_ylim(len(queries) - 0.5, -0.55)
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def meanings(
    document: str,
    queries: Mapping[str, str],
    found: Collection[int],
    invalid: Collection[int],
    title: str,
) -> Figure:
    """A document, and below it whether each of several queries matches it, and why."""
    height = 1.35 + 0.34 * len(queries)
    figure, axes = blank(title, document, height, left=0.02)
    for y, (text, why) in enumerate(queries.items()):
        colour = ON_TIME if y in found else REMOVED
        if y in invalid:
            axes.scatter([0.36], [y], s=70, marker="X", c=STRAGGLER, zorder=4)
        elif y in found:
            event(axes, [0.36], [y], colour, 80)
        else:
            axes.scatter(
                [0.36], [y], s=58, facecolors="white", edgecolors=SOFT, linewidths=1.5, zorder=4
            )
        axes.text(0.33, y, text, ha="right", va="center", fontsize=11.5, **MONO)
        axes.text(0.40, y, why, ha="left", va="center", fontsize=11, color=SOFT)
        axes.axhline(y + 0.5, color=GRID, linewidth=0.8)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(queries) - 0.4, -0.6)
    axes.set_xticks([])
    axes.set_yticks([])
    key_of(
        figure,
        height,
        {"matches": dot(ON_TIME), "does not": _ring(), "refused": dot(STRAGGLER, "X")},
    )
    return figure


def _ring() -> Line2D:
    return Line2D(
        [],
        [],
        color=SOFT,
        marker="o",
        markersize=8,
        linestyle="none",
        markerfacecolor="white",
        markeredgewidth=1.5,
    )


def versions(
    changes: Mapping[int, Sequence[tuple[int, str | None, str]]],
    matches: Collection[Pair],
    batches: int,
    title: str,
    subtitle: str,
) -> Figure:
    """The versions of each query as bars over micro-batches, and whether the document matched."""
    numbers = sorted({number for some in changes.values() for number, _, _ in some})
    height = 1.7 + 0.95 * len(numbers)
    figure, axes = blank(title, subtitle, height)
    for y, number in enumerate(numbers):
        ours = [
            (n, text, type_)
            for n, some in changes.items()
            for q, text, type_ in some
            if q == number
        ]
        invalid = [n for n, text, _ in ours if text is not None and "?" in text]
        valid = [entry for entry in ours if entry[0] not in invalid]
        ends = [*(n for n, _, _ in valid[1:]), batches]
        for (start, text, _), end in zip(valid, ends, strict=True):
            if text is None:
                continue
            cell(
                axes,
                start - 0.46,
                y - 0.12,
                end - start - 0.08,
                FILL[ON_TIME],
                ON_TIME,
                "",
                height=0.36,
            )
            axes.text(start - 0.38, y - 0.13, text, va="center", fontsize=11, zorder=5, **MONO)
            for n in range(start, end):
                if (n, number) in matches:
                    event(axes, [n], [y + 0.3], ON_TIME, 80)
                else:
                    axes.scatter(
                        [n],
                        [y + 0.3],
                        s=58,
                        facecolors="white",
                        edgecolors=SOFT,
                        linewidths=1.5,
                        zorder=4,
                    )
        for n, text, type_ in ours:
            if type_ == "delete":
                axes.text(n - 0.4, y - 0.13, "deleted", va="center", fontsize=11, color=SOFT)
            if n in invalid:
                axes.scatter([n - 0.36], [y - 0.44], s=70, marker="X", c=STRAGGLER, zorder=6)
                axes.text(
                    n - 0.22,
                    y - 0.45,
                    text,
                    va="center",
                    fontsize=11,
                    family="monospace",
                    color=STRAGGLER,
                )
    axes.set_xlim(-0.6, batches - 0.4)
    axes.set_ylim(len(numbers) - 0.45, -0.7)
    axes.set_xticks(range(batches))
    axes.set_yticks(range(len(numbers)), [f"query {n}" for n in numbers], fontsize=12, color=INK)
    axes.set_xlabel("micro-batch", color=SOFT, fontsize=10.5)
    key_of(
        figure,
        height,
        {
            "in effect": ON_TIME,
            "match": dot(ON_TIME),
            "no match": _ring(),
            "refused": dot(STRAGGLER, "X"),
        },
    )
    return figure


def validity(
    changes: Collection[tuple[int, int, str | None]],
    arrived: Mapping[int, int],
    matches: Collection[Pair],
    end: int,
    title: str,
    subtitle: str,
) -> Figure:
    """The versions of each query as bars over event time, and which documents match which of them.

    ``changes`` are the instant, the query and its text; ``arrived`` has the micro-batch of each document.
    """
    numbers = sorted({number for _, number, _ in changes})
    height = 1.9 + 0.95 * len(numbers)
    figure, axes = blank(title, subtitle, height)
    plain(axes)
    axes.grid(visible=False)
    for second, batch in arrived.items():
        axes.axvline(second, color=GRID, linewidth=1.2, zorder=0)
        axes.text(second, -0.78, str(batch), ha="center", va="center", fontsize=11, color=SOFT)
    axes.text(0.2, -0.78, "micro-batch", va="center", fontsize=10.5, color=SOFT)
    for y, number in enumerate(numbers):
        ours = sorted((since, text or "") for since, of, text in changes if of == number)
        ends = [*(since for since, _ in ours[1:]), end]
        for (since, text), until in zip(ours, ends, strict=True):
            if not text:
                axes.text(since + 0.4, y - 0.13, "deleted", va="center", fontsize=11, color=SOFT)
                continue
            width = until - since - 0.3
            cell(axes, since, y - 0.12, width, FILL[ON_TIME], ON_TIME, "", height=0.36)
            axes.text(since + 0.4, y - 0.13, text, va="center", fontsize=10, zorder=5, **MONO)
        for second in arrived:
            if (second, number) in matches:
                event(axes, [second], [y + 0.3], ON_TIME, 80)
            else:
                ring = {"facecolors": "white", "edgecolors": SOFT, "linewidths": 1.5}
                axes.scatter([second], [y + 0.3], s=58, zorder=4, **ring)
    axes.set_xlim(0, end)
    axes.set_ylim(len(numbers) - 0.45, -1.0)
    axes.set_xticks(sorted(arrived), [str(second) for second in sorted(arrived)])
    axes.set_yticks(range(len(numbers)), [f"query {n}" for n in numbers], fontsize=12, color=INK)
    axes.set_xlabel("event time, seconds", color=SOFT, fontsize=10.5)
    key_of(figure, height, {"valid": ON_TIME, "match": dot(ON_TIME), "no match": _ring()})
    return figure


def candidates(
    size: int,
    some: Collection[tuple[int, int]],
    matches: Collection[tuple[int, int]],
    title: str,
    subtitle: str,
    *,
    order: Sequence[int],
) -> Figure:
    """All pairs of a document and a query as points: candidates, and those that match."""
    height = 5.4
    figure, axes = blank(title, subtitle, height)
    row = {query: y for y, query in enumerate(order)}
    grid = np.zeros((size, size))
    for document, query in some:
        grid[row[query], document] = 1
    for document, query in matches:
        grid[row[query], document] = 2
    colours = ListedColormap([FILL[REMOVED], "#9cc3da", STRAGGLER])
    axes.imshow(grid, cmap=colours, interpolation="nearest", aspect="auto", vmin=0, vmax=2)
    axes.grid(visible=False)
    axes.set_xlabel("documents", color=SOFT, fontsize=10.5)
    axes.set_ylabel("queries", color=SOFT, fontsize=10.5)
    axes.set_xticks([])
    axes.set_yticks([])
    key_of(
        figure,
        height,
        {
            "not compared": dot(REMOVED, "s"),
            "candidate": dot("#9cc3da", "s"),
            "match": dot(STRAGGLER, "s"),
        },
    )
    return figure


def cost(
    counts: Sequence[int], measured: Sequence[tuple[float, float]], title: str, subtitle: str
) -> Figure:
    """Time per document, with an index and without."""
    height = 3.2
    figure, axes = blank(title, subtitle, height)
    plain(axes)
    for which, (colour, above) in enumerate(((ON_TIME, 0.38), (TOO_LATE, 1.35))):
        values = [row[which] for row in measured]
        axes.plot(counts, values, color=colour, linewidth=2, marker="o", markersize=6)
        for x, value in zip(counts, values, strict=True):
            axes.text(
                x,
                value * above,
                f"{value:,.0f}" if value >= 10 else f"{value:.1f}",
                ha="center",
                fontsize=10.5,
                color=colour,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(
        min(min(row[:2]) for row in measured) / 4, max(max(row[:2]) for row in measured) * 4
    )
    axes.set_xticks(counts, [f"{count:,} queries" for count in counts])
    axes.set_yticks([])
    axes.minorticks_off()
    axes.set_xlim(counts[0] / 1.6, counts[-1] * 1.6)
    key_of(figure, height, {"search.match": dot(ON_TIME), "a loop over all queries": dot(TOO_LATE)})
    return figure


def mistakes(rejections: Sequence[Mapping[str, Any]], title: str, subtitle: str) -> Figure:
    """Invalid queries, with the position and the reason."""
    height = 1.4 + 0.5 * len(rejections)
    figure, axes = blank(title, subtitle, height, left=0.02)
    for y, row in enumerate(sorted(rejections, key=lambda row: str(row["row"]["id"]))):
        text, position = row["query"], row["position"]
        for n, letter in enumerate(text):
            wrong = n == position
            axes.text(
                0.012 + n * 0.0148,
                y,
                letter,
                va="center",
                ha="center",
                fontsize=12.5,
                family="monospace",
                color=STRAGGLER if wrong else INK,
                fontweight="bold" if wrong else "normal",
            )
        axes.plot(
            [0.012 + position * 0.0148], [y + 0.33], marker="^", color=STRAGGLER, markersize=7
        )
        axes.text(0.3, y, row["message"], va="center", fontsize=11, color=SOFT)
        axes.axhline(y + 0.52, color=GRID, linewidth=0.8)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rejections) - 0.4, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    return figure
