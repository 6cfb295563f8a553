"""Whatever crashes when: a table of a database has the rows that all micro-batches fold to."""

from __future__ import annotations

import math
import tempfile
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.sinks.sqlalchemy import SqlalchemySink
from tests.laws.sink_histories import History, comparable, deliver_with_crashes, histories

sa = pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.laws

STEPS = [
    (sa.Connection, "execute"),
    (SqlalchemySink, "_prepare_tables"),
    (SqlalchemySink, "_apply"),
    (SqlalchemySink, "_peek"),
]


def without_nan(rows: pa.Table) -> pa.Table:
    """SQLite has no NaN."""
    values = [None if v is not None and math.isnan(v) else v for v in rows["v"].to_pylist()]
    at = rows.column_names.index("v")
    return rows.set_column(at, rows.schema.field(at), pa.array(values, pa.float64()))


@given(data=st.data(), history=histories(["append", "upsert", "changes", "multiset"]))
def test_a_table_has_every_micro_batch_once(data: st.DataObject, history: History) -> None:
    def plain(row: Any) -> tuple[Any, ...]:
        return tuple(None if isinstance(v, float) and math.isnan(v) else v for v in row)

    batches = [without_nan(batch) for batch in history.batches]
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/database"

        def new_sink(**options: Any) -> SqlalchemySink:
            return sinks.sqlalchemy(url, "t", **options)

        given_history = History(history.options, batches, history.expected)
        deliver_with_crashes(data, new_sink, given_history, STEPS)
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            found = connection.execute(
                sa.select(sa.Table("t", sa.MetaData(), autoload_with=connection))
            ).all()
        engine.dispose()
        assert comparable(found) == comparable(map(plain, history.expected))
        assert new_sink().read_ledger().batch == len(batches) - 1  # type: ignore[union-attr]
