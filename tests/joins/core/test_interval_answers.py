"""Interval joins in which a left row is joined with one of its partners: its answer."""

from __future__ import annotations

from itertools import permutations, product
from unittest import mock

import numpy as np
import pytest

from streamops.joins.core import side_state
from streamops.testing.laws import to_rows
from tests.joins.core.play import Play


def test_the_first_is_emitted_once_no_earlier_partner_can_arrive() -> None:
    play = Play(0, 9, how="left", matches="first", tie_break="n")
    assert play.step([("a", 1)], [("a", 5), ("a", 4)], 3) == []
    assert play.step([], [("a", 6)], 4) == ["+ a 1 ~ 4 matched"]
    assert play.step([], [("a", 7)], 99) == []


def test_the_last_is_emitted_once_no_later_partner_can_arrive() -> None:
    play = Play(0, 9, how="left", matches="last", tie_break="n")
    assert play.step([("a", 1)], [("a", 4)], 9) == []
    assert play.step([], [("a", 10), ("a", 11)], 10) == ["+ a 1 ~ 10 matched"]


def test_the_tie_break_orders_partners_with_the_same_time() -> None:
    for matches, n in (("first", 3), ("last", 8)):
        play = Play(0, 9, matches=matches, tie_break="n")
        step = play.stepped([("a", 1)], [("a", 4, 8), ("a", 4, 3), ("a", 4, 5)], 10)
        assert [row["n_right"] for row in to_rows(step.output)] == [n]


def test_equal_tie_breaks_are_ordered_by_values_in_any_order_of_arrival() -> None:
    clicks = [("a", 4, 7, None), ("a", 4, 7, 0.5), ("a", 4, 7, -1.0)]
    for matches, number in (("first", None), ("last", 0.5)):
        for arrived, cut in product(permutations(clicks), range(4)):
            play = Play(0, 9, matches=matches, tie_break="n")
            steps = [
                play.stepped([("a", 1)], arrived[:cut], 3),
                play.stepped([], arrived[cut:], 10),
            ]
            found = [row["number_right"] for step in steps for row in to_rows(step.output)]
            assert found == [number]


def test_a_tie_break_that_is_null_is_below_all_others() -> None:
    for matches, n in (("first", None), ("last", 3)):
        play = Play(0, 9, matches=matches, tie_break="n")
        step = play.stepped([("a", 1)], [("a", 4, 3), ("a", 4, None)], 10)
        assert [row["n_right"] for row in to_rows(step.output)] == [n]


def test_one_click_can_be_the_first_of_two_searches() -> None:
    play = Play(0, 9, matches="first", tie_break="n")
    found = play.step([("a", 1), ("a", 2)], [("a", 4)], 4)
    assert found == ["+ a 1 ~ 4 matched", "+ a 2 ~ 4 matched"]


def test_a_partner_is_stored_as_long_as_it_can_be_an_answer() -> None:
    play = Play(0, 9, how="left", matches="last", tie_break="n")
    play.step([("a", 3)], [("a", 4)], 11)
    assert play.stored == ([3], [4])
    assert play.step([], [], 12) == ["+ a 3 ~ 4 matched"]
    assert play.step([], [], 13) == []
    assert play.stored == ([], [])


def test_a_straggler_that_was_the_first_replaces_the_answer() -> None:
    play = Play(0, 5_000, matches="first", tie_break="n", stragglers="retract",
                allowed_lateness=9_000)  # fmt: skip
    assert play.step([("a", 1_000)], [("a", 4_000)], 4_500) == ["+ a 1000 ~ 4000 matched"]
    assert play.step([], [("a", 3_000)], 4_500) == [
        "+ a 1000 ~ 3000 late_match",
        "- a 1000 ~ 4000 matched",
    ]
    assert play.step([], [("a", 2_000)], 4_500) == [
        "+ a 1000 ~ 2000 late_match",
        "- a 1000 ~ 3000 late_match",
    ]


def test_early_the_preliminary_answer_is_emitted_and_replaced() -> None:
    play = Play(0, 9, matches="last", tie_break="n", early="every batch")
    assert play.step([("a", 1)], [("a", 4)]) == ["+ a 1 ~ 4 early"]
    assert play.step([], [("a", 6)]) == ["+ a 1 ~ 6 early", "- a 1 ~ 4 early"]
    assert play.step([], [], 10) == ["+ a 1 ~ 6 matched", "- a 1 ~ 6 early"]


def test_an_unchanged_answer_is_not_emitted_again() -> None:
    play = Play(0, 5_000, matches="first", tie_break="n", stragglers="retract",
                allowed_lateness=9_000)  # fmt: skip
    play.step([("a", 1_000)], [("a", 4_000)], 4_500)
    assert len(play.step([], [("a", 2_000)], 4_500)) == 2
    assert play.step([], [("a", 3_000)], 4_500) == []
    assert play.step([("b", 9_000)], [], 4_500) == []


def test_an_answer_before_the_row_is_stored_no_longer_than_the_row() -> None:
    play = Play(-9, -4, matches="last", tie_break="n")
    play.step([], [("a", 6)], 14)
    assert play.stored == ([], [6])
    play.step([], [], 15)
    assert play.stored == ([], [])


def test_a_row_with_a_published_answer_is_evicted_unless_corrections_are_possible() -> None:
    play = Play(0, 9, matches="first", tie_break="n")
    assert play.step([("a", 1)], [("a", 4)], 4) == ["+ a 1 ~ 4 matched"]
    assert play.stored == ([], [4])


@pytest.mark.parametrize(("matches", "time"), [("first", 2), ("last", 9)])
def test_an_answer_is_never_a_row_of_another_key_with_the_same_hash(
    matches: str, time: int
) -> None:
    with mock.patch.object(side_state, "xxhash64", lambda keys: np.zeros(len(keys[0]), np.int64)):
        play = Play(0, 9, matches=matches, tie_break="n")
        play.step([("a", 1), ("b", 1)], [("b", 2), ("b", 9), ("a", 5), ("c", 1), ("c", 10)])
        assert play.step([], [], 10) == ["+ a 1 ~ 5 matched", f"+ b 1 ~ {time} matched"]
