"""What the owner of a database or a broker sets for every session: the sinks keep their promise, or refuse."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.laws.sink_histories import FIXED, comparable
from tests.servers.mariadb import Server as MariaDb
from tests.sinks.attempts import Attempts, deliver

sa = pytest.importorskip("sqlalchemy")
_NUMBERS = itertools.count()

MARIADB = {
    "sql_mode": "''",
    "sql_select_limit": "1",
    "sql_safe_updates": "1",
    "unique_checks": "0",
    "foreign_key_checks": "0",
    "check_constraint_checks": "0",
    "completion_type": "'CHAIN'",
    "sql_auto_is_null": "1",
    "max_join_size": "1",
    "tx_isolation": "'READ-UNCOMMITTED'",
    "time_zone": "'+05:30'",
    "autocommit": "1",
    "max_sort_length": "64",
    "character_set_server": "'latin1'",
    "default_storage_engine": "'MyISAM'",
    "explicit_defaults_for_timestamp": "0",
    "old_mode": "'ZERO_DATE_TIME_CAST'",
    "div_precision_increment": "0",
    "innodb_strict_mode": "0",
}
POSTGRES = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "session_replication_role": "replica",
    "synchronous_commit": "off",
    "search_path": '"$user", public',
    "datestyle": "'SQL, DMY'",
    "intervalstyle": "sql_standard",
    "timezone": "'Asia/Kathmandu'",
    "bytea_output": "escape",
    "extra_float_digits": "'-15'",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "row_security": "off",
    "quote_all_identifiers": "on",
    "enable_seqscan": "off",
    "xmloption": "document",
    "client_encoding": "'LATIN1'",
    "backslash_quote": "off",
}


def one_by_one(settings: dict[str, str]) -> list[Any]:
    """All settings at once; and each of them, in the exhaustive tests."""
    single = [pytest.param([n], id=n, marks=pytest.mark.exhaustive) for n in settings]
    return [pytest.param([*settings], id="all"), *single]


LONG = "x" * 2_000
ROWS = [
    pa.table(
        {
            "k": [1, 2],
            "t": [f"{LONG}1", f"{LONG}2"],
            "f": [0.1 + 0.2, 1e-300],
            "at": pa.array([0, 951_868_800_000_000], pa.timestamp("us", "UTC")),
            "_change_type": ["insert"] * 2,
            "revision": [0, 0],
        }
    ),
    pa.table(
        {
            "k": [1, 1, 2],
            "t": [f"{LONG}1", f"{LONG}3", f"{LONG}2"],
            "f": [0.1 + 0.2, -0.5, 1e-300],
            "at": pa.array([0, 1, 951_868_800_000_000], pa.timestamp("us", "UTC")),
            "_change_type": ["update_preimage", "update_postimage", "delete"],
            "revision": [0, 1, 0],
        }
    ),
]


def play(make: Callable[..., Any], read: Callable[[str], list[Any]]) -> None:
    """Histories of all forms, by the driver and by tasks, delivered twice; one that replaces them; long texts."""
    for way, (form, history) in itertools.product(("driver", "tasks"), FIXED.items()):
        name, names = f"{form} {next(_NUMBERS)}", history.batches[0].column_names
        sink = make(name, **history.options)

        def write(sink: Any, rows: pa.Table, batch: int, run: str, way: str = way) -> None:
            identity = Identity(run[0], run)
            if way == "tasks":
                deliver(sink, Attempts(rows, seed=3), batch, identity)
            else:
                sink._deliver_rows(rows, batch, identity)

        for run in ("a 1", "a 2"):
            for number, rows in enumerate(history.batches):
                if run == "a 1" or number == len(history.batches) - 1:
                    write(
                        make(name, **history.options) if run == "a 2" else sink, rows, number, run
                    )
        columns = ", ".join(f"{name}" for name in names if name != "_change_type")
        assert comparable(read(f"SELECT {columns} FROM {{0}}{name}{{0}}")) == comparable(
            history.expected
        )
        again = make(name, **history.options, new_checkpoint="replace")
        write(again, history.batches[0], 0, "b 1")
        count = read(f"SELECT count(*) FROM {{0}}{name}{{0}}")
        assert count == [(len(history.batches[0]),)]
        if way == "driver":
            name = f"long {next(_NUMBERS)}"
            sink = make(name, key="k")
            for number, rows in enumerate(ROWS):
                write(sink, rows, number, "a 1")
            found = read(f"SELECT k, f, t FROM {{0}}{name}{{0}}")
            assert [tuple(row) for row in found] == [(1, -0.5, f"{LONG}3")]


@pytest.mark.mariadb
@pytest.mark.parametrize("names", one_by_one(MARIADB))
def test_settings_of_mariadb(mariadb: MariaDb, names: list[str]) -> None:
    with mariadb.connect() as owner, owner.cursor() as cursor:
        before = {}
        for name in names:
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            before[name] = cursor.fetchone()[0]
            cursor.execute(f"SET GLOBAL {name} = {MARIADB[name]}")
        try:

            def read(statement: str) -> list[Any]:
                with mariadb.connect(charset="utf8mb4") as own, own.cursor() as reader:
                    reader.execute("SET SESSION sql_select_limit = 1000, sql_big_selects = 1")
                    reader.execute(statement.format("`"))
                    return list(reader.fetchall())

            play(lambda name, **given: sinks.sqlalchemy(mariadb.url(), name, **given), read)
        finally:
            for name, value in before.items():
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))


@pytest.mark.postgres
@pytest.mark.parametrize("names", one_by_one(POSTGRES))
@pytest.mark.parametrize("by", ["postgres", "sqlalchemy"])
def test_settings_of_postgres(postgres: str, names: list[str], by: str) -> None:
    folder = postgres.split()[0].partition("=")[2]
    if by == "postgres":  # its driver does not connect then
        names = [name for name in names if name != "quote_all_identifiers"]
    with psycopg.connect(postgres, autocommit=True) as owner:
        for name in names:
            owner.execute(f"ALTER DATABASE postgres SET {name} = {POSTGRES[name]}".encode())
        try:

            def make(name: str, **given: Any) -> Any:
                dialect = "" if by == "postgres" else "+psycopg"
                url = f"postgresql{dialect}://postgres@/postgres?host={folder}"
                return getattr(sinks, by)(url, name, **given)

            def read(statement: str) -> list[Any]:
                return owner.execute(statement.format('"').encode()).fetchall()

            play(make, read)
        finally:
            for name in names:
                owner.execute(f"ALTER DATABASE postgres RESET {name}".encode())


def outcome(sink: Any, *tables: pa.Table) -> str:
    """Deliver micro-batches, and return "written", or the code of the error."""
    try:
        for number, rows in enumerate(tables):
            sink._deliver_rows(rows, number, Identity("a", "a 1"))
    except SinkError as error:
        return error.code
    return "written"


SMALL = [pa.table({"k": [1], "v": ["x"]}), pa.table({"k": [1], "v": ["y"]})]


@pytest.mark.postgres
@pytest.mark.parametrize("by", ["postgres", "sqlalchemy"])
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("CREATE TABLE t (k bigint, v text, UNIQUE (k), EXCLUDE (v WITH =))", "written"),
        ("CREATE TABLE t (k bigint, v text, UNIQUE (k), CHECK (v <> 'y'))", "TARGET_REFUSED"),
        (
            "CREATE TABLE t (k bigint, v text, UNIQUE (k));"
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'no'; END$$;"
            "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION no()",
            "TARGET_REFUSED",
        ),
        (
            "CREATE TABLE t (k bigint, v text, UNIQUE (k)); CREATE PUBLICATION p FOR TABLE t",
            "TARGET_REFUSED",  # the updates have no replica identity
        ),
        ("CREATE TABLE t (k bigint, v text, more text DEFAULT 'd', UNIQUE (k))", "written"),
        ("CREATE TABLE t (k bigint, v text, UNIQUE (k)) WITH (fillfactor = 10)", "written"),
    ],
)
def test_tables_of_postgres(postgres: str, by: str, made: str, expected: str) -> None:
    folder, schema = postgres.split()[0].partition("=")[2], f"owner {next(_NUMBERS)}"
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(f'CREATE SCHEMA "{schema}"; SET search_path TO "{schema}"; {made}'.encode())
        dialect = "" if by == "postgres" else "+psycopg"
        url = f"postgresql{dialect}://postgres@/postgres?host={folder}"
        sink = getattr(sinks, by)(url, "t", schema=schema, key="k")
        assert outcome(sink, *SMALL) == expected
        rows = owner.execute("SELECT k, v FROM t").fetchall()
        assert rows in ([[(1, "y")]] if expected == "written" else [[(1, "x")], []])
        owner.execute(f'DROP PUBLICATION IF EXISTS p; DROP SCHEMA "{schema}" CASCADE'.encode())


@pytest.mark.postgres
def test_a_commit_that_is_answered_is_durable(postgres: str) -> None:
    folder = postgres.split()[0].partition("=")[2]
    with psycopg.connect(postgres, autocommit=True) as owner:
        owner.execute(
            "CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET synchronous_commit = off"
        )
        url = f"postgresql://hasty@/postgres?host={folder}"
        sink = sinks.postgres(url, "hasty")
        with sink._transaction() as cursor:
            cursor.execute("SELECT current_setting('synchronous_commit')")
            assert cursor.fetchall() == [("on",)]
        other = sinks.sqlalchemy(url.replace("://", "+psycopg://"), "hasty 2")
        with other._engine().connect() as connection:
            assert connection.execute(sa.text("SHOW synchronous_commit")).scalar() == "on"
        sink.session.close()
        other.session.close()
        owner.execute("DROP ROLE hasty")


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("k bigint, v text CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", "TARGET_REFUSED"),
        ("k bigint, v text CHARACTER SET latin1 COLLATE latin1_bin", "TARGET_REFUSED"),
        (
            "k bigint, v text CHARACTER SET utf8mb4, at timestamp(6) NULL ON UPDATE CURRENT_TIMESTAMP(6)",
            "written",
        ),
        ("k bigint, v text) ENGINE=(MyISAM", "TARGET_KIND"),
        ("k bigint, v text) ENGINE=Aria TRANSACTIONAL=(1", "TARGET_KIND"),
        ("k bigint, v text CHARACTER SET utf8mb4) PARTITION BY HASH (k", "written"),
    ],
)
def test_tables_of_mariadb(mariadb: MariaDb, made: str, expected: str) -> None:
    made = f"{made})".replace("=(MyISAM)", "=MyISAM").replace("=(1)", "=1")
    name = f"owner{next(_NUMBERS)}"
    with mariadb.connect() as owner, owner.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} ({made}")
        odd = pa.table({"k": [1], "v": ["\U0001f600" if "latin1" not in made else "ł"]})
        sink = sinks.sqlalchemy(mariadb.url(), name, key="k")
        assert outcome(sink, SMALL[0], odd) == expected
        cursor.execute(f"SELECT count(*) FROM {name}")
        assert cursor.fetchone() == (0 if expected == "TARGET_KIND" else 1,)


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("setting", "value"), [("max_statement_time", "0.000001"), ("max_allowed_packet", "1024")]
)
def test_limits_of_mariadb_are_no_fault_of_the_rows(
    mariadb: MariaDb, setting: str, value: str
) -> None:
    name = f"owner{next(_NUMBERS)}"
    long = pa.table({"k": [2], "v": ["x" * 300_000]})
    with mariadb.connect() as owner, owner.cursor() as cursor:
        assert outcome(sinks.sqlalchemy(mariadb.url(), name, key="k"), SMALL[0]) == "written"
        cursor.execute(f"SELECT @@GLOBAL.{setting}")
        (before,) = cursor.fetchone()
        cursor.execute(f"SET GLOBAL {setting} = {value}")
        try:
            again = sinks.sqlalchemy(mariadb.url(), name, key="k")
            assert outcome(again, SMALL[0], long) == "TARGET_UNAVAILABLE"
        finally:
            cursor.execute(f"SET GLOBAL {setting} = {before}")
        assert outcome(sinks.sqlalchemy(mariadb.url(), name, key="k"), SMALL[0], long) == "written"


@pytest.mark.parametrize(
    "pragma",
    ["journal_mode = WAL", "encoding = 'UTF-16be'", "page_size = 512", "auto_vacuum = FULL"],
)
@pytest.mark.parametrize("ending", ["", " WITHOUT ROWID", " STRICT"])
def test_files_of_sqlite(tmp_path: Path, pragma: str, ending: str) -> None:
    path = tmp_path / "owned.db"
    with closing(sqlite3.connect(path)) as owner:
        owner.execute(f"PRAGMA {pragma}")
        owner.execute(
            f"CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT, more TEXT DEFAULT 'd'){ending}"
        )
        owner.commit()
    sink = sinks.sqlalchemy(f"sqlite:///{path}", "t", key="k")
    assert outcome(sink, *SMALL, pa.table({"k": [2**40], "v": ["ü\U0001f600"]})) == "written"
    with closing(sqlite3.connect(path)) as owner:
        found = owner.execute("SELECT * FROM t ORDER BY k").fetchall()
    assert found == [(1, "y", "d"), (2**40, "ü\U0001f600", "d")]


@pytest.mark.postgres
@pytest.mark.parametrize("by", ["postgres", "sqlalchemy"])
@pytest.mark.parametrize(
    "setting", ["statement_timeout = '1ms'", "default_transaction_read_only = on"]
)
def test_limits_of_postgres_are_no_fault_of_the_rows(postgres: str, by: str, setting: str) -> None:
    folder, name = postgres.split()[0].partition("=")[2], f"limited {next(_NUMBERS)}"
    dialect = "" if by == "postgres" else "+psycopg"
    url = f"postgresql{dialect}://postgres@/postgres?host={folder}"
    long = pa.table({"k": [*range(20_000)], "v": ["x" * 100] * 20_000})
    with psycopg.connect(postgres, autocommit=True) as owner:
        assert outcome(getattr(sinks, by)(url, name), SMALL[0]) == "written"
        owner.execute(f"ALTER DATABASE postgres SET {setting}".encode())
        try:
            assert outcome(getattr(sinks, by)(url, name), SMALL[0], long) == "TARGET_UNAVAILABLE"
        finally:
            owner.execute(f"ALTER DATABASE postgres RESET {setting.split()[0]}".encode())
        assert owner.execute(f'SELECT count(*) FROM "{name}"'.encode()).fetchall() == [(1,)]
