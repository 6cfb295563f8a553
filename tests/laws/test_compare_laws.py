"""Comparisons with the previous period keep every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.compare_strategies import histories
from tests.laws.lateness import (
    every_late_row_in_the_side_output_is_counted,
    every_row_is_counted_once,
)

pytestmark = pytest.mark.laws

CLASSIFIED = (every_row_is_counted_once, every_late_row_in_the_side_output_is_counted)


@given(case=histories())
def test_comparisons_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, (*laws.CORE, *CLASSIFIED))
