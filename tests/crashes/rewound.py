"""A query whose target is restored from a copy of every micro-batch, and whose checkpoint is rewound to it.

The query then continues in other micro-batches, past all versions that its state had before, and starts once
more from what it stored: a file of the former state would be read then.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import sinks, state, windows
from streamops.environment.settings import PARTITIONS, PROVIDER
from streamops.kernel import segments
from streamops.spark.identity import unload_state_stores
from tests.crashes.queries import APPLY, STORES, TRANSFORM, run
from tests.settings import configured

_STORE = "spark.sql.streaming.stateStore"
_CHANGES = f"{_STORE}.rocksdb.changelogCheckpointing.enabled"
_FORMAT = f"{_STORE}.checkpointFormatVersion"
_DELTAS, _PAUSE = f"{_STORE}.minDeltasForSnapshot", f"{_STORE}.maintenanceInterval"
_END = "~"
_ROWS = 10


@dataclass(frozen=True)
class Rewound:
    """A query on a state store.

    Parameters
    ----------
    store : str
        One of ``STORES``.
    engine : str
        The state API that runs it, or "native": Spark's own windows.
    has_changes : bool
        Whether RocksDB stores the changes of each micro-batch, and snapshots beside them.
    format : int
        Version of the format of the checkpoint.
    """

    store: str
    engine: str
    has_changes: bool = False
    format: int = 1

    def __str__(self) -> str:
        changes = " with changes" if self.has_changes else ""
        return f"{self.store}{changes}: {self.engine}, format {self.format}"

    def settings(self, spark: SparkSession, pause: str) -> AbstractContextManager[SparkSession]:
        """A session that writes a snapshot of every version, if maintenance runs in time."""
        wanted = {
            PARTITIONS: "2",
            PROVIDER: STORES[self.store],
            _CHANGES: str(self.has_changes).lower(),
            _FORMAT: str(self.format),
            _DELTAS: "0" if self.store == "hdfs" else "1",
            _PAUSE: pause,
            "spark.sql.ansi.enabled": "true",  # for a native sum of integers
        }
        return configured(spark, wanted)

    def frame(self, spark: SparkSession, folder: Path, shards: int) -> DataFrame:
        """Counts of the rows in the files of a folder, by key. All of its rows are in segments, if it can."""
        counts = windows.tumbling(
            "1 hour", time="ts", by="k", agg={"n": agg.count(), "v": agg.sum("v")}, delay="1 second"
        )
        engine = {"engine": "native"} if self.engine == "native" else {"state_api": self.engine}
        options: dict[str, Any] = {"shards": shards, **engine}
        rows = spark.readStream.schema("k string, ts timestamp, v long")
        with patch.object(segments, "LIMIT", 0):
            return (
                rows.option("maxFilesPerTrigger", 1)
                .json(str(folder))
                .transform(counts.options(**options))
            )


def write_inputs(folder: Path, first: int, count: int) -> None:
    """Write files, each of which becomes a micro-batch: with rows of two keys, and of one of its own.

    A file with changes has all of a key that its micro-batch changed, and would hide that others are lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        rows = [
            {"k": "ab"[n % 2], "ts": f"2026-01-01 00:00:{n + number % 40:02}", "v": number + n}
            for n in range(_ROWS)
        ]
        rows.append({"k": f"of {number}", "ts": "2026-01-01 00:00:00", "v": number})
        _write(folder / f"{number:03}.json", rows)


def write_end(folder: Path) -> None:
    """Write a row that closes all windows."""
    _write(folder / "end.json", [{"k": _END, "ts": "2026-01-09 00:00:00", "v": 0}])


def _write(file: Path, rows: list[dict[str, Any]]) -> None:
    hidden = file.with_name(f".{file.name}")
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(file)


def expected_rows(files: int) -> Counter[tuple[str, int, int]]:
    """The batch result of so many files."""
    found: Counter[tuple[str, int, int]] = Counter()
    for of, key in enumerate("ab"):
        values = [number + n for number in range(files) for n in range(of, _ROWS, 2)]
        found[key, len(values), sum(values)] = 1
    found.update((f"of {number}", 1, number) for number in range(files))
    return found


class History:
    """A query with a copy of its target after every micro-batch, and snapshots of every version."""

    def __init__(
        self, spark: SparkSession, query: Rewound, folder: Path, *, micro_batches: int
    ) -> None:
        self.spark, self.query, self.folder, self.count = spark, query, folder, micro_batches
        self.files = 2 * micro_batches + 2
        """The number of files in the end: a continued query has more micro-batches than the former one."""
        self.work = folder / "work"
        self.target = str(self.work / "target")
        self.checkpoint = self.work / "checkpoint"

    def record(self) -> None:
        """Run the query over its files."""
        write_inputs(self.work / "inputs", 0, self.count)

        def deliver(batch: DataFrame, number: int) -> None:
            sinks.parquet(self.target)(batch, number)
            shutil.copytree(self.target, self.folder / "copies" / str(number))
            self._wait_for_snapshots(number + 1)

        unload_state_stores()
        with self.query.settings(self.spark, "50ms"):
            run(self.query.frame(self.spark, self.work / "inputs", 2), deliver, self.checkpoint)
        unload_state_stores()
        shutil.copytree(self.work, self.folder / "kept")

    def _wait_for_snapshots(self, version: int) -> None:
        """Spark writes snapshots in the background."""
        end = time.monotonic() + 60
        suffix = "snapshot" if self.query.store == "hdfs" else "zip"
        pattern = f"{version}.{suffix}" if self.query.format == 1 else f"{version}_*.{suffix}"
        while len(list((self.checkpoint / "state" / "0").glob(f"[01]/{pattern}"))) < 2:
            assert time.monotonic() < end, f"no snapshot of version {version}"
            time.sleep(0.02)

    def continue_from(self, number: int, *, shards: int = 2) -> Counter[tuple[str, int, int]]:
        """Rewind to a micro-batch, continue, start once more, and return the rows of the target.

        With another number of shards, the checkpoint is rescaled first.
        """
        shutil.rmtree(self.work)
        shutil.copytree(self.folder / "kept", self.work)
        shutil.rmtree(self.target)
        shutil.copytree(self.folder / "copies" / str(number), self.target)
        checkpoint, sink = self.checkpoint, sinks.parquet(self.target)
        planned = sinks.rewind(str(checkpoint), sink)
        assert sinks.rewind(str(checkpoint), sink, dry_run=False) == planned
        if shards != 2:
            checkpoint = self.work / "rescaled"
            state.rescale(self.checkpoint, checkpoint, shards=shards, spark=self.spark)
        inputs = self.work / "inputs"
        with self.query.settings(self.spark, "1h"):
            for last in (False, True):
                write_end(inputs) if last else write_inputs(inputs, self.count, self.count + 2)
                unload_state_stores()
                run(
                    self.query.frame(self.spark, inputs, shards),
                    sinks.parquet(self.target),
                    checkpoint,
                )
        unload_state_stores()
        rows = sinks.read_parquet(self.target).to_table().to_pylist()
        return Counter((row["k"], row["n"], row["v"]) for row in rows if row["k"] != _END)

    def differences(self, numbers: Iterable[int], **options: Any) -> list[str]:
        """Continue from micro-batches, and compare the rows with the batch result."""
        expected, found = expected_rows(self.files), []
        for number in numbers:
            rows = self.continue_from(number, **options)
            if rows != expected:
                found.append(f"{self.query}, back to {number}, {options}: {rows}, not {expected}")
        return found


QUERIES = (
    Rewound("hdfs", "native"),
    Rewound("hdfs", APPLY),
    *(
        Rewound("rocksdb", engine, has_changes)
        for engine in ("native", TRANSFORM)
        for has_changes in (False, True)
    ),
    Rewound("rocksdb", TRANSFORM, has_changes=True, format=2),
)
