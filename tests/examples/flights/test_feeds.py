from __future__ import annotations

import pandas as pd
import pytest

from examples.flights.feeds import FEEDS, feeds
from examples.flights.flights import packaged


@pytest.fixture(scope="module")
def year(all_flights: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return feeds(all_flights, None)


def test_every_log_is_in_the_order_of_arrival(
    year: dict[str, pd.DataFrame], logs: dict[str, pd.DataFrame]
) -> None:
    for rows in (year, logs):
        for name, feed in FEEDS.items():
            assert rows[name][feed.arrives].is_monotonic_increasing, name
            assert rows[name][feed.schema.names[0]].notna().all()


def test_cancelled_flights_are_scheduled_and_diverted_ones_leave(
    year: dict[str, pd.DataFrame],
) -> None:
    counts = {name: len(year[name]) for name in ("schedule", "departures", "landings")}
    assert counts == {"schedule": 336_776, "departures": 328_521, "landings": 327_346}
    assert year["schedule"]["scheduled"].notna().all()


def test_the_weather_is_that_of_the_days(
    year: dict[str, pd.DataFrame], logs: dict[str, pd.DataFrame]
) -> None:
    weather, departed = logs["weather"], logs["departures"]["departed"]
    hour = pd.Timedelta(hours=1)
    assert weather["observed"].min() >= departed.min() - hour
    assert weather["observed"].max() <= departed.max()
    assert set(weather["origin"]) == {"EWR", "JFK", "LGA"}
    observations = year["weather"].merge(packaged("weather.csv", ["visib"]), left_on="observation", right_index=True)  # fmt: skip
    assert (observations["visibility"] == observations["visib"]).all()


@pytest.mark.parametrize("which", ["year", "logs"])
def test_the_register_enters_corrects_and_strikes_off(
    which: str, request: pytest.FixtureRequest
) -> None:
    rows = request.getfixturevalue(which)
    log, left = rows["register"], rows["departures"]
    once = log.drop_duplicates("entry").sort_values("entry")
    types = once.groupby("tailnum")["_change_type"].agg(list)
    assert (types.str[0] == "insert").all()
    assert set(log["_change_type"]) == {"insert", "update_postimage", "delete"}
    known = set(packaged("planes.csv", ["tailnum"])["tailnum"]) & set(left["tailnum"])
    assert set(log["tailnum"]) == known

    first = once.drop_duplicates("tailnum").set_index("tailnum")["entered"]
    assert (first == left.groupby("tailnum")["departed"].min()[first.index]).all()
    last = once.drop_duplicates("tailnum", keep="last")
    assert "AIRBUS INDUSTRIE" in set(once["manufacturer"])
    assert "AIRBUS INDUSTRIE" not in set(last["manufacturer"])
    deleted = last[last["_change_type"] == "delete"].set_index("tailnum")["entered"]
    assert (left.groupby("tailnum")["departed"].max()[deleted.index] < deleted).all()


def test_some_entries_are_duplicated_also_of_removed_aircraft(
    year: dict[str, pd.DataFrame],
) -> None:
    log = year["register"]
    again = log[log.duplicated("entry")]
    assert len(again) == log["entry"].max() // 7
    pairs = log[log["entry"].isin(again["entry"])].drop(columns="entered")
    assert pairs.duplicated().sum() == len(again)
    deleted = log[log["_change_type"] == "delete"]["tailnum"]
    assert again[again["_change_type"] == "insert"]["tailnum"].isin(deleted).any()


def test_movements_are_departures_and_landings_of_known_aircraft(
    year: dict[str, pd.DataFrame],
) -> None:
    counts = year["movements"]["event"].value_counts()
    known = year["departures"].dropna(subset=["tailnum"])
    assert counts["departed"] == len(known)
    assert counts["arrived"] == known["landed"].notna().sum()


def test_outcomes_are_all_flights_and_arrive_when_they_leave_or_are_cancelled(
    year: dict[str, pd.DataFrame], logs: dict[str, pd.DataFrame]
) -> None:
    outcomes = year["outcomes"]
    assert len(outcomes) == len(year["schedule"])
    cancelled = outcomes["delay"].isna()
    assert (outcomes["notice"].str.endswith(", cancelled") == cancelled).all()
    assert (outcomes["known"] == outcomes["scheduled"])[cancelled].all()
    minutes = (outcomes["known"] - outcomes["scheduled"]).dt.total_seconds() / 60
    assert (minutes == outcomes["delay"])[~cancelled].all()
    assert outcomes["notice"].notna().all()
    # The days before are those that the pattern looks back to.
    first, start = logs["outcomes"]["scheduled"].min(), logs["schedule"]["scheduled"].min()
    assert pd.Timedelta(days=2, hours=12) < start - first < pd.Timedelta(days=3, hours=12)


def test_alerts_are_changed_deleted_invalid_and_delivered_again(
    logs: dict[str, pd.DataFrame],
) -> None:
    entries = logs["alerts"]
    assert set(entries["_change_type"]) == {"insert", "update_postimage", "delete"}
    assert entries.duplicated("entry").sum() == 1
    assert entries["entered"].nunique() == 3


def test_the_register_is_generated_deterministically(
    all_flights: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    pd.testing.assert_frame_equal(feeds(all_flights, 2)["register"], logs["register"])
