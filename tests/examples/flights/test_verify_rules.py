from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from examples.flights import verify_rules
from examples.flights.verify_rules import alerts, duty, grounded

NOON = pd.Timestamp("2013-07-01 12:00", tz="UTC")
HOUR, MINUTE = pd.Timedelta(hours=1), pd.Timedelta(minutes=1)


def outcomes(*delays: int | None, every: pd.Timedelta = HOUR) -> dict[str, pd.DataFrame]:
    """Flights of one aircraft; None: cancelled."""
    table = pd.DataFrame(
        {
            "flight_id": range(len(delays)),
            "tailnum": "N1",
            "scheduled": [NOON + n * every for n in range(len(delays))],
            "delay": pd.array([*delays], "Int64"),
            "origin": "LGA",
            "dest": "HNL",
            "carrier": "UA",
        }
    )
    return {"outcomes": table}


@pytest.mark.parametrize(
    ("delays", "found"),
    [
        ((16, 16, 16, None), [3]),
        ((16, 15, 16, None), []),  # a quarter of an hour is not late
        ((16, 16, None), []),
        ((16, 16, 16, 16, None), [4]),
        ((16, 16, 16, 0, None), []),
        ((16, 16, None, 16, None), []),
        ((None, 16, 20, 30, None, None), [4]),
    ],
)
def test_an_aircraft_is_late_three_times_in_a_row_and_then_cancelled(
    delays: tuple[int | None, ...], found: list[int]
) -> None:
    feeds = outcomes(*delays)
    feeds["outcomes"] = feeds["outcomes"].sample(frac=1, random_state=1)
    assert [*grounded(feeds)["flight_id"]] == found


def test_the_four_flights_are_scheduled_in_less_than_three_days() -> None:
    day = pd.Timedelta(days=1)
    assert len(grounded(outcomes(16, 16, 16, None, every=day))) == 0
    (row,) = grounded(outcomes(16, 20, 30, None, every=day - MINUTE)).to_dict("records")
    assert (row["match_start"], row["match_end"]) == (NOON, NOON + 3 * (day - MINUTE))
    assert (row["minutes"], row["due"]) == (66, row["match_end"])


def test_aircraft_have_flights_of_their_own() -> None:
    feeds = outcomes(16, 16, 16, None)
    feeds["outcomes"]["tailnum"] = ["N1", "N2", "N1", "N1"]
    assert len(grounded(feeds)) == 0


def entries(*rows: tuple[int, str, str | None, str]) -> pd.DataFrame:
    return pd.DataFrame([*rows], columns=["entry", "alert", "query", "_change_type"])


def test_an_alert_is_in_effect_from_its_micro_batch_until_it_is_changed_or_deleted() -> None:
    log = entries(
        (1, "a", "+carrier:UA +delay:>240 -chicago", "insert"),
        (2, "b", "cancelled AND origin:LGA", "insert"),
        (3, "a", "+carrier:UA +delay:>360 -chicago", "update_postimage"),
        (4, "a", "no such query", "update_postimage"),
        (5, "b", None, "delete"),
        (1, "a", "+carrier:UA +delay:>240 -chicago", "insert"),
    )
    flights = {**outcomes(300, None, 300, None, 400), "alerts": log}
    flown, entered = pd.Series([0, 0, 1, 1, 2]), pd.Series([0, 0, 1, 1, 1, 2])
    found = alerts(flights, flown, entered)
    assert sorted(zip(found["flight_id"], found["alert"], strict=True)) == [
        (0, "a"),
        (1, "b"),
        (4, "a"),
    ]


def movements(*flights: tuple[float, float | None]) -> dict[str, pd.DataFrame]:
    """Hours after noon at which flights of one aircraft leave and land; None: not at all."""
    rows = [
        (number, "N1", event, NOON + at * HOUR)
        for number, times in enumerate(flights)
        for event, at in zip(("departed", "arrived"), times, strict=True)
        if at is not None
    ]
    return {"movements": pd.DataFrame(rows, columns=["flight_id", "tailnum", "event", "at"])}


IN_THE_AIR, BEYOND = "in the air at the limit", "departed beyond the limit"


@pytest.mark.parametrize(
    ("flights", "found"),
    [
        ([(0, 3), (10, 16)], []),
        ([(0, 3), (11, 15), (15.5, 18)], [(2, IN_THE_AIR, 16)]),
        ([(0, 3), (11, 15), (17, 18)], [(2, BEYOND, 17)]),
        ([(0, 3), (11, 17), (18, 19)], [(1, IN_THE_AIR, 16), (2, BEYOND, 18)]),
        ([(0, 3), (11, 15), (16, 18)], [(2, IN_THE_AIR, 16)]),
        ([(0, 3), (11, 15), (23, 24)], [(2, BEYOND, 23)]),  # exactly eight hours are not over
        ([(0, 3), (11, 15), (23.01, 24)], []),
        ([(0, 3), (11.5, 16), (25, 26)], []),
        ([(0, 20)], [(0, IN_THE_AIR, 16)]),
        ([(0, None), (11, 12)], []),
        ([(0, None)], [(0, IN_THE_AIR, 16)]),
        ([(0, None), (24, 25)], [(0, IN_THE_AIR, 16), (1, BEYOND, 24)]),
        ([(0, None), (24.01, 25)], [(0, IN_THE_AIR, 16)]),
        ([(0, 9), (8, 17), (18, 19)], [(1, IN_THE_AIR, 16), (2, BEYOND, 18)]),
    ],
)
def test_a_duty_ends_with_more_than_eight_hours_on_the_ground_and_is_limited_to_sixteen(
    flights: list[tuple[float, float | None]], found: list[tuple[int, str, float]]
) -> None:
    table = duty(movements(*flights)).sort_values("flight_id")
    assert [
        (row.flight_id, row.violation, (row.at - NOON) / HOUR) for row in table.itertuples()
    ] == found


def test_the_departures_of_a_duty_are_counted_up_to_the_violation() -> None:
    table = duty(movements((0, 3), (11, 17), (18, 19), (19.5, 20), (30, 31), (38, 47)))
    assert [*table["departures"]] == [2, 3, 4, 2]
    assert [*((table["since"] - NOON) / HOUR)] == [0, 0, 0, 30]


def test_the_verification_does_not_use_what_it_verifies() -> None:
    text = Path(verify_rules.__file__).read_text()
    assert "import streamops" not in text
    assert "from streamops" not in text
