"""Micro-batches that tasks deliver as Spark runs them, without Spark: repeated, twice, in any order."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from streamops.kernel.columns import take
from streamops.sinks.core.net import row_hashes
from streamops.sinks.sink import Sink
from streamops.sinks.tasks import Deliver, Receipts, run_tasks
from streamops.spark.identity import Identity

Batches = Iterator[pa.RecordBatch]


@dataclass
class Attempts:
    """Rows of a micro-batch in the place of a projection, which some tasks deliver.

    Parameters
    ----------
    rows : Table
        The rows.
    tasks : int
        How many tasks there are.
    seed : int
        Decides which attempts of tasks are repeated or lost, and their order. 0: each task has one.
    before, after : function
        What happens before and after each attempt of a task. It can raise.
    """

    rows: pa.Table
    tasks: int = 3
    seed: int = 0
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None
    collected: int = field(default=0, init=False)

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def collect(self) -> pa.Table:
        self.collected += 1
        return self.rows

    def collect_small(self) -> None:
        """These rows are never few."""

    def run_tasks(self, deliver: Deliver, together: tuple[str, ...] = ()) -> Receipts:
        """Deliver the rows, of which a task has all with equal values of these columns."""
        spread: Any = self._hashes(together) if together else np.arange(len(self.rows))
        parts = [
            take(self.rows, np.flatnonzero(spread % self.tasks == n)) for n in range(self.tasks)
        ]
        return run_tasks(_Plan(self, parts), deliver, self.schema)  # type: ignore[arg-type]

    def _hashes(self, together: Sequence[str]) -> Any:
        return row_hashes(self.rows.select(list(together)))


@dataclass
class _Plan:
    """The frame whose function Spark runs."""

    given: Attempts
    parts: Sequence[pa.Table]
    function: Callable[[Batches], Batches] | None = None

    def mapInArrow(self, function: Any, _: str) -> _Plan:
        # Spark sends it to another process.
        self.function = pickle.loads(cloudpickle.dumps(function))
        return self

    def toArrow(self) -> pa.Table:
        assert self.function is not None
        rng = random.Random(self.given.seed)
        runs = [n for n in range(len(self.parts)) for _ in range(rng.choice([1, 1, 2, 3]))]
        rng.shuffle(runs)
        receipts: dict[int, list[pa.RecordBatch]] = {}
        for at, number in enumerate(runs) if self.given.seed else enumerate(range(len(self.parts))):
            self.given.before()
            chunks = iter(self.parts[number].to_batches(max_chunksize=3))
            is_spare = number in receipts or (self.given.seed and number in runs[at + 1 :])
            if is_spare and rng.random() < 0.5:
                with suppress(Lost):
                    list(self.function(_lost(chunks)))
                continue
            found = list(self.function(chunks))
            self.given.after()
            if number not in receipts or rng.random() < 0.5:
                receipts[number] = found
        schema = pa.schema(
            [
                *((name, pa.int64()) for name in ("rows", "bytes", "digest")),
                ("parts", pa.string()),
                ("error", pa.string()),
            ]
        )
        return pa.Table.from_batches([b for found in receipts.values() for b in found], schema)


class Lost(Exception):
    """The executor of an attempt is lost."""


def _lost(batches: Batches) -> Batches:
    """Batches of an executor that is lost before the last one."""
    for batch, _ in itertools.pairwise(batches):
        yield batch
    raise Lost


def deliver(sink: Sink, given: Attempts | pa.Table, batch: int, identity: Identity) -> None:
    """Deliver a micro-batch by tasks."""
    attempts = given if isinstance(given, Attempts) else Attempts(given)
    sink.session.is_small = False
    sink._deliver_projection(attempts, batch, identity)  # type: ignore[arg-type]
