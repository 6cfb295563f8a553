"""The benchmarks build every operator that they measure, with the options that they set."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from benchmarks.cpu import read_started
from benchmarks.open_windows import measure, show
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


def test_open_windows_are_filled_and_close() -> None:
    cost = measure(windows=3_000, batches=1)
    assert (cost.windows, cost.shards, len(cost.batches)) == (3_000, 8, 1)
    assert cost.stored > 3_000
    assert "| 3,000 | 8 |" in show(cost)


BUSY = "while :; do :; done"


def test_the_cpu_of_processes_that_a_benchmark_started_counts_also_after_their_end() -> None:
    before = read_started()
    child = subprocess.Popen(["sh", "-c", f"({BUSY}) & {BUSY}"], start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while read_started() - before < 0.4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert read_started() - before >= 0.05  # of the one that is waited for; both had about half


def test_the_cpu_of_other_processes_does_not_count() -> None:
    # Its parent ends at once, so it is a process of nobody here.
    shell = subprocess.run(
        ["sh", "-c", f"({BUSY}) >/dev/null 2>&1 & echo $!"], capture_output=True, text=True
    )
    pid = int(shell.stdout)
    try:
        before = read_started()
        deadline = time.monotonic() + 30
        while _used(pid) < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert read_started() - before < 0.1
    finally:
        os.kill(pid, signal.SIGKILL)


def _used(pid: int) -> float:
    """CPU seconds of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
