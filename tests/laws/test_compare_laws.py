"""Comparisons with the previous period keep every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.compare_strategies import histories
from tests.laws.judging import (
    every_late_row_that_is_delivered_is_counted_as_late,
    every_row_is_judged_once,
)

pytestmark = pytest.mark.laws

JUDGED = (every_row_is_judged_once, every_late_row_that_is_delivered_is_counted_as_late)


@given(case=histories())
def test_comparisons_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, (*laws.CORE, *JUDGED))
