"""Alarms depend on what micro-batches told, and not on how little of it is remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.observe import LateRows, LateShare, PoisonedWatermark, StuckWatermark
from streamops.observe.core.episodes import QUIET, take_in
from streamops.observe.core.facts import Facts, History, remember
from streamops.observe.core.rules import Rule
from tests.oracles.alarms import alarms, groups

pytestmark = pytest.mark.laws

HOUR = 3_600_000_000
NOW = 1_700_000_000_000_000
numbers = st.sampled_from([0, 0, 0, 1, 2, 5, None])


@st.composite
def facts(draw: st.DrawFn, calm: bool = False) -> list[Facts]:
    """Micro-batches of one run: some without rows, operators that come and say nothing.

    Calm: with rows, and a watermark that seldom moves.
    """
    made = []
    marks = [NOW] * 12 + [NOW + 1] if calm else [NOW] * 4 + [0, NOW + HOUR + 1, None]
    near = st.sampled_from([NOW - 1, NOW, NOW + 1, NOW + 2, *([] if calm else [NOW + HOUR + 1])])
    for batch in range(draw(st.integers(1, 14))):
        has_rows = calm or draw(st.sampled_from([True, True, False]))
        counts: dict[str, dict[str, Any]] = {}
        if draw(st.booleans()):
            words = ("on_time", "stragglers", "too_late", "rejected")
            counts["window"] = {word: draw(numbers) for word in words}
        if draw(st.booleans()):
            counts["native"] = {"rows": draw(numbers), "dropped": draw(numbers)}
        if has_rows and draw(st.booleans()):
            counts["producers"] = {
                "rows": draw(st.sampled_from([1, 1, 1, None])),
                "held_by": draw(st.sampled_from(["a", "a", None])),
                "led_by": "b",
                "clock_micros": draw(st.sampled_from([NOW, NOW + 1])),
                "newest_micros": draw(st.one_of(st.none(), near)),
            }
        made.append(
            Facts(
                query="q",
                run="r",
                batch=batch,
                started=NOW + batch // 8,
                rows=draw(st.integers(1, 3)) if has_rows else 0,
                watermark=draw(st.sampled_from(marks)),
                newest=draw(st.one_of(st.none(), near)) if has_rows else None,
                counts=counts,
            )
        )
    return made


rules = st.one_of(
    st.builds(LateRows, st.integers(1, 6), batches=st.integers(1, 4)),
    st.builds(LateRows, st.integers(1, 6), batches=st.just(2), counts=st.just("too_late")),
    st.builds(
        LateShare,
        st.sampled_from([0.1, 0.25, 0.5, 1]),
        batches=st.integers(1, 4),
        at_least=st.integers(1, 9),
    ),
    st.builds(StuckWatermark, st.integers(3, 5)),
    st.just(PoisonedWatermark()),
)


def told(said: list[Rule], of: list[Facts]) -> list[set[tuple[str, str]]]:
    watch, due = QUIET, []
    for each in of:
        watch, raised = take_in(said, watch, each)
        due.append({(alarm.code, alarm.operator) for alarm in raised})
        assert len(watch.history) <= max(rule.remembers for rule in said)
        for alarm in raised:
            assert (alarm.query, alarm.run, alarm.batch) == ("q", "r", each.batch)
    return due


@given(said=st.lists(rules, min_size=1, max_size=3), of=facts())
def test_alarms_are_those_of_the_whole_history(said: list[Rule], of: list[Facts]) -> None:
    assert told(said, of) == alarms(said, of)


@given(batches=st.integers(3, 4), of=facts(calm=True))
def test_a_watermark_is_stuck_as_the_whole_history_says(batches: int, of: list[Facts]) -> None:
    said: list[Rule] = [StuckWatermark(batches)]
    assert told(said, of) == alarms(said, of)


@given(said=rules, of=facts())
def test_an_alarm_is_raised_once_for_each_episode(said: Rule, of: list[Facts]) -> None:
    # With itself beside it, and with others, a rule says what it says alone.
    assert told([said, said], of) == told([said], of)
    both = told([said, PoisonedWatermark()], of)
    own = [{each for each in due if each[0] == said.code} for due in both]
    assert own == told([said], of)


@given(of=facts(), most=st.integers(1, 4))
def test_micro_batches_without_rows_belong_to_the_one_before(of: list[Facts], most: int) -> None:
    # However often Spark closes windows in between, the history is the same.
    once: History = ()
    often: History = ()
    for each in of:
        once = remember(once, each, most)
        if often and not each.rows:
            often = remember(often, replace(each, counts={}), most)
        often = remember(often, each, most)
    assert once == often
    assert len(once) == min(most, len(groups(of)))
