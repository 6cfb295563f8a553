"""A history to be judged, and how it is played, folded and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import concat, instants
from streamops.kernel.contract import Core, Spec, State, Step
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, spark_watermark
from streamops.testing.folding import fold
from streamops.testing.values import comparable

__all__ = [
    "Case",
    "Judged",
    "Oracle",
    "Row",
    "cut",
    "folded",
    "play",
    "rows_of",
    "same_rows",
    "same_steps",
    "same_tables",
    "times_in",
    "times_of",
    "watermarks",
]

Row = dict[str, Any]
Batches = Sequence[pa.Table]
Judged = tuple[pa.Table, int | None]
"""Rows of a micro-batch, and the watermark they were judged by."""


class Oracle(Protocol):
    """An obvious implementation of the same operator, row by row."""

    def step(self, rows: Sequence[Row], watermark: int | None) -> Any:
        """Expected ``emitted`` and ``late`` (rows) and ``counts`` (a mapping)."""

    def finish(self) -> Sequence[Row]:
        """Expected rows at the end of the stream."""

    def bound(self) -> int:
        """Most entries that the state may have after the last step."""


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and the core it is played to.

    Parameters
    ----------
    core, spec : the operator
    batches : sequence of Table
        Micro-batches, with the columns of ``spec.input``.
    identity : tuple of str
        Columns of the output that say which result a row is about.
    oracle : callable
        Makes a fresh oracle.
    accepted : callable
        The batch result over the rows that are not late, as ``core.run`` has it, given the
        watermark that each micro-batch was judged by.
    seed : int
        For what the laws choose themselves: cuttings, orders, shards.
    """

    core: Core
    spec: Spec
    batches: tuple[pa.Table, ...]
    identity: tuple[str, ...]
    oracle: Callable[[], Oracle]
    accepted: Callable[[Sequence[Judged]], Sequence[Row]]
    seed: int = 0
    played: list[list[Step]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The history as it stands, once it was played: most laws compare with it."""


def rows_of(table: pa.Table) -> list[Row]:
    """The rows as Python values, instants and durations as microseconds, at any depth."""
    schema = pa.schema([(field.name, _plain(field.type)) for field in table.schema])
    rows: list[Row] = table.cast(schema).to_pylist()
    return rows


def watermarks(spec: Spec, batches: Batches) -> list[int | None]:
    """The operator's watermark in each micro-batch, as Spark would have it."""
    delay = (spec.delay or 0) + spec.lag
    result: list[int | None] = []
    newest: int | None = None
    for batch in batches:
        sparks = spark_watermark(newest, delay)
        result.append(sparks * 1_000 + spec.lag if sparks else None)
        newest = max((t for t in (newest, *times_of(spec, batch)) if t is not None), default=None)
    return result


def play(
    case: Case,
    batches: Batches | None = None,
    marks: Sequence[int | None] | None = None,
    *,
    between: Callable[[State], State] | None = None,
    pack: Callable[[pa.Table], list[pa.Table]] | None = None,
) -> list[Step]:
    """Play the history. Each step keeps the schemas and the invariants of the core."""
    if all(each is None for each in (batches, marks, between, pack)):
        if not case.played:
            case.played.append(_play(case, case.batches, None, _as_it_is, _whole))
        return case.played[0]
    batches = case.batches if batches is None else batches
    return _play(case, batches, marks, between or _as_it_is, pack or _whole)


def _play(
    case: Case,
    batches: Batches,
    marks: Sequence[int | None] | None,
    between: Callable[[State], State],
    pack: Callable[[pa.Table], list[pa.Table]],
) -> list[Step]:
    core, spec = case.core, case.spec
    marks = watermarks(spec, batches) if marks is None else marks
    state, steps = core.empty(spec), []
    for batch, mark in zip(batches, marks, strict=True):
        packed = concat([core.pack(spec, piece) for piece in pack(batch)])
        step = core.step(spec, between(state), packed, mark)
        state = step.state
        core.check(spec, state)
        assert step.emitted.schema == step.late.schema == spec.output
        assert {n: t.schema for n, t in state.tables.items()} == dict(core.layout(spec))
        steps.append(step)
    between(state)
    return steps


def _as_it_is(state: State) -> State:
    return state


def _whole(batch: pa.Table) -> list[pa.Table]:
    return [batch]


def cut(rows: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    """The rows in the same order in other pieces, some of them empty."""
    borders = np.sort(rng.integers(0, len(rows) + 1, int(rng.integers(0, 6))))
    starts, ends = [0, *borders], [*borders, len(rows)]
    return [rows.slice(s, e - s) for s, e in zip(starts, ends, strict=True)]


def folded(case: Case, steps: Sequence[Step]) -> list[Row]:
    """The table that these steps, and the end of the stream after them, add up to."""
    published = [*(step.emitted for step in steps), case.core.finish(case.spec, steps[-1].state)]
    rows = fold((row for table in published for row in rows_of(table)), key=case.identity)
    added = ("revision", "timing")
    return [{name: value for name, value in row.items() if name not in added} for row in rows]


def times_of(spec: Spec, batch: pa.Table) -> list[int]:
    """Event times of the rows that have a usable one."""
    return times_in(batch.column(spec.time))


def times_in(column: pa.ChunkedArray) -> list[int]:
    """The usable ones among the event times of a column."""
    times, valid = instants(column)
    placed: list[int] = times[valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)].tolist()
    return placed


def same_steps(left: Sequence[Step], right: Sequence[Step], what: str) -> None:
    """Equal rows, late rows, counts and states, step by step."""
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        where = f"step {number}: as it was, and {what}"
        same_rows(rows_of(one.emitted), rows_of(other.emitted), where)
        same_rows(rows_of(one.late), rows_of(other.late), where)
        assert one.counts == other.counts, where
        same_tables(one.state, other.state, where)


def same_tables(left: State, right: State, what: str) -> None:
    """Equal entries of state."""
    for name, table in left.tables.items():
        same_rows(rows_of(table), rows_of(right.tables[name]), f"{what}: state {name!r}")


def same_rows(left: Iterable[Row], right: Iterable[Row], what: str) -> None:
    """Equal bags of rows; a column that only one side has must be null there."""
    ours, theirs = (Counter(map(_said, rows)) for rows in (left, right))
    assert ours == theirs, f"{what}:\n  only first: {ours - theirs}\n  only second: {theirs - ours}"


def _said(row: Row) -> Any:
    return comparable({name: value for name, value in row.items() if value is not None})


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind
