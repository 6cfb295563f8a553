"""Pictures of sketches: errors against their bound, and estimates between their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import num2date
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from streamops.kernel.parameters import Text
from streamops.plots import artists
from streamops.plots.data import Data, Floats, read_rows, to_coordinates, zone_of

WIDE = 20.0  # an axis whose values differ by more than this factor is logarithmic


def plot_error(
    measured: Data,
    *,
    x: str,
    error: str,
    bound: str | None = None,
    by: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot measured errors as dots, and the error bound as a line.

    If all errors are positive, they are drawn on a logarithmic axis. Otherwise they are signed, and
    the bound is a band around 0. The x axis is logarithmic if its values differ by more than a factor
    of 20.

    Parameters
    ----------
    measured : frame
        A frame of PySpark, pandas, Arrow or Polars, rows as dicts, or columns by name: one row per
        measurement.
    x : str
        Column to compare with, such as the bytes of the sketch, or the number of distinct values.
    error : str
        Column with the measured error, as a share: 0.01 is 1 %.
    bound : str, optional
        Column with the error that the sketch states for this row; its name is in the legend. The
        standard error of HyperLogLog, for example, is exceeded by one estimate in three.
    by : str, optional
        Column with the name of the sketch: one color for each of its values. At most 6 differ.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> measured = {"bytes": [64, 256, 1024], "error": [0.1, 0.06, 0.02], "rse": [0.13, 0.065, 0.0325]}
    >>> ax = plots.plot_error(measured, x="bytes", error="error", bound="rse")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['measured', 'rse']
    """
    columns = {"x": x, "error": error, "bound": bound, "by": by}
    table = read_rows(measured, columns)
    table = table.sort_values(x, kind="stable", ignore_index=True)
    xs, errors = (to_coordinates(table[name]) for name in (x, error))
    bounds = None if bound is None else to_coordinates(table[bound])
    is_signed = not (errors > 0).all()
    ax = artists.new_axes(ax, 3.8)
    ax.grid(axis="both", color=artists.GRID, linewidth=0.9)
    entries: artists.Entries = {}
    groups = artists.groups_of(table, by)
    for mask, style in groups:
        name = "measured" if by is None else style.name
        ax.scatter(
            xs[mask], errors[mask], s=42, c=style.color, marker=style.marker, zorder=4,
            edgecolors=artists.BACKGROUND, linewidths=0.8, label=name,
        )  # fmt: skip
        entries[name] = style.dot()
        if bounds is None:
            continue
        if is_signed:
            ax.fill_between(
                xs[mask], -bounds[mask], bounds[mask], color=style.fill, linewidth=0, zorder=1,
                alpha=0.7, label="bound",
            )  # fmt: skip
        else:
            ax.plot(xs[mask], bounds[mask], color=style.color, linewidth=1.6, label="bound")
    if bound is not None:
        style = groups[0][1]
        color = style.color if by is None else artists.LABEL
        line = style.patch() if is_signed else artists.line_entry(color, width=1.6)
        entries[bound.replace("_", " ")] = line
    if _is_wide(xs):
        _set_log(ax, "x")
    artists.add_number_axis(ax, axis="x")
    if not is_signed:
        _set_log(ax, "y")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:.3g} %"))
    artists.label_axes(ax, x, error)
    artists.add_legend(ax, entries)
    return ax


def plot_estimates(
    estimates: Data,
    *,
    x: str,
    estimate: str,
    lower: str,
    upper: str,
    truth: str | None = None,
    by: str | None = None,
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot estimates between their lower and upper bounds, beside the exact values.

    Every value of `x` has a position of its own, in the order of the rows. Text is on the vertical
    axis, from the top; numbers and times are on the horizontal one. The axis of the estimates begins at
    0 unless they are close together, and is logarithmic if they differ by more than a factor of 20.

    Parameters
    ----------
    estimates : frame
        A frame of PySpark, pandas, Arrow or Polars, rows as dicts, or columns by name: one row per
        estimate.
    x : str
        Column that names the estimate, such as the window or the item.
    estimate, lower, upper : str
        Columns with the estimate and its bounds.
    truth : str, optional
        Column with the exact value.
    by : str, optional
        Column with the name of the sketch: one color for each of its values, side by side.
    zone : str, optional
        Time zone of the axis, such as "Europe/Berlin". By default that of the column, or UTC.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> estimates = [{"page": "/a", "views": 98, "low": 90, "high": 105, "exact": 100}]
    >>> ax = plots.plot_estimates(
    ...     estimates, x="page", estimate="views", lower="low", upper="high", truth="exact"
    ... )
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['estimate', 'bounds', 'exact']
    """
    columns = {
        "x": x,
        "estimate": estimate,
        "lower": lower,
        "upper": upper,
        "truth": truth,
        "by": by,
    }
    table = read_rows(estimates, columns)
    is_text = len(table) > 0 and all(isinstance(value, str) for value in table[x])
    names = table[x].drop_duplicates()
    positions = table[x].map({value: n for n, value in enumerate(names)}).to_numpy(np.float64)
    value_of = {
        name: to_coordinates(table[name])
        for name in (estimate, lower, upper, *([truth] if truth else []))
    }
    ax = artists.new_axes(ax, 1.2 + 0.36 * len(names) if is_text else 3.8)
    ax.grid(visible=False)
    ax.grid(axis="x" if is_text else "y", color=artists.GRID, linewidth=0.9)
    groups = artists.groups_of(table, by)
    step = 0.62 / len(groups)
    entries: artists.Entries = {}
    for number, (mask, style) in enumerate(groups):
        at = positions[mask] + step * (number - (len(groups) - 1) / 2)
        low, high, middle = (value_of[name][mask] for name in (lower, upper, estimate))
        _draw_bounds(ax, at, low, high, style, width=step * 0.8, is_text=is_text)
        name = "estimate" if by is None else style.name
        across = (middle, at) if is_text else (at, middle)
        ax.scatter(
            *across, s=40, c=style.color, marker=style.marker, edgecolors=artists.BACKGROUND,
            linewidths=0.8, zorder=4, label=name,
        )  # fmt: skip
        entries[name] = style.dot()
        if truth:
            draw = ax.vlines if is_text else ax.hlines
            half = step * 0.48
            draw(
                value_of[truth][mask], at - half, at + half, color=artists.TEXT, linewidth=1.8,
                zorder=5, label="exact",
            )  # fmt: skip
    entries["bounds"] = groups[0][1].patch()
    if truth:
        marker = "|" if is_text else "_"
        entries["exact"] = Line2D(
            [], [], color=artists.TEXT, marker=marker, markersize=12, markeredgewidth=1.8,
            linestyle="none",
        )  # fmt: skip
    _name_positions(ax, names, is_text=is_text, zone=zone)
    values = np.concatenate([value_of[lower], value_of[upper]])
    axis = "x" if is_text else "y"
    if _is_wide(values):
        _set_log(ax, axis)
    elif values.min() < 0.5 * values.max():
        (ax.set_xlim if is_text else ax.set_ylim)(min(0, values.min()), None)
    artists.add_number_axis(ax, axis=axis)  # type: ignore[arg-type]
    artists.label_axes(ax, estimate if is_text else x, "" if is_text else estimate)
    artists.add_legend(ax, entries)
    return ax


def _draw_bounds(
    ax: Axes,
    at: Floats,
    low: Floats,
    high: Floats,
    style: artists.Style,
    *,
    width: float,
    is_text: bool,
) -> None:
    bars = {"color": style.fill, "edgecolor": style.color, "linewidth": 1.0, "zorder": 2}
    if is_text:
        ax.barh(at, high - low, height=width, left=low, **bars)  # type: ignore[arg-type]
    else:
        ax.bar(at, high - low, width=width, bottom=low, **bars)  # type: ignore[arg-type]


def _name_positions(ax: Axes, names: pd.Series[Any], *, is_text: bool, zone: str | None) -> None:
    """Write the name of every position, of at most twenty."""
    if is_text:
        ax.set_yticks(range(len(names)), names.tolist(), color=artists.TEXT, fontsize=artists.FONT)
        ax.set_ylim(len(names) - 0.4, -0.6)
        return
    if pd.api.types.is_numeric_dtype(names):
        text = [f"{value:,.10g}" for value in names]
    else:
        tz = zone_of(names, zone=zone)
        instants = num2date(to_coordinates(names), tz=tz)  # type: ignore[no-untyped-call]
        is_day = all((instant.hour, instant.minute) == (0, 0) for instant in instants)
        text = [f"{instant:%Y-%m-%d}" if is_day else f"{instant:%H:%M}" for instant in instants]
    every = -(-len(text) // 20) or 1
    ax.set_xticks([*range(0, len(text), every)], text[::every])


def _is_wide(values: Floats) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 0 and bool(known.min() > 0) and bool(known.max() > WIDE * known.min())


def _set_log(ax: Axes, axis: str) -> None:
    """Make an axis logarithmic, with ticks between the powers of ten if there are few of them."""
    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    ax.tick_params(which="minor", length=0)
    target = ax.xaxis if axis == "x" else ax.yaxis
    low, high = ax.get_xlim() if axis == "x" else ax.get_ylim()
    target.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    target.set_minor_formatter(NullFormatter())
