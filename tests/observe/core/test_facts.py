"""What is remembered of micro-batches."""

from __future__ import annotations

from streamops.observe.core.facts import remember
from tests.observe.core.history import SECOND, START, micro_batch


def test_of_the_past_no_more_is_kept_than_is_needed() -> None:
    history = ()
    for number in range(5):
        history = remember(history, micro_batch(batch=number), 3)
    assert [facts.batch for facts in history] == [2, 3, 4]


def test_a_micro_batch_without_rows_is_added_to_the_one_before() -> None:
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
    (together,) = remember(remember((), first, 3), quiet, 3)
    assert together.counts == {
        "w": {"rows": 9, "late": 1, "held_by": "x", "n": 1, "more": None},
        "g": {},
        "h": {"rows": 3},
    }
    assert (together.rows, together.batch, together.sources) == (7, 1, first.sources)
    assert together.newest == together.highest == (START + 9) * SECOND
    assert together.watermark == (START + 4) * SECOND
    assert first.counts["w"]["rows"] == 7


def test_levels_are_not_added_up() -> None:
    told = {"rows": 1, "newest_micros": 7, "clock": 3, "active": 2, "state_rows": 5}
    history = remember((), micro_batch(1, p=told), 1)
    (together,) = remember(history, micro_batch(0, p={**told, "active": 1}), 1)
    assert together.counts["p"] == {**told, "rows": 2, "active": 1}


def test_a_run_may_begin_without_rows() -> None:
    history = remember((), micro_batch(0), 3)
    history = remember(remember(history, micro_batch(0, batch=1), 3), micro_batch(1, batch=2), 3)
    assert [(facts.rows, facts.batch) for facts in history] == [(0, 1), (1, 2)]


def test_the_greatest_event_time_is_remembered_for_ever() -> None:
    history = ()
    for newest in (None, 9, 30, None, 12):
        history = remember(history, micro_batch(newest=newest), 1)
    assert history[0].highest == (START + 30) * SECOND
    assert history[0].newest == (START + 12) * SECOND
