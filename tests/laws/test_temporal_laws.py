"""Temporal joins keep every law of a core with two inputs."""

from __future__ import annotations

import pytest
from hypothesis import given

from streamops.testing import laws
from tests.laws.temporal_strategies import histories

pytestmark = pytest.mark.laws


@given(case=histories())
def test_temporal_joins_keep_every_law(case: laws.PairCase) -> None:
    laws.keep_pair(case)
