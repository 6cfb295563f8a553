"""Whatever crashes when: a Delta table has the rows that all micro-batches fold to."""

from __future__ import annotations

import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.kernel.versions import has_views
from streamops.sinks import copy_on_write, delta_files, leftovers
from streamops.sinks.core import delta_commit, delta_log
from streamops.sinks.core.delta_commit import Commit
from streamops.sinks.delta import DeltaSink
from streamops.sinks.delta_files import DeltaFiles
from tests.laws.sink_histories import (
    FIXED,
    History,
    comparable,
    deliver_with_crashes,
    deliver_with_every_crash,
    histories,
)

deltalake = pytest.importorskip("deltalake", minversion="1.6.6")
pytestmark = [
    pytest.mark.laws,
    pytest.mark.skipif(not has_views(), reason="sinks.delta needs Arrow 16"),
]

STEPS = [
    (DeltaSink, "_open"),
    (DeltaSink, "_create"),
    (DeltaSink, "_fit"),
    (Commit, "read_range"),
    (Commit, "rows_like"),
    (Commit, "_merge"),
    (Commit, "_execute"),
    (Commit, "_write"),
]


@pytest.mark.parametrize("rows_per_change", [delta_commit._ROWS_PER_CHANGE, 2, 0])
@given(data=st.data(), history=histories(["append", "upsert", "changes", "multiset"]))
def test_a_table_has_every_micro_batch_once(
    rows_per_change: int, data: st.DataObject, history: History
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_commit, "_ROWS_PER_CHANGE", rows_per_change)
        path = f"{folder}/table"
        deliver_with_crashes(data, lambda **options: sinks.delta(path, **options), history, STEPS)
        table = deltalake.DeltaTable(path)
        names = [name for name in history.batches[0].column_names if name != "_change_type"]
        found = pa.table(table.scan(columns=names).read_all()).to_pylist()
        assert comparable(tuple(row[n] for n in names) for row in found) == comparable(
            history.expected
        )
        assert sinks.delta(path).read_ledger().batch == len(history.batches) - 1  # type: ignore[union-attr]


STEPS_OF_TASKS = [
    (DeltaSink, "_open"),
    (DeltaSink, "_create"),
    (delta_files, "add_columns"),
    (leftovers, "announce"),
    (leftovers, "write_file"),
    (DeltaFiles, "write"),
    (copy_on_write, "_compare"),
    (delta_files, "commit_files"),
    (delta_files, "clean_up"),
    (leftovers, "remove"),
    *STEPS[-2:],
]


@pytest.mark.parametrize("partition_by", [None, "k"])
@given(data=st.data(), history=histories(["append", "upsert", "changes", "multiset"]))
def test_a_table_has_every_micro_batch_of_tasks_once(
    partition_by: str | None, data: st.DataObject, history: History
) -> None:
    """And what attempts have left is removed: a file is in the log, or not there."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/table"
        names = [name for name in history.batches[0].column_names if name != "_change_type"]
        schema = history.batches[0].select(names).schema
        deltalake.DeltaTable.create(path, schema, partition_by=partition_by)
        deliver_with_crashes(
            data,
            lambda **options: sinks.delta(path, **options),
            history,
            STEPS_OF_TASKS,
            in_tasks=True,
        )
        check(path, history)


@pytest.mark.parametrize("form", FIXED)
def test_what_is_left_by_a_crash_at_any_step_is_removed(tmp_path: Path, form: str) -> None:
    history, numbers = FIXED[form], itertools.count()

    def new_target() -> Any:
        path = str(tmp_path / str(next(numbers)))
        names = [name for name in history.batches[0].column_names if name != "_change_type"]
        schema = history.batches[0].select(names).schema
        deltalake.DeltaTable.create(path, schema, partition_by="k")
        return partial(sinks.delta, path), partial(check, path, history)

    assert deliver_with_every_crash(history, STEPS_OF_TASKS, new_target) > 15


def check(path: str, history: History) -> None:
    """The table has the rows, and its folder no file that is in no version."""
    names = [name for name in history.batches[0].column_names if name != "_change_type"]
    table = deltalake.DeltaTable(path)
    found = pa.table(table.scan(columns=names).read_all()).to_pylist()
    assert comparable(tuple(row[n] for n in names) for row in found) == comparable(history.expected)
    assert sinks.delta(path).read_ledger().batch == len(history.batches) - 1  # type: ignore[union-attr]
    read = delta_log.reader(path, None)
    commits = (read(version) for version in range(table.version() + 1))
    added = {unquote(a["add"]["path"]) for actions in commits for a in actions if "add" in a}
    assert {str(f.relative_to(path)) for f in Path(path).rglob("*.parquet")} <= added
    assert not [f for f in Path(path, "_streamops").rglob("*") if f.is_file()]
