"""Tasks that write micro-batches, and end or wait between their delivery and their receipt."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from streamops.sinks.kafka_partitions import PartitionedWrite
from streamops.sinks.sink import Sink
from streamops.sinks.sqlalchemy import SqlalchemySink
from streamops.sinks.tasks import Deliver, Part

WORKER, EXECUTOR = "Python worker", "executor"
"""What is killed between delivery and receipt, in turn."""
SLOW, COPY = "slow task", "speculative copy of a task"
"""What waits there instead, and what Spark then starts."""

CONF = {"spark.task.maxFailures": "10"}
"""Tasks fail more often than by accident."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
}
_MOST = 10.0  # seconds that a killed executor lives
_PATIENCE = 20.0  # seconds that a slow task waits for its copy
_BOTH = 3.0  # seconds that it may live after its copy has delivered


def write_all_by_tasks() -> None:
    """Take no micro-batch of this process for small."""
    for sink in (Sink, SqlalchemySink):
        sink._small = -2


def sabotage(sink: Any, folder: Path, target: str, *, slow: bool = False) -> Any:
    """Let one attempt of a task of each micro-batch end, or wait for its copy, before its receipt."""
    prepare = sink._prepare

    def prepare_to_end(schema: pa.Schema, batch: int, action: Any) -> Any:
        deliver = prepare(schema, batch, action)
        name = SLOW if slow else EXECUTOR if batch % 2 else WORKER
        marker = str(folder / f"{target} {batch} {name}")
        if isinstance(deliver, PartitionedWrite):
            given = {part.name: getattr(deliver, part.name) for part in fields(deliver)}
            return _PartitionedWrite(**given, marker=marker)
        return partial(_deliver, deliver, marker)

    folder.mkdir(exist_ok=True)
    object.__setattr__(sink, "_prepare", prepare_to_end)
    return sink


@dataclass(frozen=True, kw_only=True)
class _PartitionedWrite(PartitionedWrite):
    marker: str

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[Part]:
        parts = list(super().__call__(tables))
        _interrupt(self.marker)
        yield from parts


def _deliver(deliver: Deliver, marker: str, tables: Iterator[pa.Table]) -> list[Part]:
    parts = list(deliver(tables))
    _interrupt(marker)
    return parts


def _interrupt(marker: str) -> None:
    if marker.endswith(SLOW):
        _wait_once(marker)
    else:
        _end_once(marker)


def _wait_once(marker: str) -> None:
    """Wait until a copy of this task has delivered the same rows, unless a task has done that."""
    task = TaskContext.get()
    assert task is not None
    copy = Path(f"{marker} {task.partitionId()} {COPY}")
    if task.attemptNumber() and not copy.exists():
        copy.touch()
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    end = time.monotonic() + _PATIENCE
    while not copy.exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(random.uniform(0, _BOTH))  # Spark kills it, or both have a receipt


def _end_once(marker: str) -> None:
    """Kill this process or its executor, unless that was done."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    pid = os.getpid()
    if marker.endswith(EXECUTOR):  # it has started the process that forks workers
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        pid = int(daemon.rpartition(") ")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    time.sleep(_MOST)


def interrupted(folder: Path) -> Counter[str]:
    """What was killed, or run twice, between delivery and receipt."""
    names = [file.name for file in folder.glob("*")]
    found = {what: sum(name.endswith(what) for name in names) for what in (WORKER, EXECUTOR, COPY)}
    return Counter(
        {f"{what} between delivery and receipt": count for what, count in found.items() if count}
    )
