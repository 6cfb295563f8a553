"""Random SQL over several connections with overlapping transactions, and its effects."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal

import psycopg
from psycopg.rows import dict_row

from streamops.changelog.change_types import INSERT
from tests.changes.postgres.pgoutput import Row, changes_of

IDENTITY = {"orders": "DEFAULT", "returns": "FULL"}
"""The tables and their replica identity: what the log has of the row before, its key or all of it."""

IDS, CONNECTIONS, READS = 60, 3, 3
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# A trigger writes each version of a row to `passed`, in order.
TABLE = """
CREATE TABLE {0} (
    id bigint PRIMARY KEY, name text, price numeric(12, 4), placed_at timestamptz, paid boolean,
    body text
);
ALTER TABLE {0} ALTER body SET STORAGE EXTERNAL, REPLICA IDENTITY {1};
CREATE TABLE {0}_passed (LIKE {0}, is_deleted boolean, number bigserial);
CREATE FUNCTION {0}_pass() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND OLD.id <> NEW.id THEN
        INSERT INTO {0}_passed (id, is_deleted) VALUES (OLD.id, true);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO {0}_passed SELECT NEW.*, false;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER pass AFTER INSERT OR UPDATE OR DELETE ON {0} FOR EACH ROW EXECUTE FUNCTION {0}_pass();
INSERT INTO {0}
SELECT n, 'Zoë', n, '2024-01-01'::timestamptz, n % 3 = 0, repeat('x', n % 2 * 5000)
FROM generate_series(1, 30) AS n;
"""

# Statements and their weights.
STATEMENTS = {
    "INSERT INTO {table} VALUES (%(id)s, %(name)s, %(price)s, %(placed_at)s, %(paid)s, %(body)s)": 5,
    "INSERT INTO {table} VALUES (%(id)s, %(name)s, %(price)s, %(placed_at)s, %(paid)s, %(body)s)"
    " ON CONFLICT (id) DO UPDATE SET name = excluded.name, price = excluded.price": 2,
    "UPDATE {table} SET price = %(price)s, paid = %(paid)s WHERE id = %(id)s": 6,
    "UPDATE {table} SET body = %(body)s, placed_at = %(placed_at)s WHERE id = %(id)s": 2,
    "UPDATE {table} SET price = price + 1 WHERE id %% 7 = %(id)s %% 7": 1,
    "UPDATE {table} SET name = name WHERE id = %(id)s": 1,
    "UPDATE {table} SET id = %(other)s, name = %(name)s{whole} WHERE id = %(id)s": 3,
    "DELETE FROM {table} WHERE id = %(id)s": 2,
    "DELETE FROM {table} WHERE id BETWEEN %(id)s AND %(id)s + 2": 1,
    "COPY {table} (id, name, body) FROM STDIN": 1,
}
# An update of the key is a new row. Without the old row the log lacks the large values it does not set.
WHOLE = {"orders": ", body = body || ''", "returns": ""}


@dataclass
class Traffic:
    """The changes of the tables in the log, and the rows of the tables at the end."""

    snapshot: list[Row]
    """The rows before the log begins, as changes."""
    log: list[Row]
    again: list[Row]
    """Changes of the log that were read a second time."""
    tables: list[Row]
    passed: dict[tuple[str, int], list[Row | None]]
    """The versions of each key that the trigger wrote: None is a delete."""
    counts: Counter[str]

    @property
    def whole(self) -> list[Row]:
        """All changes, in order."""
        return [*self.snapshot, *self.log]


def traffic(where: str, *, seed: int, statements: int) -> Traffic:
    """Change the tables at random, and read the log."""
    rng, counts = random.Random(seed), Counter[str]()
    with ExitStack() as stack:
        reader, *writers = (
            stack.enter_context(psycopg.connect(where, autocommit=True, row_factory=dict_row))
            for _ in range(1 + CONNECTIONS)
        )
        _create_tables(reader)
        snapshot = _snapshot(reader)
        for writer in writers:
            # One thread uses all connections: waiting for a lock would never end.
            writer.execute("SET lock_timeout = '2ms'")
        log: list[Row] = []
        again: list[Row] = []
        for _ in range(READS):
            _run(writers, rng, counts, statements // READS // 2)
            again += _log(reader)
            _run(writers, rng, counts, statements // READS // 2)
            log += _log(reader, confirm=True)
        for writer in writers:
            writer.execute("COMMIT")
        log, tables = log + _log(reader), _rows(reader, "SELECT * FROM {}")
        passed: dict[tuple[str, int], list[Row | None]] = {}
        for row in _rows(reader, "SELECT * FROM {}_passed ORDER BY number"):
            key = (row["relation"], row["id"])
            del row["number"]
            passed.setdefault(key, []).append(None if row.pop("is_deleted") else row)
    return Traffic(snapshot, log, again, tables, passed, counts)


def key_updates(where: str) -> list[Row]:
    """The changes of updates of keys that do not touch large values."""
    with psycopg.connect(where, autocommit=True, row_factory=dict_row) as connection:
        _create_tables(connection)
        snapshot = _snapshot(connection)
        for table in IDENTITY:
            connection.execute(f"UPDATE {table} SET id = -id WHERE id = 1")
        return [*snapshot, *_log(connection)]


def truncations(where: str) -> tuple[list[Row], list[Row]]:
    """The changes of tables that are truncated alone and together, and the rows at the end."""
    insert = "INSERT INTO {} (id, name) VALUES (%(id)s, %(name)s)"
    with psycopg.connect(where, autocommit=True, row_factory=dict_row) as connection:
        _create_tables(connection)
        changes = _snapshot(connection)
        for number, truncated in enumerate(("orders", "orders, returns", "returns", None)):
            for table in IDENTITY:
                for id_ in (number, 100 + number):  # one of the snapshot's, and a new one
                    connection.execute(f"DELETE FROM {table} WHERE id = {id_}")
                    connection.execute(insert.format(table), {"id": id_, "name": f"{number}"})
                connection.execute(f"UPDATE {table} SET paid = true WHERE id = 100 + {number}")
            if truncated is not None:
                connection.execute(f"TRUNCATE {truncated}")
        return [*changes, *_log(connection)], _rows(connection, "SELECT * FROM {}")


def _create_tables(connection: psycopg.Connection[Row]) -> None:
    """Create the tables, with some rows."""
    connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    connection.execute("DROP PUBLICATION IF EXISTS shop")
    connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for table in IDENTITY.items():
        connection.execute(TABLE.format(*table))
    connection.execute(f"CREATE PUBLICATION shop FOR TABLE {', '.join(IDENTITY)}")


def _snapshot(connection: psycopg.Connection[Row]) -> list[Row]:
    """Create a replication slot, and return the rows at its position."""
    (slot,) = connection.execute(
        "SELECT (lsn - '0/0')::bigint AS lsn, now() "
        "FROM pg_create_logical_replication_slot('shop', 'pgoutput')"
    )
    change = {"commit_lsn": slot["lsn"], "position": 0, "lsn": slot["lsn"]}
    change |= {"_changed_at": slot["now"], "_snapshot": True}
    change |= {"_change_type": INSERT, "_unavailable": []}
    return [row | change for row in _rows(connection, "SELECT * FROM {}")]


def _log(connection: psycopg.Connection[Row], *, confirm: bool = False) -> list[Row]:
    """The changes that the slot has, which it returns again unless they are confirmed."""
    messages = connection.execute(
        "SELECT (lsn - '0/0')::bigint AS lsn, data FROM pg_logical_slot_peek_binary_changes("
        "'shop', NULL, NULL, 'proto_version', '1', 'publication_names', 'shop')"
    ).fetchall()
    if confirm and messages:
        last = {"last": messages[-1]["lsn"]}
        advance = "SELECT pg_replication_slot_advance('shop', '0/0'::pg_lsn + %(last)s::bigint)"
        connection.execute(advance, last)
    return list(changes_of(((row["lsn"], row["data"]) for row in messages), key="id"))


def _rows(connection: psycopg.Connection[Row], query: str) -> list[Row]:
    return [
        {"relation": table, **row}
        for table in IDENTITY
        for row in connection.execute(query.format(table))
    ]


def _run(
    writers: list[psycopg.Connection[Row]],
    rng: random.Random,
    counts: Counter[str],
    statements: int,
) -> None:
    """Run statements in transactions that overlap; some stay open."""
    left = [0 for _ in writers]
    for _ in range(statements):
        number = rng.randrange(len(writers))
        writer = writers[number]
        if not left[number]:
            # COMMIT without a transaction is a warning, and nothing else.
            end = "ROLLBACK" if rng.random() < 0.2 else "COMMIT"
            counts[end] += 1
            writer.execute(end)
            writer.execute("BEGIN")
            left[number] = rng.randint(1, 12)
        left[number] -= 1
        counts[_change(writer, rng)] += 1


def _change(writer: psycopg.Connection[Row], rng: random.Random) -> str:
    """Run a statement in a savepoint, which is sometimes rolled back."""
    table = rng.choice([*IDENTITY])
    (drawn,) = rng.choices([*STATEMENTS], [*STATEMENTS.values()])
    statement = drawn.format(table=table, whole=WHOLE[table])
    row, rolls_back = _row(rng), rng.random() < 0.05
    try:
        with writer.transaction():
            if statement.startswith("COPY"):
                with writer.cursor().copy(statement) as rows:
                    for number in range(3):
                        rows.write_row((row["id"] + number, row["name"], row["body"]))
            else:
                writer.execute(statement, row)
            if rolls_back:
                raise psycopg.Rollback
    except (psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable):
        return "refused"
    return "rolled back" if rolls_back else "done"


def _row(rng: random.Random) -> Row:
    micros = rng.randrange(-2_000_000_000_000_000, 7_000_000_000_000_000)
    return {
        "id": rng.randrange(IDS),
        "other": rng.randrange(IDS),
        "name": rng.choice([None, "", "Zoë", "two\nlines", "a\t'b\" \\c", "☃"]),
        "price": rng.choice([None, Decimal(rng.randrange(-(10**11), 10**11)).scaleb(-4)]),
        "placed_at": rng.choice([None, EPOCH + dt.timedelta(microseconds=micros)]),
        "paid": rng.choice([None, True, False]),
        "body": rng.choice([None, "short", f"{rng.random()} " * 150, f"{rng.random()} " * 300]),
    }
