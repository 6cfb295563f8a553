"""What every micro-batch emitted is in its band, retractions above what replaces them."""

from __future__ import annotations

import pytest

from streamops import aggregates as agg
from streamops import changes, plots, windows
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.testing import replay
from tests.plots.artists import at, bars, bars_in_minutes, dots, legend, minutes, rows_of, texts

SCRIPT = [[3, 8], [6, 16], [9], [4, 21], [12, 45], [7, 12], [2]]
BATCHES = [[{"ts": at(minute)} for minute in batch] for batch in SCRIPT]
RESULTS = {
    stragglers: replay(
        windows.tumbling(
            "10 minutes",
            time="ts",
            agg={"n": agg.count()},
            delay="5 minutes",
            allowed_lateness="20 minutes",
            stragglers=stragglers,
            too_late="route" if stragglers == "retract" else "drop",
        ).options(shards=1),
        BATCHES,
    )
    for stragglers in ("retract", "route")
}


def test_every_micro_batch_has_its_band() -> None:
    ax = plots.plot_corrections(RESULTS["retract"], time="ts", label="n")
    y = rows_of(ax)
    assert [*y] == ["0", "1", "2", "3", "4", "5", "6"]
    assert [*y.values()] == sorted(y.values())
    assert ax.yaxis_inverted()
    assert ax.get_ylabel() == "micro-batch"


def test_a_retraction_is_above_what_replaces_it() -> None:
    ax = plots.plot_corrections(RESULTS["retract"], label="n")
    assert bars_in_minutes(ax, "retracted") == [(0, 10), (0, 10)]
    assert bars_in_minutes(ax, "corrected") == [(0, 10), (0, 10)]
    tops = {name: [y for *_, y in bars(ax, name)] for name in ("retracted", "corrected")}
    assert all(back < new for back, new in zip(*tops.values(), strict=True))  # y grows downwards
    assert texts(ax) == ["4", "−4", "5", "−5", "6", "3", "1"]
    assert legend(ax) == ["first result", "corrected", "retracted"]


def test_late_rows_are_dots_at_their_event_time() -> None:
    ax = plots.plot_corrections(RESULTS["route"], time="ts")
    assert [float(minutes(x)) for x, _ in dots(ax, "straggler")] == [4, 7]
    (too_late,) = dots(plots.plot_corrections(RESULTS["retract"], time="ts"), "too late")
    assert float(minutes(too_late[0])) == 2
    assert dots(plots.plot_corrections(RESULTS["route"]), "straggler") == []


def test_late_rows_of_the_output_column_are_drawn_and_are_no_results() -> None:
    window = {"window_start": at(0), "window_end": at(10)}
    late = {"reason": "straggler", "row": {"ts": at(4)}}
    rows = [
        window | {"batch": 0, "n": 2, "late": None},
        {"window_start": None, "window_end": None, "batch": 1, "n": None, "late": late},
    ]
    ax = plots.plot_corrections(rows, time="ts", label="n")
    assert bars_in_minutes(ax) == [(0, 10)]
    assert [float(minutes(x)) for x, _ in dots(ax, "straggler")] == [4]
    assert texts(ax) == ["2"]


def test_events_are_above_the_results_of_their_micro_batch() -> None:
    events = [{"batch": n, **row} for n, rows in enumerate(BATCHES) for row in rows]
    ax = plots.plot_corrections(RESULTS["route"], events, time="ts", label="n")
    found = dots(ax, "event")
    assert len(found) == len(events)
    (first, *_) = [y for *_, y in bars(ax)]  # the window of micro-batch 2
    (event,) = [y for x, y in found if float(minutes(x)) == 9]
    assert event < first


def test_with_keys_every_micro_batch_has_a_band_per_key() -> None:
    rows = [
        {"k": key, "batch": batch, "window_start": 0, "window_end": 10}
        for key, batch in (("a", 0), ("b", 0), ("a", 1))
    ]
    assert [*rows_of(plots.plot_corrections(rows, by="k"))] == ["0, a", "0, b", "1, a"]


def test_windows_that_overlap_in_a_micro_batch_are_on_lanes() -> None:
    rows = [{"batch": 0, "window_start": n, "window_end": n + 10} for n in (0, 5)]
    first, second = (y for *_, y in bars(plots.plot_corrections(rows)))
    assert first < second


def test_a_late_change_of_a_history_splits_an_interval() -> None:
    versions = changes.apply("id", sequence="lsn", horizon=1_000, history="intervals")
    log = [
        [{"id": 1, "city": "Oslo", "lsn": 5}, {"id": 1, "city": "Rome", "lsn": 90}],
        [{"id": 1, "city": "Bern", "lsn": 50}],
    ]
    results = replay(versions, log)
    ax = plots.plot_corrections(results, start="valid_from", end="valid_to", label="city")
    spans = [(round(left), round(right)) for left, right, _ in bars(ax)]
    edge = round(spans[1][1])
    assert spans == [(5, 90), (90, edge), (5, 90), (5, 50), (50, 90)]
    assert edge > ax.get_xlim()[1] - 1
    assert texts(ax) == ["Oslo", "Rome", "−Oslo", "Oslo", "Bern"]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="'batch', given as `batch`"):
        plots.plot_corrections([{"window_start": 0, "window_end": 1}])
    with pytest.raises(SpecError, match="PARAMETER_MISSING"):
        plots.plot_corrections(RESULTS["route"], [{"batch": 0, "ts": at(0)}])
