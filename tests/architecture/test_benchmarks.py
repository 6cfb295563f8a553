"""The benchmarks build every operator that they measure, with the options that they set."""

from __future__ import annotations

import pytest

from benchmarks.operators import build_join, build_window
from benchmarks.workloads import WORKLOADS
from streamops.spark.definition import StateApi

WORKLOAD_NAMES = sorted({name for _, name in WORKLOADS.values()})
JOINS = {"interval", "temporal", "tables", "search"}


@pytest.mark.parametrize("workload", WORKLOAD_NAMES)
def test_every_workload_has_an_operator(workload: str) -> None:
    operator = build_join(workload, None) if workload in JOINS else build_window(workload)
    api: StateApi = "applyInPandasWithState"
    assert operator.options(engine="kernel", state_api=api, shards=None).execution.state_api == api


def test_a_workload_without_an_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match="'temporal'"):
        build_window("temporal")
    with pytest.raises(ValueError, match="'session'"):
        build_join("session", None)
