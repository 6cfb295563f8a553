"""Values at the limits of their types, and beyond what Python has, through sinks, errors and results of replay.

A sink delivers each of them exactly, or refuses all with a condition. No text of an error fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import sqlalchemy as sa

from streamops import changes, sinks
from streamops.errors import StreamopsError
from streamops.kernel.formatted import format_row, format_value
from streamops.spark.identity import Identity
from streamops.state.comparing import find_row
from streamops.testing import replay
from tests.borders import IS_LONG
from tests.extreme_values import EXTREMES, column
from tests.sinks.attempts import deliver

deltalake = pytest.importorskip("deltalake")
pyiceberg = pytest.importorskip("pyiceberg.catalog")

RUN = Identity("query", "run")
FEW = ("date", "decimal", "timestamp in New York", "timestamp_ntz", "time")
NAMES = EXTREMES if IS_LONG else FEW
TARGETS = ("parquet", "delta", "delta by", "iceberg", "iceberg by", "sqlite", "sqlite by")


def in_driver(sink: Any, rows: pa.Table, batch: int) -> None:
    sink._deliver_rows(rows, batch, RUN)


def in_tasks(sink: Any, rows: pa.Table, batch: int) -> None:
    deliver(sink, rows, batch, RUN)


def target(name: str, folder: Path) -> tuple[Any, Callable[[], pa.Table]]:
    """A sink, by the key column `k` or by the value `v`, and what reads its rows."""
    key = "v" if name.endswith(" by") else "k"
    if name == "parquet":
        sink = sinks.parquet(folder / "t")
        return sink, lambda: ds.dataset([*map(str, (folder / "t").rglob("*.parquet"))]).to_table()
    if name.startswith("delta"):
        path = str(folder / "t")
        sink = sinks.delta(path, key=key)
        return sink, lambda: ds.dataset(deltalake.DeltaTable(path).file_uris()).to_table()
    if name.startswith("iceberg"):
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/c.db",
            "warehouse": f"file://{folder}",
        }
        opened = pyiceberg.load_catalog("c", **catalog)
        opened.create_namespace_if_not_exists("shop")
        sink = sinks.iceberg({"name": "c", **catalog}, "shop.t", key=key)
        return sink, lambda: opened.load_table("shop.t").scan().to_arrow()
    url = f"sqlite:///{folder}/t.db"

    def read() -> pa.Table:
        with sa.create_engine(url).connect() as connection:
            return pa.table(
                {"k": [row[0] for row in connection.execute(sa.text("SELECT k FROM t"))]}
            )

    return sinks.sqlalchemy(url, "t", key=key), read


@pytest.mark.parametrize("way", [in_driver, in_tasks])
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_a_sink_delivers_extreme_values_or_refuses_them(
    name: str, to: str, way: Any, tmp_path: Path
) -> None:
    values = column(name)
    if not to.endswith(" by"):  # a null is no key
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    rows = pa.table({"k": pa.array(range(len(values))), "v": values})
    sink, read = target(to, tmp_path)
    is_refused = False
    try:
        way(sink, rows, 0)
    except StreamopsError:
        is_refused = True
    if is_refused:
        assert to != "parquet"
        with suppress(Exception):  # there is no target, or no row in it
            is_refused = len(read()) == 0
        assert is_refused
        return
    found = read().sort_by("k")
    if not to.startswith("sqlite"):
        assert find_row(found.select(["k", "v"]).cast(rows.schema), rows) == ""
    assert found["k"].to_pylist() == rows["k"].to_pylist()
    if to == "parquet":
        return
    # An error has the value of the key in its text.
    with pytest.raises(StreamopsError) as caught:
        way(sink, pa.concat_tables([rows, rows]), 1)
    assert re.search(r"got: +\{'k': \d+, 'v': .+\}", str(caught.value))
    assert any(format_row(rows, row) in str(caught.value) for row in range(len(rows)))


@pytest.mark.parametrize("name", NAMES)
def test_replay_and_its_errors_have_extreme_values(name: str) -> None:
    values = column(name)
    rows = pa.table({"k": values, "n": pa.array([1] * len(values))})
    operator = changes.apply("k", sequence="n", horizon=10)
    (found,) = replay(operator, [rows], restart=True)
    keys = rows.select(["k"])
    assert find_row(found.table.select(["k"]).cast(keys.schema), keys) == ""
    assert find_row(rows, rows.slice(1)).startswith(f"{{'k': {format_value(values[0])}, 'n': 1}}")
    assert repr(found)
