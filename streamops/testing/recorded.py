"""A replay of micro-batches whose watermarks are recorded, which says what each row counted as."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, timestamp_micros, value_codes
from streamops.kernel.core import SIDES, Identity, State, Step, mark_owned
from streamops.kernel.hashing import shard_of
from streamops.kernel.lateness import LATE, has_side_output
from streamops.kernel.operator import Spec
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.kernel.values import Refused, to_column
from streamops.spark.clocks import ClockSpec
from streamops.spark.step import Stored
from streamops.testing.batches import Chain, Delays, Schemas
from streamops.testing.replaying import MemoryStore, Replay
from streamops.testing.results import BatchResult, records

# Metrics of results and of the state: they do not say what a row counts as.
_NOT_OF_ROWS = {"rows", "results", "corrections", "timeouts", "full", "deletes", "on_time"}
_POSITION = "__position"


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
    """A chain of operators over micro-batches with given watermarks, which reports the rows of a key.

    Parameters are those of :class:`~streamops.testing.Replay`. Without ``shards``, each operator has its own
    number of shards. ``where`` has values of columns: only rows that have them are reported. All rows
    are processed. ``first`` is the position of the first operator in the query.
    """

    def __init__(
        self,
        operator: Chain,
        schema: Schemas,
        *,
        watermark: Delays = None,
        shards: int | None = None,
        where: Mapping[str, Any] | None = None,
        first: int = 0,
    ) -> None:
        super().__init__(operator, schema, watermark=watermark, shards=shards)
        self._delays, self._shards, self._counts = watermark, shards, True
        self._where, self._first = where or {}, first
        self._blobs: dict[tuple[int, int], str] = {}
        self._own: list[set[int]] = [set() for _ in self._stages]

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
        for at, stage in enumerate(self._stages):
            rows = list[ArrivedRow]()
            if tables is not None and self._counts:
                rows += _arrivals(stage, tables, self._where, self._own[at])
            elif tables is not None:
                rows += (ArrivedRow(None, row, None, {}, None, None)
                         for table in tables for row in self.records(table))  # fmt: skip
            result, output = stage.step(number, tables, watermark)
            steps.append(OperatorStep(self.names[len(steps)], rows, result))
            results.append(result)
            tables = None if output is None else (output,)
        return steps, self._combine(results, pa.table({}) if output is None else output)

    def change(self, operator: Chain) -> None:
        """Continue with changed operators, as a query that is restarted from its checkpoint."""
        schemas: Any = self._schemas
        twin = RecordedReplay(operator, schemas, watermark=self._delays, shards=self._shards)
        for stage, before in zip(twin._stages, self._stages, strict=True):
            stage.stored, stage.stores = before.stored, before.stores
        self._stages = twin._stages

    def start(self, watermark: int) -> None:
        """Let the rows of the next micro-batch be late by this watermark of Spark, in milliseconds."""
        self.step(0, tuple(schema.empty_table() for schema in self._schemas), watermark)

    def records(self, table: pa.Table) -> list[dict[str, Any]]:
        """The rows of the key."""
        return records(of_key(table, self._where))

    def changed_states(self) -> Iterator[tuple[str, str, dict[int, str]]]:
        """The shards of the key whose state has changed since the last call: operator, blob, segments."""
        for at, (name, stage) in enumerate(zip(self.names, self._stages, strict=True)):
            for shard in sorted(self._own[at] & stage.stored.keys()):
                blob = stage.stored[shard][-1]
                if blob != self._blobs.get((at, shard), ""):
                    self._blobs[at, shard] = blob
                    yield name, blob, dict(stage.stores[shard])

    def pending(self) -> list[list[dict[str, Any]]]:
        """By operator, the rows of the key that it would emit if the stream ended here."""
        found, table = list[list[dict[str, Any]]](), None
        for stage in self._stages:
            _, table = stage.flush(self._batches, table, self._current)
            found.append(self.records(table))
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
        return [
            n if names.count(n) == 1 else f"{n}[{self._first + at}]" for at, n in enumerate(names)
        ]

    def identities(self) -> Iterator[tuple[str, int, Identity]]:
        """The layout of the state of each operator, its shards, and the parameters that it depends on."""
        for stage in self._stages:
            yield stage.run_step.core.STATE.kind, stage.count, stage.spec.identity

    @property
    def output(self) -> pa.Schema:
        """The columns of the results and of the side output."""
        return self._stages[-1].output.columns

    def spec(self, position: int) -> Spec:
        """The parameters of an operator, resolved."""
        spec: Spec = self._stages[position].spec
        return spec

    def advance(self, watermark: int) -> list[BatchResult]:
        """The results at a watermark in milliseconds, without further rows, in a fork."""
        other = self.fork()
        # The rows of an operator are behind the watermark for the next one, so each has its own step.
        return [other.step(self._batches, None, watermark)[1] for _ in other._stages]


def of_key(table: pa.Table, where: Mapping[str, Any]) -> pa.Table:
    """The rows whose columns have these values; a column that the table does not have is not compared.

    Values are equal as in ``GROUP BY``: NaN equals NaN, and -0.0 equals 0.0.
    """
    for name, value in where.items():
        if name in table.column_names and len(table):
            column = combine_chunks(table.column(name))
            try:
                wanted = to_column([value], pa.field(name, column.type))
            except Refused:  # another column of this name, such as a result
                continue
            codes = value_codes(pa.concat_arrays([column, wanted]))
            table = table.filter(pa.array(codes[:-1] == codes[-1]))
    return table


def _state_of(stage: Any, shard: int) -> State:
    step = stage.run_step
    segments = step.open_segments(stage.stores[shard], shard)
    if shard not in stage.stored:
        return replace(State.empty(step.core.layout(stage.spec)), segments=segments)
    return Stored(*stage.stored[shard]).state(step.header, adapt=step.adapt, segments=segments)


def _arrivals(
    stage: Any, tables: Sequence[pa.Table], where: Mapping[str, Any], own: set[int]
) -> Iterator[ArrivedRow]:
    """Say what each row of the key counts as, if they arrive one after the other, after all others.

    The shards that have rows of the key are added to ``own``.
    """
    spec, core = stage.spec, stage.run_step.core
    sides = SIDES[: len(tables)]
    named = sides if len(tables) > 1 else (None,)
    if isinstance(stage.operator.parameters, ClockSpec):
        for rows in tables:
            of = records(of_key(rows, where))
            yield from (ArrivedRow(None, row, None, {}, None, None) for row in of)
        return
    states: dict[int, State] = {}
    for at, (side, rows) in enumerate(zip(named, tables, strict=True)):
        if not len(rows):
            continue
        input_ = spec.inputs[at]

        def run(chosen: pa.Table, before: State, at: int = at) -> Step:
            inputs = core.no_rows(spec)
            packed = chosen.select(spec.inputs[at].schema.names)
            inputs[at] = core.pack(spec, packed, SIDES[at])
            if spec.inputs[at].is_broadcast and spec.inputs[at].by:
                inputs[at] = mark_owned(inputs[at], pa.repeat(True, len(inputs[at])))
            attuned, opened, inputs = core.attune(spec, before, inputs)
            step: Step = core.step(attuned, opened, inputs, before.watermark)
            return replace(step, state=core.settle(attuned, step.state))

        shards = pa.array(shard_of(rows, input_.by, stage.count))
        numbered = rows.append_column(_POSITION, pa.array(np.arange(len(rows))))
        chosen = of_key(numbered, where)
        positions = np.asarray(chosen.column(_POSITION))
        others = np.ones(len(rows), bool)
        others[positions] = False
        for shard in np.unique(np.asarray(shards)[positions]).tolist():
            own.add(shard)
            here = np.asarray(shards) == shard
            state = states.get(shard) or _state_of(stage, shard)
            watermark = state.watermark
            rest = rows.filter(pa.array(here & others))
            if len(rest):
                after = run(rest, state).state
                has_clock = core.placement.watermark == "greatest"
                state = after if has_clock else replace(after, watermark=watermark)
            mine = rows.filter(pa.array(here & ~others))
            times: list[int | None] = [None] * len(mine)
            if input_.time is not None:
                micros, valid = timestamp_micros(mine.column(input_.time))
                times = [int(m) if v else None for m, v in zip(micros, valid, strict=True)]
            counted, states[shard] = _count(run, state, mine)
            for row, time, (counts, reason) in zip(records(mine), times, counted, strict=True):
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
