"""Pictures of the size of a state."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from streamops.kernel.palette import COLORS
from streamops.kernel.parameters import Text
from streamops.plots import artists
from streamops.plots.data import Data, read_batches, to_coordinates, zone_of


def plot_state(
    batches: Data,
    *,
    size: str = "state_rows",
    batch: str = "batch",
    bound: str | float | None = None,
    rows: str | None = None,
    by: str | None = None,
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the size of the state after every micro-batch, against its bound.

    Parameters
    ----------
    batches : frame
        What ``testing.replay`` or ``testing.stream`` returns; or a row per micro-batch, as a frame of
        PySpark, pandas, Arrow or Polars, rows as dicts, or columns by name.
    size : str
        Column with the size of the state: its rows or bytes. Results of a test have "state_rows" and
        "state_bytes".
    batch : str
        Column with the number or the time of the micro-batch.
    bound : str or float, optional
        The most that the state can grow to: a number, or a column if the bound depends on the input.
    rows : str, optional
        Column with the number of input rows of the micro-batch; their sum is drawn as a line, to
        compare with. Results of a test have "rows".
    by : str, optional
        Column with the name of the operator: one line for each of them. At most 6 of them differ.
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
    >>> batches = {"batch": [0, 1, 2], "state_rows": [40, 75, 71], "rows": [50, 50, 50]}
    >>> ax = plots.plot_state(batches, bound=80, rows="rows")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['state', 'bound', 'input rows so far']
    """
    column = bound if isinstance(bound, str) else None
    columns = {"size": size, "batch": batch, "bound": column, "rows": rows, "by": by}
    table = read_batches(batches, columns)
    table = table.sort_values(batch, kind="stable", ignore_index=True)
    x = to_coordinates(table[batch])
    sizes = to_coordinates(table[size])
    ax = artists.new_axes(ax, 3.4)
    ax.grid(axis="both", color=artists.GRID, linewidth=0.9)
    entries: artists.Entries = {}
    for mask, style in artists.groups_of(table, by):
        name = "state" if by is None else style.name
        ax.plot(x[mask], sizes[mask], color=style.color, linewidth=1.8, label=name, zorder=3)
        if by is None:
            ax.fill_between(x, sizes, color=style.fill, linewidth=0, zorder=1)
        entries[name] = artists.line_entry(style.color)
    if isinstance(bound, str):
        limits = to_coordinates(table[bound])
        ax.plot(x, limits, color=COLORS["corrected"], linestyle="--", linewidth=1.8, label="bound")
    elif bound is not None:
        ax.axhline(bound, color=COLORS["corrected"], linestyle="--", linewidth=1.8, label="bound")
    if bound is not None:
        entries["bound"] = artists.line_entry(COLORS["corrected"], "--")
    if rows is not None:
        total = np.cumsum(np.nan_to_num(to_coordinates(table[rows])))
        ax.plot(
            x, total, color=artists.TEXT, linestyle=":", linewidth=1.8, label="input rows so far"
        )
        entries["input rows so far"] = artists.line_entry(artists.TEXT, ":")
    artists.set_limits(ax, x, margin=0.01)
    ax.set_ylim(0, None)
    artists.add_axis(ax, table[batch], zone_of(table[batch], zone=zone))
    artists.add_number_axis(ax, axis="y", whole=pd.api.types.is_integer_dtype(table[size]))
    artists.label_axes(ax, "micro-batch" if batch == "batch" else batch, size.replace("_", " "))
    artists.add_legend(ax, entries)
    return ax
