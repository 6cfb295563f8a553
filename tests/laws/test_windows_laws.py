"""The windows keep every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.lateness import (
    every_late_row_in_the_side_output_is_counted,
    every_pair_of_a_row_and_a_window_is_counted_once,
)
from tests.laws.strategies import histories

pytestmark = pytest.mark.laws

CLASSIFIED = (
    every_pair_of_a_row_and_a_window_is_counted_once,
    every_late_row_in_the_side_output_is_counted,
)


@given(case=histories())
def test_windows_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, (*laws.CORE, *CLASSIFIED))
