"""Iceberg tables that others created: partitioned, evolved, with defaults, and with files of deleted rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from streamops.sinks.core import iceberg_files, iceberg_partitions
from streamops.sinks.core.iceberg_files import TableFiles
from tests.sinks.attempts import deliver
from tests.sinks.contract import RUN, run_of

catalogs = pytest.importorskip("pyiceberg.catalog")
manifest = pytest.importorskip("pyiceberg.manifest")
partitioning = pytest.importorskip("pyiceberg.partitioning")
schemas = pytest.importorskip("pyiceberg.schema")
types = pytest.importorskip("pyiceberg.types")

pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")

TABLE = "shop.orders"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}"}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Any:
    found = catalogs.load_catalog(**properties)
    found.create_namespace("shop")
    return found


def partitioned(catalog: Any, schema: pa.Schema, *fields: tuple[str, str], **others: Any) -> Any:
    """Create a table with a partition by each of these columns and transforms."""
    table = catalog.create_table(TABLE, schema, **others)
    with table.update_spec() as update:
        for number, (column, transform) in enumerate(fields):
            update.add_field(column, transform, f"part {number}")
    return catalog.load_table(TABLE)


def rows_of(catalog: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
    return sorted(rows, key=repr)


UTC = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
TRANSFORMS: list[tuple[pa.DataType, list[Any], list[str]]] = [
    (pa.int64(), [-7, 0, 12, None], ["identity", "bucket[3]", "truncate[5]"]),
    (pa.int32(), [-7, 0, 12, None], ["identity", "bucket[3]", "truncate[5]"]),
    (pa.string(), ["", "a/b c=ü", "abcdef", None], ["identity", "bucket[3]", "truncate[2]"]),
    (pa.binary(), [b"", b"\x00\xff/", b"abcdef", None], ["bucket[3]", "truncate[2]"]),
    (pa.bool_(), [True, False, None], ["identity"]),
    (
        pa.decimal128(9, 2),
        [Decimal("-1.05"), Decimal("0.00"), Decimal("10.65"), None],
        ["identity", "bucket[3]", "truncate[50]"],
    ),
    (
        pa.date32(),
        [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 3, 1), None],
        ["identity", "bucket[3]", "year", "month", "day"],
    ),
    *(
        (
            pa.timestamp("us", zone),
            [
                dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC if zone else None),
                UTC.replace(tzinfo=dt.UTC if zone else None),
                (UTC + dt.timedelta(hours=1)).replace(tzinfo=dt.UTC if zone else None),
                None,
            ],
            ["identity", "bucket[3]", "year", "month", "day", "hour"],
        )
        for zone in (None, "UTC")
    ),
]


@pytest.mark.parametrize(
    ("dtype", "values", "transform"),
    [(dtype, values, name) for dtype, values, names in TRANSFORMS for name in names],
    ids=lambda value: str(value)[:24],
)
def test_files_are_written_per_partition(
    catalog: Any, properties: Any, dtype: pa.DataType, values: list[Any], transform: str
) -> None:
    schema = pa.schema([("p", dtype), ("k", pa.int64()), ("revision", pa.int64())])
    partitioned(catalog, schema, ("p", transform))
    sink = sinks.iceberg(properties, TABLE, key=["p", "k"])
    count = len(values)
    for batch, keys in enumerate(([0], [0, 1])):
        rows = {
            "p": pa.array(values * len(keys), dtype),
            "k": [k for k in keys for _ in values],
            "revision": [batch] * count * len(keys),
        }
        sink._deliver_rows(pa.table(rows), batch, RUN)
    expected = [{"p": p, "k": k, "revision": 1} for p in values for k in (0, 1)]
    assert rows_of(catalog) == sorted(expected, key=repr)
    # As pyiceberg itself writes the same rows: one file per partition, with the same values.
    table = catalog.load_table(TABLE)
    function = table.spec().fields[0].transform.transform(table.schema().find_field("p").field_type)
    files = [task.file for task in table.scan().plan_files()]
    written = set()
    for file in files:
        stored = pq.read_table(file.file_path.removeprefix("file://")).column("p")
        inside = {None if v is None else function(plain(v)) for v in stored.to_pylist()}
        assert inside == {file.partition[0]}
        written.add(file.partition[0])
    assert len(files) == len(written)
    # Readers that skip partitions find the rows.
    if values[0] is not None and transform in {"identity", "day", "bucket[3]"}:
        literal = values[0]
        if isinstance(literal, dt.date):
            literal = literal.isoformat()
        filtered = pytest.importorskip("pyiceberg.expressions").EqualTo("p", literal)
        assert len(table.scan(filtered).to_arrow()) == 2


def plain(value: Any) -> Any:
    """A value as Iceberg represents it."""
    if isinstance(value, dt.datetime):
        return (
            value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        ) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def test_files_of_other_partitions_are_not_read(
    catalog: Any, properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    partitioned(catalog, schema, ("k", "bucket[8]"))
    sink = sinks.iceberg(properties, TABLE, key="k")
    sink._deliver_rows(pa.table({"k": range(100), "v": [0] * 100}), 0, RUN)
    assert len(list(catalog.load_table(TABLE).scan().plan_files())) == 8
    paths: set[str] = set()
    read = TableFiles.read

    def note(self: Any, file: Any, names: Any = None) -> Any:
        paths.add(file["file_path"])
        return read(self, file, names)

    monkeypatch.setattr(TableFiles, "read", note)
    sink._deliver_rows(pa.table({"k": [50], "v": [1]}), 1, RUN)
    assert len(paths) == 1
    assert [row["k"] for row in rows_of(catalog) if row["v"] == 1] == [50]
    assert len(rows_of(catalog)) == 100


def test_a_partition_by_two_columns_and_by_one_of_them_twice(catalog: Any, properties: Any) -> None:
    schema = pa.schema([("day", pa.date32()), ("k", pa.int64()), ("v", pa.int64())])
    partitioned(catalog, schema, ("day", "month"), ("k", "bucket[2]"), ("k", "truncate[10]"))
    sink = sinks.iceberg(properties, TABLE, key="k")
    days = [dt.date(2026, 1 + n % 3, 1) for n in range(30)]
    for batch in range(2):
        rows = pa.table({"day": pa.array(days, pa.date32()), "k": range(30), "v": [batch] * 30})
        sink._deliver_rows(rows, batch, RUN)
    # A row whose new version is in another partition.
    sink._deliver_rows(pa.table({"day": [dt.date(2027, 1, 1)], "k": [3], "v": [2]}), 2, RUN)
    expected = [{"day": days[k], "k": k, "v": 1} for k in range(30) if k != 3]
    moved = {"day": dt.date(2027, 1, 1), "k": 3, "v": 2}
    assert rows_of(catalog) == sorted([*expected, moved], key=repr)


@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()], ids=str)
def test_a_partition_by_floats_is_refused(catalog: Any, properties: Any, dtype: Any) -> None:
    """Readers take its value from the partition: -0.0 and 0.0, and all NaN, are one."""
    partitioned(catalog, pa.schema([("p", dtype)]), ("p", "identity"))
    with pytest.raises(SinkError, match="TARGET_FEATURE"):
        sinks.iceberg(properties, TABLE)._deliver_rows(
            pa.table({"p": pa.array([0.0], dtype)}), 0, RUN
        )
    assert rows_of(catalog) == []


def test_a_partition_that_changes(catalog: Any, properties: Any) -> None:
    schema = pa.schema([("day", pa.date32()), ("k", pa.int64()), ("v", pa.int64())])
    catalog.create_table(TABLE, schema)
    sink = sinks.iceberg(properties, TABLE, key="k")
    specs: list[Any] = [
        lambda update: update,
        lambda update: update.add_field("day", "day", "d"),
        lambda update: update.add_field("k", "bucket[3]", "b"),
        lambda update: update.remove_field("d"),
        lambda update: update.remove_field("b"),
    ]
    days = pa.array([dt.date(2026, 1, 1 + n % 5) for n in range(10)], pa.date32())
    for batch, change in enumerate(specs):
        with catalog.load_table(TABLE).update_spec() as update:
            change(update)
        # New keys, and some that are in files of each partitioning before.
        keys = [batch * 100 + n for n in range(8)] + [
            max(batch - 1, 0) * 100 + 8 + n for n in (0, 1)
        ]
        rows = pa.table({"day": days, "k": keys, "v": [batch] * 10})
        sink._deliver_rows(rows, batch, RUN)
        overwritten = pa.table({"day": days.slice(0, 1), "k": [50], "v": [batch]})
        other = sinks.iceberg(properties, TABLE, key="k", name="other")
        other._deliver_rows(overwritten, batch, run_of(batch, "other"))
    found = {row["k"]: row["v"] for row in rows_of(catalog)}
    assert len(found) == len(rows_of(catalog)) == 5 * 8 + 2 * 4 + 1
    assert found[50] == 4
    assert found[8] == found[9] == 1
    assert found[308] == 4
    # The files of all of them are replaced at once.
    new = sinks.iceberg(properties, "shop.orders", key="k", name="other", new_checkpoint="replace")
    with pytest.raises(SinkError, match="TARGET_SHARED"):
        new._deliver_rows(overwritten, 0, run_of(1, "third"))


def test_columns_that_were_renamed_moved_widened_added_and_dropped(
    catalog: Any, properties: Any
) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    schema = pa.schema(
        [
            ("k", pa.int32()),
            ("old", pa.string()),
            ("gone", pa.int64()),
            ("f", pa.float32()),
            ("d", pa.decimal128(5, 2)),
            ("s", inner),
            ("l", pa.list_(inner)),
            ("m", pa.map_(pa.string(), inner)),
        ]
    )
    table = catalog.create_table(TABLE, schema)
    values = {"a": 1, "b": "x"}
    first = {
        "k": [1, 2],
        "old": ["one", None],
        "gone": [1, 1],
        "f": [0.1, None],
        "d": [Decimal("1.25"), None],
        "s": [values, None],
        "l": [[values, None], None],
        "m": [[("x", values), ("y", None)], None],
    }
    sinks.iceberg(properties, TABLE, key="k")._deliver_rows(pa.table(first, schema), 0, RUN)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("old", "new")
        update.delete_column("gone")
        update.update_column("k", types.LongType())
        update.update_column("f", types.DoubleType())
        update.update_column("d", types.DecimalType(9, 2))
        update.add_column("gone", types.StringType())
        update.move_first("f")
        for path in ("s", ("l", "element"), ("m", "value")):
            names = (path,) if isinstance(path, str) else path
            update.rename_column((*names, "b"), "c")
            update.update_column((*names, "a"), types.LongType())
            update.add_column((*names, "new"), types.StringType())
    sink = sinks.iceberg(properties, TABLE, key="k")
    second = pa.table({"k": [2, 3], "new": ["two", "three"], "gone": ["x", "y"]})
    sink._deliver_rows(second, 1, run_of(2))
    evolved = {"a": 1, "c": "x", "new": None}
    table = catalog.load_table(TABLE)
    (file,) = [task.file.file_path for task in table.scan().plan_files()]
    stored = sorted(
        pq.read_table(file.removeprefix("file://")).to_pylist(), key=lambda row: row["k"]
    )
    assert [row["new"] for row in stored] == ["one", "two", "three"]
    assert stored[0] == {
        "f": pytest.approx(0.1),
        "k": 1,
        "new": "one",
        "d": Decimal("1.25"),
        "s": evolved,
        "l": [evolved, None],
        "m": [("x", evolved), ("y", None)],
        "gone": None,
    }
    assert pq.read_schema(file.removeprefix("file://")).field("gone").type == pa.string()
    # The rows are compared as the table has them now.
    change = {"k": [1], "_change_type": ["delete"], "revision": [0]}
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        sink._deliver_rows(pa.table(change), 2, run_of(2))


def delete_rows(catalog: Any, positions: dict[int, list[int]], folder: Path) -> None:
    """Delete rows of files by their positions, as engines do that merge deletes when they read."""
    table = catalog.load_table(TABLE)
    tasks = sorted(table.scan().plan_files(), key=lambda task: task.file.lower_bounds[1])
    paths, at = [], []
    for number, rows in positions.items():
        paths += [tasks[number].file.file_path] * len(rows)
        at += rows
    path = folder / "deletes.parquet"
    ids = ((b"2147483546", "file_path", pa.string()), (b"2147483545", "pos", pa.int64()))
    fields = [pa.field(n, t, False, {iceberg_files.FIELD_ID: number}) for number, n, t in ids]
    pq.write_table(pa.table([paths, at], pa.schema(fields)), path)
    deletes = manifest.DataFile.from_args(
        content=manifest.DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=manifest.FileFormat.PARQUET,
        partition=tasks[0].file.partition,
        record_count=len(at),
        file_size_in_bytes=path.stat().st_size,
    )
    deletes.spec_id = table.metadata.default_spec_id
    commit_deletes(table, deletes)


def commit_deletes(table: Any, file: Any) -> None:
    """Commit a file of deletes, which pyiceberg does not write."""
    transaction = table.transaction()
    snapshot = transaction.update_snapshot().fast_append()
    writer_of = manifest.write_manifest

    def manifests() -> list[Any]:
        output = snapshot.new_manifest_output()
        version, spec = table.metadata.format_version, table.spec()
        with writer_of(
            format_version=version,
            spec=spec,
            schema=table.schema(),
            output_file=output,
            snapshot_id=snapshot.snapshot_id,
            avro_compression="null",
        ) as writer:
            writer.content = lambda: manifest.ManifestContent.DELETES
            added = manifest.ManifestEntryStatus.ADDED
            writer.add(
                manifest.ManifestEntry.from_args(
                    status=added, snapshot_id=snapshot.snapshot_id, data_file=file
                )
            )
        return [writer.to_manifest_file(), *snapshot._existing_manifests()]

    snapshot._manifests = manifests
    snapshot.commit()
    transaction.commit_transaction()


def test_rows_that_were_deleted_by_position_stay_deleted(
    catalog: Any, properties: Any, tmp_path: Path
) -> None:
    sink = sinks.iceberg(properties, TABLE, key="k")
    for batch in range(3):
        keys = range(10 * batch, 10 * batch + 10)
        sink._deliver_rows(pa.table({"k": keys, "v": [0] * 10}), batch, RUN)
    delete_rows(catalog, {0: [0, 3], 2: [9]}, tmp_path)
    assert len(rows_of(catalog)) == 27
    # One of a file with deletes, one that is deleted there, and one of another file.
    sink._deliver_rows(pa.table({"k": [1, 3, 15], "v": [1, 1, 1]}), 3, RUN)
    expected = [(k, int(k in {1, 3, 15})) for k in range(30) if k not in {0, 29}]
    assert sorted((row["k"], row["v"]) for row in rows_of(catalog)) == expected


def test_rows_that_were_deleted_by_value_are_refused(
    catalog: Any, properties: Any, tmp_path: Path
) -> None:
    sink = sinks.iceberg(properties, TABLE, key="k")
    sink._deliver_rows(pa.table({"k": [1, 2], "v": [0, 0]}), 0, RUN)
    path = tmp_path / "deletes.parquet"
    pq.write_table(pa.table({"k": [1]}), path)
    table = catalog.load_table(TABLE)
    deletes = manifest.DataFile.from_args(
        content=manifest.DataFileContent.EQUALITY_DELETES,
        file_path=f"file://{path}",
        file_format=manifest.FileFormat.PARQUET,
        partition=next(iter(table.scan().plan_files())).file.partition,
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[1],
    )
    deletes.spec_id = 0
    commit_deletes(table, deletes)
    with pytest.raises(SinkError, match="TARGET_FEATURE"):
        sink._deliver_rows(pa.table({"k": [1], "v": [1]}), 1, RUN)
    # Rows that are appended need no other row.
    appending = sinks.iceberg(properties, TABLE, name="b")
    appending._deliver_rows(pa.table({"k": [5], "v": [1]}), 0, run_of(1, "b"))


@pytest.mark.parametrize("settings", [{"write.format.default": "orc"}])
def test_features_that_are_not_written_are_refused(
    catalog: Any, properties: Any, settings: dict[str, str]
) -> None:
    catalog.create_table(TABLE, pa.schema([("a", pa.int64())]), properties=settings)
    sink = sinks.iceberg(properties, TABLE)
    for act in (lambda: sink._deliver_rows(pa.table({"a": [1]}), 0, RUN), sink.check):
        with pytest.raises(SinkError, match="TARGET_FEATURE"):
            act()
    assert rows_of(catalog) == []


@pytest.mark.parametrize(
    "value", [{"a": None}, [None], [("x", None)], {"a": {"b": None}}], ids=repr
)
def test_nulls_in_required_fields_are_refused(catalog: Any, properties: Any, value: Any) -> None:
    required = types.NestedField(3, "b", types.LongType(), required=True)
    by_type: dict[type, Any] = {
        dict: types.StructType(types.NestedField(2, "a", types.LongType(), required=True)),
        list: types.ListType(2, types.LongType(), element_required=True),
    }
    dtype = by_type[type(value)]
    if value == [("x", None)]:
        dtype = types.MapType(2, types.StringType(), 3, types.LongType(), value_required=True)
    elif value == {"a": {"b": None}}:
        dtype = types.StructType(types.NestedField(2, "a", types.StructType(required)))
    catalog.create_table(TABLE, schemas.Schema(types.NestedField(1, "v", dtype)))
    arrow = iceberg_files.arrow_type(dtype)
    sink = sinks.iceberg(properties, TABLE)
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        sink._deliver_rows(pa.table({"v": pa.array([value], arrow)}), 0, RUN)
    # A null around the field is none in it.
    sink._deliver_rows(pa.table({"v": pa.array([None], arrow)}), 0, RUN)
    assert rows_of(catalog) == [{"v": None}]


def test_a_large_micro_batch_is_written_in_parts(
    catalog: Any, properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"write.target-file-size-bytes": "20000"}
    partitioned(catalog, pa.schema([("k", pa.int64())]), ("k", "bucket[2]"), properties=settings)
    monkeypatch.setattr(iceberg_files, "_ROW_GROUP_BYTES", 1 << 15)
    sink = sinks.iceberg(properties, TABLE, key="k")
    parts = [pa.table({"k": range(n, n + 1000)}) for n in range(0, 30_000, 1000)]
    files = TableFiles.of(catalog.load_table(TABLE).metadata, {})
    written = files.write(parts)
    assert len(written) >= 4
    assert sum(file["record_count"] for file in written) == 30_000
    sink._deliver_rows(pa.concat_tables(parts), 0, RUN)
    assert len(rows_of(catalog)) == 30_000
    sink._deliver_rows(pa.table({"k": [29_999, 30_000]}), 1, RUN)
    assert len(rows_of(catalog)) == 30_001


def test_a_description_of_a_file_is_plain(catalog: Any, properties: Any) -> None:
    schema = pa.schema([("p", pa.decimal128(9, 2)), ("k", pa.string())])
    table = partitioned(catalog, schema, ("p", "identity"), ("k", "truncate[3]"))
    files = TableFiles.of(table.metadata, {"secret": "hidden"})
    assert "hidden" not in repr(files)
    rows = pa.table({"p": [Decimal("-1.05"), None], "k": ["abcd", None]}, schema)
    for file in files.write([rows]):
        again = iceberg_files.describe(
            iceberg_files.data_file(file, table.metadata), table.metadata
        )
        assert again == file
    assert [key for key, _ in iceberg_partitions.divide(rows, table.metadata)] == [
        (Decimal("-1.05"), "abc"),
        (None, None),
    ]


def deliver_rows(sink: Any, rows: pa.Table, batch: int, run: Any) -> None:
    """By the driver."""
    sink._deliver_rows(rows, batch, run)


WAYS = pytest.mark.parametrize("write", [deliver_rows, deliver], ids=["driver", "tasks"])


@WAYS
@pytest.mark.parametrize("form", ["upsert", "changes"])
def test_columns_that_only_the_table_has_keep_their_values(
    catalog: Any, properties: Any, write: Any, form: str
) -> None:
    note = pa.struct([("by", pa.string())])
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("revision", pa.int64())])
    table = catalog.create_table(TABLE, schema.append(pa.field("note", note)))
    stored = {"k": [1, 2, 3], "v": ["a", "b", "c"], "revision": [1] * 3}
    notes = [{"by": "hand"}, {"by": None}, None]
    table.append(pa.table({**stored, "note": pa.array(notes, note)}))
    given = {"k": [1, 2, 4], "v": ["A", "B", "D"], "revision": [2] * 3}
    rows = pa.table(given, schema)
    if form == "changes":
        before = pa.table({name: values[:2] for name, values in stored.items()}, schema)
        types = ["update_preimage"] * 2 + ["update_postimage"] * 2 + ["insert"]
        rows = pa.concat_tables([before, rows]).append_column("_change_type", pa.array(types))
    write(sinks.iceberg(properties, TABLE, key="k"), rows, 0, RUN)
    found = {row["k"]: (row["v"], row["note"]) for row in rows_of(catalog)}
    stay = dict(zip((1, 2), zip(("A", "B"), notes[:2], strict=True), strict=True))
    assert found == {**stay, 3: ("c", None), 4: ("D", None)}


def test_a_column_that_others_add_while_tasks_begin_is_not_emptied(
    catalog: Any, properties: Any
) -> None:
    rows = pa.table({"k": [1], "v": ["a"]})
    sink = sinks.iceberg(properties, TABLE, key="k")
    deliver(sink, rows, 0, RUN)
    together = sink._together

    def add_column(schema: pa.Schema) -> Any:
        found = together(schema)
        with catalog.load_table(TABLE).update_schema() as update:
            update.add_column("note", types.StringType())
        return found

    object.__setattr__(sink, "_together", add_column)
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(sink, rows, 1, RUN)


@WAYS
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_column_that_was_dropped_after_the_table_was_partitioned_by_it(
    catalog: Any, properties: Any, write: Any, version: str
) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int32())])
    partitioned(catalog, schema, ("n", "identity"), properties={"format-version": version})
    sink = sinks.iceberg(properties, TABLE, key="k")
    rows = pa.table({"k": [1, 2, 3], "n": pa.array([1, 2, None], pa.int32())})
    write(sink, rows, 0, RUN)
    with catalog.load_table(TABLE).update_spec() as update:
        update.remove_field("part 0")
    with catalog.load_table(TABLE).update_schema() as update:
        update.delete_column("n")
        update.add_column("v", types.StringType())
    for batch in (1, 2):
        write(sink, pa.table({"k": [1, 3, 4], "v": [str(batch)] * 3}), batch, RUN)
    found = {row["k"]: row["v"] for row in rows_of(catalog)}
    assert (len(rows_of(catalog)), found) == (4, {1: "2", 2: None, 3: "2", 4: "2"})
    # In a table of version 1, the field of the partition is still there, and null.
    assert len(catalog.load_table(TABLE).spec().fields) == (version == "1")


@WAYS
@pytest.mark.parametrize("dtype", [pa.float32(), pa.float64()], ids=str)
def test_keys_in_former_partitions_of_floats_are_found(
    catalog: Any, properties: Any, write: Any, dtype: Any
) -> None:
    values = pa.array([0.1, float("nan"), -0.0, None, float("inf")], dtype)
    schema = pa.schema([("p", dtype), ("v", pa.int64())])
    table = partitioned(catalog, schema, ("p", "identity"))
    rows = pa.table({"p": values, "v": [0] * len(values)}, schema)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for file in TableFiles.of(table.metadata, {}).write([rows]):
            added.append_data_file(iceberg_files.data_file(file, table.metadata))
    with table.update_spec() as update:
        update.remove_field("part 0")
    sink = sinks.iceberg(properties, TABLE, key="p")
    for batch in (0, 1):
        write(sink, pa.table({"p": values, "v": [batch + 1] * len(values)}), batch, RUN)
    assert [row["v"] for row in rows_of(catalog)] == [2] * len(values)


@WAYS
@pytest.mark.parametrize("transform", ["identity", "truncate[250]", "bucket[4]"])
def test_texts_that_no_folder_can_be_named_by(
    catalog: Any, properties: Any, write: Any, transform: str
) -> None:
    partitioned(catalog, pa.schema([("p", pa.string())]), ("p", transform))
    texts = ["é" * 300, "é" * 301, "../../x", ".", "\x00", "", "__HIVE_DEFAULT_PARTITION__", "null"]
    sink = sinks.iceberg(properties, TABLE, key="p")
    for batch in (0, 1):
        write(sink, pa.table({"p": texts}), batch, RUN)
    assert sorted(row["p"] for row in rows_of(catalog)) == sorted(texts)


FAR = pa.array([2**62, -(2**62), 0], pa.int64())


@WAYS
@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("transform", ["", "year", "month", "bucket[4]", "day", "hour", "identity"])
def test_instants_that_python_does_not_have(
    catalog: Any, properties: Any, write: Any, transform: str, zone: Any
) -> None:
    dtype = pa.timestamp("us", zone)
    schema = pa.schema([("k", pa.int64()), ("at", dtype), ("v", pa.int64())])
    partitioned(catalog, schema, *([("at", transform)] if transform else []))
    sink, far = sinks.iceberg(properties, TABLE, key=["k", "at"]), FAR.cast(dtype)
    if transform in {"day", "hour", "identity"}:
        with pytest.raises(SinkError, match="TARGET_REFUSED") as error:
            write(sink, pa.table({"k": [1, 2, 3], "at": far, "v": [0] * 3}), 0, RUN)
        assert "REPLACE PARTITION FIELD" in error.value.fix
        assert rows_of(catalog) == []
        return
    for batch in (0, 1):
        write(sink, pa.table({"k": [1, 2, 3], "at": far, "v": [batch] * 3}), batch, RUN)
    files = [task.file.file_path for task in catalog.load_table(TABLE).scan().plan_files()]
    found = pa.concat_tables(pq.read_table(name.removeprefix("file://")) for name in files)
    assert sorted(found["at"].cast(pa.int64()).to_pylist()) == sorted(FAR.to_pylist())
    assert found["v"].to_pylist() == [1, 1, 1]


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
def test_rows_from_before_1970_of_writers_that_rounded_up_are_found(
    catalog: Any, properties: Any, transform: str
) -> None:
    """As Iceberg's own writers have done once, which readers take into account."""
    dtype = pa.timestamp("us")
    schema = pa.schema([("at", dtype), ("v", pa.int64())])
    table = partitioned(catalog, schema, ("at", transform))
    at = dt.datetime.fromisoformat("1969-06-15T12:30")
    rows = pa.table({"at": pa.array([at], dtype), "v": [0]}, schema)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        (file,) = TableFiles.of(table.metadata, {}).write([rows])
        number = int.from_bytes(bytes.fromhex(file["partition"][0]), "little", signed=True)
        file["partition"] = [(number + 1).to_bytes(4, "little", signed=True).hex()]
        added.append_data_file(iceberg_files.data_file(file, table.metadata))
    sinks.iceberg(properties, TABLE, key="at")._deliver_rows(rows.set_column(1, "v", [[1]]), 0, RUN)
    assert [row["v"] for row in rows_of(catalog)] == [1]
