"""Micro-batches that tasks stage on a PostgreSQL server, without Spark: attempts fail, run twice, and are late."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from adbc_driver_manager import dbapi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamops import sinks
from streamops.errors import ChangeStreamError, SinkError
from streamops.sinks import postgres_staging, staging
from streamops.sinks.postgres import PostgresSink
from streamops.sinks.tasks import in_groups
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
from tests.sinks.attempts import Attempts, deliver

pytestmark = pytest.mark.postgres

RUN, NEXT = Identity("query", "run 1"), Identity("query", "run 2")
_NUMBERS = itertools.count()


class Database:
    """A client, and sinks of one table, each as of a process that has just started."""

    def __init__(self, where: str) -> None:
        self.folder = where.split()[0].partition("=")[2]
        self.client = psycopg.connect(where, autocommit=True)
        self.new_table()

    def new_table(self) -> None:
        self.name = f"tasks {next(_NUMBERS)}"

    def sink(self, user: str = "postgres", **options: Any) -> PostgresSink:
        url = f"postgresql://{user}@/postgres?host={self.folder}"
        return sinks.postgres(url, self.name, **options)

    def run(self, statement: str) -> list[Any]:
        text = statement.replace("{t}", f'"{self.name}"')
        cursor = self.client.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[Any]:
        return sorted(self.run("SELECT * FROM {t}"), key=repr)

    def staging(self) -> list[str]:
        """The staging tables of the sink, which all sinks of its name have."""
        prefix = staging.prefix(self.name)
        tables = self.run("SELECT relname FROM pg_class WHERE relkind = 'r'")
        return [name for (name,) in tables if name.startswith(prefix)]


@pytest.fixture
def database(postgres: str) -> Iterator[Database]:
    found = Database(postgres)
    yield found
    found.client.close()


def rows(**columns: Any) -> pa.Table:
    return pa.table(columns)


def numbered(keys: Any, **columns: Any) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), **columns})


FORMS: list[tuple[dict[str, Any], list[pa.Table], list[Any]]] = [
    ({}, [rows(a=[1, 1, 2], b=["x", None, "y"])], [(1, "x"), (1, None), (2, "y")]),
    (
        {"key": "k"},
        [
            numbered([*range(9), *range(9)], revision=[0] * 9 + [1] * 9),
            numbered([1, 2, 9], revision=[0, 2, 0]),
        ],
        [(k, 2 * (k == 2) + (k not in {2, 9})) for k in range(10)],
    ),
    (
        {"key": "k"},
        [
            numbered([1, 2, 3], v=[1, 2, None], revision=[0] * 3, _change_type=[I] * 3),
            numbered(
                [1, 1, 2, None, 3],
                v=[1, 5, 2, 7, None],
                revision=[0, 1, 0, 0, 0],
                _change_type=[B, A, D, I, D],
            ),
        ],
        [(1, 5, 1), (None, 7, 0)],
    ),
    (
        {},
        [
            rows(a=[1, 1, None, 2], b=["x", "x", "y", None], _change_type=[I] * 4),
            rows(a=[1, None, 3, 3], b=["x", "y", None, None], _change_type=[D, D, I, I]),
        ],
        [(1, "x"), (2, None), (3, None), (3, None)],
    ),
]


@pytest.mark.parametrize(("options", "batches", "expected"), FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_merged_once_whichever_attempts_ran(
    database: Database, seed: int, options: Any, batches: list[pa.Table], expected: list[Any]
) -> None:
    for number, table in enumerate(batches):
        for run in (RUN, NEXT):  # repeated after a crash
            given = Attempts(table, seed=seed)
            deliver(database.sink(**options), given, number, Identity("query", f"{run} {number}"))
            assert given.collected == 0
    assert database.rows() == sorted(expected, key=repr)
    assert database.staging() == []


STEPS = [
    (PostgresSink, "_foresee"),
    (PostgresSink, "_prepare"),
    (PostgresSink, "_apply"),
    (postgres_staging.Staged, "of_receipts"),
    (dbapi.Connection, "commit"),
    (PostgresSink, "_clean_up"),
]


@pytest.mark.laws
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), history=histories(["append", "upsert", "changes", "multiset"]))
def test_a_table_has_every_micro_batch_once_whoever_crashes(
    database: Database, data: st.DataObject, history: History
) -> None:
    """By tasks, with crashes of drivers, as by the driver without: both are the rows of a simple fold."""
    database.new_table()
    by_driver = f"{database.name} by the driver"
    seeds = random.Random(data.draw(st.integers(0, 99)))

    class Driver:
        """A sink to which each micro-batch is delivered by tasks."""

        def __init__(self, **options: Any) -> None:
            self.sink = database.sink(**options)

        def _deliver_rows(self, table: pa.Table, batch: int, identity: Identity) -> None:
            deliver(self.sink, Attempts(table, seed=seeds.randint(0, 99)), batch, identity)

    deliver_with_crashes(data, Driver, history, STEPS)  # type: ignore[arg-type]
    expected = comparable(history.expected)
    assert comparable(database.rows()) == expected
    assert database.staging() == []
    sink = sinks.postgres(database.sink().url, by_driver, **history.options)
    for batch, table in enumerate(history.batches):
        sink._deliver_rows(table, batch, RUN)
    assert comparable(database.run(f'SELECT * FROM "{by_driver}"')) == expected


@pytest.mark.parametrize("step", [*STEPS, (Attempts, "before"), (Attempts, "after")])
def test_what_a_driver_leaves_behind_is_removed_by_the_next_one(
    database: Database, step: Any
) -> None:
    require_nothing_left(database, step)


WRONG: list[tuple[str, str, dict[str, Any], pa.Table]] = [
    ("TARGET_REFUSED", "a text", {}, rows(a=["x", "with \0 in it"])),
    ("TARGET_TYPE", "a varchar(3)", {}, rows(a=["x", "long text"])),
    ("TARGET_TYPE", "a integer", {}, rows(a=["x"])),
    ("TARGET_COLUMNS", "a text", {}, rows(a=["x"], b=["y"])),
    ("TARGET_KEY", "a text", {"key": "a"}, rows(a=["x"])),
    ("TARGET_KEY", "a text UNIQUE", {"key": "a"}, rows(a=["x", None])),
    ("TARGET_REFUSED", "a bigint CHECK (a < 3)", {}, rows(a=[1, 2, 3])),
    ("REVISION_OUT_OF_STEP", "a text PRIMARY KEY", {"key": "a"}, rows(a=["x", "x"])),
    (
        "DELETED_UNPUBLISHED",
        "a text PRIMARY KEY, revision bigint",
        {"key": "a"},
        rows(a=["y"], revision=[0], _change_type=[D]),
    ),
    ("PREIMAGE_NOT_PUBLISHED", "a text", {}, rows(a=["y"], _change_type=[D])),
]


@pytest.mark.parametrize(("code", "columns", "options", "table"), WRONG)
def test_what_the_table_would_refuse_changes_nothing(
    database: Database, code: str, columns: str, options: Any, table: pa.Table
) -> None:
    database.run(f"CREATE TABLE {{t}} ({columns})")
    with pytest.raises((SinkError, ChangeStreamError)) as error:
        deliver(database.sink(**options), table, 0, RUN)
    assert error.value.code == code
    assert "streamops_" not in str(error.value.got) or code == "TARGET_REFUSED"
    assert database.rows() == []
    assert database.sink().read_ledger() is None


def test_a_missing_table_is_not_created_before_the_commit(database: Database) -> None:
    with pytest.raises(SinkError, match="TARGET_MISSING"):
        deliver(database.sink(missing="refuse"), rows(a=[1]), 0, RUN)

    def look() -> None:
        assert database.run("SELECT to_regclass('{t}')") == [(None,)]

    deliver(database.sink(), Attempts(rows(a=[1]), after=look), 0, RUN)
    assert database.rows() == [(1,)]


TRIGGER = """
CREATE FUNCTION {f}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION {f}()
"""


def test_triggers_are_compared_with_what_tasks_have_staged(database: Database) -> None:
    database.run("CREATE TABLE {t} (k bigint PRIMARY KEY, revision bigint, at text)")
    function = f"f_{next(_NUMBERS)}"
    create = TRIGGER.replace("{f}", function)
    database.run(create.replace("{body}", "NEW.at = 'now';"))
    sink = database.sink(key="k")
    deliver(sink, numbered(range(4), revision=[1] * 4), 0, RUN)
    deliver(sink, numbered(range(4), revision=[0, 2, 1, 3]), 1, RUN)  # some are older
    assert database.rows() == [(0, 1, "now"), (1, 2, "now"), (2, 1, "now"), (3, 3, "now")]
    body = "BEGIN NEW.revision = 9; RETURN NEW; END"
    database.run(
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
    )
    with pytest.raises(SinkError, match="TARGET_TRIGGER"):
        deliver(sink, numbered(range(4), revision=[5] * 4), 2, RUN)
    assert [revision for _, revision, _ in database.rows()] == [1, 2, 1, 3]


def test_a_user_who_may_not_create_tables_writes_through_the_driver(database: Database) -> None:
    deliver(database.sink(), rows(a=[1]), 0, RUN)
    user = f"user_{next(_NUMBERS)}"
    database.run(f"CREATE USER {user}")
    database.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    database.run(f"GRANT SELECT, INSERT, UPDATE ON streamops_ledger, {{t}} TO {user}")
    sink, given = database.sink(user), Attempts(rows(a=[2]))
    deliver(sink, given, 1, NEXT)
    assert given.collected == 1
    assert sink.session.is_small
    assert database.rows() == [(1,), (2,)]


def test_rows_that_a_crash_of_the_server_has_removed_are_delivered_again(
    database: Database,
) -> None:
    """A crash empties the staging table, which is not logged."""

    def crash() -> None:
        for name in database.staging():
            database.run(f"TRUNCATE {name}")

    for tasks in (1, 3):  # then only the last one has rows
        attempts = Attempts(rows(a=range(9)), tasks=tasks)
        attempts.before = crash
        if tasks == 1:
            attempts.before, attempts.after = attempts.after, crash
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
            deliver(database.sink(), attempts, 0, RUN)
    assert database.run("SELECT to_regclass('{t}')") == [(None,)]
    deliver(database.sink(), rows(a=range(9)), 0, NEXT)
    assert len(database.rows()) == 9


def test_a_run_that_another_one_has_replaced_is_fenced_while_its_tasks_run(
    database: Database,
) -> None:
    old, new, numbers = database.sink(), database.sink(), itertools.count()
    deliver(old, rows(a=[0]), 0, RUN)

    def take_over(at: int) -> None:
        if next(numbers) == at:
            deliver(new, rows(a=[1, 2, 3]), 1, NEXT)

    for code, table in (("FENCED", rows(a=[1, 2, 3])), ("FENCED", rows(a=[4, 5, 6]))):
        given = Attempts(table, before=partial(take_over, 1))
        with pytest.raises(SinkError, match=code):
            deliver(old, given, 1, RUN)
    assert database.rows() == [(0,), (1,), (2,), (3,)]
    deliver(new, rows(a=[4]), 2, NEXT)
    assert database.staging() == []


def test_an_older_run_leaves_the_staging_table_of_a_newer_one(database: Database) -> None:
    old, new = database.sink(), database.sink()
    deliver(old, rows(a=[0]), 0, RUN)

    def commit_the_older() -> None:
        if old.read_ledger().batch == 0:  # type: ignore[union-attr]
            deliver(old, rows(a=[1]), 1, RUN)

    deliver(new, Attempts(rows(a=[1]), before=commit_the_older, tasks=1), 1, NEXT)
    assert database.rows() == [(0,), (1,)]
    assert database.staging() == []


def test_a_task_that_still_copies_delays_nothing_and_leaves_nothing(database: Database) -> None:
    sink = database.sink()
    with psycopg.connect(f"host={database.folder} user=postgres dbname=postgres") as straggler:

        def hold() -> None:
            (name,) = database.staging()
            straggler.execute(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE".encode())

        deliver(sink, Attempts(rows(a=[0]), after=hold, tasks=1), 0, RUN)
        assert database.rows() == [(0,)]
        (left,) = database.staging()
    deliver(sink, rows(a=[1]), 1, RUN)
    assert database.staging() == []
    late = postgres_staging.Staging(
        url=sink.url,
        environment={},
        table=postgres_staging.sql.Table(left, "public"),
        key=None,
        sequence=(),
    )
    with pytest.raises(SinkError, match="FENCED"):
        list(late(iter([rows(a=[2])])))
    assert database.staging() == []


def test_a_staging_table_has_a_comment_with_its_sink(database: Database) -> None:
    found: list[Any] = []

    def look() -> None:
        (name,) = database.staging()
        found.extend(
            database.run(
                f"SELECT obj_description('{name}'::regclass), relpersistence::text FROM pg_class WHERE relname = '{name}'"
            )
        )

    odd = "it's a \\ name"
    database.name = odd
    deliver(database.sink(), Attempts(rows(a=[1]), after=look, tasks=1), 0, RUN)
    text = f"streamops: rows of micro-batch 0 of sink {odd!r}, until they are committed"
    assert found == [(text, "u")]


def test_a_server_that_stops_fails_the_attempt_and_shows_no_password(database: Database) -> None:
    task = postgres_staging.Staging(
        url="postgresql://user:secret%20word@127.0.0.1:1/nowhere",
        environment={},
        table=postgres_staging.sql.Table("t", "public"),
        key=None,
        sequence=(),
    )
    with pytest.raises(ConnectionError, match="TARGET_UNAVAILABLE") as error:
        list(task(iter([rows(a=[1])])))
    assert "secret" not in f"{error.value}{error.value.__cause__!r}{error.value.__context__!r}"


def test_more_rows_than_memory_are_reduced_in_groups(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_BYTES_PER_GROUP", 1 << 10)
    keys = [n % 500 for n in range(2000)]
    table = numbered(keys, revision=[n // 500 for n in range(2000)], v=[str(k) for k in keys])
    deliver(database.sink(key="k"), Attempts(table, tasks=2), 0, RUN)
    assert database.rows() == sorted(((k, 3, str(k)) for k in range(500)), key=repr)


@given(st.lists(st.lists(st.integers(0, 9))), st.sampled_from([1, 100, 10_000]))
def test_groups_have_all_rows_of_a_key(tables: list[list[int]], size: int) -> None:
    given = [pa.table({"k": pa.array(keys, pa.int64())}) for keys in tables]
    groups = [group["k"].to_pylist() for group in in_groups(given, ["k"], size=size)]
    assert sorted(itertools.chain(*groups)) == sorted(itertools.chain(*tables))
    assert len(set(itertools.chain(*groups))) == sum(len(set(group)) for group in groups)
