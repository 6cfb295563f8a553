from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamops.demo.__main__ import main
from streamops.demo.report import Facts, gather, report
from streamops.demo.tables import HOURS, Run, late, write_tables


def facts_of(out: Path, rows: pd.DataFrame) -> dict[str, Facts]:
    return {windows: gather(out, rows, Run.read(out), windows) for windows in HOURS}


def change_table(out: Path, windows: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    path = out / "table" / f"windows={windows}" / "part.parquet"
    table = pq.read_table(path, partitioning=None)
    spoilt = change(table.to_pandas())
    pq.write_table(pa.Table.from_pandas(spoilt, table.schema, preserve_index=False), path)


def change_late(out: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the hourly rows of the first file of late rows that has any."""
    for path in sorted((out / "late").glob("batch=*/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        ours = table.filter(pc.field("windows") == "hourly")
        if len(ours):
            rest = table.filter(pc.field("windows") != "hourly")
            pq.write_table(pa.concat_tables([change(ours), rest]), path)
            return
    pytest.fail("no row was too late")


def test_a_good_run_adds_up_and_is_verified(out: Path, days: pd.DataFrame) -> None:
    facts = facts_of(out, days)
    text = report(facts, Run.read(out))
    assert all(each.hold for each in facts.values())
    assert text.count("adds up") == 5
    assert "VERIFIED" in text
    assert "NOT" not in text


def test_the_run_has_stragglers_corrections_and_rows_too_late(out: Path) -> None:
    for counts in Run.read(out).counts.values():
        assert min(counts["stragglers"], counts["corrections"], counts["too_late"]) > 0


def test_a_late_flight_is_too_late_for_a_window_and_in_time_for_the_next(
    out: Path, days: pd.DataFrame
) -> None:
    missed = late(out, "three_hours").groupby("flight_id").size()
    assert missed.between(1, 2).any()


def test_the_command_exits_zero_only_if_verified(out: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--check", "--out", str(out)]) == 0
    assert "\nVERIFIED" in capsys.readouterr().out
    change_table(out, "hourly", lambda t: t.assign(departures=t["departures"] + (t.index == 7)))
    assert main(["--check", "--out", str(out)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


FAULTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "a departure too many": lambda t: t.assign(departures=t["departures"] + (t.index == 7)),
    "a mean that is off": lambda t: t.assign(mean_delay=t["mean_delay"] + 1e-6 * (t.index == 7)),
    "a window lost": lambda t: t.drop(index=7),
    "a window twice": lambda t: pd.concat([t, t.iloc[[7]]]),
    "an airport mistaken": lambda t: t.assign(origin=["HPN", *t["origin"][1:]]),
    "a window an hour off": lambda t: t.assign(
        window_start=t["window_start"] + pd.Timedelta(hours=1) * (t.index == 7)
    ),
}


@pytest.mark.parametrize("windows", HOURS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_table_is_found(
    fault: str, windows: str, out: Path, days: pd.DataFrame
) -> None:
    change_table(out, windows, FAULTS[fault])
    facts = facts_of(out, days)
    assert not facts[windows].comparison.equal
    assert all(facts[other].hold for other in HOURS if other != windows)


def test_a_late_row_that_was_not_delivered_is_found(out: Path, days: pd.DataFrame) -> None:
    change_late(out, lambda table: table.slice(1))
    facts = facts_of(out, days)["hourly"]
    assert not facts.comparison.equal
    assert not facts.sums[-1].holds


def test_a_late_row_that_was_counted_all_the_same_is_found(out: Path, days: pd.DataFrame) -> None:
    other = int(days["flight_id"].iloc[0])

    def change(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        first = days.iloc[0]
        rows[0]["row"]["flight_id"] = other
        rows[0] |= {"origin": first["origin"], "window_start": first["scheduled"].floor("h")}
        return pa.Table.from_pylist(rows, table.schema)

    change_late(out, change)
    assert not facts_of(out, days)["hourly"].comparison.equal


@pytest.mark.parametrize("counter", ["on_time", "stragglers", "too_late", "results", "corrections"])
def test_a_count_that_is_off_does_not_add_up(counter: str, out: Path, days: pd.DataFrame) -> None:
    told = json.loads((out / "run.json").read_text())
    told["counts"]["hourly"][counter] += 1
    (out / "run.json").write_text(json.dumps(told))
    facts = facts_of(out, days)
    text = report(facts, Run.read(out))
    assert not facts["hourly"].hold
    assert "DOES NOT ADD UP" in text
    assert "NOT VERIFIED" in text


def test_a_departure_missing_from_the_log_is_found(out: Path, days: pd.DataFrame) -> None:
    """The verification goes by the package's flights, not by the log that the job read."""
    more = pd.concat([days, days.iloc[[100]].assign(flight_id=10**6)])
    facts = facts_of(out, more)["hourly"]
    assert not facts.comparison.equal
    assert not facts.sums[0].holds


def test_a_change_stream_that_contradicts_itself_does_not_fold(out: Path) -> None:
    for path in sorted((out / "changes").glob("batch=*/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        if pc.any(pc.equal(table["_change_type"], "update_preimage")).as_py():
            spoilt = table.filter(pc.field("_change_type") != "update_preimage")
            pq.write_table(spoilt, path)
            break
    with pytest.raises(ValueError, match="POSTIMAGE_ALONE"):
        write_tables(out)


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    import streamops.demo.__main__ as command

    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "matplotlib" else name)
    assert main(["--check"]) == 2
    said = capsys.readouterr().out
    assert "matplotlib" in said
    assert "streamops[demo]" in said


@pytest.mark.parametrize("words", [["--days", "0"], ["--every", "-5"], ["--days", "many"]])
def test_a_number_that_is_none_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2


def test_a_folder_of_someone_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "homework.txt").write_text("precious")
    assert main(["--out", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().out
    assert (tmp_path / "late" / "homework.txt").read_text() == "precious"


def test_there_is_nothing_to_check_before_a_run(tmp_path: Path, out: Path) -> None:
    assert main(["--check", "--out", str(tmp_path / "nowhere")]) == 2
    (out / "run.json").unlink()  # a run was interrupted
    assert main(["--check", "--out", str(out)]) == 2
