"""A history to be judged, and how it is played, folded and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import concat, key_codes, take, timestamp_micros
from streamops.kernel.core import State, Step
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, spark_watermark
from streamops.testing.folding import fold
from streamops.testing.laws.comparing import Row, rows_of

__all__ = [
    "Case",
    "History",
    "Judged",
    "Oracle",
    "among",
    "cut",
    "folded",
    "play",
    "shards_of",
    "times_in",
    "times_of",
    "watermarks",
    "whole",
]

Batches = Sequence[pa.Table]
Cutting = Callable[[pa.Table], list[pa.Table]]
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


class History(Protocol):
    """What the laws that all cores share know of a case, whether a batch is one table or two."""

    @property
    def core(self) -> Any:
        """The core."""

    @property
    def spec(self) -> Any:
        """Its spec."""

    @property
    def batches(self) -> Sequence[Any]:
        """Micro-batches."""

    @property
    def oracle(self) -> Callable[[], Any]:
        """Makes a fresh oracle."""

    @property
    def seed(self) -> int:
        """For what the laws choose themselves."""

    @property
    def played(self) -> list[list[Step]]:
        """The history as it stands, once it was played: most laws compare with it."""

    def watermarks(self, batches: Sequence[Any]) -> list[int | None]:
        """The operator's watermark in each micro-batch, as Spark would have it."""

    def packed(self, batch: Any, cutting: Cutting) -> tuple[pa.Table, ...]:
        """What the core's step takes of a micro-batch, packed in these pieces."""

    def shuffled(self, batch: Any, rng: np.random.Generator) -> Any:
        """The micro-batch in another order."""

    def rows(self, batch: Any) -> tuple[list[Row], ...]:
        """What the oracle's step takes of a micro-batch."""

    def everything(self) -> Any:
        """All micro-batches as one."""

    def nothing(self) -> Any:
        """A micro-batch without rows."""

    def spread(self, shards: int, rng: np.random.Generator) -> Sequence[Sequence[Any]]:
        """The micro-batches of each shard, rows of one key in one of them."""

    @property
    def timed(self) -> bool:
        """Whether there is a watermark."""


@dataclass(frozen=True, slots=True)
class Case:
    """A history, and the core it is played to.

    Parameters
    ----------
    core, spec : the operator
    batches : sequence of Table
        Micro-batches, with the columns of the input.
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

    core: Any
    spec: Any
    batches: tuple[pa.Table, ...]
    identity: tuple[str, ...]
    oracle: Callable[[], Oracle]
    accepted: Callable[[Sequence[Judged]], Sequence[Row]]
    seed: int = 0
    played: list[list[Step]] = field(default_factory=list, init=False, repr=False, compare=False)

    def watermarks(self, batches: Batches) -> list[int | None]:
        """See :class:`History`."""
        return watermarks(self.spec, batches)

    def packed(self, batch: pa.Table, cutting: Cutting) -> tuple[pa.Table]:
        """See :class:`History`."""
        pieces = [self.core.pack(self.spec, piece, "left") for piece in cutting(batch)]
        return (concat(pieces),)

    def shuffled(self, batch: pa.Table, rng: np.random.Generator) -> pa.Table:
        """See :class:`History`."""
        return take(batch, rng.permutation(len(batch)))

    def rows(self, batch: pa.Table) -> tuple[list[Row]]:
        """See :class:`History`."""
        return (rows_of(batch),)

    def everything(self) -> pa.Table:
        """See :class:`History`."""
        return concat(self.batches)

    def nothing(self) -> pa.Table:
        """See :class:`History`."""
        return self.spec.inputs[0].schema.empty_table()

    def spread(self, shards: int, rng: np.random.Generator) -> list[list[pa.Table]]:
        """See :class:`History`."""
        keys = [self.everything().column(name) for name in self.spec.inputs[0].by]
        return among(shards_of(keys, len(self.everything()), shards, rng), self.batches, shards)

    @property
    def timed(self) -> bool:
        """See :class:`History`."""
        return self.spec.inputs[0].time is not None


def watermarks(spec: Any, batches: Batches) -> list[int | None]:
    """The operator's watermark in each micro-batch, as Spark would have it."""
    delay = (spec.inputs[0].delay or 0) + spec.lag
    result: list[int | None] = []
    newest: int | None = None
    for batch in batches:
        sparks = spark_watermark(newest, delay)
        result.append(sparks * 1_000 + spec.lag if sparks else None)
        newest = max((t for t in (newest, *times_of(spec, batch)) if t is not None), default=None)
    return result


def play(
    case: History,
    batches: Sequence[Any] | None = None,
    marks: Sequence[int | None] | None = None,
    *,
    between: Callable[[State], State] | None = None,
    pack: Cutting | None = None,
) -> list[Step]:
    """Play the history. Each step keeps the schemas and the invariants of the core."""
    if all(each is None for each in (batches, marks, between, pack)):
        if not case.played:
            case.played.append(_play(case, case.batches, None, _as_it_is, whole))
        return case.played[0]
    batches = case.batches if batches is None else batches
    return _play(case, batches, marks, between or _as_it_is, pack or whole)


def _play(
    case: History,
    batches: Sequence[Any],
    marks: Sequence[int | None] | None,
    between: Callable[[State], State],
    pack: Cutting,
) -> list[Step]:
    core, spec = case.core, case.spec
    marks = case.watermarks(batches) if marks is None else marks
    state, steps = core.empty(spec), []
    for batch, mark in zip(batches, marks, strict=True):
        step = core.step(spec, between(state), case.packed(batch, pack), mark)
        state = step.state
        core.check(spec, state)
        assert step.output.schema == step.late.schema == spec.output
        assert {n: t.schema for n, t in state.tables.items()} == dict(core.layout(spec))
        steps.append(step)
    between(state)
    return steps


def _as_it_is(state: State) -> State:
    return state


def whole(batch: pa.Table) -> list[pa.Table]:
    """The rows in one piece."""
    return [batch]


def cut(rows: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    """The rows in the same order in other pieces, some of them empty."""
    borders = np.sort(rng.integers(0, len(rows) + 1, int(rng.integers(0, 6))))
    starts, ends = [0, *borders], [*borders, len(rows)]
    return [rows.slice(s, e - s) for s, e in zip(starts, ends, strict=True)]


def folded(case: Case, steps: Sequence[Step]) -> list[Row]:
    """The table that these steps, and the end of the stream after them, add up to."""
    published = [*(step.output for step in steps), case.core.finish(case.spec, steps[-1].state)]
    rows = fold((row for table in published for row in rows_of(table)), key=case.identity)
    added = ("revision", "timing")
    return [{name: value for name, value in row.items() if name not in added} for row in rows]


def shards_of(
    keys: Sequence[pa.Array | pa.ChunkedArray], rows: int, shards: int, rng: np.random.Generator
) -> Ids:
    """A shard for each row, the same where the keys are equal."""
    groups = Groups.of(key_codes(keys, rows))[0]
    chosen: Ids = rng.integers(0, shards, groups.count)
    return chosen[groups.ids]


def among(shard_of: Ids, batches: Batches, shards: int) -> list[list[pa.Table]]:
    """The batches of each shard, given the shard of each row of all of them."""
    parts = np.split(shard_of, np.cumsum([len(batch) for batch in batches])[:-1])
    pairs = list(zip(batches, parts, strict=True))
    return [[batch.filter(pa.array(of == shard)) for batch, of in pairs] for shard in range(shards)]


def times_of(spec: Any, batch: pa.Table) -> list[int]:
    """Event times of the rows that have a usable one. None without event time."""
    time = spec.inputs[0].time
    return [] if time is None else times_in(batch.column(time))


def times_in(column: pa.ChunkedArray) -> list[int]:
    """The usable ones among the event times of a column."""
    times, valid = timestamp_micros(column)
    placed: list[int] = times[valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)].tolist()
    return placed
