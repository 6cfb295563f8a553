"""Pictures of results that change: the value of every key after each micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from streamops.kernel.palette import COLORS
from streamops.plots import artists
from streamops.plots.artists import CORRECTED, FIRST, RETRACTIONS, Style, draw_lanes
from streamops.plots.data import Data, add_key, read_keys, read_numbers, read_results

NEW = replace(FIRST, name="first value")
UPDATED = replace(CORRECTED, name="updated")
REPLACED = Style("replaced or deleted", COLORS["retracted"])


def plot_updates(
    results: Data,
    *,
    by: str | Sequence[str],
    label: str,
    batch: str = "batch",
    ax: Axes | None = None,
) -> Axes:
    """Plot the value of every key after each micro-batch, and how it changed.

    It is for results without an interval of time, such as those of joins, of running aggregates and of
    tables that change. A bar is a value, from the micro-batch in which it was emitted to the one in
    which it was replaced or deleted.

    In a change stream (``_change_type``), a key can have several values at a time, and a retraction ends
    the bar with the same value. Other rows are upserts: each replaces the value of its key.

    Parameters
    ----------
    results : frame
        What ``testing.replay`` or ``testing.stream`` returns; or the output of the query with a column
        of the micro-batch, as a frame of PySpark, pandas, Arrow or Polars, rows as dicts, or columns
        by name. All rows are collected; rows of the side output are left out.
    by : str or sequence of str
        Key columns: one row of the picture per key.
    label : str
        Column with the value, which is written into the bars. A label that is wider than its bar is
        left out.
    batch : str
        Column with the number of the micro-batch.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``: more than 5,000 rows or 60 keys.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> results = [
    ...     {"batch": 0, "order": 7, "price": 100, "_change_type": "insert"},
    ...     {"batch": 2, "order": 7, "price": 100, "_change_type": "update_preimage"},
    ...     {"batch": 2, "order": 7, "price": 130, "_change_type": "update_postimage"},
    ... ]
    >>> ax = plots.plot_updates(results, by="order", label="price")
    >>> [text.get_text() for text in ax.texts]
    ['100', '130']

    See Also
    --------
    plot_corrections : results with an interval of time, such as windows.
    plot_history : versions with bounds of their own.
    """
    names = read_keys(by)
    rows = read_results(results, {"batch": batch, "label": label})
    rows = add_key(rows, names).sort_values(batch, kind="stable", ignore_index=True)
    numbers = [*read_numbers(results), *rows[batch].astype(int)] or [0]
    versions = _versions_of(rows, label, batch=batch, end=max(numbers) + 1)
    styles = [
        REPLACED if until <= max(numbers) else UPDATED if is_update else NEW
        for until, is_update in zip(versions["_end"], versions["_is_update"], strict=True)
    ]
    # A micro-batch is as wide as its number.
    bounds = versions.assign(_start=versions["_start"] - 0.5, _end=versions["_end"] - 0.5)
    ax = draw_lanes(
        bounds, None, by=names, time=None, label=label, start="_start", end="_end", styles=styles,
        ax=ax, axis="micro-batch",
        order=[style for style in (NEW, UPDATED, REPLACED) if style in styles])  # fmt: skip
    artists.set_limits(ax, np.array([min(numbers) - 0.5, max(numbers) + 0.5]))
    artists.add_number_axis(ax, axis="x", whole=True)
    return ax


def _versions_of(rows: pd.DataFrame, label: str, *, batch: str, end: int) -> pd.DataFrame:
    """Return the rows that set a value, each with the micro-batches from which and until which it is valid."""
    types = (
        rows["_change_type"]
        if "_change_type" in rows
        else pd.Series([None] * len(rows), dtype=object)
    )
    starts, ends = rows[batch].astype(int).tolist(), [end] * len(rows)
    is_update, sets_value = [False] * len(rows), [True] * len(rows)
    valid: dict[str, list[int]] = {}
    ended: dict[str, int] = {}
    # Lists of Arrow are arrays in pandas.
    values = [v.tolist() if isinstance(v, np.ndarray) else v for v in rows[label]]
    for number, (key, change) in enumerate(zip(rows["_key"], types, strict=True)):
        current = valid.setdefault(key, [])
        if change in RETRACTIONS:
            sets_value[number] = False
            same = [n for n in current if _is_equal(values[n], values[number])]
            for n in same[:1]:
                current.remove(n)
                ends[n] = ended[key] = starts[number]
            continue
        if not isinstance(change, str):  # an upsert
            if any(_is_equal(values[n], values[number]) for n in current):
                sets_value[number] = False
                continue
            for n in current:
                ends[n] = ended[key] = starts[number]
            current.clear()
        is_update[number] = change == "update_postimage" or ended.get(key) == starts[number]
        current.append(number)
    found = rows.assign(_start=starts, _end=ends, _is_update=is_update)
    return found[np.array(sets_value, dtype=bool) & (found["_end"] > found["_start"])]


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal; nulls are."""
    if pd.api.types.is_scalar(one) and pd.isna(one):
        return pd.api.types.is_scalar(other) and bool(pd.isna(other))
    return bool(one == other)
