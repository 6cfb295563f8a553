"""A core with a history of micro-batches, and how the laws run and compare them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamops.changelog.table import drop_tombstones
from streamops.kernel.columns import concat, timestamp_micros
from streamops.kernel.core import SIDES, Input, State, Step
from streamops.kernel.operator import Core, Spec
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, spark_watermark
from streamops.kernel.values import comparable
from streamops.testing.folding import fold

__tracebackhide__ = True

Row = dict[str, Any]
Batch = tuple[pa.Table, ...]
"""A micro-batch: one table per input."""

Arrival = tuple[Batch, int | None]
"""A micro-batch, and the watermark by which its rows are late."""

_OPPOSITE = {
    "insert": "delete",
    "delete": "insert",
    "update_preimage": "update_postimage",
    "update_postimage": "update_preimage",
}


class Oracle(Protocol):
    """A simple implementation of the same operator, row by row."""

    @property
    def step(self) -> Callable[..., Any]:
        """From the rows of each input, and the watermark: the expected step.

        The result has ``emitted`` and ``late`` (rows), and ``counts`` (the metrics as a mapping).
        """

    def finish(self) -> Sequence[Row]:
        """Expected rows at the end of the stream."""

    def bound(self) -> int:
        """The maximum number of rows in state after the last step."""


@dataclass(frozen=True)
class Expected:
    """What an oracle expects: each step, the maximum of rows in state after it, and the rows at the end."""

    steps: Sequence[Any]
    bounds: Sequence[int]
    end: Sequence[Row]


@dataclass(frozen=True)
class Case:
    """A core, and the history that it processes.

    Parameters
    ----------
    core, spec : the operator
    batches : sequence of tuples of Table
        Micro-batches: one table per input, with the columns of the input.
    oracle : callable, optional
        Creates an oracle. Without one, the laws that compare with it are not checked.
    accepted : callable, optional
        From the :data:`Arrival` of each micro-batch: the batch result over the rows that are not late,
        as ``core.run`` returns it. By default, that of the core over the rows whose event time is after
        the watermark.
    key : tuple of str, optional
        Columns of the output that identify a result. None if the output is a multiset.
    ignore : tuple of str
        Columns of the output in which the results of a stream and a batch may differ.
    undo : sequence of tuples of Table
        If all inputs are change streams: micro-batches that retract the history, such as
        :func:`invert` of it.
    seed : int
        For the cuttings, orders and shards that the laws choose.
    """

    core: Core[Any]
    spec: Spec
    batches: tuple[Batch, ...]
    oracle: Callable[[], Oracle] | None = None
    accepted: Callable[[Sequence[Arrival]], Sequence[Row]] | None = None
    key: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ("revision", "timing")
    undo: tuple[Batch, ...] = ()
    seed: int = 0

    @cached_property
    def steps(self) -> list[Step]:
        """The steps over the history without any change, with which most laws compare."""
        return play(self, self.batches)

    @cached_property
    def expected(self) -> Expected:
        """What the oracle expects of the history."""
        assert self.oracle is not None
        oracle, steps, bounds = self.oracle(), [], []
        for batch, mark in zip(self.batches, self.watermarks(self.batches), strict=True):
            steps.append(oracle.step(*map(to_rows, batch), mark))
            bounds.append(oracle.bound())
        return Expected(steps, bounds, oracle.finish())

    @property
    def has_event_time(self) -> bool:
        """Whether there is a watermark."""
        return any(input_.time is not None for input_ in self.spec.inputs)

    def run_accepted(self, arrivals: Sequence[Arrival]) -> Sequence[Row]:
        """The batch result over the rows that are not late."""
        if self.accepted is not None:
            return self.accepted(arrivals)
        on_time = [
            tuple(
                _on_time(input_, rows, mark)
                for input_, rows in zip(self.spec.inputs, batch, strict=True)
            )
            for batch, mark in arrivals
        ]
        rows = tuple(map(concat, zip(*on_time, strict=True))) or self.empty_batch()
        return to_rows(self.core.run(self.spec, self.pack(rows)).rows)

    def all_rows(self) -> Batch:
        """All micro-batches as one."""
        return tuple(map(concat, zip(*self.batches, strict=True))) or self.empty_batch()

    def empty_batch(self) -> Batch:
        """A micro-batch without rows."""
        return tuple(input_.schema.empty_table() for input_ in self.spec.inputs)

    def pack(
        self, batch: Batch, split: Callable[[pa.Table], list[pa.Table]] = lambda rows: [rows]
    ) -> list[pa.Table]:
        """The packed rows of each input, packed in the pieces that ``split`` returns."""
        return [
            concat([self.core.pack(self.spec, piece, side) for piece in split(rows)])
            for side, rows in zip(SIDES, batch, strict=False)
        ]

    def times(self, batch: Batch) -> list[int]:
        """The valid event times of a micro-batch, over all inputs."""
        times: list[int] = []
        for input_, rows in zip(self.spec.inputs, batch, strict=True):
            if input_.time is not None:
                times += _valid_times(rows.column(input_.time))
        return times

    def count_invalid(self, batch: Batch) -> int:
        """The number of rows whose event time is missing or invalid. Tombstones need none."""
        batch = tuple(map(drop_tombstones, batch))
        inputs = zip(self.spec.inputs, batch, strict=True)
        rows = sum(len(rows) for input_, rows in inputs if input_.time is not None)
        return rows - len(self.times(batch))

    def watermarks(self, batches: Sequence[Batch]) -> list[int | None]:
        """The operator's watermark in each micro-batch: the minimum over the inputs."""
        lag, marks = self.spec.lag, list[int | None]()
        timed = [(at, i) for at, i in enumerate(self.spec.inputs) if i.time is not None]
        newest: dict[int, int | None] = {at: None for at, _ in timed}
        for batch in batches:
            mark = min(
                (spark_watermark(newest[at], (input_.delay or 0) + lag) for at, input_ in timed),
                default=0,
            )
            marks.append(mark * 1_000 + lag if mark else None)
            for at, input_ in timed:
                times = [newest[at], *_valid_times(batch[at].column(input_.time))]
                newest[at] = max((t for t in times if t is not None), default=None)
        return marks


def _on_time(input_: Input, rows: pa.Table, mark: int | None) -> pa.Table:
    """Rows after a watermark, and those without an event time."""
    if input_.time is None or mark is None:
        return rows
    times, valid = timestamp_micros(rows.column(input_.time))
    return rows.filter(pa.array(~valid | (times > mark)))


def _valid_times(column: pa.ChunkedArray) -> list[int]:
    times, valid = timestamp_micros(column)
    result: list[int] = times[valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)].tolist()
    return result


def play(
    case: Case,
    batches: Sequence[Batch],
    marks: Sequence[int | None] | None = None,
    *,
    between: Callable[[State], State] = lambda state: state,
    split: Callable[[pa.Table], list[pa.Table]] = lambda rows: [rows],
) -> list[Step]:
    """Run the core over micro-batches, and check the schemas and invariants of each step.

    ``marks`` replaces the watermarks of Spark; ``between`` replaces the state between two steps.
    """
    core, spec, state, steps = case.core, case.spec, State.empty(case.core.layout(case.spec)), []
    marks = case.watermarks(batches) if marks is None else marks
    for batch, mark in zip(batches, marks, strict=True):
        step = core.step(spec, between(state), case.pack(batch, split), mark)
        state = step.state
        core.check(spec, state)
        assert step.output.schema == step.late.schema == spec.output
        assert {n: t.schema for n, t in state.tables.items()} == dict(core.layout(spec))
        steps.append(step)
    between(state)
    return steps


def split_rows(
    rows: pa.Table, rng: np.random.Generator, pieces: int | None = None
) -> list[pa.Table]:
    """Cut a table at random into pieces, some of them empty."""
    count = int(rng.integers(1, 7)) if pieces is None else pieces
    borders = np.sort(rng.integers(0, len(rows) + 1, count - 1))
    starts, ends = [0, *borders], [*borders, len(rows)]
    return [rows.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def fold_steps(case: Case, steps: Sequence[Step]) -> list[Row]:
    """The table that the output of these steps, and of the end of the stream, folds to."""
    state = steps[-1].state if steps else State.empty(case.core.layout(case.spec))
    published = [*(step.output for step in steps), case.core.finish(case.spec, state)]
    rows = (row for table in published for row in to_rows(table))
    table = fold(rows, rows="multiset") if case.key is None else fold(rows, key=case.key)
    return [{name: v for name, v in row.items() if name not in case.ignore} for row in table]


def invert(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Micro-batches of change streams that retract these, the last change first.

    An ``insert`` becomes a ``delete``, and a postimage becomes a preimage.
    """
    return tuple(tuple(map(_invert, batch)) for batch in reversed(batches))


def _invert(rows: pa.Table) -> pa.Table:
    backwards = rows.take(pa.array(np.arange(len(rows))[::-1]))
    at = rows.schema.get_field_index("_change_type")
    types = [_OPPOSITE.get(type_, type_) for type_ in backwards.column(at).to_pylist()]
    return backwards.set_column(at, rows.schema.field(at), pa.array(types, rows.schema[at].type))


def to_rows(table: pa.Table) -> list[Row]:
    """The rows as Python values. Instants and durations are integers, in microseconds, at any depth."""
    schema = pa.schema([(field.name, _integer_times(field.type)) for field in table.schema])
    rows: list[Row] = table.cast(schema).to_pylist()
    return rows


def _integer_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_) or pa.types.is_time64(type_):
        return pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _integer_times(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(_integer_times(type_.value_type))
    return type_


def same_steps(left: Sequence[Step], right: Sequence[Step], what: str) -> None:
    """Check that output, late rows, metrics and states are equal, step by step."""
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        where = f"step {number}: unchanged, and {what}"
        same_rows(to_rows(one.output), to_rows(other.output), where)
        same_rows(to_rows(one.late), to_rows(other.late), where)
        assert one.metrics == other.metrics, where
        same_tables(one.state, other.state, where)


def same_tables(left: State, right: State, what: str) -> None:
    """Check that two states have equal rows."""
    for name, table in left.tables.items():
        same_rows(to_rows(table), to_rows(right.tables[name]), f"{what}: state {name!r}")


def same_rows(left: Iterable[Row], right: Iterable[Row], what: str) -> None:
    """Check that two multisets of rows are equal. A column that one side lacks must be null."""
    ours, theirs = (
        Counter(comparable({k: v for k, v in row.items() if v is not None}) for row in rows)
        for rows in (left, right)
    )
    assert ours == theirs, f"{what}:\n  only first: {ours - theirs}\n  only second: {theirs - ours}"
