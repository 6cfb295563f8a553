"""Copy a query that does not crash at every stage, roll it back to each of them, and start it again."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops.state.checkpoint import open_checkpoint
from streamops.state.describe import describe
from tests.crashes import checkpoints
from tests.crashes.cases import LAST, WITHOUT_ROWS, expected_rows, net
from tests.crashes.figures import Point
from tests.crashes.queries import Query, run
from tests.crashes.targets import AFTER, BEFORE, TARGETS, SideOutputs, Target

COMPUTED = "computed"
"""The copy after the state was written, and before any sink wrote."""


@dataclass(frozen=True)
class Stage:
    """A durable state.

    Parameters
    ----------
    name : str
        What the crash interrupted.
    checkpoint, sinks : str
        Of which copy the checkpoint is, and of which one each target.
    damage : callable
        What to do with the checkpoint and the number of the micro-batch; whether it had an effect.
    torn : int, optional
        Which of the torn states of each target to take instead of a copy.
    """

    name: str
    checkpoint: str
    sinks: str
    damage: Callable[[Path, int], bool] = lambda checkpoint, number: True
    torn: int | None = None


STAGES = (
    Stage("before the offset", BEFORE, BEFORE, checkpoints.lose_offset),
    Stage("torn offset", BEFORE, BEFORE, checkpoints.tear_offset),
    Stage("offset written", BEFORE, BEFORE),
    Stage("state written, sink not", COMPUTED, BEFORE),
    Stage("torn state", COMPUTED, BEFORE, checkpoints.tear_state),
    Stage("state of half the operators", COMPUTED, BEFORE, checkpoints.lose_state),
    Stage("torn sink write", COMPUTED, BEFORE, torn=0),
    Stage("sink not committed", COMPUTED, BEFORE, torn=1),
    Stage("sink committed, batch not", COMPUTED, AFTER),
    Stage("torn commit of the batch", COMPUTED, AFTER, checkpoints.tear_commit),
)


def reachable(stage: Stage, number: int) -> bool:
    """Whether a restart from here goes on by itself.

    Spark adds the micro-batch without rows in the run of the last one. If the run ends before it is
    planned, it comes with the next rows.
    """
    return number != WITHOUT_ROWS or stage.name not in {"before the offset", "torn offset"}


class Recording:
    """A query that does not crash, with copies of its checkpoint and targets at every stage."""

    def __init__(self, spark: SparkSession, query: Query, folder: Path) -> None:
        self.spark, self.query, self.folder = spark, query, folder
        self.live = folder / "live"
        self.inputs = folder / "inputs"
        self.targets = (*TARGETS, SideOutputs) if query.has_side_output else TARGETS
        self.number = -1
        self.clean: dict[str, Counter[tuple[str, str]]] = {}
        query.write_inputs(spark, self.inputs)

    def record(self) -> None:
        """Run the query to its end, and check it."""
        targets = self._targets(self.live)
        for target in targets:
            target.folder.mkdir(parents=True)
        writers = [target.writer(target.sinks()) for target in targets]

        def deliver(batch: DataFrame, number: int) -> None:
            self.number = number
            self._copy(BEFORE)
            batch.persist()
            batch.count()
            self._copy(COMPUTED, ["checkpoint"])
            for target, write in zip(targets, writers, strict=True):
                with self._hooked(target):
                    write(batch, number)
            self._copy(AFTER, [target.name for target in targets])
            batch.unpersist()

        self._run(deliver, self.live / "checkpoint")
        assert self.number >= LAST
        self.check(self.live)
        self.clean = {target.name: Counter(target.rows()) for target in targets}

    def _targets(self, root: Path) -> list[Target]:
        return [target(root / target.name, self.query.key) for target in self.targets]

    def copy_of(self, number: int, name: str, part: str) -> Path:
        return self.folder / "copies" / str(number) / name / part

    def _copy(self, name: str, parts: Sequence[str] | None = None) -> None:
        names = ["checkpoint", *(target.name for target in self.targets)]
        for part in names if parts is None else parts:
            copy = self.copy_of(self.number, name, part)
            if not copy.exists():  # the first time that a function is called in a micro-batch
                shutil.copytree(self.live / part, copy)

    @contextmanager
    def _hooked(self, target: Target) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, function, when, name in target.hooks:
                copy = functools.partial(self._copy, name, [target.name])
                patch.setattr(owner, function, observed(getattr(owner, function), when, copy))
            yield

    def restart(self, number: int, stage: Stage) -> list[Point] | None:
        """Roll back to a stage of a micro-batch, start the query again, and check it.

        None if there is no such state: nothing was written that a crash could interrupt.
        """
        root = self.folder / "restarted"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.copy_of(number, stage.checkpoint, "checkpoint"), root / "checkpoint")
        if not stage.damage(root / "checkpoint", number):
            return None
        stages = {
            target.name: self._roll_back(target, number, stage, root / target.name)
            for target in self.targets
        }
        if not any(stages.values()):
            return None
        targets = self._targets(root)
        sinks = [target.sinks() for target in targets]
        writers = [target.writer(of) for target, of in zip(targets, sinks, strict=True)]

        def deliver(batch: DataFrame, number: int) -> None:
            batch.persist()
            for write in writers:
                write(batch, number)
            batch.unpersist()

        checkpoint = root / "checkpoint"
        if open_checkpoint(checkpoint).is_cut_off:
            # Spark refuses the checkpoint before it writes a row, and `doctor` says to delete it.
            with pytest.raises(StreamingQueryException, match="LOCATION_NOT_EMPTY"):
                self._run(deliver, checkpoint)
            assert [p.code for p in describe(checkpoint).problems] == ["CHECKPOINT_TORN"]
            shutil.rmtree(checkpoint)
        self._run(deliver, checkpoint)
        for sink in itertools.chain(*sinks):
            sink.session.close()
        self.check(root)
        return [
            Point(operator, self.query.store, sink, number, name)
            for operator in self.query.affected(number)
            for sink, name in stages.items()
            if name is not None
        ]

    def _run(self, deliver: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
        run(self.query.frame(self.spark, self.inputs), deliver, checkpoint)

    def _roll_back(
        self, target: type[Target], number: int, stage: Stage, folder: Path
    ) -> str | None:
        """Copy a target as it was at a stage, and return the name of the stage; None if there is none."""
        name, damage = stage.sinks, None
        label: str | None = stage.name
        if stage.torn is not None:
            what, name, damage = target.tear(number)[stage.torn]
            label = f"{stage.name}: {what}"
        copy = self.copy_of(number, name, target.name)
        if not copy.exists():  # the sink has not come so far: nothing to write
            label, copy, damage = None, self.copy_of(number, BEFORE, target.name), None
        shutil.copytree(copy, folder)
        if damage is not None and not damage(folder, self.copy_of(number, BEFORE, target.name)):
            label = None
        return label

    def check(self, root: Path) -> None:
        """Compare every target with the batch result and the clean run, and its ledger with the checkpoint."""
        expected = expected_rows(self.query.names)
        for target in self._targets(root):
            entries = [sink.read_ledger() for sink in target.sinks()]
            last = checkpoints.last_commit(root / "checkpoint")
            assert {entry and entry.batch for entry in entries} == {last}, target.name
            found = target.rows()
            assert Counter(found) == self.clean.get(target.name, Counter(found)), target.name
            for operator, rows in expected.items():
                of_operator = [row for name, row in found if name in ("", operator)]
                assert net(of_operator) == rows, f"{operator} in {target.name}"


def observed(function: Any, when: str, action: Callable[[], None]) -> Any:
    """A function with an action before or after it."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            action()
        result = function(*arguments, **named)
        if when == "after":
            action()
        return result

    return call
