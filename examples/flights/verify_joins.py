"""The joins of the stream against the same joins by pandas, which share no code with them.

Nothing here knows how streamops works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

__all__ = ["AGE", "DAY", "REJOINED", "Agreement", "agree", "reasons"]

DAY = pd.Timedelta(days=1)
"""Within which a flight must have landed."""
AGE = pd.Timedelta(hours=2)
"""The maximum age of an observation."""
_AT_ONCE = pd.Timestamp("1970-01-01", tz="UTC")

Feeds = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the stream's table and the batch's differ.

    Parameters
    ----------
    compared : int
        Rows that the stream must have published.
    still_open : int
        Rows that are due after the watermark at the end of the log.
    missing, unexpected : int
        Rows that only the batch has; that only the stream has, or has twice.
    different : int
        Rows with other values.
    example : str
        One row that differs; empty if none does.
    """

    compared: int
    still_open: int
    missing: int
    unexpected: int
    different: int
    example: str

    @property
    def equal(self) -> bool:
        """Whether stream and batch agree, and on something."""
        return self.missing + self.unexpected + self.different == 0 and self.compared > 0


def with_landing(feeds: Feeds) -> pd.DataFrame:
    """Each flight with its landing, if it is within a day of the schedule."""
    flights = feeds["schedule"]
    matched = _in_time(flights)
    return flights[["flight_id", "origin", "scheduled"]].assign(
        landed=flights["landed"].where(matched),
        status=matched.map({True: "matched", False: "expired"}),
        # That there is no landing is known when the day is over.
        due=(flights["scheduled"] + DAY).mask(matched, _AT_ONCE),
    )


def _in_time(flights: pd.DataFrame) -> pd.Series:
    took = flights["landed"] - flights["scheduled"]
    return (pd.Timedelta(0) <= took) & (took <= DAY)


def reasons(flights: pd.DataFrame) -> dict[str, int]:
    """Why flights did not land within a day."""
    lost = flights[~_in_time(flights)]
    left, there = lost["departed"].notna(), lost["landed"].notna()
    return {
        "cancelled": int((~left).sum()),
        "diverted": int((left & ~there).sum()),
        "landed later than that": int(there.sum()),
    }


def with_weather(feeds: Feeds) -> pd.DataFrame:
    """Each departure with the newest observation at its airport, if that is not too old."""
    found = pd.merge_asof(
        feeds["departures"][["flight_id", "origin", "departed", "delay"]].sort_values("departed"),
        feeds["weather"].sort_values(["observed", "observation"]),
        left_on="departed",
        right_on="observed",
        by="origin",
        tolerance=AGE,
    )
    status = found["observed"].notna().map({True: "matched", False: "missing"})
    return found.drop(columns="observation").assign(status=status, due=found["departed"])


def with_aircraft(feeds: Feeds) -> pd.DataFrame:
    """Each departure with its aircraft, as the register had it in the end."""
    entries = feeds["register"].sort_values("entry")
    last = entries.drop_duplicates("tailnum", keep="last")
    there = last[last["_change_type"] != "delete"]
    left = feeds["departures"][["flight_id", "tailnum", "delay"]]
    table = left.merge(there[["tailnum", "manufacturer", "built"]], how="left", on="tailnum")
    return table.assign(due=_AT_ONCE)


REJOINED = {"arrivals": with_landing, "weather": with_weather, "aircraft": with_aircraft}
"""The joins by name: their rows, from what was in the logs, and the instant at which each is `due`."""


def agree(
    table: pd.DataFrame,
    batch: pd.DataFrame,
    watermark: pd.Timestamp,
    *,
    key: Sequence[str] = ("flight_id",),
) -> Agreement:
    """Compare the stream's table with the batch's, row by row.

    Parameters
    ----------
    table, batch : DataFrame
        One row per `key`.
    watermark : Timestamp
        The watermark at the end of the stream.
    key : sequence of str
        The columns that identify a row.
    """
    columns = [name for name in batch.columns if name not in (*key, "due")]
    owed = batch[batch["due"] <= watermark]
    both = owed.merge(
        table, on=[*key], how="outer", suffixes=("_batch", "_stream"), indicator="side"
    )
    paired = both["side"] == "both"
    same = pd.Series(True, index=both.index)
    for name in columns:
        left, right = both[f"{name}_batch"], both[f"{name}_stream"]
        equal = (left == right).fillna(False).astype(bool)
        same &= equal | (left.isna() & right.isna())
    wrong = both[~(paired & same)]
    return Agreement(
        compared=len(owed),
        still_open=len(batch) - len(owed),
        missing=int((both["side"] == "left_only").sum()),
        unexpected=int((both["side"] == "right_only").sum() + table.duplicated([*key]).sum()),
        different=int((paired & ~same).sum()),
        example=wrong.head(1).to_string(index=False) if len(wrong) else "",
    )
