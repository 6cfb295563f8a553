"""Windows, sessions and versions are bars over the events of their key."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pytest

from streamops import aggregates as agg
from streamops import plots, windows
from streamops.kernel.errors import SpecError
from streamops.testing import replay
from tests.plots.artists import at, bars, bars_in_minutes, dots, legend, minutes, rows_of, texts

WINDOWS = [
    {"user": "ann", "window_start": 0, "window_end": 10, "n": 2},
    {"user": "bob", "window_start": 10, "window_end": 20, "n": 1},
]
EVENTS = [{"user": "ann", "t": 3}, {"user": "ann", "t": 8}, {"user": "bob", "t": 15}]


def test_windows_are_above_the_events_of_their_key() -> None:
    ax = plots.plot_windows(WINDOWS, EVENTS, by="user", time="t", label="n")
    y = rows_of(ax)
    assert y["ann"] > y["bob"]  # keys from the top
    assert [(x, z) for x, z in dots(ax, "event")] == [(3, y["ann"]), (8, y["ann"]), (15, y["bob"])]
    heights = {(left, right): bottom for left, right, bottom in bars(ax)}
    assert heights[0, 10] > y["ann"] > heights[10, 20] > y["bob"]
    assert sorted(texts(ax)) == ["1", "2"]
    assert legend(ax) == ["event", "window"]
    assert ax.get_xlabel() == "event time"


def test_overlapping_windows_are_on_separate_lanes_and_adjacent_ones_on_one() -> None:
    spans = [(0, 10), (5, 15), (10, 20)]
    ax = plots.plot_windows([{"window_start": a, "window_end": b} for a, b in spans])
    (first, second, third) = [bottom for _, _, bottom in bars(ax)]
    assert first == third != second


def test_a_window_is_drawn_from_its_start_to_its_end_in_utc() -> None:
    berlin = dt.timezone(dt.timedelta(hours=1))
    rows = [{"window_start": at(0).astimezone(berlin), "window_end": at(10).astimezone(berlin)}]
    naive = pd.DataFrame({"window_start": [at(0)], "window_end": [at(10)]})
    naive = naive.apply(lambda column: column.dt.tz_localize(None))
    for data in (rows, naive):
        assert bars_in_minutes(plots.plot_windows(data)) == [(0, 10)]


def test_times_are_displayed_in_the_time_zone_of_the_frame() -> None:
    frame = pd.DataFrame({"window_start": [at(0)], "window_end": [at(10)]})
    there = frame.apply(lambda column: column.dt.tz_convert("America/New_York"))
    for table, hour in ((frame, "09:0"), (there, "04:0")):
        ax = plots.plot_windows(table)
        ax.figure.canvas.draw()
        assert any(label.get_text().startswith(hour) for label in ax.get_xticklabels())
        assert bars_in_minutes(ax) == [(0, 10)]


def test_a_label_that_is_wider_than_its_bar_is_left_out() -> None:
    rows = [
        {"window_start": 0, "window_end": 1000, "n": 7},
        {"window_start": 1000, "window_end": 1001, "n": 8},
    ]
    assert texts(plots.plot_windows(rows, label="n")) == ["7"]


def test_corrected_early_and_retracted_results_differ() -> None:
    window = {"window_start": 0, "window_end": 10}
    rows = [
        window | {"revision": 0, "timing": "on_time", "_change_type": "insert"},
        window | {"revision": 0, "timing": "early", "_change_type": "insert"},
        window | {"revision": 1, "timing": "late", "_change_type": "update_postimage"},
        window | {"revision": 2, "timing": "on_time", "_change_type": "update_postimage"},
        window | {"revision": 0, "timing": "on_time", "_change_type": "update_preimage"},
    ]
    ax = plots.plot_windows(rows)
    styles = [patch.get_label() for patch in ax.patches]
    assert styles == ["window", "early", "corrected", "window", "retracted"]
    assert [patch.get_hatch() is not None for patch in ax.patches] == [False] * 4 + [True]
    assert [patch.get_linestyle() for patch in ax.patches][1] == "--"
    assert len({patch.get_edgecolor() for patch in ax.patches}) == 3


def test_the_results_of_a_replay_can_be_drawn() -> None:
    rows = [{"ts": at(minute)} for minute in (1, 4, 12)]
    operator = windows.tumbling("10 minutes", time="ts", agg={"n": agg.count()}, delay="1 minute")
    ax = plots.plot_windows(replay(operator, [rows], flush=True), rows, time="ts", label="n")
    assert bars_in_minutes(ax) == [(0, 10), (10, 20)]
    assert texts(ax) == ["2", "1"]
    assert [float(minutes(x)) for x, _ in dots(ax, "event")] == [1, 4, 12]


def test_numeric_keys_are_in_numeric_order() -> None:
    rows = [{"id": n, "window_start": 0, "window_end": 1} for n in (10, 9, 2)]
    y = rows_of(plots.plot_windows(rows, by="id"))
    assert sorted(y, key=lambda key: -y[key]) == ["2", "9", "10"]


def test_a_null_key_has_a_row_of_its_own() -> None:
    rows: list[dict[str, Any]] = [
        {"id": None, "window_start": 0, "window_end": 1},
        {"id": "a", "window_start": 0, "window_end": 1},
    ]
    assert set(rows_of(plots.plot_windows(rows, by="id"))) == {"null", "a"}


def test_narrow_axes_have_fewer_ticks() -> None:
    import matplotlib.pyplot as plt

    rows = [{"window_start": at(0), "window_end": at(70)}]
    _, panels = plt.subplots(ncols=4, figsize=(9, 3))
    ticks = []
    for ax in (panels[0], plots.plot_windows(rows).axes):
        plots.plot_windows(rows, ax=ax)
        ax.get_figure().canvas.draw()
        left, right = ax.get_xlim()
        ticks.append(len([tick for tick in ax.get_xticks() if left <= tick <= right]))
    assert ticks[0] <= 5 < ticks[1]


def test_a_picture_is_drawn_into_the_given_axes() -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(ncols=2)
    assert plots.plot_windows(WINDOWS, ax=right) is right
    assert not left.patches
    assert len(right.patches) == 2
    assert plt.get_fignums() == [figure.number]


def test_a_frame_without_rows_is_an_empty_picture() -> None:
    ax = plots.plot_windows({"window_start": [], "window_end": []})
    assert not ax.patches


def test_too_many_keys_and_rows_are_refused() -> None:
    many = [{"id": n, "window_start": 0, "window_end": 1} for n in range(61)]
    with pytest.raises(SpecError, match=r"PARAMETER_OUT_OF_RANGE(.|\n)*61 keys"):
        plots.plot_windows(many, by="id")
    long = {"window_start": range(5_001), "window_end": range(1, 5_002)}
    with pytest.raises(SpecError, match=r"PARAMETER_OUT_OF_RANGE(.|\n)*5,001 rows"):
        plots.plot_windows(long)


def test_events_need_their_time() -> None:
    with pytest.raises(SpecError, match="PARAMETER_MISSING"):
        plots.plot_windows(WINDOWS, EVENTS)


def test_a_session_is_filled_up_to_its_last_event_and_dashed_for_the_gap() -> None:
    sessions = [{"window_start": at(0), "window_end": at(28), "n": 2}]
    events = [{"ts": at(0)}, {"ts": at(8)}]
    ax = plots.plot_sessions(sessions, events, gap="20 minutes", time="ts", label="n")
    assert bars_in_minutes(ax, "session") == [(0, 8)]
    assert bars_in_minutes(ax, "gap") == [(8, 28)]
    assert texts(ax) == ["2"]
    assert legend(ax) == ["event", "session", "gap"]


def test_a_session_of_one_event_is_visible() -> None:
    ax = plots.plot_sessions([{"window_start": 0, "window_end": 10}], gap=10)
    ((left, right),) = [
        (patch.get_x(), patch.get_x() + patch.get_width())
        for patch in ax.patches
        if patch.get_label() == "session"
    ]
    assert 0 < right - left < 0.2


def test_a_gap_must_be_a_duration() -> None:
    with pytest.raises(SpecError, match="INVALID_DURATION"):
        plots.plot_sessions(WINDOWS, gap="20 parsecs")


def test_a_version_without_an_end_reaches_the_right_edge() -> None:
    versions = [
        {"id": 1, "city": "Bonn", "valid_from": at(0), "valid_to": at(10)},
        {"id": 1, "city": "Rom", "valid_from": at(10), "valid_to": None},
        {"id": 2, "city": "Oslo", "valid_from": at(5), "valid_to": None},
    ]
    ax = plots.plot_history(versions, by="id", label="city")
    assert bars_in_minutes(ax, "past version") == [(0, 10)]
    open_ends = [
        bar.get_x() + bar.get_width() for bar in ax.patches if "current" in bar.get_label()
    ]
    assert len(open_ends) == 2
    assert min(open_ends) > ax.get_xlim()[1]
    assert texts(ax) == ["Oslo", "Bonn", "Rom"]
    assert legend(ax) == ["past version", "current version"]
