"""What is written into the databases: values of every type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.debezium.columns import MODES, TYPES, Column
from tests.debezium.mirror import await_end
from tests.debezium.systems import Database, Systems


def rows_of(columns: Sequence[Column]) -> Iterator[list[str]]:
    """Rows of literals in which each value occurs, and one of nulls."""
    for number in range(max(len(column.values) for column in columns)):
        yield [column.values[number % len(column.values)] for column in columns]
    yield ["NULL"] * len(columns)


def insert(database: Database, columns: Sequence[Column], first: int) -> None:
    """Insert all rows, from a number on."""
    names = ", ".join(["id", *(column.name for column in columns)])
    for number, row in enumerate(rows_of(columns), first):
        values = ", ".join([str(number), *row])
        database.execute(f"INSERT INTO types ({names}) VALUES ({values})")


def write_values(systems: Systems, connector: str) -> None:
    """Write rows before and after connectors in all modes start, change them, and wait for the records."""
    database, columns = systems.databases[connector], TYPES[connector]
    if connector == "postgresql":
        database.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    parts = ", ".join(f"{column.name} {column.ddl}" for column in columns)
    database.execute(f"CREATE TABLE types (id int PRIMARY KEY, {parts})")
    insert(database, columns, 0)
    for number, (name, mode) in enumerate(MODES.items()):
        prefix = f"{connector}-{name}"
        own: dict[str, Any] = (
            {"database_server_id": 7_100 + number} if connector == "mariadb" else {}
        )
        slot = prefix.replace("-", "_")
        if connector == "postgresql":
            own = {"slot_name": slot, "publication_name": slot}
        settings = mode.settings(connector)
        systems.worker.create(prefix, database.settings(prefix, **settings, **own))
    for name in MODES:
        # The log is read from here on.
        systems.worker.await_record(database.topic(f"{connector}-{name}", "types"))
    insert(database, columns, 20)
    others = ", ".join(f"{c.name} = {c.values[-1]}" for c in columns)
    nulls = ", ".join(f"{c.name} = NULL" for c in columns)
    database.execute(
        f"UPDATE types SET {others} WHERE id = 1",
        f"UPDATE types SET {nulls} WHERE id = 20",
        "UPDATE types SET id = 40 WHERE id = 21",
        "UPDATE types SET id = 41 WHERE id = 2",
        "DELETE FROM types WHERE id IN (3, 22)",
        "BEGIN",
        "INSERT INTO types (id) VALUES (50), (51)",
        "DELETE FROM types WHERE id = 50",
        "UPDATE types SET id = 52 WHERE id = 51",
        "UPDATE types SET id = 51 WHERE id = 52",
        "COMMIT",
        "BEGIN",
        "DELETE FROM types",
        "ROLLBACK",
    )
    await_end(database, [f"{connector}-{name}" for name in MODES], "types", 100)
