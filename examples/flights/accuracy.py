"""Check the error bounds of the sketches against exact answers that share no code with them.

Nothing here imports streamops. The bounds are those of the documentation, not the ones that the
sketches report.
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
    "distinct_claims",
    "heavy_hitter_claims",
    "percentile_claims",
]

FEW_AIRCRAFT = 3 * 2 ** (10 - 5)
"""Distinct counts up to this are exact with p=10."""
STANDARD_ERROR = 1.04 / math.sqrt(2**10)
FEW_DELAYS = 400
"""Up to this number of values a KLL sketch with k=400 is exact."""
RANK_ERROR = 2.296 / FEW_DELAYS**0.9723
COUNTERS = 200
_ROUNDED = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """An error bound, and for how many answers it holds.

    Parameters
    ----------
    title : str
        The bound in words.
    answers : int
        The number of answers that it applies to.
    kept : int
        The number of answers that satisfy it.
    share : float
        The share of answers that must satisfy it.
    """

    title: str
    answers: int
    met: int
    share: float = 1.0

    @property
    def holds(self) -> bool:
        """Whether enough answers satisfy it, rounded up to whole answers."""
        return self.answers - self.met <= math.ceil((1 - self.share) * self.answers - _ROUNDED)


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


def distinct_claims(table: pd.DataFrame, exact: pd.DataFrame, key: Sequence[str]) -> list[Claim]:
    """Return the error bounds of distinct counts.

    Parameters
    ----------
    table : DataFrame
        The key, and `aircraft` as published by the stream.
    exact : DataFrame
        The key, and `exact`. An answer that is missing on one side violates every bound.
    key : sequence of str
        The columns that identify an answer.
    """
    answers = pd.DataFrame([*table["aircraft"]], index=table.index)
    both = exact.merge(table[[*key]].join(answers), on=[*key], how="outer")
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


def percentile_claims(
    table: pd.DataFrame, rows: pd.DataFrame, probabilities: Sequence[float]
) -> list[Claim]:
    """Return the error bounds of percentiles: ranks, for all percentiles of a route, and values.

    Parameters
    ----------
    table : DataFrame
        `origin`, `dest`, and `delays` as published by the stream.
    rows : DataFrame
        All departures: without windows no row is too late.
    probabilities : sequence of float
        The percentiles.
    """
    route = ["origin", "dest"]
    exact = rows.groupby(route)["delay"].apply(np.sort).rename("exact").reset_index()
    both = exact.merge(table, on=route, how="outer")
    found = [
        _of_route(delays, answer, np.asarray(probabilities))
        for delays, answer in zip(both["exact"], both["delays"], strict=True)
    ]
    checks = pd.DataFrame(found, columns=["many", "counts", "ranks", "bounds"], dtype=bool)
    every, many = pd.Series(True, checks.index), checks["many"]
    return [
        _claim("departures of each route", every, checks["counts"]),
        _claim(f"up to {FEW_DELAYS} departures: exact", ~many, checks["ranks"] & checks["bounds"]),
        _claim(f"more: ranks within {RANK_ERROR:.2%}", many, checks["ranks"], share=0.99),
        _claim("more: the truth within the bounds", many, checks["bounds"], share=0.99),
    ]


def _of_route(
    delays: object, answer: object, probabilities: np.ndarray
) -> tuple[bool, bool, bool, bool]:
    """Whether there are many, and whether the count, the ranks and the bounds are right."""
    if not isinstance(delays, np.ndarray) or not isinstance(answer, dict):
        return False, False, False, False  # only one side has the route
    size, values, lower, upper = len(delays), answer["estimate"], answer["lower"], answer["upper"]
    many = size > FEW_DELAYS
    error = RANK_ERROR if many else 0.0
    truth = delays[np.ceil(probabilities * size - _ROUNDED).astype(int) - 1]
    below, upto = _below(delays, values), _upto(delays, values)
    ranks = (below < probabilities + error) & (upto >= probabilities - error - _ROUNDED)
    # Bounds are percentiles of ranks shifted by the error, with an error of their own.
    close = (_below(delays, upper) < probabilities + 2 * error + _ROUNDED) & (
        _upto(delays, lower) >= probabilities - 2 * error - _ROUNDED
    )
    bounds = (lower <= truth) & (truth <= upper) & close
    return many, answer["count"] == size, bool(ranks.all()), bool(bounds.all())


def _below(delays: np.ndarray, values: np.ndarray) -> np.ndarray:
    share: np.ndarray = np.searchsorted(delays, values, side="left") / len(delays)
    return share


def _upto(delays: np.ndarray, values: np.ndarray) -> np.ndarray:
    share: np.ndarray = np.searchsorted(delays, values, side="right") / len(delays)
    return share


def heavy_hitter_claims(table: pd.DataFrame, rows: pd.DataFrame, share: float) -> list[Claim]:
    """Return the error bounds of the busiest routes.

    Parameters
    ----------
    table : DataFrame
        One row with `routes` as published by the stream.
    rows : DataFrame
        All departures.
    share : float
        A route with at least this share of the departures must be listed.
    """
    exact = (rows["origin"] + "-" + rows["dest"]).value_counts()
    answer: Any = (
        table["routes"].iloc[0] if len(table) else {"items": [], "relative_error": math.inf}
    )
    error = answer["relative_error"] * len(rows)
    items = pd.DataFrame([*answer["items"]], columns=["item", "lower", "upper"])
    truth = items["item"].map(exact)
    within = (items["lower"] <= truth) & (truth <= items["upper"])
    close = items["upper"] - items["lower"] <= error + 0.5
    frequent = exact.index[exact >= share * len(rows)]
    allowed = len(rows) // (COUNTERS + 1)
    return [
        Claim(
            f"with {share:.0%} of all: listed",
            len(frequent),
            int(frequent.isin(items["item"]).sum()),
        ),
        Claim("listed: the truth within the bounds", len(items), int((within & close).sum())),
        Claim(
            f"listed: not below {0.75 * share:.1%}",
            len(items),
            int((truth >= 0.75 * share * len(rows)).sum()),
        ),
        Claim(f"bounds not more than {allowed:,} apart", 1, int(error <= allowed + 0.5)),
    ]


def _claim(title: str, about: pd.Series, met: pd.Series, share: float = 1.0) -> Claim:
    return Claim(title, int(about.sum()), int((about & met).sum()), share)
