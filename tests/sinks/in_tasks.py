"""Micro-batches in tasks without Spark: their functions are pickled, and attempts are repeated or lost."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from streamops.kernel.columns import key_codes
from streamops.sinks.sink import Sink
from streamops.sinks.tasks import SMALL, Deliver, Projection, Receipts, add_up, run_task
from streamops.spark.identity import Identity


class Lost(Exception):
    """An executor that is lost."""


@dataclass(frozen=True)
class InTasks(Projection):
    """The rows of a micro-batch, which tasks deliver.

    Parameters
    ----------
    frame : Table
        The rows.
    tasks : int
        How many tasks there are.
    seed : int
        Of the order of the tasks, and of the attempts whose receipts are lost.
    """

    frame: Any
    tasks: int = 3
    seed: int = 0
    attempts: list[int] = field(default_factory=list)
    """The attempts of each task, in the order in which they ended."""

    @cached_property
    def schema(self) -> pa.Schema:
        return self.finish(self.frame.slice(0, 0)).schema

    def collect(self) -> pa.Table:
        return self.finish(self.frame)

    def collect_small(self) -> pa.Table | None:
        return self.collect() if self.frame.nbytes <= SMALL else None

    def run_tasks(self, deliver: Deliver, together: tuple[str, ...] = ()) -> Receipts:
        chance = random.Random(self.seed)
        task_of = np.array([chance.randrange(self.tasks) for _ in range(len(self.frame))], int)
        if together:
            columns = [self.frame.column(name) for name in together]
            task_of = key_codes(columns, len(self.frame)) % self.tasks
        receipts = []
        for task in chance.sample(range(self.tasks), self.tasks):
            rows = self.frame.filter(pa.array(task_of == task))
            count = chance.choice([1, 1, 2, 3])
            self.attempts.append(count)
            for attempt in range(count):
                copy = cloudpickle.loads(cloudpickle.dumps(deliver))
                batches = iter(rows.to_batches(max_chunksize=chance.randint(1, 50)))
                try:
                    if attempt < count - 1 and chance.random() < 0.5:
                        batches = _lost(batches)
                    found = list(run_task(self.finish, copy, batches))
                except Lost:
                    continue
            receipts += found
        names = ("rows", "bytes", "digest", "parts", "error")
        empty = pa.table(
            {n: pa.array([], pa.string() if n in names[3:] else pa.int64()) for n in names}
        )
        return add_up(self.schema, pa.Table.from_batches(receipts) if receipts else empty)


def _lost(batches: Any) -> Any:
    """Batches of an executor that is lost before the last one."""
    before = None
    for batch in batches:
        if before is not None:
            yield before
        before = batch
    raise Lost


def deliver(sink: Sink, rows: pa.Table, batch: int, identity: Identity, **options: Any) -> None:
    """Let tasks deliver a micro-batch, whatever its size."""
    sink.session.is_small = False
    sink._deliver_projection(InTasks(rows, **options), batch, identity)
