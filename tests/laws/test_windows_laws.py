"""The windows keep every law of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import given

from streamops.testing import laws
from streamops.testing.laws.cases import play, times_of
from tests.laws.strategies import histories
from tests.oracles.windows import GridOracle

pytestmark = pytest.mark.laws


@pytest.mark.parametrize("law", laws.CORE)
@given(case=histories())
def test_windows_keep_the_law_that(law: Callable[[laws.Case], None], case: laws.Case) -> None:
    law(case)


@given(case=histories())
def test_every_pair_of_a_row_and_a_window_is_judged_once(case: laws.Case) -> None:
    oracle = case.oracle()
    assert isinstance(oracle, GridOracle)
    for step, batch in zip(play(case), case.batches, strict=True):
        pairs = sum(len(oracle.windows_of(instant)) for instant in times_of(case.spec, batch))
        counts = step.counts
        assert pairs == counts.on_time + counts.stragglers + counts.too_late, asdict(counts)


@given(case=histories())
def test_every_late_row_that_is_delivered_is_counted_as_late(case: laws.Case) -> None:
    for step in play(case):
        counts = step.counts
        if case.spec.routes:
            late = counts.too_late
            late += 0 if case.spec.corrects else counts.stragglers
            assert len(step.late) == late + counts.rejected
        else:
            assert len(step.late) == 0
