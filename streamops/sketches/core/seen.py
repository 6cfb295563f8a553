"""Rows whose identity was seen before, by generations of Bloom filters.

An identity is an *item*: ``xxhash64`` of its columns. It is remembered from the row that came
first, in the generation of that row's *cell*: event time is cut into cells, a horizon is so many of
them. A row is judged by the generations of the horizon behind the newest event time that its shard
has seen up to it, in the order of event time.

Within a micro-batch nothing is probable: equal items are found by sorting, and the earliest row is
the first; of the same event time, that with the lowest hash of all its columns. So neither the order
of rows in a micro-batch nor how they are packed matters. How they are cut does not matter either,
as long as they come in the order of event time; but for false positives, of which there are none
within a micro-batch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, conform
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Ids
from streamops.kernel.time import Instants
from streamops.sketches.core.asked import AGAIN, VERDICTS, Asked
from streamops.sketches.core.filters import Shape, positions
from streamops.sketches.core.generations import (
    LAYOUT,
    NEVER,
    Generation,
    Keeping,
    newest_cells,
    read,
    written,
)

__all__ = [
    "COUNTS",
    "FULL",
    "SEEN",
    "STATE",
    "VERDICTS",
    "SeenSpec",
    "check",
    "delivered",
    "empty",
    "layout",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("sketches.seen", 1)

SEEN, FULL = "seen", "seen_full"
"""Columns that are added: what a row was found to be, and whether that can be relied on."""

_WORDS = pa.array(VERDICTS)

COUNTS = ("rows", *VERDICTS, "full")
"""What is told of the rows that came: how many, how many of each verdict, and how many are full."""

_DEVIATIONS = 3


@dataclass(frozen=True, slots=True)
class SeenSpec:
    """Settings, bound to the schema of their input; durations in microseconds.

    Parameters
    ----------
    by : tuple of str
        The identity.
    time : str, optional
        Event time; needed where there is a horizon.
    horizon : int, optional
        How far behind the newest event time an identity is remembered. None: however far.
    generations : int
        Cells of a horizon.
    capacity, rate
        Identities within a horizon, over all shards, and false positives as a share.
    shards : int
        That the identities are spread over.
    when_full : str
        "fail", "flag" or "rotate".
    again : str
        "drop" or "flag".
    input : Schema
    """

    by: tuple[str, ...]
    time: str | None
    horizon: int | None
    generations: int
    capacity: int
    rate: float
    shards: int
    when_full: str
    again: str
    input: pa.Schema

    @property
    def room(self) -> int:
        """Items of a generation in one shard: the mean, and three standard deviations.

        Items are dealt to shards by their hash, so how many a shard has is binomial.
        """
        mean = self.capacity / self.generations / self.shards
        return math.ceil(mean + _DEVIATIONS * math.sqrt(mean * (1 - 1 / self.shards)))

    @property
    def shape(self) -> Shape:
        """Of a filter: one more than a horizon has are live, and each has its share of the rate."""
        return Shape.of(self.room, self.rate / (self.generations + 1))

    @property
    def keeping(self) -> Keeping:
        """The rules of the generations of one shard.

        With no more items than promised there is one in each cell that has still room, and there
        are as many again that have none. Where there are more, only "flag" keeps them all.
        """
        most = 2 * (self.generations + 1) if self.when_full == "flag" else sys.maxsize
        return Keeping(self.shape, self.room, self.rate, most)

    @property
    def output(self) -> pa.Schema:
        """The rows, and what is said of them."""
        return self.input.append(pa.field(SEEN, pa.string())).append(pa.field(FULL, pa.bool_()))

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on: the bits, too, since they come of logarithms."""
        shape = self.shape
        return {
            "identity": [[name, str(self.input.field(name).type)] for name in self.by],
            "time": self.time,
            "horizon": self.horizon,
            "generations": self.generations,
            "capacity": self.capacity,
            "false_positive_rate": self.rate,
            "bits": shape.bits,
            "probes": shape.probes,
        }

    def cell(self, times: Instants) -> Ids:
        """The cell of each instant; without a horizon there is one."""
        if self.horizon is None:
            return np.zeros(len(times), np.int64)
        return times // -(-self.horizon // self.generations)


def layout(spec: SeenSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {"generations": LAYOUT}


def empty(spec: SeenSpec) -> State:
    """The state before the first step."""
    return State(None, {"generations": LAYOUT.empty_table()})


def pack(spec: SeenSpec, rows: pa.Table) -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def run(spec: SeenSpec, rows: pa.Table) -> pa.Table:
    """The batch result: all rows at once, in the order of event time. No filter is needed."""
    asked = Asked.of(spec, rows, newest=NEVER)
    last = np.full(len(asked.items), NEVER)
    return _told(spec, rows, asked.verdicts(spec, last)[0], is_full=False)


def step(spec: SeenSpec, state: State, rows: pa.Table) -> tuple[State, pa.Table]:
    """One micro-batch: the state after it, and its rows with what is said of them."""
    kept = read(state.tables["generations"])
    newest = NEVER
    if state.watermark is not None:
        (newest,) = spec.cell(np.array([state.watermark])).tolist()
    asked = Asked.of(spec, rows, newest=newest)
    probes = positions(spec.shape, asked.items)
    verdicts, first = asked.verdicts(spec, newest_cells(kept, probes))
    watermark = state.watermark if spec.time is None else asked.newest(state.watermark)

    rules, horizon = spec.keeping, max(newest, int(asked.now.max(initial=NEVER))) - spec.generations
    cells = asked.cell[first]
    for cell in np.unique(cells[cells >= horizon]).tolist():
        kept = rules.added(kept, cell, probes[:, asked.item[first[cells == cell]]])
    kept = [each for each in kept if each.cell >= horizon]
    is_full = rules.is_full(kept)
    if is_full:
        kept = _consequence(spec, rules, kept)
    told = _told(spec, rows, verdicts, is_full=is_full and _is_loss(spec))
    return State(watermark, {"generations": written(kept)}), told


def delivered(spec: SeenSpec, rows: pa.Table) -> tuple[pa.Table, tuple[int, ...]]:
    """The rows that come out, and how many there were of each kind."""
    words = combine_chunks(rows.column(SEEN))
    found = {str(pair["values"]): int(pair["counts"]) for pair in words.value_counts().to_pylist()}
    full = pc.sum(rows.column(FULL), min_count=0).as_py()
    counts = (len(rows), *(found.get(word, 0) for word in VERDICTS), full)
    again = VERDICTS[AGAIN]
    if spec.again == "drop" and again in found:
        rows = rows.filter(pc.not_equal(words, again))
    return rows, counts


def check(spec: SeenSpec, state: State) -> None:
    """Generations stand in order, are not too old, and have no more bits than their items set."""
    kept = read(state.tables["generations"])
    shown = f"newest {state.watermark}, {[(each.cell, each.items) for each in kept]}"
    cells = [each.cell for each in kept]
    assert cells == sorted(cells), f"out of order: {shown}"
    assert len(kept) <= 3 * (spec.generations + 1), f"too many: {shown}"
    if state.watermark is not None and cells:
        (newest,) = spec.cell(np.array([state.watermark])).tolist()
        assert newest - spec.generations <= cells[0] <= cells[-1] <= newest, f"too old: {shown}"
    for each in kept:
        bits = int(np.unpackbits(each.words.view(np.uint8)).sum())
        assert len(each.words) == spec.shape.words, f"another shape: {shown}"
        assert 0 < bits <= each.items * spec.shape.probes, f"{bits} bits: {shown}"


def _is_loss(spec: SeenSpec) -> bool:
    """Whether being full takes something away: without a horizon, to rotate is what was asked."""
    return spec.horizon is not None or spec.when_full != "rotate"


def _consequence(spec: SeenSpec, rules: Keeping, kept: list[Generation]) -> list[Generation]:
    if spec.when_full == "fail":
        items = sum(each.items for each in kept)
        raise CapacityError(
            "SEEN_FULL",
            "more identities have been seen than there is room for",
            where=f"sketches.seen, identity {', '.join(spec.by)}",
            got=f"{items} in one of {spec.shards} shards",
            expected=f"capacity={spec.capacity} over all shards, within a horizon and a generation, "
            f"which makes {rules.room * spec.generations} for each of them",
            fix='start again from this checkpoint with when_full="rotate", which forgets the '
            'oldest early, or "flag", which tells more new rows to have been seen; or from a '
            "new one with a larger capacity",
        )
    while spec.when_full == "rotate" and len(kept) > 1 and rules.is_full(kept):
        kept = kept[1:]
    return kept


def _told(spec: SeenSpec, rows: pa.Table, verdicts: Ids, *, is_full: bool) -> pa.Table:
    full = pa.array(np.full(len(rows), is_full))
    return pa.table([*rows.columns, _WORDS.take(pa.array(verdicts)), full], schema=spec.output)
