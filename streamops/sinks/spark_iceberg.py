"""Write micro-batches to an Iceberg table with Iceberg's runtime for Spark.

A micro-batch is written to a branch of its own, which nobody reads. One commit of the catalog then moves the main
branch to it, and stores the entry, if the main branch and the entry are as they were read. So any statement of the
connector takes part in the transaction, and the ledger is that of the other writer.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from streamops.sinks import conditions, connectors
from streamops.sinks.core import iceberg_log
from streamops.sinks.core.iceberg_log import Found
from streamops.sinks.core.ledger import Decision, Delivery, Entry
from streamops.sinks.protocol import Conflict
from streamops.sinks.spark_writer import Delivered, SparkSink
from streamops.spark.columns import quote

_SUMMARY = "spark.sql.iceberg.snapshot-property."
_MAIN = "main"


class _Snapshots:
    """The snapshots of a table by their ids, as `iceberg_log` reads them."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def get(self, number: int) -> Any:
        found = self._table.snapshot(number)
        if found is None:
            return None
        operation = SimpleNamespace(value=str(found.operation()))
        return SimpleNamespace(
            summary=SimpleNamespace(
                additional_properties=dict(found.summary()), operation=operation
            ),
            parent_snapshot_id=found.parentId(),
            sequence_number=found.sequenceNumber(),
        )


@dataclass(frozen=True)
class _Read:
    """What a commit depends on: the main branch, the entry as text, and the entries of all sinks."""

    table: Any
    main: int | None
    text: str | None
    found: Mapping[str, Found]

    def close(self) -> None:
        """Nothing must be released."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SparkIcebergSink(SparkSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = "sinks.iceberg"
    rows_removed = conditions.SNAPSHOT_REMOVED_ROWS
    conflicts = re.compile("CommitFailedException|ValidationException|[Bb]ranch .*does not exist")
    _format = "iceberg"

    catalog: str
    table: str

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self.table!r})"

    @property
    def _label(self) -> str:
        return f"{self.catalog}.{self.table}"

    @property
    def _table(self) -> str:
        return ".".join(map(quote, [self.catalog, *self.table.split(".")]))

    @property
    def _branches(self) -> str:
        """How the names of the branches of this sink begin."""
        return f"streamops_{hashlib.sha256(self.name.encode()).hexdigest()[:8]}_"

    def _partitions(self, spark: SparkSession) -> list[str]:
        return []  # an empty text is not null

    def _read(self, spark: SparkSession) -> _Read:
        table = connectors.relation(spark.table(self._table)).table().table()
        table.refresh()
        properties, main = dict(table.properties()), _main(table)
        history = iceberg_log.History(iter([_Snapshots(table)]))  # type: ignore[list-item]
        found = {
            name: iceberg_log.find_entry(properties, main, name, history)
            for name in (*iceberg_log.sinks_of(properties), self.name)
        }
        text = properties.get(iceberg_log.property_of(self.name))
        read = _Read(table, main, text, found)
        self.session.connection = read
        return read

    def _find(self, spark: SparkSession, delivery: Delivery | None) -> Found:
        return self._read(spark).found[self.name]

    def _others(self, spark: SparkSession) -> dict[str, Entry]:
        read: Any = self.session.connection
        others = {name: found.entry for name, found in read.found.items() if name != self.name}
        return {name: entry for name, entry in others.items() if entry is not None}

    def _write(self, content: Delivered, decision: Decision, entry: Entry | None) -> None:
        read: Any = self.session.connection
        branch = f"{self._branches}{uuid.uuid4().hex}"
        manage = read.table.manageSnapshots()
        if read.main is None:
            manage.createBranch(branch).commit()
        else:
            manage.createBranch(branch, read.main).commit()
        read.table.refresh()
        start = read.table.refs().get(branch).snapshotId()
        others = {name: found for name, found in read.found.items() if name != self.name}
        # Instead of the id of the snapshot, which is not known yet, a number that no other commit has.
        number = uuid.uuid4().int >> 65
        summary = iceberg_log.summary(self.name, decision, number, others)
        settings = {f"{_SUMMARY}{name}": value for name, value in summary.items()}
        target = f"{self._table}.`branch_{branch}`"
        self._apply(content, decision, target, settings)
        read.table.refresh()
        head = read.table.refs().get(branch)
        if head is not None and head.snapshotId() == start:  # MERGE has changed nothing
            self._apply(content, replace(decision, action="skip"), target, settings)
        self._publish(read, branch, start, summary[iceberg_log.property_of(self.name)])

    def _publish(self, read: _Read, branch: str, start: int, text: str) -> None:
        """Move the main branch to one that has a commit more, and store the entry."""
        read.table.refresh()
        transaction, name = read.table.newTransaction(), iceberg_log.property_of(self.name)
        table = transaction.table()
        head = table.refs().get(branch)
        is_next = head is not None and table.snapshot(head.snapshotId()).parentId() == start
        if _main(table) != read.main or table.properties().get(name) != read.text or not is_next:
            raise Conflict()
        transaction.updateProperties().set(name, text).commit()
        moved = transaction.manageSnapshots().fastForwardBranch(_MAIN, branch)
        # Also those of attempts that have failed.
        for other in list(table.refs()):
            if other.startswith(self._branches):
                moved = moved.removeBranch(other)
        moved.commit()
        transaction.commitTransaction()


def _main(table: Any) -> int | None:
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())
