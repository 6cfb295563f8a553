"""The Iceberg sink on local tables of a catalog in SQLite, without Spark."""

from __future__ import annotations

import datetime as dt
import traceback
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SchemaError, SinkError, SpecError
from streamops.kernel.versions import has_views
from streamops.sinks.core.iceberg_commit import Commit
from streamops.sinks.core.iceberg_files import TableFiles
from streamops.sinks.iceberg import IcebergSink
from tests.sinks.attempts import in_tasks
from tests.sinks.contract import (
    INF,
    NAN,
    ODD,
    RUN,
    Contract,
    D,
    I,
    Target,
    round_trip,
    run_of,
)

catalogs = pytest.importorskip("pyiceberg.catalog")
exceptions = pytest.importorskip("pyiceberg.exceptions")
config = pytest.importorskip("pyiceberg.utils.config")
ListType = pytest.importorskip("pyiceberg.types").ListType

pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")

TABLE = "shop.a table"


@pytest.fixture(autouse=True, params=["driver", "tasks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who writes."""
    if request.param == "tasks":
        monkeypatch.setattr(IcebergSink, "_deliver_rows", in_tasks)
    return str(request.param)


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {
        "name": "local",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


@pytest.fixture
def catalog(properties: dict[str, str]) -> Any:
    return catalogs.load_catalog(**properties)


def read(catalog: Any, table: str = TABLE) -> list[dict[str, Any]]:
    """The rows as Parquet has them: pyiceberg reads a list of structs that is null as an empty one."""
    try:
        found = catalog.load_table(table)
    except exceptions.NoSuchTableError:
        return []
    paths = [task.file.file_path.removeprefix("file://") for task in found.scan().plan_files()]
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    if not any(isinstance(part.field_type, ListType) for part in found.schema().fields):
        others: list[dict[str, Any]] = found.scan().to_arrow().to_pylist()
        names = [part.name for part in found.schema().fields]
        assert sorted(map(repr, others)) == sorted(
            repr({name: row.get(name) for name in names}) for row in rows
        )
        return others
    return rows


@pytest.fixture
def target(properties: dict[str, str], catalog: Any) -> Target:
    return Target(
        lambda **options: sinks.iceberg(properties, TABLE, **options), lambda: read(catalog)
    )


class TestIceberg(Contract):
    @pytest.mark.parametrize(
        ("dtype", "values"),
        [
            (pa.float64(), [-0.0, 0.0, -INF]),
            (pa.list_(pa.int64()), [[1, None], []]),
            (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x"]}]),
            (pa.map_(pa.string(), pa.float64()), [[("a", 1.5), ("b", None)], []]),
            (pa.list_(pa.struct([("x", pa.decimal128(10, 3))])), [[{"x": Decimal("1.250")}]]),
            (pa.list_(pa.timestamp("us", "UTC")), [[]]),
            (pa.struct([("f", pa.float32())]), [{"f": NAN}, {"f": None}]),
        ],
        ids=str,
    )
    def test_nested_types_are_stored_without_loss(
        self, target: Target, dtype: pa.DataType, values: list[Any]
    ) -> None:
        round_trip(target, dtype, values)


def test_a_multiset_of_nested_rows(target: Target) -> None:
    rows = {
        "m": pa.array([[("a", 1)], [("a", 1)], [("a", 2)], None], pa.map_(pa.string(), pa.int64())),
        "f": [0.0, -0.0, NAN, NAN],
    }
    target.deliver(0, **rows, _change_type=[I] * 4)
    taken = {"m": rows["m"].take([0, 3]), "f": [-0.0, NAN]}
    target.deliver(1, run_of(2), **taken, _change_type=[D, D])
    assert len(target.content("m", "f")) == 2
    assert ([("a", 2)], "nan") in [(m, repr(f)) for m, f in target.content("m", "f")]
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        target.deliver(2, run_of(3), **taken, _change_type=[D, D])


def test_a_sequence_that_is_a_struct(target: Target) -> None:
    sink = target.sink(key="k", sequence="at")
    for batch, (x, y) in enumerate([(1, 5), (2, 0), (1, 9)]):
        rows = pa.table({"k": ["a"], "at": [{"x": x, "y": y}], "v": [batch]})
        sink._deliver_rows(rows, batch, RUN)
    assert target.content("v") == [(1,)]


def test_a_key_that_is_a_struct(target: Target) -> None:
    window = pa.struct([("start", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    sink = target.sink(key="w")
    for batch in range(2):
        rows = {"w": pa.array([{"start": None, "n": 1}, None], window), "v": [batch, batch]}
        sink._deliver_rows(pa.table(rows), batch, RUN)
    assert target.content("v") == [(1,), (1,)]


@pytest.mark.parametrize(
    "dtype",
    [pa.map_(pa.string(), pa.int64()), pa.list_(pa.float64()), pa.struct([("x", pa.float32())])],
    ids=str,
)
def test_keys_that_cannot_be_compared_are_refused(target: Target, dtype: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        target.sink(key="k")._deliver_rows(pa.table({"k": pa.nulls(0, dtype)}), 0, RUN)


@pytest.mark.parametrize(
    "dtype",
    [pa.duration("us"), pa.time64("us"), pa.uint64(), pa.timestamp("ns"), pa.decimal256(40, 2)],
    ids=str,
)
def test_types_that_are_not_stored_without_loss_are_refused(
    target: Target, dtype: pa.DataType
) -> None:
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        target.deliver(0, a=pa.nulls(1, dtype))


def test_the_time_zone_of_the_session_changes_nothing(target: Target) -> None:
    zoned = pa.array([0, None], pa.timestamp("us", "Europe/Berlin"))
    target.deliver(0, at=zoned, nothing=pa.nulls(2))
    target.deliver(1, run_of(2), at=zoned.cast(pa.timestamp("us", "Asia/Tokyo")), nothing=["x", ""])
    assert [row["at"] and row["at"].timestamp() for row in target.rows()].count(0) == 2


def test_columns_are_added_by_every_form(target: Target) -> None:
    changes = {"k": [1], "v": [None], "revision": [0]}
    add: dict[str, Any] = {"columns": "add", "key": "k"}
    target.deliver(0, RUN, add, k=[1], revision=[0], _change_type=[I])
    target.deliver(1, run_of(2), add, **changes, _change_type=[D])
    assert target.content() == []
    target.deliver(2, run_of(3), add, k=[2], revision=[0], ntz=pa.array([0], pa.timestamp("us")))
    target.deliver(3, run_of(4), {"columns": "add"}, k=[2], w=[1], _change_type=[I])
    assert [row["k"] for row in target.rows()] == [2, 2]
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        target.deliver(4, run_of(5), add, K=[3], k=[3], revision=[1])


def test_values_that_the_table_refuses_change_nothing(catalog: Any, target: Target) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    catalog.create_namespace("shop")
    catalog.create_table(TABLE, schema)
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        target.deliver(0, a=pa.array([1, None], pa.int64()))
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        target.deliver(0, b=[1])
    target.deliver(0, a=[1])
    assert target.content("a") == [(1,)]


def test_the_entry_is_part_of_the_commit_of_the_rows(catalog: Any, target: Target) -> None:
    sink = target.sink(key="k")
    for batch in range(4):
        sink._deliver_rows(pa.table({"k": [batch // 2], "revision": [batch]}), batch, RUN)
    table = catalog.load_table(TABLE)
    assert len(table.metadata.snapshots) == 4
    assert [len(log.metadata_file) > 0 for log in table.metadata.metadata_log] == [True] * 4
    for snapshot in table.metadata.snapshots:
        assert snapshot.summary["streamops.ledger.default"].startswith(f"[{snapshot.snapshot_id},")


def test_a_small_table_of_keys_stays_a_few_files(catalog: Any, target: Target, way: str) -> None:
    for batch in range(5):
        rows = pa.table({"k": [0, batch], "revision": [batch, batch], "v": [0, 1]}).slice(
            batch == 0
        )
        target.sink(key="k")._deliver_rows(rows, batch, run_of(batch))
    assert target.content("k") == [(0,), (1,), (2,), (3,), (4,)]
    files = list(catalog.load_table(TABLE).scan().plan_files())
    assert len(files) <= (1 if way == "driver" else 3)  # what is rewritten, and a file per task


def test_several_sinks_append_to_one_table(target: Target) -> None:
    for name, query in (("first", "query 1"), ("second 'é", "query 2")):
        for batch in range(2):
            run = run_of(batch, query)
            target.deliver(batch, run, {"name": name}, a=[f"{name} {batch}"])
    assert len(target.rows()) == 4
    assert target.sink(name="first").read_ledger().query == "query 1"  # type: ignore[union-attr]
    assert target.sink().read_ledger() is None


INSTANTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC),
]
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-3, 7, 9]),
    (pa.int8(), [-128, 0, 127]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [*INSTANTS, INSTANTS[1] + dt.timedelta(hours=1)]),
    (
        pa.timestamp("us"),
        [t.replace(tzinfo=None) for t in [*INSTANTS, dt.datetime(2026, 6, 1, tzinfo=dt.UTC)]],
    ),
    (pa.string(), ["", "b" * 20, "b" * 20 + "c"]),
    (pa.binary(), [b"", b"\xff" * 20, b"\xff" * 20 + b"\x00"]),
    (pa.float64(), [-INF, 0.5, NAN]),
    (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")]),
    (pa.bool_(), [False, True, None]),
]


@pytest.mark.parametrize(("dtype", "values"), KEYS, ids=str)
def test_rows_beside_the_changed_ones_stay(
    target: Target, dtype: pa.DataType, values: list[Any]
) -> None:
    """Each row is in a file of its own: those without a changed key are not rewritten, and lose nothing."""
    keys = [(g, k) for g in (1, None, 3) for k in dict.fromkeys((*values, None))]
    sink = target.sink(key=["g", "k"])
    for v, (g, k) in enumerate(keys):
        row = {"g": pa.array([g], pa.int64()), "k": pa.array([k], dtype), "v": [v]}
        sink._deliver_rows(pa.table({**row, "revision": [0], "_change_type": [I]}), v, RUN)
    part = {"g": [1, 1, 1, 2], "k": pa.array([values[1], values[1], values[0], values[1]], dtype)}
    change = ["update_preimage", "update_postimage", "delete", "insert"]
    changes = {**part, "v": [1, 100, 0, 200], "revision": [0, 1, 0, 0], "_change_type": change}
    sink._deliver_rows(pa.table(changes), len(keys), RUN)
    found = sorted(row["v"] for row in target.rows())
    assert found == sorted([*range(2, len(keys)), 100, 200])
    newer = {"g": [1, 3], "k": pa.array([values[1], values[2]], dtype), "revision": [1, 2]}
    sink._deliver_rows(pa.table({**newer, "v": [-1, 300]}), len(keys) + 1, RUN)
    replaced = keys.index((3, values[2]))
    others = [n for n in range(2, len(keys)) if n != replaced]
    assert sorted(row["v"] for row in target.rows()) == sorted([*others, 100, 200, 300])


@pytest.mark.parametrize(("key", "values"), [("a", [20, 59]), ("b", ["2 xx", "5 x"])])
def test_files_without_a_key_are_not_read(
    catalog: Any,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    key: str,
    values: list[Any],
) -> None:
    """The driver compares values with the bounds of files; tasks know the lowest and the highest."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    catalog.create_namespace("shop")
    table = catalog.create_table(TABLE, schema)
    for batch in range(6):
        rows = {"a": [10 * batch, 10 * batch + 9], "b": [f"{batch} x", f"{batch} y"]}
        table.append(pa.table(rows))
    before = {task.file.file_path for task in table.scan().plan_files()}
    paths: set[str] = set()
    read = TableFiles.read

    def note(self: Any, file: Any, names: Any = None) -> Any:
        paths.add(file["file_path"])
        return read(self, file, names)

    monkeypatch.setattr(TableFiles, "read", note)
    others = {part.name: pa.nulls(len(values), part.type) for part in schema}
    target.deliver(0, run_of(1, key), {"key": key, "name": key}, **{**others, key: values})
    assert len(paths & before) == (2 if way == "driver" else 4)
    assert len(target.rows()) == (12 if key == "a" else 13)


def test_a_row_of_a_file_that_others_replace_meanwhile(
    catalog: Any, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.deliver(0, options={"key": "k"}, k=[1, 9], name=["a", "z"], revision=[0, 0])
    execute, appended = Commit.execute, list[int]()

    def append_before(commit: Any, *arguments: Any) -> None:
        if not appended:
            appended.append(1)
            other = pa.table({"k": [5], "name": ["m"], "revision": [7]})
            catalog.load_table(TABLE).append(other)
        execute(commit, *arguments)

    monkeypatch.setattr(Commit, "execute", append_before)
    folder = Path(catalog.load_table(TABLE).location().removeprefix("file://"), "data")
    target.deliver(1, options={"key": "k"}, k=[1, 5], name=["a", "n"], revision=[1, 8])
    assert target.content("k", "revision") == [(1, 1), (5, 8), (9, 0)]
    assert target.sink(key="k").read_ledger().batch == 1  # type: ignore[union-attr]
    # What the failed attempt wrote is deleted.
    table = catalog.load_table(TABLE)
    snapshots = [s.snapshot_id for s in table.metadata.snapshots]
    known = {
        task.file.file_path.removeprefix("file://")
        for s in snapshots
        for task in table.scan(snapshot_id=s).plan_files()
    }
    assert set(map(str, folder.iterdir())) == known


def test_an_append_is_not_repeated_by_pyiceberg(
    catalog: Any, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be appended to what another driver of the same query has written meanwhile."""
    target.deliver(0, a=[0])
    execute, raced = Commit.execute, list[int]()

    def race(commit: Any, *arguments: Any) -> None:
        if not raced:
            raced.append(1)
            target.deliver(1, run_of(2), a=[1])
        execute(commit, *arguments)

    monkeypatch.setattr(Commit, "execute", race)
    sink = target.sink()
    sink.session.runs.add(RUN.run)  # it has delivered before, so that it is the older run
    with pytest.raises(SinkError, match="FENCED"):
        sink._deliver_rows(pa.table({"a": [1]}), 1, RUN)
    assert target.content("a") == [(0,), (1,)]


def test_all_rows_are_deleted(target: Target) -> None:
    target.deliver(0, options={"key": "k"}, k=[1, 2], revision=[0, 0], _change_type=[I, I])
    target.deliver(1, options={"key": "k"}, k=[1, 2], revision=[0, 0], _change_type=[D, D])
    assert target.rows() == []
    assert target.sink(key="k").read_ledger().batch == 1  # type: ignore[union-attr]


def test_instants_that_python_does_not_have(catalog: Any, target: Target) -> None:
    far = pa.array([2**62, -(2**62), 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    sink = target.sink(key="at")
    for batch in range(2):
        sink._deliver_rows(pa.table({"at": far, "v": [batch] * 3}), batch, RUN)
    files = (task.file.file_path for task in catalog.load_table(TABLE).scan().plan_files())
    rows = pa.concat_tables(pq.read_table(path.removeprefix("file://")) for path in files)
    assert sorted(rows.column("at").cast(pa.int64()).to_pylist()) == [-(2**62), 0, 2**62]
    assert rows.column("v").to_pylist() == [1, 1, 1]


@pytest.mark.parametrize("odd", ODD)
def test_names_of_sinks_and_folders_are_taken_literally(tmp_path: Path, odd: str) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": str(tmp_path / "a house"),
    }
    table = f"shop.{odd.replace('.', '_')}"
    for batch, values in enumerate(([1, 2], [2, 3])):
        rows = pa.table({"k": values, "v": [batch] * 2})
        sink = sinks.iceberg(properties, table, key="k", name=odd)
        sink._deliver_rows(rows, batch, run_of(batch))
    assert sink.read_ledger().batch == 1  # type: ignore[union-attr]
    found = catalogs.load_catalog(**properties).load_table(table).scan().to_arrow()
    assert sorted(found.column("k").to_pylist()) == [1, 2, 3]


SECRET = {"token": "very-secret-key", "s3.secret-access-key": "secret/access+key"}


def test_credentials_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://user:pass%20word@very-secret-key.invalid:1/catalog?sig=hidden-1"
    properties = {"type": "rest", "uri": address, **SECRET}
    sink = sinks.iceberg(properties, "shop.daily")
    displayed = f"{sink!r} {sink.label}"
    assert "shop.daily" in displayed
    for name, value in properties.items():
        variable = name.upper().replace("-", "_").replace(".", "__")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__HIDDEN__{variable}", value)
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", config.Config())
    for given in (sink, sinks.iceberg("hidden", "shop.daily")):
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
            given._deliver_rows(pa.table({"a": [1]}), 0, RUN)
        displayed += "".join(traceback.format_exception(error.value))
    for secret in ("very-secret-key", "pass%20word", "pass word", "hidden-1", "access+key"):
        assert secret not in displayed


@pytest.mark.parametrize(
    "options",
    [
        {"catalog": ""},
        {"catalog": 1},
        {"catalog": {"uri": 1}},
        {"catalog": {}},
        {"table": ""},
        {"table": 1},
        {"table": "daily"},
        {"name": ""},
        {"key": []},
        {"key": ["a", "a"]},
        {"columns": "any"},
        {"missing": "ignore"},
        {"new_checkpoint": "yes"},
        {"repeated": True},
    ],
)
def test_wrong_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        sinks.iceberg(**{"catalog": "prod", "table": "shop.daily", **options})
