"""The outbox table of a real server, without Spark: what is read, when, and what is refused."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from streamops.errors import ColumnNotFound, RequirementError, SpecError
from streamops.sources import postgres_log
from streamops.sources.core.outbox import COLUMNS, REASONS, Range
from streamops.sources.outbox_source import Offset
from streamops.sources.postgres_log import PostgresLog
from tests.servers.installed import skip
from tests.sources.shop import TABLE, Shop, ids, insert, read, shop

pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")


@pytest.fixture
def orders(postgres: str) -> Iterator[Shop]:
    with shop(postgres) as found:
        yield found


def test_only_committed_events_are_read_in_the_order_of_commits(orders: Shop) -> None:
    log = orders.created()
    with orders.connect() as first, orders.connect() as second, orders.connect() as third:
        insert(first, "a1")
        insert(second, "b1")
        insert(third, "never")
        insert(first, "a2")
        third.rollback()
        insert(second, "b2")
        with second.transaction():
            insert(second, "b3")
        try:
            with second.transaction():
                insert(second, "undone")
                raise psycopg.Rollback
        except psycopg.Rollback:
            pass
        second.commit()
        insert(first, "a3")
        first.commit()
    rows = read(log)
    assert ids(rows) == ["b1", "b2", "b3", "a1", "a2", "a3"]
    assert [row["_position"] for row in rows] == [0, 1, 2, 0, 1, 2]
    assert rows == sorted(rows, key=lambda row: (row["_lsn"], row["_position"]))
    assert len({row["_lsn"] for row in rows}) == 2
    assert all(row["rejected"] is None for row in rows)


def test_an_event_may_be_deleted_in_its_transaction_and_an_outbox_emptied(orders: Shop) -> None:
    log = orders.created()
    with orders.connection.transaction():
        insert(orders.connection, "e1")
        orders.connection.execute("DELETE FROM outbox")
    orders.insert("e2", "e3")
    orders.connection.execute("DELETE FROM outbox WHERE id = 'e2'")
    orders.connection.execute("TRUNCATE outbox")
    assert ids(read(log)) == ["e1", "e2", "e3"]


def test_reading_again_returns_the_same_until_the_slot_advances(orders: Shop) -> None:
    log = orders.created()
    orders.insert("e1", "e2")
    orders.insert("e3")
    (*_, (_, first)) = log.read(Range(0, 1 << 62, 1))
    assert first.end is not None
    before = read(log, 0, first.end)
    assert ids(before) == ["e1", "e2"]
    assert read(orders.log(), 0, first.end) == before  # as after a crash
    rest = read(log, first.end)
    log.advance(first.end)
    assert log.check()[1] == first.end
    assert read(log) == rest == read(log, first.end)
    assert ids(rest) == ["e3"]
    log.advance(first.end)  # again, and back: nothing happens
    log.advance(1)
    assert log.check()[1] == first.end


def test_large_transactions_and_large_values_are_read_whole(orders: Shop) -> None:
    log = orders.created()
    payload = '{"text": "' + "é☃" * 1_000_000 + '"}'
    with orders.connection.transaction():
        orders.connection.execute(
            "INSERT INTO outbox SELECT n, 'order', n % 7, 'placed', jsonb_build_object('n', n) "
            "FROM generate_series(1, 50000) AS n"
        )
    orders.insert("large", payload=payload)
    orders.insert("none", payload=None)
    rows = read(log)
    assert ids(rows) == [*(str(n) for n in range(1, 50_001)), "large", "none"]
    assert rows[41]["payload"] == '{"n": 42}'
    assert rows[-2]["payload"] == payload
    assert rows[-1]["payload"] is None
    assert [row["_position"] for row in rows] == [*range(50_000), 0, 0]


def test_updates_of_the_outbox_are_rejected_and_not_lost(orders: Shop) -> None:
    orders.connection.execute("ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL")
    log = orders.created()
    orders.insert("e1", payload='{"text": "' + "x" * 5_000 + '"}')
    orders.connection.execute("UPDATE outbox SET type = 'changed'")
    upsert = "INSERT INTO outbox VALUES ('e1') ON CONFLICT (id) DO UPDATE SET id = 'e2'"
    orders.connection.execute(upsert)
    rows = read(log)
    assert ids(rows) == ["e1", None, None]
    assert [row["rejected"] and row["rejected"]["reason"] for row in rows] == [
        None,
        "updated",
        "updated",
    ]
    assert '"type": "changed"' in rows[1]["rejected"]["row"]
    assert "payload" not in rows[1]["rejected"]["row"]  # it did not change, and is not in the log
    assert '"id": "e2"' in rows[2]["rejected"]["row"]


def test_an_event_without_a_type_is_rejected(orders: Shop) -> None:
    log = orders.created()
    orders.connection.execute("INSERT INTO outbox VALUES ('e1', 'order', '7', NULL, '{}')")
    (row,) = read(log)
    assert row["rejected"]["reason"] == "missing_field"
    assert set(REASONS) >= {"missing_field", "updated"}


def test_names_with_quotes_spaces_and_dots_are_quoted(orders: Shop) -> None:
    columns = {name: f'{name} "of", x.y' for name in COLUMNS}
    listed = ", ".join('"' + name.replace('"', '""') + '" text' for name in columns.values())
    orders.connection.execute('CREATE SCHEMA "we ""ird"')
    orders.connection.execute(f'CREATE TABLE "we ""ird"."out.box; --" ({listed}, "k K" text)')
    key = '"' + columns["id"].replace('"', '""') + '"'
    orders.connection.execute(f'ALTER TABLE "we ""ird"."out.box; --" ADD PRIMARY KEY ({key})')
    log = orders.created(
        schema='we "ird',
        table="out.box; --",
        columns=columns,
        keep=("k K",),
        publication='pub, "x"\'',
    )
    log.check_columns()
    insert_row = "INSERT INTO \"we \"\"ird\".\"out.box; --\" VALUES ('e1', 'a', 'b', 'c', 'd', 'k')"
    orders.connection.execute(insert_row)
    (row,) = read(log)
    assert [row[name] for name in (*COLUMNS, "k K")] == ["e1", "a", "b", "c", "d", "k"]


def test_values_of_any_type_are_text_whatever_the_settings_of_the_role(postgres: str) -> None:
    table = (
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(9), aggregateid bigint, "
        "type char(4), payload json, at timestamptz, bytes bytea, amount numeric, f float8)"
    )
    with shop(postgres, table) as found:
        for setting in (
            "DateStyle = 'German'",
            "TimeZone = 'Asia/Tokyo'",
            "bytea_output = 'escape'",
            "extra_float_digits = -5",
            "client_encoding = 'LATIN1'",
        ):
            found.connection.execute(f"ALTER DATABASE {found.slot} SET {setting}")
        log = found.created(keep=("at", "bytes", "amount", "f"))
        found.connection.execute(
            "INSERT INTO outbox VALUES ('6F9619FF-8B86-D011-B42D-00C04FC964FF', 'order', "
            "9007199254740993, 'ab', '{\"a\": \"\u00e9\"}', '2026-03-04 05:06:07.89+00', '\\x00ff', "
            "1.50, 0.1)"
        )
        (row,) = read(log)
    assert [row[name] for name in (*COLUMNS, "at", "bytes", "amount", "f")] == [
        "6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "order",
        "9007199254740993",
        "ab  ",
        '{"a": "\u00e9"}',
        "2026-03-04 05:06:07.89+00",
        "\\x00ff",
        "1.50",
        "0.1",
    ]


def test_rows_of_a_partitioned_outbox_are_rows_of_the_table(postgres: str) -> None:
    table = (
        "CREATE TABLE outbox (id int, aggregatetype text, aggregateid text, type text, payload text, "
        "day int, PRIMARY KEY (id, day)) PARTITION BY LIST (day);"
        "CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1);"
        "CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2)"
    )
    with shop(postgres, table) as found:
        log = found.created(keep=("day",))
        found.connection.execute(
            "INSERT INTO outbox SELECT n, 'order', n, 'placed', '{}', 1 + n % 2 "
            "FROM generate_series(1, 4) AS n"
        )
        found.connection.execute("DROP TABLE outbox_1")
        assert [(row["id"], row["day"]) for row in read(log)] == [
            ("1", "2"),
            ("2", "1"),
            ("3", "2"),
            ("4", "1"),
        ]
        found.connection.execute("ALTER PUBLICATION shop SET (publish_via_partition_root = false)")
        with pytest.raises(RequirementError, match="SOURCE_UNFIT"):
            log.check()


def test_a_publication_of_all_tables_has_the_events_too(orders: Shop) -> None:
    orders.connection.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    log = orders.created()
    orders.connection.execute("CREATE TABLE others (id int PRIMARY KEY)")
    with orders.connection.transaction():
        orders.connection.execute("INSERT INTO others VALUES (1)")
        insert(orders.connection, "e1")
        orders.connection.execute("UPDATE others SET id = 2")
    orders.connection.execute("ALTER TABLE outbox ADD COLUMN more int")
    orders.insert("e2")
    rows = read(log)
    assert [(row["id"], row["_position"]) for row in rows] == [("e1", 0), ("e2", 0)]


def test_a_role_that_may_replicate_and_owns_nothing_can_read(orders: Shop) -> None:
    orders.created()
    orders.insert("e1")
    orders.connection.execute(f"CREATE ROLE {orders.slot} LOGIN REPLICATION")
    where = orders.where.replace("user=postgres", f"user={orders.slot}")
    log = orders.closing(PostgresLog(where, orders.names()))
    status, confirmed = log.check()
    log.check_columns()
    assert ids(read(log)) == ["e1"]
    log.advance(status.flushed)
    assert log.check()[1] > confirmed
    log.close()
    orders.connection.execute(f"ALTER ROLE {orders.slot} NOREPLICATION")
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE"):
        read(orders.closing(PostgresLog(where, orders.names())))
    orders.connection.execute(f"DROP ROLE {orders.slot}")


def test_what_does_not_exist_is_refused(orders: Shop) -> None:
    def code() -> str:
        with pytest.raises((RequirementError, SpecError)) as raised:
            orders.log().check()
        return raised.value.code

    assert code() == "SOURCE_UNFIT"
    orders.connection.execute("CREATE TABLE other (id int PRIMARY KEY)")
    orders.connection.execute("CREATE PUBLICATION shop FOR TABLE other")
    assert code() == "SOURCE_UNFIT"
    orders.connection.execute("ALTER PUBLICATION shop SET TABLE outbox")
    orders.connection.execute("ALTER PUBLICATION shop SET (publish = 'delete')")
    assert code() == "SOURCE_UNFIT"
    orders.connection.execute("ALTER PUBLICATION shop SET (publish = 'insert')")
    assert code() == "SOURCE_MISSING"
    make = "SELECT pg_create_logical_replication_slot(%s, %s)"
    orders.connection.execute(make, (orders.slot, "test_decoding"))
    assert code() == "SOURCE_UNFIT"
    orders.connection.execute("SELECT pg_drop_replication_slot(%s)", [orders.slot])
    with psycopg.connect(orders.where.replace(orders.slot, "postgres"), autocommit=True) as other:
        other.execute(make, (orders.slot, "pgoutput"))
        assert code() == "SOURCE_UNFIT"
        other.execute("SELECT pg_drop_replication_slot(%s)", [orders.slot])
    orders.connection.execute(make, (orders.slot, "pgoutput"))
    orders.log().check()
    orders.connection.execute("ALTER TABLE outbox RENAME TO inbox")
    assert code() == "SOURCE_MISSING"


def test_a_column_that_does_not_exist_is_named_with_the_nearest_one(orders: Shop) -> None:
    with pytest.raises(ColumnNotFound, match="did you mean 'payload'"):
        orders.log(columns={**COLUMNS, "payload": "payloads"}).check_columns()
    with pytest.raises(ColumnNotFound, match="`keep`"):
        orders.log(keep=("tenant",)).check_columns()


def test_a_publication_that_is_younger_than_rows_of_the_slot_is_refused(orders: Shop) -> None:
    orders.connection.execute(
        "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [orders.slot]
    )
    orders.insert("e1")
    log = orders.created()  # does not create a publication for a slot that exists
    with pytest.raises(RequirementError, match="drop the slot"):
        log.check()
    orders.connection.execute("CREATE PUBLICATION shop FOR TABLE outbox")
    with pytest.raises(RequirementError, match="did not exist when rows were written"):
        read(log)


def test_rows_from_before_the_slot_are_not_skipped_silently(orders: Shop) -> None:
    orders.insert("old")
    with pytest.raises(RequirementError, match="SOURCE_UNFIT"):
        orders.created()
    assert not orders.log().status().has_slot
    orders.connection.execute("DELETE FROM outbox")
    log = orders.created()
    orders.insert("new")
    orders.created()  # exists, and has the row
    assert ids(read(log)) == ["new"]


def test_events_that_are_written_while_the_slot_is_created_are_read_or_refused(
    orders: Shop,
) -> None:
    stop, written = threading.Event(), [0]

    def write() -> None:
        with psycopg.connect(orders.where) as connection:
            while not stop.is_set():
                insert(connection, f"e{written[0]}")
                time.sleep(0.002)
                connection.commit()
                written[0] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        log: PostgresLog | None = None
        for _ in range(5):
            if log is None:
                orders.connection.execute("DELETE FROM outbox")
                try:
                    log = orders.created()
                except RequirementError as error:
                    assert error.code == "SOURCE_UNFIT"  # noqa: PT017
        time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
    if log is not None:
        in_table = orders.connection.execute("SELECT id FROM outbox").fetchall()
        assert {row[0] for row in in_table} <= set(ids(read(log)))


def test_a_table_without_a_key_gets_no_publication_that_would_forbid_updates(postgres: str) -> None:
    with shop(postgres, TABLE.replace("PRIMARY KEY", "")) as found:
        with pytest.raises(SpecError, match="SOURCE_UNFIT"):
            found.created()
        found.connection.execute("ALTER TABLE outbox REPLICA IDENTITY FULL")
        found.created()
        found.insert("e1")
        found.connection.execute("UPDATE outbox SET type = 'x'")


def test_another_reader_of_the_slot_is_waited_for(
    orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_log, "_PATIENCE", 0.5)
    orders.connection.execute("CREATE PUBLICATION shop FOR TABLE outbox")
    other = psycopg.connect(orders.where, autocommit=True)
    other.execute(
        "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', temporary => true)",
        [orders.slot],
    )
    log = orders.log()
    with pytest.raises(RequirementError, match="SLOT_IN_USE"):
        read(log)
    threading.Timer(0.2, other.close).start()  # and the slot is gone with it
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE"):
        read(log)


def test_a_connection_that_broke_is_opened_again(orders: Shop) -> None:
    log = orders.created()
    orders.insert("e1")
    assert ids(read(log)) == ["e1"]
    orders.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE"):
        log.check()
    assert ids(read(log)) == ["e1"]


def test_a_reader_that_stops_in_the_middle_leaves_the_connection_usable(orders: Shop) -> None:
    log = orders.created()
    orders.connection.execute(
        "INSERT INTO outbox SELECT n, 'order', n, 'placed', jsonb_build_object('p', repeat('x', 2000)) "
        "FROM generate_series(1, 20000) AS n"
    )
    pieces = log.read(Range(0, 1 << 62))
    events, _ = next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert 0 < len(events) < 20_000
    assert len(read(log)) == 20_000


@pytest.mark.postgres
def test_a_slot_whose_log_was_removed_is_refused_and_a_crash_of_the_server_is_not() -> None:
    from tests.servers.postgres import programs, serving

    installed = programs()
    if installed is None:
        skip("PostgreSQL is not installed: apt-get install -y postgresql")
    limits = {"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with serving(installed, **limits) as server, shop(server.where) as found:
        log = found.created()
        found.insert("e1", "e2")
        status, _ = log.check()
        first = read(log)
        (*_, (_, end)) = log.read(Range(0, status.flushed))
        assert end.end is not None
        log.advance(end.end)
        found.insert("e3")
        found.connection.close()
        server.stop(signal.SIGQUIT)
        server.start()
        again = found.log()
        # The slot was not written to disk, and is where it was before or later.
        assert again.check()[1] <= end.end
        assert read(again, 0, end.end) in ([], first)
        assert ids(read(again, end.end)) == ["e3"]
        Offset(status.system, end.end).check(again.status(), "shop", again.check()[1])

        with psycopg.connect(found.where, autocommit=True) as connection:
            connection.execute("CREATE TABLE noise (x text)")
            for _ in range(6):
                connection.execute(
                    "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 12000)"
                )
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CHECKPOINT")
            with pytest.raises(RequirementError, match="SLOT_LOST"):
                again.check()


@pytest.mark.postgres
def test_a_server_with_another_log_level_is_refused() -> None:
    from tests.servers.postgres import programs, serving

    installed = programs()
    if installed is None:
        skip("PostgreSQL is not installed: apt-get install -y postgresql")
    refused = pytest.raises(RequirementError, match="SOURCE_UNFIT")
    with serving(installed, wal_level="replica") as server, shop(server.where) as found, refused:
        found.created()


def test_a_server_that_does_not_exist_is_reported() -> None:
    names: dict[str, Any] = {"connection": None, "slot": "shop"}
    log = Shop("host=/nowhere user=postgres dbname=postgres", **names).log()
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE"):
        log.check()
