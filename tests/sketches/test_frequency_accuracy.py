"""Heavy hitters and count-min keep over a million rows what they promise."""

from __future__ import annotations

import pytest

from tests.sketches.frequency_accuracy import STREAMS, counted, heavy, zipf

pytestmark = pytest.mark.laws


@pytest.mark.parametrize("parts", [1, 10, 100])
@pytest.mark.parametrize("name", STREAMS)
def test_no_item_with_the_share_is_missing_and_all_bounds_hold(name: str, parts: int) -> None:
    found = heavy(STREAMS[name](), parts=parts)
    assert (found.missing, found.outside) == (0, 0)
    assert found.error <= found.promised
    assert found.least_share >= 0.0075


@pytest.mark.parametrize("name", STREAMS)
def test_counts_are_not_below_the_truth_and_within_the_error_at_the_confidence(name: str) -> None:
    found = counted(STREAMS[name]())
    assert found.below == 0
    assert found.beyond <= 0.01
    assert found.promised == 1_000


@pytest.mark.parametrize("relative_error", [0.1, 0.02, 0.001])
@pytest.mark.parametrize("confidence", [0.6, 0.86, 0.95, 0.998])
def test_tables_of_any_size_have_the_confidence(relative_error: float, confidence: float) -> None:
    for exponent in (1.1, 1.5):
        found = counted(zipf(exponent)[:200_000], relative_error, confidence)
        assert found.below == 0
        assert found.beyond <= 1 - confidence
