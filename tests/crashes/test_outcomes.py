"""Every call of a lake's sink that takes effect without an answer, twice, or not: no row and no file is lost."""

from __future__ import annotations

import pytest

from tests.crashes.outcomes import LAKES, OUTCOMES, pass_outcomes

QUICK = {
    ("Iceberg", "upsert", "driver", "repeated"),
    ("Iceberg", "append", "driver", "lost"),
    ("Delta", "upsert", "tasks", "repeated"),
    *(("Delta", "changes", "driver", outcome) for outcome in OUTCOMES),
    *(("Parquet", "append", "tasks", outcome) for outcome in OUTCOMES),
}
POINTS = [
    (name, form, way, outcome)
    for name, lake in LAKES.items()
    for form in lake.forms
    for way in ("driver", "tasks")
    for outcome in OUTCOMES
]


@pytest.mark.parametrize(
    ("name", "form", "way", "outcome"),
    [
        pytest.param(*point, marks=[] if point in QUICK else pytest.mark.exhaustive)
        for point in POINTS
    ],
)
def test_no_row_is_lost_or_twice(name: str, form: str, way: str, outcome: str) -> None:
    found = pass_outcomes(LAKES[name], form, way, outcome)
    assert found.calls >= 3
    assert found.reported + found.unnoticed == found.calls
