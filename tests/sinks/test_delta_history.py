"""Delta tables that others restore, replace or maintain: is what the ledger counts still there?"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from tests.sinks.contract import RUN, run_of

deltalake = pytest.importorskip("deltalake")


pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with micro-batches 0 to 3, in versions 1 to 4."""
    path = str(tmp_path / "table")
    deliver(sinks.delta(path), *range(4))
    return path


def deliver(sink: Any, *batches: int, run: Any = RUN) -> None:
    for batch in batches:
        sink._deliver_rows(pa.table({"n": [batch]}), batch, run)


def rows(path: str) -> list[int]:
    table = pa.table(deltalake.DeltaTable(path).scan().read_all())
    return sorted(table.column("n").to_pylist())


def append(path: str, *values: int, **options: Any) -> None:
    deltalake.write_deltalake(path, pa.table({"n": values}), **{"mode": "append", **options})


def commit(path: str, *actions: dict[str, Any]) -> None:
    """Commit actions as another engine does."""
    number = deltalake.DeltaTable(path).version() + 1
    text = "\n".join(json.dumps(action) for action in actions)
    Path(path, "_delta_log", f"{number:020}.json").write_text(text)


def files(path: str, version: int | None = None) -> list[str]:
    table = deltalake.DeltaTable(path, version)
    return [Path(uri).name for uri in table.file_uris()]


def remove(name: str, *, changes: bool = True) -> dict[str, Any]:
    return {"remove": {"path": name, "deletionTimestamp": 1, "dataChange": changes}}


def info(operation: str, **parameters: Any) -> dict[str, Any]:
    return {"commitInfo": {"operation": operation, "operationParameters": parameters}}


def replace(path: str, operation: str | None, **parameters: Any) -> None:
    """Replace all files by those of the first version with a row."""
    first = Path(path, "_delta_log", f"{1:020}.json").read_text().splitlines()
    added = [json.loads(line) for line in first if '"add"' in line]
    removed = [remove(name) for name in files(path)]
    commit(path, *([info(operation, **parameters)] if operation else []), *removed, *added)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "started again"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_restored_table_has_the_entry_of_its_rows(
    path: str, version: int, is_running: bool
) -> None:
    sink = sinks.delta(path)
    deliver(sink, 3, run=run_of(2))
    deltalake.DeltaTable(path).restore(version)
    sink = sink if is_running else sinks.delta(path)
    run = run_of(2 if is_running else 3)
    with pytest.raises(SinkError, match="BATCH_GAP") as error:
        deliver(sink, 4, run=run)
    assert error.value.expected.startswith(f"micro-batch {version}")
    entry = sinks.delta(path).read_ledger()
    assert entry is not None
    assert entry.batch == version - 1
    deliver(sinks.delta(path), *range(version, 6), run=run_of(4))
    assert rows(path) == list(range(6))


def test_the_checkpoint_is_rewound_to_a_restored_table(path: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    for name, numbers in (("offsets", range(5)), ("commits", range(4))):
        (checkpoint / name).mkdir(parents=True)
        for number in numbers:
            (checkpoint / name / str(number)).write_text("v1")
    (checkpoint / "metadata").write_text(json.dumps({"id": RUN.query}))
    deltalake.DeltaTable(path).restore(2)
    sinks.rewind(str(checkpoint), sinks.delta(path), dry_run=False)
    remaining = {
        name: {p.name for p in (checkpoint / name).iterdir()} for name in ("offsets", "commits")
    }
    assert remaining == {"offsets": {"0", "1"}, "commits": {"0", "1"}}
    deltalake.DeltaTable(path).restore(0)
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        sinks.rewind(str(checkpoint), sinks.delta(path))


def test_a_restore_is_found_behind_other_commits_and_undone(path: str) -> None:
    table = deltalake.DeltaTable(path)
    table.restore(2)
    append(path, 100)
    deltalake.DeltaTable(path).optimize.compact()
    deltalake.DeltaTable(path).create_checkpoint()
    with pytest.raises(SinkError, match="BATCH_GAP"):
        deliver(sinks.delta(path), 4, run=run_of(2))
    deltalake.DeltaTable(path).restore(4)
    deliver(sinks.delta(path), 4, run=run_of(2))
    assert rows(path) == list(range(5))


def test_a_restored_version_can_itself_be_restored(path: str) -> None:
    deltalake.DeltaTable(path).restore(2)
    deliver(sinks.delta(path), 2, run=run_of(2))
    deltalake.DeltaTable(path).restore(5)  # the version that was restored to version 2
    assert sinks.delta(path).read_ledger().batch == 1  # type: ignore[union-attr]
    deliver(sinks.delta(path), 2, 3, run=run_of(3))
    assert rows(path) == list(range(4))


def test_a_table_that_was_restored_to_a_time(path: str) -> None:
    time.sleep(0.01)
    then = dt.datetime.now(dt.UTC)
    time.sleep(0.01)
    deliver(sinks.delta(path), 4, run=run_of(2))
    deltalake.DeltaTable(path).restore(then)
    with pytest.raises(SinkError, match="BATCH_GAP"):
        deliver(sinks.delta(path), 5, run=run_of(3))
    deliver(sinks.delta(path), 4, run=run_of(4))
    assert rows(path) == list(range(5))


def test_a_table_that_was_restored_to_a_version_before_the_sink(path: str) -> None:
    deltalake.DeltaTable(path).restore(0)
    for batch in (3, 4):
        with pytest.raises(SinkError, match="LEDGER_LOST") as error:
            deliver(sinks.delta(path), batch, run=run_of(2))
        assert "RESTORE to version 0" in error.value.got
    assert sinks.delta(path).read_ledger() is None
    deliver(sinks.delta(path), 0, run=run_of(3, "another query"))
    assert rows(path) == [0]


def test_a_version_that_cannot_be_read_any_more(path: str) -> None:
    deltalake.DeltaTable(path).create_checkpoint()
    deltalake.DeltaTable(path).restore(2)
    for version in range(4):
        Path(path, "_delta_log", f"{version:020}.json").unlink()
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        deliver(sinks.delta(path), 4, run=run_of(2))


REPLACED: dict[str, Callable[[str], Any]] = {
    "overwritten": lambda path: append(path, 7, mode="overwrite"),
    "emptied": lambda path: deltalake.DeltaTable(path).delete(),
    "emptied by Spark": lambda path: replace(path, "DELETE", predicate='["true"]'),
    "replaced": lambda path: replace(path, "CREATE OR REPLACE TABLE AS SELECT"),
    "cloned": lambda path: replace(path, "CLONE", source="other"),
    "overwritten by a stream": lambda path: replace(
        path, "STREAMING UPDATE", outputMode="Complete"
    ),
    "without an operation": lambda path: replace(path, None),
    "of another engine": lambda path: replace(path, "something new"),
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "started again"])
def test_rows_that_another_writer_has_removed(path: str, name: str, is_running: bool) -> None:
    sink = sinks.delta(path)
    deliver(sink, 3, run=run_of(2))
    REPLACED[name](path)
    append(path, 100)
    before = rows(path)
    for batch in (3, 4):
        with pytest.raises(SinkError, match="LEDGER_LOST") as error:
            deliver(
                sink if is_running else sinks.delta(path), batch, run=run_of(2 if is_running else 3)
            )
        assert "version " in error.value.got
    assert rows(path) == before
    assert sinks.delta(path).read_ledger() is None
    with pytest.raises(SinkError, match="NEW_CHECKPOINT"):
        deliver(sinks.delta(path), 0, run=run_of(4, "another query"))
    deliver(sinks.delta(path, new_checkpoint="continue"), 4, run=run_of(5))
    assert rows(path) == sorted([*before, 4])
    deliver(sinks.delta(path), 5, run=run_of(6))


def test_a_table_of_several_sinks(path: str) -> None:
    deliver(sinks.delta(path, name="b"), 0, run=run_of(1, "other"))
    before = rows(path)
    replacing = sinks.delta(path, name="b", new_checkpoint="replace")
    with pytest.raises(SinkError, match="TARGET_SHARED"):
        deliver(replacing, 0, run=run_of(1, "another"))
    with pytest.raises(SinkError, match="LEDGER_OTHER_NAME"):
        deliver(sinks.delta(path, name="c"), 3, run=run_of(9))
    assert rows(path) == before


def append_and_restore(path: str) -> None:
    append(path, 7)
    deltalake.DeltaTable(path).restore(4)


HARMLESS: dict[str, Callable[[str], Any]] = {
    "appended": lambda path: append(path, 7),
    "compacted": lambda path: deltalake.DeltaTable(path).optimize.compact(),
    "sorted": lambda path: deltalake.DeltaTable(path).optimize.z_order(["n"]),
    "vacuumed": lambda path: deltalake.DeltaTable(path).vacuum(
        0, dry_run=False, enforce_retention_duration=False
    ),
    "one row deleted": lambda path: deltalake.DeltaTable(path).delete("n = 7"),
    "a part replaced": lambda path: append(path, 7, mode="overwrite", predicate="n > 6"),
    "updated": lambda path: deltalake.DeltaTable(path).update({"n": "n"}),
    "merged by Spark": lambda path: replace(path, "MERGE", predicate="a = b"),
    "purged": lambda path: commit(
        path,
        info("REORG"),
        remove(files(path, 1)[0], changes=False),
        *(
            json.loads(line)
            for line in Path(path, "_delta_log", f"{1:020}.json").read_text().splitlines()
            if '"add"' in line
        ),
    ),
    "a column added": lambda path: deltalake.DeltaTable(path).alter.add_columns(
        deltalake.Field("new", "long")
    ),
    "properties set": lambda path: deltalake.DeltaTable(path).alter.set_table_properties(
        {"delta.appendOnly": "true"}
    ),
    "restored to the last micro-batch": lambda path: append_and_restore(path),
    "by another sink": lambda path: deliver(sinks.delta(path, name="b"), 0, run=run_of(1, "other")),
    "merged by another sink": lambda path: sinks.delta(path, name="b", key="n")._deliver_rows(
        pa.table({"n": [3]}), 0, run_of(1, "other")
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_commits_that_leave_the_rows(path: str, name: str) -> None:
    HARMLESS[name](path)
    deliver(sinks.delta(path), 4, run=run_of(2))
    assert rows(path)[-1] >= 4
    assert sinks.delta(path).read_ledger().batch == 4  # type: ignore[union-attr]


def test_a_log_of_which_old_commits_were_deleted(path: str) -> None:
    append(path, 7)
    deltalake.DeltaTable(path).optimize.compact()
    table = deltalake.DeltaTable(path)
    table.create_checkpoint()
    for version in range(table.version()):
        Path(path, "_delta_log", f"{version:020}.json").unlink()
    deliver(sinks.delta(path), 4, run=run_of(2))
    assert rows(path) == [0, 1, 2, 3, 4, 7]
    with pytest.raises(SinkError, match="BATCH_GAP"):
        deliver(sinks.delta(path), 6, run=run_of(3))


@pytest.mark.parametrize("versions", [0, 3, 8])
def test_a_table_that_was_created_again_meanwhile(path: str, versions: int) -> None:
    """Also one with as many versions as the table before: its log must not be continued."""
    sink = sinks.delta(path)
    deliver(sink, 4, run=run_of(2))
    shutil.rmtree(path)
    for number in range(versions):
        append(path, number)
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        deliver(sink, 5, run=run_of(2))
    if versions:
        assert rows(path) == list(range(versions))
        assert deltalake.DeltaTable(path).version() == versions - 1
    else:
        assert not Path(path).exists()


def test_a_copy_of_a_folder_has_its_entry(path: str, tmp_path: Path) -> None:
    copy = str(shutil.copytree(path, tmp_path / "copy"))
    deliver(sinks.delta(path), 4, run=run_of(2))
    deliver(sinks.delta(copy), 4, run=run_of(2))
    assert rows(path) == rows(copy) == list(range(5))


def test_a_deep_clone_has_the_entry_and_a_shallow_one_has_none(path: str, tmp_path: Path) -> None:
    table = deltalake.DeltaTable(path)
    table.create_checkpoint()
    for name, keeps in (("deep", True), ("shallow", False)):
        clone = tmp_path / name
        shutil.copytree(path, clone)
        shutil.rmtree(clone / "_delta_log")
        (clone / "_delta_log").mkdir()
        log = [
            json.loads(line)
            for version in range(5)
            for line in Path(path, "_delta_log", f"{version:020}.json").read_text().splitlines()
        ]
        state: dict[str, Any] = {}
        for action in log:
            if "txn" in action and keeps:
                state["txn" + action["txn"]["appId"]] = action
            elif "add" in action:
                state[action["add"]["path"]] = action
            elif "metaData" in action or "protocol" in action:
                state[next(iter(action))] = action
        first = "\n".join(json.dumps(action) for action in [info("CLONE"), *state.values()])
        (clone / "_delta_log" / f"{0:020}.json").write_text(first)
        if keeps:
            deliver(sinks.delta(str(clone)), 4, run=run_of(2))
            assert rows(str(clone)) == list(range(5))
        else:
            with pytest.raises(SinkError, match="LEDGER_LOST"):
                deliver(sinks.delta(str(clone)), 4, run=run_of(2))
            assert rows(str(clone)) == list(range(4))


def test_a_commit_between_the_decision_and_the_commit_is_seen(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append does not conflict with a restore in deltalake: the sink decides again itself."""
    sink = sinks.delta(path)
    decide = type(sink)._decide
    restored: list[Any] = []

    def restore_after(self: Any, *arguments: Any, **others: Any) -> Any:
        decision = decide(self, *arguments, **others)
        if not restored:
            restored.append(deltalake.DeltaTable(path).restore(2))
        return decision

    monkeypatch.setattr(type(sink), "_decide", restore_after)
    with pytest.raises(SinkError, match="BATCH_GAP"):
        deliver(sink, 4, run=run_of(2))
    assert rows(path) == [0, 1]
