from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from examples.flights import tables
from examples.flights.verify import (
    Comparison,
    by_the_day,
    by_the_hour,
    by_the_last_hour,
    by_the_working_day,
    compare,
)

HOUR = pd.Timedelta(hours=1)
NOON = pd.Timestamp("2013-07-01 12:00", tz="UTC")
KEY = ["origin", "window_start"]
NOBODY = pd.DataFrame({"flight_id": pd.Series(dtype="int64"), "window_start": pd.Series(dtype="datetime64[us, UTC]")})  # fmt: skip


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two flights between 12 and 13, one at 13 sharp."""
    times = [NOON, NOON + 0.5 * HOUR, NOON + HOUR]
    return pd.DataFrame(
        {"flight_id": [0, 1, 2], "origin": "JFK", "scheduled": times, "delay": [0, 3, 10]}
    )


def windows_of(table: pd.DataFrame) -> dict[int, tuple[int, float]]:
    start = (table["window_start"] - NOON) // HOUR
    values = zip(table["departures"], table["mean_delay"], strict=True)
    return dict(zip(start, values, strict=True))


def check(table: pd.DataFrame, batch: pd.DataFrame) -> Comparison:
    return compare(table, batch, NOON + 10 * HOUR, key=KEY, due="window_end")


def test_a_flight_exactly_on_the_hour_is_in_the_hour_that_begins(rows: pd.DataFrame) -> None:
    assert windows_of(by_the_hour(rows, NOBODY, 1)) == {0: (2, 1.5), 1: (1, 10.0)}


def test_a_flight_is_in_three_windows_of_three_hours(rows: pd.DataFrame) -> None:
    found = windows_of(by_the_hour(rows, NOBODY, 3))
    assert {start: n for start, (n, _) in found.items()} == {-2: 2, -1: 3, 0: 3, 1: 1}


def test_a_flight_too_late_for_one_window_counts_in_the_next(rows: pd.DataFrame) -> None:
    late = pd.DataFrame({"flight_id": [1], "window_start": [NOON - 2 * HOUR]})
    found = windows_of(by_the_hour(rows, late, 3))
    assert found[-2] == (1, 0.0)
    assert found[-1][0] == 3


def test_a_window_whose_flights_were_all_too_late_does_not_exist(rows: pd.DataFrame) -> None:
    late = pd.DataFrame({"flight_id": [2], "window_start": [NOON + HOUR]})
    assert set(windows_of(by_the_hour(rows, late, 1))) == {0}


def at(*times: str) -> pd.DataFrame:
    """A flight of one aircraft from one airport at each of these times in New York."""
    scheduled = pd.DatetimeIndex(times, tz="America/New_York").tz_convert("UTC")
    return pd.DataFrame(
        {
            "flight_id": range(len(times)),
            "origin": "JFK",
            "tailnum": "N1",
            "scheduled": scheduled,
            "delay": [2**n for n in range(len(times))],
        }
    )


def late(*flights: int) -> pd.DataFrame:
    return pd.DataFrame({"flight_id": [*flights], "window_start": NOON})


@pytest.mark.parametrize(("day", "hours"), [("2013-03-10", 23), ("2013-11-03", 25)])
def test_a_day_is_one_of_new_york_and_has_its_hours(day: str, hours: int) -> None:
    before, after = (pd.Timestamp(day) + pd.Timedelta(days=n) for n in (-1, 1))
    rows = at(f"{before:%Y-%m-%d} 23:59", day, f"{day} 23:59", f"{after:%Y-%m-%d}")
    found = by_the_day(rows, late(3))
    assert [*found["departures"]] == [1, 2]
    assert [*found["mean_delay"]] == [1.0, 3.0]
    assert [*((found["window_end"] - found["window_start"]) // HOUR)] == [24, hours]
    assert found["window_start"][1] == pd.Timestamp(day, tz="America/New_York")


def test_a_working_day_ends_with_more_than_eight_hours_of_silence() -> None:
    rows = at("2013-07-01 06:00", "2013-07-01 14:00", "2013-07-01 22:01")
    found = by_the_working_day(rows.sample(frac=1, random_state=1), late())
    assert [*found["departures"]] == [2, 1]
    assert [*found["mean_delay"]] == [1.5, 4.0]
    assert [*((found["window_end"] - found["window_start"]) // HOUR)] == [16, 8]


def test_a_flight_that_was_too_late_does_not_bridge_two_working_days() -> None:
    rows = at("2013-07-01 06:00", "2013-07-01 13:00", "2013-07-01 20:00")
    assert len(by_the_working_day(rows, late())) == 1
    assert len(by_the_working_day(rows, late(1))) == 2


def test_each_aircraft_has_its_own_working_days() -> None:
    rows = at("2013-07-01 06:00", "2013-07-01 07:00").assign(tailnum=["N1", "N2"])
    assert [*by_the_working_day(rows, late())["tailnum"]] == ["N1", "N2"]


def test_a_flight_exactly_an_hour_earlier_is_not_in_the_last_hour() -> None:
    rows = at("2013-07-01 06:00", "2013-07-01 06:59", "2013-07-01 07:00", "2013-07-01 07:00")
    found = by_the_last_hour(rows.sample(frac=1, random_state=1), late())
    assert [*found["departures"]] == [1, 2, 3]
    assert [*found["mean_delay"]] == [1.0, 1.5, 14 / 3]
    assert [*by_the_last_hour(rows, late(1))["departures"]] == [1, 2]


def test_each_airport_has_its_own_last_hour() -> None:
    rows = at("2013-07-01 06:00", "2013-07-01 06:00").assign(origin=["JFK", "LGA"])
    assert [*by_the_last_hour(rows, late())["departures"]] == [1, 1]


def test_without_late_rows_everything_is_accepted(rows: pd.DataFrame, tmp_path: Path) -> None:
    nothing = tables.late(tmp_path, "hourly")
    assert len(nothing) == 0
    assert windows_of(by_the_hour(rows, nothing, 1)) == {0: (2, 1.5), 1: (1, 10.0)}
    assert by_the_day(rows, nothing)["departures"].sum() == 3


def test_equal_tables_are_equal(rows: pd.DataFrame) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    found = check(batch.sample(frac=1, random_state=1), batch)
    assert found.equal
    assert (found.compared, found.furthest, found.example) == (2, 0.0, "")


def test_windows_beyond_the_watermark_are_open_and_not_compared(rows: pd.DataFrame) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    found = compare(batch.iloc[:1], batch, NOON + HOUR, key=KEY, due="window_end")
    assert found.equal
    assert (found.compared, found.still_open, found.open_rows) == (1, 1, 1)


def test_a_window_emitted_before_the_watermark_passed_it_is_unexpected(
    rows: pd.DataFrame,
) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    found = compare(batch, batch, NOON + HOUR, key=KEY, due="window_end")
    assert (found.unexpected, found.equal) == (1, False)


def test_nothing_compared_is_not_equal(rows: pd.DataFrame) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    assert not compare(batch.iloc[:0], batch, NOON, key=KEY, due="window_end").equal


def test_a_missing_window_is_found(rows: pd.DataFrame) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    found = check(batch.iloc[:1], batch)
    assert (found.missing, found.equal) == (1, False)
    assert "13:00" in found.example


def test_a_duplicate_window_is_found(rows: pd.DataFrame) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    found = check(pd.concat([batch, batch.iloc[:1]]), batch)
    assert (found.unexpected, found.equal) == (1, False)


def test_a_count_that_is_off_by_one_is_found(rows: pd.DataFrame) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    found = check(batch.assign(departures=batch["departures"] + [1, 0]), batch)
    assert (found.counts, found.means, found.equal) == (1, 0, False)


@pytest.mark.parametrize(("error", "equal"), [(1e-12, True), (1e-8, False), (None, False)])
def test_means_are_compared_to_nine_digits(
    rows: pd.DataFrame, error: float | None, equal: bool
) -> None:
    batch = by_the_hour(rows, NOBODY, 1)
    wrong = [1.5, None if error is None else 10.0 + error]
    found = check(batch.assign(mean_delay=wrong), batch)
    assert (found.means == 0, found.equal) == (equal, equal)


def test_the_verification_does_not_use_what_it_verifies() -> None:
    import examples.flights.verify as verify

    text = Path(verify.__file__).read_text()
    assert "import streamops" not in text
    assert "from streamops" not in text
