"""Sinks take shredded rows exactly once: a repeated micro-batch is the same, unless its key was deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.erasure.samples import Entries, columns_of, entries_of, shred

RUN = Identity("query", "run 1")
AGAIN = Identity("query", "run 2")
SUBJECTS = ["ann", "bob"]
KEYS = entries_of(*SUBJECTS)


def micro_batch(entries: Entries) -> pa.Table:
    (email,), _ = shred(columns_of(email=pa.string()), SUBJECTS, entries, email=["a@x", "b@x"])
    return pa.table({"user": SUBJECTS, "email": email})


def parquet(path: str) -> tuple[Any, Any]:
    return sinks.parquet(path), lambda: sinks.read_parquet(path).to_table().to_pylist()


def delta(path: str) -> tuple[Any, Any]:
    deltalake = pytest.importorskip("deltalake")

    def read() -> Any:
        return pa.table(deltalake.DeltaTable(path).scan().read_all()).to_pylist()

    return sinks.delta(path, key=["user", "email"]), read


def iceberg(path: str) -> tuple[Any, Any]:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    properties = {"type": "sql", "uri": f"sqlite:///{path}.db", "warehouse": path}

    def read() -> Any:
        table = catalogs.load_catalog(**properties).load_table("shop.log")
        return table.scan().to_arrow().to_pylist()

    return sinks.iceberg(properties, "shop.log", key=["user", "email"]), read


def sqlalchemy(path: str) -> tuple[Any, Any]:
    sa = pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{path}"

    def read() -> Any:
        engine = sa.create_engine(url)
        try:
            with engine.connect() as connection:
                table = sa.Table("log", sa.MetaData(), autoload_with=connection)
                return [dict(row) for row in connection.execute(sa.select(table)).mappings()]
        finally:
            engine.dispose()

    return sinks.sqlalchemy(url, "log", key=["user", "email"]), read


@pytest.mark.parametrize("make", [parquet, delta, iceberg, sqlalchemy])
def test_a_repeated_micro_batch_is_skipped(tmp_path: Path, make: Any) -> None:
    rows = micro_batch(KEYS)
    for run in (RUN, AGAIN):
        sink, read = make(str(tmp_path / "log"))
        sink._deliver_rows(rows, 0, run)
        written = [{name: row[name] for name in rows.column_names} for row in read()]
        assert sorted(written, key=str) == sorted(rows.to_pylist(), key=str)


def test_an_erasure_between_two_attempts_is_refused_and_can_be_skipped(tmp_path: Path) -> None:
    sinks.parquet(str(tmp_path))._deliver_rows(micro_batch(KEYS), 0, RUN)
    erased = micro_batch({**KEYS, "ann": [(1, None)]})
    with pytest.raises(SinkError, match="BATCH_DIFFERS"):
        sinks.parquet(str(tmp_path))._deliver_rows(erased, 0, AGAIN)
    sinks.parquet(str(tmp_path), repeated="skip")._deliver_rows(erased, 0, AGAIN)
    assert sinks.read_parquet(str(tmp_path)).to_table().column("email").null_count == 0
