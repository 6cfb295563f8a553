"""Whatever crashes when: a Parquet folder has the rows of all micro-batches, each once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.sinks.parquet import ParquetSink, _Folder
from tests.laws.sink_histories import History, comparable, deliver_with_crashes, histories

pytestmark = pytest.mark.laws

STEPS = [
    (ParquetSink, "_open"),
    (_Folder, "refresh"),
    (_Folder, "write_rows"),
    (_Folder, "write"),
    (_Folder, "move"),
    (_Folder, "publish"),
]


@given(data=st.data(), history=histories(["append", "changes", "multiset"]))
def test_a_folder_has_every_micro_batch_once(data: st.DataObject, history: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/archive"
        without_key = History({}, history.batches, history.expected)
        deliver_with_crashes(
            data, lambda **options: sinks.parquet(path, **options), without_key, STEPS
        )
        found = sinks.read_parquet(path, check="content").to_table().to_pylist()
        expected = [row for batch in history.batches for row in batch.to_pylist()]
        assert comparable(map(dict.values, found)) == comparable(map(dict.values, expected))
        assert sinks.parquet(path).read_ledger().batch == len(history.batches) - 1  # type: ignore[union-attr]


@given(data=st.data(), history=histories(["append", "changes", "multiset"]))
def test_a_folder_has_every_micro_batch_of_tasks_once(
    data: st.DataObject, history: History
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/archive"
        without_key = History({}, history.batches, history.expected)
        deliver_with_crashes(
            data,
            lambda **options: sinks.parquet(path, **options),
            without_key,
            [
                *STEPS[:2],
                *STEPS[3:],
                (_Folder, "announce"),
                (_Folder, "clean_up"),
                (_Folder, "write_file"),
            ],
            in_tasks=True,
        )
        found = sinks.read_parquet(path, check="content").to_table().to_pylist()
        expected = [row for batch in history.batches for row in batch.to_pylist()]
        assert comparable(map(dict.values, found)) == comparable(map(dict.values, expected))
        # What attempts have left is removed: a file is committed, or not there.
        left = {str(f.relative_to(path)) for f in Path(path, "_batches").rglob("*.parquet")}
        assert left == {f.path for m in _Folder(path, None).read_all("size") for f in m.files}
        assert not list(Path(path, "_attempts").glob("*"))
