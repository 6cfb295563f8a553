"""Tables whose changes are special: large values, keys and schemas that change, truncates, snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from tests.debezium.columns import Mode
from tests.debezium.mirror import Mirror, Row, await_end, differences
from tests.debezium.systems import Database, Systems

SCHEMA = "id bigint, n bigint, t string, u string, d decimal(38,5), s string, b binary, x bigint, y string"
"""All columns that tables have at some time; `u` is the later name of `t`."""

SIGNALS = "CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))"
_LARGE = "(SELECT string_agg(md5((g + {0})::text), '') FROM generate_series(1, 200) g)"
_BYTES = f"decode({_LARGE}, 'hex')"
_ADD = "ALTER TABLE {table} ADD COLUMN"


MAY_CONFLICT = "conflict"
"""A delete and an insert of one key and position: the delete is a rejected row if one micro-batch has both."""


@dataclass(frozen=True)
class Scenario:
    """A table, what is done to it before and while a connector runs, and what a query must make of it.

    Parameters
    ----------
    name : str
        Of the table, which is `{table}` in statements.
    columns : str
        In the database, after the key.
    before, first, second : sequence of str
        Statements: before the connector starts; then; and after it was killed.
    compared : sequence of str
        Columns of the table, in the end; `name: other` if the query has it under another name.
    reasons : sequence of str
        Of the records that are rejected.
    where : str
        Of the rows that are equal.
    """

    name: str
    columns: str
    before: Sequence[str]
    first: Sequence[str]
    second: Sequence[str]
    compared: Sequence[str]
    reasons: Sequence[str] = ()
    where: str = "true"


def snapshot(schema: str, number: int) -> str:
    """A signal for an incremental snapshot of the table."""
    data = json.dumps({"data-collections": [f"{schema}.{{table}}"], "type": "incremental"})
    data = data.replace("{table}", "snapshot")
    return f"INSERT INTO signals VALUES ('{number}', 'execute-snapshot', '{data}')"


def _common(schema: str, change: str) -> list[Scenario]:
    rows = [f"INSERT INTO {{table}} (id, n, t) VALUES ({n}, {n}, 'row {n}')" for n in range(1, 7)]
    return [
        Scenario(
            "truncated",
            "n int, t text",
            rows[:2],
            [
                *rows[2:4],
                "UPDATE {table} SET n = 7 WHERE id = 1",
                "TRUNCATE TABLE {table}",
                rows[4],
            ],
            [rows[0], "TRUNCATE TABLE {table}", rows[5], "UPDATE {table} SET id = 8"],
            ["n", "t"],
        ),
        Scenario(
            "altered",
            "n int, t varchar(9), d numeric(12,3), k int DEFAULT 0",
            rows[:1],
            [
                rows[1],
                "UPDATE {table} SET d = 1.5",
                f"{_ADD} x bigint",
                rows[2],
                "UPDATE {table} SET x = 9223372036854775807 WHERE id IN (1, 3)",
                "ALTER TABLE {table} RENAME COLUMN t TO u",
                "UPDATE {table} SET u = 'other' WHERE id = 1",
                "INSERT INTO {table} (id, u) VALUES (4, NULL)",
            ],
            [
                change.format("n", "bigint"),
                change.format("u", "text"),
                change.format("d", "numeric(20,5)"),
                "UPDATE {table} SET n = -9223372036854775808, d = 0.00001 WHERE id = 2",
                "ALTER TABLE {table} DROP COLUMN n",
                f"{_ADD} y text",
                "INSERT INTO {table} (id, u, y) VALUES (5, 'u', 'y')",
                "{rekey}",
                "UPDATE {table} SET id = 6, k = 1 WHERE id = 5",
                "UPDATE {table} SET k = 2 WHERE id = 4",
                "DELETE FROM {table} WHERE id = 3",
            ],
            ["u: t", "d", "x", "y"],
            # A change of `k` is a delete and an insert of one position. In the mirror they have one key.
            [MAY_CONFLICT],
        ),
        Scenario(
            "snapshot",
            "n int, t text",
            rows[:2],
            [*rows[2:4], snapshot(schema, 1), "UPDATE {table} SET n = n + 10 WHERE id < 3"],
            [rows[4], "DELETE FROM {table} WHERE id = 1", snapshot(schema, 2), rows[5]],
            ["n", "t"],
        ),
        Scenario(
            "rolled_back",
            "n int, t text",
            rows[:2],
            [
                "BEGIN",
                *rows[2:4],
                "SAVEPOINT a",
                "DELETE FROM {table}",
                "ROLLBACK TO SAVEPOINT a",
                "UPDATE {table} SET n = 0 WHERE id > 2",
                "UPDATE {table} SET n = 1 WHERE id = 4",
                "COMMIT",
            ],
            [
                "BEGIN",
                "DELETE FROM {table}",
                rows[0],
                "ROLLBACK",
                "BEGIN",
                "DELETE FROM {table} WHERE id = 2",
                "INSERT INTO {table} VALUES (2, 5, 'again')",
                "UPDATE {table} SET id = 9 WHERE id = 2",
                "UPDATE {table} SET id = 2 WHERE id = 1",
                "COMMIT",
            ],
            ["n", "t"],
        ),
    ]


def _large(name: str, identity: str) -> Scenario:
    storage = [f"ALTER TABLE {{table}} ALTER {column} SET STORAGE EXTERNAL" for column in "tb"]
    insert = "INSERT INTO {table} (id, n, t, b) VALUES ({id}, 1, {t}, {b})"
    row = insert.replace("{t}", _LARGE).replace("{b}", _BYTES).replace("{0}", "{id}")
    return Scenario(
        name,
        "n int, t text, b bytea",
        [*storage, f"ALTER TABLE {{table}} REPLICA IDENTITY {identity}", row.replace("{id}", "1")],
        [
            row.replace("{id}", "2"),
            row.replace("{id}", "3"),
            "UPDATE {table} SET n = 2",
            "UPDATE {table} SET t = 'small' WHERE id = 2",
        ],
        [
            "UPDATE {table} SET n = 3",
            "UPDATE {table} SET b = NULL WHERE id = 1",
            "UPDATE {table} SET n = 4",
            "UPDATE {table} SET id = 13 WHERE id = 3",
            "UPDATE {table} SET n = 5",
        ],
        ["n", "t", "b"],
    )


_ALL = {
    "postgresql": [
        *_common("public", "ALTER TABLE {{table}} ALTER COLUMN {} TYPE {}"),
        _large("large_full", "FULL"),
        # A row of a new key lacks its large values, and later changes do not have them either.
        replace(_large("large", "DEFAULT"), reasons=["value_not_sent"], where="id < 13"),
        Scenario(
            "special",
            "n int, d numeric",
            [],
            ["INSERT INTO {table} VALUES (1, 1, 'NaN'), (2, 2, 2)"],
            ["INSERT INTO {table} VALUES (3, 1, 1e40), (4, 4, 0.000001), (5, 5, 0.00001)"],
            ["n", "d"],
            ["row_does_not_fit"] * 3,
            "id IN (2, 5)",
        ),
    ],
    "mariadb": _common("test", "ALTER TABLE {{table}} MODIFY COLUMN {} {}"),
}
SCENARIOS = {name: {part.name: part for part in parts} for name, parts in _ALL.items()}


def play(systems: Systems, connector: str) -> None:
    """Run all scenarios of a connector, and wait until their changes are in the topics."""
    database, scenarios = systems.databases[connector], _ALL[connector]
    database.execute(SIGNALS, "CREATE TABLE ends (id int PRIMARY KEY)")
    for scenario in scenarios:
        ddl = f"CREATE TABLE {scenario.name} (id int PRIMARY KEY, {scenario.columns})"
        database.execute(ddl, *_texts(database, scenario, "before"))
    signals = {"signal_data_collection": f"{database.schema}.signals"}
    systems.worker.create(
        connector,
        database.settings(connector, **Mode(decimal="string").settings(connector), **signals),
    )
    await_end(database, [connector], "ends", 1)
    for scenario in scenarios:
        database.execute(*_texts(database, scenario, "first"))
    systems.worker.kill()
    systems.worker.start()
    for scenario in scenarios:
        database.execute(*_texts(database, scenario, "second"))
    systems.worker.await_running(connector)
    await_end(database, [connector], "ends", 2)


def _texts(database: Database, scenario: Scenario, part: str) -> list[str]:
    """The statements of a part, for this database."""
    is_postgres = database.connector == "postgresql"
    drop = f"DROP CONSTRAINT {scenario.name}_pkey" if is_postgres else "DROP PRIMARY KEY"
    rekey = f"ALTER TABLE {scenario.name} {drop}, ADD PRIMARY KEY (id, k)"
    return [
        statement.replace("{rekey}", rekey).replace("{table}", scenario.name)
        for statement in getattr(scenario, part)
    ]


def _names_of(scenario: Scenario) -> dict[str, str]:
    """The names that a query has, and those in the database."""
    pairs = (name.partition(": ") for name in scenario.compared)
    return {other or name: name for name, _, other in pairs}


def rows_of(database: Database, scenario: Scenario) -> list[Row]:
    """The rows of a table in its database, under the names of a query, as JSON can have them."""
    names = _names_of(scenario)
    columns = ", ".join(["id", *names.values()])
    rows = database.fetch(f"SELECT {columns} FROM {scenario.name} WHERE {scenario.where}")
    return [_plain(dict(zip(["id", *names], row, strict=True))) for row in rows]


def found_in(
    mirror: Mirror, scenario: Scenario, expected: Sequence[Row]
) -> tuple[list[Any], list[str]]:
    """Differences of a mirror and its table, and the reasons of rejected records."""
    names, keys = _names_of(scenario), {row["id"] for row in expected}
    mine = [
        _plain({"id": row["id"], **{name: _value(row, name) for name in names}})
        for row in mirror.rows.values()
        if scenario.where == "true" or row["id"] in keys
    ]
    reasons = [row["rejected"]["reason"] for row in mirror.rejected]
    if MAY_CONFLICT in scenario.reasons:  # once, or not at all
        reasons = [*dict.fromkeys([*reasons, MAY_CONFLICT])]
    return differences(mine, expected), reasons


def _value(row: Mapping[str, Any], name: str) -> Any:
    return row["u"] if name == "t" and row["u"] is not None else row[name]


def _plain(row: Row) -> Row:
    def plain(value: Any) -> Any:
        if isinstance(value, Decimal):
            return f"{value:.5f}"
        return bytes(value).hex() if isinstance(value, bytes | memoryview) else value

    return {name: plain(value) for name, value in row.items()}
