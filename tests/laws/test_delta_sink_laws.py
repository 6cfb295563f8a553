"""Whatever crashes when: a Delta table has the rows that all micro-batches fold to."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.sinks.core import delta_commit
from streamops.sinks.core.delta_commit import Commit
from streamops.sinks.delta import DeltaSink
from tests.laws.sink_histories import History, comparable, deliver_with_crashes, histories

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.laws

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
