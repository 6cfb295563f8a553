"""Pattern matching keeps every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from streamops.kernel.core import Metrics, State
from streamops.kernel.time import MAX_INSTANT
from streamops.testing import laws
from streamops.testing.laws.cases import play, same_tables
from streamops.testing.laws.cores import (
    stream_equals_batch,
    stream_equals_batch_over_accepted_rows,
    the_deadline_is_exact,
)
from tests.laws.pattern_strategies import histories

pytestmark = pytest.mark.laws


def nothing_happens_before_the_deadline(case: laws.Case) -> None:
    """A step without rows changes nothing before ``next_deadline``.

    At the deadline a row is released, which may neither complete a match nor free state.
    """
    core, spec, no_rows = case.core, case.spec, case.pack(case.empty_batch())

    def step_before_deadline(state: State) -> State:
        deadline = core.next_deadline(spec, state)
        assert deadline is None or state.watermark is None or deadline > state.watermark
        before = MAX_INSTANT - 1 if deadline is None else deadline - 1
        early = core.step(spec, state, no_rows, before)
        assert not len(early.output) + len(early.late), f"before {deadline}: {early}"
        assert early.metrics == Metrics() + type(early.metrics)()
        same_tables(state, early.state, "before the deadline")
        return state

    play(case, case.batches, between=step_before_deadline)


LAWS = [law for law in laws.CORE if law is not the_deadline_is_exact]


@given(case=histories())
def test_patterns_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, [*LAWS, nothing_happens_before_the_deadline])


@given(case=histories(anchored=True))
def test_conditions_over_the_first_row_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, [*LAWS, nothing_happens_before_the_deadline])


DEPEND_ON_MICRO_BATCHES = (stream_equals_batch, stream_equals_batch_over_accepted_rows)


@given(case=histories(overflows=True))
def test_patterns_that_drop_rows_keep_every_law_but_stream_equals_batch(case: laws.Case) -> None:
    """Nor the deadline: a match that a dropped start held up is emitted by the next step, whenever it is."""
    laws.check_laws(case, [law for law in LAWS if law not in DEPEND_ON_MICRO_BATCHES])


def test_histories_with_too_many_rows_drop_some() -> None:
    """Else the law above would say nothing about dropping."""
    dropped: list[int] = []

    @settings(max_examples=50, derandomize=True, database=None)
    @given(case=histories(overflows=True))
    def count(case: laws.Case) -> None:
        dropped.append(sum(step.metrics.overflowed for step in case.steps))

    count()
    assert sum(number > 0 for number in dropped) > len(dropped) / 4
