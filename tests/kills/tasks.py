"""Tasks that write micro-batches, and end between their delivery and their receipt."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from streamops.sinks import sink as sinks
from streamops.sinks.kafka_partitions import PartitionedWrite
from streamops.sinks.tasks import Deliver, Part

WORKER, EXECUTOR, SLOW, AGAIN = "Python worker", "executor", "slow attempt", "next attempt"
"""What ends between delivery and receipt, in turn; and what shows that Spark ran the task again."""

_TURNS = WORKER, SLOW, EXECUTOR, SLOW
_SLOW = 4.0  # seconds

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.task.maxFailures": "10",
}
"""The configuration with which Spark runs slow tasks twice."""


def write_all_by_tasks() -> None:
    """Take no micro-batch of this process for small."""
    sinks.SMALL = -2  # type: ignore[attr-defined]


def sabotage(sink: Any, folder: Path, target: str) -> Any:
    """Let one attempt of a task of each micro-batch end before its receipt, or take long."""
    prepare = sink._prepare

    def prepare_to_end(schema: pa.Schema, batch: int, action: Any) -> Any:
        deliver = prepare(schema, batch, action)
        marker = str(folder / f"{target} {batch} {_TURNS[batch % len(_TURNS)]}")
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
        _end_once(self.marker)
        yield from parts


def _deliver(deliver: Deliver, marker: str, tables: Iterator[pa.Table]) -> list[Part]:
    parts = list(deliver(tables))
    _end_once(marker)
    return parts


def _end_once(marker: str) -> None:
    """End this process or its executor, or wait, unless that was done."""
    context = TaskContext.get()
    task = "" if context is None else f"{context.stageId()} {context.partitionId()}"
    try:
        with Path(marker).open("x") as file:
            file.write(task)
    except FileExistsError:
        if Path(marker).read_text() == task:
            Path(f"{marker}, {AGAIN}").touch()
        return
    if marker.endswith(SLOW):
        time.sleep(_SLOW)
        return
    pid = os.getpid()
    if marker.endswith(EXECUTOR):  # it has started the process that forks workers
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        pid = int(daemon.rpartition(") ")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    time.sleep(_SLOW)


def ended(folder: Path) -> list[str]:
    """What has ended between delivery and receipt, and each slow attempt that another one overtook."""
    found = []
    for file in folder.glob("*"):
        what = next((w for w in (WORKER, EXECUTOR, SLOW) if file.name.endswith(w)), None)
        if what in {WORKER, EXECUTOR}:
            found.append(f"{what} between delivery and receipt")
        elif what == SLOW and Path(f"{file}, {AGAIN}").exists():
            found.append("slow attempt whose task ran again, too")
    return found
