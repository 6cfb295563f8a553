"""The comparison with other engines: its inputs, its check, its tables; and a small run of those installed."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from benchmarks.measure import RunFailed, compare
from benchmarks.peers import report
from benchmarks.peers.inputs import (
    KEYS,
    SMALL,
    WORKLOADS,
    drop_open,
    read_results,
    standard,
    write,
)
from benchmarks.peers.latency import Latency
from benchmarks.peers.running import Result, check_all
from benchmarks.peers.systems import PROGRAMS, SYSTEMS
from benchmarks.workloads import Workload

PEERS = [name for name, system in SYSTEMS.items() if system.package]


def small(windows: str, keys: int = 100_000) -> Workload:
    return standard(windows, keys, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_small_runs_of_a_peer_give_the_expected_results(name: str, tmp_path: Path) -> None:
    system = SYSTEMS[name]
    if not system.is_installed:
        pytest.skip(f"{name} is not installed: scripts/get-peers {name}")
    names = [windows for windows in WORKLOADS if windows not in system.lacks]
    found = {
        workload.windows: outcome
        for workload, outcome in check_all(system, map(small, names), tmp_path)
    }
    assert {
        windows: outcome for windows, outcome in found.items() if isinstance(outcome, RunFailed)
    } == {}
    assert list(found) == names


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("windows", WORKLOADS)
def test_every_check_has_results_to_compare(windows: str, keys: int) -> None:
    assert len(small(windows, keys).expected()) >= 10


def test_rows_of_one_key_and_time_have_one_sliding_window() -> None:
    workload = small("sliding")
    expected = workload.expected().rename(columns={"end": "ts"}).drop(columns="start")
    found = expected.assign(ts=pd.to_datetime(expected["ts"], unit="ms"))
    repeated = pd.concat([found, found[:3]])  # as engines emit it that have a row per event
    pd.testing.assert_frame_equal(drop_open(repeated, workload), found)
    other = pd.concat([found, found[:1].assign(n=0)])
    assert len(drop_open(other, workload)) == len(found) + 1


@pytest.mark.parametrize("form", ["csv", "millis"])
def test_every_format_has_the_same_rows_in_the_same_order(form: str, tmp_path: Path) -> None:
    workload = small("temporal")
    rows = {name: pd.DataFrame(columns) for name, (columns, _) in workload.inputs().items()}
    for name, folder in write(workload, form, tmp_path).items():
        files = sorted(Path(folder).iterdir())
        read = pd.read_csv if form == "csv" else pd.read_parquet
        found = pd.concat([read(file) for file in files], ignore_index=True)
        pd.testing.assert_frame_equal(found, rows[name])


def test_inputs_are_written_once(tmp_path: Path) -> None:
    folders = [write(small("tumbling"), "csv", tmp_path)["events"] for _ in range(2)]
    assert folders[0] == folders[1]
    assert {path.name for path in tmp_path.iterdir()} == {
        Path(folders[0]).parent.name,
        Path(folders[0]).parent.name.removesuffix("-csv"),
    }


def as_results(windows: str) -> pd.DataFrame:
    """The expected results of a workload over one stream, as an engine would have written them."""
    expected = small(windows).expected()
    times = {
        f"window_{name}": pd.to_datetime(expected[name], unit="ms") for name in ("start", "end")
    }
    return expected.drop(columns=["start", "end"]).assign(**times)


def test_a_wrong_result_is_found() -> None:
    found = as_results("tumbling")
    assert "each equal" in compare("engine", small("tumbling"), found)
    found.loc[5, "total"] += 0.25
    with pytest.raises(RunFailed, match="differs from the answer"):
        compare("engine", small("tumbling"), found)


def test_a_missing_result_is_found() -> None:
    with pytest.raises(RunFailed, match="differs from the answer"):
        compare("engine", small("tumbling"), as_results("tumbling").iloc[1:])


def test_windows_that_the_watermark_has_not_reached_are_not_compared() -> None:
    found = as_results("tumbling")
    open_window = found.iloc[[-1]].assign(window_end=found["window_end"].max() + pd.Timedelta("1h"))
    assert len(drop_open(pd.concat([found, open_window]), small("tumbling"))) == len(found)


def test_a_correction_without_its_retraction_is_found() -> None:
    found = as_results("corrections").assign(_change_type="insert")
    first = found.iloc[[0]].assign(n=1, total=0.0)
    taken_back = first.assign(_change_type="update_preimage")
    both = pd.concat([first, taken_back, found])
    assert "each equal" in compare("engine", small("corrections"), both)
    with pytest.raises(RunFailed, match="differs from the answer"):
        compare("engine", small("corrections"), pd.concat([first, found]))


def test_corrections_have_rows_behind_the_watermark() -> None:
    events = pd.DataFrame(small("corrections").events())
    behind = events["ts"].cummax() - events["ts"]
    assert (behind > 40_000).mean() > 0.03  # the delay, and the disorder of all events
    assert (behind < 240_000).all()  # within the delay and the allowed lateness


def test_differences_are_read_as_changes(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(
        "k,n,ts,time,diff\n1,2,1700000000000,4,1\n1,2,1700000000000,6,-1\n"
    )
    found = read_results(tmp_path)
    assert found["_change_type"].tolist() == ["insert", "delete"]
    assert found["ts"].tolist() == [pd.Timestamp("2023-11-14 22:13:20")] * 2


@pytest.mark.parametrize("name", PEERS)
def test_programs_of_peers_do_not_import_this_project(name: str) -> None:
    text = (PROGRAMS / SYSTEMS[name].program).read_text()
    assert "streamops" not in text
    assert "import benchmarks" not in text
    assert "from benchmarks" not in text


def test_every_engine_has_or_lacks_each_workload_with_a_reason() -> None:
    for system in SYSTEMS.values():
        reasons = {**system.lacks, **system.differs}
        assert set(reasons) <= set(WORKLOADS)
        assert all(reasons.values())
    assert not SYSTEMS["streamops"].lacks


RESULT = Result(
    system="streamops",
    windows="tumbling",
    keys=1_000,
    rows=1_010_000,
    cpu=4.5,
    divisor=1,
    small_rows=10_000,
    small_cpu=0.5,
    start_cpu=6.0,
    jvm=3.0,
    wall=2.0,
    lost_exits=0,
    load=0.1,
    check="equal",
)
LATENCY = Latency("streamops", "running", 1_000, 20_000, 500, 120.0, 480.0, False, 0.1)


def record(results: list[Result], failures: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "started": "2026-11-26T00:00:00+00:00",
        "quick": False,
        "machine": {"cpu": "a processor", "cores": 2, "memory_gib": 24, "pyspark": "4.3.0"},
        "versions": {"streamops": "0.1"},
        "runs": [asdict(result) | {"repeat": 0} for result in results],
        "latencies": [asdict(LATENCY) | {"repeat": 0}],
        "failures": failures,
    }


def test_a_small_run_is_subtracted() -> None:
    assert RESULT.per_million == 4.0


def test_tables_show_losses_and_what_an_engine_lacks() -> None:
    other = replace(RESULT, system="native", cpu=2.5)
    sliding = replace(RESULT, windows="sliding")
    failure = {
        "what": "cpu",
        "windows": "sliding",
        "system": "bytewax",
        "keys": 1_000,
        "repeat": 0,
        "reason": "it ended\nand more",
    }
    bytewax = replace(RESULT, system="flink", windows="distinct", cpu=9.5)
    text = report.page([record([RESULT, other, sliding, bytewax], [failure])])
    assert "| W1 tumbling | 4.00 | **2.00** |  |" in text
    assert "| W6 sliding | **4.00** | none |  |" in text
    assert "| W5 approximate distinct |  |  | **9.00** * |" in text
    assert "streamops needs the least of the engines that stream on 1 of 2." in text
    assert "- native, W6 sliding: no window per event on a stream" in text
    assert "- bytewax, W6 sliding, failed: it ended\n" in text + "\n"
    assert "| streamops |  |  | 120 | 480 |" in text


@pytest.mark.thorough
def test_the_chart_is_the_same_for_the_same_figures(tmp_path: Path) -> None:
    figures = {(1_000, "tumbling", "streamops"): [4.0], (1_000, "tumbling", "polars"): [0.1]}
    for name in ("one.svg", "other.svg"):
        report.draw(figures, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_all_inputs_of_the_two_sides_are_in_step(tmp_path: Path) -> None:
    folders = write(small("interval"), "parquet", tmp_path)
    counts = {name: len(list(Path(folder).iterdir())) for name, folder in folders.items()}
    assert counts["left"] == counts["right"] > 1
    first = next(iter(sorted(Path(folders["left"]).iterdir())))
    assert pq.read_table(first).num_rows > 0
