"""Random SQL over several connections, whose transactions overlap, and what came of it."""

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
"""The tables, and what the log has of a row that is updated or deleted: its key, or all of it."""

IDS, CONNECTIONS, READS = 60, 3, 3
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# `passed` is what a trigger writes down: each row that there was, in its order.
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

# Of each: how often it is drawn.
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
# A key that changes is a new row. Without the old one the log lacks what it was not told anew.
WHOLE = {"orders": ", body = body || ''", "returns": ""}


@dataclass
class Traffic:
    """What was done to the tables, what the log says of it, and what the tables are in the end."""

    snapshot: list[Row]
    """The rows that were there before the log is read, as changes."""
    log: list[Row]
    again: list[Row]
    """Changes of the log that were read once more."""
    tables: list[Row]
    passed: dict[tuple[str, int], list[Row | None]]
    """What the trigger wrote of each key: None is a delete."""
    counts: Counter[str]

    @property
    def whole(self) -> list[Row]:
        """All changes, in their order."""
        return [*self.snapshot, *self.log]


def traffic(where: str, *, seed: int, statements: int) -> Traffic:
    """Change the tables at random, and read the log."""
    rng, counts = random.Random(seed), Counter[str]()
    with ExitStack() as stack:
        reader, *writers = (
            stack.enter_context(psycopg.connect(where, autocommit=True, row_factory=dict_row))
            for _ in range(1 + CONNECTIONS)
        )
        _make(reader)
        snapshot = _snapshot(reader)
        for writer in writers:
            # They are served in turn: who waits for another's lock would wait for good.
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


def moved_untouched(where: str) -> list[Row]:
    """The changes of rows whose keys change, and nothing of their large values."""
    with psycopg.connect(where, autocommit=True, row_factory=dict_row) as connection:
        _make(connection)
        snapshot = _snapshot(connection)
        for table in IDENTITY:
            connection.execute(f"UPDATE {table} SET id = -id WHERE id = 1")
        return [*snapshot, *_log(connection)]


def _make(connection: psycopg.Connection[Row]) -> None:
    """The tables, anew, with some rows."""
    connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    connection.execute("DROP PUBLICATION IF EXISTS shop")
    connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for table in IDENTITY.items():
        connection.execute(TABLE.format(*table))
    connection.execute(f"CREATE PUBLICATION shop FOR TABLE {', '.join(IDENTITY)}")


def _snapshot(connection: psycopg.Connection[Row]) -> list[Row]:
    """A slot that reads what is changed from now on, and the rows that are there, at its place."""
    (slot,) = connection.execute(
        "SELECT (lsn - '0/0')::bigint AS lsn, now() "
        "FROM pg_create_logical_replication_slot('shop', 'pgoutput')"
    )
    place = {"commit_lsn": slot["lsn"], "position": 0, "lsn": slot["lsn"]}
    place |= {"_changed_at": slot["now"], "_snapshot": True}
    place |= {"_change_type": INSERT, "_unavailable": []}
    return [row | place for row in _rows(connection, "SELECT * FROM {}")]


def _log(connection: psycopg.Connection[Row], *, confirm: bool = False) -> list[Row]:
    """What the slot has by now, and what it has again unless that is confirmed."""
    said = connection.execute(
        "SELECT (lsn - '0/0')::bigint AS lsn, data FROM pg_logical_slot_peek_binary_changes("
        "'shop', NULL, NULL, 'proto_version', '1', 'publication_names', 'shop')"
    ).fetchall()
    if confirm and said:
        last = {"last": said[-1]["lsn"]}
        advance = "SELECT pg_replication_slot_advance('shop', '0/0'::pg_lsn + %(last)s::bigint)"
        connection.execute(advance, last)
    return list(changes_of(((row["lsn"], row["data"]) for row in said), key="id"))


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
    """Statements of transactions that are open at the same time; some are left open."""
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
    """One statement, in a savepoint that is now and then rolled back."""
    table = rng.choice([*IDENTITY])
    (drawn,) = rng.choices([*STATEMENTS], [*STATEMENTS.values()])
    statement = drawn.format(table=table, whole=WHOLE[table])
    row, regrets = _row(rng), rng.random() < 0.05
    try:
        with writer.transaction():
            if statement.startswith("COPY"):
                with writer.cursor().copy(statement) as rows:
                    for number in range(3):
                        rows.write_row((row["id"] + number, row["name"], row["body"]))
            else:
                writer.execute(statement, row)
            if regrets:
                raise psycopg.Rollback
    except (psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable):
        return "refused"
    return "regretted" if regrets else "done"


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
