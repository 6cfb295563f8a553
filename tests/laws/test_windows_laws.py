"""The windows keep every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.judging import (
    every_late_row_that_is_delivered_is_counted_as_late,
    every_pair_of_a_row_and_a_window_is_judged_once,
)
from tests.laws.strategies import histories

pytestmark = pytest.mark.laws

JUDGED = (
    every_pair_of_a_row_and_a_window_is_judged_once,
    every_late_row_that_is_delivered_is_counted_as_late,
)


@given(case=histories())
def test_windows_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, (*laws.CORE, *JUDGED))
