"""Sessions keep every law of a core."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.lateness import every_row_is_counted_once
from tests.laws.session_strategies import histories

pytestmark = pytest.mark.laws


@given(case=histories())
def test_sessions_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, (*laws.CORE, every_row_is_counted_once))
