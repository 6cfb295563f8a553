"""What sketches promise, held against exact answers that share no code with them.

Nothing here knows how streamops works, and what is promised is stated anew: by the documents, not by
the sketches' own word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from examples.flights.verify import accepted, days_of

__all__ = [
    "FEW_AIRCRAFT",
    "FEW_DELAYS",
    "Claim",
    "aircraft_of_days",
    "aircraft_of_years",
    "counted",
    "heaviest",
    "ranked",
]

FEW_AIRCRAFT = 3 * 2 ** (10 - 5)
"""So many are counted exactly with a p of 10."""
STANDARD_ERROR = 1.04 / math.sqrt(2**10)
FEW_DELAYS = 400
"""So many delays are kept as they are with a k of 400."""
RANK_ERROR = 2.296 / FEW_DELAYS**0.9723
COUNTERS = 200
_ROUNDED = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """A promise, and how often it was kept.

    Parameters
    ----------
    title : str
        What is promised.
    answers : int
        How many answers it is about.
    kept : int
        For how many of them it holds.
    share : float
        For what share of them it must.
    """

    title: str
    answers: int
    kept: int
    share: float = 1.0

    @property
    def holds(self) -> bool:
        """Whether it is kept often enough; a part of an answer is none."""
        return self.answers - self.kept <= math.ceil((1 - self.share) * self.answers - _ROUNDED)


def aircraft_of_days(
    rows: pd.DataFrame, late: pd.DataFrame, watermark: pd.Timestamp
) -> pd.DataFrame:
    """Distinct aircraft per airline and day in New York, of the days that the watermark passed."""
    ours = _closed(rows, late, watermark)
    return _distinct(ours, ["carrier", "window_start"])


def aircraft_of_years(
    rows: pd.DataFrame, late: pd.DataFrame, watermark: pd.Timestamp
) -> pd.DataFrame:
    """Distinct aircraft per airline over all of these days."""
    return _distinct(_closed(rows, late, watermark), ["carrier"])


def _closed(rows: pd.DataFrame, late: pd.DataFrame, watermark: pd.Timestamp) -> pd.DataFrame:
    ours = accepted(rows, late)
    start, end = days_of(ours["scheduled"])
    closed: pd.DataFrame = ours.assign(window_start=start)[end <= watermark]
    return closed


def _distinct(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    return rows.groupby(key, as_index=False).agg(exact=("tailnum", "nunique"))


def counted(table: pd.DataFrame, exact: pd.DataFrame, key: Sequence[str]) -> list[Claim]:
    """What is promised of distinct counts.

    Parameters
    ----------
    table : DataFrame
        The key, and `aircraft` as the stream says it.
    exact : DataFrame
        The key, and `exact`. An answer that only one side has keeps no promise.
    key : sequence of str
        The columns that tell answers apart.
    """
    said = pd.DataFrame([*table["aircraft"]], index=table.index)
    both = exact.merge(table[[*key]].join(said), on=[*key], how="outer")
    truth, estimate = both["exact"], both["estimate"]
    many = truth > FEW_AIRCRAFT
    off = (estimate - truth).abs()
    within = (both["lower"] <= truth) & (truth <= both["upper"])
    # Bounds that are far apart hold any truth.
    close = both["upper"] - both["lower"] <= 4 * STANDARD_ERROR * estimate + 2
    return [
        _claim(f"up to {FEW_AIRCRAFT}: exact", ~many, (off == 0) & within),
        _claim("more: within 2 standard errors", many, within & close, share=0.95),
        _claim("more: within 5 standard errors", many, off <= 5 * STANDARD_ERROR * truth),
    ]


def ranked(table: pd.DataFrame, rows: pd.DataFrame, probabilities: Sequence[float]) -> list[Claim]:
    """What is promised of percentiles: their ranks, for all of a route at once, and their bounds.

    Parameters
    ----------
    table : DataFrame
        `origin`, `dest`, and `delays` as the stream says them.
    rows : DataFrame
        All departures: nothing is too late where there are no windows.
    probabilities : sequence of float
        Which percentiles.
    """
    route = ["origin", "dest"]
    exact = rows.groupby(route)["delay"].apply(np.sort).rename("exact").reset_index()
    both = exact.merge(table, on=route, how="outer")
    found = [
        _of_route(delays, said, np.asarray(probabilities))
        for delays, said in zip(both["exact"], both["delays"], strict=True)
    ]
    told = pd.DataFrame(found, columns=["many", "counts", "ranks", "bounds"], dtype=bool)
    every, many = pd.Series(True, told.index), told["many"]
    return [
        _claim("departures of each route", every, told["counts"]),
        _claim(f"up to {FEW_DELAYS} departures: exact", ~many, told["ranks"] & told["bounds"]),
        _claim(f"more: ranks within {RANK_ERROR:.2%}", many, told["ranks"], share=0.99),
        _claim("more: the truth within the bounds", many, told["bounds"], share=0.99),
    ]


def _of_route(delays: object, said: object, asked: np.ndarray) -> tuple[bool, bool, bool, bool]:
    """Whether there are many, and whether the count, the ranks and the bounds are right."""
    if not isinstance(delays, np.ndarray) or not isinstance(said, dict):
        return False, False, False, False  # only one side has the route
    size, values, lower, upper = len(delays), said["quantiles"], said["lower"], said["upper"]
    many = size > FEW_DELAYS
    error = RANK_ERROR if many else 0.0
    truth = delays[np.ceil(asked * size - _ROUNDED).astype(int) - 1]
    below, upto = _below(delays, values), _upto(delays, values)
    ranks = (below < asked + error) & (upto >= asked - error - _ROUNDED)
    # Bounds are percentiles, too, of ranks that are off by the error, and off themselves.
    close = (_below(delays, upper) < asked + 2 * error + _ROUNDED) & (
        _upto(delays, lower) >= asked - 2 * error - _ROUNDED
    )
    bounds = (lower <= truth) & (truth <= upper) & close
    return many, said["count"] == size, bool(ranks.all()), bool(bounds.all())


def _below(delays: np.ndarray, values: np.ndarray) -> np.ndarray:
    share: np.ndarray = np.searchsorted(delays, values, side="left") / len(delays)
    return share


def _upto(delays: np.ndarray, values: np.ndarray) -> np.ndarray:
    share: np.ndarray = np.searchsorted(delays, values, side="right") / len(delays)
    return share


def heaviest(table: pd.DataFrame, rows: pd.DataFrame, share: float) -> list[Claim]:
    """What is promised of the busiest routes.

    Parameters
    ----------
    table : DataFrame
        One row with `routes` as the stream says them.
    rows : DataFrame
        All departures.
    share : float
        Of the departures, from which on a route must be told.
    """
    exact = (rows["origin"] + "-" + rows["dest"]).value_counts()
    said: Any = table["routes"].iloc[0] if len(table) else {"items": [], "error": math.inf}
    told = pd.DataFrame([*said["items"]], columns=["item", "lower", "upper"])
    truth = told["item"].map(exact)
    within = (told["lower"] <= truth) & (truth <= told["upper"])
    close = told["upper"] - told["lower"] <= said["error"]
    frequent = exact.index[exact >= share * len(rows)]
    allowed = len(rows) // (COUNTERS + 1)
    return [
        Claim(
            f"with {share:.0%} of all: told", len(frequent), int(frequent.isin(told["item"]).sum())
        ),
        Claim("told: the truth within the bounds", len(told), int((within & close).sum())),
        Claim(
            f"told: not below {0.75 * share:.1%}",
            len(told),
            int((truth >= 0.75 * share * len(rows)).sum()),
        ),
        Claim(f"bounds not more than {allowed:,} apart", 1, int(said["error"] <= allowed)),
    ]


def _claim(title: str, about: pd.Series, kept: pd.Series, share: float = 1.0) -> Claim:
    return Claim(title, int(about.sum()), int((about & kept).sum()), share)
