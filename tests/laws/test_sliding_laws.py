"""Sliding windows keep every law of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from unittest import mock

import pytest
from hypothesis import given

from streamops.testing import laws
from streamops.testing.laws.cases import play, times_of
from streamops.windows.core import ranges
from tests.laws.sliding_strategies import histories

pytestmark = pytest.mark.laws


@pytest.mark.parametrize("law", laws.CORE)
@given(case=histories())
def test_sliding_windows_keep_the_law_that(
    law: Callable[[laws.Case], None], case: laws.Case
) -> None:
    law(case)


@given(case=histories())
def test_every_row_is_judged_once(case: laws.Case) -> None:
    for step, batch in zip(play(case), case.batches, strict=True):
        counts = step.counts
        judged = counts.on_time + counts.stragglers + counts.too_late
        assert judged == len(times_of(case.spec, batch)), asdict(counts)


@given(case=histories())
def test_every_late_row_that_is_delivered_is_counted_as_late(case: laws.Case) -> None:
    for step in play(case):
        counts = step.counts
        if case.spec.routes:
            late = counts.too_late + (0 if case.spec.corrects else counts.stragglers)
            assert len(step.late) == late + counts.rejected
        else:
            assert len(step.late) == 0


LONG = ("equals_the_oracle", "stream_equals_batch", "order_within_a_batch_is_irrelevant")


@pytest.mark.parametrize("law", [law for law in laws.CORE if law.__name__ in LONG])
@given(case=histories())
def test_windows_of_many_events_keep_the_law_that(
    law: Callable[[laws.Case], None], case: laws.Case
) -> None:
    with mock.patch.object(ranges, "_FEW", 0):  # what has more than an event is made of blocks
        law(case)
