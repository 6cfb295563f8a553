"""Micro-batches that tasks stage in databases of SQLAlchemy, without Spark: attempts fail, run twice, and are late."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from streamops import sinks
from streamops.errors import ChangeStreamError, SinkError
from streamops.sinks import sqlalchemy_staging, staging
from streamops.sinks.sqlalchemy import SqlalchemySink
from streamops.spark.identity import Identity
from tests.laws.sink_histories import (
    A,
    B,
    D,
    History,
    I,
    comparable,
    deliver_with_crashes,
    histories,
    require_nothing_left,
)
from tests.sinks import test_sqlalchemy as by_driver
from tests.sinks.attempts import Attempts, deliver
from tests.sinks.contract import run_of

if TYPE_CHECKING:
    from tests.servers.mariadb import Server

sa = pytest.importorskip("sqlalchemy")

RUN, NEXT = Identity("query", "run 1"), Identity("query", "run 2")
_NUMBERS = itertools.count()


class ByTasks:
    """The contract of the sink, if tasks deliver each micro-batch and attempts of them are repeated or lost."""

    other_outcomes = frozenset({"FENCED"})  # its staging table is gone

    @pytest.fixture(autouse=True)
    def by_tasks(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        collected = []

        def deliver_rows(sink: Any, rows: pa.Table, batch: int, identity: Identity) -> None:
            attempts = Attempts(rows, seed=1 + batch)
            deliver(sink, attempts, batch, identity)
            collected.append(attempts.collected)

        monkeypatch.setattr(SqlalchemySink, "_deliver_rows", deliver_rows)
        yield
        assert not any(collected)


class TestPostgresByTasks(ByTasks, by_driver.TestPostgres):
    pass


class TestMariadbByTasks(ByTasks, by_driver.OfMariadb):
    pass


class Database:
    """A client, and sinks of one table, each as of a process that has just started."""

    def __init__(self, server: Server) -> None:
        self.server, self.client = server, server.connect()
        self.new_table()

    def new_table(self) -> None:
        self.name = f"tasks {next(_NUMBERS)}"

    def sink(self, user: str = "root", **options: Any) -> SqlalchemySink:
        url = self.server.url().replace("root@", f"{user}@")
        return sinks.sqlalchemy(url, self.name, **options)

    def run(self, statement: str) -> list[Any]:
        with self.client.cursor() as cursor:
            cursor.execute(statement.replace("{t}", f"`{self.name}`"))
            return list(cursor.fetchall())

    def rows(self) -> list[Any]:
        return sorted(self.run("SELECT * FROM {t}"), key=repr)

    def staging(self) -> list[str]:
        """The staging tables of the sink, which all sinks of its name have."""
        start = staging.prefix(self.name)
        return [name for (name,) in self.run("SHOW TABLES") if name.startswith(start)]


@pytest.fixture
def database(mariadb: Server) -> Iterator[Database]:
    found = Database(mariadb)
    yield found
    found.client.close()


STEPS = [
    (SqlalchemySink, "_foresee"),
    (SqlalchemySink, "_prepare"),
    (SqlalchemySink, "_merge"),
    (SqlalchemySink, "_reduce"),
    (SqlalchemySink, "_clean_up"),
    (sa.Connection, "_commit_impl"),
]


@pytest.mark.laws
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), history=histories(["append", "upsert", "changes", "multiset"]))
def test_a_table_has_every_micro_batch_once_whoever_crashes(
    database: Database, data: st.DataObject, history: History
) -> None:
    """By tasks and by the driver, in turns, with crashes: the rows of a simple fold."""
    for batch in history.batches:  # MariaDB stores neither
        for value in batch.column("v").to_pylist():
            assume(value is None or math.isfinite(value))
    database.new_table()
    deliver_with_crashes(data, database.sink, history, STEPS, in_tasks=True)
    assert comparable(database.rows()) == comparable(history.expected)
    deliver(database.sink(**history.options), history.batches[-1], len(history.batches) - 1, NEXT)
    assert comparable(database.rows()) == comparable(history.expected)
    assert database.staging() == []


@pytest.mark.smoke
@pytest.mark.parametrize("step", [*STEPS, (Attempts, "before"), (Attempts, "after")])
def test_what_a_driver_leaves_behind_is_removed_by_the_next_one(
    database: Database, step: Any
) -> None:
    require_nothing_left(database, step)


WRONG: list[tuple[str, str, dict[str, Any], pa.Table]] = [
    ("TARGET_REFUSED", "a VARCHAR(3)", {}, pa.table({"a": ["x", "a longer text"]})),
    ("TARGET_TYPE", "a INT", {}, pa.table({"a": ["x"]})),
    ("TARGET_COLUMNS", "a VARCHAR(3)", {}, pa.table({"a": ["x"], "b": ["y"]})),
    ("TARGET_REFUSED", "a BIGINT CHECK (a < 3)", {}, pa.table({"a": [1, 2, 3]})),
    ("TARGET_REFUSED", "a BIGINT NOT NULL", {}, pa.table({"a": [1, None]})),
    ("REVISION_OUT_OF_STEP", "a BIGINT", {"key": "a"}, pa.table({"a": [1, 1]})),
    (
        "DELETED_UNPUBLISHED",
        "a BIGINT, revision BIGINT",
        {"key": "a"},
        pa.table({"a": [1], "revision": [0], "_change_type": [D]}),
    ),
    (
        "PREIMAGE_NOT_PUBLISHED",
        "a BIGINT, v BIGINT, revision BIGINT",
        {"key": "a"},
        pa.table({"a": [1, 1], "v": [1, 2], "revision": [0, 1], "_change_type": [B, A]}),
    ),
    ("PREIMAGE_NOT_PUBLISHED", "a BIGINT", {}, pa.table({"a": [1], "_change_type": [D]})),
]


@pytest.mark.parametrize(("code", "columns", "options", "table"), WRONG)
def test_what_the_table_would_refuse_changes_nothing(
    database: Database, code: str, columns: str, options: Any, table: pa.Table
) -> None:
    database.run(f"CREATE TABLE {{t}} ({columns})")
    with pytest.raises((SinkError, ChangeStreamError)) as error:
        deliver(database.sink(**options), table, 0, RUN)
    assert error.value.code == code
    assert database.rows() == []
    assert database.sink().read_ledger() is None


def test_a_key_that_the_table_already_has_is_not_inserted(database: Database) -> None:
    database.run("CREATE TABLE {t} (k BIGINT, revision BIGINT)")
    database.run("INSERT INTO {t} VALUES (1, 0), (NULL, 0)")
    for key in (1, None):
        table = {"k": pa.array([key], pa.int64()), "revision": [0], "_change_type": [I]}
        with pytest.raises(ChangeStreamError, match="INSERTED_TWICE"):
            deliver(database.sink(key="k"), pa.table(table), 0, RUN)
    assert len(database.rows()) == 2


def test_columns_that_the_rows_do_not_have_stay(database: Database) -> None:
    database.run("CREATE TABLE {t} (k BIGINT, v BIGINT, more BIGINT DEFAULT 7)")
    database.run("INSERT INTO {t} VALUES (1, 1, 1), (2, 2, 2), (2, 2, 3), (2, 2, 4)")
    deliver(database.sink(key="k", name="keys"), pa.table({"k": [1, 3], "v": [5, 6]}), 0, RUN)
    table = pa.table({"k": [2, 3], "v": [2, 6], "_change_type": [D, D]})
    deliver(database.sink(name="rows", new_checkpoint="continue"), table, 0, RUN)
    first, *others = database.rows()
    assert first == (1, 5, 1)
    assert [row[:2] for row in others] == [(2, 2)] * 2
    assert {more for *_, more in others} < {2, 3, 4}


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("k VARCHAR(9) COLLATE utf8mb4_general_ci, v BIGINT", {"key": "k"}),
        ("k VARCHAR(9), v BIGINT, streamops_attempt INT", {}),
        ("k CHAR(9) COLLATE utf8mb4_nopad_bin, v BIGINT", {"key": "k"}),
    ],
)
def test_a_table_that_the_driver_must_look_at(
    database: Database, columns: str, options: Any
) -> None:
    """Here equal texts are different ones, or a column has the name of a mark."""
    database.run(f"CREATE TABLE {{t}} ({columns})")
    sink = database.sink(**options)
    for batch, values in enumerate(([1, 2], [3, 4])):
        given = Attempts(pa.table({"k": ["a", "b"], "v": values}))
        deliver(sink, given, batch, RUN)
        assert given.collected == 1
        assert sink.session.is_small
    assert len(database.rows()) == (2 if options else 4)


def test_a_table_with_triggers_is_written_by_the_driver(database: Database) -> None:
    database.run("CREATE TABLE {t} (k BIGINT, at BIGINT)")
    create = "CREATE TRIGGER `{n}` BEFORE INSERT ON {t} FOR EACH ROW SET NEW.at = 1"
    database.run(create.replace("{n}", f"{database.name} set"))
    given = Attempts(pa.table({"k": [1, 2]}))
    deliver(database.sink(key="k"), given, 0, RUN)
    assert given.collected == 1
    assert database.rows() == [(1, 1), (2, 1)]


def test_a_user_who_may_not_create_tables_writes_through_the_driver(database: Database) -> None:
    deliver(database.sink(), pa.table({"a": [1]}), 0, RUN)
    user = f"user_{next(_NUMBERS)}"
    database.run(f"CREATE USER {user}")
    for name in ("{t}", "streamops_entries"):
        database.run(f"GRANT SELECT, INSERT, UPDATE ON {name} TO {user}")
    sink, given = database.sink(user), Attempts(pa.table({"a": [2]}))
    deliver(sink, given, 1, NEXT)
    assert given.collected == 1
    assert database.rows() == [(1,), (2,)]


@pytest.mark.smoke
def test_rows_that_are_no_longer_staged_are_delivered_again(database: Database) -> None:
    def lose() -> None:
        for name in database.staging():
            database.run(f"DELETE FROM {name} LIMIT 1")

    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(database.sink(), Attempts(pa.table({"a": range(9)}), after=lose), 0, RUN)
    assert database.rows() == []
    deliver(database.sink(), pa.table({"a": range(9)}), 0, NEXT)
    assert len(database.rows()) == 9
    assert database.staging() == []


def test_a_run_that_another_one_has_replaced_is_fenced_while_its_tasks_run(
    database: Database,
) -> None:
    old, new, numbers = database.sink(), database.sink(), itertools.count()
    deliver(old, pa.table({"a": [0]}), 0, RUN)

    def take_over(at: int) -> None:
        if next(numbers) == at:
            deliver(new, pa.table({"a": [1, 2, 3]}), 1, NEXT)

    for values in ([1, 2, 3], [4, 5, 6]):
        attempts = Attempts(pa.table({"a": values}), before=partial(take_over, 1))
        with pytest.raises(SinkError, match="FENCED"):
            deliver(old, attempts, 1, RUN)
    assert database.rows() == [(0,), (1,), (2,), (3,)]
    deliver(new, pa.table({"a": [4]}), 2, NEXT)
    assert database.staging() == []


def test_an_older_run_leaves_the_staging_table_of_a_newer_one(database: Database) -> None:
    old, new = database.sink(), database.sink()
    deliver(old, pa.table({"a": [0]}), 0, RUN)

    def commit_the_older() -> None:
        if old.read_ledger().batch == 0:  # type: ignore[union-attr]
            deliver(old, pa.table({"a": [1]}), 1, RUN)

    deliver(new, Attempts(pa.table({"a": [1]}), before=commit_the_older, tasks=1), 1, NEXT)
    assert database.rows() == [(0,), (1,)]
    assert database.staging() == []


@pytest.mark.parametrize("form", ["append", "upsert", "changes", "multiset"])
def test_a_task_that_still_writes_delays_nothing_and_leaves_nothing(
    database: Database, form: str
) -> None:
    database.run("SET GLOBAL innodb_lock_wait_timeout = 2")
    straggler = database.server.connect()
    straggler.autocommit(False)

    def hold() -> None:
        name = min(database.staging(), key=len)
        with straggler.cursor() as cursor:
            cursor.execute(f"INSERT INTO {name} (a, streamops_attempt) VALUES (7, 1)")

    sink = database.sink(**({} if form in {"append", "multiset"} else {"key": "a"}))
    a, revision = [1, 2, 3], [0, 0, 0]
    forms: dict[str, list[dict[str, Any]]] = {
        "append": [{"a": a}, {"a": a}],
        "upsert": [{"a": a, "revision": revision}, {"a": a, "revision": [1, 1, 1]}],
        "changes": [
            {"a": a, "revision": revision, "_change_type": [I] * 3},
            {
                "a": [1, 1, 2],
                "revision": [0, 1, 0],
                "_change_type": [B, A, D],
            },
        ],
        "multiset": [
            {"a": a, "_change_type": [I] * 3},
            {"a": a, "_change_type": [D, D, I]},
        ],
    }
    expected = {
        "append": [(1,), (1,), (2,), (2,), (3,), (3,)],
        "upsert": [(1, 1), (2, 1), (3, 1)],
        "changes": [(1, 1), (3, 0)],
        "multiset": [(3,), (3,)],
    }
    first, second = (pa.table(columns) for columns in forms[form])
    deliver(sink, first, 0, RUN)
    deliver(sink, Attempts(second, after=hold, tasks=1), 1, RUN)
    assert database.rows() == expected[form]
    (left,) = database.staging()
    straggler.close()
    deliver(sink, first.slice(0, 0), 2, RUN)
    assert database.rows() == expected[form]
    assert database.staging() == []
    late = sqlalchemy_staging.Staging(
        url=sink.url, name=left, schema=None, key=sink.key, sequence=()
    )
    with pytest.raises(SinkError, match="FENCED"):
        list(late(iter([pa.table({"a": [2]})])))


def test_a_server_that_stops_fails_the_attempt_and_shows_no_password() -> None:
    task = sqlalchemy_staging.Staging(
        url="mariadb+pymysql://user:secret%20word@127.0.0.1:1/nowhere",
        name="t",
        schema=None,
        key=None,
        sequence=(),
    )
    with pytest.raises(ConnectionError, match="TARGET_UNAVAILABLE") as error:
        list(task(iter([pa.table({"a": [1]})])))
    assert "secret" not in f"{error.value}{error.value.__cause__!r}{error.value.__context__!r}"


def test_more_rows_than_memory_are_reduced_in_groups(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_BYTES_PER_GROUP", 1 << 10)
    keys = [n % 500 for n in range(2000)]
    table = pa.table({"k": keys, "revision": [n // 500 for n in range(2000)]})
    deliver(database.sink(key="k"), Attempts(table, tasks=2), 0, RUN)
    assert database.rows() == sorted(((k, 3) for k in range(500)), key=repr)


def test_copies_of_a_multiset_over_several_groups(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_BYTES_PER_GROUP", 1 << 8)
    values = [n % 20 for n in range(100)]
    sink = database.sink()
    deliver(sink, Attempts(pa.table({"v": values, "_change_type": [I] * 100}), tasks=2), 0, RUN)
    deleted = pa.table({"v": values[:60], "_change_type": [D] * 60})
    deliver(sink, Attempts(deleted, tasks=2), 1, run_of(2))
    assert database.rows() == sorted([(v,) for v in values[60:]], key=repr)
