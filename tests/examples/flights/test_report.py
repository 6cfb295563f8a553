from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import main
from examples.flights.contents import QUERIES, WINDOWS, query_of
from examples.flights.report import gather
from examples.flights.tables import Run, changes, late, read_table, write_tables
from streamops.testing import fold
from tests.examples.flights.conftest import facts_of, text_of


def change_table(out: Path, windows: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    path = out / "table" / f"windows={windows}" / "part.parquet"
    table = pq.read_table(path, partitioning=None)
    spoilt = change(table.to_pandas())
    pq.write_table(pa.Table.from_pandas(spoilt, table.schema, preserve_index=False), path)


def change_late(out: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the hourly rows of the first file of late rows that has any."""
    for path in sorted((out / "published" / "hours").glob("batch=*/output=late/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        ours = table.filter(pc.field("windows") == "hourly")
        if len(ours):
            rest = table.filter(pc.field("windows") != "hourly")
            pq.write_table(pa.concat_tables([change(ours), rest]), path)
            return
    pytest.fail("no row was too late")


def test_a_good_run_adds_up_and_is_verified(
    out: Path, days: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    facts = facts_of(out, days)
    text = text_of(out, logs)
    assert all(total.hold for total in facts.values())
    assert text.count("adds up") == 7 + 5 + 4 + 4 + 3 + 5 + 2 + 4 + 3  # in each table that adds up
    assert "VERIFIED" in text
    assert "NOT" not in text


def test_the_run_has_stragglers_corrections_and_rows_too_late(out: Path) -> None:
    counts = Run.read(out).counts
    for windows in QUERIES["hours"].windows:
        ours = counts[windows]
        assert min(ours["stragglers"], ours["corrections"], ours["too_late"]) > 0
    # Four files to a micro-batch: a flight has to be more delayed to be late.
    assert min(counts[windows]["stragglers"] for windows in ("working_days", "last_hour")) > 0


def test_a_late_flight_is_too_late_for_a_window_and_in_time_for_the_next(
    out: Path, days: pd.DataFrame
) -> None:
    missed = late(out, "three_hours").groupby("flight_id").size()
    assert missed.between(1, 2).any()


def test_the_command_exits_zero_only_if_verified(out: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--check", "--out", str(out)]) == 0
    assert "\nVERIFIED" in capsys.readouterr().out
    change_table(out, "hourly", lambda t: t.assign(departures=t["departures"] + (t.index == 2)))
    assert main(["--check", "--out", str(out)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


FAULTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "a departure too many": lambda t: t.assign(departures=t["departures"] + (t.index == 2)),
    "a mean that is off": lambda t: t.assign(mean_delay=t["mean_delay"] + 1e-6 * (t.index == 2)),
    "a window lost": lambda t: t.drop(index=2),
    "a window twice": lambda t: pd.concat([t, t.iloc[[2]]]),
    "a key mistaken": lambda t: t.assign(**{t.columns[0]: ["HPN", *t[t.columns[0]][1:]]}),
    "a window an hour off": lambda t: t.assign(
        **{t.columns[1]: t[t.columns[1]] + pd.Timedelta(hours=1) * (t.index == 2)}
    ),
}


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_table_is_found(
    fault: str, windows: str, out: Path, days: pd.DataFrame
) -> None:
    change_table(out, windows, FAULTS[fault])
    assert not gather(out, days, Run.read(out), windows).comparison.equal
    other = "last_hour" if windows == "hourly" else "hourly"
    assert gather(out, days, Run.read(out), other).hold


def test_a_late_row_that_was_not_delivered_is_found(out: Path, days: pd.DataFrame) -> None:
    change_late(out, lambda table: table.slice(1))
    facts = facts_of(out, days)["hourly"]
    assert not facts.comparison.equal
    assert not facts.sums[-3].holds


def test_a_late_row_that_was_also_counted_is_found(out: Path, days: pd.DataFrame) -> None:
    other = int(days["flight_id"].iloc[0])

    def change(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        first = days.iloc[0]
        rows[0]["row"]["flight_id"] = other
        rows[0] |= {"origin": first["origin"], "window_start": first["scheduled"].floor("h")}
        return pa.Table.from_pylist(rows, table.schema)

    change_late(out, change)
    assert not facts_of(out, days)["hourly"].comparison.equal


@pytest.mark.parametrize("windows", [name for name, about in WINDOWS.items() if about.lasting])
def test_errors_in_results_and_corrections_do_not_cancel(
    windows: str, out: Path, days: pd.DataFrame
) -> None:
    counts = json.loads((out / "run.json").read_text())
    counts["counts"][windows]["results"] += 1
    counts["counts"][windows]["corrections"] -= 1
    (out / "run.json").write_text(json.dumps(counts))
    assert not gather(out, days, Run.read(out), windows).hold


def test_results_first_emitted_by_a_straggler_are_not_corrections(
    out: Path, days: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    facts = facts_of(out, days)
    results = next(total for total in facts["last_hour"].sums if total and total.title == "results")
    output = changes(out, "last_hour").to_pandas()
    corrected = output[output["_change_type"] == "update_preimage"][["origin", "scheduled"]]
    born = output[(output["_change_type"] == "insert") & (output["revision"] > 0)]
    assert results.parts["first published by a straggler"] == len(born) > 0
    fell = corrected.drop_duplicates().merge(born, how="left", on=["origin", "scheduled"])
    assert results.parts["corrected later"] == fell["revision"].isna().sum() > 0
    text = text_of(out, logs)
    assert "final, with a straggler in them" in text
    assert "after corrections" not in text


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("counter", ["on_time", "stragglers", "too_late", "results", "corrections"])
def test_a_count_that_is_off_does_not_add_up(
    counter: str, windows: str, out: Path, days: pd.DataFrame
) -> None:
    counts = json.loads((out / "run.json").read_text())
    counts["counts"][windows][counter] += 1
    (out / "run.json").write_text(json.dumps(counts))
    assert not gather(out, days, Run.read(out), windows).hold


def test_the_report_marks_sums_that_do_not_add_up(out: Path, logs: dict[str, pd.DataFrame]) -> None:
    counts = json.loads((out / "run.json").read_text())
    counts["counts"]["last_hour"]["on_time"] += 1
    (out / "run.json").write_text(json.dumps(counts))
    text = text_of(out, logs)
    assert text.count("DOES NOT ADD UP") == 1
    assert "NOT VERIFIED" in text


def test_a_departure_missing_from_the_log_is_found(out: Path, days: pd.DataFrame) -> None:
    """The verification uses the flights of the package, not the log that the job read."""
    more = pd.concat([days, days.iloc[[100]].assign(flight_id=10**6)])
    facts = facts_of(out, more)["hourly"]
    assert not facts.comparison.equal
    assert not facts.sums[0].holds


def test_a_change_stream_that_contradicts_itself_does_not_fold(out: Path) -> None:
    for path in sorted((out / "published" / "hours").glob("batch=*/output=changes/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        if pc.any(pc.equal(table["_change_type"], "update_preimage")).as_py():
            spoilt = table.filter(pc.field("_change_type") != "update_preimage")
            pq.write_table(spoilt, path)
            break
    with pytest.raises(ValueError, match="POSTIMAGE_ALONE"):
        write_tables(out)


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_result_that_was_emitted_twice_does_not_fold(windows: str, out: Path) -> None:
    for path in sorted(
        (out / "published" / query_of(windows)).glob("batch=*/output=changes/*.parquet")
    ):
        table = pq.read_table(path, partitioning=None)
        ours = table.filter(pc.field("windows") == windows)
        if len(ours):
            pq.write_table(pa.concat_tables([table, ours.slice(0, 1)]), path)
            break
    with pytest.raises(ValueError, match="INSERTED_TWICE"):
        write_tables(out)


@pytest.mark.parametrize("windows", WINDOWS)
def test_the_emitted_changes_fold_to_the_table(windows: str, out: Path) -> None:
    """Row by row, also where nothing was corrected."""
    about = WINDOWS[windows]
    folded = pd.DataFrame(fold(changes(out, windows), key=about.key))
    order = [*about.key]
    pd.testing.assert_frame_equal(
        folded.sort_values(order, ignore_index=True),
        read_table(out, windows).sort_values(order, ignore_index=True),
        check_dtype=False,
    )


def test_a_session_that_a_straggler_extended_is_retracted(out: Path) -> None:
    output = changes(out, "working_days").to_pandas()
    removed = output[output["_change_type"] == "delete"]
    table = read_table(out, "working_days")
    for row in removed.itertuples():
        here = table[
            (table["tailnum"] == row.tailnum) & (table["window_start"] <= row.window_start)
        ]
        assert (here["window_end"] > row.window_end).any()
        assert (here["revision"] > 0).any()
    assert len(removed) > 0


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    import examples.flights.__main__ as command

    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "matplotlib" else name)
    assert main(["--check"]) == 2
    output = capsys.readouterr().out
    assert "matplotlib" in output
    assert "streamops[demo]" in output


@pytest.mark.parametrize("arguments", [["--days", "0"], ["--every", "-5"], ["--days", "many"]])
def test_an_invalid_number_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_a_foreign_folder_is_not_modified(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "homework.txt").write_text("precious")
    assert main(["--out", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().out
    assert (tmp_path / "published" / "homework.txt").read_text() == "precious"


def test_there_is_nothing_to_check_before_a_run(tmp_path: Path, out: Path) -> None:
    assert main(["--check", "--out", str(tmp_path / "nowhere")]) == 2
    (out / "run.json").unlink()  # a run was interrupted
    assert main(["--check", "--out", str(out)]) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: counts.pop("format"),
        lambda counts: counts.update(format=counts["format"] - 1),
        lambda counts: counts.update(batches=counts.pop("files"), format=None),
    ],
    ids=["no format", "another format", "as it was with one query"],
)
def test_a_run_of_another_version_is_refused_with_the_remedy(
    change: Callable[[dict[str, object]], object], out: Path, capsys: pytest.CaptureFixture
) -> None:
    counts = json.loads((out / "run.json").read_text())
    change(counts)
    (out / "run.json").write_text(json.dumps(counts))
    assert main(["--check", "--out", str(out)]) == 2
    output = capsys.readouterr().out
    assert str(out) in output
    assert "another version: run it again" in output
