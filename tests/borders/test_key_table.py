"""Every interleaving of statements that create, rotate, erase and read the keys of a subject.

An operation runs in a thread, which stops before each statement and before its commit. A scheduler lets one of
them go on at a time, in every order that the locks of the database allow.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamops.erasure import KeyTable
from tests.borders import IS_LONG

sa = pytest.importorskip("sqlalchemy")

SUBJECT = "ann"
Rows = dict[int, bytes | None]
"""Keys by version."""

OPERATIONS: dict[str, Callable[[KeyTable], Any]] = {
    "create": lambda table: _rows(table._create([SUBJECT])),
    "rotate": lambda table: table.rotate(SUBJECT),
    "erase": lambda table: table.erase(SUBJECT),
    "read": lambda table: read(table),
}
STARTS: dict[str, Callable[[KeyTable], Any]] = {
    "nothing": lambda table: None,
    "a key": lambda table: table._create([SUBJECT]),
    "two keys": lambda table: (table._create([SUBJECT]), table.rotate(SUBJECT)),
    "erased": lambda table: table.erase(SUBJECT),
}
_PAIRS = [*itertools.combinations_with_replacement(OPERATIONS, 2)]
_THREE = [*itertools.combinations(OPERATIONS, 3)] if IS_LONG else []
CASES = [
    (names, start)
    for names in (*_PAIRS, *_THREE)
    for start in (STARTS if IS_LONG and len(names) == 2 else ("nothing", "two keys"))
    if {*names} & {"rotate", "erase"}
]
"""What runs together, and what the table has before. Creating and reading alone erases nothing."""


def _rows(entries: Any) -> Rows:
    return {version: key and bytes(key) for _, version, key in entries}


def read(table: KeyTable) -> Rows:
    """What a reader of the table sees, as `KeyTable.keys` does."""
    with table._transaction() as (connection, of):
        mine = sa.select(of.c.subject, of.c.version, of.c.key).where(of.c.subject == SUBJECT)
        return _rows(connection.execute(mine))


@dataclass
class Gate:
    """Where a thread waits until it may go on."""

    name: str
    is_open: threading.Event = field(default_factory=threading.Event)
    state: str = "running"
    backend: int | None = None
    result: Any = None


class Schedule:
    """Operations that run together, in one order of their statements.

    Parameters
    ----------
    table : KeyTable
    names : sequence of str
        Of ``OPERATIONS``.
    blocked : callable
        The backends that wait for a lock.
    """

    def __init__(
        self, table: KeyTable, names: Sequence[str], blocked: Callable[[], set[int]]
    ) -> None:
        self.table, self.names, self.blocked = table, names, blocked
        self.changed = threading.Condition()
        self.local = threading.local()
        self.gates = [Gate(name) for name in names]
        self.finished: list[int] = []
        self.has_file: Gate | None = None
        """Who has the file of SQLite."""

    def run(self, order: Sequence[int], check: Callable[[int], None]) -> list[list[int]]:
        """Run to the end: first in this order, then each thread as far as it comes.

        Returns which threads could go on, at each step. `check` is called when an operation has returned.
        """
        choices = []
        threads = [
            threading.Thread(target=self._operate, args=(n,)) for n in range(len(self.names))
        ]
        for thread in threads:
            thread.start()
        for step in itertools.count():
            self._settle()
            for number, gate in enumerate(self.gates):
                if gate.state == "finished" and number not in self.finished:
                    self.finished.append(number)
                    check(number)
            able = [number for number, gate in enumerate(self.gates) if self._is_able(gate)]
            if not able:
                break
            choices.append(able)
            chosen = order[step] if step < len(order) else able[0]
            self._let(self.gates[chosen])
        for thread in threads:
            thread.join(10)
        assert [gate.state for gate in self.gates] == ["finished"] * len(self.gates), "a deadlock"
        return choices

    def _operate(self, number: int) -> None:
        gate = self.local.gate = self.gates[number]
        try:
            gate.result = OPERATIONS[gate.name](self.table)
        except Exception as error:
            gate.result = error
        with self.changed:
            gate.state = "finished"
            self.changed.notify_all()

    def stop(self, backend: int | None, *, begins: bool = False, ends: bool = False) -> None:
        """Wait in the thread of an operation, before a statement."""
        gate = getattr(self.local, "gate", None)
        if gate is None:
            return
        with self.changed:
            gate.state, gate.backend = "begins" if begins else "waiting", backend
            self.changed.notify_all()
        gate.is_open.wait()
        gate.is_open.clear()
        if ends:
            self.has_file = None

    def _let(self, gate: Gate) -> None:
        if gate.state == "begins":
            self.has_file = gate
        with self.changed:
            gate.state = "running"
        gate.is_open.set()

    def _is_able(self, gate: Gate) -> bool:
        return gate.state == "waiting" or (gate.state == "begins" and self.has_file is None)

    def _settle(self) -> None:
        """Wait until every thread stops, has finished, or waits for a lock."""
        while True:
            with self.changed:
                running = [gate for gate in self.gates if gate.state == "running"]
                if not running:
                    return
                self.changed.wait(0.002)
                running = [gate for gate in running if gate.state == "running"]
            if running and {gate.backend for gate in running} <= self.blocked():
                return


def explore(run: Callable[[Sequence[int]], list[list[int]]]) -> int:
    """Run every order once, and return how many there are."""
    stack: list[list[int]] = [[]]
    count = 0
    while stack:
        order = stack.pop()
        choices = run(order)
        count += 1
        taken = order + [able[0] for able in choices[len(order) :]]
        for step in range(len(order), len(choices)):
            stack += [[*taken[:step], other] for other in choices[step][1:]]
    return count


class Database:
    """A database whose statements stop at the gates of a schedule."""

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self.table = KeyTable(url=url, table="keys")
        self.table.erase("somebody")  # creates the table
        self.is_sqlite = url.startswith("sqlite")
        if not self.is_sqlite:  # connections are used again
            patch.setattr(sa.pool, "NullPool", sa.pool.QueuePool)
        self.engine = self.table._engine()
        self.schedule: Schedule | None = None
        self.monitor = None if self.is_sqlite else self.engine.connect()
        sa.event.listen(self.engine, "before_cursor_execute", self._before)
        sa.event.listen(self.engine, "commit", self._commit)
        patch.setattr(KeyTable, "_engine", lambda _: self.engine)
        patch.setattr(self.engine, "dispose", lambda: None)
        patch.setattr(sa, "inspect", lambda _: self)  # the table is there

    def has_table(self, name: str, schema: str | None) -> bool:
        return True

    def _before(self, connection: Any, _: Any, statement: str, *__: Any) -> None:
        begins = statement.startswith("BEGIN")
        if self.schedule is not None and (begins or " keys" in statement):
            connection.info["at work"] = True
            self.schedule.stop(self._backend(connection), begins=begins)

    def _commit(self, connection: Any) -> None:
        if self.schedule is not None and connection.info.pop("at work", None):
            self.schedule.stop(self._backend(connection), ends=True)

    def _backend(self, connection: Any) -> int | None:
        return None if self.is_sqlite else connection.connection.driver_connection.info.backend_pid

    def blocked(self) -> set[int]:
        """The backends that wait for a lock."""
        if self.monitor is None:
            return set()
        query = "SELECT pid FROM pg_locks WHERE NOT granted"
        found = {row[0] for row in self.monitor.exec_driver_sql(query)}
        self.monitor.rollback()
        return found

    def stored(self) -> Rows:
        """The committed rows, read without a gate."""
        schedule, self.schedule = self.schedule, None
        try:
            return read(self.table)
        finally:
            self.schedule = schedule

    def check_orders(self, names: Sequence[str], start: str) -> int:
        """Run operations in every order, and check the law after each."""

        def run(order: Sequence[int]) -> list[list[int]]:
            with self.engine.begin() as connection:
                connection.exec_driver_sql("DELETE FROM keys")
            STARTS[start](self.table)
            law = Law(names, self.stored())
            schedule = self.schedule = Schedule(self.table, names, self.blocked)
            try:
                choices = schedule.run(order, lambda n: law.after(n, schedule, self))
            finally:
                self.schedule = None
            law.in_the_end(self.stored(), schedule)
            return choices

        return explore(run)


class Law:
    """What holds for every order."""

    def __init__(self, names: Sequence[str], start: Rows) -> None:
        self.names, self.start = names, start
        self.is_erased = bool(start) and None in start.values()
        self.keys: Rows = dict(start)
        """Every key that was seen."""

    def after(self, number: int, schedule: Schedule, database: Database) -> None:
        """Once an operation has returned."""
        result = schedule.gates[number].result
        assert not isinstance(result, Exception), result
        if self.names[number] == "erase":
            self.is_erased = True
        if self.names[number] in ("create", "read"):
            self._look(result)
            assert result or self.names[number] == "read"
        if self.is_erased and not database.is_sqlite:
            stored = database.stored()
            assert {*stored.values()} == {None}, "a key is left after the erasure"

    def in_the_end(self, stored: Rows, schedule: Schedule) -> None:
        """Once all have returned."""
        self._look(stored)
        results = [(gate.name, gate.result) for gate in schedule.gates]
        rotated = sum(result for name, result in results if name == "rotate")
        erased = sum(result for name, result in results if name == "erase")
        if self.is_erased:
            assert {*stored.values()} == {None}
            assert "erase" not in self.names or erased <= 1
        created = 1 if not self.start and {"create", "erase"} & {*self.names} else 0
        assert sorted(stored) == [*range(1, len(self.start) + created + rotated + 1)]

    def _look(self, seen: Rows) -> None:
        """A reader sees all keys, or the erasure; and a key never changes."""
        assert len({key is None for key in seen.values()}) <= 1, "one of two keys is erased"
        for version, key in seen.items():
            if key is not None:
                assert (self.keys.get(version) or key) == key, "the key of a version changed"
                self.keys[version] = key


@pytest.fixture
def on_postgres(postgres: str) -> Iterator[Database]:
    pytest.importorskip("psycopg")
    folder = postgres.partition("host=")[2].split()[0]
    with pytest.MonkeyPatch.context() as patch:
        database = Database(f"postgresql+psycopg://postgres@/postgres?host={folder}", patch)
        yield database
        database.monitor.close()
        database.engine.pool.dispose()


@pytest.mark.smoke
def test_every_order_on_postgres(
    on_postgres: Database, record_property: Callable[[str, object], None]
) -> None:
    count = sum(on_postgres.check_orders(names, start) for names, start in CASES)
    record_property("orders", count)
    assert count > len(CASES)


def test_every_order_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction has the whole file, so only their order differs."""
    database = Database(f"sqlite:///{tmp_path}/keys.db", monkeypatch)
    some = CASES if IS_LONG else [(names, start) for names, start in CASES if start == "two keys"]
    cases = [case for case in some if len(case[0]) == 2]
    assert sum(database.check_orders(names, start) for names, start in cases) > len(cases)
