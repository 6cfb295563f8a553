"""Alarms are those of the whole history of a run, although only part of it is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.observe import LateRows, LateShare, PoisonedWatermark, StuckWatermark
from streamops.observe.core.alarms import (
    History,
    Rule,
    Run,
    append_progress,
    raise_alarms,
)
from streamops.observe.core.progress import Progress
from tests.oracles.alarms import alarms, groups

pytestmark = pytest.mark.laws

HOUR = 3_600_000_000
NOW = 1_700_000_000_000_000
numbers = st.sampled_from([0, 0, 0, 1, 2, 5, None])


@st.composite
def runs(draw: st.DrawFn, calm: bool = False) -> list[Progress]:
    """Micro-batches of one run: some without rows, some operators without metrics.

    Calm: all have rows, and the watermark rarely changes.
    """
    batches = []
    watermarks = [NOW] * 12 + [NOW + 1] if calm else [NOW] * 4 + [0, NOW + HOUR + 1, None]
    near = st.sampled_from([NOW - 1, NOW, NOW + 1, NOW + 2, *([] if calm else [NOW + HOUR + 1])])
    for batch in range(draw(st.integers(1, 14))):
        has_rows = calm or draw(st.sampled_from([True, True, False]))
        metrics: dict[str, dict[str, Any]] = {}
        if draw(st.booleans()):
            names = ("on_time", "stragglers", "too_late", "rejected")
            metrics["window"] = {name: draw(numbers) for name in names}
        if draw(st.booleans()):
            metrics["native"] = {"rows": draw(numbers), "dropped": draw(numbers)}
        if has_rows and draw(st.booleans()):
            metrics["producers"] = {
                "rows": draw(st.sampled_from([1, 1, 1, None])),
                "held_by": draw(st.sampled_from(["a", "a", None])),
                "led_by": "b",
                "clock_micros": draw(st.sampled_from([NOW, NOW + 1])),
                "newest_micros": draw(st.one_of(st.none(), near)),
            }
        batches.append(
            Progress(
                query="q",
                run="r",
                batch=batch,
                started=NOW + batch // 8,
                rows=draw(st.integers(1, 3)) if has_rows else 0,
                watermark=draw(st.sampled_from(watermarks)),
                newest=draw(st.one_of(st.none(), near)) if has_rows else None,
                metrics=metrics,
            )
        )
    return batches


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


def raised(chosen: list[Rule], batches: list[Progress]) -> list[set[tuple[str, str]]]:
    run, codes = Run(), []
    for batch in batches:
        run, alarms_of_batch = raise_alarms(chosen, run, batch)
        codes.append({(alarm.code, alarm.operator) for alarm in alarms_of_batch})
        assert len(run.history) <= max(rule.batches for rule in chosen)
        for alarm in alarms_of_batch:
            assert (alarm.query, alarm.run, alarm.batch) == ("q", "r", batch.batch)
    return codes


@given(chosen=st.lists(rules, min_size=1, max_size=3), batches=runs())
def test_alarms_are_those_of_the_whole_history(chosen: list[Rule], batches: list[Progress]) -> None:
    assert raised(chosen, batches) == alarms(chosen, batches)


@given(length=st.integers(3, 4), batches=runs(calm=True))
def test_a_stuck_watermark_is_that_of_the_whole_history(
    length: int, batches: list[Progress]
) -> None:
    chosen: list[Rule] = [StuckWatermark(length)]
    assert raised(chosen, batches) == alarms(chosen, batches)


@given(rule=rules, batches=runs())
def test_an_alarm_is_raised_once_per_episode(rule: Rule, batches: list[Progress]) -> None:
    # Other rules, and a second copy of the rule, make no difference.
    alone = raised([rule], batches)
    assert raised([rule, rule], batches) == alone
    both = raised([rule, PoisonedWatermark()], batches)
    assert [{alarm for alarm in due if alarm[0] == rule.code} for due in both] == alone


@given(batches=runs(), length=st.integers(1, 4))
def test_micro_batches_without_rows_are_merged_into_the_previous_one(
    batches: list[Progress], length: int
) -> None:
    # The history does not depend on how often Spark closes windows in between.
    once: History = ()
    often: History = ()
    for batch in batches:
        once = append_progress(once, batch, length)
        if often and not batch.rows:
            often = append_progress(often, replace(batch, metrics={}), length)
        often = append_progress(often, batch, length)
    assert once == often
    assert len(once) == min(length, len(groups(batches)))
