"""Iceberg tables that others roll back, overwrite, expire or maintain: is what the ledger counts still there?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from streamops.sinks.core.iceberg_commit import Commit
from tests.sinks.contract import RUN, run_of

catalogs = pytest.importorskip("pyiceberg.catalog")
LongType = pytest.importorskip("pyiceberg.types").LongType

pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")

TABLE = "shop.numbers"


class History:
    """A table with micro-batches 0 to 3, each in a snapshot of its own."""

    def __init__(self, folder: Path) -> None:
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        self.deliver(*range(4))
        self.catalog = catalogs.load_catalog(**self.properties)
        self.snapshots = [snapshot.snapshot_id for snapshot in self.table.metadata.snapshots]

    @property
    def table(self) -> Any:
        return self.catalog.load_table(TABLE)

    def sink(self, **options: Any) -> Any:
        return sinks.iceberg(self.properties, TABLE, **options)

    def deliver(self, *batches: int, sink: Any = None, run: Any = RUN) -> None:
        for batch in batches:
            (sink or self.sink())._deliver_rows(pa.table({"n": [batch]}), batch, run)

    def rows(self) -> list[int]:
        return sorted(self.table.scan().to_arrow().column("n").to_pylist())

    def append(self, *values: int) -> Any:
        self.table.append(pa.table({"n": values}))

    def roll_back(self, position: int) -> Any:
        self.table.manage_snapshots().rollback_to_snapshot(self.snapshots[position]).commit()

    def expire(self, *, is_log_lost: bool = False) -> Any:
        """Expire all snapshots but the current one."""
        current = self.table.metadata.current_snapshot_id
        others = [s.snapshot_id for s in self.table.metadata.snapshots if s.snapshot_id != current]
        self.table.maintenance.expire_snapshots().by_ids(others).commit()
        assert len(self.table.metadata.snapshots) == 1
        if is_log_lost:
            for entry in self.table.metadata.metadata_log:
                Path(entry.metadata_file.removeprefix("file://")).unlink()


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "started again"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_table_that_was_rolled_back_has_the_entry_of_its_rows(
    history: History, position: int, is_running: bool
) -> None:
    sink = history.sink()
    history.deliver(3, sink=sink, run=run_of(2))
    history.roll_back(position)
    run = run_of(2 if is_running else 3)
    with pytest.raises(SinkError, match="BATCH_GAP") as error:
        history.deliver(4, sink=sink if is_running else None, run=run)
    assert error.value.expected.startswith(f"micro-batch {position + 1}")
    assert history.sink().read_ledger().batch == position
    history.deliver(*range(position + 1, 6), run=run_of(4))
    assert history.rows() == list(range(6))


def test_the_run_that_was_replaced_before_a_rollback_stays_fenced(history: History) -> None:
    old = history.sink()
    history.deliver(3, sink=old)
    history.deliver(4, run=run_of(2))
    history.roll_back(2)
    with pytest.raises(SinkError, match="FENCED"):
        history.deliver(3, sink=old)
    history.deliver(3, 4, run=run_of(3))
    assert history.rows() == list(range(5))


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_rollback_is_found_behind_other_snapshots_and_undone(
    history: History, is_expired: bool
) -> None:
    history.roll_back(1)
    history.append(100)
    if is_expired:
        history.expire()
    with pytest.raises(SinkError, match="BATCH_GAP"):
        history.deliver(4, run=run_of(2))
    if not is_expired:
        table = history.table
        table.manage_snapshots().set_current_snapshot(history.snapshots[3]).commit()
        history.deliver(4, run=run_of(2))
        assert history.rows() == list(range(5))


def test_a_table_that_was_rolled_back_to_before_the_sink(tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    catalog.create_table(TABLE, pa.schema([("n", pa.int64())])).append(pa.table({"n": [100]}))
    before = catalog.load_table(TABLE).metadata.current_snapshot_id
    history = History(tmp_path)
    history.table.manage_snapshots().rollback_to_snapshot(before).commit()
    for batch in (3, 4):
        with pytest.raises(SinkError, match="LEDGER_LOST") as error:
            history.deliver(batch, run=run_of(2))
        assert str(before) in error.value.got
    assert history.sink().read_ledger() is None
    history.deliver(0, run=run_of(3, "another query"))
    assert history.rows() == [0, 100]


REPLACED: dict[str, Callable[[History], Any]] = {
    "overwritten": lambda history: history.table.overwrite(pa.table({"n": [7]})),
    "emptied": lambda history: history.table.delete(),
    "emptied and expired": lambda history: (
        history.table.delete(),
        history.append(7),
        history.expire(),
    ),
}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "started again"])
def test_rows_that_another_writer_has_removed(
    history: History, name: str, is_running: bool
) -> None:
    sink = history.sink()
    history.deliver(3, sink=sink, run=run_of(2))
    REPLACED[name](history)
    history.append(100)
    before = history.rows()
    for batch in (3, 4):
        run = run_of(2 if is_running else 3)
        with pytest.raises(SinkError, match="LEDGER_LOST") as error:
            history.deliver(batch, sink=sink if is_running else None, run=run)
        assert "snapshot " in error.value.got
    assert history.rows() == before
    assert history.sink().read_ledger() is None
    with pytest.raises(SinkError, match="NEW_CHECKPOINT"):
        history.deliver(0, run=run_of(4, "another query"))
    history.deliver(4, sink=history.sink(new_checkpoint="continue"), run=run_of(5))
    assert history.rows() == sorted([*before, 4])
    history.deliver(5, run=run_of(6))


def of_another_sink(history: History, **options: Any) -> Any:
    sink = history.sink(name="b", **options)
    history.deliver(0, sink=sink, run=run_of(1, "other"))


HARMLESS: dict[str, Callable[[History], Any]] = {
    "appended": lambda history: history.append(7),
    "one row deleted": lambda history: history.table.delete("n = 3"),
    "expired": lambda history: history.expire(),
    "expired without a log": lambda history: history.expire(is_log_lost=True),
    "appended and expired": lambda history: (history.append(7), history.expire()),
    "appended and expired without a log": lambda history: (
        history.append(7),
        history.expire(is_log_lost=True),
    ),
    "a column added": lambda history: (
        history.table.update_schema().add_column("new", LongType()).commit()
    ),
    "properties set": lambda history: (
        history.table.transaction().set_properties({"a": "b"}).commit_transaction()
    ),
    "rolled back to the last micro-batch": lambda history: (
        history.append(7),
        history.roll_back(3),
    ),
    "by another sink": of_another_sink,
    "by another sink, and expired": lambda history: (
        of_another_sink(history),
        history.expire(is_log_lost=True),
    ),
    "updated by another sink": lambda history: of_another_sink(history, key="n"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_commits_that_leave_the_rows(history: History, name: str) -> None:
    HARMLESS[name](history)
    history.deliver(4, run=run_of(2))
    assert history.rows()[-1] >= 4
    assert history.sink().read_ledger().batch == 4
    with pytest.raises(SinkError, match="BATCH_GAP"):
        history.deliver(6, run=run_of(3))


def test_the_entries_of_several_sinks_are_rolled_back_together(history: History) -> None:
    history.deliver(0, sink=history.sink(name="b"), run=run_of(1, "other"))
    history.deliver(4, run=run_of(2))
    history.snapshots = [s.snapshot_id for s in history.table.metadata.snapshots]
    history.deliver(1, sink=history.sink(name="b"), run=run_of(1, "other"))
    history.deliver(5, run=run_of(2))
    history.roll_back(4)
    assert history.sink().read_ledger().batch == 3
    assert history.sink(name="b").read_ledger().batch == 0
    history.deliver(1, sink=history.sink(name="b"), run=run_of(2, "other"))
    # The commit of the other sink does not bring back an entry whose rows are not there.
    assert history.sink().read_ledger().batch == 3
    history.deliver(4, 5, run=run_of(3))
    assert history.rows() == [0, 0, 1, 1, 2, 3, 4, 5]


def test_a_table_of_several_sinks(history: History) -> None:
    history.deliver(0, sink=history.sink(name="b"), run=run_of(1, "other"))
    before = history.rows()
    replacing = history.sink(name="b", new_checkpoint="replace")
    with pytest.raises(SinkError, match="TARGET_SHARED"):
        history.deliver(0, sink=replacing, run=run_of(1, "another"))
    with pytest.raises(SinkError, match="LEDGER_OTHER_NAME"):
        history.deliver(3, sink=history.sink(name="c"), run=run_of(9))
    assert history.rows() == before


def test_a_table_that_was_created_again_meanwhile(history: History) -> None:
    sink = history.sink()
    history.deliver(4, sink=sink, run=run_of(2))
    history.catalog.drop_table(TABLE)
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        history.deliver(5, sink=sink, run=run_of(2))
    history.catalog.create_table(TABLE, pa.schema([("n", pa.int64())]))
    history.append(7)
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        history.deliver(5, sink=sink, run=run_of(2))
    assert history.rows() == [7]


def test_a_rollback_between_the_decision_and_the_commit_is_seen(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = history.sink()
    decide = type(sink)._decide
    done: list[int] = []

    def roll_back_after(self: Any, *arguments: Any, **others: Any) -> Any:
        decision = decide(self, *arguments, **others)
        if not done:
            history.roll_back(1)
            done.append(1)
        return decision

    monkeypatch.setattr(type(sink), "_decide", roll_back_after)
    with pytest.raises(SinkError, match="BATCH_GAP"):
        history.deliver(4, sink=sink, run=run_of(2))
    assert history.rows() == [0, 1]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("step", ["files", "snapshot", "metadata", "commit"])
def test_a_driver_that_stops_in_a_commit(
    history: History, monkeypatch: pytest.MonkeyPatch, step: str, keyed: bool
) -> None:
    """After the data files, the manifests, the metadata file, or the commit: the next run repeats it."""
    sql = pytest.importorskip("pyiceberg.catalog.sql").SqlCatalog
    stops: dict[str, tuple[Any, str, str]] = {
        "files": (Commit, "execute", "before"),
        "snapshot": (sql, "commit_table", "before"),
        "metadata": (sql, "_write_metadata", "after"),
        "commit": (sql, "commit_table", "after"),
    }
    owner, name, when = stops[step]
    function = getattr(owner, name)

    def stop(*arguments: Any, **others: Any) -> Any:
        if when == "after":
            function(*arguments, **others)
        raise KeyboardInterrupt

    options = {"key": "n"} if keyed else {}
    with monkeypatch.context() as patch:
        is_static = isinstance(vars(owner).get(name), staticmethod) or name == "_write_metadata"
        patch.setattr(owner, name, staticmethod(stop) if is_static else stop)
        with pytest.raises(KeyboardInterrupt):
            history.deliver(4, sink=history.sink(**options))
    assert history.rows() == list(range(5 if step == "commit" else 4))
    for run in (2, 3):
        history.deliver(4, sink=history.sink(**options), run=run_of(run))
    history.deliver(5, sink=history.sink(**options), run=run_of(3))
    assert history.rows() == list(range(6))
