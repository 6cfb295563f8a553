"""A query whose driver crashes at every step of a sink, one after the other, by exceptions."""

from __future__ import annotations

import functools
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
        self.left = list(server.steps)
        self.reached: Step | None = None
        self.number = 0
        self.delivered: dict[int, list[tuple[str, str]]] = {}
        self.crashes: list[tuple[int, Step]] = []
        query.write_inputs(spark, folder / "inputs")

    def run_to_the_end(self) -> None:
        """Start the query until it ends, and check the target after each crash and at the end."""
        while self._crashes():
            assert self.reached is not None
            self.crashes.append((self.number, self.reached))
            committed = self.number if self.reached.is_committed else self.number - 1
            self._check_rows(committed)
            self.reached = None
        self._check_rows(checkpoints.last_commit(self.folder / "checkpoint"))
        found = self.server.rows()
        for operator, rows in expected_rows(self.query.names).items():
            assert net(row for name, row in found if name in ("", operator)) == rows, operator

    def points(self, sink: str) -> list[Point]:
        """The points that were passed."""
        return [
            Point(operator, self.query.store, sink, number, step.stage)
            for operator in self.query.operators.values()
            for number, step in self.crashes
        ]

    def _crashes(self) -> bool:
        """Start the query; whether it crashes."""
        sink = self.server.sink()

        def deliver(batch: DataFrame, number: int) -> None:
            if number > self.number:
                self.number, self.left = number, list(self.server.steps)
            with self._planted(sink, self.left if number in self.query.numbers else []):
                sink(batch, number)

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
            for step in steps:
                function = getattr(step.owner, step.function)
                patch.setattr(step.owner, step.function, self._crashing(function, step))
            yield

    def _crashing(self, function: Any, step: Step) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if step.when == "before":
                self._reach(step)
            result = function(*arguments, **named)
            if step.when == "after":
                self._reach(step)
            return result

        return call

    def _reach(self, step: Step) -> None:
        if self.reached is None and step in self.left:
            self.reached = step
            self.left = self.left[self.left.index(step) + 1 :]
            raise Crash

    def _remembering(self, function: Any) -> Any:
        """Remember the rows of each micro-batch: a repeated one must have the same."""

        @functools.wraps(function)
        def commit(sink: Sink, rows: Any, delivery: Any) -> None:
            found = sorted(pairs(rows.to_pylist()))
            assert self.delivered.setdefault(delivery.batch, found) == found
            function(sink, rows, delivery)

        return commit

    def _check_rows(self, last: int) -> None:
        """The target has the rows of all micro-batches up to this one, and so has its ledger."""
        entry = self.server.sink().read_ledger()
        assert (-1 if entry is None else entry.batch) == last
        found, expected = self.server.rows(), self._delivered_until(last)
        if self.query.is_tagged:
            assert Counter(found) == Counter(expected)
        else:
            assert net(row for _, row in found) == net(row for _, row in expected)

    def _delivered_until(self, last: int) -> Rows:
        return [row for number in range(last + 1) for row in self.delivered[number]]
