"""Interval joins, step by step: bounds, expiry, late rows, state."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from streamops.joins.core import interval, side_state
from streamops.joins.core.interval import IntervalCore
from streamops.testing.laws import to_rows
from tests.joins.core.play import Play, describe


def test_both_ends_of_the_bounds_are_inside_and_a_microsecond_beyond_is_not() -> None:
    play = Play(-2, 3)
    found = play.step([("a", 10)], [("a", t) for t in (7, 8, 13, 14)])
    assert found == ["+ a 10 ~ 13 matched", "+ a 10 ~ 8 matched"]


def test_equal_bounds_match_one_instant() -> None:
    play = Play(-4, -4)
    assert play.step([("a", 10)], [("a", t) for t in (5, 6, 7)]) == ["+ a 10 ~ 6 matched"]


def test_rows_match_in_any_order_of_arrival() -> None:
    play = Play(0, 5)
    assert play.step([("a", 1)]) == []
    assert play.step([], [("a", 3), ("a", 9)]) == ["+ a 1 ~ 3 matched"]
    assert play.step([("a", 8)]) == ["+ a 8 ~ 9 matched"]


def test_equal_rows_are_joined_separately() -> None:
    play = Play(0, 5, how="left")
    assert play.step([("a", 1), ("a", 1)], [("a", 2), ("a", 2)]) == ["+ a 1 ~ 2 matched"] * 4
    assert play.step([("b", 9), ("b", 9)], [], 14) == ["+ b 9 ~ None expired"] * 2


def test_rows_before_1970_match() -> None:
    assert Play(0, 5).step([("a", -3)], [("a", 2)]) == ["+ a -3 ~ 2 matched"]


def test_other_keys_do_not_match_and_null_keys_match_nothing() -> None:
    play = Play(0, 5, how="full")
    found = play.step([("a", 1), (None, 1)], [("b", 1), (None, 1)], 6)
    assert found == [
        "+ None 1 ~ None expired",
        "+ None None ~ 1 expired",
        "+ a 1 ~ None expired",
        "+ b None ~ 1 expired",
    ]


def test_rows_with_null_keys_are_stored_only_if_they_are_emitted() -> None:
    play = Play(0, 5, how="left")
    play.step([(None, 1)], [(None, 1)])
    assert play.stored == ([1], [])


# When a row is final.


def test_a_row_expires_when_the_watermark_reaches_its_last_possible_partner() -> None:
    play = Play(0, 5, how="left")
    assert play.step([("a", 10)], [], 14) == []
    assert play.step([], [], 15) == ["+ a 10 ~ None expired"]
    assert play.step([], [("a", 15)], 15) == []  # equal to the watermark: late
    assert play.stored == ([], [])


def test_a_partner_at_the_last_instant_is_on_time_one_step_longer() -> None:
    """Rows are late by the watermark of the step before, and final by this one's."""
    play = Play(0, 5, how="left")
    assert play.step([("a", 10)], [], 14) == []
    assert play.step([], [("a", 15)], 99) == ["+ a 10 ~ 15 matched"]


def test_with_negative_bounds_a_row_is_final_before_its_own_time() -> None:
    play = Play(-9, -4, how="left")
    assert play.step([("a", 10)], [], 5) == []
    assert play.step([("b", 10)], [("b", 6)], 6) == ["+ a 10 ~ None expired", "+ b 10 ~ 6 matched"]
    assert play.step([("c", 10)], [], 6) == ["+ c 10 ~ None expired"]  # at once


def test_a_right_row_waits_for_its_last_possible_left_row() -> None:
    play = Play(-3, 5, how="right")
    assert play.step([], [("a", 10)], 12) == []
    assert play.step([("a", 13)], [("b", 20)], 12) == ["+ a 13 ~ 10 matched"]
    assert play.step([], [], 23) == ["+ b None ~ 20 expired"]


def test_a_row_stays_matched_when_its_partner_is_evicted() -> None:
    play = Play(0, 50, how="left")
    assert play.step([("a", 10)], [("a", 11)], 20) == ["+ a 10 ~ 11 matched"]
    assert play.stored == ([10], [])
    assert play.step([], [], 60) == []


def test_while_a_side_is_silent_the_other_is_not_evicted() -> None:
    play = Play(0, 5, how="full")
    for time in (1, 100, 10_000):
        assert play.step([("a", time)], [], None) == []
    assert play.stored == ([1, 100, 10_000], [])
    assert describe(IntervalCore().finish(play.spec, play.state)) == [
        "+ a 1 ~ None expired",
        "+ a 100 ~ None expired",
        "+ a 10000 ~ None expired",
    ]


def test_a_watermark_beyond_all_rows_evicts_all() -> None:
    play = Play(0, 5, how="full")
    play.step([("a", 1)], [("b", 2)])
    assert play.step([], [], 10**15) == ["+ a 1 ~ None expired", "+ b None ~ 2 expired"]
    assert play.state.rows == 0


def test_semi_emits_a_row_with_a_partner_once_and_evicts_it() -> None:
    play = Play(0, 5, how="semi")
    assert play.step([("a", 1)], [("a", 2), ("a", 3)]) == ["+ a 1 matched"]
    assert play.stored == ([], [2, 3])
    assert play.step([], [("a", 4)]) == []


def test_anti_emits_rows_without_a_partner() -> None:
    play = Play(1, 5, how="anti")
    assert play.step([("a", 1), ("b", 1)], [("a", 2)], 5) == []
    assert play.step([], [], 6) == ["+ b 1 expired"]


# Rows that come too late.


def test_a_late_row_matches_nothing_not_even_in_its_own_step() -> None:
    play = Play(0, 5)
    play.step(watermark=10)
    step = play.stepped([("a", 10)], [("a", 11)], 10)
    assert describe(step.output) == []
    assert (step.metrics.on_time, step.metrics.too_late) == (1, 1)


def test_a_straggler_retracts_the_expired_row() -> None:
    play = Play(0, 5, how="left", stragglers="retract", allowed_lateness=4_000)
    assert play.step([("a", 10_000)], [], 11_000) == ["+ a 10000 ~ None expired"]
    step = play.stepped([], [("a", 10_003)], 11_000)
    assert describe(step.output) == ["+ a 10000 ~ 10003 late_match", "- a 10000 ~ None expired"]
    assert (step.metrics.stragglers, step.metrics.corrections, step.metrics.results) == (1, 1, 0)


def test_deletes_are_emitted_before_inserts() -> None:
    play = Play(0, 5, how="full", stragglers="retract", allowed_lateness=4_000)
    play.step([("a", 10_000)], [], 11_000)
    changes = to_rows(play.stepped([], [("a", 10_003)], 11_000).output)
    assert [row["_change_type"] for row in changes] == ["delete", "insert"]


def test_a_straggler_with_a_waiting_partner_is_an_ordinary_match() -> None:
    play = Play(0, 5_000, how="left", stragglers="retract", allowed_lateness=4_000)
    play.step([("a", 10_000)], [], 11_000)
    assert play.step([], [("a", 10_500)], 11_000) == ["+ a 10000 ~ 10500 matched"]


def test_a_left_straggler_without_possible_partners_expires_at_once() -> None:
    play = Play(0, 5, how="left", stragglers="retract", allowed_lateness=4_000)
    play.step(watermark=11_000)
    assert play.step([("a", 10_000)], [], 11_000) == ["+ a 10000 ~ None expired"]
    assert play.step([], [("a", 10_001)]) == [
        "+ a 10000 ~ 10001 late_match",
        "- a 10000 ~ None expired",
    ]


def test_exactly_the_allowed_lateness_behind_is_too_late() -> None:
    play = Play(0, 5, stragglers="retract", allowed_lateness=1_000, too_late="route")
    play.step(watermark=5_000)
    late = to_rows(play.stepped([("a", 4_000), ("a", 4_001)], []).late)
    assert [row["late"] for row in late] == [
        {
            "side": "left",
            "reason": "too_late",
            "lateness": 1_000,
            "watermark": 5_000,
            "window": None,
            "row": {"left": {"word": "a", "ts": 4_000, "number": None, "n": 0}, "right": None},
        }
    ]


def test_an_anti_join_retracts_a_row_that_gets_a_partner() -> None:
    play = Play(0, 5, how="anti", stragglers="retract", allowed_lateness=4_000)
    assert play.step([("a", 10_000)], [], 11_000) == ["+ a 10000 expired"]
    assert play.step([], [("a", 10_000)]) == ["- a 10000 expired"]


@pytest.mark.parametrize(("time", "reason"), [(None, "null_time"), (2**62, "time_out_of_range")])
def test_rows_without_a_usable_time_are_routed_or_counted(time: int | None, reason: str) -> None:
    step = Play(0, 5, how="full", stragglers="route").stepped([], [("a", time)], 9)
    (late,) = [row["late"] for row in to_rows(step.late)]
    assert (late["side"], late["reason"], late["watermark"]) == ("right", reason, None)
    assert late["row"]["right"]["at"] == time
    assert (step.metrics.rejected, step.metrics.on_time) == (1, 0)
    dropped = Play(0, 5, how="full").stepped([], [("a", time)], 9)
    assert (len(dropped.late), dropped.metrics.rejected) == (0, 1)


# Early results.


def test_early_a_row_without_a_partner_is_emitted_at_once_and_retracted() -> None:
    play = Play(0, 5, how="left", early="every batch")
    assert play.step([("a", 1), ("b", 1)]) == ["+ a 1 ~ None early", "+ b 1 ~ None early"]
    assert play.step([], [("a", 2)]) == ["+ a 1 ~ 2 matched", "- a 1 ~ None early"]
    assert play.step([], [("a", 3)]) == ["+ a 1 ~ 3 matched"]
    assert play.step([], [], 6) == ["+ b 1 ~ None expired", "- b 1 ~ None early"]


def test_early_a_row_with_an_immediate_partner_is_not_emitted_alone() -> None:
    play = Play(0, 5, how="full", early="every batch")
    assert play.step([("a", 1)], [("a", 2)]) == ["+ a 1 ~ 2 matched"]


# A batch.


def test_a_batch_is_the_relational_join() -> None:
    play = Play(0, 5, how="full", early="every batch", stragglers="route")
    rows = play.packed([("a", 100), ("a", 1), ("c", 1)], [("a", 3), ("b", None), ("d", 2)])
    found = IntervalCore().run(play.spec, rows).rows
    results = found.filter(found.column("late").is_null())
    assert describe(results) == [
        "+ a 1 ~ 3 matched",
        "+ a 100 ~ None expired",
        "+ c 1 ~ None expired",
        "+ d None ~ 2 expired",
    ]
    assert len(found) - len(results) == 1  # what has no time


def test_a_stream_joined_with_itself() -> None:
    play = Play(1, 5)
    rows = [("a", 1), ("a", 3), ("a", 9)]
    assert play.step(rows, rows) == ["+ a 1 ~ 3 matched"]


# What a wrong line would get wrong.


def test_a_row_on_time_matches_the_last_row_that_waited_for_it() -> None:
    """The left row's last partner is behind the watermark when it comes, and so is its partner."""
    play = Play(-9, -4, how="left", stragglers="retract", allowed_lateness=4_000)
    play.step([], [("a", 10_006)], 10_006)
    assert play.step([("a", 10_010)], [], 10_006) == ["+ a 10010 ~ 10006 matched"]


def test_a_left_straggler_with_a_final_partner_is_a_late_match() -> None:
    play = Play(0, 5_000, how="right", stragglers="retract", allowed_lateness=4_000)
    assert play.step([], [("a", 10_000)], 10_000) == ["+ a None ~ 10000 expired"]
    assert play.step([("a", 9_000)], [], 10_000) == [
        "+ a 9000 ~ 10000 late_match",
        "- a None ~ 10000 expired",
    ]


def test_keys_with_the_same_hash_do_not_match() -> None:
    with mock.patch.object(side_state, "xxhash64", lambda keys: np.zeros(len(keys[0]), np.int64)):
        found = Play(0, 9).step([("a", 1), ("b", 1)], [("b", 2), ("a", 5), ("c", 1)])
    assert found == ["+ a 1 ~ 5 matched", "+ b 1 ~ 2 matched"]


def test_null_keys_are_never_compared() -> None:
    """A thousand of them on each side would be a million pairs."""
    with mock.patch.object(interval, "expand", wraps=interval.expand) as looked:
        play = Play(0, 9, how="full")
        for _ in range(2):
            play.step([(None, 1)] * 1_000, [(None, 1)] * 1_000)
    assert [int((ends - starts).sum()) for (starts, ends), _ in looked.call_args_list] == [0] * 4


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_whether_a_row_has_a_partner_is_decided_without_building_pairs(how: str) -> None:
    """A thousand rows of one key on each side would be a million pairs."""
    with mock.patch.object(interval, "expand", wraps=interval.expand) as looked:
        play = Play(0, 9, how=how)
        found = play.step([("a", 1)] * 1_000, [("a", 2)] * 1_000, 20)
    assert found == ["+ a 1 matched"] * (1_000 if how == "semi" else 0)
    assert sum(int((ends - starts).sum()) for (starts, ends), _ in looked.call_args_list) == 0


def test_a_partner_behind_one_of_another_key_with_the_same_hash_is_found() -> None:
    with mock.patch.object(side_state, "xxhash64", lambda keys: np.zeros(len(keys[0]), np.int64)):
        play = Play(0, 9, how="semi")
        assert play.step([("a", 1), ("c", 1)], [("b", 2), ("a", 5)], 5) == ["+ a 1 matched"]
        assert play.step([], [("b", 6), ("c", 7)], 12) == ["+ c 1 matched"]
        assert play.state.rows == 0 or play.stored[0] == []
