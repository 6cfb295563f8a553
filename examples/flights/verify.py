"""The stream's answer against a batch recomputation that shares no code with it.

Nothing here knows how streamops works: the flights of the package, less the rows that the job
delivered as too late, are put into their windows and averaged by pandas and NumPy. That those
were too late is checked, too: see :mod:`examples.flights.lateness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

__all__ = [
    "HOUR",
    "RECOMPUTED",
    "SILENCE",
    "TOLERANCE",
    "Comparison",
    "accepted",
    "compare",
    "days_of",
]

TOLERANCE = 1e-9
HOUR = pd.Timedelta(hours=1)
SILENCE = pd.Timedelta(hours=8)
"""The gap that ends the working day of an aircraft."""
_CLOCKS = ZoneInfo("America/New_York")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the final table and the recomputation differ.

    Parameters
    ----------
    compared : int
        Windows of the recomputation that the watermark has passed: those the stream must have published.
    still_open : int
        Windows beyond it. A bounded log ends before the watermark passes its last windows;
        a stream would publish them with the next flights.
    open_rows : int
        Rows accepted in these.
    missing, unexpected : int
        Windows that only the recomputation has; that only the stream has, or has twice.
    counts, means : int
        Windows with another count; with a mean that is further off than the tolerance.
    furthest : float
        The largest difference between two means.
    example : str
        One window that differs; empty if none does.
    """

    compared: int
    still_open: int
    open_rows: int
    missing: int
    unexpected: int
    counts: int
    means: int
    furthest: float
    example: str

    @property
    def equal(self) -> bool:
        """Whether stream and batch agree, and on something."""
        wrong = self.missing + self.unexpected + self.counts + self.means
        return wrong == 0 and self.compared > 0


def by_the_hour(rows: pd.DataFrame, late: pd.DataFrame, hours: int) -> pd.DataFrame:
    """Departures and their mean delay per airport and so many hours, over the accepted rows.

    Parameters
    ----------
    rows : DataFrame
        All departures.
    late : DataFrame
        `flight_id` and `window_start` of what was too late: a flight can be too late for one
        of its windows and in time for the next.
    hours : int
        The length of a window; one begins every hour.
    """
    last = rows["scheduled"].dt.floor("h")
    pairs = pd.concat([rows.assign(window_start=last - back * HOUR) for back in range(hours)])
    missed = late[["flight_id", "window_start"]].drop_duplicates()
    marked = pairs.merge(missed, how="left", indicator="accepted")
    ours = marked[marked["accepted"] == "left_only"]
    ours = ours.assign(window_end=ours["window_start"] + hours * HOUR)
    return _averaged(ours, ["origin", "window_start", "window_end"])


def by_the_day(rows: pd.DataFrame, late: pd.DataFrame, of: str = "origin") -> pd.DataFrame:
    """The same per airport and day, from midnight to midnight on New York's clocks.

    Or per airline, which is another column of the departures.
    """
    ours = accepted(rows, late)
    start, end = days_of(ours["scheduled"])
    placed = ours.assign(window_start=start, window_end=end)
    return _averaged(placed, [of, "window_start", "window_end"])


def days_of(times: pd.Series) -> tuple[pd.Series, pd.Series]:
    """When the day of each instant begins in New York, and when it ends."""
    # Days as a calendar on the wall has them; how long one is shows when its midnights are placed.
    day = times.dt.tz_convert(_CLOCKS).dt.tz_localize(None).dt.normalize()
    days = pd.DatetimeIndex(day.unique())
    start, end = (
        pd.Series(dates.tz_localize(_CLOCKS).tz_convert("UTC"), index=days)
        for dates in (days, days + pd.Timedelta(days=1))
    )
    return day.map(start), day.map(end)


def by_the_working_day(rows: pd.DataFrame, late: pd.DataFrame) -> pd.DataFrame:
    """The same per aircraft and interval without a gap of more than eight hours."""
    ordered = accepted(rows, late).sort_values(["tailnum", "scheduled"])
    silence = ordered.groupby("tailnum")["scheduled"].diff()
    number = (silence.isna() | (silence > SILENCE)).cumsum()
    times = ordered["scheduled"].groupby(number)
    placed = ordered.assign(
        window_start=times.transform("min"), window_end=times.transform("max") + SILENCE
    )
    return _averaged(placed, ["tailnum", "window_start", "window_end"])


def by_the_last_hour(rows: pd.DataFrame, late: pd.DataFrame) -> pd.DataFrame:
    """The same per airport and scheduled time, over the hour that ends with it."""
    pieces = []
    for origin, ours in accepted(rows, late).sort_values("scheduled").groupby("origin"):
        times = ours["scheduled"].to_numpy("datetime64[us]")
        total = np.concatenate([[0], np.cumsum(ours["delay"].to_numpy())])
        timestamps = np.unique(times)
        upto = np.searchsorted(times, timestamps, side="right")
        # A flight of exactly an hour before is not of the last hour.
        since = np.searchsorted(times, timestamps - HOUR.to_timedelta64(), side="right")
        piece = {
            "origin": origin,
            "scheduled": pd.DatetimeIndex(timestamps, tz="UTC"),
            "departures": upto - since,
            "mean_delay": (total[upto] - total[since]) / (upto - since),
        }
        pieces.append(pd.DataFrame(piece))
    return pd.concat(pieces, ignore_index=True)


RECOMPUTED: dict[str, Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]] = {
    "hourly": partial(by_the_hour, hours=1),
    "three_hours": partial(by_the_hour, hours=3),
    "days": by_the_day,
    "working_days": by_the_working_day,
    "last_hour": by_the_last_hour,
    "airline_days": partial(by_the_day, of="carrier"),
}
"""The windows by name: their results, from all departures and those that were too late."""


def accepted(rows: pd.DataFrame, late: pd.DataFrame) -> pd.DataFrame:
    """The departures that were not too late, where each belongs to one window."""
    ours: pd.DataFrame = rows[~rows["flight_id"].isin(late["flight_id"])]
    return ours


def _averaged(placed: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    return placed.groupby(key, as_index=False).agg(
        departures=("flight_id", "size"), mean_delay=("delay", "mean")
    )


def compare(
    table: pd.DataFrame,
    batch: pd.DataFrame,
    watermark: pd.Timestamp,
    *,
    key: Sequence[str],
    due: str,
) -> Comparison:
    """Compare the stream's final table with the recomputation, window by window.

    Parameters
    ----------
    table, batch : DataFrame
        The table of the stream, and the recomputation.
    watermark : Timestamp
        The watermark at the end of the stream.
    key : sequence of str
        The columns that identify a window.
    due : str
        The column with the instant at which a window is due.
    """
    closed = batch[due] <= watermark
    owed, ahead = batch[closed], batch[~closed]
    names = [*key, "departures", "mean_delay"]
    both = owed[names].merge(
        table[names], on=[*key], how="outer", suffixes=("_batch", "_stream"), indicator="side"
    )
    count = both["departures_batch"] != both["departures_stream"]
    distance = (both["mean_delay_batch"] - both["mean_delay_stream"]).abs()
    paired = both["side"] == "both"
    count, mean = paired & count, paired & ~(distance <= TOLERANCE)
    different = both[~paired | count | mean]
    return Comparison(
        compared=len(owed),
        still_open=len(ahead),
        open_rows=int(ahead["departures"].sum()),
        missing=int((both["side"] == "left_only").sum()),
        unexpected=int((both["side"] == "right_only").sum() + table.duplicated([*key]).sum()),
        counts=int(count.sum()),
        means=int(mean.sum()),
        furthest=float(distance.max()) if paired.any() else 0.0,
        example=different.head(1).to_string(index=False) if len(different) else "",
    )
