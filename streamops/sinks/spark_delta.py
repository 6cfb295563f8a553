"""Write micro-batches to a Delta table with Delta's connector for Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from streamops.kernel.databases import public_path
from streamops.sinks import conditions, connectors
from streamops.sinks.core import delta_history
from streamops.sinks.core.delta_log import Found
from streamops.sinks.core.ledger import Decision, Delivery, Entry
from streamops.sinks.protocol import Conflict
from streamops.sinks.spark_writer import Delivered, SparkSink
from streamops.spark.columns import quote

_CONF = "spark.databricks.delta"
_RECENT = 20
"""How many commits are read first. Usually the last one has the entry."""


@dataclass(frozen=True)
class _Seen:
    """A version of a table that was read: the id of the table, its numbers, and the entry."""

    table: str
    version: int
    number: int | None
    found: Found

    def close(self) -> None:
        """Nothing must be released."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SparkDeltaSink(SparkSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = "sinks.delta"
    rows_removed = conditions.SPARK_ROWS_REMOVED
    conflicts = re.compile(r"DELTA_(CONCURRENT_|METADATA_CHANGED|PROTOCOL_CHANGED)")
    _format = "delta"

    path: str = field(metadata={"shown": lambda path: repr(public_path(path))})

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self._label!r})"

    @property
    def _label(self) -> str:
        return public_path(self.path)

    @property
    def _table(self) -> str:
        return f"delta.{quote(self.path)}" if "/" in self.path else self.path

    def _files(self, spark: SparkSession) -> Any:
        """What the connector knows about the files of the table."""
        return connectors.relation(spark.table(self._table)).relation().location()

    def _partitions(self, spark: SparkSession) -> list[str]:
        columns = self._files(spark).getSnapshot().metadata().partitionColumns()
        return [str(columns.apply(at)) for at in range(columns.size())]

    def _history(self, spark: SparkSession, *limits: int | None) -> Iterator[Any]:
        """The commits, the newest first. More are read if one limit is exhausted; None: all."""
        read = 0
        for limit in limits:
            listed = "" if limit is None else f" LIMIT {limit}"
            commits = spark.sql(f"DESCRIBE HISTORY {self._table}{listed}").collect()
            yield from commits[read:]
            read = len(commits)

    def _numbers(self, snapshot: Any) -> dict[str, int]:
        found = snapshot.setTransactions()
        actions = [found.apply(at) for at in range(found.size())]
        return {str(action.appId()): int(action.version()) for action in actions}

    def _find(self, spark: SparkSession, delivery: Delivery | None) -> Found:
        found = self._read(spark).found
        if delivery is None or found.entry is None:
            return found
        facts = delivery.query, delivery.batch, delivery.rows, delivery.digest
        return Found(delta_history.recalled(found.entry, *facts), found.removed_by)

    def _read(self, spark: SparkSession) -> _Seen:
        """The newest version of the table. Only commits that are not known are read."""
        seen: Any = self.session.connection
        snapshot = self._files(spark).getSnapshot()
        table, version = str(snapshot.metadata().id()), int(snapshot.version())
        numbers = self._numbers(snapshot)
        number = numbers.get(delta_history.application(self.name))
        is_known = seen is not None and seen.table == table and seen.version <= version
        new = version - seen.version if is_known else 0
        if is_known and seen.number == number is not None:
            # Others may have committed after the snapshot was read.
            listed = self._history(spark, new + _RECENT) if new else ()
            since = [commit for commit in listed if commit["version"] > seen.version]
            found = delta_history.find_entry(numbers, self.name, since)
            found = Found(seen.found.entry, found.removed_by or seen.found.removed_by)
        else:
            commits = self._history(spark, new + 1, new + _RECENT, None)
            found = delta_history.find_entry(numbers, self.name, commits)
        now = _Seen(table, version, number, found)
        self.session.connection = now
        return now

    def _others(self, spark: SparkSession) -> dict[str, Entry]:
        numbers = self._numbers(self._files(spark).getSnapshot())
        return delta_history.other_entries(numbers, self.name, self._history(spark, None))

    def _write(self, content: Delivered, decision: Decision, entry: Entry | None) -> None:
        seen: Any = self.session.connection
        number = delta_history.next_number(seen.number, entry, decision)
        text = delta_history.to_text(self.name, number, decision.entry)
        settings = {
            f"{_CONF}.write.txnAppId": delta_history.application(self.name),
            f"{_CONF}.write.txnVersion": str(number),
            f"{_CONF}.commitInfo.userMetadata": text,
        }
        self._apply(content, decision, self._table, settings)
        # The connector takes a commit whose number is not above the last one for done.
        if self._read(content.session).found.entry != decision.entry:
            raise Conflict()
