"""Spark with Iceberg's runtime, and DuckDB, read what the sink wrote; and the sink goes on with tables of Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.sinks.iceberg import IcebergSink
from tests.sinks.attempts import in_tasks
from tests.sinks.contract import RUN, run_of

catalogs = pytest.importorskip("pyiceberg.catalog")

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamops/iceberg-1.11.0"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CACHE / "complete").exists(), reason="run scripts/get-iceberg"),
]


class Engines:
    """Spark and DuckDB, in a process with an environment of its own, on the catalog of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = {
            "name": "c",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        self.catalog = catalogs.load_catalog(**self.properties)
        self.catalog.create_namespace("shop")
        program = Path(__file__).with_name("iceberg_readers.py")
        jars = ",".join(map(str, (CACHE / "jars").glob("*.jar")))
        hidden = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYTHONSAFEPATH"}
        with (folder / "stderr").open("w") as stderr:
            self.process = subprocess.Popen(
                [CACHE / "venv/bin/python", program, str(folder), jars],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={name: value for name, value in os.environ.items() if name not in hidden},
            )

    def ask(self, request: list[str] | str) -> list[dict[str, Any]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                rows: list[dict[str, Any]] = json.loads(line.removeprefix("ANSWER "))
                return rows
        raise AssertionError((self.folder / "stderr").read_text()[-4000:])

    def spark(self, *statements: str) -> list[dict[str, Any]]:
        return self.ask(list(statements))

    def read(self, table: str) -> list[dict[str, Any]]:
        """The rows, which all readers find."""
        path = self.catalog.load_table(table).metadata_location
        by_duckdb = self.ask(path.removeprefix("file://"))
        by_spark = self.spark(f"SELECT * FROM c.{table}")
        rows = self.catalog.load_table(table).scan().to_arrow().to_pylist()
        expected = sorted(map(comparable, json.loads(json.dumps(rows, default=str))))
        assert sorted(map(comparable, by_spark)) == expected
        assert sorted(map(comparable, by_duckdb)) == expected
        return sorted(rows, key=repr)

    def sink(self, table: str, **options: Any) -> Any:
        return sinks.iceberg(self.properties, table, **options)


def comparable(row: dict[str, Any]) -> str:
    """A row as text. Spark's times have no zone, as its session has UTC; a map is a list of pairs or an object."""
    text = json.dumps(
        {n: [*v.items()] if n == "m" and isinstance(v, dict) else v for n, v in row.items()}
    )
    return text.replace("+00:00", "").replace("b''", "bytearray(b'')").replace("bytearray(", "").replace("')", "'")  # fmt: skip


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    found = Engines(tmp_path_factory.mktemp("engines"))
    with found.process:  # which ends when its input does
        yield found


@pytest.fixture(params=["driver", "tasks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes."""
    if request.param == "tasks":
        monkeypatch.setattr(IcebergSink, "_deliver_rows", in_tasks)
    return str(request.param)


def test_all_readers_find_the_same_rows(engines: Engines, way: str) -> None:
    name = f"shop.ours_{way}"
    at = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, dt.UTC)
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("say \"hi\" a.b", pa.string()),
            ("small", pa.int8()),
            ("f", pa.float32()),
            ("d", pa.decimal128(20, 3)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("s", pa.struct([("x y", pa.int32()), ("l", pa.list_(pa.string()))])),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("revision", pa.int64()),
        ]
    )  # fmt: skip
    sink = engines.sink(name, key="k")
    sink._deliver_rows(schema.empty_table(), 0, RUN)
    assert engines.read(name) == []
    for batch in (1, 2):
        keys = [batch, 2, 3]
        rows = {
            "k": keys,
            'say "hi" a.b': ["é", None, "x" * 40],
            "small": [-128, 127, None],
            "f": [0.5, None, -1.5],
            "d": [Decimal("12.345"), None, Decimal("-0.001")],
            "day": [dt.date(1969, 12, 31), None, dt.date(2026, 3, 1)],
            "at": [at, None, at],
            "local": [at.replace(tzinfo=None), None, None],
            "s": [{"x y": 1, "l": ["a", None]}, None, {"x y": None, "l": None}],
            "m": [[("a", 1)], [], None],
            "revision": [batch] * 3,
        }
        table = pa.table(rows, schema).slice(0, 3 if batch == 1 else 2)
        table = table.slice(0, 1) if batch == 2 else table
        sink._deliver_rows(table, batch, RUN)
    found = engines.read(name)
    assert [row["k"] for row in found] == [1, 2, 3]
    assert engines.spark(f"SELECT k FROM c.{name} WHERE at >= '2026-01-01' AND k > 1 ORDER BY k") == [{"k": 2}, {"k": 3}]  # fmt: skip
    # The entry is for people, too.
    (listed,) = engines.spark(f"SHOW TBLPROPERTIES c.{name} ('streamops.ledger.default')")
    assert '"query",1,"run 1",2' in listed["value"]


def test_tables_of_spark_with_deletes_and_partitions(engines: Engines, way: str) -> None:
    name = f"shop.theirs_{way}"
    engines.spark(
        f"""CREATE TABLE c.{name} (k bigint NOT NULL, day timestamp, v string) USING iceberg
        PARTITIONED BY (days(day), bucket(4, k)) TBLPROPERTIES ('format-version'='2',
        'write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')""",
        f"""INSERT INTO c.{name} SELECT id, timestamp'2026-03-01' + make_dt_interval(id % 3), 'old'
        FROM range(60)""",
        f"DELETE FROM c.{name} WHERE k % 7 = 3",
    )
    sink = engines.sink(name, key="k")
    keys = [0, 3, 10, 59, 100]
    days = pa.array([dt.datetime(2026, 3, 1, tzinfo=dt.UTC)] * 5, pa.timestamp("us", "UTC"))
    sink._deliver_rows(pa.table({"k": keys, "day": days, "v": ["new"] * 5}), 0, RUN)
    expected = {k: "old" for k in range(60) if k % 7 != 3} | dict.fromkeys(keys, "new")
    assert {row["k"]: row["v"] for row in engines.read(name)} == expected
    engines.spark(
        f"ALTER TABLE c.{name} ADD COLUMN more int",
        f"ALTER TABLE c.{name} RENAME COLUMN v TO w",
        f"ALTER TABLE c.{name} DROP PARTITION FIELD bucket(4, k)",
        f"DELETE FROM c.{name} WHERE k = 10",
    )
    more = {"k": [3, 10, 20], "day": days.slice(0, 3), "w": ["x", "y", "z"], "more": [1, 2, 3]}
    more["more"] = pa.array(more["more"], pa.int32())
    sink._deliver_rows(pa.table(more), 1, RUN)
    expected |= {3: "x", 10: "y", 20: "z"}
    assert {row["k"]: row["w"] for row in engines.read(name)} == expected


def test_the_procedures_of_spark_leave_the_entry(engines: Engines) -> None:
    sink = engines.sink("shop.kept")
    for batch in range(4):
        sink._deliver_rows(pa.table({"n": [batch]}), batch, RUN)
    engines.spark(
        "CALL c.system.rewrite_data_files(table => 'shop.kept', options => map('rewrite-all', 'true'))",
        "CALL c.system.rewrite_manifests('shop.kept')",
        "CALL c.system.expire_snapshots(table => 'shop.kept', older_than => now(), retain_last => 1)",
        "CALL c.system.remove_orphan_files(table => 'shop.kept')",
    )
    sink._deliver_rows(pa.table({"n": [4]}), 4, RUN)
    assert [row["n"] for row in engines.read("shop.kept")] == [0, 1, 2, 3, 4]
    first = engines.catalog.load_table("shop.kept").metadata.snapshots[0].snapshot_id
    engines.spark(f"CALL c.system.rollback_to_snapshot('shop.kept', {first})")
    with pytest.raises(SinkError, match="BATCH_GAP"):
        engines.sink("shop.kept")._deliver_rows(pa.table({"n": [5]}), 5, run_of(2))
    engines.spark("CREATE OR REPLACE TABLE c.shop.kept (n bigint) USING iceberg")
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        engines.sink("shop.kept")._deliver_rows(pa.table({"n": [5]}), 5, run_of(3))
    assert engines.read("shop.kept") == []


def test_tables_of_version_3_are_refused(engines: Engines) -> None:
    """pyiceberg reads them, also their deletion vectors, and does not write them."""
    engines.spark(
        """CREATE TABLE c.shop.new (k bigint) USING iceberg
        TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')""",
        "INSERT INTO c.shop.new SELECT id FROM range(10)",
        "DELETE FROM c.shop.new WHERE k = 3",
    )
    with pytest.raises(SinkError, match="TARGET_FEATURE"):
        engines.sink("shop.new", key="k")._deliver_rows(pa.table({"k": [3]}), 0, RUN)
    assert len(engines.read("shop.new")) == 9
