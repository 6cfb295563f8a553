"""Comparisons with the previous period keep every law of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import given

from streamops.testing import laws
from streamops.testing.laws.cases import play, times_of
from tests.laws.compare_strategies import histories

pytestmark = pytest.mark.laws


@pytest.mark.parametrize("law", laws.CORE)
@given(case=histories())
def test_comparisons_keep_the_law_that(law: Callable[[laws.Case], None], case: laws.Case) -> None:
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
