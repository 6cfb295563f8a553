"""A replay of micro-batches whose watermarks are recorded, which says what each row counted as."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from streamops.kernel.columns import timestamp_micros
from streamops.kernel.core import SIDES, State, Step, mark_owned
from streamops.kernel.lateness import LATE, has_side_output
from streamops.kernel.operator import Spec
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.clocks import ClockSpec
from streamops.spark.step import Stored
from streamops.testing.batches import Chain, Delays, Schemas
from streamops.testing.replaying import MemoryStore, Replay
from streamops.testing.results import BatchResult, records

# Metrics of results and of the state: they do not say what a row counts as.
_NOT_OF_ROWS = {"rows", "results", "corrections", "timeouts", "full", "deletes", "on_time"}


@dataclass(frozen=True, slots=True)
class ArrivedRow:
    """A row of an input, and what it counted as.

    Parameters
    ----------
    side : str, optional
        "left" or "right"; None with one input.
    row : dict
        Its columns.
    time : int, optional
        Its event time in microseconds; None if it is null, or without event time.
    counts : dict of str to int
        Metrics of the operator that count it, such as ``too_late``. A row in several windows has several.
    reason : str, optional
        The reason in the side output, if it has the row.
    watermark : int, optional
        The watermark that it was compared with, in microseconds.
    """

    side: str | None
    row: dict[str, Any]
    time: int | None
    counts: dict[str, int]
    reason: str | None
    watermark: int | None

    @property
    def outcome(self) -> str:
        """The metric or the reason that describes the row best."""
        if self.reason is not None:
            return self.reason
        if self.counts.get("rejected"):
            return _rejection(self.time, self.watermark)
        if self.counts.get("on_time"):
            return "on_time"
        others = [name for name in self.counts if name not in _NOT_OF_ROWS]
        return min(others, key=_rank, default="accepted")

    @property
    def lateness(self) -> int | None:
        """How far it was behind the watermark, in microseconds; None if it was not."""
        if self.time is None or self.watermark is None or self.time > self.watermark:
            return None
        return self.watermark - self.time


def _rank(name: str) -> int:
    # A row that missed one of its windows and corrects another one is a straggler.
    order = ("stragglers", "too_late")
    return order.index(name) if name in order else -1


def _rejection(time: int | None, watermark: int | None) -> str:
    if time is None:
        return "null_time"
    return "rejected" if MIN_INSTANT <= time <= MAX_INSTANT else "time_out_of_range"


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """One operator in one micro-batch: the rows that arrived, and the result."""

    name: str
    rows: list[ArrivedRow]
    result: BatchResult


class RecordedReplay(Replay):
    """A chain of operators over micro-batches with given watermarks.

    The state has one shard. Parameters are those of :class:`~streamops.testing.Replay`.
    """

    def __init__(self, operator: Chain, schema: Schemas, *, watermark: Delays = None) -> None:
        super().__init__(operator, schema, watermark=watermark, shards=1)
        self._delays, self._counts = watermark, True
        self._blobs: dict[int, str] = {}

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of the inputs."""
        return self._schemas

    def step(
        self, number: int, tables: tuple[pa.Table, ...] | None, watermark: int
    ) -> tuple[list[OperatorStep], BatchResult]:
        """Run one micro-batch. ``watermark`` is Spark's, in milliseconds; ``tables`` None has no data."""
        self._batches, self._current = number, watermark
        steps, results = list[OperatorStep](), list[BatchResult]()
        output: pa.Table | None = None
        for stage in self._stages:
            rows = list[ArrivedRow]()
            if tables is not None:
                rows += (
                    _arrivals(stage, tables)
                    if self._counts
                    else chain.from_iterable(map(_uncounted, tables))
                )
            result, output = stage.step(number, tables, watermark)
            steps.append(OperatorStep(self.names[len(steps)], rows, result))
            results.append(result)
            tables = None if output is None else (output,)
        return steps, self._combine(results, pa.table({}) if output is None else output)

    def change(self, operator: Chain) -> None:
        """Continue with changed operators, as a query that is restarted from its checkpoint."""
        schemas: Any = self._schemas
        twin = RecordedReplay(operator, schemas, watermark=self._delays)
        for stage, before in zip(twin._stages, self._stages, strict=True):
            stage.stored, stage.stores = before.stored, before.stores
        self._stages = twin._stages

    def changed_states(self) -> list[tuple[str, str, dict[int, str]]]:
        """The operators whose state has changed since the last call: their blob and segments."""
        found = list[tuple[str, str, dict[int, str]]]()
        for at, (name, stage) in enumerate(zip(self.names, self._stages, strict=True)):
            blob = stage.stored[0][-1] if 0 in stage.stored else ""
            if blob != self._blobs.get(at, ""):
                self._blobs[at] = blob
                found.append((name, blob, dict(stage.stores[0])))
        return found

    def pending(self) -> list[list[dict[str, Any]]]:
        """By operator, the rows that it would emit if the stream ended here."""
        found, table = list[list[dict[str, Any]]](), None
        for stage in self._stages:
            _, table = stage.flush(self._batches, table, self._current)
            found.append(records(table))
        return found

    def fork(self, *, counts: bool = True) -> RecordedReplay:
        """A replay that continues from here, and leaves this one as it is. It may do without counts."""
        other = copy.copy(self)
        other._stages, other._counts = [], counts
        for stage in self._stages:
            twin = copy.copy(stage)
            twin.stored = dict(stage.stored)
            stores = {shard: MemoryStore(store) for shard, store in stage.stores.items()}
            twin.stores = defaultdict(MemoryStore, stores)
            other._stages.append(twin)
        return other

    @property
    def names(self) -> list[str]:
        """The names of the operators; with a number, if several have the same name."""
        names = [stage.operator.name for stage in self._stages]
        return [n if names.count(n) == 1 else f"{n}[{at}]" for at, n in enumerate(names)]

    def spec(self, position: int) -> Spec:
        """The parameters of an operator, resolved."""
        spec: Spec = self._stages[position].spec
        return spec

    def advance(self, watermark: int) -> list[BatchResult]:
        """The results at a watermark in milliseconds, without further rows, in a fork."""
        other = self.fork()
        # The rows of an operator are behind the watermark for the next one, so each has its own step.
        return [other.step(self._batches, None, watermark)[1] for _ in other._stages]


def _uncounted(rows: pa.Table) -> Iterator[ArrivedRow]:
    return (ArrivedRow(None, row, None, {}, None, None) for row in records(rows))


def _state_of(stage: Any) -> State:
    step = stage.run_step
    if 0 not in stage.stored:
        empty = State.empty(step.core.layout(stage.spec))
        return replace(empty, segments=step.open_segments(stage.stores[0], 0))
    segments = step.open_segments(stage.stores[0], 0)
    return Stored(*stage.stored[0]).state(step.header, adapt=step.adapt, segments=segments)


def _arrivals(stage: Any, tables: Sequence[pa.Table]) -> Iterator[ArrivedRow]:
    """Say what each row counts as, if they arrive one after the other."""
    spec, core = stage.spec, stage.run_step.core
    sides = SIDES[: len(tables)]
    named = sides if len(tables) > 1 else (None,)
    if isinstance(stage.operator.parameters, ClockSpec):
        for rows in tables:
            yield from (ArrivedRow(None, row, None, {}, None, None) for row in records(rows))
        return
    state = _state_of(stage)
    for at, (side, rows) in enumerate(zip(named, tables, strict=True)):
        if not len(rows):
            continue
        input_ = spec.inputs[at]
        packed_of = rows.select(input_.schema.names)

        def run(chosen: pa.Table, before: State, at: int = at) -> Step:
            inputs = core.no_rows(spec)
            inputs[at] = core.pack(spec, chosen, SIDES[at])
            if spec.inputs[at].is_broadcast and spec.inputs[at].by:
                inputs[at] = mark_owned(inputs[at], pa.repeat(True, len(inputs[at])))
            attuned, opened, inputs = core.attune(spec, before, inputs)
            step: Step = core.step(attuned, opened, inputs, before.watermark)
            return replace(step, state=core.settle(attuned, step.state))

        times: list[int | None] = [None] * len(rows)
        if input_.time is not None:
            micros, valid = timestamp_micros(rows.column(input_.time))
            times = [int(m) if v else None for m, v in zip(micros, valid, strict=True)]
        watermark = state.watermark
        counted, state = _count(run, state, packed_of)
        for row, time, (counts, reason) in zip(records(rows), times, counted, strict=True):
            yield ArrivedRow(side, row, time, counts, reason, watermark)


def _count(
    run: Callable[[pa.Table, State], Step], state: State, rows: pa.Table
) -> tuple[list[tuple[dict[str, int], str | None]], State]:
    """The metrics and the reason of each row, and the state after all."""
    watermark = state.watermark
    step = run(rows, state)
    counts, reasons = _counts(step), _reasons(step.late)
    names = counts.keys() - {"rows", "results", "corrections"}
    after = replace(step.state, watermark=watermark)
    if len(rows) > 1 and len(names) == 1 and counts[next(iter(names))] == len(rows):
        # All count as the same.
        (name,) = names
        if len(set(reasons)) <= 1 and len(reasons) in (0, len(rows)):
            return [({name: 1}, reasons[0] if reasons else None)] * len(rows), after
    if len(rows) == 1:
        return [(counts, reasons[0] if reasons else None)], after
    found = []
    for number in range(len(rows)):
        one, state = _count(run, state, rows.slice(number, 1))
        found += one
    return found, state


def _counts(step: Step) -> dict[str, int]:
    return {name: value for name, value in asdict(step.metrics).items() if value}


def _reasons(late: pa.Table) -> list[str]:
    if not len(late) or not has_side_output(late.schema):
        return []
    reasons: list[str] = late.column(LATE).combine_chunks().field("reason").to_pylist()
    return reasons
