"""A small run of every workload of the comparison by streamops and by Spark's own operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measure import RunFailed
from benchmarks.peers.inputs import SMALL, WORKLOADS, standard
from benchmarks.peers.running import check_all
from benchmarks.peers.systems import SYSTEMS

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["streamops", "native"])
def test_results_of_every_workload_are_the_expected_ones(name: str, tmp_path: Path) -> None:
    system = SYSTEMS[name]
    names = [windows for windows in WORKLOADS if windows not in system.lacks]
    small = [standard(windows, 100_000, SMALL) for windows in names]
    found = {workload.windows: outcome for workload, outcome in check_all(system, small, tmp_path)}
    assert {
        windows: outcome for windows, outcome in found.items() if isinstance(outcome, RunFailed)
    } == {}
    assert list(found) == names
