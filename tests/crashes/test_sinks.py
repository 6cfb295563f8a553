"""A driver crashes at each step of a micro-batch: rows are in the target once, and nothing is left behind."""

from __future__ import annotations

import pytest

from tests.crashes.sinks import SYSTEMS, pass_points
from tests.laws.sink_histories import FIXED


@pytest.mark.parametrize(
    ("name", "form", "way"),
    [
        ("Parquet", "append", "driver"),
        ("Parquet", "changes", "tasks"),
        ("Delta", "upsert", "driver"),
        pytest.param("Iceberg", "append", "tasks", marks=pytest.mark.exhaustive),
        ("Iceberg", "changes", "driver"),
        ("SQLite", "multiset", "driver"),
    ],
)
def test_rows_are_there_once_wherever_a_driver_crashes(name: str, form: str, way: str) -> None:
    system = SYSTEMS[name]
    with system.open() as new_target:
        found = pass_points(system, new_target, FIXED[form], way, seed=1)
    assert found.points > 15
    assert found[1:] == (0, 0, 0)
