from __future__ import annotations

import datetime as dt
import struct
from pathlib import Path

import pandas as pd
import pytest

from examples.flights.flights import NEW_YORK, STORM
from examples.flights.picture import draw, finding, story, write_picture
from examples.flights.tables import read_table


@pytest.fixture(scope="module")
def hours(pristine: Path) -> pd.DataFrame:
    return story(pristine, STORM)


def test_a_picture_is_drawn_without_a_display(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    head = write_picture(out, 30).read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    assert width > height > 1_000


def test_the_title_states_the_finding(hours: pd.DataFrame) -> None:
    figure = draw(hours, STORM, "30 minutes")
    first, final, _ = finding(hours)
    title = figure.texts[0].get_text()
    assert f"{first:.0f} minutes became {final:.0f}" in title
    assert "8 March 2013" in title


def test_each_airport_has_its_column_and_its_final_mean(hours: pd.DataFrame) -> None:
    figure = draw(hours, STORM, "30 minutes")
    above = figure.axes[:3]
    assert [axes.get_title(loc="left") for axes in above] == ["Newark", "Kennedy", "LaGuardia"]
    for axes, (_, ours) in zip(above, hours.groupby("origin"), strict=True):
        mean = (ours["final_delay"] * ours["final"]).sum() / ours["final"].sum()
        assert f"{mean:.0f} in the end" in axes.texts[0].get_text()


def test_hours_are_those_of_new_york(hours: pd.DataFrame, out: Path) -> None:
    table = read_table(out, "hourly")
    local = table["window_start"].dt.tz_convert(NEW_YORK)
    ours = table[local.dt.date == STORM].assign(hour=local.dt.hour)
    both = hours.merge(ours, on=["origin", "hour"])
    assert len(both) == len(hours) == len(ours)
    assert (both["final"] == both["departures"]).all()
    labels = [label.get_text() for label in draw(hours, STORM, "").axes[0].get_xticklabels()]
    assert labels == ["06", "09", "12", "15", "18", "21", "24"]


def test_every_departure_of_the_day_is_in_the_picture(
    hours: pd.DataFrame, days: pd.DataFrame
) -> None:
    local = days["scheduled"].dt.tz_convert(NEW_YORK).dt.date
    assert hours["final"].sum() + hours["too_late"].sum() == (local == STORM).sum()


def test_corrections_made_the_day_look_worse(hours: pd.DataFrame) -> None:
    first, final, share = finding(hours)
    assert final > 2 * first
    assert share == pytest.approx(0.28, abs=0.02)
    assert (hours["first"] <= hours["final"]).all()


def test_an_hour_without_corrections_is_as_first_emitted(hours: pd.DataFrame) -> None:
    same = hours[(hours["first"] == hours["final"])]
    assert len(same) > 0
    assert (same["first_delay"] == same["final_delay"]).all()


def test_the_clock_of_a_day_with_a_change_is_drawn_too(hours: pd.DataFrame) -> None:
    early = hours.assign(hour=hours["hour"] - hours["hour"].min())
    figure = draw(early, dt.date(2013, 3, 10), "")
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    # The third hour of that day is called four, and the day ends an hour early.
    assert labels == ["00", "04", "07", "10", "13", "16", "19", "22"]
