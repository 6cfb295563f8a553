"""The pictures of the notebook on erasure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    TOO_LATE,
    blank,
    cell,
    clock,
    dot,
    event,
    key_of,
)
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

Row = Mapping[str, Any]
VALUES = {"email": STRAGGLER, "city": ON_TIME, "key": TOO_LATE}


def stages(
    tables: Mapping[str, Sequence[Row]], title: str, subtitle: str, *, subject: str
) -> Figure:
    """The same rows as tables side by side."""
    rows = len(next(iter(tables.values())))
    height = 1.85 + 0.4 * rows
    figure, axes = blank(title, subtitle, height, left=0.02, head=0.1)
    width = 1 / len(tables)
    for at, (name, table) in enumerate(tables.items()):
        left = at * width
        axes.text(
            left + 0.005, -1.05, name, fontsize=11.5, color=INK, fontweight="bold", va="center"
        )
        for y, row in enumerate(table):
            ours = row["user"] == subject
            values = [row["user"], _formatted(row["email"]), _formatted(row["city"])]
            colour = STRAGGLER if ours else SOFT
            for x, text, share in zip(
                (0.005, 0.065, 0.215), values, (0.05, 0.142, 0.095), strict=True
            ):
                missing = text is None
                fill = FILL[REMOVED] if missing else FILL[STRAGGLER] if ours else PAPER
                if x > 0.01:
                    cell(
                        axes,
                        left + x - 0.004,
                        y,
                        share,
                        fill,
                        REMOVED if missing else fill,
                        "null" if missing else "",
                        height=0.7,
                        removed=missing,
                    )
                if not missing:
                    axes.text(
                        left + x,
                        y,
                        text,
                        va="center_baseline",
                        fontsize=9.6,
                        color=INK if x > 0.01 else colour,
                        family="monospace" if str(text).startswith("…") else None,
                    )
    axes.set_xlim(0, 1)
    axes.set_ylim(rows - 0.4, -1.4)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    return figure


def _formatted(value: Any) -> str | None:
    if isinstance(value, bytes | bytearray):
        return f"…{bytes(value).hex()[-8:]}"
    return None if value is None else str(value)


def locations(
    situations: Mapping[str, Mapping[str, tuple[int, Collection[str]]]], title: str, subtitle: str
) -> Figure:
    """For each situation the folders of the run, and the values that are found there."""
    folders = ["incoming", "log", "checkpoints", "view", "keys"]
    height = 1.85 + 0.68 * len(situations)
    figure, axes = blank(title, subtitle, height, left=0.29, head=0.2)
    for x, folder in enumerate(folders):
        axes.text(x + 0.5, -0.62, folder, ha="center", va="bottom", fontsize=11.5, color=INK)
    for y, (name, found) in enumerate(situations.items()):
        axes.text(-0.1, y, name, ha="right", va="center", fontsize=11, color=INK)
        for x, folder in enumerate(folders):
            if folder not in found:
                axes.text(x + 0.5, y, "–", ha="center", va="center", fontsize=11, color=SOFT)
                continue
            files, values = found[folder]
            edge = STRAGGLER if values else REMOVED
            cell(
                axes,
                x + 0.05,
                y,
                0.9,
                FILL[STRAGGLER] if values else FILL[REMOVED],
                edge,
                "",
                height=0.76,
            )
            axes.text(
                x + 0.12,
                y + 0.2,
                f"{files} files" if files != 1 else "1 file",
                va="center",
                fontsize=9.5,
                color=SOFT,
            )
            for n, value in enumerate(value for value in VALUES if value in values):
                event(axes, [x + 0.2 + 0.2 * n], [y - 0.14], VALUES[value], 90)
    axes.set_xlim(0, len(folders))
    axes.set_ylim(len(situations) - 0.5, -0.55)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    key_of(figure, height, {name: dot(colour) for name, colour in VALUES.items()})
    return figure


def fates(
    rows: Sequence[tuple[str, Any, str]], never: Collection[Any], title: str, subtitle: str
) -> Figure:
    """The visits of each user over time, and whether their values can be read."""
    table = pd.DataFrame(rows, columns=["user", "ts", "fate"])
    users = sorted(table["user"].unique())
    height = 1.6 + 0.6 * len(users)
    figure, axes = blank(title, subtitle, height)
    for y, user in enumerate(reversed(users)):
        axes.axhline(y, color=GRID, linewidth=1.2)
        for row in table[table["user"] == user].itertuples():
            if row.fate == "readable":
                event(axes, [row.ts], [y], ON_TIME, 80)
            elif row.ts in never:
                axes.scatter(
                    [row.ts], [y], s=90, marker="X", c=STRAGGLER, edgecolors="white", zorder=4
                )
            else:
                axes.scatter(
                    [row.ts],
                    [y],
                    s=62,
                    facecolors="white",
                    edgecolors=SOFT,
                    linewidths=1.5,
                    zorder=4,
                )
    deleted = table["ts"].min() + pd.Timedelta(minutes=92)
    axes.axvline(deleted, color=INK, linewidth=1.6, linestyle="--")
    axes.text(
        deleted + pd.Timedelta(minutes=1),
        len(users) - 0.62,
        "the key of user-1 is deleted",
        fontsize=10.5,
        color=INK,
        va="center",
    )
    margin = pd.Timedelta(minutes=8)
    axes.set_xlim(table["ts"].min() - margin, table["ts"].max() + margin)
    axes.set_ylim(-0.5, len(users) - 0.35)
    axes.set_yticks(range(len(users)), [*reversed(users)], fontsize=12, color=INK)
    clock(axes, 30)
    ring = Line2D(
        [],
        [],
        color=SOFT,
        marker="o",
        markersize=8,
        linestyle="none",
        markerfacecolor="white",
        markeredgewidth=1.5,
    )
    key_of(
        figure,
        height,
        {"readable": dot(ON_TIME), "no longer": ring, "never stored": dot(STRAGGLER, "X")},
    )
    return figure


def equalities(
    cities: Sequence[tuple[str, str]], values: Sequence[bytes], title: str, subtitle: str
) -> Figure:
    """Each value against each: equal bytes, the same city in other bytes, or another city."""
    height = 1.6 + 0.44 * (len(values) + 1)
    figure, axes = blank(title, subtitle, height, left=0.22, head=0.25)
    names = [f"{user} {city}" for user, city in cities]
    for y, (first, (_, city)) in enumerate(zip(values, cities, strict=True)):
        axes.text(-0.1, y, names[y], ha="right", va="center", fontsize=11, color=INK)
        axes.text(
            y + 0.5,
            -0.62,
            names[y].replace(" ", "\n"),
            ha="center",
            va="bottom",
            fontsize=10,
            color=INK,
        )
        for x, (second, (_, other)) in enumerate(zip(values, cities, strict=True)):
            if first == second:
                cell(axes, x + 0.05, y, 0.9, FILL[ON_TIME], ON_TIME, "equal")
            elif city == other:
                cell(axes, x + 0.05, y, 0.9, FILL[STRAGGLER], STRAGGLER, "")
            else:
                cell(axes, x + 0.05, y, 0.9, FILL[REMOVED], REMOVED, "")
    axes.set_xlim(0, len(values))
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    key_of(
        figure,
        height,
        {
            "equal bytes": dot(ON_TIME, "s"),
            "same city, other bytes": dot(STRAGGLER, "s"),
            "other city": dot(REMOVED, "s"),
        },
    )
    return figure


def views(tables: Mapping[str, Sequence[Row]], title: str, subtitle: str) -> Figure:
    """The counts of each user as bars, and the address where it can be read."""
    rows = len(next(iter(tables.values())))
    height = 1.75 + 0.62 * rows
    figure, grid = blank(
        title, subtitle, height, left=0.08, head=0.2, ncols=2, wspace=0.12, sharey=True
    )
    for axes, (name, table) in zip(grid, tables.items(), strict=True):
        for y, row in enumerate(table):
            for shift, column, colour in ((-0.17, "visits", ON_TIME), (0.17, "cities", STRAGGLER)):
                axes.barh(
                    y + shift,
                    row[column],
                    height=0.3,
                    color=FILL[colour],
                    edgecolor=colour,
                    linewidth=1.3,
                )
                axes.text(
                    row[column] - 0.07,
                    y + shift,
                    row[column],
                    ha="right",
                    va="center_baseline",
                    fontsize=10.5,
                    color=INK,
                )
            email = row["email"]
            axes.text(
                4.25,
                y,
                email or "erased",
                va="center",
                fontsize=11,
                color=INK if email else STRAGGLER,
            )
        axes.set_title(name, loc="left", fontsize=11.5, color=INK)
        axes.set_xlim(0, 7.3)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.set_xticks([])
        axes.set_yticks(range(rows), [row["user"] for row in table], fontsize=11.5, color=INK)
        axes.grid(visible=False)
    key_of(figure, height, {"visits": ON_TIME, "different cities": STRAGGLER})
    return figure


def backups(
    tables: Sequence[str],
    keys: Sequence[str],
    readers: Mapping[tuple[str, str], Collection[str]],
    users: Sequence[str],
    title: str,
    subtitle: str,
) -> Figure:
    """Whose values can be read with each key table and each wrapping key."""
    height = 1.7 + 0.95 * len(tables)
    figure, axes = blank(title, subtitle, height, left=0.2, head=0.25)
    for x, key in enumerate(keys):
        axes.text(x + 0.5, -0.6, key, ha="center", va="bottom", fontsize=11.5, color=INK)
    for y, table in enumerate(tables):
        axes.text(-0.03, y, table, ha="right", va="center", fontsize=11.5, color=INK)
        for x, key in enumerate(keys):
            cell(axes, x + 0.02, y, 0.96, PAPER, REMOVED, "", height=0.86)
            for n, user in enumerate(users):
                left = x + 0.06 + 0.3 * n
                found = user in readers[table, key]
                fill, edge = (FILL[ON_TIME], ON_TIME) if found else (FILL[REMOVED], REMOVED)
                cell(axes, left, y, 0.27, fill, edge, user if found else "–", height=0.5)
    axes.set_xlim(0, len(keys))
    axes.set_ylim(len(tables) - 0.5, -0.55)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    return figure
