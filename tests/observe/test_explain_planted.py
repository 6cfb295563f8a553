"""Planted causes: every reason is the one that was planted, in operators and chains."""

from __future__ import annotations

import pytest

from tests.observe.planted import SUBJECTS, campaign


def test_the_reason_is_the_planted_one() -> None:
    failures, _, causes = campaign(2 * len(SUBJECTS), seed=7)
    assert not failures, failures[0]
    assert sum(causes.values()) == 2 * len(SUBJECTS)
    assert {"result", "open", "late", "rejected", "no_rows", "alone"} <= set(causes)


@pytest.mark.exhaustive
def test_the_reason_is_the_planted_one_ten_thousand_times() -> None:
    failures, _, causes = campaign(10_000, seed=1)
    assert not failures, failures[0]
    # Half of the questions are about results that do not exist.
    assert 0.4 < (causes["result"] + causes["open"]) / sum(causes.values()) < 0.6
