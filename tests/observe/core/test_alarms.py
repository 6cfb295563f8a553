"""The history of micro-batches that rules are evaluated on."""

from __future__ import annotations

from streamops.observe.core.alarms import append_progress
from tests.observe.core.history import SECOND, START, micro_batch


def test_a_history_has_a_maximum_length() -> None:
    history = ()
    for number in range(5):
        history = append_progress(history, micro_batch(batch=number), 3)
    assert [progress.batch for progress in history] == [2, 3, 4]


def test_a_micro_batch_without_rows_is_merged_into_the_previous_one() -> None:
    first = micro_batch(
        7, newest=9, sources=(("a", 7),), w={"rows": 7, "late": None, "held_by": "x", "n": 1}, g={}
    )
    quiet = micro_batch(
        0,
        batch=1,
        watermark=4,
        started=2,
        w={"rows": 2, "late": 1, "held_by": None, "n": None, "more": None},
        h={"rows": 3},
    )
    (merged,) = append_progress(append_progress((), first, 3), quiet, 3)
    assert merged.metrics == {
        "w": {"rows": 9, "late": 1, "held_by": "x", "n": 1, "more": None},
        "g": {},
        "h": {"rows": 3},
    }
    assert (merged.rows, merged.batch, merged.sources) == (7, 1, first.sources)
    assert merged.newest == merged.newest_so_far == (START + 9) * SECOND
    assert merged.watermark == (START + 4) * SECOND
    assert first.metrics["w"]["rows"] == 7


def test_gauges_are_not_added_up() -> None:
    metrics = {"rows": 1, "newest_micros": 7, "clock": 3, "active": 2, "state_rows": 5}
    history = append_progress((), micro_batch(1, p=metrics), 1)
    (merged,) = append_progress(history, micro_batch(0, p={**metrics, "active": 1}), 1)
    assert merged.metrics["p"] == {**metrics, "rows": 2, "active": 1}


def test_a_run_may_begin_without_rows() -> None:
    history = append_progress((), micro_batch(0), 3)
    history = append_progress(
        append_progress(history, micro_batch(0, batch=1), 3), micro_batch(1, batch=2), 3
    )
    assert [(progress.rows, progress.batch) for progress in history] == [(0, 1), (1, 2)]


def test_the_greatest_event_time_of_the_run_is_retained() -> None:
    history = ()
    for newest in (None, 9, 30, None, 12):
        history = append_progress(history, micro_batch(newest=newest), 1)
    assert history[0].newest_so_far == (START + 30) * SECOND
    assert history[0].newest == (START + 12) * SECOND
