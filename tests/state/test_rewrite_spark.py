"""Crashes of a rewrite, refusals, older formats, and what can be read from a checkpoint, on Spark."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from streamops import sinks, state
from streamops.__main__ import main
from streamops.errors import CheckpointError, RequirementError, SpecError
from streamops.kernel.core import State, StateFormat
from streamops.kernel.placement import Identity, Tables
from streamops.spark.step import Stored
from streamops.state import operators, rewrite, stores
from streamops.state.checkpoint import MARKER, Checkpoint
from streamops.state.shards import OperatorState, StoredShard, encode_shards
from streamops.testing import Replay, micro_batches
from streamops.testing.batches import to_table
from streamops.testing.streaming import run_query
from tests.state.histories import EVENT, events
from tests.state.test_rescale_spark import GROUPS, RUNS, WINDOWS, in_order, run, uninterrupted

pytestmark = pytest.mark.spark

OPERATOR = WINDOWS.options(state_api=GROUPS)


class Crash(BaseException):
    """The end of the process, which nothing handles."""


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a query that was stopped after two micro-batches."""
    folder = tmp_path_factory.mktemp("stopped")
    run(spark, OPERATOR.options(shards=4), folder / "source", folder, 0)
    return folder


@pytest.fixture
def query(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it. The source has no path in the checkpoint that matters."""
    shutil.copytree(stopped / "checkpoint", tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def crash(when: int, function: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """The function, which ends the process in a call of this number, before or after its work."""
    calls = 0

    def crashing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == when and not after:
            raise Crash
        result = function(*arguments, **options)
        if calls == when:
            raise Crash
        return result

    return crashing


STEPS = {
    "after the marker": (rewrite._Rewrite, "_begin", 1, True),
    "in the copy": (rewrite.shutil, "copy2", 5, False),
    "after the copy": (rewrite._Rewrite, "_copy", 1, True),
    "before the first store": (stores.StoreWriter, "write", 1, False),
    "within a store": (stores.StoreWriter, "_unsafe", 2, True),
    "between two stores": (stores.StoreWriter, "write", 1, True),
    "after all stores": (rewrite._Rewrite, "_write", 1, True),
    "before the check": (rewrite._Rewrite, "_verify", 1, False),
    "after the check": (rewrite._Rewrite, "_verify", 1, True),
    "before the marker is removed": (Path, "unlink", 1, False),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_the_original_and_a_directory_that_is_not_finished(
    spark: SparkSession, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    owner, name, when, after = STEPS[step]
    new, stamp = tmp_path / "new", Checkpoint(query).stamp()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, crash(when, getattr(owner, name), after=after))
        with pytest.raises(Crash):
            state.rescale(query, new, shards=6, spark=spark)
    assert Checkpoint(query).stamp() == stamp
    assert (new / MARKER).exists()
    (problem,) = state.describe(new, spark=spark).problems
    assert problem.code == "CHECKPOINT_UNFINISHED"
    for path, to, code in ((query, new, "CHECKPOINT_PATH"), (new, tmp_path / "b", problem.code)):
        with pytest.raises(CheckpointError) as caught:
            state.rescale(path, to, shards=6, spark=spark)
        assert caught.value.code == code


def test_spark_does_not_start_from_a_rewrite_that_did_not_end(
    spark: SparkSession,
    stopped: Path,
    query: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    with monkeypatch.context() as patched:
        patched.setattr(rewrite._Rewrite, "_verify", crash(1, rewrite._Rewrite._verify))
        with pytest.raises(Crash):
            state.rescale(query, here / "checkpoint", shards=6, spark=spark)
    shutil.copytree(stopped / "source", tmp_path / "source")
    with pytest.raises(PySparkException, match=r"(?i)metadata"):
        run(spark, OPERATOR.options(shards=6), tmp_path / "source", here, 1)


def test_a_running_query_is_noticed(
    spark: SparkSession, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = rewrite._Rewrite._verify

    def advance(*arguments: Any) -> None:
        verify(*arguments)
        (query / "offsets" / "9").write_text("v1\n{}")

    monkeypatch.setattr(rewrite._Rewrite, "_verify", advance)
    with pytest.raises(CheckpointError) as caught:
        state.rescale(query, tmp_path / "new", shards=6, spark=spark)
    assert caught.value.code == "CHECKPOINT_CHANGED"
    assert (tmp_path / "new" / MARKER).exists()


def test_a_state_that_differs_is_noticed(
    spark: SparkSession, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = stores.StoreWriter.write

    def forget(self: Any, of: Any, partition: int, rows: Any) -> None:
        write(self, of, partition, rows[1:])

    monkeypatch.setattr(stores.StoreWriter, "write", forget)
    with pytest.raises(CheckpointError) as caught:
        state.rescale(query, tmp_path / "new", shards=6, spark=spark)
    assert caught.value.code == "CHECKPOINT_INCONSISTENT"
    assert (tmp_path / "new" / MARKER).exists()


def test_what_cannot_be_done_is_refused_before_anything_is_written(
    spark: SparkSession, query: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(error: type[Exception], **options: Any) -> str:
        with pytest.raises(error) as caught:
            state.rescale(query, tmp_path / "new", **({"shards": 6, "spark": spark} | options))
        assert not (tmp_path / "new").exists()
        return str(getattr(caught.value, "code", ""))

    assert refused(SpecError, shards=0) == "PARAMETER_OUT_OF_RANGE"
    assert refused(SpecError, partitions=True) == "PARAMETER_OUT_OF_RANGE"
    assert refused(SpecError, operators=[3]) == "UNKNOWN_OPERATOR"
    with pytest.raises(CheckpointError) as nothing:
        state.migrate(query, tmp_path / "new", spark=spark)
    assert nothing.value.code == "NOTHING_TO_MIGRATE"
    with monkeypatch.context() as patched:
        patched.setattr(stores, "TESTED", ((4, 2),))
        assert refused(RequirementError) == "VERSION_NOT_SUPPORTED"
    shutil.copy(query / "offsets" / "0", query / "offsets" / "9")
    assert refused(CheckpointError) == "BATCH_UNFINISHED"


def version_0(patched: pytest.MonkeyPatch) -> None:
    """Let rewrites write a made-up earlier version of windows."""

    def old(state_: OperatorState, partition_of: Any) -> list[StoredShard]:
        header = StateFormat("windows.grid", 0), state_.identity, state_.shards
        rows = []
        for row in encode_shards(state_, partition_of):
            of_shard = state_.states[row.shard]
            tables = {f"old_{name}": table for name, table in of_shard.tables.items()}
            stored = Stored.of(State(of_shard.watermark, tables), header, deadline=state_.deadline)
            rows.append(dataclasses.replace(row, stored=stored))
        return rows

    patched.setattr(rewrite, "encode_shards", old)
    patched.setattr(rewrite, "find_difference", lambda *_: "")  # it was written in another version


def new_names(identity: Identity, tables: Tables) -> tuple[Identity, Tables]:
    """From version 0 to version 1."""
    return identity, {name.removeprefix("old_"): table for name, table in tables.items()}


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion of version 0."""
    placement = dataclasses.replace(operators.PLACEMENTS["windows.grid"], upgrades={0: new_names})
    monkeypatch.setitem(operators.PLACEMENTS, "windows.grid", placement)  # type: ignore[arg-type]


@pytest.mark.usefixtures("upgrade")
def test_a_checkpoint_in_an_older_version_is_refused_migrated_and_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, source = OPERATOR.options(shards=4), tmp_path / "source"
    found = run(spark, operator, source, tmp_path / "a", 0)
    (tmp_path / "b").mkdir()
    old, new = tmp_path / "b" / "checkpoint", tmp_path / "c" / "checkpoint"
    with monkeypatch.context() as patched:
        version_0(patched)
        state.rescale(tmp_path / "a" / "checkpoint", old, shards=4, spark=spark)
    before = state.describe(old, spark=spark)
    assert [of.version for of in before.operators] == [0]
    assert "state migrate" in before.hints[0]
    (done,) = state.migrate(old, new, spark=spark)
    assert (done.name, done.shards_before, done.shards) == ("windows.grid version 1", 4, 4)
    after = state.describe(new, spark=spark)
    assert ([of.version for of in after.operators], after.hints) == ([1], [])
    found += run(spark, operator, source, tmp_path / "c", 1)
    assert found == uninterrupted()[: len(found)]
    assert any(found[3:])
    with pytest.raises(StreamingQueryException, match="STATE_VERSION"):
        run(spark, operator, source, tmp_path / "b", 2)


@pytest.mark.usefixtures("upgrade")
def test_a_sink_continues_from_a_rescaled_and_from_a_migrated_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, first, second, old, third = (str(tmp_path / name) for name in "tabcd")

    def deliver(number: int, checkpoint: str, shards: int) -> None:
        tables = [to_table(events(batch), EVENT) for batch in range(*RUNS[number])]
        source = micro_batches(
            spark, tables, schema=EVENT, directory=tmp_path / "source", source="files"
        )
        frame = source.transform(OPERATOR.options(shards=shards))
        writer = frame.writeStream.foreachBatch(sinks.parquet(target)).trigger(availableNow=True)
        query = writer.option("checkpointLocation", checkpoint).outputMode("append").start()
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    deliver(0, first, 4)
    state.rescale(first, second, shards=16, spark=spark)
    deliver(1, second, 16)
    with monkeypatch.context() as patched:
        version_0(patched)
        state.rescale(second, old, shards=16, spark=spark)
    state.migrate(old, third, spark=spark)
    deliver(2, third, 16)
    found = in_order(sinks.read_parquet(target, check="content").to_table())
    assert found == sorted((row for batch in uninterrupted() for row in batch), key=repr)
    entry = sinks.parquet(target).read_ledger()
    # The query is the same one, which was started three times.
    assert entry is not None
    assert (entry.generation, entry.former) == (3, ())
    # The original is started by mistake.
    with pytest.raises(StreamingQueryException, match="CHECKPOINT_BEHIND"):
        deliver(0, first, 4)
    assert in_order(sinks.read_parquet(target).to_table()) == found


def test_operators_of_spark_are_copied_and_only_some_operators_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    def start(first: int, last: int, folder: Path, shards: int) -> list[Any]:
        tables = [to_table(events(batch), EVENT) for batch in range(first, last)]
        frame = micro_batches(
            spark, tables, schema=EVENT, directory=tmp_path / "source", source="files"
        )
        once = frame.dropDuplicates(["k", "v"])
        windows_ = WINDOWS.options(shards=shards)
        return [
            sorted(rows.to_pylist(), key=repr)
            for _, rows, _ in run_query(once.transform(windows_), folder, 300)
        ]

    found = start(0, 2, tmp_path / "a", 4)
    checkpoint = tmp_path / "a" / "checkpoint"
    report = state.describe(checkpoint, spark=spark)
    assert sorted(of.name for of in report.operators) == ["", "windows.grid"]
    number = next(of.number for of in report.operators if of.name)
    with pytest.raises(CheckpointError) as caught:
        state.rescale(checkpoint, tmp_path / "new", shards=7, partitions=3, spark=spark)
    assert caught.value.code == "FOREIGN_OPERATOR"
    (done,) = state.rescale(
        checkpoint,
        tmp_path / "b" / "checkpoint",
        shards=7,
        operators=[number],
        spark=spark,
    )
    assert (done.operator, done.shards) == (number, 7)
    found += start(2, 4, tmp_path / "b", 7)
    query, once, expected = Replay(WINDOWS, EVENT, shards=4), set[Any](), []
    for first, last in ((0, 2), (2, 4)):
        batches = []
        for batch in range(first, last):
            rows = []
            for row in events(batch):
                key = (row["k"], row["v"])
                rows += [] if key in once else [row]
                once.add(key)
            batches.append(to_table(rows, EVENT))
        expected += [sorted(of.table.to_pylist(), key=repr) for of in query.run(batches)]
    assert [Counter(row["n"] for row in rows) for rows in found] == [
        Counter(row["n"] for row in rows) for rows in expected
    ]


def test_the_state_is_read_with_one_row_per_key(spark: SparkSession, query: Path) -> None:
    frame = state.read(query, "windows.grid", spark=spark)
    assert frame.columns == ["k", "shard", "panes"]
    rows = frame.collect()
    keys = [row["k"] for row in rows]
    assert len(set(keys)) == len(keys) > 10
    panes = [pane for row in rows for pane in row["panes"]]
    last = Checkpoint(query).last
    replayed = Replay(WINDOWS, EVENT, shards=4)
    replayed.run([to_table(events(batch), EVENT) for batch in range(2)])
    stage = replayed._stages[0]
    stored = [Stored(*of) for of in stage.stored.values()]
    assert len(panes) == sum(of.entries for of in stored) > 15
    assert {*panes[0].asDict()} == {"pane", "n.count", "v.sum"}
    by_number = state.read(query, 0, spark=spark, batch=last)
    assert sorted(map(repr, by_number.collect())) == sorted(map(repr, rows))
    for operator in ("windows.session", 3):
        with pytest.raises(CheckpointError) as caught:
            state.read(query, operator, spark=spark)
        assert caught.value.code == "UNKNOWN_OPERATOR"


def test_the_command_line(
    spark: SparkSession, query: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    assert main(["doctor", str(query)]) == 0
    report = capsys.readouterr().out
    assert "windows.grid by k  1, frame 1  4" in report
    assert "PROBLEM" not in report
    command = ["state", "rescale", str(query), "--to", str(new), "--shards", "6"]
    assert main(command) == 0
    assert "4 -> 6 shards" in capsys.readouterr().out
    assert main(command) == 1
    assert "CHECKPOINT_PATH" in capsys.readouterr().out
    assert main(["state", "migrate", str(new), "--to", str(tmp_path / "m")]) == 1
    assert "NOTHING_TO_MIGRATE" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path)]) == 1
    assert "NOT_A_CHECKPOINT" in capsys.readouterr().out
    shutil.copy(new / "offsets" / "0", new / "offsets" / "9")
    assert main(["doctor", str(new)]) == 1
    assert "BATCH_UNFINISHED" in capsys.readouterr().out


@pytest.mark.parametrize("after", [MARKER, "state/0/1/*.zip"], ids=["begun", "half written"])
def test_a_killed_command_leaves_the_original_and_a_directory_that_is_not_finished(
    spark: SparkSession, tmp_path: Path, after: str
) -> None:
    source = tmp_path / "source"
    found = run(spark, OPERATOR.options(shards=4), source, tmp_path, 0)
    query = tmp_path / "checkpoint"
    new, stamp = tmp_path / "new", Checkpoint(query).stamp()
    command = [sys.executable, "-m", "streamops", "state", "rescale", query]
    with (tmp_path / "log").open("wb") as log:
        rewriting = subprocess.Popen(
            [*command, "--to", new, "--shards", "6"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 120
            while not any(new.glob(after)):
                assert rewriting.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < end
                time.sleep(0.001)
        finally:
            os.killpg(rewriting.pid, signal.SIGKILL)
            rewriting.wait()
    assert Checkpoint(query).stamp() == stamp
    (problem,) = state.describe(new, spark=spark).problems
    assert problem.code == "CHECKPOINT_UNFINISHED"
    assert main(["state", "rescale", str(query), "--to", str(tmp_path / "b"), "--shards", "6"]) == 0
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "b").rename(here / "checkpoint")
    found += run(spark, OPERATOR.options(shards=6), source, here, 1)
    assert found == uninterrupted()[: len(found)]


def test_a_checkpoint_of_format_2_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    setting = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    spark.conf.set(setting, "2")
    try:
        run(spark, OPERATOR.options(shards=4), tmp_path / "source", tmp_path, 0)
    finally:
        spark.conf.unset(setting)
    checkpoint = tmp_path / "checkpoint"
    report = state.describe(checkpoint, spark=spark)
    assert [problem.code for problem in report.problems] == ["CHECKPOINT_FORMAT"]
    assert [(of.number, of.api, of.shards) for of in report.operators] == [(0, GROUPS, 0)]
    for refused in (
        lambda: state.rescale(checkpoint, tmp_path / "new", shards=6, spark=spark),
        lambda: state.migrate(checkpoint, tmp_path / "new", spark=spark),
    ):
        with pytest.raises(CheckpointError) as caught:
            refused()
        assert caught.value.code == "CHECKPOINT_FORMAT"
    assert not (tmp_path / "new").exists()
