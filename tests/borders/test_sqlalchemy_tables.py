"""Random tables of SQLite and MariaDB that others created, and micro-batches for them.

After each micro-batch, a client that is independent of the library reads the rows that a simple model
says, or the sink has refused the micro-batch, and the rows are those from before.
"""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import StreamopsError
from streamops.spark.identity import Identity
from tests.borders import cases

if TYPE_CHECKING:
    from tests.servers.mariadb import Server

pytest.importorskip("sqlalchemy")

RUN = Identity("query", "run")
UTC = pa.timestamp("us", "UTC")
NTZ = pa.timestamp("us")
FORMS = ["append", "upsert", "revisions", "changes", "multiset"]
KEYED = {"upsert", "revisions", "changes"}

Row = tuple[Any, ...]


def _instants(*texts: str) -> list[dt.datetime]:
    return [dt.datetime.fromisoformat(text) for text in texts]


_SINGLE = [struct.unpack("f", struct.pack("f", x))[0] for x in (0.1, 1e30, 16777216.0, -2.5)]
_TIMES = _instants(
    "0001-01-01", "1969-12-31T23:59:59.999999", "2026-03-29T02:30:00", "2026-01-01T00:00:00.123456",
    "2026-01-01T00:00:00.500000", "2038-01-19T03:14:08", "9999-12-31T23:59:59.999999",
)  # fmt: skip

# Values that every column of a fitting type takes, and values that some do not.
VALUES: dict[pa.DataType, tuple[list[Any], list[Any]]] = {
    pa.string(): (
        ["", "a", "b", "xy", "z1"],
        ["A", "a ", " a", "\u00e4", "A\u0308", "\U0001f600", "007", "1e3", "much longer", "a\0b", "a'\\b", "\u00df", "abc   "],
    ),
    pa.int8(): ([0, 1, -7, 127, -128], []),
    pa.int32(): ([0, 1, -7, 100], [2**31 - 1, -(2**31), 300, 70_000]),
    pa.int64(): ([0, 1, -7, 100], [2**63 - 1, -(2**63), 2**53 + 1]),
    pa.float32(): ([0.0, 0.5, -2.5], [*_SINGLE, float("nan"), float("inf"), -0.0]),
    pa.float64(): ([0.0, 0.5, -2.5], [0.1, 1e300, 5e-324, float(2**53), float("nan"), -float("inf"), -0.0]),
    pa.decimal128(10, 2): ([Decimal("1.50"), Decimal("0.00"), Decimal("-7.25")], [Decimal("99999999.99"), Decimal("100.00")]),
    pa.decimal128(38, 10): ([Decimal("1.5000000000"), Decimal("-7.0000000000")], [Decimal("1234567890123456789012345678.0123456789"), Decimal("0.0000000001")]),
    pa.bool_(): ([True, False], []),
    pa.date32(): ([dt.date(2026, 1, 31), dt.date(1970, 1, 1)], [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    NTZ: (_instants("2026-01-01", "2000-02-29T12:00:00"), _TIMES),
    UTC: (_instants("2026-01-01", "2000-02-29T12:00:00"), _TIMES),
    pa.binary(): ([b"", b"a", b"\0\xff"], [b"abc", b"a ", b"much longer", b"a\0"]),
}  # fmt: skip

# For each Arrow type: column types that take all values exactly, and column types that may not.
EXACT_SQLITE = {
    pa.string(): ["TEXT", "VARCHAR(3)", "CHAR(3)", "CLOB", "NVARCHAR(9)"],
    **{t: ["INTEGER", "INT", "BIGINT", "SMALLINT"] for t in [pa.int8(), pa.int32(), pa.int64()]},
    **{t: ["REAL", "DOUBLE", "FLOAT"] for t in [pa.float32(), pa.float64()]},
    **{t: ["TEXT", "VARCHAR(41)"] for t in [pa.decimal128(10, 2), pa.decimal128(38, 10)]},
    pa.bool_(): ["BOOLEAN"],
    pa.date32(): ["DATE"],
    **{t: ["DATETIME", "TIMESTAMP"] for t in [NTZ, UTC]},
    pa.binary(): ["BLOB"],
}
OTHERS_SQLITE = [
    "TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM", "", "NUMERIC", "DECIMAL(10,2)", "STRING", "JSON", "DATE", "ANY",
    "INTEGER", "TEXT", "BLOB", "REAL", "BOOLEAN", "DATETIME", "TEXT NOT NULL", "FLOATING POINT", "TIME",
]  # fmt: skip
EXACT_MARIADB = {
    pa.string(): [
        "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
        "VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
    ],
    pa.int8(): ["TINYINT", "SMALLINT", "INT", "BIGINT"],
    pa.int32(): ["INT", "BIGINT"],
    pa.int64(): ["BIGINT"],
    **{t: ["DOUBLE", "REAL"] for t in [pa.float32(), pa.float64()]},
    pa.decimal128(10, 2): ["DECIMAL(10,2)", "DECIMAL(20,5)"],
    pa.decimal128(38, 10): ["DECIMAL(38,10)"],
    pa.bool_(): ["BOOLEAN", "TINYINT(1)"],
    pa.date32(): ["DATE"],
    **{t: ["DATETIME(6)"] for t in [NTZ, UTC]},
    pa.binary(): ["LONGBLOB", "BLOB"],
}
OTHERS_MARIADB = [
    "VARCHAR(3)", "CHAR(3)", "VARCHAR(9) COLLATE utf8mb4_general_ci", "TEXT CHARACTER SET utf8mb3", "TINYTEXT",
    "VARCHAR(5) CHARACTER SET latin1", "CHAR(5) COLLATE utf8mb4_bin", "ENUM('a','b','xy')", "SET('a','b')", "JSON",
    "INT UNSIGNED", "TINYINT UNSIGNED", "SMALLINT ZEROFILL", "MEDIUMINT", "BIGINT UNSIGNED", "BIT(3)", "YEAR",
    "FLOAT", "DOUBLE(8,2)", "DECIMAL(5,1)", "DECIMAL(4,2) UNSIGNED", "DATETIME", "DATETIME(3)", "TIMESTAMP NULL",
    "TIMESTAMP(6) NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", "TIME", "DATE",
    "BINARY(3)", "VARBINARY(2)", "TINYBLOB", "UUID", "INET6", "TEXT NOT NULL", "INT NOT NULL DEFAULT 3", "DATETIME(6)",
    "BIGINT INVISIBLE",
]  # fmt: skip


FAMILIES = {
    pa.types.is_string: ("CHAR", "TEXT", "ENUM", "SET", "JSON", "UUID", "STRING"),
    pa.types.is_integer: ("INT", "YEAR", "NUMERIC"),
    pa.types.is_floating: ("FLOAT", "DOUBLE", "REAL", "NUMERIC"),
    pa.types.is_decimal: ("DECIMAL", "NUMERIC", "TEXT"),
    pa.types.is_temporal: ("DATE", "TIME"),
    pa.types.is_binary: ("BINARY", "BLOB"),
    pa.types.is_boolean: ("BOOL", "BIT"),
}


def alike(dtype: pa.DataType, columns: list[str]) -> list[str]:
    """The column types that a user could have for values of a type."""
    parts = next(parts for check, parts in FAMILIES.items() if check(dtype))
    return [c for c in columns if any(w in c.partition(" COLLATE")[0] for w in parts)]


def canonical(value: Any, dtype: pa.DataType) -> Any:
    """A value that a client has read, as the value that was sent; itself if it is another one."""
    if value is None:
        return None
    if pa.types.is_decimal(dtype) and isinstance(value, str | Decimal):
        return Decimal(value).normalize()
    if pa.types.is_timestamp(dtype) and isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if pa.types.is_date(dtype) and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if pa.types.is_boolean(dtype) and value in (0, 1):
        return bool(value)
    if pa.types.is_floating(dtype) and isinstance(value, int | float):
        return float(value) + 0.0  # one zero
    return value


class Case:
    """A table, and micro-batches of one form."""

    def __init__(self, seed: int, exact: dict[Any, list[str]], others: list[str]) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        self.form = choose(FORMS)
        # A third of the tables takes all values: nothing may be refused.
        self.is_tame = self.random.random() < 0.33
        types = [t for t in VALUES if not pa.types.is_floating(t)]
        self.key = choose([1, 1, 1, 2]) if self.form in KEYED else 0
        self.types = [choose(types) for _ in range(self.key)]
        self.types += [choose([*VALUES]) for _ in range(choose([1, 2, 3]))]
        self.columns = []
        for dtype in self.types:
            pick = self.random.random()
            near = alike(dtype, others) if pick < 0.9 else others
            is_exact = self.is_tame or pick < 0.4 or not near
            self.columns.append(choose(exact[dtype] if is_exact else near))
        self.names = [f"c {i}" for i in range(len(self.types))]
        self.rows: list[Row] = []
        self.revisions: dict[Row, int] = {}

    def keys(self) -> list[str]:
        return self.names[: self.key]

    def _value(self, dtype: pa.DataType, *, is_key: bool) -> Any:
        good, bad = VALUES[dtype]
        if self.is_tame:
            # Not NaN and infinities, which these databases do not have.
            bad = [v for v in bad if not isinstance(v, float) or abs(v) < float("inf")]
        pick = self.random.random()
        if pick < 0.1 and not (is_key and self.random.random() < 0.5):
            return None
        return self.random.choice(bad if bad and pick < 0.4 else good)

    def _row(self) -> Row:
        return tuple(self._value(t, is_key=i < self.key) for i, t in enumerate(self.types))

    def _key_of(self, row: Row) -> Row:
        return self.canonical(row)[: self.key]

    def canonical(self, row: Row) -> Row:
        return tuple(canonical(v, t) for v, t in zip(row, self.types, strict=True))

    def micro_batch(self, number: int) -> tuple[pa.Table, list[Row]]:
        """Rows, and all rows of the table after them."""
        rows: list[Row] = []
        changes: list[str] = []
        revisions: list[int] = []
        after = list(self.rows)
        if self.form == "append":
            rows = [self._row() for _ in range(self.random.randint(1, 6))]
            after += rows
        elif self.form == "multiset":
            for row in self.random.sample(after, min(len(after), self.random.randint(0, 3))):
                after.remove(row)
                rows.append(row)
                changes.append("delete")
            for _ in range(self.random.randint(1, 4)):
                row = self._row()
                rows += [row, row][: self.random.randint(1, 2)]
            added = rows[len(changes) :]
            after += added
            changes += ["insert"] * len(added)
        else:
            known = {self._key_of(row): row for row in after}
            new = {self._key_of(row): row for row in (self._row() for _ in range(4))}
            for key in self.random.sample([*known], min(len(known), 2)):
                new[key] = (*known[key][: self.key], *self._row()[self.key :])
            for key, row in new.items():
                old, revision = known.get(key), self.revisions.get(key, -1) + 1
                if self.form == "changes":
                    if old is None:
                        rows.append(row)
                        changes.append("insert")
                        known[key] = row
                    elif self.random.random() < 0.3:
                        rows.append(old)
                        changes.append("delete")
                        del known[key]
                    else:
                        rows += [old, row]
                        changes += ["update_preimage", "update_postimage"]
                        known[key] = row
                    revisions += [number] * (len(rows) - len(revisions))
                    continue
                if self.form == "revisions" and old is not None and self.random.random() < 0.3:
                    revision = max(0, revision - 2)  # an older one, which is ignored
                rows.append(row)
                revisions.append(revision)
                if self.form == "upsert" or old is None or revision > self.revisions[key]:
                    known[key] = row
                    self._later[key] = revision
            after = list(known.values())
        arrays = {
            name: pa.array([row[i] for row in rows], dtype)
            for i, (name, dtype) in enumerate(zip(self.names, self.types, strict=True))
        }
        if self.form == "revisions":
            arrays["revision"] = pa.array(revisions, pa.int64())
        if self.form == "changes":
            arrays["order"] = pa.array(revisions, pa.int64())
        if changes:
            arrays["_change_type"] = pa.array(changes)
        elif self.form in {"multiset", "changes"}:
            arrays["_change_type"] = pa.array([], pa.string())
        return pa.table(arrays), after

    @property
    def order(self) -> list[str]:
        """The column of the sequence."""
        return {"revisions": ["revision"], "changes": ["order"]}.get(self.form, [])

    _later: dict[Row, int]

    def run(
        self, url: str, table: str, read: Callable[[list[str]], list[Row]], seed: int
    ) -> tuple[int, int]:
        """Deliver three micro-batches; return how many the sink took, and how many it refused."""
        options: dict[str, Any] = {"key": self.keys() or None}
        if self.form == "changes":
            options["sequence"] = "order"
        sink = sinks.sqlalchemy(url, table, **options)
        taken = refused = 0
        for attempt in range(4):
            self._later = dict(self.revisions)
            rows, after = self.micro_batch(taken)
            expected = after
            try:
                sink._deliver_rows(rows, taken, RUN)
                taken, self.rows, self.revisions = taken + 1, after, self._later
            except StreamopsError as error:
                refused, expected = refused + 1, self.rows
                is_good = not self.is_tame and error.code != "TARGET_UNAVAILABLE" and error.fix
                if not is_good:
                    raise AssertionError((seed, attempt, rows.to_pylist(), self.columns)) from error
            found = Counter(map(self.canonical, read(self.names)))
            wanted = Counter(map(self.canonical, expected))
            assert found == wanted, (seed, attempt, self.form, self.columns, rows.to_pylist(), found - wanted, wanted - found)  # fmt: skip
        sink.session.close()
        return taken, refused


def _check(results: list[tuple[int, int]]) -> None:
    """The cases are of use: many micro-batches are taken, and many are refused."""
    taken, refused = (sum(part) for part in zip(*results, strict=True))
    print(f"{len(results)} tables: {taken} micro-batches taken, {refused} refused")
    assert taken > len(results)
    assert refused > len(results) / 4


# SQLite


def sqlite_statements(case: Case, table: str) -> list[str]:
    """The statements that create the table of a case."""
    pick, choose = case.random.random, case.random.choice
    columns = [f'"{n}" {t}' for n, t in zip(case.names, case.columns, strict=True)]
    columns += [f'"{name}" BIGINT' for name in case.order]
    after: list[str] = []
    options = ""
    first, last = (f'"{name}"' for name in (case.names[0], case.names[-1]))
    if not case.is_tame and pick() < 0.5:
        clash = choose(["IGNORE", "REPLACE", "ABORT", "FAIL"])
        quirk = choose(
            [
                "conflict",
                "generated",
                "check",
                "unique",
                "partial",
                "view",
                "changes",
                "skips",
                "audit",
                "updates",
                "alias",
                "without rowid",
                "default",
                "strict",
            ]
        )
        match quirk:
            case "conflict":
                columns.append(f"UNIQUE ({first}) ON CONFLICT {clash}")
            case "generated":
                columns[-1] = f'"{case.names[-1] if not case.order else case.order[0]}" AS (1)'
            case "check":
                columns.append(f"CHECK (length({last}) < 3)")
            case "unique":
                after.append(
                    f'CREATE UNIQUE INDEX "u {table}" ON "{table}" ({first} COLLATE NOCASE)'
                )
            case "partial":
                after.append(
                    f'CREATE UNIQUE INDEX "u {table}" ON "{table}" ({first}) WHERE {first} > 1'
                )
            case "view":
                base = f'CREATE TABLE "base {table}" ({", ".join(columns)})'
                names = ", ".join(f'"{n}"' for n in [*case.names, *case.order])
                return [base, f'CREATE VIEW "{table}" AS SELECT {names} FROM "base {table}"']
            case "changes":
                after.append(f'CREATE TRIGGER "g {table}" AFTER INSERT ON "{table}" BEGIN UPDATE "{table}" SET {last} = NULL WHERE {first} IS new.{first}; END')  # fmt: skip
            case "skips":
                event = choose(["INSERT", "UPDATE", "DELETE"])
                row = "old" if event == "DELETE" else "new"
                after.append(f'CREATE TRIGGER "g {table}" BEFORE {event} ON "{table}" WHEN {row}.{last} IS NOT NULL BEGIN SELECT RAISE(IGNORE); END')  # fmt: skip
            case "audit":
                after.append(f'CREATE TABLE "audit {table}" (n)')
                after.append(f'CREATE TRIGGER "g {table}" AFTER INSERT ON "{table}" BEGIN INSERT INTO "audit {table}" VALUES (1); END')  # fmt: skip
            case "updates":
                after.append(f'CREATE TRIGGER "g {table}" AFTER UPDATE ON "{table}" BEGIN UPDATE "{table}" SET {last} = NULL WHERE {first} IS new.{first}; END')  # fmt: skip
            case "alias":
                columns[0] = f"{first} INTEGER PRIMARY KEY"
            case "without rowid":
                columns.append(f"PRIMARY KEY ({first})")
                options = " WITHOUT ROWID"
            case "default":
                columns.append('"more" TEXT NOT NULL DEFAULT 1')
            case "strict":
                known = ("TEXT", "INTEGER", "INT", "REAL", "BLOB", "ANY")
                if all(t in known for t in case.columns) and not case.order:
                    options = " STRICT"
    return [f'CREATE TABLE "{table}" ({", ".join(columns)}){options}', *after]


def test_sqlite(tmp_path: Path) -> None:
    results = []
    path = tmp_path / "database"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of SQLAlchemy, about types that it does not know
        for seed in range(cases(quick=40, long=900)):
            if seed % 50 == 0:
                path = tmp_path / f"database {seed}"
            case, table = Case(seed, EXACT_SQLITE, OTHERS_SQLITE), f"table {seed}"
            client = sqlite3.connect(path)
            try:
                for statement in sqlite_statements(case, table):
                    client.execute(statement)
            except sqlite3.OperationalError:
                assert not case.is_tame
                continue  # such a table cannot be created
            finally:
                client.commit()

            def read(names: list[str], client: Any = client, table: str = table) -> list[Row]:
                columns = ", ".join(f'"{name}"' for name in names)
                return client.execute(f'SELECT {columns} FROM "{table}"').fetchall()  # type: ignore[no-any-return]

            results.append(case.run(f"sqlite:///{path}", table, read, seed))
            client.close()
    _check(results)


# MariaDB


def mariadb_statements(case: Case, table: str) -> list[str]:
    """The statements that create the table of a case."""
    pick, choose = case.random.random, case.random.choice
    columns = [f"`{n}` {t}" for n, t in zip(case.names, case.columns, strict=True)]
    columns += [f"`{name}` BIGINT" for name in case.order]
    before, after, options = [f"DROP TABLE IF EXISTS `{table}`"], [], ""
    first, last = (f"`{name}`" for name in (case.names[0], case.names[-1]))
    if not case.is_tame and pick() < 0.5:
        quirk = choose(
            [
                "engine",
                "engine",
                "generated",
                "check",
                "prefix",
                "view",
                "changes",
                "signals",
                "audit",
                "versions",
                "partitions",
                "auto",
                "charset",
            ]
        )
        match quirk:
            case "engine":
                options = f" ENGINE={choose(['MyISAM', 'Aria', 'MEMORY', 'CSV', 'InnoDB'])}"
            case "generated":
                columns[-1] = f"`{case.names[-1] if not case.order else case.order[0]}` INT AS (1)"
            case "check":
                columns.append(f"CHECK (length({last}) < 3)")
            case "prefix":
                after.append(f"CREATE UNIQUE INDEX u ON `{table}` ({first}(1))")
            case "view":
                base = f"CREATE TABLE `base {table}` ({', '.join(columns)})"
                return [base, f"CREATE VIEW `{table}` AS SELECT * FROM `base {table}`"]
            case "changes":
                event = choose(["INSERT", "UPDATE"])
                after.append(f"CREATE TRIGGER `g {table}` BEFORE {event} ON `{table}` FOR EACH ROW SET NEW.{last} = NULL")  # fmt: skip
            case "signals":
                after.append(f"CREATE TRIGGER `g {table}` BEFORE INSERT ON `{table}` FOR EACH ROW IF NEW.{last} IS NULL THEN SIGNAL SQLSTATE '45000'; END IF")  # fmt: skip
            case "audit":
                after.append(f"CREATE TABLE `audit {table}` (n INT)")
                after.append(f"CREATE TRIGGER `g {table}` AFTER INSERT ON `{table}` FOR EACH ROW INSERT INTO `audit {table}` VALUES (1)")  # fmt: skip
            case "versions":
                options = " WITH SYSTEM VERSIONING"
            case "partitions":
                columns.append("`part` INT NOT NULL DEFAULT 1")
                options = " PARTITION BY HASH (`part`) PARTITIONS 3"
            case "auto":
                columns[0] = f"{first} BIGINT AUTO_INCREMENT PRIMARY KEY"
            case "charset":
                options = " DEFAULT CHARSET=latin1"
    return [*before, f"CREATE TABLE `{table}` ({', '.join(columns)}){options}", *after]


@pytest.fixture
def modes(mariadb: Server) -> Iterator[Callable[[str], None]]:
    """Set the mode of new sessions."""
    with mariadb.connect() as client, client.cursor() as cursor:

        def set_mode(mode: str) -> None:
            cursor.execute("SET GLOBAL sql_mode = %s", (mode,))

        cursor.execute("SELECT @@GLOBAL.sql_mode")
        (before,) = cursor.fetchone()
        cursor.execute("SET GLOBAL time_zone = '+05:30'")
        cursor.execute("CREATE DATABASE borders CHARACTER SET utf8mb4")
        yield set_mode
        cursor.execute("DROP DATABASE borders")
        cursor.execute("SET GLOBAL time_zone = 'SYSTEM'")
        set_mode(before)


@pytest.mark.smoke
def test_mariadb(mariadb: Server, modes: Callable[[str], None]) -> None:
    import pymysql

    results = []
    with warnings.catch_warnings(), mariadb.connect("borders") as client:
        warnings.simplefilter("ignore")  # of SQLAlchemy, about types that it does not know
        cursor = client.cursor()
        cursor.execute("SET time_zone = '+00:00'")
        for seed in range(cases(quick=24, long=360)):
            case, table = Case(seed, EXACT_MARIADB, OTHERS_MARIADB), f"table {seed}"
            modes(["", "STRICT_TRANS_TABLES", "ANSI", "TRADITIONAL"][seed % 4])
            try:
                for statement in mariadb_statements(case, table):
                    cursor.execute(statement)
            except pymysql.MySQLError:
                assert not case.is_tame
                continue  # such a table cannot be created

            def read(names: list[str], cursor: Any = cursor, table: str = table) -> list[Row]:
                columns = ", ".join(f"`{name}`" for name in names)
                cursor.execute(f"SELECT {columns} FROM `{table}`")
                return list(cursor.fetchall())

            dialect = ["mysql", "mariadb"][seed % 2]
            results.append(case.run(mariadb.url("borders", dialect), table, read, seed))
    _check(results)
