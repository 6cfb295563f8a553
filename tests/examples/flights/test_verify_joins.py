from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from examples.flights.verify_joins import (
    Agreement,
    agree,
    reasons,
    with_aircraft,
    with_landing,
    with_weather,
)

NOON = pd.Timestamp("2013-07-01 12:00", tz="UTC")
HOUR, MINUTE, DAY = (pd.Timedelta(n, "min") for n in (60, 1, 1_440))
NEVER = pd.NaT


def schedule(*landed: object) -> pd.DataFrame:
    """Flights of noon that landed then; all left, but for those of which nothing is known."""
    times = pd.to_datetime(pd.Series([*landed]), utc=True)
    return pd.DataFrame(
        {
            "flight_id": range(len(times)),
            "origin": "JFK",
            "scheduled": NOON,
            "departed": NOON,
            "landed": times,
        }
    )


def test_a_flight_matches_if_it_landed_within_a_day_to_the_minute() -> None:
    flights = schedule(NOON, NOON + DAY, NOON + DAY + MINUTE, NEVER)
    found = with_landing({"schedule": flights})
    assert [*found["status"]] == ["matched", "matched", "expired", "expired"]
    assert [*found["landed"].isna()] == [False, False, True, True]
    assert [*found["due"][2:]] == [NOON + DAY] * 2
    assert (found["due"][:2] < NOON).all()


def test_reasons_for_flights_that_did_not_land_within_a_day() -> None:
    flights = schedule(NOON + HOUR, NOON + 2 * DAY, NEVER, NEVER, NEVER)
    flights.loc[3:, "departed"] = NEVER
    expected = {"cancelled": 2, "diverted": 1, "landed later than that": 1}
    assert reasons(flights) == expected


def departures(*times: pd.Timestamp, origin: str = "JFK") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "flight_id": range(len(times)),
            "origin": origin,
            "departed": times,
            "delay": 0,
            "tailnum": [f"N{n}" for n in range(len(times))],
        }
    )


def observations(*expected: tuple[pd.Timestamp, float], origin: str = "JFK") -> pd.DataFrame:
    times, values = zip(*expected, strict=True)
    return pd.DataFrame(
        {
            "observation": range(len(expected)),
            "origin": origin,
            "observed": times,
            "visibility": values,
            "wind": 5.0,
        }
    )


def test_the_weather_is_the_newest_of_the_airport_and_two_hours_old_at_most() -> None:
    left = departures(NOON - MINUTE, NOON, NOON + HOUR, NOON + 3 * HOUR, NOON + 3 * HOUR + MINUTE)
    seen = observations((NOON, 1.0), (NOON + HOUR, 2.0), (NOON + HOUR, 3.0))
    elsewhere = observations((NOON - 5 * MINUTE, 9.0), origin="LGA")
    found = with_weather({"departures": left, "weather": pd.concat([elsewhere, seen])})
    assert found["visibility"].fillna(-1).to_list() == [-1, 1, 3, 3, -1]
    assert [*found["status"]] == ["missing", "matched", "matched", "matched", "missing"]


def test_an_aircraft_is_as_the_register_has_it_in_the_end() -> None:
    entries = [
        (1, "N0", "AIRBUS INDUSTRIE", "insert"),
        (4, "N0", "AIRBUS", "update_postimage"),
        (2, "N1", "BOEING", "insert"),
        (3, "N1", "BOEING", "delete"),
        (1, "N0", "AIRBUS INDUSTRIE", "insert"),
        (2, "N1", "BOEING", "insert"),
    ]
    columns = ["entry", "tailnum", "manufacturer", "_change_type"]
    register = pd.DataFrame(entries, columns=columns).assign(built=1999)
    left = departures(NOON, NOON, NOON)
    found = with_aircraft({"departures": left, "register": register})
    assert found["manufacturer"].fillna("–").to_list() == ["AIRBUS", "–", "–"]


@pytest.fixture
def batch() -> pd.DataFrame:
    return with_landing({"schedule": schedule(NOON + HOUR, NEVER, NOON + 2 * HOUR)})


def compared(table: pd.DataFrame, batch: pd.DataFrame) -> Agreement:
    return agree(table.drop(columns="due"), batch, NOON + DAY)


def test_equal_tables_agree_in_any_order(batch: pd.DataFrame) -> None:
    found = compared(batch.sample(frac=1, random_state=1), batch)
    assert found.equal
    assert (found.compared, found.still_open, found.example) == (3, 0, "")


def test_rows_that_the_watermark_has_not_passed_are_open(batch: pd.DataFrame) -> None:
    before = NOON + DAY - MINUTE
    table = batch.drop(columns="due")
    found = agree(table.drop(index=1), batch, before)
    assert found.equal
    assert (found.compared, found.still_open) == (2, 1)
    assert agree(table, batch, before).unexpected == 1


@pytest.mark.parametrize("column", ["origin", "scheduled", "landed", "status"])
@pytest.mark.parametrize("row", [0, 1])
def test_any_column_that_differs_is_found(row: int, column: str, batch: pd.DataFrame) -> None:
    other = {"origin": "LGA", "status": "early"}.get(column, NOON + MINUTE)
    table = batch.copy()
    table.loc[row, column] = other
    found = compared(table, batch)
    assert (found.different, found.equal) == (1, False)
    assert str(row) in found.example


def test_a_null_instead_of_a_value_is_a_difference(batch: pd.DataFrame) -> None:
    assert compared(batch.assign(landed=NEVER), batch).different == 2


def test_a_lost_and_a_duplicate_row_are_found(batch: pd.DataFrame) -> None:
    assert compared(batch.iloc[1:], batch).missing == 1
    assert not compared(batch.iloc[1:], batch).equal
    twice = compared(pd.concat([batch, batch.iloc[:1]]), batch)
    assert (twice.unexpected, twice.equal) == (1, False)


def test_nothing_compared_is_not_equal(batch: pd.DataFrame) -> None:
    assert not compared(batch.iloc[:0], batch.iloc[:0]).equal


def test_the_verification_does_not_use_what_it_verifies() -> None:
    import examples.flights.verify_joins as verify

    text = Path(verify.__file__).read_text()
    assert "import streamops" not in text
    assert "from streamops" not in text
