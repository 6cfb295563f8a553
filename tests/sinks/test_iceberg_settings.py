"""What the owner of an Iceberg table can set: the promise is kept, or the table is refused by ``check`` and at delivery."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from tests.sinks.attempts import deliver
from tests.sinks.contract import RUN

catalogs = pytest.importorskip("pyiceberg.catalog")
TableProperties = pytest.importorskip("pyiceberg.table").TableProperties
pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")

TABLE = "shop.orders"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}"}


def create(properties: dict[str, str], settings: dict[str, str]) -> Any:
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    return catalog, catalog.create_table(TABLE, SCHEMA, properties=settings)


def by_driver(sink: Any, table: pa.Table, batch: int, identity: Any) -> None:
    sink._deliver_rows(table, batch, identity)


WAYS = pytest.mark.parametrize("write", [by_driver, deliver], ids=["driver", "tasks"])

TAKEN = [
    {"format-version": "1"},
    {"write.format.default": "PARQUET"},
    {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"},
    {"write.merge.mode": "merge-on-read"},
    {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"},
    {"gc.enabled": "false"},
    {"write.wap.enabled": "true"},
    {"write.object-storage.enabled": "true"},
    {"write.data.path": "{folder}/elsewhere", "write.metadata.path": "{folder}/metadata"},
    {"write.location-provider.impl": "com.example.Provider"},
    {"write.metadata.compression-codec": "gzip"},
    *({"write.avro.compression-codec": name} for name in ("zstd", "snappy", "uncompressed")),
    {"write.parquet.compression-codec": "uncompressed"},
    {"write.parquet.row-group-size-bytes": "1024"},
    {"write.parquet.bloom-filter-enabled.column.k": "true"},
    {"write.target-file-size-bytes": "10"},
    *({"write.metadata.metrics.default": mode} for mode in ("none", "counts", "truncate(1)", "full")),
    {"write.metadata.metrics.column.k": "none", "write.metadata.metrics.max-inferred-column-defaults": "0"},
    {"commit.retry.num-retries": "9", "commit.manifest.min-count-to-merge": "1"},
    {"commit.manifest-merge.enabled": "false", "write.summary.partition-limit": "100"},
    {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"},
    {"write.distribution-mode": "range", "write.upsert.enabled": "true"},
    {"schema.name-mapping.default": "[]"},
]  # fmt: skip
REFUSED = [
    {"write.format.default": "orc"},
    {"encryption.key-id": "key"},
    {"write.parquet.compression-codec": "lzo"},
    {"write.target-file-size-bytes": "512MB"},
    {"write.metadata.metrics.column.k": "most"},
    {"schema.name-mapping.default": "none"},
    {"write.parquet.compression-codec": "x"},
    {"write.summary.partition-limit": ""},
    {"write.parquet.dict-size-bytes": "99999999999999999999"},
    {"write.parquet.page-row-limit": "-1"},
    {"write.data.path": "nope://x"},
    {"commit.manifest-merge.enabled": "maybe"},
    {"write.metadata.delete-after-commit.enabled": "maybe"},
    *(
        {name: "1MB"}
        for name in (
            "write.metadata.previous-versions-max",
            "write.summary.partition-limit",
            "commit.retry.num-retries",
            "commit.retry.total-timeout-ms",
            "commit.manifest.min-count-to-merge",
            "write.parquet.row-group-limit",
            "write.parquet.page-size-bytes",
        )
    ),
]


@WAYS
@pytest.mark.parametrize("settings", TAKEN, ids=lambda given: ",".join(given))
def test_settings_with_which_the_promise_is_true(
    properties: Any, tmp_path: Path, write: Any, settings: dict[str, str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyiceberg says which options it ignores
        given = {n: v.format(folder=f"file://{tmp_path}") for n, v in settings.items()}
        catalog, _ = create(properties, given)
        sink = sinks.iceberg(properties, TABLE, key="k")
        sink.check()
        for batch in range(3):
            rows = {"k": pa.array([1, 2 + batch], pa.int64()), "v": [str(batch)] * 2}
            write(sink, pa.table(rows), batch, RUN)
    found = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["v"]) for row in found) == [(1, "2"), (2, "0"), (3, "1"), (4, "2")]


def refuse(properties: Any, got: str) -> None:
    rows = pa.table({"k": pa.array([1], pa.int64()), "v": ["a"]})
    sink = sinks.iceberg(properties, TABLE, key="k")
    for act in (sink.check, lambda: by_driver(sink, rows, 0, RUN), lambda: deliver(sink, rows, 0, RUN)):  # fmt: skip
        with pytest.raises(SinkError, match="TARGET_FEATURE") as error:
            act()
        assert got in error.value.got


@pytest.mark.parametrize("settings", REFUSED, ids=lambda given: ",".join(given))
def test_settings_that_are_refused(properties: Any, settings: dict[str, str]) -> None:
    catalog, _ = create(properties, settings)
    refuse(properties, "")
    assert not catalog.load_table(TABLE).metadata.snapshots


@pytest.mark.skipif(os.environ.get("STREAMOPS_BORDERS") != "long", reason="half a minute")
def test_what_check_accepts_is_written(
    properties: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative path is one from here
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    names = [text for name, text in vars(TableProperties).items() if name.isupper()]
    values = ["x", "", "-1", "0", "1.5", "9" * 20, "true", "nope://x"]
    outcomes = dict.fromkeys([True, False], 0)
    for name, value in itertools.product((name for name in names if "." in str(name)), values):
        table = f"shop.t{sum(outcomes.values())}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                catalog.create_table(table, SCHEMA, properties={name: value})
            except (ValueError, AttributeError):
                continue  # so nobody has such a table of pyiceberg
            sink = sinks.iceberg(properties, table, key="k")
            refused = False
            try:
                sink.check()
            except SinkError as error:
                refused = error.code == "TARGET_FEATURE" or str(error)
            assert refused in (True, False)
            if refused:
                with pytest.raises(SinkError, match="TARGET_FEATURE"):
                    by_driver(sink, pa.table({"k": pa.array([1], pa.int64()), "v": ["a"]}), 0, RUN)
                outcomes[False] += 1
                continue
            for batch in range(3):
                rows = {"k": pa.array([1, 2 + batch], pa.int64()), "v": [str(batch)] * 2}
                by_driver(sink, pa.table(rows), batch, RUN)
        assert catalog.load_table(table).scan().to_arrow().num_rows == 4
        outcomes[True] += 1
    assert min(outcomes.values()) > 50, outcomes


def test_a_table_of_version_3_is_refused(properties: Any, tmp_path: Path) -> None:
    catalog, table = create(properties, {})
    content = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    path = tmp_path / "00009-3.metadata.json"
    path.write_text(json.dumps({**content, "format-version": 3, "next-row-id": 0}))
    catalog.drop_table(TABLE)
    catalog.register_table(TABLE, f"file://{path}")
    refuse(properties, "format-version=3")


@WAYS
def test_a_table_with_an_order_and_an_identifier(properties: Any, write: Any) -> None:
    """Neither is enforced in Iceberg; a column of the identifier must not be null."""
    types, schemas = (pytest.importorskip(f"pyiceberg.{name}") for name in ("types", "schema"))
    orders = pytest.importorskip("pyiceberg.table.sorting")
    transforms = pytest.importorskip("pyiceberg.transforms")
    catalog = catalogs.load_catalog(**properties)
    catalog.create_namespace("shop")
    fields = (types.NestedField(1, "k", types.LongType(), required=True), types.NestedField(2, "v", types.StringType()))  # fmt: skip
    order = orders.SortOrder(orders.SortField(source_id=1, transform=transforms.IdentityTransform()))  # fmt: skip
    schema = schemas.Schema(*fields, identifier_field_ids=[1])
    catalog.create_table(TABLE, schema, sort_order=order)
    sink = sinks.iceberg(properties, TABLE, key="k")
    for batch in range(2):
        write(sink, pa.table({"k": [9, 1, 5], "v": [str(batch)] * 3}), batch, RUN)
    found = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["v"]) for row in found) == [(1, "1"), (5, "1"), (9, "1")]
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        write(sink, pa.table({"k": pa.array([None], pa.int64()), "v": ["x"]}), 2, RUN)
