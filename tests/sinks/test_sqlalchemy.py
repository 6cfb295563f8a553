"""The SQLAlchemy sink on SQLite and on PostgreSQL, without Spark."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SchemaError, SinkError, SpecError
from streamops.sinks.sink import JSON
from streamops.sinks.sqlalchemy import SqlalchemySink
from streamops.sinks.sqlalchemy_connection import reported
from tests.sinks.contract import (
    INF,
    NAN,
    ODD,
    RUN,
    TYPES,
    Contract,
    D,
    I,
    Target,
    round_trip,
    run_of,
)

if TYPE_CHECKING:
    from tests.servers.mariadb import Server

sa = pytest.importorskip("sqlalchemy")
_NUMBERS = itertools.count()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/database"


def make_target(url: str, table: str) -> Target:
    """A target, and its rows in the types that the database has."""

    def rows() -> list[dict[str, Any]]:
        engine = sa.create_engine(url)
        try:
            with engine.connect() as connection:
                if not sa.inspect(connection).has_table(table):
                    return []
                found = sa.Table(table, sa.MetaData(), autoload_with=connection)
                return [dict(row) for row in connection.execute(sa.select(found)).mappings()]
        finally:
            engine.dispose()

    return Target(lambda **options: sinks.sqlalchemy(url, table, **options), rows)


class OfDatabases(Contract):
    frozen_at = 2  # the first decision is taken before the transaction

    def test_a_key_of_doubles_has_one_zero_and_one_nan(self, target: Target) -> None:
        with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
            target.deliver(0, RUN, {"key": "k"}, k=[0.0])

    def test_a_change_stream_without_key_is_a_multiset(self, target: Target) -> None:
        x, y = ["a", "a", None, "b", "b"], [1.0, 1.0, 0.5, None, 2.0]
        target.deliver(0, x=x, y=y, _change_type=[I] * 5)
        target.deliver(
            1, x=["a", None, "c", "c"], y=[1.0, 0.5, 1.5, 1.5], _change_type=[D, D, I, I]
        )
        expected = [("a", 1.0), ("b", 2.0), ("b", None), ("c", 1.5), ("c", 1.5)]
        assert target.content("x", "y") == expected
        with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
            target.deliver(2, x=["a", "a"], y=[1.0, 1.0], _change_type=[D, D])
        assert target.content("x", "y") == expected


class TestSqlite(OfDatabases):
    @pytest.fixture
    def target(self, url: str) -> Target:
        return make_target(url, "a table")

    @pytest.mark.parametrize(("dtype", "values"), TYPES, ids=lambda value: str(value)[:24])
    def test_types_are_stored_without_loss(
        self, target: Target, dtype: pa.DataType, values: list[Any]
    ) -> None:
        values = [value for value in values if value == value]  # without NaN
        if pa.types.is_decimal(dtype):  # text, which is compared below
            target.deliver(0, v=pa.array(values, dtype))
            assert sorted(Decimal(v) for (v,) in target.content("v")) == sorted(values)
            return
        if getattr(dtype, "tz", None):  # in UTC, without a zone
            target.deliver(0, v=pa.array(values, dtype))
            assert target.content("v") == [(v.replace(tzinfo=None),) for v in values]
            return
        round_trip(target, dtype, values)

    @pytest.mark.parametrize(
        ("old", "new"), [(t, pa.int64()) for t in (pa.string(), pa.date32(), pa.float64())], ids=str
    )
    def test_types_that_do_not_fit_are_refused(
        self, target: Target, old: pa.DataType, new: pa.DataType
    ) -> None:
        super().test_types_that_do_not_fit_are_refused(target, old, new)

    def test_numbers_of_any_size_fit(self, target: Target) -> None:
        types = [pa.int32(), pa.int64()], [pa.decimal128(10, 1), pa.decimal128(12, 3)]
        for batch, (a, b) in enumerate(zip(*types, strict=True)):
            rows = pa.table({"a": pa.array([2], a), "b": pa.array([Decimal("1.5")], b)})
            change = rows.append_column("_change_type", pa.array([D if batch else I]))
            target.sink()._deliver_rows(change, batch, run_of(batch))
        assert target.rows() == []

    def test_nan_is_refused(self, target: Target) -> None:
        with pytest.raises(SinkError, match="TARGET_REFUSED"):
            target.deliver(0, a=[1.0, float("nan")])
        target.deliver(0, a=[1.0, None])
        assert len(target.rows()) == 2

    def test_decimals_and_instants_are_compared(self, target: Target) -> None:
        values = {
            "n": pa.array([Decimal("0E-10"), Decimal("1.5")], pa.decimal128(38, 10)),
            "t": pa.array([0, 1], pa.timestamp("us", "Europe/Berlin")),
        }
        for key in (None, ["n", "t"]):
            sink = target.sink(key=key, name=repr(key))
            row = {**values, "revision": [0, 0]}
            sink._deliver_rows(pa.table({**row, "_change_type": [I, I]}), 0, RUN)
            sink._deliver_rows(pa.table({**row, "_change_type": [D, D]}), 1, RUN)
            assert target.rows() == []

    def test_a_key_that_the_database_takes_for_another_is_refused(
        self, url: str, target: Target
    ) -> None:
        engine = sa.create_engine(url)
        table = sa.Table("a table", sa.MetaData(), sa.Column("k", sa.Text(collation="NOCASE")))
        table.create(engine)
        engine.dispose()
        target.deliver(0, RUN, {"key": "k"}, k=["a", "A"])
        with pytest.raises(SinkError, match="TARGET_KEY"):
            target.deliver(1, run_of(2), {"key": "k"}, k=["a"])


@pytest.mark.parametrize("odd", ODD)
def test_names_of_tables_are_quoted(url: str, odd: str) -> None:
    target = make_target(url, odd)
    for batch, values in enumerate(([1, 2], [2, 3])):
        rows = pa.table({"k": values, odd: [f"{odd} {batch}"] * 2})
        target.sink(key="k", name=odd)._deliver_rows(rows, batch, run_of(batch))
    assert target.content("k", odd) == [(1, f"{odd} 0"), (2, f"{odd} 1"), (3, f"{odd} 1")]
    assert target.sink(name=odd).read_ledger().batch == 1  # type: ignore[union-attr]
    (tables,) = (make_target(url, "sqlite_master"),)
    names = {row["name"] for row in tables.rows() if row["type"] == "table"}
    assert names == {odd, "streamops_entries"}


@pytest.mark.postgres
class TestPostgres(OfDatabases):
    @pytest.fixture
    def target(self, postgres: str) -> Target:
        folder = postgres.split()[0].partition("=")[2]
        name = f"table {next(_NUMBERS)}"
        return make_target(f"postgresql+psycopg://postgres@/postgres?host={folder}", name)

    def test_an_infinite_multiset(self, target: Target) -> None:
        values = [float("nan"), float("inf"), -0.0, 0.0]
        target.deliver(0, x=values, _change_type=[I] * 4)
        target.deliver(1, run_of(2), x=[-0.0, values[0]], _change_type=[D, D])
        assert len(target.rows()) == 2


class OfMariadb(OfDatabases):
    @pytest.fixture
    def target(self, mariadb: Server) -> Target:
        return make_target(mariadb.url(), f"table {next(_NUMBERS)}")

    @pytest.mark.parametrize(("dtype", "values"), TYPES, ids=lambda value: str(value)[:24])
    def test_types_are_stored_without_loss(
        self, target: Target, dtype: pa.DataType, values: list[Any]
    ) -> None:
        if pa.types.is_floating(dtype):
            values = [value for value in values if math.isfinite(value)]
            target.deliver(0, v=pa.array(values, dtype))
            assert [float(v) for (v,) in target.content("v")] == values
            return
        if getattr(dtype, "tz", None):  # in UTC, without a zone
            target.deliver(0, v=pa.array(values, dtype))
            assert target.content("v") == [(v.replace(tzinfo=None),) for v in values]
            return
        if pa.types.is_boolean(dtype):  # numbers, which are equal to booleans
            target.deliver(0, v=pa.array(values, dtype))
            assert target.content("v") == [(0,), (1,)]
            return
        round_trip(target, dtype, values)

    @pytest.mark.parametrize("odd", [name for name in ODD if "`" not in name])
    def test_names_are_quoted(self, target: Target, odd: str) -> None:
        super().test_names_are_quoted(target, odd)


@pytest.mark.smoke
class TestMariadb(OfMariadb):
    pass


def test_a_reader_that_polls_retains_nothing(url: str) -> None:
    """SQLAlchemy retains compiled statements, and a statement its table."""
    target = make_target(url, "t")
    target.deliver(0, RUN, k=[1])
    sink, counts = target.sink(), []
    for _ in range(2):
        for _ in range(10):
            assert sink.read_ledger().batch == 0
        gc.collect()
        counts.append(sum(type(thing) is sa.Table for thing in gc.get_objects()))
    assert counts[0] == counts[1]


def test_columns_of_the_table_that_the_rows_do_not_have_stay(url: str) -> None:
    target = make_target(url, "t")
    for options in ({"key": "k"}, {"name": "multiset"}):
        target.deliver(0, RUN, {"columns": "add", **options}, k=[1, 1][: len(options)], extra=["x"])
    target.deliver(1, run_of(2), {"key": "k"}, k=[1])
    target.deliver(1, run_of(2), {"name": "multiset"}, k=[1], _change_type=[D])
    assert target.content("k", "extra") == [(1, "x")]


def test_columns_that_another_writer_adds_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add = make_target(url, "t"), SqlalchemySink._add_columns
    target.deliver(0, a=[1])

    def add_after_the_other(sink: SqlalchemySink, connection: Any, types: Any) -> None:
        if "b" in types:
            connection.exec_driver_sql('ALTER TABLE t ADD COLUMN "b" BIGINT')
        add(sink, connection, types)

    monkeypatch.setattr(SqlalchemySink, "_add_columns", add_after_the_other)
    target.deliver(1, RUN, {"columns": "add"}, a=[2], b=[3], c=[4])
    assert target.content() == [(1, None, None), (2, 3, 4)]
    with pytest.raises(SinkError, match="TARGET_REFUSED"):  # for SQLite, A is a
        target.deliver(2, RUN, {"columns": "add"}, A=[5])


def test_nested_columns_are_text(url: str) -> None:
    schema = pa.schema([pa.field("v", pa.string()).with_metadata(JSON)])
    target = make_target(url, "t")
    target.sink()._deliver_rows(pa.table([['{"b": [1, null]}']], schema=schema), 0, RUN)
    assert target.rows() == [{"v": '{"b": [1, null]}'}]


def test_values_that_the_table_refuses_change_nothing(url: str) -> None:
    engine = sa.create_engine(url)
    n = sa.Column("n", sa.Integer, sa.CheckConstraint("n < 10"), nullable=False)
    sa.Table("t", sa.MetaData(), n, sa.Column("b", sa.Text)).create(engine)
    engine.dispose()
    target = make_target(url, "t")
    for value in (None, 10):
        with pytest.raises(SinkError, match="TARGET_REFUSED"):
            target.deliver(0, n=pa.array([1, value], pa.int32()))
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        target.deliver(0, b=["x"])
    target.deliver(0, n=pa.array([1], pa.int32()))
    assert target.content("n") == [(1,)]


# Tables that others created


@contextmanager
def client_of(url: str) -> Iterator[Any]:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def create(url: str, *statements: str) -> None:
    with client_of(url) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


INSERTS = {"k": ["a", "b"], "v": pa.array([1, 2], pa.int32())}


@pytest.mark.parametrize(
    ("code", "statements"),
    [
        ("TARGET_KIND", ["CREATE TABLE t (k TEXT UNIQUE ON CONFLICT IGNORE, v INTEGER)"]),
        ("TARGET_KIND", ["CREATE TABLE t (k TEXT, v INTEGER, UNIQUE (k) on /* x */ conflict\nREPLACE)"]),
        ("TARGET_KIND", ["CREATE TABLE x (k TEXT, v INTEGER)", "CREATE VIEW t AS SELECT * FROM x"]),
        ("TARGET_KIND", ["CREATE VIRTUAL TABLE t USING fts5 (k, v)"]),
        ("TARGET_TYPE", ["CREATE TABLE t (k TEXT, v INTEGER AS (length(k)))"]),
        ("TARGET_TYPE", ["CREATE TABLE t (k NUMERIC, v INTEGER)"]),
        ("TARGET_TYPE", ["CREATE TABLE t (k STRING, v INTEGER)"]),
        ("TARGET_REFUSED", ["CREATE TABLE t (k TEXT, v INTEGER CHECK (v < 2))"]),
        ("TARGET_TRIGGER", [
            "CREATE TABLE t (k TEXT, v INTEGER)",
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET v = v + 1 WHERE rowid = new.rowid; END",
        ]),
        ("TARGET_TRIGGER", [
            "CREATE TABLE t (k TEXT, v INTEGER)",
            "CREATE TRIGGER g BEFORE INSERT ON t WHEN new.k = 'b' BEGIN SELECT RAISE(IGNORE); END",
        ]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["append", "upsert", "multiset"])
def test_tables_of_sqlite_that_would_change_rows(
    url: str, form: str, code: str, statements: list[str]
) -> None:
    create(url, *statements)
    target = make_target(url, "t")
    changes = {"_change_type": [I, I]} if form == "multiset" else {}
    with pytest.raises(SinkError, match=code):
        target.deliver(0, RUN, {"key": "k"} if form == "upsert" else {}, **INSERTS, **changes)
    assert target.rows() == []


def test_a_trigger_that_changes_no_row_of_the_sink(url: str) -> None:
    create(
        url,
        "CREATE TABLE t (k TEXT, v INTEGER, note TEXT DEFAULT 'ON CONFLICT IGNORE')",
        "CREATE TABLE audit (n INTEGER)",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO audit VALUES (new.v); END",
    )
    target = make_target(url, "t")
    target.deliver(0, **INSERTS)
    target.deliver(1, **INSERTS)
    assert target.content("k", "v") == [("a", 1), ("a", 1), ("b", 2), ("b", 2)]
    assert make_target(url, "audit").content("n") == [(1,), (1,), (2,), (2,)]


def test_keys_that_the_database_takes_for_one_another(url: str) -> None:
    create(url, "CREATE TABLE t (k TEXT COLLATE NOCASE, v INTEGER)")
    target = make_target(url, "t")
    target.deliver(0, RUN, {"key": "k"}, k=["a", "A"], v=pa.array([1, 2], pa.int32()))
    for values in (["a", "A"], ["a"]):
        with pytest.raises(SinkError, match="TARGET_KEY"):
            target.deliver(1, RUN, {"key": "k"}, k=values, v=pa.nulls(len(values), pa.int32()))
    assert target.content("k", "v") == [("A", 2), ("a", 1)]


def test_null_for_the_row_number_of_sqlite(url: str) -> None:
    create(url, "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
    target = make_target(url, "t")
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        target.deliver(0, k=pa.array([None, 7], pa.int64()), v=["x", "y"])
    target.deliver(0, k=pa.array([7], pa.int64()), v=["y"])
    assert target.rows() == [{"k": 7, "v": "y"}]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([253402300800_000000], pa.timestamp("us", "UTC")),
        pa.array([-62135596800_000001], pa.timestamp("us")),
        pa.array([2**22], pa.date32()),
        pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
        ),
    ],
    ids=lambda values: str(values.type),
)
def test_values_that_python_does_not_have(url: str, values: pa.Array) -> None:
    target = make_target(url, "t")
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        target.deliver(0, v=values)
    assert target.rows() == []


@pytest.mark.parametrize(
    ("dtype", "older", "newer"),
    [
        (pa.decimal128(10, 1), Decimal("9.5"), Decimal("10.0")),
        (pa.decimal128(10, 1), Decimal("-10.0"), Decimal("-9.5")),
        (pa.timestamp("us"), -1, 0),
        (pa.timestamp("us", "UTC"), 9_999_999, 10_000_000),
        (pa.date32(), -1, 0),
        (pa.binary(), b"\x7f", b"\x80"),
    ],
    ids=str,
)
def test_sequences_are_in_one_order(url: str, dtype: pa.DataType, older: Any, newer: Any) -> None:
    # Whether the rows are in one micro-batch, or the older or the newer one is in the table.
    for number, batches in enumerate([[[older, newer]], [[older], [newer]], [[newer], [older]]]):
        target = make_target(url, f"t {number}")
        for batch, sequence in enumerate(batches):
            rows = {"k": [1] * len(sequence), "s": pa.array(sequence, dtype)}
            values = [value == newer for value in sequence]
            target.deliver(batch, RUN, {"key": "k", "sequence": "s"}, **rows, is_newer=values)
        assert target.content("is_newer") == [(True,)]


def mariadb_table(server: Server, *columns: str, options: str = "") -> tuple[Target, str]:
    name = f"table {next(_NUMBERS)}"
    create(server.url(), f"CREATE TABLE `{name}` ({', '.join(columns)}) {options}")
    return make_target(server.url(), name), name


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY", "CSV"])
def test_engines_without_transactions(mariadb: Server, engine: str) -> None:
    target, _ = mariadb_table(mariadb, "k INT NOT NULL", options=f"ENGINE={engine}")
    with pytest.raises(SinkError, match="TARGET_KIND"):
        target.deliver(0, k=pa.array([1], pa.int32()))
    assert target.rows() == []


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("column", "good", "bad", "dtype"),
    [
        ("VARCHAR(3) CHARACTER SET utf8mb4", ["abc", "\U0001f600a "], ["abcd", "abc "], pa.string()),
        ("CHAR(3)", ["a", " a"], ["a ", "abcd"], pa.string()),
        ("TEXT CHARACTER SET utf8mb3", ["\u00e4"], ["\U0001f600"], pa.string()),
        ("VARCHAR(9) CHARACTER SET latin1", ["\u00e4"], ["\u0416"], pa.string()),
        ("TINYTEXT", ["a" * 255], ["a" * 256], pa.string()),
        ("ENUM('a','b')", ["a", "b"], ["A", "c", "", "a "], pa.string()),
        ("BINARY(2)", [b"ab"], [b"a", b"abc"], pa.binary()),
        ("VARBINARY(2)", [b"", b"a "], [b"abc"], pa.binary()),
        ("TINYINT UNSIGNED", [127], [-1], pa.int8()),
        ("BIGINT UNSIGNED", [2**63 - 1], [-1], pa.int64()),
        ("MEDIUMINT", [2**23 - 1], [2**23], pa.int32()),
        ("DECIMAL(5,2) UNSIGNED", [Decimal("999.99")], [Decimal("-0.01")], pa.decimal128(5, 2)),
        ("DATETIME", [10**6], [10**6 + 1], pa.timestamp("us")),
        ("DATETIME(3)", [-1000], [-1], pa.timestamp("us", "UTC")),
        ("TIMESTAMP(6) NULL", [1, 2**31 * 10**6 - 1], [-1, 2**31 * 10**6], pa.timestamp("us", "UTC")),
        ("BIGINT NOT NULL", [0], [None], pa.int64()),
        ("BIGINT AUTO_INCREMENT PRIMARY KEY", [0, -5, 7], [None], pa.int64()),
        ("DOUBLE", [0.1], [NAN, INF], pa.float64()),
    ],
)  # fmt: skip
def test_columns_of_mariadb(
    mariadb: Server, column: str, good: list[Any], bad: list[Any], dtype: pa.DataType
) -> None:
    create(mariadb.url(), "SET GLOBAL sql_mode = ''", "SET GLOBAL time_zone = '+05:30'")
    try:
        target, name = mariadb_table(mariadb, f"v {column}")
        for value in bad:
            with pytest.raises(SinkError, match="TARGET_REFUSED"):
                target.deliver(0, v=pa.array([*good, value], dtype))
            assert target.rows() == []
        target.deliver(0, v=pa.array(good, dtype))
        with mariadb.connect() as client, client.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(f"SELECT v FROM `{name}`")
            found = [value for (value,) in cursor.fetchall()]
        expected = pa.array(good, dtype).to_pylist()
        if pa.types.is_timestamp(dtype):
            expected = [value.replace(tzinfo=None) for value in expected]
        assert sorted(found) == sorted(expected)
    finally:
        create(mariadb.url(), "SET GLOBAL sql_mode = DEFAULT", "SET GLOBAL time_zone = 'SYSTEM'")


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        ("FLOAT", pa.float32()),
        ("DOUBLE(5,2)", pa.float64()),
        ("SET('a','b')", pa.string()),
        ("TIMESTAMP NULL", pa.timestamp("us")),
        ("UUID", pa.string()),
        ("YEAR", pa.int32()),
        ("BIT(8)", pa.bool_()),
        ("DECIMAL(5,1)", pa.decimal128(5, 2)),
        ("INT AS (1)", pa.int32()),
    ],
)
def test_types_of_mariadb_that_do_not_fit(mariadb: Server, column: str, dtype: pa.DataType) -> None:
    target, _ = mariadb_table(mariadb, "k INT", f"v {column}")
    with pytest.raises(SinkError, match="TARGET_TYPE"):
        target.deliver(0, v=pa.nulls(1, dtype))


def test_collations_of_mariadb(mariadb: Server) -> None:
    target, _ = mariadb_table(mariadb, "k VARCHAR(9) COLLATE utf8mb4_general_ci", "v INT")
    target.deliver(0, RUN, {"key": "k"}, k=["a", "b"], v=pa.array([1, 2], pa.int32()))
    for key in ("A", "a ", "\u00e4"):
        with pytest.raises(SinkError, match="TARGET_KEY"):
            target.deliver(1, RUN, {"key": "k"}, k=[key], v=pa.array([3], pa.int32()))
    assert target.content("k", "v") == [("a", 1), ("b", 2)]
    # Names of sinks that the default collation does not distinguish have entries of their own.
    for name in ("one", "ONE", "one "):
        target.deliver(0, RUN, {"name": name}, k=[name], v=pa.array([4], pa.int32()))
    assert len(target.rows()) == 5


def test_triggers_of_mariadb(mariadb: Server) -> None:
    target, name = mariadb_table(mariadb, "k VARCHAR(9)", "v INT")
    create(
        mariadb.url(),
        f"CREATE TRIGGER `g {name}` BEFORE INSERT ON `{name}` FOR EACH ROW SET NEW.k = upper(NEW.k)",
    )
    for options in ({}, {"key": "k"}):
        with pytest.raises(SinkError, match="TARGET_TRIGGER"):
            target.deliver(0, RUN, options, **INSERTS)
    assert target.rows() == []
    target.deliver(0, k=["A"], v=pa.array([1], pa.int32()))
    assert target.content("k", "v") == [("A", 1)]


def test_a_url_of_mysql_reaches_mariadb(mariadb: Server) -> None:
    name = f"table {next(_NUMBERS)}"
    target = make_target(mariadb.url(dialect="mysql", autocommit="true"), name)
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        target.deliver(0, RUN, {"key": "k"}, k=["b" * 255, "a" * 256])
    assert target.rows() == []
    target.deliver(0, RUN, {"key": "k"}, k=["a", "A", "a "])
    assert len(target.rows()) == 3


def test_many_keys(url: str) -> None:
    target = make_target(url, "t")
    sink = target.sink(key=["a", "b"])
    keys = {
        "a": [n // 50 if n % 7 else None for n in range(2_000)],
        "b": [str(n) for n in range(2_000)],
    }
    for batch in range(2):
        sink._deliver_rows(pa.table({**keys, "v": [batch] * 2_000}), batch, RUN)
    assert {row["v"] for row in target.rows()} == {1}
    assert len(target.rows()) == 2_000


def test_credentials_are_never_displayed(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:secret%20word@127.0.0.1:1/nowhere?application_name=hidden-name"
    sink = sinks.sqlalchemy(url, "t")
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    text = f"{sink!r}{error.value}{error.value.__cause__!r}"
    assert "user" in text
    assert not any(secret in text for secret in ("secret", "hidden-name"))


@pytest.mark.parametrize(
    "options",
    [
        {"url": 1},
        {"url": "no url"},
        {"table": ""},
        {"key": []},
        {"columns": "any"},
        {"missing": "ignore"},
        {"new_checkpoint": "yes"},
        {"repeated": True},
        {"schema": ""},
        {"name": ""},
    ],
)
def test_wrong_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        sinks.sqlalchemy(**{"url": "sqlite://", "table": "t", **options})


@pytest.mark.parametrize(
    ("what", "statements"),
    [
        ("row-level security", [
            "CREATE ROLE {t}_user LOGIN",
            # A schema of its own, without the ledger of the other tests.
            "CREATE SCHEMA AUTHORIZATION {t}_user",
            "CREATE TABLE {t}_user.{t} (k bigint, v bigint)",
            "ALTER TABLE {t}_user.{t} OWNER TO {t}_user",
            "ALTER TABLE {t}_user.{t} FORCE ROW LEVEL SECURITY",
            "ALTER TABLE {t}_user.{t} ENABLE ROW LEVEL SECURITY",
        ]),
        ("inherit", [
            "CREATE TABLE {t} (k bigint, v bigint)",
            "CREATE TABLE {t}_heir (more text) INHERITS ({t})",
        ]),
        ("such a partition", [
            "CREATE TABLE {t} (k bigint, v bigint) PARTITION BY LIST (k)",
            "CREATE UNLOGGED TABLE {t}_part PARTITION OF {t} DEFAULT",
        ]),
        ("cascades", [
            "CREATE TABLE {t} (k bigint PRIMARY KEY, v bigint REFERENCES {t} ON DELETE CASCADE)",
        ]),
        ("name it with `schema`", [
            "CREATE SCHEMA {t}_more",
            "CREATE TABLE {t}_more.{t} (k bigint, v bigint)",
        ]),
    ],
)  # fmt: skip
def test_tables_of_postgresql_whose_rows_are_not_all_there(
    postgres: str, what: str, statements: list[str]
) -> None:
    name = f"sqlalchemy_others_{next(_NUMBERS)}"
    folder = postgres.split()[0].partition("=")[2]
    url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
    create(url, *(statement.format(t=name) for statement in statements))
    if "row-level" in what:
        url = url.replace("postgres@", f"{name}_user@") + f"&options=-csearch_path%3D{name}_user"
    if "schema" in what:
        url += f"&options=-csearch_path%3Dpublic,{name}_more"
    with pytest.raises(SinkError, match=what) as error:
        make_target(url, name).deliver(0, k=[1], v=pa.nulls(1, pa.int64()))
    assert error.value.code == "TARGET_KIND"


def test_rows_of_a_multiset_that_stay_are_not_written_again(mariadb: Server) -> None:
    target, name = mariadb_table(
        mariadb, "id INT AUTO_INCREMENT PRIMARY KEY", "f FLOAT DEFAULT 16777216", "v BIGINT"
    )
    parent = f"FOREIGN KEY (id) REFERENCES `{name}` (id) ON DELETE CASCADE"
    create(mariadb.url(), f"CREATE TABLE `{name} parts` (id INT, {parent})")
    target.deliver(0, v=[7, 7, 7], _change_type=[I] * 3)
    create(mariadb.url(), f"INSERT INTO `{name} parts` SELECT id FROM `{name}`")
    target.deliver(1, run_of(2), v=[7], _change_type=[D])
    found = f"SELECT count(*), min(f = 16777216), count(p.id) FROM `{name}` LEFT JOIN `{name} parts` p USING (id)"
    with mariadb.connect() as client, client.cursor() as cursor:
        cursor.execute(found)
        assert cursor.fetchall() == ((2, 1, 2),)


@pytest.mark.parametrize("url", ["sqlite://", "mariadb+pymysql://host/shop"])
def test_an_error_that_sqlalchemy_does_not_wrap_is_one_of_the_database(url: str) -> None:
    """Such as that of a connection that breaks when it gets its isolation level."""
    driver = sa.make_url(url).get_dialect().import_dbapi()
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"), reported(url):
        raise driver.OperationalError(2013, "Lost connection")
    with pytest.raises(KeyError), reported(url):
        raise KeyError
