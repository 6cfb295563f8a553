"""A query whose driver crashes at every step of a sink, one after the other, by exceptions."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops.sinks.sink import Sink
from tests.crashes import checkpoints
from tests.crashes.cases import expected_rows, net
from tests.crashes.figures import Point
from tests.crashes.queries import Query, run
from tests.crashes.servers import Server, Step
from tests.crashes.targets import Rows, pairs


class Crash(Exception):
    """The driver is stopped here."""


class Crashing:
    """A query that crashes once at each step of these micro-batches, and is started again each time."""

    def __init__(
        self,
        spark: SparkSession,
        query: Query,
        folder: Path,
        server: Server,
    ) -> None:
        self.spark, self.query, self.folder, self.server = spark, query, folder, server
        self.left = self._steps(0)
        self.reached: Step | None = None
        self.number = 0
        self.delivered: dict[str, dict[int, Rows]] = {}
        self.crashes: list[tuple[int, Step]] = []
        query.write_inputs(spark, folder / "inputs")

    def run_to_the_end(self) -> None:
        """Start the query until it ends, and check the target after each crash and at the end."""
        while self._crashes():
            assert self.reached is not None
            self.crashes.append((self.number, self.reached))
            if self.reached.damage is not None:
                assert self.reached.damage(self.folder / "checkpoint", self.number)
            self._check_rows(self.number, self.reached.committed)
            self.reached = None
        self._check_rows(
            checkpoints.last_commit(self.folder / "checkpoint"), len(self.server.parts)
        )
        found = self.server.rows()
        for operator, rows in expected_rows(self.query.names).items():
            assert net(row for name, row in found if name in ("", operator)) == rows, operator

    def points(self, sink: str) -> list[Point]:
        """The points that were passed."""
        return [
            Point(operator, self.query.store, sink, number, step.stage)
            for number, step in self.crashes
            for operator in self.query.affected(number)
        ]

    def _steps(self, number: int) -> list[Step]:
        if number not in self.query.numbers:
            return []
        # After a torn first plan, the query starts with a new checkpoint: see `Recording`.
        torn = checkpoints.tear_offset
        return [step for step in self.server.steps if number or step.damage is not torn]

    def _crashes(self) -> bool:
        """Start the query; whether it crashes."""
        sinks = [part.sink() for part in self.server.parts]
        write = self.server.writer(sinks)

        def deliver(batch: DataFrame, number: int) -> None:
            if number > self.number:
                self.number, self.left = number, self._steps(number)
            with self._planted(sinks[0], self.left):
                write(batch, number)

        frame = self.query.frame(self.spark, self.folder / "inputs")
        try:
            run(frame, deliver, self.folder / "checkpoint")
        except StreamingQueryException:
            if self.reached is None:
                raise
            return True
        return False

    @contextmanager
    def _planted(self, sink: Sink, steps: Sequence[Step]) -> Iterator[None]:
        """Raise an exception at the first of the steps that is reached: some are not, without rows."""
        with pytest.MonkeyPatch.context() as patch:
            original = type(sink)._commit
            patch.setattr(type(sink), "_commit", self._remembering(original))
            for owner, name, when in dict.fromkeys(step[1:4] for step in steps):
                function = getattr(owner, name)
                patch.setattr(owner, name, self._crashing(function, (owner, name, when)))
            yield

    def _crashing(self, function: Any, where: tuple[Any, str, str]) -> Any:
        calls = itertools.count(1)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            number, when = next(calls), where[-1]
            if when == "before":
                self._reach(where, number)
            result = function(*arguments, **named)
            if when == "after":
                self._reach(where, number)
            return result

        return call

    def _reach(self, where: tuple[Any, str, str], call: int) -> None:
        here = (step for step in self.left if (step[1:4], step.call) == (where, call))
        step = None if self.reached else next(here, None)
        if step is not None:
            self.reached = step
            self.left = self.left[self.left.index(step) + 1 :]
            raise Crash

    def _remembering(self, function: Any) -> Any:
        """Remember the rows of each micro-batch: a repeated one must have the same."""

        @functools.wraps(function)
        def commit(sink: Sink, rows: Any, delivery: Any) -> None:
            found = sorted(pairs(rows.to_pylist()))
            of_sink = self.delivered.setdefault(sink.label, {})
            assert of_sink.setdefault(delivery.batch, found) == found
            function(sink, rows, delivery)

        return commit

    def _check_rows(self, number: int, committed: int) -> None:
        """The first parts of the target have this micro-batch, the others have the one before."""
        for position, part in enumerate(self.server.parts):
            sink, last = part.sink(), number - (position >= committed)
            entry = sink.read_ledger()
            assert (-1 if entry is None else entry.batch) == last
            delivered = self.delivered.get(sink.label, {})
            expected = [row for batch in range(last + 1) for row in delivered[batch]]
            found = part.rows()
            if self.query.is_tagged:
                assert Counter(found) == Counter(expected)
            else:
                assert net(row for _, row in found) == net(row for _, row in expected)
