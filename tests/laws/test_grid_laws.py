"""Calendar and cumulative windows keep every law of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import given

from streamops.testing import laws
from streamops.testing.laws.cases import play, times_of
from tests.laws.grid_strategies import calendars, cumulatives
from tests.oracles.windows import GridOracle

pytestmark = pytest.mark.laws


@pytest.mark.parametrize("law", laws.CORE)
@given(case=calendars())
def test_calendar_windows_keep_the_law_that(
    law: Callable[[laws.Case], None], case: laws.Case
) -> None:
    law(case)


@pytest.mark.parametrize("law", laws.CORE)
@given(case=cumulatives())
def test_cumulative_windows_keep_the_law_that(
    law: Callable[[laws.Case], None], case: laws.Case
) -> None:
    law(case)


@given(case=calendars() | cumulatives())
def test_every_pair_of_a_row_and_a_window_is_judged_once(case: laws.Case) -> None:
    oracle = case.oracle()
    assert isinstance(oracle, GridOracle)
    for step, batch in zip(play(case), case.batches, strict=True):
        pairs = sum(len(oracle.windows_of(instant)) for instant in times_of(case.spec, batch))
        counts = step.counts
        assert pairs == counts.on_time + counts.stragglers + counts.too_late, asdict(counts)
