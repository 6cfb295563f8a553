"""A history of two inputs to be judged, and how it is played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamops.changelog.table import drop_tombstones
from streamops.kernel.columns import combine_chunks, concat, take
from streamops.kernel.core import SIDES, Input, Step
from streamops.kernel.time import spark_watermark
from streamops.testing.folding import fold
from streamops.testing.laws.cases import Cutting, among, shards_of, times_in
from streamops.testing.laws.comparing import Row, rows_of

__all__ = [
    "Both",
    "JudgedPair",
    "PairCase",
    "PairOracle",
    "bad_rows",
    "folded_pair",
    "interleaved",
    "inverse",
    "pair_times",
    "pair_watermarks",
    "sides_of",
]

Both = tuple[pa.Table, pa.Table]
"""A micro-batch: rows of the left and of the right input."""

JudgedPair = tuple[pa.Table, pa.Table, int | None]
"""Rows of a micro-batch, left and right, and the watermark they were judged by."""

_OPPOSITE = {
    "insert": "delete",
    "delete": "insert",
    "update_preimage": "update_postimage",
    "update_postimage": "update_preimage",
}


class PairOracle(Protocol):
    """An obvious implementation of the same operator, row by row."""

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Any:
        """Expected ``emitted`` and ``late`` (rows) and ``counts`` (a mapping)."""

    def finish(self) -> Sequence[Row]:
        """Expected rows at the end of the streams."""

    def bound(self) -> int:
        """Most entries that the state may have after the last step."""


@dataclass(frozen=True, slots=True)
class PairCase:
    """A history, and the core with two inputs it is played to.

    Parameters
    ----------
    core, spec : the operator
    batches : sequence of pairs of Table
        Micro-batches, with the columns of the two inputs.
    oracle : callable
        Makes a fresh oracle.
    accepted : callable
        The batch result over the rows that are not late, as ``core.run`` has it, given the
        watermark that each micro-batch was judged by.
    identity : tuple of str, optional
        Columns of the output that say which result a row is about; None where there are none, and
        the output is a bag.
    aside : tuple of str
        Columns of the output that say how a row came to be published, and not what it says: a
        stream and a batch may differ in them.
    undo : sequence of pairs of Table
        Where both inputs are change streams: micro-batches that take back all that came, such as
        :func:`inverse` of the history.
    seed : int
        For what the laws choose themselves: cuttings, orders, shards.
    """

    core: Any
    spec: Any
    batches: tuple[Both, ...]
    oracle: Callable[[], PairOracle]
    accepted: Callable[[Sequence[JudgedPair]], Sequence[Row]]
    identity: tuple[str, ...] | None = None
    aside: tuple[str, ...] = ("revision", "timing")
    undo: tuple[Both, ...] = ()
    seed: int = 0
    played: list[list[Step]] = field(default_factory=list, init=False, repr=False, compare=False)

    def watermarks(self, batches: Sequence[Both]) -> list[int | None]:
        """See :class:`streamops.testing.laws.cases.History`."""
        return pair_watermarks(self.spec, batches)

    def packed(self, batch: Both, cutting: Cutting) -> Both:
        """See :class:`streamops.testing.laws.cases.History`."""
        left, right = (
            concat([self.core.pack(self.spec, piece, side) for piece in cutting(rows)])
            for side, rows in zip(SIDES, batch, strict=True)
        )
        return left, right

    def shuffled(self, batch: Both, rng: np.random.Generator) -> Both:
        """See :class:`streamops.testing.laws.cases.History`."""
        left, right = batch
        return take(left, rng.permutation(len(left))), take(right, rng.permutation(len(right)))

    def rows(self, batch: Both) -> tuple[list[Row], list[Row]]:
        """See :class:`streamops.testing.laws.cases.History`."""
        return rows_of(batch[0]), rows_of(batch[1])

    def everything(self) -> Both:
        """See :class:`streamops.testing.laws.cases.History`."""
        left, right = zip(self.nothing(), *self.batches, strict=True)
        return concat(left), concat(right)

    def nothing(self) -> Both:
        """See :class:`streamops.testing.laws.cases.History`."""
        left, right = sides_of(self.spec)
        return left.schema.empty_table(), right.schema.empty_table()

    def spread(self, shards: int, rng: np.random.Generator) -> list[list[Both]]:
        """See :class:`streamops.testing.laws.cases.History`: keys of both sides alike."""
        left, right = self.everything()
        pairs = zip(*(side.by for side in sides_of(self.spec)), strict=True)
        keys = [
            pa.concat_arrays([combine_chunks(left[a]), combine_chunks(right[b])]) for a, b in pairs
        ]
        of = shards_of(keys, len(left) + len(right), shards, rng)
        lefts = among(of[: len(left)], [batch[0] for batch in self.batches], shards)
        rights = among(of[len(left) :], [batch[1] for batch in self.batches], shards)
        return [list(zip(*sides, strict=True)) for sides in zip(lefts, rights, strict=True)]

    @property
    def timed(self) -> bool:
        """See :class:`streamops.testing.laws.cases.History`."""
        return any(side.time is not None for side in sides_of(self.spec))


def sides_of(spec: Any) -> tuple[Input, Input]:
    """Left and right, in this order."""
    left, right = spec.inputs
    return left, right


def pair_times(spec: Any, batch: Both) -> list[int]:
    """Usable event times of the rows of both sides, where they have a column for them."""
    return [
        time
        for side, rows in zip(sides_of(spec), batch, strict=True)
        if side.time is not None
        for time in times_in(rows.column(side.time))
    ]


def bad_rows(spec: Any, batch: Both) -> int:
    """Rows that should have an event time, and have none that can be used. A tombstone needs none."""
    left, right = map(drop_tombstones, batch)
    sides = zip(sides_of(spec), (left, right), strict=True)
    timed = sum(len(rows) for side, rows in sides if side.time is not None)
    return timed - len(pair_times(spec, (left, right)))


def pair_watermarks(spec: Any, batches: Sequence[Both]) -> list[int | None]:
    """The operator's watermark in each micro-batch, as Spark would have it: the least of both."""
    result: list[int | None] = []
    newest: list[int | None] = [None, None]
    timed = [(at, side.time) for at, side in enumerate(sides_of(spec)) if side.time is not None]
    delays = [(side.delay or 0) + spec.lag for side in sides_of(spec)]
    for batch in batches:
        sparks = min((spark_watermark(newest[at], delays[at]) for at, _ in timed), default=0)
        result.append(sparks * 1_000 + spec.lag if sparks else None)
        for at, time in timed:
            came = times_in(batch[at].column(time))
            newest[at] = max((t for t in (newest[at], *came) if t is not None), default=None)
    return result


def interleaved(rows: Both, rng: np.random.Generator) -> list[Both]:
    """The rows of each side in the same order, in other pieces that meet by chance."""
    pieces = int(rng.integers(1, 7))

    def cut(side: pa.Table) -> list[pa.Table]:
        borders = np.sort(rng.integers(0, len(side) + 1, pieces - 1))
        starts, ends = [0, *borders], [*borders, len(side)]
        return [side.slice(s, e - s) for s, e in zip(starts, ends, strict=True)]

    return list(zip(cut(rows[0]), cut(rows[1]), strict=True))


def folded_pair(case: PairCase, steps: Sequence[Step]) -> list[Row]:
    """The table that these steps, and the end of the streams after them, add up to."""
    state = steps[-1].state if steps else case.core.empty(case.spec)
    published = [*(step.output for step in steps), case.core.finish(case.spec, state)]
    rows = (row for table in published for row in rows_of(table))
    table = fold(rows, rows="multiset") if case.identity is None else fold(rows, key=case.identity)
    return [{name: v for name, v in row.items() if name not in case.aside} for row in table]


def inverse(batches: Sequence[Both]) -> tuple[Both, ...]:
    """Micro-batches of change streams that take back, last first, what these did.

    An ``insert`` becomes a ``delete``, a postimage the preimage of what was before it.
    """
    return tuple((_inverse(left), _inverse(right)) for left, right in reversed(batches))


def _inverse(rows: pa.Table) -> pa.Table:
    backwards = rows.take(pa.array(np.arange(len(rows))[::-1]))
    at = rows.schema.get_field_index("_change_type")
    words = [_OPPOSITE.get(word, word) for word in backwards.column(at).to_pylist()]
    return backwards.set_column(at, rows.schema.field(at), pa.array(words, rows.schema[at].type))
