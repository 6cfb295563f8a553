"""The plot of a history: rows per second, watermark and late rows, state, time per phase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streamops.kernel.errors import located
from streamops.kernel.packages import require_package
from streamops.kernel.palette import CATEGORIES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_SIZE = (10.0, 6.0)  # inches
_TWIN = "streamops late rows"  # marks the axes of rows
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def draw(batches: pd.DataFrame, operators: pd.DataFrame, axes: Iterable[Axes] | None) -> list[Axes]:
    """Draw the frames of a history on four axes, or on those of a new figure."""
    drawn = _new_axes() if axes is None else [*axes]
    x = batches["batch"].to_numpy()
    rates, times, state, phases = drawn
    _prepare(rates, "rows per second")
    rates.plot(x, batches["rows_per_second"], color=CATEGORIES[0], label="processed")
    rates.plot(x, batches["input_rows_per_second"], color=CATEGORIES[1], label="arrived")
    late = [name for name in ("late", "corrections", "side_output") if batches[name].any()]
    _prepare(times, "delay of the watermark")
    times.ticklabel_format(useOffset=False)
    for other in times.get_shared_x_axes().get_siblings(times):  # of a plot on the same axes
        if other.get_label() == _TWIN:
            other.remove()
    unit, name = _unit(batches["watermark_delay"], _UNITS)
    times.plot(x, batches["watermark_delay"] / unit, color=CATEGORIES[2], label="watermark")
    times.plot(x, batches["event_delay"] / unit, color=CATEGORIES[3], label="newest event")
    times.set_ylabel(name)
    if late:  # rows share the time axis, so one sees which watermark they were late by
        rows = times.twinx()
        rows.set_label(_TWIN)
        rows.set_ylabel("rows")
        for column, color in zip(late, (CATEGORIES[1], CATEGORIES[4], CATEGORIES[5]), strict=False):
            label = column.replace("_", " ")
            some = batches[column] > 0
            rows.plot(x[some], batches[column][some], color=color, marker=".", ls="", label=label)
        rows.set_ylim(bottom=0)
        # One legend for both: two may cover each other.
        for line in rows.lines:
            times.plot([], [], color=line.get_color(), marker=".", ls="", label=line.get_label())
    _prepare(state, "bytes of state")
    unit, name = _unit(operators["state_bytes"], _BYTES)
    sized = operators.dropna(subset=["state_bytes"])
    for number, (operator, rows_of) in enumerate(sized.groupby("operator", sort=False)):
        values = rows_of["state_bytes"].astype("float64") / unit
        color = CATEGORIES[number % len(CATEGORIES)]
        state.plot(rows_of["batch"], values, color=color, label=operator)
    state.set_ylabel(name)
    _prepare(phases, "seconds per micro-batch")
    names = [column for column in batches.columns if column.startswith("seconds.")]
    if names:
        stacked = [batches[column].fillna(0.0) for column in names]
        labels = [column.removeprefix("seconds.") for column in names]
        colors = [CATEGORIES[number % len(CATEGORIES)] for number in range(len(names))]
        phases.stackplot(x, stacked, labels=labels, colors=colors)
    for ax in drawn:
        _finish(ax)
    return drawn


def _new_axes() -> list[Axes]:
    """Four axes of a new figure, which pyplot does not know: it need not be closed."""
    with located("observe"):
        figure_module = require_package("matplotlib.figure", package="matplotlib", extra="watch")
    figure = figure_module.Figure(figsize=_SIZE, layout="constrained")
    return [*figure.subplots(2, 2).flat]


def _prepare(ax: Axes, title: str) -> None:
    ax.clear()
    ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)


def _finish(ax: Axes) -> None:
    ax.set_xlabel("micro-batch", fontsize="small")
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize="small")


def _unit(values: Any, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The greatest unit in which the greatest value is at least 1."""
    greatest = values.abs().max() if len(values.dropna()) else 0
    return next((unit for unit in units if greatest >= unit[0]), units[-1])
