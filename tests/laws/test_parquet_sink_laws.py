"""Whatever crashes when: a Parquet folder has the rows of all micro-batches, each once."""

from __future__ import annotations

import tempfile

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
