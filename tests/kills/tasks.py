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

from streamops.sinks import sink as sinks
from streamops.sinks.kafka_partitions import PartitionedWrite
from streamops.sinks.tasks import Deliver, Part

WORKER, EXECUTOR = "Python worker", "executor"
"""What is killed between delivery and receipt, in turn."""

CONF = {"spark.task.maxFailures": "10"}
"""Tasks fail more often than by accident."""
_MOST = 10.0  # seconds that a killed executor lives


def write_all_by_tasks() -> None:
    """Take no micro-batch of this process for small."""
    sinks.SMALL = -2  # type: ignore[attr-defined]


def sabotage(sink: Any, folder: Path, target: str) -> Any:
    """Let one attempt of a task of each micro-batch end before its receipt."""
    prepare = sink._prepare

    def prepare_to_end(schema: pa.Schema, batch: int, action: Any) -> Any:
        deliver = prepare(schema, batch, action)
        marker = str(folder / f"{target} {batch} {EXECUTOR if batch % 2 else WORKER}")
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


def ended(folder: Path) -> list[str]:
    """What was killed between delivery and receipt."""
    of_executors = (file.name.endswith(EXECUTOR) for file in folder.glob("*"))
    return [f"{EXECUTOR if e else WORKER} between delivery and receipt" for e in of_executors]
