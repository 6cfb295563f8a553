"""The targets whose files can be copied, each with its sink and with the states that a crash leaves in it."""

from __future__ import annotations

import json
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops import sinks
from streamops.sinks.core.kafka_records import VALUE
from streamops.sinks.delta import DeltaSink
from streamops.sinks.parquet import ParquetSink
from streamops.sinks.parquet_folder import Folder
from streamops.sinks.sink import BatchWriter, Sink
from streamops.sinks.sqlalchemy import SqlalchemySink

Rows = list[tuple[str, str]]
"""The operator of each row, and the row as JSON. The operator is empty if the target has the rows as they are."""

Hooks = list[tuple[Any, str, str, str]]
"""Functions by owner and name; whether a copy is taken before or after them; the name of the copy."""

_OPERATOR = "all"

BEFORE, AFTER = "started", "delivered"
"""The names of the copies that are taken of every target."""


class Target(ABC):
    """A folder with a target.

    Parameters
    ----------
    folder : Path
        The folder, which may be a copy.
    key : str, optional
        The key of the sink.
    """

    name: ClassVar[str]
    hooks: ClassVar[Hooks] = []

    def __init__(self, folder: Path, key: str | None = None) -> None:
        self.folder, self.key = folder, key

    @abstractmethod
    def sinks(self) -> list[Sink]:
        """New sinks, as of a driver that has just started."""

    def writer(self, sinks: Sequence[Sink]) -> BatchWriter:
        """What writes a micro-batch to these sinks."""
        (sink,) = sinks
        return sink

    @abstractmethod
    def rows(self) -> Rows:
        """What a reader finds."""

    @classmethod
    @abstractmethod
    def tear(cls, number: int) -> list[Torn]:
        """The two states that a crash in the middle of a write leaves."""


Damage = Callable[[Path, Path], bool]
"""From the copy, and the copy from before the micro-batch: whether there was something to damage."""

Torn = tuple[str, str, Damage]
"""What the crash leaves; of which copy it is made; and how."""


def truncate(file: Path) -> None:
    """Leave the first half of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def _new_files(copy: Path, before: Path, pattern: str) -> list[Path]:
    return [f for f in sorted(copy.rglob(pattern)) if not (before / f.relative_to(copy)).exists()]


def _truncate_new(pattern: str) -> Damage:
    def damage(copy: Path, before: Path) -> bool:
        files = _new_files(copy, before, pattern)
        for file in files[-1:]:
            truncate(file)
        return bool(files)

    return damage


class Parquet(Target):
    name = "parquet"
    hooks: ClassVar[Hooks] = [
        (Folder, "write_rows", "after", "files"),
        (Folder, "move", "before", "manifest"),
    ]

    def sinks(self) -> list[Sink]:
        return [sinks.parquet(str(self.folder / "archive"))]

    def rows(self) -> Rows:
        table = sinks.read_parquet(str(self.folder / "archive"), check="content").to_table()
        return pairs(table.to_pylist())

    @classmethod
    def tear(cls, number: int) -> list[Torn]:
        torn: Torn = ("torn manifest", AFTER, _truncate_new("*.json"))
        if number % 2:
            torn = ("manifest without its name", "manifest", _truncate_new("*.json.*"))
        return [("torn file", "files", _truncate_new("*.parquet")), torn]


class Delta(Target):
    name = "delta"

    def sinks(self) -> list[Sink]:
        return [sinks.delta(str(self.folder / "table"), key=self.key)]

    def rows(self) -> Rows:
        table = DeltaTable(str(self.folder / "table"))
        return pairs(pa.table(table.scan().read_all()).to_pylist())

    @classmethod
    def tear(cls, number: int) -> list[Torn]:
        return [
            ("torn file", AFTER, _tear_file_and_lose_commit),
            ("no commit", AFTER, _tear_commit),
        ]


def _tear_file_and_lose_commit(copy: Path, before: Path) -> bool:
    _last_commit(copy).unlink()
    return _truncate_new("*.parquet")(copy, before)


def _tear_commit(copy: Path, before: Path) -> bool:
    """The log gets the commit under a temporary name first, which is renamed."""
    commit = _last_commit(copy)
    truncate(commit)
    commit.rename(commit.with_name(f"_commit_{uuid.uuid4()}.json.tmp"))
    return True


def _last_commit(copy: Path) -> Path:
    return max(copy.rglob("_delta_log/*.json"))


class Sqlite(Target):
    name = "sqlalchemy"
    hooks: ClassVar[Hooks] = [
        (SqlalchemySink, "_prepare_tables", "after", "prepared"),
        (SqlalchemySink, "_apply", "after", "transaction"),
    ]

    def sinks(self) -> list[Sink]:
        return [sinks.sqlalchemy(f"sqlite:///{self.folder}/database", "rows", key=self.key)]

    def rows(self) -> Rows:
        with closing(sqlite3.connect(self.folder / "database")) as database:
            database.row_factory = sqlite3.Row
            return pairs(map(dict, database.execute("SELECT * FROM rows")))

    @classmethod
    def tear(cls, number: int) -> list[Torn]:
        return [
            ("in a transaction", "transaction", lambda copy, before: has_journal(copy)),
            ("no transaction", "prepared", lambda copy, before: True),
        ]


class SideOutputs(Target):
    """Results in two targets, and side output in a third one. Each has a ledger."""

    name = "side_outputs"
    hooks: ClassVar[Hooks] = [
        (ParquetSink, "_deliver", "after", "first"),
        (DeltaSink, "_deliver", "after", "second"),
    ]

    def sinks(self) -> list[Sink]:
        return [sink for part in self._parts() for sink in part.sinks()]

    def writer(self, sinks: Sequence[Sink]) -> BatchWriter:
        return divide(sinks)

    def rows(self) -> Rows:
        first, second, rejected = (part.rows() for part in self._parts())
        assert Counter(first) == Counter(second)
        return [*first, *undivided(rejected)]

    def _parts(self) -> list[Target]:
        return [part(self.folder) for part in TARGETS]

    @classmethod
    def tear(cls, number: int) -> list[Torn]:
        return [
            ("one of three sinks", "first", lambda copy, before: True),
            ("two of three sinks", "second", lambda copy, before: True),
        ]


def divide(writers: Sequence[BatchWriter]) -> BatchWriter:
    """Write a part of the rows to the first two sinks, and the others, as side output, to the third."""
    first, second, rejected = writers
    return sinks.side_outputs(
        results=sinks.fan_out({"first": first, "second": second}),
        rejected=rejected,
        operator=_OPERATOR,
    ).after(_tag)


def _tag(batch: DataFrame) -> DataFrame:
    """Let every third row or so be side output."""
    reason = F.struct(F.lit("unknown_operation").alias("reason"))
    return batch.withColumn("rejected", F.when(F.crc32("row") % 3 == 0, reason))


def undivided(rows: Rows) -> Rows:
    """The rows that are side output."""
    assert {operator for operator, _ in rows} <= {_OPERATOR}
    return pairs(json.loads(row) for _, row in rows)


def has_journal(copy: Path) -> bool:
    """Whether SQLite has to roll back the pages that were written."""
    return any(file.stat().st_size > 0 for file in copy.glob("*-journal"))


def spill(connection: Any, _: Any) -> None:
    """Let SQLite write pages of a transaction before it is committed, as with much larger ones."""
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("PRAGMA cache_spill = 1")


def pairs(rows: Iterable[dict[str, Any]]) -> Rows:
    """The rows of a target, or of a micro-batch."""
    return [
        (row["operator"], row["row"])
        if row.keys() >= {"operator", "row"}
        else ("", json.dumps(row, sort_keys=True))
        for row in map(_without_records, rows)
    ]


def _without_records(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a micro-batch for Kafka has its values as JSON, too, or only as JSON."""
    if VALUE not in row:
        return row
    change = {name: row[name] for name in ("_change_type",) if name in row}
    return {**json.loads(row[VALUE]), **change}


TARGETS: tuple[type[Target], ...] = (Parquet, Delta, Sqlite)
