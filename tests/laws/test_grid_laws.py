"""Calendar and cumulative windows keep every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.grid_strategies import calendars, cumulatives
from tests.laws.lateness import every_pair_of_a_row_and_a_window_is_counted_once

pytestmark = pytest.mark.laws

LAWS = (*laws.CORE, every_pair_of_a_row_and_a_window_is_counted_once)


@given(case=calendars())
def test_calendar_windows_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, LAWS)


@given(case=cumulatives())
def test_cumulative_windows_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, LAWS)
