"""Whatever crashes when: a Parquet folder has the rows of all micro-batches, each once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.sinks import leftovers, parquet_folder
from streamops.sinks.parquet import ParquetSink
from streamops.sinks.parquet_folder import Folder
from tests.laws.sink_histories import History, comparable, deliver_with_crashes, histories

pytestmark = pytest.mark.laws


@pytest.fixture(autouse=True, params=[2, 16])
def merged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests are merged after the second or not at all, and are removed at once."""
    monkeypatch.setattr("streamops.sinks.core.manifest.MERGED", request.param)
    monkeypatch.setattr(parquet_folder, "_RETENTION", -60)


STEPS = [
    (ParquetSink, "_open"),
    (Folder, "refresh"),
    (Folder, "write_rows"),
    (Folder, "write"),
    (Folder, "move"),
    (Folder, "merge"),
    (Folder, "publish"),
    (Folder, "remove_merged"),
    (leftovers, "delete"),
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
                (Folder, "announce"),
                (Folder, "clean_up"),
                (Folder, "write_file"),
            ],
            in_tasks=True,
        )
        found = sinks.read_parquet(path, check="content").to_table().to_pylist()
        expected = [row for batch in history.batches for row in batch.to_pylist()]
        assert comparable(map(dict.values, found)) == comparable(map(dict.values, expected))
        # What attempts have left is removed: a file is committed, or not there.
        left = {str(f.relative_to(path)) for f in Path(path, "_batches").rglob("*.parquet")}
        stored = Folder(path, None)
        found = filter(None, map(stored._read_if_any, stored._numbers()))
        assert left == {file.path for manifest in found for file in manifest.files}
        assert not list(Path(path, "_attempts").glob("*"))
