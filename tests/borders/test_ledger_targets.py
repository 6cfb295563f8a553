"""Random lives of a table: what its owner does to it, and what a user changes in the sink.

The law: if a sink with new_checkpoint="refuse" takes micro-batch n, its table has the rows of the micro-batches
0 to n, each once. Otherwise the sink refuses it. If nothing was changed, it takes it.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.ddl import quote
from streamops.spark.identity import Identity
from tests.borders import cases

REFUSALS = {
    *("LEDGER_OTHER_TARGET", "LEDGER_OTHER_NAME", "LEDGER_LOST", "TARGET_RECREATED"),
    *("CHECKPOINT_BEHIND", "BATCH_GAP", "NEW_CHECKPOINT"),
}


@dataclass
class Life:
    """A query, and how its sink is written now.

    Parameters
    ----------
    make : function
        Makes a sink with parameters.
    execute : function
        Executes SQL and returns rows.
    """

    draw: random.Random
    make: Callable[..., Any]
    execute: Callable[[str], list[Any]]
    schemas: list[str]
    can_see_copies: bool
    given: dict[str, Any] = field(default_factory=lambda: {"table": "t"})
    batch: int = 0
    is_touched: bool = False
    history: list[str] = field(default_factory=list)

    def run(self, steps: int) -> set[str]:
        outcomes = {self.deliver(0)}
        for number in range(1, steps):
            action = self.draw.choice(["deliver"] * 3 + ["repeat", "owner", "user"])
            if action == "owner":
                self.owner()
            elif action == "user":
                self.user()
            else:
                outcomes.add(self.deliver(number, is_repeated=action == "repeat"))
        return outcomes

    def deliver(self, number: int, *, is_repeated: bool = False) -> str:
        batch = self.batch - 1 if is_repeated and self.batch else self.batch
        self.history.append(f"{batch} {self.given}")
        try:
            self.make(**self.given)._deliver_rows(
                pa.table({"n": [2 * batch, 2 * batch + 1]}),
                batch,
                Identity("query", f"run {number}"),
            )
        except SinkError as error:
            refusal = error
        else:
            self.batch = batch + 1
            assert self.rows(self.given["table"]) == list(range(2 * self.batch)), self.history
            return "done"
        assert refusal.code in REFUSALS, (refusal, self.history)
        assert self.is_touched, (refusal, self.history)
        return refusal.code

    def rows(self, table: str) -> list[int]:
        return sorted(n for (n,) in self.execute(f"SELECT n FROM {self.found(table)}"))

    def found(self, table: str) -> str:
        """The table with its schema, as the sink is written now: a test has one table of each name."""
        schema = self.given.get("schema")
        for name in [schema] if schema else self.schemas:
            if name is None or self.tables(name, table):
                break
        return ".".join(quote(part) for part in (name, table) if part)

    def tables(self, schema: str, table: str) -> list[Any]:
        return self.execute(
            f"SELECT 1 FROM pg_tables WHERE schemaname = '{schema}' AND tablename = '{table}'"
        )

    def owner(self) -> None:
        """Do something to the table."""
        table = self.found(self.given["table"])
        actions = {
            "drop": [f"DROP TABLE {table}"],
            "create again": [f"DROP TABLE {table}", f"CREATE TABLE {table} (n bigint)"],
            "empty": [f"DELETE FROM {table}"],
            "copy": [
                f'CREATE TABLE {table[:-1]}2" AS SELECT * FROM {table} LIMIT 1',
                f"DROP TABLE {table}",
                f'ALTER TABLE {table[:-1]}2" RENAME TO {quote(self.given["table"])}',
            ],
            "rename": [f'ALTER TABLE {table} RENAME TO "{self.given["table"]}r"'],
        }
        names = [name for name in actions if name != "copy" or self.can_see_copies]
        chosen = self.draw.choice(names)
        try:
            for statement in actions[chosen]:
                self.execute(statement)
        except (psycopg.Error, sqlite3.Error):
            return  # there is no such table
        self.is_touched = True
        self.history.append(chosen)
        if chosen == "rename" and "copy" not in self.history and self.draw.random() < 0.5:
            # The sink follows.
            self.given = {"name": self.given["table"], **self.given}
            self.given["table"] += "r"

    def user(self) -> None:
        """Write the sink in another way."""
        chosen = self.draw.choice(["table", "name", "schema", "schema"])
        if "copy" in self.history and chosen != "schema":
            return  # a copy under another name is a table that the ledger cannot know
        if chosen == "schema" and len(self.schemas) > 1:
            # The same table, if it is the first one of the path.
            self.given = {k: v for k, v in self.given.items() if k != "schema"}
            where = self.found(self.given["table"])
            if self.draw.random() < 0.7:
                self.given["schema"] = self.draw.choice(self.schemas)
                self.is_touched |= self.found(self.given["table"]) != where
        elif chosen == "table":
            self.given, self.is_touched = {**self.given, "table": "other"}, True
        elif chosen == "name":
            self.given, self.is_touched = {**self.given, "name": self.draw.choice("ab")}, True
        self.history.append(str(self.given))


@pytest.mark.smoke
def test_tables_of_postgres(postgres: str) -> None:
    seen = set()
    with psycopg.connect(postgres, autocommit=True) as connection:

        def execute(statement: str) -> list[Any]:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        for number in range(cases(12, 200)):
            schemas = [f"life {number} {name}" for name in "ab"]
            for schema in schemas:
                execute(f"CREATE SCHEMA {quote(schema)}")
            draw = random.Random(number)
            if draw.random() < 0.5:  # in the second schema of the path
                execute(f"CREATE TABLE {quote(schemas[1])}.t (n bigint)")
            path = ",".join(quote(schema) for schema in schemas).replace(" ", "\\ ")
            url = make_conninfo(postgres, options=f"-csearch_path={path}")
            life = Life(
                draw,
                lambda url=url, **given: sinks.postgres(url, **given),
                execute,
                schemas,
                can_see_copies=True,
            )
            seen |= life.run(8)
            for schema in schemas:
                execute(f"DROP SCHEMA {quote(schema)} CASCADE")
    assert {"done", "TARGET_RECREATED"} <= seen


def test_tables_of_sqlite(tmp_path: Path) -> None:
    seen = set()
    for number in range(cases(12, 200)):
        file = tmp_path / f"{number}.db"

        def execute(statement: str, file: Path = file) -> list[Any]:
            with sqlite3.connect(file) as connection:
                return connection.execute(statement.replace('""', '"')).fetchall()

        life = Life(
            random.Random(number),
            lambda file=file, **given: sinks.sqlalchemy(f"sqlite:///{file}", **given),
            execute,
            [None],  # type: ignore[list-item]
            can_see_copies=False,
        )
        seen |= life.run(8)
    assert {"done", "TARGET_RECREATED"} <= seen
