"""Sliding windows keep every law of a core."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given

from streamops.testing import laws
from streamops.windows.core import sliding
from tests.laws.lateness import (
    every_late_row_in_the_side_output_is_counted,
    every_row_is_counted_once,
)
from tests.laws.sliding_strategies import histories

pytestmark = pytest.mark.laws

CLASSIFIED = (every_row_is_counted_once, every_late_row_in_the_side_output_is_counted)
LONG = ("equals_the_oracle", "stream_equals_batch", "order_within_a_batch_is_irrelevant")


@given(case=histories())
def test_sliding_windows_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case, (*laws.CORE, *CLASSIFIED))


@given(case=histories())
def test_windows_of_many_events_keep_the_laws(case: laws.Case) -> None:
    with mock.patch.object(sliding, "_FEW", 0):  # windows of two events are merged in blocks
        laws.check_laws(case, [law for law in laws.CORE if law.__name__ in LONG])
