from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from examples.flights.accuracy import (
    Claim,
    aircraft_of_days,
    aircraft_of_years,
    distinct_claims,
    heavy_hitter_claims,
    percentile_claims,
)

PROBABILITIES = (0.5, 0.9, 0.99)
NOBODY = pd.DataFrame({"flight_id": pd.Series(dtype="int64")})


def met(claims: list[Claim]) -> list[tuple[int, int]]:
    return [(claim.answers, claim.met) for claim in claims]


@pytest.mark.parametrize(
    ("answers", "met_", "share", "holds"),
    [(100, 95, 0.95, True), (100, 94, 0.95, False), (8, 7, 0.95, True), (8, 6, 0.95, False),
     (5, 4, 1.0, False), (5, 5, 1.0, True), (0, 0, 1.0, True), (143, 141, 0.99, True),
     (143, 140, 0.99, False)],
)  # fmt: skip
def test_a_bound_holds_if_enough_answers_satisfy_it(
    answers: int, met_: int, share: float, holds: bool
) -> None:
    assert Claim("", answers, met_, share).holds == holds


def at(*times: str) -> pd.DataFrame:
    scheduled = pd.DatetimeIndex(times, tz="America/New_York").tz_convert("UTC")
    return pd.DataFrame(
        {"flight_id": range(len(times)), "carrier": "UA", "tailnum": "N1", "scheduled": scheduled}
    )


def test_an_aircraft_counts_once_a_day_and_once_a_year() -> None:
    rows = at("2013-07-01", "2013-07-01 23:59", "2013-07-02", "2013-07-02 12:00", "2013-07-03")
    rows["tailnum"] = ["N1", "N1", "N1", "N2", "N3"]
    end = pd.Timestamp("2013-07-03", tz="America/New_York")
    assert [*aircraft_of_days(rows, NOBODY, end)["exact"]] == [1, 2]
    assert [*aircraft_of_years(rows, NOBODY, end)["exact"]] == [2]
    late = pd.DataFrame({"flight_id": [3]})
    assert [*aircraft_of_days(rows, late, end)["exact"]] == [1, 1]
    assert [*aircraft_of_years(rows, late, end)["exact"]] == [1]


def test_each_airline_has_its_own_aircraft() -> None:
    rows = at("2013-07-01", "2013-07-01").assign(carrier=["AA", "UA"])
    end = pd.Timestamp("2013-07-02", tz="America/New_York")
    assert [*aircraft_of_years(rows, NOBODY, end)["exact"]] == [1, 1]


def estimates(**answers: tuple[int, int, int]) -> pd.DataFrame:
    aircraft = [
        dict(zip(("estimate", "lower", "upper"), bounds, strict=True))
        for bounds in answers.values()
    ]
    return pd.DataFrame({"carrier": [*answers], "aircraft": aircraft})


def exact(**counts: int) -> pd.DataFrame:
    return pd.DataFrame({"carrier": [*counts], "exact": [*counts.values()]})


@pytest.mark.parametrize(
    ("truth", "answer", "expected"),
    [
        (96, (96, 96, 96), [(1, 1), (0, 0), (0, 0)]),
        (96, (95, 95, 96), [(1, 0), (0, 0), (0, 0)]),  # few are counted
        (96, (96, 97, 98), [(1, 0), (0, 0), (0, 0)]),  # outside of its own bounds
        (500, (510, 477, 543), [(0, 0), (1, 1), (1, 1)]),
        (500, (540, 505, 575), [(0, 0), (1, 0), (1, 1)]),
        (500, (600, 561, 639), [(0, 0), (1, 0), (1, 0)]),
        (500, (510, 0, 9_999), [(0, 0), (1, 0), (1, 1)]),  # bounds that hold anything
    ],
)
def test_the_bounds_of_a_distinct_count_depend_on_its_size(
    truth: int, answer: tuple[int, int, int], expected: list[tuple[int, int]]
) -> None:
    assert met(distinct_claims(estimates(UA=answer), exact(UA=truth), ["carrier"])) == expected


def test_a_distinct_count_of_one_side_alone_is_wrong() -> None:
    good = (3, 3, 3)
    claims = distinct_claims(estimates(UA=good, DL=good), exact(UA=3, AA=3), ["carrier"])
    assert met(claims)[0] == (3, 1)
    claims = distinct_claims(estimates(UA=good), exact(UA=3, AA=500), ["carrier"])
    assert met(claims) == [(1, 1), (1, 0), (1, 0)]


def flights(*delays: int) -> pd.DataFrame:
    return pd.DataFrame({"origin": "JFK", "dest": "LAX", "delay": delays})


def route(**change: Any) -> pd.DataFrame:
    """As the sketch of the delays 1, 2, …, 1,000 may say it."""
    answer = {
        "estimate": np.array([505.0, 899.0, 994.0]),
        "lower": np.array([498.0, 893.0, 985.0]),
        "upper": np.array([512.0, 906.0, 1000.0]),
        "count": 1_000,
    } | change
    return pd.DataFrame({"origin": ["JFK"], "dest": ["LAX"], "delays": [answer]})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [1, 0, 1, 1]),
        ({"count": 999}, [0, 0, 1, 1]),
        ({"estimate": np.array([508.0, 899.0, 994.0])}, [1, 0, 0, 1]),  # 0.7 % off
        ({"estimate": np.array([505.0, 892.0, 994.0])}, [1, 0, 0, 1]),
        ({"lower": np.array([501.0, 893.0, 985.0])}, [1, 0, 1, 0]),
        ({"upper": np.array([512.0, 899.0, 1000.0])}, [1, 0, 1, 0]),
        ({"lower": np.array([1.0, 893.0, 985.0])}, [1, 0, 1, 0]),  # hold anything
        ({"upper": np.array([512.0, 1000.0, 1000.0])}, [1, 0, 1, 0]),
    ],
)
def test_a_percentile_is_checked_by_its_rank(change: dict[str, Any], expected: list[int]) -> None:
    claims = percentile_claims(route(**change), flights(*range(1_000, 0, -1)), PROBABILITIES)
    assert [claim.answers for claim in claims] == [1, 0, 1, 1]
    assert [claim.met for claim in claims] == expected


@pytest.mark.parametrize(("half", "right"), [(2.0, 1), (3.0, 0), (1.0, 0)])
def test_percentiles_of_few_delays_are_exact(half: float, right: int) -> None:
    """The least delay that a share does not exceed: of half of 1, 2, 3, 4 it is 2."""
    values = np.array([half, 4.0, 4.0])
    table = route(estimate=values, lower=values, upper=values, count=4)
    assert met(percentile_claims(table, flights(4, 2, 1, 3), PROBABILITIES)) == [
        (1, 1),
        (1, right),
        (0, 0),
        (0, 0),
    ]


def test_a_route_of_one_side_alone_is_wrong() -> None:
    other = flights(1, 2).assign(dest="SFO")
    claims = percentile_claims(route(), other, PROBABILITIES)
    assert met(claims)[:2] == [(2, 0), (2, 0)]
    assert not all(claim.holds for claim in claims)


ITEMS = [("JFK-LAX", 49, 50), ("JFK-SFO", 30, 31)]
SPOILT: dict[str, tuple[Callable[[list[Any]], list[Any]], int, list[tuple[int, int]]]] = {
    "nothing": (lambda items: items, 1, [(2, 2), (2, 2), (2, 2), (1, 1)]),
    "one missing": (lambda items: items[:1], 1, [(2, 1), (1, 1), (1, 1), (1, 1)]),
    "one too rare": (lambda items: [*items, ("JFK-BOS", 0, 1)], 1, [(2, 2), (3, 3), (3, 2), (1, 1)]),
    "one unknown": (lambda items: [*items, ("JFK-XXX", 0, 1)], 1, [(2, 2), (3, 2), (3, 2), (1, 1)]),
    "above the truth": (lambda items: [("JFK-LAX", 51, 52), items[1]], 1, [(2, 2), (2, 1), (2, 2), (1, 1)]),
    "far apart": (lambda items: [("JFK-LAX", 0, 90), items[1]], 1, [(2, 2), (2, 1), (2, 2), (1, 1)]),
    "a large error": (lambda items: items, 2, [(2, 2), (2, 2), (2, 2), (1, 0)]),
}  # fmt: skip


@pytest.mark.parametrize("fault", SPOILT)
def test_heavy_hitters_are_checked_for_listed_and_for_missing_items(fault: str) -> None:
    change, error, expected = SPOILT[fault]
    dest = ["LAX"] * 50 + ["SFO"] * 31 + [f"X{n}" for n in range(219)] + ["BOS"]
    rows = pd.DataFrame({"origin": "JFK", "dest": dest})
    items = [dict(zip(("item", "lower", "upper"), item, strict=True)) for item in change(ITEMS)]
    table = pd.DataFrame({"routes": [{"items": items, "relative_error": error / len(rows)}]})
    assert met(heavy_hitter_claims(table, rows, 0.1)) == expected


def test_an_empty_list_of_the_busiest_violates_the_bounds() -> None:
    rows = pd.DataFrame({"origin": "JFK", "dest": ["LAX"] * 5})
    claims = heavy_hitter_claims(pd.DataFrame({"routes": []}), rows, 0.1)
    assert met(claims) == [(1, 0), (0, 0), (0, 0), (1, 0)]


def test_the_verification_does_not_use_what_it_verifies() -> None:
    import examples.flights.accuracy as accuracy

    text = Path(accuracy.__file__).read_text()
    assert "import streamops" not in text
    assert "from streamops" not in text
    ours = [line for line in text.splitlines() if "from examples" in line]
    assert ours == ["from examples.flights.verify import accepted, days_of"]
