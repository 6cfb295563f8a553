"""Whatever crashes when: an Iceberg table has the rows that all micro-batches fold to."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.sinks import copy_on_write, iceberg_tasks, leftovers
from streamops.sinks.core.iceberg_commit import Commit
from streamops.sinks.core.iceberg_files import TableFiles, _Writer
from streamops.sinks.iceberg import IcebergSink
from tests.laws.sink_histories import (
    FIXED,
    History,
    comparable,
    deliver_with_crashes,
    deliver_with_every_crash,
    histories,
)

catalogs = pytest.importorskip("pyiceberg.catalog")
transforms = pytest.importorskip("pyiceberg.transforms")
pytestmark = pytest.mark.laws

TABLE = "shop.rows"
STEPS = [
    (IcebergSink, "_open"),
    (leftovers, "announce"),
    (leftovers, "write_file"),
    (TableFiles, "write"),
    (_Writer, "_finish"),
    (copy_on_write, "_compare"),
    (Commit, "execute"),
    (iceberg_tasks, "clean_up"),
    (leftovers, "remove"),
]


class Table:
    """A table in a folder, of which each partition is a bucket of a column."""

    def __init__(self, folder: str, history: History) -> None:
        self.folder, self.history = folder, history
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        self.names = [n for n in history.batches[0].column_names if n != "_change_type"]
        catalog = catalogs.load_catalog(**self.properties)
        catalog.create_namespace("shop")
        self.table = catalog.create_table(TABLE, history.batches[0].select(self.names).schema)
        with self.table.update_spec() as update:
            update.add_field("k", transforms.BucketTransform(2))

    def sink(self, **options: Any) -> IcebergSink:
        return sinks.iceberg(self.properties, TABLE, **options)

    def check(self, *, by_driver: bool = False) -> None:
        """The table has the rows, and its folder no file that is in no snapshot, but for those of a driver."""
        table, history = self.table.refresh(), self.history
        found = table.scan().to_arrow().to_pylist()
        rows = (tuple(row[name] for name in self.names) for row in found)
        assert comparable(rows) == comparable(history.expected)
        entry = self.sink().read_ledger()
        assert entry is not None
        assert entry.batch == len(history.batches) - 1
        known = {
            entry.data_file.file_path.removeprefix("file://")
            for snapshot in table.metadata.snapshots
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        }
        files = [f for f in Path(self.folder).rglob("*") if f.is_file()]
        assert by_driver or {str(f) for f in files if f.suffix == ".parquet"} <= known
        assert not [f for f in files if "streamops" in f.relative_to(self.folder).parts]


@given(data=st.data(), history=histories(["append", "upsert", "changes", "multiset"]))
def test_a_table_has_every_micro_batch_of_tasks_once(data: st.DataObject, history: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table(folder, history)
        deliver_with_crashes(data, table.sink, history, STEPS, in_tasks=True)
        table.check(by_driver=True)


@pytest.mark.parametrize("form", FIXED)
def test_what_is_left_by_a_crash_at_any_step_is_removed(tmp_path: Path, form: str) -> None:
    history, numbers = FIXED[form], itertools.count()

    def new_target() -> Any:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        table = Table(str(folder), history)
        return table.sink, table.check

    assert deliver_with_every_crash(history, STEPS, new_target) > 15
