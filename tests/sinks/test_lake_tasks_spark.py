"""Tasks of Spark write rows of all forms to Delta and Iceberg tables, which have partitions and rows of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import sinks
from streamops.errors import ChangeStreamError
from streamops.sinks.tasks import Projection

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")
transforms = pytest.importorskip("pyiceberg.transforms")

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("k", pa.int64()), ("p", pa.string()), ("revision", pa.int64()), ("v", pa.int64())]
)
Row = tuple[int, str, int, int]


def row(k: int, revision: int, v: int) -> Row:
    return k, f"p {k % 3}", revision, v


THEIRS = [row(k, 0, -1) for k in range(10)]


class Table:
    """A table that somebody else has created, with ten rows."""

    rows: Callable[[], list[dict[str, Any]]]
    sink: Callable[..., Any]


def delta(folder: Path) -> Table:
    path, table = str(folder / "table"), Table()
    rows = [dict(zip(SCHEMA.names, of, strict=True)) for of in THEIRS]
    deltalake.write_deltalake(path, pa.Table.from_pylist(rows, SCHEMA), partition_by=["p"])
    table.sink = lambda **options: sinks.delta(path, **options)
    table.rows = lambda: pa.table(deltalake.DeltaTable(path).scan().read_all()).to_pylist()
    return table


def iceberg(folder: Path) -> Table:
    uri, table = f"sqlite:///{folder}/catalog.db", Table()
    properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"}
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    created = catalog.create_table("shop.rows", SCHEMA)
    with created.update_spec() as update:
        update.add_field("p", transforms.IdentityTransform())
    rows = [dict(zip(SCHEMA.names, of, strict=True)) for of in THEIRS]
    created.append(pa.Table.from_pylist(rows, SCHEMA))
    with created.update_spec() as update:  # their files stay in other partitions than ours
        update.add_field("k", transforms.BucketTransform(2))
    table.sink = lambda **options: sinks.iceberg(properties, "shop.rows", **options)
    table.rows = lambda: created.refresh().scan().to_arrow().to_pylist()
    return table


@pytest.fixture(params=[delta, iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.delattr(Projection, "collect")  # no rows pass the driver
    monkeypatch.delattr(Projection, "collect_small")
    found: Table = request.param(tmp_path)
    return found


def write(table: Table, frame: DataFrame, batch: int, **options: Any) -> None:
    table.sink(**options).write(frame, query="job", batch_id=batch)


def check(table: Table, expected: list[Row]) -> None:
    found = Counter(tuple(of[name] for name in SCHEMA.names) for of in table.rows())
    assert found == Counter(expected)


def frame_of(spark: SparkSession, text: str, count: int) -> DataFrame:
    return spark.sql(f"SELECT {text} FROM range(0, {count}, 1, 3)")


PARTITION = "concat('p ', id % 3) AS p"


def test_appended_rows(spark: SparkSession, table: Table) -> None:
    frame = frame_of(spark, f"id AS k, {PARTITION}, 5L AS revision, id AS v", 300)
    write(table, frame, 0)
    write(table, frame, 0)  # repeated
    check(table, THEIRS + [row(k, 5, k) for k in range(300)])


def test_revisions(spark: SparkSession, table: Table) -> None:
    first = frame_of(spark, f"id AS k, {PARTITION}, 1L AS revision, id AS v", 300)
    write(table, first.where("k >= 5"), 0, key="k")
    # Every other row is older than that of the table.
    columns = f"id AS k, {PARTITION}, if(id % 2 = 0, 2L, 0L) AS revision, -id AS v"
    write(table, frame_of(spark, columns, 300), 1, key="k")
    old = [row(k, 0, -1) if k < 5 else row(k, 1, k) for k in range(1, 300, 2)]
    check(table, old + [row(k, 2, -k) for k in range(0, 300, 2)])


def test_a_change_stream(spark: SparkSession, table: Table) -> None:
    columns = f"id AS k, {PARTITION}, 0L AS revision, id AS v, 'insert' AS _change_type"
    write(table, frame_of(spark, columns, 300).where("k >= 10"), 0, key="k")
    before = f"id AS k, {PARTITION}, 0L AS revision, if(id < 10, -1, id) AS v"
    after = f"id AS k, {PARTITION}, 1L AS revision, 2 * id AS v"
    changed = [
        frame_of(spark, f"{before}, 'update_preimage' AS _change_type", 100),
        frame_of(spark, f"{after}, 'update_postimage' AS _change_type", 100),
        frame_of(spark, f"{before}, 'delete' AS _change_type", 150).where("k >= 100"),
        frame_of(spark, columns, 310).where("k >= 300"),
    ]
    change = changed[0].union(changed[1]).union(changed[2]).union(changed[3])
    write(table, change, 1, key="k")
    expected = [row(k, 1, 2 * k) for k in range(100)] + [row(k, 0, k) for k in range(150, 310)]
    check(table, expected)
    with pytest.raises(ChangeStreamError, match="DELETED_UNPUBLISHED"):
        write(table, changed[2].where("k = 100"), 2, key="k")
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        write(table, changed[0].union(changed[1]).where("k = 1"), 2, key="k")
    check(table, expected)


def test_a_multiset(spark: SparkSession, table: Table) -> None:
    columns = "id % 10 AS k, concat('p ', id % 10 % 3) AS p, 0L AS revision, -1L AS v"
    inserted = frame_of(spark, f"{columns}, 'insert' AS _change_type", 200)
    write(table, inserted, 0)
    check(table, THEIRS * 21)
    deleted = frame_of(spark, f"{columns}, 'delete' AS _change_type", 150)
    more = frame_of(
        spark, f"id AS k, {PARTITION}, 7L AS revision, id AS v, 'insert' AS _change_type", 5
    )
    write(table, deleted.union(more), 1)
    check(table, THEIRS * 6 + [row(k, 7, k) for k in range(5)])
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        write(table, deleted, 2)
