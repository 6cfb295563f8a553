"""Micro-batches that tasks deliver as Spark runs them, without Spark: repeated, twice, in any order."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from streamops.kernel.columns import take
from streamops.kernel.hashing import digests
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
        Decides which attempts of tasks are repeated or lost, their order, and whose result is used. 0: each
        task has one.
    before, after : function
        What happens before and after each attempt of a task. It can raise.
    """

    rows: pa.Table
    tasks: int = 3
    seed: int = 0
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None
    collected: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def collect(self) -> pa.Table:
        self.collected += 1
        return self.rows

    def collect_small(self, *_: int) -> None:
        """These rows are never few."""

    def run_tasks(self, deliver: Deliver, together: tuple[str, ...] = ()) -> Receipts:
        """Deliver the rows, of which a task has all with equal values of these columns."""
        spread: Any = self._hashes(together) if together else np.arange(len(self.rows))
        parts = [
            take(self.rows, np.flatnonzero(spread % self.tasks == n)) for n in range(self.tasks)
        ]
        plan: Any = _Plan(self, [[part.to_batches(max_chunksize=3)] for part in parts])
        return run_tasks(plan, deliver, self.schema)

    def _hashes(self, together: Sequence[str]) -> Any:
        return digests(self.rows.select(list(together)).columns)


_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}


@dataclass
class _Plan:
    """A frame, which is its own session: what each task returned, once per attempt that was not lost."""

    given: Attempts
    outcomes: list[list[list[pa.RecordBatch]]]
    schema: pa.Schema | None = None
    conf: ClassVar = {"spark.sql.shuffle.partitions": "1"}

    @property
    def sparkSession(self) -> _Plan:
        return self

    def range(self, start: int, stop: int, step: int, count: int) -> _Plan:
        numbers = np.array_split(np.arange(start, stop, step), count)
        return _Plan(self.given, [[[pa.RecordBatch.from_pydict({"id": part})]] for part in numbers])

    def mapInArrow(self, function: Any, schema: str) -> _Plan:
        given, rng = self.given, self.given.rng
        # Spark sends it to another process.
        function = pickle.loads(cloudpickle.dumps(function))
        numbers = range(len(self.outcomes))
        counts = [1, 1, 2, 3] if given.seed else [1]
        runs = [number for number in numbers for _ in range(rng.choice(counts))]
        if given.seed:
            rng.shuffle(runs)
        found: list[list[list[pa.RecordBatch]]] = [[] for _ in numbers]
        for at, number in enumerate(runs):
            given.before()
            batches = iter(rng.choice(self.outcomes[number]))
            if (found[number] or number in runs[at + 1 :]) and rng.random() < 0.5:
                with suppress(Lost):
                    list(function(_lost(batches)))
                continue
            found[number].append(_tried_again(function, list(batches)))
            given.after()
        fields = (field.split() for field in schema.split(", "))
        return _Plan(given, found, pa.schema([(name, _TYPES[dtype]) for name, dtype in fields]))

    def repartitionById(self, count: int, name: str) -> _Plan:
        """Of a task whose executor was lost in between, tasks read different attempts, in any order."""
        rng, parts = self.given.rng, []
        for number in range(count):
            found = list(chain.from_iterable(map(rng.choice, self.outcomes)))
            rng.shuffle(found)
            mine = (pc.equal(pc.bit_wise_and(b.column(name), count - 1), number) for b in found)
            parts.append([[b.filter(mask) for b, mask in zip(found, mine, strict=True)]])
        return _Plan(self.given, parts, self.schema)

    def sortWithinPartitions(self, name: str) -> _Plan:
        tables = [
            pa.Table.from_batches(part, self.schema).sort_by(name) for (part,) in self.outcomes
        ]
        return _Plan(self.given, [[t.to_batches(max_chunksize=3)] for t in tables], self.schema)

    def toArrow(self) -> pa.Table:
        found = chain.from_iterable(map(self.given.rng.choice, self.outcomes))
        return pa.Table.from_batches(found, self.schema)


def _tried_again(function: Any, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Spark repeats an attempt whose files another run has just removed."""
    for _ in range(3):
        with suppress(OSError):
            return list(function(iter(batches)))
    return list(function(iter(batches)))


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


def in_tasks(sink: Any, rows: pa.Table, batch: int, identity: Identity) -> None:
    """In the place of `Sink._deliver_rows`: by tasks, of whose attempts some are lost and some repeated."""
    deliver(sink, Attempts(rows, seed=1), batch, identity)


def fail_once(sink: Sink, failed: Path) -> None:
    """Let the first task of the next micro-batch fail after it has written, which a file of this name shows."""
    prepare = sink._prepare

    def prepare_to_fail(*arguments: Any) -> Any:
        deliver = prepare(*arguments)

        def deliver_and_fail(tables: Any) -> Any:
            parts = list(deliver(tables))
            try:
                failed.touch(exist_ok=False)
            except FileExistsError:
                return parts
            raise RuntimeError("after the rows were written")

        return deliver_and_fail

    object.__setattr__(sink, "_prepare", prepare_to_fail)
