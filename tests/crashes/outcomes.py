"""Every call of a lake's sink that changes something outside, with every outcome: ``python -m tests.crashes.outcomes``.

=========  =======================================================================================
outcome    what happens
=========  =======================================================================================
lost       the call takes effect, and its answer is lost: the sink hears of an error of the network
repeated   the call takes effect, the transport repeats it, and the sink hears the second answer
nothing    the call takes no effect, and the sink hears of an error
=========  =======================================================================================

Then a client that is not the sink reads the table: each of its snapshots or versions, to which tags and branches
may refer, has the rows that it had, and the newest one has all rows of a micro-batch or none, and all if the sink
has reported no error. The micro-batch is delivered again, by this process or the next one, and so are the rest. In
the end each row is there once.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.sinks import leftovers
from streamops.sinks.core.iceberg_files import _Writer
from streamops.sinks.delta_files import DeltaFiles
from streamops.sinks.parquet_folder import Folder
from streamops.spark.identity import Identity
from tests.crashes.sinks import as_rows
from tests.laws.sink_histories import FIXED, History, comparable
from tests.sinks.attempts import Attempts, deliver

OUTCOMES = LOST, REPEATED, NOTHING = "lost", "repeated", "nothing"
Versions = dict[Any, list[str]]
"""The rows of each snapshot or version of a table, the newest last."""


class Call(NamedTuple):
    """A function that changes something outside.

    Parameters
    ----------
    owner, name : object, str
        Where it is.
    again : function, optional
        What the transport hears when it repeats a call that took effect; the same call, if it is None.
    """

    owner: Any
    name: str
    again: Callable[[], Any] | None = None


def no_answer() -> Any:
    """The network is gone."""
    raise ConnectionError("no answer")


class Outside:
    """The outcome of the n-th call, and how many there were."""

    def __init__(self, calls: Sequence[Call], number: int, outcome: str) -> None:
        self.calls, self.number, self.outcome, self.passed = calls, number, outcome, 0
        self.patch = pytest.MonkeyPatch()

    def __enter__(self) -> Outside:
        for call in self.calls:
            found = vars(call.owner)[call.name] if isinstance(call.owner, type) else None
            decorate = type(found) if isinstance(found, staticmethod | classmethod) else None
            function = getattr(found, "__func__", None) or getattr(call.owner, call.name)
            changed = self._changed(function, call.again)
            self.patch.setattr(call.owner, call.name, decorate(changed) if decorate else changed)
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def _changed(self, function: Any, again: Callable[[], Any] | None) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            self.passed += 1
            if self.passed != self.number:
                return function(*arguments, **named)
            if self.outcome == NOTHING:
                no_answer()
            result = function(*arguments, **named)
            if self.outcome == LOST:
                no_answer()
            return again() if again is not None else function(*arguments, **named) or result

        return run


def is_taken(error: str = "CommitFailedError") -> Any:
    """A conditional put of the next version that is repeated finds the version."""
    raise getattr(import_module("deltalake.exceptions"), error)("the version exists already")


LEFTOVERS = [Call(leftovers, name) for name in ("write_file", "delete", "delete_folder")]


class Lake:
    """A table in a folder."""

    calls: Sequence[Call]
    forms: Sequence[str] = tuple(FIXED)

    def __init__(self, folder: str, history: History) -> None:
        self.folder, self.history = folder, history

    def sink(self) -> Any:
        """A sink, as of a process that has just started."""

    def versions(self) -> Versions:
        """What a client reads of each version."""

    def expected(self, count: int) -> list[str]:
        """What the table has after so many micro-batches, of which the first has insertions only."""
        if count == len(self.history.batches):
            return comparable(self.history.expected)
        return as_rows(self.history.batches[0], self.history) if count else []


class Iceberg(Lake):
    """A catalog in SQLite."""

    calls = (
        *LEFTOVERS,
        *(Call(import_module("pyiceberg.catalog.sql").SqlCatalog, name) for name in ("commit_table", "create_table", "create_namespace")),
        Call(import_module("pyiceberg.io.pyarrow").PyArrowFileIO, "delete"),
        Call(_Writer, "_finish", lambda: None),
    )  # fmt: skip

    def __init__(self, folder: str, history: History) -> None:
        super().__init__(folder, history)
        uri = f"sqlite:///{folder}/catalog.db"
        self.properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"}

    def sink(self) -> Any:
        return sinks.iceberg(self.properties, "shop.t", **self.history.options)

    def versions(self) -> Versions:
        pyiceberg = import_module("pyiceberg.catalog")
        catalog = pyiceberg.load_catalog(**self.properties)
        if not catalog.table_exists("shop.t"):
            return {}
        table = catalog.load_table("shop.t")
        found = {
            snapshot.snapshot_id: as_rows(
                table.scan(snapshot_id=snapshot.snapshot_id).to_arrow(), self.history
            )
            for snapshot in table.metadata.snapshots
        }
        current = table.metadata.current_snapshot_id
        return {**found, "current": found[current]} if current else {}


class Delta(Lake):
    """A table of Delta Lake."""

    calls = (
        *LEFTOVERS,
        Call(import_module("deltalake"), "write_deltalake", is_taken),
        Call(import_module("deltalake").DeltaTable, "create_write_transaction", is_taken),
        Call(import_module("deltalake").DeltaTable, "create", partial(is_taken, "DeltaError")),
        Call(import_module("deltalake.table").TableMerger, "execute", is_taken),
        Call(DeltaFiles, "write"),
    )

    def sink(self) -> Any:
        return sinks.delta(f"{self.folder}/t", **self.history.options)

    def versions(self) -> Versions:
        table_of = import_module("deltalake").DeltaTable
        if not table_of.is_deltatable(f"{self.folder}/t"):
            return {}
        newest = table_of(f"{self.folder}/t").version()
        found = {}
        for version in range(newest + 1):
            rows = pa.table(table_of(f"{self.folder}/t", version=version).scan().read_all())
            found[version] = as_rows(rows, self.history)
        return {**found, "current": found[newest]}


class Parquet(Lake):
    """A folder with manifests."""

    calls = (
        *LEFTOVERS,
        Call(Folder, "write"),
        Call(Folder, "move", lambda: False),  # a link that exists, as NFS answers
        Call(Folder, "_mark_newest"),
    )
    forms = ("append",)

    def sink(self) -> Any:
        return sinks.parquet(f"{self.folder}/t", **self.history.options)

    def versions(self) -> Versions:
        try:
            table = sinks.read_parquet(f"{self.folder}/t", check="content").to_table()
        except SinkError as error:
            if error.code != "TARGET_MISSING":
                raise
            return {}
        return {"current": comparable(map(dict.values, table.to_pylist()))}


LAKES: dict[str, type[Lake]] = {"Iceberg": Iceberg, "Delta": Delta, "Parquet": Parquet}


@dataclass
class Figures:
    """How many calls had an outcome, of how many the sink reported an error, and which changed nothing."""

    calls: int = 0
    reported: int = 0
    unnoticed: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, n) + getattr(other, n) for n in vars(self)))

    def __str__(self) -> str:
        return " | ".join(map(str, vars(self).values()))


def pass_outcomes(lake_of: type[Lake], form: str, way: str, outcome: str) -> Figures:
    """Let each call of each micro-batch have an outcome, once."""
    history, figures = FIXED[form], Figures()
    for failed in range(len(history.batches)):
        for number in itertools.count(1):
            with tempfile.TemporaryDirectory() as folder:
                found = _pass(lake_of(folder, history), failed, number, way, outcome)
            if found is None:
                break
            figures = figures + found
    return figures


def _pass(lake: Lake, failed: int, number: int, way: str, outcome: str) -> Figures | None:
    """Let a call of a micro-batch have an outcome; None if there are fewer calls."""
    history, sink = lake.history, lake.sink()
    for batch in range(failed):
        _write(sink, history, batch, "run 0", way)
    before, is_done = lake.versions(), True
    with Outside(lake.calls, number, outcome) as outside:
        try:
            _write(sink, history, failed, "run 0", way)
        except SinkError as error:
            is_done = False
            if error.code != "TARGET_UNAVAILABLE":
                raise
    if outside.passed < number:
        return None
    now = _check(lake, before, failed, is_done=is_done)
    if number % 2:  # the next process goes on, or the same one
        sink = lake.sink()
    for batch in range(failed, len(history.batches)):
        _write(sink, history, batch, f"run {number % 2}", way)
    _check(lake, now, len(history.batches) - 1, is_done=True)
    return Figures(1, int(not is_done), int(is_done))


def _write(sink: Any, history: History, batch: int, run: str, way: str) -> None:
    rows, identity = history.batches[batch], Identity("query", run)
    if way == "tasks":
        deliver(sink, Attempts(rows), batch, identity)
    else:
        sink._deliver_rows(rows, batch, identity)


def _check(lake: Lake, before: Versions, batch: int, *, is_done: bool) -> Versions:
    """Each version has its rows still, and the newest one the micro-batch, or not yet."""
    now = lake.versions()
    retained = {name: now.get(name) for name in before if name != "current"}
    assert retained == {name: rows for name, rows in before.items() if name != "current"}
    allowed = [lake.expected(batch + 1), *([] if is_done else [lake.expected(batch)])]
    assert now.get("current", []) in allowed, (now.get("current"), allowed)
    return now


def program(names: Sequence[str]) -> Iterator[tuple[str, str, str, str, Figures]]:
    """All outcomes of all calls: the figures of each lake, form, way and outcome."""
    for name in names:
        lake = LAKES[name]
        for form, way, outcome in itertools.product(lake.forms, ("driver", "tasks"), OUTCOMES):
            yield name, form, way, outcome, pass_outcomes(lake, form, way, outcome)


def main() -> None:
    """Print a line for each lake, form, way and outcome."""
    print("| sink | form | by | outcome | calls | reported | unnoticed | s |")
    print("|---|---|---|---|---:|---:|---:|---:|", flush=True)
    begin, total = time.monotonic(), Figures()
    for *names, found in program(list(LAKES)):
        total = total + found
        print(f"| {' | '.join(names)} | {found} | {time.monotonic() - begin:.0f} |", flush=True)
    print(f"| all | | | | {total} | |")


if __name__ == "__main__":
    main()
