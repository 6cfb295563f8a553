"""The pictures of the notebook on functions per key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from drawing import (
    FILL,
    GRID,
    INK,
    ON_TIME,
    REMOVED,
    SOFT,
    STRAGGLER,
    TOO_LATE,
    bar,
    blank,
    clock,
    dot,
    event,
    key_of,
)
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

Row = Mapping[str, Any]
MINUTE = pd.Timedelta(minutes=1)
PEOPLE = {"ann": ON_TIME, "bob": STRAGGLER, "cem": SOFT}
PLAIN = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
FILL_OF = {**FILL, SOFT: "#dfe3e7"}


def _ring(colour: str) -> Line2D:
    """A timer or command without effect, for a key of colours."""
    return Line2D([], [], color=colour, marker="o", markersize=8, linestyle="none",
                  markerfacecolor="white", markeredgewidth=1.5)  # fmt: skip


def lifelines(rows: Sequence[Row], title: str, subtitle: str) -> Figure:
    """Rows, state and timers of each key over time."""
    table = pd.DataFrame(rows)
    users = sorted(table["user"].unique())
    height = 1.7 + 1.35 * len(users)
    figure, axes = blank(title, subtitle, height)
    axes.set_xlim(table["ts"].min() - MINUTE, table["ts"].max() + 5 * MINUTE)
    step = 1.5
    for lane, user in enumerate(reversed(users)):
        y = lane * step
        axes.axhline(y, color=GRID, linewidth=1.2)
        ours = table[table["user"] == user].sort_values("ts").reset_index(drop=True)
        following = ours["ts"].shift(-1)
        for row, until in zip(ours.itertuples(), following, strict=True):
            if row.event == "added":
                bar(axes, row.ts, until, y + 0.48, row.items, height=0.38)
                _timer(axes, row.ts, row.timer, until, y - 0.4)
            colour = {"added": ON_TIME, "bought": TOO_LATE}.get(row.event)
            if colour is None:
                axes.scatter([row.ts], [y], s=110, marker="D", c=STRAGGLER, edgecolors="white", zorder=5)  # fmt: skip
                axes.text(row.ts + 0.5 * MINUTE, y + 0.45, "reminded", fontsize=10.5, color=STRAGGLER, va="center")  # fmt: skip
            else:
                event(axes, [row.ts], [y], colour)
    axes.set_ylim(-0.75, (len(users) - 1) * step + 0.9)
    axes.set_yticks([lane * step for lane in range(len(users))], [*reversed(users)], fontsize=12, color=INK)  # fmt: skip
    clock(axes, 5)
    key_of(
        figure, height,
        {"added": dot(ON_TIME), "bought": dot(TOO_LATE), "items in state": ON_TIME,
         "timer cancelled": _ring(SOFT), "timer fired": dot(STRAGGLER, "D")},
    )  # fmt: skip
    return figure


def _timer(axes: Any, start: Any, due: Any, until: Any, y: float) -> None:
    """A timer, from where it was set to where it fires, or would have."""
    fires = due == until
    colour = STRAGGLER if fires else REMOVED
    # Timers of one key overlap: each that was cancelled ends where that happened.
    axes.plot([start, min(due, until)], [y, y], color=colour, linewidth=1.6, linestyle=(0, (3, 2)))
    if fires:
        axes.scatter([due], [y], s=42, marker="D", c=STRAGGLER, zorder=4)
        axes.plot([due, due], [y, y + 0.4], color=STRAGGLER, linewidth=1.2)
    else:
        axes.scatter([until], [y], s=34, facecolors="white", edgecolors=SOFT, linewidths=1.5, zorder=4)  # fmt: skip


def arrivals(script: Sequence[Sequence[Row]], results: Sequence[Any], title: str, subtitle: str) -> Figure:  # fmt: skip
    """For each micro-batch: what arrived, what was processed, and the watermark."""
    height = 1.6 + 0.85 * len(results)
    figure, axes = blank(title, subtitle, height)
    times = [row["ts"] for rows in script for row in rows]
    axes.set_xlim(min(times) - MINUTE, max(times) + MINUTE)
    for n, result in enumerate(results):
        rows = script[n] if n < len(script) else []
        late = [row["row"]["ts"] for row in result.late_rows]
        on_time = [row["ts"] for row in rows if row["ts"] not in late]
        axes.axhline(n, color=GRID, linewidth=1.2, zorder=1)
        event(axes, on_time, [n - 0.2] * len(on_time))
        event(axes, late, [n - 0.2] * len(late), TOO_LATE)
        for row in result.rows:
            fired = row["event"] == "reminded"
            bar(axes, row["ts"] - MINUTE / 4, row["ts"] + MINUTE / 4, n + 0.22, row["items"],
                height=0.3, colour=STRAGGLER if fired else ON_TIME)  # fmt: skip
        if result.watermark is not None and result.watermark >= min(times) - MINUTE:
            axes.plot([result.watermark] * 2, [n - 0.45, n + 0.02], color=INK, linewidth=1.6, linestyle="--", zorder=3)  # fmt: skip
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_yticks(range(len(results)))
    axes.set_ylabel("micro-batch", color=SOFT, fontsize=10.5)
    clock(axes, 2)
    mark = Line2D([], [], color=INK, linewidth=1.6, linestyle="--")
    key_of(figure, height, {"arrived": dot(ON_TIME), "late": dot(TOO_LATE), "processed": ON_TIME, "watermark": mark})  # fmt: skip
    return figure


def divided(
    found: Mapping[str, Mapping[int, Sequence[Row]]],
    first: dt.datetime,
    title: str,
    subtitle: str,
) -> Figure:
    """The results of each function, for each division into micro-batches."""
    height = 1.85 + 1.9 * len(found)
    figure, grid = blank(title, subtitle, height, left=0.14, head=0.22, nrows=len(found), hspace=0.42, sharex=True)  # fmt: skip
    for axes, (name, divisions) in zip(grid, found.items(), strict=True):
        reference = divisions[8]
        for y, (size, rows) in enumerate(divisions.items()):
            count = 8 // size
            for n in range(count):
                begins, ends = n * size - 0.38, (n + 1) * size - 0.62
                axes.plot(
                    [first + begins * MINUTE, first + ends * MINUTE], [y + 0.38] * 2,
                    color=REMOVED, linewidth=2.4,
                )  # fmt: skip
            same = rows == reference
            for row in rows:
                bar(axes, row["ts"] - 0.36 * MINUTE, row["ts"] + 0.36 * MINUTE, y, f"{row['mean']:.2g}",
                    height=0.52, colour=ON_TIME if same else STRAGGLER)  # fmt: skip
        axes.set_title(name, loc="left", fontsize=11.5, color=INK)
        axes.set_ylim(len(divisions) - 0.45, -0.55)
        axes.set_yticks(range(len(divisions)), [f"{8 // size} × {size} rows" for size in divisions], color=INK)  # fmt: skip
        clock(axes, 1)
    line = Line2D([], [], color=REMOVED, linewidth=2.4)
    key_of(figure, height, {"a micro-batch": line, "as in one": ON_TIME, "another result": STRAGGLER})  # fmt: skip
    return figure


def seat(commands: Sequence[Row], decided: Sequence[Row], title: str, subtitle: str) -> Figure:
    """The commands of two people, and below them what became of a seat."""
    height = 4.0
    figure, axes = blank(title, subtitle, height)
    axes.set_xlim(commands[0]["ts"] - 1.5 * MINUTE, commands[-1]["ts"] + 3 * MINUTE)
    lanes = {"ann": 2.7, "bob": 1.7}
    for y in (*lanes.values(), 0.45):
        axes.axhline(y, color=GRID, linewidth=1.2)
    answers = {(row["command_id"], row["ts"]): row for row in decided}
    for command in commands:
        y, answer = lanes[command["person"]], answers.get((command["id"], command["ts"]))
        seen = "" if command["seen"] is None else f", saw {command['seen']}"
        axes.text(command["ts"], y + 0.3, f"{command['op']}{seen}", ha="center", fontsize=10, color=INK, bbox=PLAIN)  # fmt: skip
        if answer is None:
            axes.scatter([command["ts"]], [y], s=62, facecolors="white", edgecolors=SOFT, linewidths=1.5, zorder=4)  # fmt: skip
            axes.text(command["ts"], y - 0.36, "repeated", ha="center", fontsize=10, color=SOFT)
        elif answer["rejection"]:
            axes.scatter([command["ts"]], [y], s=80, marker="X", c=STRAGGLER, edgecolors="white", zorder=4)  # fmt: skip
            reason = answer["rejection"].replace("_", " ")
            axes.text(
                command["ts"],
                y - 0.36,
                reason,
                ha="center",
                fontsize=10,
                color=STRAGGLER,
                bbox=PLAIN,
            )
        else:
            event(axes, [command["ts"]], [y])
            axes.plot([command["ts"]] * 2, [y - 0.1, 0.55], color=ON_TIME, linewidth=1.2, zorder=1)
            event(axes, [command["ts"]], [0.45], INK, 150)
            axes.text(command["ts"], 0.44, str(answer["version"]), ha="center", va="center", fontsize=9.5, color="white", zorder=6)  # fmt: skip
            axes.text(command["ts"], 0.8, f" {answer['type']}", ha="left", fontsize=10, color=INK)
    events = [row for row in decided if row["rejection"] is None]
    ends = [*(row["ts"] for row in events[1:]), commands[-1]["ts"] + 3 * MINUTE]
    for row, end in zip(events, ends, strict=True):
        if row["type"] == "reserved":
            bar(axes, row["ts"], end, 0.02, f"held by {row['person']}", height=0.36)
        else:
            bar(axes, row["ts"], end, 0.02, "free", height=0.36, colour=REMOVED)
    axes.set_ylim(-0.3, 3.25)
    axes.set_yticks([2.7, 1.7, 0.45, 0.02], ["ann", "bob", "events", "state"], fontsize=12, color=INK)  # fmt: skip
    clock(axes, 5)
    cross = Line2D([], [], color=STRAGGLER, marker="X", markersize=8, linestyle="none")
    key_of(figure, height, {"accepted": dot(ON_TIME), "rejected": cross, "ignored": _ring(SOFT), "event": dot(INK)})  # fmt: skip
    return figure


def folds(
    decisions: Sequence[Row], reserved: Mapping[str, int], end: dt.datetime, title: str, subtitle: str
) -> Figure:  # fmt: skip
    """Who had which seat over time, and how often each person got one."""
    seats = sorted({row["seat"] for row in decisions})
    height = 1.7 + 0.5 * len(seats)
    figure, (left, right) = blank(title, subtitle, height, ncols=2, wspace=0.16, width_ratios=[3, 1])  # fmt: skip
    first = min(row["ts"] for row in decisions)
    left.set_xlim(first - MINUTE, end)
    for y, name in enumerate(reversed(seats)):
        ours = [row for row in decisions if row["seat"] == name]
        events = [row for row in ours if row["rejection"] is None]
        ends = [*(row["ts"] for row in events[1:]), end]
        for row, until in zip(events, ends, strict=True):
            if row["type"] == "reserved":
                _hold(left, row["ts"], until, y, row["person"])
        refused = [row["ts"] for row in ours if row["rejection"]]
        left.scatter(refused, [y] * len(refused), s=26, marker="x", c=TOO_LATE, linewidths=1.3, zorder=5)  # fmt: skip
    left.set_ylim(-0.6, len(seats) - 0.4)
    left.set_yticks(range(len(seats)), [*reversed(seats)], fontsize=12, color=INK)
    clock(left, 15)
    for y, (person, count) in enumerate(reversed(reserved.items())):
        colour = PEOPLE[person]
        right.barh(y, count, height=0.6, color=FILL_OF[colour], edgecolor=colour, linewidth=1.4)
        right.text(count + 0.15, y, str(count), va="center", fontsize=11, color=INK)
    right.set_yticks(range(len(reserved)), [*reversed(reserved)], fontsize=12, color=INK)
    right.set_xlim(0, max(reserved.values()) * 1.2)
    right.set_xticks([])
    cross = Line2D([], [], color=TOO_LATE, marker="x", markersize=7, linestyle="none")
    key_of(figure, height, {**{name: dot(colour, "s") for name, colour in PEOPLE.items()}, "rejected": cross})  # fmt: skip
    return figure


def _hold(axes: Any, start: Any, end: Any, y: float, person: str) -> None:
    colour = PEOPLE[person]
    axes.barh(
        y, end - start, left=start, height=0.56, color=FILL_OF[colour], edgecolor=colour, linewidth=1.4
    )  # fmt: skip


def records(played: Sequence[Row], found: Sequence[Row], title: str, subtitle: str) -> Figure:
    """The scores of each player over time, and those that are records."""
    table, best = pd.DataFrame(played), pd.DataFrame(found)
    players = sorted(table["player"].unique())
    height = 1.7 + 1.2 * len(players)
    figure, grid = blank(title, subtitle, height, nrows=len(players), sharex=True, sharey=True, hspace=0.18)  # fmt: skip
    end = table["ts"].max() + MINUTE
    for axes, name in zip(grid, players, strict=True):
        ours = table[table["player"] == name]
        beaten = best[best["player"] == name].sort_values("ts")
        axes.step(
            [*beaten["ts"], end], [*beaten["record"], beaten["record"].iloc[-1]],
            where="post", color=FILL[ON_TIME], linewidth=2.4, zorder=1,
        )  # fmt: skip
        axes.scatter(ours["ts"], ours["score"], s=26, c=REMOVED, zorder=2)
        event(axes, beaten["ts"], beaten["record"])
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=12, color=INK)
        axes.set_xlim(table["ts"].min() - MINUTE, end)
        clock(axes, 5)
    line = Line2D([], [], color=FILL[ON_TIME], linewidth=2.4)
    key_of(figure, height, {"record": dot(ON_TIME), "score": dot(REMOVED), "best so far": line})
    return figure
