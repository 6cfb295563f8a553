"""The pictures that the story of `windows.ipynb` alone has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.dates as mdates
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
    dot,
    dots,
    in_utc,
    key_of,
    time_axis,
)
from matplotlib.figure import Figure

from streamops import plots

MINUTE = pd.Timedelta(minutes=1)


def two_clocks(clicks: pd.DataFrame, happened: pd.DataFrame, arrived: pd.DataFrame) -> Figure:
    """When it happened above, when it came below, a line from one to the other."""
    figure, axes = blank(
        "The same nine clicks by two clocks",
        "Above by when they happened, below by when they arrived; "
        "a line leads from one to the other.",
        4.1,
    )
    first = clicks["ts"].min().floor("h")
    axes.set_xlim(first - MINUTE, first + 41 * MINUTE)
    slow = clicks["arrived"] - clicks["ts"] > 5 * MINUTE
    for row, late in zip(clicks.itertuples(), slow, strict=True):
        colour = STRAGGLER if late else REMOVED
        axes.plot([row.ts, row.arrived], [1, 0], color=colour, linewidth=1.6, zorder=1)
    colours = [STRAGGLER if late else ON_TIME for late in slow]
    dots(axes, clicks["ts"], [1] * len(clicks), colours)
    dots(axes, clicks["arrived"], [0] * len(clicks), colours)
    for table, y, colour in ((happened, 1.32, ON_TIME), (arrived, -0.32, REMOVED)):
        for row in in_utc(table).itertuples():
            bar(axes, row.window_start, row.window_end, y, row.n, colour=colour, height=0.3)
    axes.set_ylim(-0.55, 1.55)
    axes.set_yticks([1.32, 1, 0, -0.32], ["windows", "happened", "arrived", "windows"], color=INK)
    time_axis(axes, 10)
    key_of(figure, 4.1, {"arrives soon": dot(ON_TIME), "held up": dot(STRAGGLER)})
    return figure


def false_spike(
    seen: Mapping[str, pd.Series],
    logged: pd.Series,
    begun: dt.datetime,
    stopped: dt.datetime,
) -> Figure:
    """Requests per second by processing time above, by event time below."""
    zero = pd.Timestamp(begun).floor("s").tz_localize(None)
    rates = {clock: counts[counts.index >= zero].sort_index() for clock, counts in seen.items()}
    end = rates["processing"].index.max()
    span = pd.date_range(zero, end, freq="1s")
    by_processing = rates["processing"].reindex(span, fill_value=0)
    steady = logged.tz_localize(None).reindex(span).mean()
    figure, (above, below) = blank(
        f"By processing time: silence, then {by_processing.max():.0f} requests in a second. "
        f"In truth: {steady:.0f}, all the time",
        "Requests per second of the same log. The consumer was stopped for a while, then "
        "worked off what had piled up.",
        5.8, head=0.35, left=0.06, nrows=2, sharex=True, height_ratios=[1.5, 1], hspace=0.22,
    )  # fmt: skip
    off = (pd.Timestamp(stopped).tz_localize(None) - zero).total_seconds()
    busy = by_processing[by_processing.index > zero + pd.Timedelta(seconds=off + 2)]
    on = (busy[busy > 0].index.min() - zero).total_seconds()
    for axes, counts, colour in (
        (above, by_processing, STRAGGLER),
        (below, rates["event"], ON_TIME),
    ):
        second = (counts.index - zero).total_seconds()
        axes.axvspan(off, on, color="#eef0f2", zorder=0, linewidth=0)
        axes.bar(
            second[counts > 0] + 0.5,
            counts[counts > 0],
            width=0.9,
            color=FILL[colour],
            edgecolor=colour,
        )
        axes.grid(axis="x", visible=False)
        axes.grid(axis="y", color="#e4e7ea")
        axes.set_ylim(0, 1.18 * max(counts.max(), 2 * steady))
    for axes, label in (
        (above, "by processing time: when the consumer came to it"),
        (below, "by event time: when it happened"),
    ):
        axes.text(0, 1.03, label, transform=axes.transAxes, fontsize=11.5, color=INK)
    above.text((off + on) / 2, above.get_ylim()[1] * 0.5, "stopped", ha="center", color=SOFT,
               fontsize=11.5)  # fmt: skip
    below.axhline(steady, color=INK, linewidth=1, linestyle=":")
    below.set_xlabel("seconds", color=SOFT, fontsize=10.5)
    below.set_xlim(0, len(span))
    return figure


def by_batch(batches: Sequence[Sequence[Mapping[str, Any]]], routed: Sequence[Any]) -> Figure:
    """Rows by event time and micro-batch, and the watermark by which they are late."""
    figure, axes = blank(
        "On time, straggler, too late",
        "A row is late where the watermark of the micro-batch before (the line) has passed the end "
        "of its window;\ntoo late where it is twenty minutes past it.",
        5.0,
    )
    start = batches[0][0]["ts"].replace(minute=0)
    axes.set_xlim(start, start + 50 * MINUTE)
    late = {
        (result.batch, row["row"]["ts"]): row["reason"]
        for result in routed
        for row in result.late_rows
    }
    colours = {"straggler": STRAGGLER, "too_late": TOO_LATE}
    marks: list[dt.datetime | None] = [None, *(result.watermark for result in routed)]
    for number, rows in enumerate(batches):
        mark = marks[number]
        if mark is not None:
            axes.plot([mark, mark], [number - 0.5, number + 0.5], color=INK, linewidth=2)
            axes.fill_betweenx([number - 0.5, number + 0.5], start, mark, color="#eef0f2", zorder=0)
            before = marks[number - 1]
            if before is not None:
                axes.plot([before, mark], [number - 0.5] * 2, color=INK, linewidth=2)
        for row in rows:
            reason = late.get((number, row["ts"]))
            dots(axes, [row["ts"]], [number], colours.get(reason, ON_TIME), 90)
            axes.annotate(
                f"{row['ts']:%H:%M}", (mdates.date2num(row["ts"]), number), xytext=(8, 0),
                textcoords="offset points", va="center", fontsize=9.5, color=SOFT,
            )  # fmt: skip
    axes.text(start + 26 * MINUTE, 5.42, "watermark", fontsize=11, color=INK, ha="center")
    axes.set_ylim(len(batches) - 0.5, -0.5)
    axes.set_yticks(range(len(batches)))
    axes.set_ylabel("micro-batch", color=SOFT, fontsize=10.5)
    time_axis(axes, 10)
    named = {"on time": ON_TIME, "straggler": STRAGGLER, "too late": TOO_LATE}
    key_of(figure, 5.0, {label: dot(colour) for label, colour in named.items()})
    return figure


def four_policies(answers: Mapping[str, Sequence[Any]]) -> Figure:
    """What the query put out under each policy, micro-batch by micro-batch."""
    height = 9.2
    figure, grid = blank(
        "One script, four answers",
        "Each bar is a row of the output, each dot a late row that was delivered; a number is that "
        "of clicks.",
        height, head=0.35, left=0.065, nrows=2, ncols=2, sharex=True, hspace=0.13,
        wspace=0.11,
    )  # fmt: skip
    for axes, (word, results) in zip(grid.flat, answers.items(), strict=True):
        plots.plot_corrections(results, time="ts", label="n", ax=axes)
        axes.get_legend().remove()
        axes.set_xlabel("")
        lost = sum(r.counts.stragglers + r.counts.too_late for r in results)
        beside = f"{lost} late rows were counted" if word == "drop" else ""
        placement = {"transform": axes.transAxes, "y": 1.025}
        axes.text(x=0, s=f'"{word}"', fontsize=12.5, fontweight="bold", color=INK, **placement)
        axes.text(x=1, s=beside, fontsize=11, color=SOFT, ha="right", **placement)
    for axes in grid[:, 1]:
        axes.set_ylabel("")
    key_of(
        figure, height,
        {
            "on time": ON_TIME, "corrected": STRAGGLER, "taken back": REMOVED,
            "straggler": dot(STRAGGLER, "D"), "too late": dot(TOO_LATE, "X"),
        },
    )  # fmt: skip
    return figure


def over_time(
    title: str,
    subtitle: str,
    rows: pd.Series,
    named: str,
    lines: Mapping[str, tuple[pd.Series, Mapping[str, Any]]],
) -> Figure:
    """Rows as dots, and what is computed from them as lines, by their names. All are series over time."""
    height = 3.9
    figure, axes = blank(title, subtitle, height)
    key: dict[str, Any] = {named: dot(ON_TIME)}
    for label, (values, style) in lines.items():
        (key[label],) = axes.plot(values.index, values, **{"linewidth": 1.8, **style})
    dots(axes, rows.index, rows)
    axes.grid(axis="y", color=GRID)
    time_axis(axes, 10)
    key_of(figure, height, key)
    return figure


def days_of_new_york(
    days: pd.DataFrame, fixed: pd.DataFrame, weekends: Sequence[pd.Timestamp]
) -> Figure:
    """Calendar days above windows of 24 hours, where the clock is changed."""
    height = 5.4
    figure, panels = blank(
        "A day of 23 hours, and one of 25",
        "Days in New York by windows.calendar, above windows of a fixed day, which is 24 hours and "
        "starts at midnight UTC;\nwith the heartbeats counted in each.",
        height, nrows=2, hspace=0.4,
    )  # fmt: skip
    zone = str(weekends[0].tz)
    for axes, first in zip(panels, weekends, strict=True):
        last = first + pd.DateOffset(days=5)
        axes.set_xlim(first - 30 * MINUTE, first + pd.Timedelta(hours=5 * 24 + 1.5))
        for table, y in ((days, 1), (fixed, 0)):
            for row in in_utc(table).itertuples():
                start, end = row.window_start, row.window_end
                if not first <= start < end <= last:
                    continue
                hours = (end - start).total_seconds() / 3600
                local = start.tz_convert(zone)
                label = f"{local:%a %-d %b}: {row.n}" if y else f"{local:%a %H:%M}: {row.n}"
                colour = REMOVED if not y else ON_TIME if hours == 24 else STRAGGLER
                bar(axes, start, end, y, label, colour=colour)
        axes.set_yticks([1, 0], ["calendar", "fixed"], color=INK)
        axes.set_ylim(-0.55, 1.5)
        time_axis(axes, 24 * 60, "%H:%M", zone)
    key_of(figure, height, {"24 hours": ON_TIME, "23 or 25 hours": STRAGGLER})
    return figure
