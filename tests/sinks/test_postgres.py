"""The PostgreSQL sink on a real server, without Spark: the rows of micro-batches are Arrow tables."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import psycopg
import psycopg.rows
import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SinkError, SpecError
from streamops.sinks.postgres import PostgresSink
from streamops.sinks.postgres_staging import Staged
from streamops.sinks.sink import JSON
from streamops.spark.identity import Identity
from tests.sinks.contract import Contract, Target

pytestmark = pytest.mark.postgres

RUN = Identity("query", "run 1")
_NUMBERS = itertools.count()
ODD = [
    "my table",
    'say "hi"',
    "a.b",
    "x'; DROP TABLE streamops_ledger; --",
    "`tick`",
    "ünï",
    "%s $1",
]


@pytest.fixture
def url(postgres: str) -> str:
    folder = postgres.split()[0].partition("=")[2]
    return f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture
def query(postgres: str) -> Iterator[Callable[..., list[Any]]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield lambda text, *values: connection.execute(text, values).fetchall()


@pytest.fixture
def name() -> str:
    return f"postgres {next(_NUMBERS)}"


def fresh(url: str, name: str, **options: Any) -> PostgresSink:
    """The sink of a process that has just started."""
    return sinks.postgres(url, name, **options)


def rows(**columns: Any) -> pa.Table:
    return pa.table(columns)


def content(query: Any, name: str) -> list[Any]:
    return sorted(query(f'SELECT * FROM "{name}"'), key=repr)


def test_appended_rows_are_written_once(url: str, query: Any, name: str) -> None:
    for run in ("run 1", "run 2", "run 3"):
        fresh(url, name)._deliver_rows(rows(a=[1, 1], b=["x", None]), 0, Identity("query", run))
    assert content(query, name) == [(1, "x"), (1, None)]
    entry = fresh(url, name).read_ledger()
    assert entry is not None
    assert (entry.batch, entry.rows, entry.generation, entry.run) == (0, 2, 3, "run 3")


_COPIED: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}


def test_appended_rows_are_copied_to_a_table_of_their_types(
    url: str, query: Any, name: str, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a staging table, unless PostgreSQL converts their values or triggers see them."""
    columns = ", ".join(f"c{n} {dtype}" for n, dtype in enumerate(_COPIED))
    with psycopg.connect(postgres, autocommit=True) as client:
        client.execute(f'CREATE TABLE "{name}" ({columns})'.encode())
    values = [True, -1, 2**31 - 1, -(2**63), 0.5, 1e300, "ünï\n", b"\x00", dt.date(1, 1, 1)]
    values += [
        dt.datetime.fromisoformat("9999-01-01T01:00:00"),
        dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
    ]
    types = list(_COPIED.values())
    arrays = {f"c{n}": pa.array([v, None], types[n]) for n, v in enumerate(values)}

    def refuse(*_: Any) -> Any:
        raise AssertionError("staged")

    with monkeypatch.context() as patch:
        patch.setattr(Staged, "open", refuse)
        fresh(url, name)._deliver_rows(pa.table(arrays), 0, RUN)
        arrays["c3"] = pa.array([7, 8], pa.int32())  # for bigint
        with pytest.raises(AssertionError, match="staged"):
            fresh(url, name)._deliver_rows(pa.table(arrays), 1, RUN)
    fresh(url, name)._deliver_rows(pa.table(arrays), 1, RUN)
    found = query(f'SELECT * FROM "{name}" ORDER BY c3')
    assert found == [
        tuple(values),
        (*values[:3], 7, *values[4:]),
        (*[None] * 3, 8, *[None] * 7),
        (None,) * 11,
    ]


def test_an_empty_micro_batch_advances_the_ledger(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name, key="a")
    for batch in range(3):
        sink._deliver_rows(rows(a=pa.array([], pa.int64())), batch, RUN)
    assert content(query, name) == []
    assert sink.read_ledger().batch == 2  # type: ignore[union-attr]


def test_revisions_never_decrease(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name, key="k")
    for batch, revisions in enumerate([[0, 3], [2, 2], [1, 4]]):
        data = rows(k=["a", "b"], revision=revisions, v=[10 * batch + r for r in revisions])
        sink._deliver_rows(data, batch, RUN)
    assert content(query, name) == [("a", 2, 12), ("b", 4, 24)]


def test_rows_without_a_sequence_replace_each_other(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name, key=["k", "j"])
    sink._deliver_rows(rows(k=[1, None], j=[None, "x"], v=[1, 2]), 0, RUN)
    sink._deliver_rows(rows(k=[1, None], j=[None, "x"], v=[3, 4]), 1, RUN)
    assert content(query, name) == [(1, None, 3), (None, "x", 4)]


def test_a_change_stream_without_key_is_a_multiset(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name)
    insert = ["insert"] * 5
    nan = float("nan")
    sink._deliver_rows(
        rows(x=["a", "a", None, "b", "b"], y=[1, 1, nan, None, 2], _change_type=insert), 0, RUN
    )
    types = ["delete", "update_preimage", "delete", "insert"]
    sink._deliver_rows(
        rows(x=["a", None, "b", "a"], y=[1, nan, None, 5], _change_type=types), 1, RUN
    )
    assert content(query, name) == [("a", 1.0), ("a", 5.0), ("b", 2.0)]
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        sink._deliver_rows(rows(x=["a", "a"], y=[1.0, 1.0], _change_type=["delete"] * 2), 2, RUN)
    assert len(content(query, name)) == 3


CHANGES = [
    ("PREIMAGE_NOT_PUBLISHED", ["update_preimage", "update_postimage"], [0, 1], [99, 5]),
    ("INSERTED_TWICE", ["insert"], [0], [7]),
]


@pytest.mark.parametrize(("code", "types", "revisions", "values"), CHANGES)
def test_changes_that_contradict_the_table_change_nothing(
    url: str, query: Any, name: str, code: str, types: Any, revisions: Any, values: Any
) -> None:
    sink = fresh(url, name, key="k")
    sink._deliver_rows(
        rows(k=["a", "b"], v=[1, 2], revision=[0, 0], _change_type=["insert"] * 2), 0, RUN
    )
    bad = rows(
        k=["c", *("a" for _ in types)],
        v=[3, *values],
        revision=[0, *revisions],
        _change_type=["insert", *types],
    )
    with pytest.raises(ChangeStreamError) as error:
        sink._deliver_rows(bad, 1, RUN)
    assert error.value.code == code
    assert "streamops_" not in error.value.got
    assert content(query, name) == [("a", 1, 0), ("b", 2, 0)]
    assert sink.read_ledger().batch == 0  # type: ignore[union-attr]
    # The query goes on when the stream is correct.
    sink._deliver_rows(rows(k=["a"], v=[1], revision=[0], _change_type=["delete"]), 1, RUN)
    assert content(query, name) == [("b", 2, 0)]


def test_a_delete_of_a_row_that_does_not_exist(url: str, name: str) -> None:
    sink = fresh(url, name, key="k")
    sink._deliver_rows(rows(k=["a"], v=[1], revision=[0], _change_type=["insert"]), 0, RUN)
    with pytest.raises(ChangeStreamError, match="DELETED_UNPUBLISHED"):
        sink._deliver_rows(rows(k=["b"], v=[1], revision=[0], _change_type=["delete"]), 1, RUN)


def test_captured_changes_have_a_sequence_of_their_own(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name, key="id", sequence="_sequence")
    first = rows(id=[1, 2], v=["x", "y"], _sequence=[1, 2], _change_type=["insert"] * 2)
    sink._deliver_rows(first, 0, RUN)
    types = ["update_preimage", "update_postimage", "delete"]
    second = rows(id=[1, 1, 2], v=["x", "z", None], _sequence=[3, 3, 4], _change_type=types)
    sink._deliver_rows(second, 1, RUN)
    assert content(query, name) == [(1, "z", 3)]


def test_another_unique_constraint_is_free_after_the_deletes(
    url: str, query: Any, name: str
) -> None:
    sink = fresh(url, name, key="id")
    sink._deliver_rows(rows(id=[1], email=["a@x"], revision=[0], _change_type=["insert"]), 0, RUN)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE UNIQUE INDEX ON "{name}" (email)')
    both = rows(id=[2, 1], email=["a@x"] * 2, revision=[0, 0], _change_type=["insert", "delete"])
    sink._deliver_rows(both, 1, RUN)
    assert content(query, name) == [(2, "a@x", 0)]


@pytest.mark.smoke
class TestContract(Contract):
    @pytest.fixture
    def target(self, url: str, postgres: str, name: str) -> Target:
        def rows() -> list[dict[str, Any]]:
            with psycopg.connect(postgres, row_factory=psycopg.rows.dict_row) as own:
                if own.execute(f"SELECT to_regclass('\"{name}\"') AS at").fetchone() == {
                    "at": None
                }:
                    return []
                return own.execute(f'SELECT * FROM "{name}"').fetchall()

        return Target(lambda **options: sinks.postgres(url, name, **options), rows)


def test_of_two_racing_writers_one_writes_each_micro_batch(url: str, query: Any, name: str) -> None:
    outcomes: list[str] = []

    def write(writer: int) -> None:
        for batch in range(20):
            sink = fresh(url, name)  # a new run each time, so that no writer is fenced for good
            run = Identity("query", f"run {writer} {batch}")
            while True:
                try:
                    sink._deliver_rows(rows(batch=[batch]), batch, run)
                    outcomes.append("done")
                except SinkError as error:
                    outcomes.append(error.code)
                    if error.code == "BATCH_GAP":  # the other writer has not written the one before
                        continue
                break

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert content(query, name) == sorted(((batch,) for batch in range(20)), key=repr)
    assert set(outcomes) <= {"done", "CHECKPOINT_BEHIND", "BATCH_GAP"}


def test_a_transaction_that_ends_in_a_deadlock_is_repeated(url: str, query: Any, name: str) -> None:
    """Another transaction holds a row of the micro-batch, and waits for the lock of the sink."""
    sink = fresh(f"{url}&options=-c%20deadlock_timeout%3D10ms", name, key="k")
    sink._deliver_rows(rows(k=[1], v=[1]), 0, RUN)
    decide, numbers = sink._decide, itertools.count()
    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as thread:
        other.execute("SET LOCAL deadlock_timeout = '1min'")
        other.execute(f'UPDATE "{name}" SET v = 2')

        def lock_and_commit() -> None:
            lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
            other.execute(lock, [f"streamops sink {name}"])
            other.commit()

        def decide_while_the_other_waits(*arguments: Any, **others: Any) -> Any:
            if not next(numbers):
                waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                done = thread.submit(lock_and_commit).done
                while not (done() or query(waiting)):
                    pass
            return decide(*arguments, **others)

        object.__setattr__(sink, "_decide", decide_while_the_other_waits)
        sink._deliver_rows(rows(k=[1], v=[3]), 1, RUN)
    assert next(numbers) == 2
    assert content(query, name) == [(1, 3)]


def test_a_lock_that_another_holds_is_no_fault_of_the_rows(url: str, query: Any, name: str) -> None:
    sink = fresh(f"{url}&options=-c%20lock_timeout%3D10ms", name)
    sink._deliver_rows(rows(a=[1]), 0, RUN)
    with psycopg.connect(url) as other:
        other.execute(f'LOCK TABLE "{name}"')
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
            sink._deliver_rows(rows(a=[2]), 1, RUN)


def test_a_repeated_micro_batch_with_other_rows(url: str, query: Any, name: str) -> None:
    fresh(url, name)._deliver_rows(rows(a=[1]), 0, RUN)
    with pytest.raises(SinkError, match="BATCH_DIFFERS"):
        fresh(url, name)._deliver_rows(rows(a=[2]), 0, Identity("query", "run 2"))
    fresh(url, name, repeated="skip")._deliver_rows(rows(a=[2]), 0, Identity("query", "run 2"))
    assert content(query, name) == [(1,)]


def test_restored_copies_are_detected(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name)
    for batch in range(3):
        sink._deliver_rows(rows(a=[batch]), batch, RUN)
    for batch, code in ((4, "BATCH_GAP"), (1, "CHECKPOINT_BEHIND")):
        with pytest.raises(SinkError, match=code):
            fresh(url, name)._deliver_rows(rows(a=[batch]), batch, Identity("query", "run 2"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM streamops_ledger WHERE sink = %s", (name,))
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        fresh(url, name)._deliver_rows(rows(a=[3]), 3, Identity("query", "run 3"))
    assert len(content(query, name)) == 3


def test_another_checkpoint_needs_a_decision(url: str, query: Any, name: str) -> None:
    fresh(url, name)._deliver_rows(rows(a=[1]), 0, RUN)
    other = Identity("other query", "run 2")
    with pytest.raises(SinkError, match="NEW_CHECKPOINT"):
        fresh(url, name)._deliver_rows(rows(a=[2]), 0, other)
    fresh(url, name, new_checkpoint="continue")._deliver_rows(rows(a=[2]), 0, other)
    assert content(query, name) == [(1,), (2,)]
    third = Identity("third query", "run 3")
    fresh(url, name, new_checkpoint="replace")._deliver_rows(rows(a=[3]), 0, third)
    assert content(query, name) == [(3,)]
    for former in (RUN, other):
        sink = fresh(url, name, new_checkpoint="continue")
        with pytest.raises(SinkError, match="FENCED"):
            sink._deliver_rows(rows(a=[2]), 0, Identity(former.query, "run 4"))


UTC = dt.UTC
INSTANTS = [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)]
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [1.5, float("-inf")]),
    (pa.float64(), [1e300, float("inf")]),
    *(
        (pa.decimal128(38, scale), [Decimal(12345).scaleb(-scale), Decimal(-1).scaleb(-scale)])
        for scale in (0, 1, 2, 4, 6, 18, 37)
    ),
    (pa.string(), ["", "naïve \n\t 'quoted' \U0001f600"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), INSTANTS),
    (pa.timestamp("us"), [value.replace(tzinfo=None) for value in INSTANTS]),
    (pa.duration("us"), [dt.timedelta(days=400, microseconds=1), dt.timedelta(days=-1)]),
    (pa.list_(pa.int64()), [[1, 2], []]),
    (pa.list_(pa.string()), [["a", ""], ["b"]]),
]


@pytest.mark.parametrize(("dtype", "values"), TYPES, ids=lambda value: str(value)[:20])
def test_types_are_stored_without_loss(
    url: str, query: Any, name: str, dtype: pa.DataType, values: list[Any]
) -> None:
    sink = fresh(url, name, key="k")
    both = pa.array([*values, None], dtype)
    table = pa.table({"k": [0, 1, 2], "v": both, "revision": [0, 0, 0]})
    insert = table.append_column("_change_type", pa.array(["insert"] * 3))
    sink._deliver_rows(insert, 0, RUN)
    assert [row[0] for row in query(f'SELECT v FROM "{name}" ORDER BY k')] == [*values, None]
    # A preimage is compared with what the table has.
    types = ["update_preimage", "update_postimage"] * 2 + ["delete"]
    again = table.take([0, 0, 1, 1, 2]).set_column(2, "revision", pa.array([0, 1, 0, 1, 0]))
    sink._deliver_rows(again.append_column("_change_type", pa.array(types)), 1, RUN)
    assert query(f'SELECT k, revision FROM "{name}" ORDER BY k') == [(0, 1), (1, 1)]


def test_nested_columns_are_jsonb(url: str, query: Any, name: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string()).with_metadata(JSON)])
    sink = fresh(url, name, key="k")
    sink._deliver_rows(pa.table([[1], ['{"b": [1, null]}']], schema=schema), 0, RUN)
    assert query(f"SELECT v -> 'b' -> 0, pg_typeof(v)::text FROM \"{name}\"") == [(1, "jsonb")]


@pytest.mark.parametrize("odd", ODD)
def test_names_are_quoted(url: str, query: Any, name: str, odd: str) -> None:
    table, named = f"{odd} {name}", odd.replace('"', '""')
    sink = fresh(url, table, key=odd)
    data = rows(**{odd: ["a", "b"]}, v=[odd, odd], revision=[0, 0], _change_type=["insert"] * 2)
    sink._deliver_rows(data, 0, RUN)
    update = rows(
        **{odd: ["a", "a", "b"]},
        v=[odd, "new", odd],
        revision=[0, 1, 0],
        _change_type=["update_preimage", "update_postimage", "delete"],
    )
    sink._deliver_rows(update, 1, RUN)
    with psycopg.connect(url) as connection:
        found = connection.cursor().execute(f'SELECT "{named}", v FROM "{named} {name}"'.encode())
        assert found.fetchall() == [("a", "new")]
    with pytest.raises(SinkError, match="TARGET_COLUMNS"):
        sink._deliver_rows(data.append_column(f"more {odd}", pa.array([1, 1])), 2, RUN)
    added = fresh(url, table, key=odd, columns="add")
    more = rows(**{odd: ["c"]}, v=["c"], revision=[0], _change_type=["insert"])
    added._deliver_rows(more.append_column(f"more {odd}", pa.array([1])), 2, Identity("query", "2"))


def test_an_existing_table_must_fit(url: str, query: Any, name: str) -> None:
    def refused(code: str, data: pa.Table, **options: Any) -> str:
        sink = fresh(url, name, **options)
        with pytest.raises(SinkError) as error:
            sink._deliver_rows(data, 0, RUN)
        assert error.value.code == code
        return str(error.value)

    assert "CREATE TABLE" in refused("TARGET_MISSING", rows(a=[1]), missing="refuse")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE TABLE "{name}" (a integer, b numeric(5, 1), c text NOT NULL)')
    assert "c" in refused("TARGET_COLUMNS", rows(a=pa.array([1], pa.int32())))
    assert "d" in refused("TARGET_COLUMNS", rows(c=["x"], d=[1]))
    refused("TARGET_TYPE", rows(a=[2**40], c=["x"]))
    refused("TARGET_TYPE", rows(a=["1"], c=["x"]))
    refused("TARGET_TYPE", rows(b=pa.array([Decimal("1.25")], pa.decimal128(5, 2)), c=["x"]))
    refused("TARGET_KEY", rows(c=["x"]), key="c")
    fits = rows(
        a=pa.array([1], pa.int16()), b=pa.array([Decimal("1.5")], pa.decimal128(4, 1)), c=["x"]
    )
    fresh(url, name)._deliver_rows(fits, 0, RUN)
    assert content(query, name) == [(1, Decimal("1.5"), "x")]


def test_values_that_the_table_refuses_change_nothing(url: str, query: Any, name: str) -> None:
    sink = fresh(url, name)
    sink._deliver_rows(rows(a=["x"]), 0, RUN)
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        sink._deliver_rows(rows(a=["good", "with \0 in it"]), 1, RUN)
    assert content(query, name) == [("x",)]
    sink._deliver_rows(rows(a=["good"]), 1, RUN)
    assert content(query, name) == [("good",), ("x",)]


def test_a_server_that_is_not_there(name: str) -> None:
    url = "postgresql://user:secret%20word@127.0.0.1:1/nowhere"
    sink = fresh(url, name)
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sink._deliver_rows(rows(a=[1]), 0, RUN)
    text = f"{error.value}{error.value.__cause__!r}{sink!r}"
    assert "secret" not in text
    assert "user" in repr(sink)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@127.0.0.1:1/nowhere?sslmode=disable",
        "postgresql://user@127.0.0.1:1/nowhere?password=secret",
        "host=127.0.0.1 port=1 user=user password=secret",
        "host=127.0.0.1 port=1 password = 'secret word' user=user",
    ],
)
def test_passwords_are_not_in_errors_wherever_they_are_written(name: str, url: str) -> None:
    sink = fresh(url, name)
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sink._deliver_rows(rows(a=[1]), 0, RUN)
    assert "secret" not in f"{error.value}{error.value.__cause__!r}{sink!r}"


@pytest.mark.parametrize(
    "options",
    [
        {"url": 1},
        {"table": ""},
        {"key": []},
        {"key": ["a", "a"]},
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
        sinks.postgres(**{"url": "postgresql:///x", "table": "t", **options})
