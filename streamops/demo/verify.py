"""The stream's answer against a batch recomputation that shares no code with it.

Nothing here knows how streamops works: the flights of the package, less the rows that the job
delivered as too late, are put into their windows and averaged by pandas.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

__all__ = ["TOLERANCE", "Comparison", "compare", "recomputed"]

TOLERANCE = 1e-9
_KEY = ["origin", "window_start"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the final table and the recomputation differ.

    Parameters
    ----------
    compared : int
        Windows of the recomputation that the watermark has passed: those the stream owed.
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


def recomputed(rows: pd.DataFrame, late: pd.DataFrame, hours: int) -> pd.DataFrame:
    """Departures and their mean delay per airport and window, over the accepted rows.

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
    pairs = pd.concat(
        [rows.assign(window_start=last - pd.Timedelta(hours=back)) for back in range(hours)]
    )
    missed = late[["flight_id", "window_start"]].drop_duplicates()
    marked = pairs.merge(missed, how="left", indicator="accepted")
    accepted = marked[marked["accepted"] == "left_only"]
    return accepted.groupby(_KEY, as_index=False).agg(
        departures=("flight_id", "size"), mean_delay=("delay", "mean")
    )


def compare(
    table: pd.DataFrame, batch: pd.DataFrame, hours: int, watermark: pd.Timestamp
) -> Comparison:
    """Compare the stream's final table with the recomputation, window by window."""
    closed = batch["window_start"] + pd.Timedelta(hours=hours) <= watermark
    owed, ahead = batch[closed], batch[~closed]
    names = [*_KEY, "departures", "mean_delay"]
    both = owed[names].merge(
        table[names], on=_KEY, how="outer", suffixes=("_batch", "_stream"), indicator="side"
    )
    count = both["departures_batch"] != both["departures_stream"]
    apart = (both["mean_delay_batch"] - both["mean_delay_stream"]).abs()
    paired = both["side"] == "both"
    count, mean = paired & count, paired & ~(apart <= TOLERANCE)
    different = both[~paired | count | mean]
    return Comparison(
        compared=len(owed),
        still_open=len(ahead),
        open_rows=int(ahead["departures"].sum()),
        missing=int((both["side"] == "left_only").sum()),
        unexpected=int((both["side"] == "right_only").sum() + table.duplicated(_KEY).sum()),
        counts=int(count.sum()),
        means=int(mean.sum()),
        furthest=float(apart.max()) if paired.any() else 0.0,
        example=different.head(1).to_string(index=False) if len(different) else "",
    )
