"""Sessions keep every law of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import given

from streamops.testing import laws
from streamops.testing.laws.cases import play, times_of
from tests.laws.session_strategies import histories

pytestmark = pytest.mark.laws


@pytest.mark.parametrize("law", laws.CORE)
@given(case=histories())
def test_sessions_keep_the_law_that(law: Callable[[laws.Case], None], case: laws.Case) -> None:
    law(case)


@given(case=histories())
def test_every_row_is_judged_once(case: laws.Case) -> None:
    for step, batch in zip(play(case), case.batches, strict=True):
        counts = step.counts
        judged = counts.on_time + counts.stragglers + counts.too_late
        assert judged == len(times_of(case.spec, batch)), asdict(counts)
