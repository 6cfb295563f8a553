"""Recompute which rows are too late, from the schedule and the order of the log alone.

This checks both the rows that the stream drops and those that it accepts.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from examples.flights.verify import HOUR, SILENCE, days_of

__all__ = ["DELAY", "LATENESS", "by_right", "overdue"]

DELAY = pd.Timedelta(minutes=30)
"""How long a result waits before it is on time."""
LATENESS = pd.Timedelta(hours=6)
"""How long after the end of its window a departure is still accepted."""

_ENDS: dict[str, Callable[[pd.DataFrame], list[pd.Series]]] = {
    "hourly": lambda rows: _hours_after(rows, 1),
    "three_hours": lambda rows: _hours_after(rows, 3),
    "days": lambda rows: [days_of(rows["scheduled"])[1]],
    # On its own: where there is a session for it, that ends later.
    "working_days": lambda rows: [rows["scheduled"] + SILENCE],
    "last_hour": lambda rows: [rows["scheduled"]],
    "airline_days": lambda rows: [days_of(rows["scheduled"])[1]],
}
"""The ends of the windows that each row lies in."""


def _hours_after(rows: pd.DataFrame, hours: int) -> list[pd.Series]:
    hour = rows["scheduled"].dt.floor("h")
    return [hour + (ahead + 1) * HOUR for ahead in range(hours)]


def overdue(rows: pd.DataFrame, batch: pd.Series, windows: str) -> pd.DataFrame:
    """Return the pairs of a row and a window for which the row is too late.

    A row is compared with the watermark of the previous micro-batch, which was computed from the
    rows of the micro-batches before that.

    Parameters
    ----------
    rows : DataFrame
        All departures.
    batch : Series
        The number of the micro-batch that each of them is in; none is empty.
    windows : str
        The name of the windows.

    Returns
    -------
    DataFrame
        `flight_id`, `window_end`, and the `watermark` that the row is compared with.
    """
    newest = rows["scheduled"].groupby(batch).max().cummax()
    watermarks = batch.map(newest.shift(2) - DELAY)
    watermarked = rows[["flight_id"]].assign(watermark=watermarks)
    pairs = pd.concat([watermarked.assign(window_end=end) for end in _ENDS[windows](rows)])
    late: pd.DataFrame = pairs[pairs["window_end"] + LATENESS <= pairs["watermark"]]
    return late


def by_right(late: pd.DataFrame, overdue: pd.DataFrame, windows: str) -> int:
    """Count the rows delivered as too late that are too late by the schedule.

    Parameters
    ----------
    late : DataFrame
        `flight_id`, `window_start`, `scheduled` and `watermark` of what was delivered.
    overdue : DataFrame
        The result of :func:`overdue`.
    windows : str
        The name of the windows that they missed.
    """
    length = {"hourly": 1, "three_hours": 3}.get(windows)
    end = _ENDS[windows](late)[0] if length is None else late["window_start"] + length * HOUR
    delivered = late[["flight_id", "watermark"]].assign(window_end=end)
    return len(delivered.merge(overdue, on=["flight_id", "watermark", "window_end"]))
