"""The campaign that kills drivers finds what it looks for. Without Spark."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.sinks.sink import Sink
from streamops.sinks.sqlalchemy import SqlalchemySink
from streamops.spark.identity import Identity
from streamops.testing import BatchResult, replay
from tests.kills.__main__ import main
from tests.kills.inputs import (
    FORMS,
    VALUES,
    Expected,
    Form,
    effects,
    expect,
    last_effects,
    make_input,
    operator,
)
from tests.kills.job import Settings
from tests.kills.processes import processes, send, wait_until
from tests.kills.rounds import Report, Round, State, table
from tests.kills.targets import (
    TARGETS,
    Difference,
    Location,
    compare,
    last_batch,
    rejected_sink,
    results_sink,
)
from tests.kills.tasks import interrupted, sabotage, write_all_by_tasks
from tests.servers import installed

TABLES = make_input(12, 60, seed=1)
FIRST, SECOND = ("a", 0, 60, 1, 10, 0), ("a", 0, 60, 2, 15, 1)
FILES = ["delta", "parquet", "sqlalchemy", "iceberg"]


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    chosen: Form = request.param
    return chosen


@pytest.fixture(scope="module")
def emitted(form: Form) -> list[BatchResult]:
    return replay(operator(form), TABLES)


@pytest.fixture(scope="module")
def expected(form: Form) -> Expected:
    return expect(TABLES, form)


def rejected(result: BatchResult) -> pa.Table:
    """Rows that were too late, as `sinks.side_outputs` writes them."""
    rows = [
        {"reason": row["reason"], "row": json.dumps({"late": {"row": {"id": row["row"]["id"]}}})}
        for row in result.late.to_pylist()
    ]
    return pa.Table.from_pylist(rows, pa.schema([("reason", pa.string()), ("row", pa.string())]))


def write(target: str, at: Location, form: Form, emitted: list[BatchResult]) -> None:
    results, late = results_sink(target, at, form), rejected_sink(target, at)
    for number, result in enumerate(emitted):
        if target == "naive":
            results.append(result.table, number)
            late.append(rejected(result), number)
        else:
            run = Identity("query", "run")
            results._deliver_rows(result.table, number, run)
            late._deliver_rows(rejected(result), number, run)


@pytest.mark.thorough
@pytest.mark.parametrize("target", FILES)
def test_a_target_that_has_every_row_once_is_right(
    target: str, form: Form, emitted: list[BatchResult], expected: Expected, tmp_path: Path
) -> None:
    pytest.importorskip(TARGETS[target].requires or "pyarrow")
    at = Location(folder=tmp_path, name="round")
    write(target, at, form, emitted)
    assert list(compare(target, at, form, expected)) == []
    assert expected.results.total() > 300
    assert expected.rejected.total() > 10
    assert max(row[-1] for row in expected.results) > 0  # windows were corrected
    assert last_batch(results_sink(target, at, form)) == len(emitted) - 1


def test_rows_that_are_lost_are_found(
    form: Form, emitted: list[BatchResult], expected: Expected, tmp_path: Path
) -> None:
    at = Location(folder=tmp_path, name="round")
    write("parquet", at, form, emitted[:-1])  # the last one closes the last windows
    found = {d.rows: d for d in compare("parquet", at, form, expected)}
    assert found.keys() >= {"results", "emitted"}
    assert found["emitted"].lost.total() == len(emitted[-1].table)
    assert found["emitted"].unexpected.total() == 0


def test_rows_that_are_written_twice_are_found(
    form: Form, emitted: list[BatchResult], expected: Expected, tmp_path: Path
) -> None:
    at = Location(folder=tmp_path, name="round")
    write("naive", at, form, emitted)
    assert list(compare("naive", at, form, expected)) == []
    again = next(n for n, result in enumerate(emitted) if len(result.table) and len(result.late))
    results_sink("naive", at, form).append(emitted[again].table, again)
    rejected_sink("naive", at).append(rejected(emitted[again]), again)
    found = {d.rows: d for d in compare("naive", at, form, expected)}
    assert found["emitted"].unexpected.total() == len(emitted[again].table)
    assert found["rejected"].unexpected.total() == len(emitted[again].late)
    assert not any(difference.lost for name, difference in found.items() if name != "results")


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("changes", {(*FIRST, None): 1, (*SECOND, None): 1}),
        ("revisions", {(*FIRST, "insert"): 1, (*FIRST, "update_preimage"): 1, (*SECOND, "update_postimage"): 1}),
        ("multiset", {(*FIRST, "insert"): 1, (*FIRST, "delete"): 1, (*SECOND, "insert"): 1}),
    ],
)  # fmt: skip
def test_a_log_has_the_effects_of_changes(form: Form, expected: Any) -> None:
    types = {(*FIRST, "insert"): 1, (*FIRST, "update_preimage"): 1}
    assert effects(Counter({**types, (*SECOND, "update_postimage"): 1}), form) == expected


def test_the_last_record_of_a_key_counts() -> None:
    first, second = (dict(zip(VALUES, row, strict=True)) for row in (FIRST, SECOND))
    assert last_effects([first, second], "changes") == {SECOND: 1}
    assert last_effects([second, first], "changes") == {FIRST: 1}  # a wrong order is found
    marked = [{**first, "_change_type": name} for name in ("insert", "delete")]
    assert last_effects([*marked, {**second, "_change_type": "insert"}], "multiset") == {SECOND: 1}


def test_a_target_without_any_row_has_lost_all(
    form: Form, expected: Expected, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="TARGET_MISSING"):
        list(compare("parquet", Location(folder=tmp_path, name="r"), form, expected))


@pytest.mark.parametrize(
    ("planned", "committed", "ledger", "ahead", "wrong"),
    [
        (3, 2, 2, False, False),
        (3, 2, 3, True, False),
        (3, 3, 3, False, False),
        (-1, -1, -1, False, False),
        (3, 2, 4, True, True),
        (3, 2, 1, False, True),
    ],
)
def test_a_ledger_is_at_the_last_micro_batch_of_spark_or_the_next(
    planned: int, committed: int, ledger: int, ahead: bool, wrong: bool
) -> None:
    state = State(planned, committed, {"target": ledger}, committed)
    assert state.is_open == (planned > committed)
    assert state.ahead == ["target"] * ahead
    assert state.wrong == ["target"] * wrong
    report = Report("part")
    report.record("kill", state)
    assert report.is_right != wrong


def test_a_ledger_that_is_read_while_spark_commits_may_have_any_micro_batch_between() -> None:
    state = State(5, 3, {"first": 3, "second": 5, "third": 6, "fourth": 2}, newest=4)
    assert state.wrong == ["third", "fourth"]


def test_settings_pass_through_a_file(tmp_path: Path) -> None:
    settings = Settings(
        folder="f", name="n", form="changes", targets=["parquet"], hold=3, topic="t"
    )
    settings.write(tmp_path / "settings.json")
    assert Settings.read(tmp_path / "settings.json") == settings


def test_a_round_reads_the_logs_of_a_checkpoint(tmp_path: Path) -> None:
    settings = Settings(folder=str(tmp_path), name="n", form="changes", targets=["parquet"])
    round_ = Round(settings, batches=2, seed=1)
    assert round_.state() == State(-1, -1, {"parquet": -1}, -1)
    checkpoint = settings.checkpoint("all targets")
    for name in ("offsets/0", "offsets/10", "offsets/9", "offsets/.10.crc", "commits/9"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).touch()
    assert (round_.planned(), round_.committed()) == (10, 9)
    assert round_.has_planned(10)
    assert not round_.has_committed(10)


def test_a_report_lists_what_differs() -> None:
    report = Report("driver", Counter({"random": 2}), ahead=Counter({"delta": 1}), starts=3)
    report.rounds, report.rows = 1, 1_234
    assert "driver          2         2     1,234      0" in table([report])
    assert "DIFFERENCE" not in table([report])
    difference = Difference("delta", "results", Counter({("a",): 2}), Counter())
    report.problems.append(str(difference))
    assert "DIFFERENCE delta, results: 2 lost, 0 duplicated" in table([report])


def test_an_unknown_part_is_refused(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["drivers"])
    assert "there is no part 'drivers'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [(["kafka"], "kafka, partitions, postgres"), (["kafka", "--targets", "delta"], "kafka")],
)
def test_what_is_not_installed_is_named_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], left_out: str
) -> None:
    for name in ("postgres", "kafka"):
        monkeypatch.setattr(installed, name, lambda: nullcontext(None))
    assert main(arguments) == 1
    assert capsys.readouterr().out.rstrip().endswith(f"not installed: {left_out}")


def test_an_attempt_ends_between_its_delivery_and_its_receipt(tmp_path: Path) -> None:
    sink = sabotage(sinks.parquet(str(tmp_path / "archive")), tmp_path / "tasks", "parquet")
    rows = pa.table({"n": [1, 2]})
    run_in_a_process = get_context("fork").Process
    deliver = sink._prepare(rows.schema, 0, "write")
    first = run_in_a_process(target=deliver, args=(iter([rows]),))
    first.start()
    first.join()
    assert first.exitcode == -signal.SIGKILL
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 1  # it has delivered
    [part] = deliver(iter([rows]))
    assert part["rows"] == 2
    assert interrupted(tmp_path / "tasks") == {"Python worker between delivery and receipt": 1}


def test_the_processes_of_a_session_are_stopped_and_ended() -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    try:

        def members() -> list[int]:
            return [process.pid for process in processes() if process.session == shell.pid]

        assert wait_until(lambda: len(members()) == 3, patience=5)
        [child, _] = [p for p in processes() if p.parent == shell.pid]
        assert child.command.startswith("sleep 60")
        send(members(), signal.SIGSTOP)
        state = Path(f"/proc/{child.pid}/stat")
        assert wait_until(lambda: ") T " in state.read_text(), patience=5)
    finally:
        send(
            [process.pid for process in processes() if process.session == shell.pid], signal.SIGKILL
        )
        shell.wait()
    assert wait_until(lambda: not members(), patience=5)
    assert not wait_until(lambda: False, patience=0.01)


def test_no_micro_batch_is_small_where_tasks_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def classes(of: type[Sink]) -> list[type[Sink]]:
        return [of, *(found for sub in of.__subclasses__() for found in classes(sub))]

    for writer in (Sink, SqlalchemySink):
        monkeypatch.setattr(writer, "_small", writer._small)
    write_all_by_tasks()
    assert {writer._small for writer in classes(Sink)} == {-2}
