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


@given(case=histories(waits_for="facts"))
def test_joins_whose_facts_lead_the_watermark_keep_every_law_of_late_rows(
    case: laws.PairCase,
) -> None:
    # A version can be late that came before all facts: its time has no part in the watermark.
    laws.keep_pair(case, [law for law in laws.PAIR if law.__name__ != "stream_equals_batch"])
