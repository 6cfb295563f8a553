"""The connectors of Spark write tables that no other writer takes, each micro-batch once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, RequirementError, SinkError, SpecError
from streamops.kernel.versions import table_of
from streamops.sinks import connectors
from streamops.sinks.core.net import digest
from streamops.sinks.sink import Session
from streamops.sinks.spark_writer import _reduce
from streamops.sinks.tasks import add_up

CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    / "streamops/connectors-4.4.0-1.11.0"
)
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not (CACHE / "complete").exists(), reason="run scripts/get-connectors")
def test_the_connectors_write_each_micro_batch_once(tmp_path: Path) -> None:
    python = str(CACHE / "venv/bin/python")
    hidden = {"SPARK_HOME", "PYTHONSAFEPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    found = subprocess.run(
        [python, "-m", "tests.sinks.spark_writers", str(tmp_path), str(CACHE / "jars")],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PASSED all" in found.stdout, found.stdout + found.stderr[-4000:]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"writer": "flink"}, "UNKNOWN_CHOICE"),
        ({"writer": "spark", "columns": "add"}, "PARAMETERS_CONTRADICT"),
        ({"writer": "spark", "storage_options": {"a": "b"}}, "PARAMETERS_CONTRADICT"),
    ],
)
def test_what_a_connector_does_not_do_is_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError, match=code):
        sinks.delta("lake.daily", **options)


def test_properties_of_a_catalog_are_those_of_the_session() -> None:
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT"):
        sinks.iceberg({"name": "lake"}, "shop.orders", writer="spark")
    assert "'shop.orders'" in repr(sinks.iceberg("lake", "shop.orders", writer="spark"))


def test_spark_connect_is_refused() -> None:
    client: Any = object()  # without the JVM of a classic session
    with pytest.raises(RequirementError, match="SESSION_TYPE"):
        connectors.clone(client, Session())


def reduce(rows: pa.Table, *partitions: str, key: tuple[str, ...] | None = ("k",)) -> list[Any]:
    """What a task yields: rows with what is added and removed, and a receipt."""
    batches = list(_reduce(key, ("revision",) if key else (), partitions, iter(rows.to_batches(2))))
    found = pa.Table.from_batches(batches)
    receipts = table_of(found.column("receipt").drop_null().combine_chunks())
    receipt = add_up(rows.schema, receipts)
    assert (receipt.rows, receipt.digest, receipt.parts) == (len(rows), digest(rows)[0], ({},))
    return found.drop_columns(["receipt"]).to_pylist()[:-1]


def changes(*rows: tuple[int, str, int, str]) -> pa.Table:
    names = ("k", "v", "revision", "_change_type")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def test_a_task_yields_the_net_change_of_each_key() -> None:
    pre, post = "update_preimage", "update_postimage"
    rows = changes(
        (1, "a", 1, pre),
        (1, "b", 2, post),
        (2, "a", 1, "delete"),
        (3, "new", 1, "insert"),
        (4, "a", 4, "delete"),
        (4, "again", 5, "insert"),
        (5, "gone", 1, "insert"),
        (5, "gone", 1, "delete"),
    )

    def row(k: int, v: str, revision: int) -> dict[str, Any]:
        return {"k": k, "v": v, "revision": revision}

    expected = [
        {"removed": row(1, "a", 1), "added": row(1, "b", 2), "must_match": True},
        {"removed": row(2, "a", 1), "added": None, "must_match": False},
        {"removed": row(4, "a", 4), "added": row(4, "again", 5), "must_match": False},
        {"removed": None, "added": row(3, "new", 1), "must_match": False},
    ]
    found = reduce(rows)
    assert sorted(map(repr, map(sorted_items, found))) == sorted(
        map(repr, map(sorted_items, expected))
    )


def sorted_items(row: dict[str, Any]) -> list[Any]:
    return sorted(row.items())


def test_a_task_yields_the_newest_row_of_each_key_or_all_rows() -> None:
    rows = changes((1, "a", 1, ""), (1, "b", 2, ""), (2, "c", 1, "")).drop_columns(["_change_type"])
    assert [row["added"]["v"] for row in reduce(rows)] == ["b", "c"]
    assert [row["added"]["v"] for row in reduce(rows, key=None)] == ["a", "b", "c"]


def test_a_task_returns_what_it_refuses() -> None:
    with pytest.raises(ChangeStreamError, match="PREIMAGE_ALONE"):
        reduce(changes((1, "a", 1, "update_preimage")))
    with pytest.raises(SinkError, match="TARGET_TYPE"):
        reduce(changes((1, "", 1, "insert")), "v")
