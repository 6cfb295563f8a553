"""Delta tables that others have created: what they require, and features that deltalake does not write."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SchemaError, SinkError
from tests.sinks.contract import RUN, run_of

deltalake = pytest.importorskip("deltalake")


def create(
    tmp_path: Path,
    *fields: tuple[Any, ...],
    protocol: Any = None,
    partitions: Any = (),
    **settings: str,
) -> str:
    """Write the first version of a log; a field has a name, a type, and whether it can be null or its metadata."""
    path = tmp_path / "table"
    (path / "_delta_log").mkdir(parents=True)
    columns = [
        {"name": name, "type": dtype, "nullable": True not in more, "metadata": {}}
        | ({"metadata": more[0]} if more and isinstance(more[0], dict) else {})
        for name, dtype, *more in fields
    ]
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": list(partitions),
        "configuration": {f"delta.{name}": value for name, value in settings.items()},
    }
    protocol = protocol or {"minReaderVersion": 1, "minWriterVersion": 4}
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(path)


NOT_NULL = True


def deliver(path: str, batch: int = 0, options: Any = None, **columns: Any) -> None:
    sink = sinks.delta(path, **(options or {}))
    sink._deliver_rows(pa.table(columns), batch, run_of(batch))


def rows(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(deltalake.DeltaTable(path).scan().read_all()).to_pylist()
    return found


def refuses(code: str, path: str, **columns: Any) -> SinkError:
    """The error; the table has no more rows and versions than before."""
    before = deltalake.DeltaTable(path).version()
    with pytest.raises(SinkError, match=code) as error:
        deliver(path, **columns)
    assert deltalake.DeltaTable(path).version() == before
    return error.value


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("string", ["x", ""]),
        ("string", [None, "__HIVE_DEFAULT_PARTITION__"]),
        ("binary", [b"a"]),
        ("double", [0.5]),
        ("decimal(5,2)", [Decimal("-1.50")]),
        ("timestamp", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    ],
)
def test_values_of_partitions_that_are_not_read_back_are_refused(
    tmp_path: Path, dtype: str, values: list[Any]
) -> None:
    path = create(tmp_path, ("p", dtype), ("n", "long"), partitions=["p"])
    refuses("TARGET_TYPE", path, p=values, n=[1] * len(values))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("string", ["ü/ %=:#?", " ", None, "a"]),
        ("byte", [-128, None]),
        ("boolean", [True, False]),
        ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        ("decimal(38,0)", [Decimal("-" + "9" * 38)]),
    ],
)
def test_other_values_of_partitions_are_read_back(
    tmp_path: Path, dtype: str, values: list[Any]
) -> None:
    path = create(tmp_path, ("p", dtype), ("n", "long"), partitions=["p"])
    stored = pa.schema(deltalake.DeltaTable(path).schema().to_arrow()).field("p").type
    column = pa.array(values, stored)
    for batch in range(2):
        deliver(path, batch, {"key": "p"}, p=column, n=[batch] * len(values))
    assert sorted((repr(row["p"]), row["n"]) for row in rows(path)) == sorted(
        (repr(value), 1) for value in values
    )


CHARS = "__CHAR_VARCHAR_TYPE_STRING"


def test_text_that_is_longer_than_declared_is_refused(tmp_path: Path) -> None:
    path = create(tmp_path, ("a", "string", {CHARS: "varchar(3)"}))
    error = refuses("TARGET_TYPE", path, a=["abcd"])
    assert "varchar(3)" in error.expected
    deliver(path, a=["äöü", None])
    assert len(rows(path)) == 2


def test_text_that_spark_fills_with_blanks_is_refused(tmp_path: Path) -> None:
    path = create(tmp_path, ("a", "string", {CHARS: "char(3)"}))
    refuses("TARGET_TYPE", path, a=["abc"])


def test_generated_columns_must_be_given(tmp_path: Path) -> None:
    twice = {"delta.generationExpression": "n * 2"}
    path = create(tmp_path, ("n", "long"), ("twice", "long", twice))
    assert "twice" in str(refuses("TARGET_COLUMNS", path, n=[1]).got)
    refuses("TARGET_REFUSED", path, n=[1], twice=[3])
    deliver(path, n=[1, None], twice=pa.array([2, None], pa.int64()))
    assert len(rows(path)) == 2


@pytest.mark.parametrize("options", [{}, {"key": "k"}])
def test_columns_that_must_not_be_null_remain_so_when_others_are_added(
    tmp_path: Path, options: Any
) -> None:
    path = create(tmp_path, ("k", "long"), ("n", "long", NOT_NULL))
    deliver(path, 0, options, k=[1], n=[1])
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        deliver(path, 1, {**options, "columns": "add"}, k=[1], n=pa.nulls(1, pa.int64()), new=[1])
    assert rows(path) == [{"k": 1, "n": 1}]
    deliver(path, 1, {**options, "columns": "add"}, k=[1], n=[2], new=[1])
    assert not pa.schema(deltalake.DeltaTable(path).schema().to_arrow()).field("n").nullable


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ({"type": "array", "elementType": "long", "containsNull": False}, pa.array([[None]], pa.list_(pa.int64()))),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
            pa.array([[("x", None)]], pa.map_(pa.string(), pa.int64())),
        ),
        (
            {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": False, "metadata": {}}]},
            pa.array([{"x": None}], pa.struct([("x", pa.int64())])),
        ),
    ],
    ids=["array", "map", "struct"],
)  # fmt: skip
def test_nulls_in_nested_columns_that_must_not_have_them(
    tmp_path: Path, dtype: Any, values: pa.Array
) -> None:
    refuses("TARGET_REFUSED", create(tmp_path, ("a", dtype)), a=values)


WRITERS = [
    "allowColumnDefaults",
    "clustering",
    "domainMetadata",
    "identityColumns",
    "inCommitTimestamp",
    "rowTracking",
]
READERS = ["typeWidening", "vacuumProtocolCheck", "something new"]


@pytest.mark.parametrize("name", [*WRITERS, *READERS])
def test_a_feature_that_is_not_written_is_named(tmp_path: Path, name: str) -> None:
    protocol: dict[str, Any] = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": [name],
    }
    if name in READERS:
        protocol |= {"minReaderVersion": 3, "readerFeatures": [name]}
    path = create(tmp_path, ("a", "long"), protocol=protocol)
    with pytest.raises(SinkError, match="TARGET_FEATURE") as error:
        deliver(path, a=[1])
    assert name in str(error.value.got)
    assert "new table" in error.value.fix
    assert len(list(Path(path, "_delta_log").glob("*.json"))) == 1


def test_identity_columns_of_the_old_protocol_are_named(tmp_path: Path) -> None:
    path = create(tmp_path, ("a", "long"), protocol={"minReaderVersion": 2, "minWriterVersion": 6})
    assert "identityColumns" in str(refuses("TARGET_FEATURE", path, a=[1]).got)


def test_a_table_that_must_not_lose_rows_refuses_replaced_ones(tmp_path: Path) -> None:
    path = create(tmp_path, ("k", "long"), ("v", "long"), appendOnly="true")
    deliver(path, 0, {"key": "k"}, k=[1], v=[1])
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        deliver(path, 1, {"key": "k"}, k=[1], v=[2])
    deliver(path, 1, {"key": "k"}, k=[2], v=[2])
    assert len(rows(path)) == 2


@pytest.mark.parametrize("partitions", [[], ["p"]])
def test_the_sequence_can_be_an_added_column(tmp_path: Path, partitions: list[str]) -> None:
    path = create(tmp_path, ("k", "long"), ("p", "string"), partitions=partitions)
    options = {"key": "k", "columns": "add"}
    for batch, revision in enumerate((1, 3, 2)):
        deliver(path, batch, options, k=[1], p=["a"], revision=[revision])
    assert [row["revision"] for row in rows(path)] == [3]


def test_a_table_with_checkpoints_of_the_second_version(tmp_path: Path) -> None:
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    settings = {"checkpointPolicy": "v2", "checkpointInterval": "2"}
    path = create(tmp_path, ("a", "long"), protocol=protocol, **settings)
    sink = sinks.delta(path)
    for batch in range(5):
        sink._deliver_rows(pa.table({"a": [batch]}), batch, RUN)
    assert sorted(row["a"] for row in rows(path)) == list(range(5))


LOCAL = pa.timestamp("us")


@pytest.mark.parametrize(
    "dtype",
    [pa.map_(pa.string(), LOCAL), pa.list_(pa.struct([("m", pa.map_(LOCAL, pa.int64()))]))],
    ids=str,
)
def test_local_times_in_maps_need_a_table_or_a_column_that_is_added(
    tmp_path: Path, dtype: pa.DataType
) -> None:
    path = str(tmp_path / "table")
    values = pa.array([None], dtype)
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        deliver(path, a=values)
    assert not Path(path).exists()
    deliver(path, n=[1])
    deliver(path, 1, {"columns": "add"}, n=[2], a=values)
    assert len(rows(path)) == 2


@pytest.mark.parametrize("form", ["upsert", "changes", "merged changes"])
def test_a_key_with_several_rows_is_refused(tmp_path: Path, form: str) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    fields = (("k", "long"), ("v", "long"), ("revision", "long"))
    path = create(tmp_path, *fields, protocol=protocol)
    stored = {"k": [1, 2, 1, None, None], "v": [1] * 5, "revision": [0] * 5}
    deltalake.write_deltalake(path, pa.table(stored), mode="append")
    if form == "merged changes":
        deltalake.DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "100"})
    for key in (1, None):
        given = {"k": pa.array([key], pa.int64()), "v": [1], "revision": [0]}
        if form != "upsert":
            given["_change_type"] = ["delete"]
        with pytest.raises(SinkError, match="TARGET_KEY") as error:
            deliver(path, 0, {"key": "k"}, **given)
        assert str({"k": key}) == error.value.got
    deliver(path, 0, {"key": "k"}, k=[2], v=[2], revision=[1])
    assert len(rows(path)) == 5
