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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import conform, instants, one, take
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import CapacityError, SchemaError
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import require_hashable, xxhash64
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants
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
    "FULL",
    "SEEN",
    "STATE",
    "VERDICTS",
    "SeenSpec",
    "check",
    "empty",
    "layout",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("sketches.seen", 1)

SEEN, FULL = "seen", "seen_full"
"""Columns that are added: what a row was found to be, and whether that can be relied on."""

VERDICTS = ("first", "again", "too_old", "null_identity", "null_time", "time_out_of_range")
_FIRST, _AGAIN, _TOO_OLD, _NO_IDENTITY, _NO_TIME, _OUT_OF_RANGE = range(len(VERDICTS))
_WORDS = pa.array(VERDICTS)

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
        """The rules of the generations of one shard."""
        return Keeping(self.shape, self.room, self.rate, self.generations)

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
    asked = _Asked.of(spec, rows, newest=NEVER)
    last = np.full(len(asked.items), NEVER)
    return _told(spec, rows, asked.verdicts(spec, last)[0], is_full=False)


def step(spec: SeenSpec, state: State, rows: pa.Table) -> tuple[State, pa.Table]:
    """One micro-batch: the state after it, and its rows with what is said of them."""
    kept = read(state.tables["generations"])
    newest = NEVER
    if state.watermark is not None:
        (newest,) = spec.cell(np.array([state.watermark])).tolist()
    asked = _Asked.of(spec, rows, newest=newest)
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


@dataclass(frozen=True, slots=True)
class _Asked:
    """The rows that have an identity and a time, by item and in the order of event time.

    Parameters
    ----------
    usable : array of int64
        For each row of the table, its verdict if it is not asked about; else ``_AGAIN``.
    rows : array of int64
        Their positions in the table.
    item : array of int64
        For each, the number of its item.
    items : array of int64
        The items, each once.
    time, cell, now : arrays of int64
        For each: its event time, the cell of that, and the newest cell up to it.
    """

    usable: Ids
    rows: Ids
    item: Ids
    items: Ids
    time: Instants
    cell: Ids
    now: Ids

    @staticmethod
    def of(spec: SeenSpec, rows: pa.Table, *, newest: int) -> _Asked:
        usable, time = _usable(spec, rows)
        chosen = np.flatnonzero(usable == _AGAIN)
        table = rows if len(chosen) == len(rows) else take(rows.select(spec.by), chosen)
        found, time = xxhash64([table.column(name) for name in spec.by]), time[chosen]
        order = np.argsort(found)
        begins = np.ones(len(order), np.bool_)
        begins[1:] = found[order][1:] != found[order][:-1]
        if not begins.all():
            order = _by_time(rows, chosen, order, begins, time)
        time = time[order]
        cell = spec.cell(time)
        return _Asked(
            usable,
            chosen[order],
            np.cumsum(begins) - 1,
            found[order[begins]],
            time,
            cell,
            np.maximum(cell, newest),
        )

    def newest(self, before: int | None) -> int | None:
        """The newest event time up to now."""
        if not len(self.time):
            return before
        now = int(self.time.max())
        return now if before is None else max(before, now)

    def verdicts(self, spec: SeenSpec, last: Ids) -> tuple[Ids, Ids]:
        """The verdict of each row of the table, and which of these rows are first.

        Parameters
        ----------
        last : array of int64
            For each item, the newest cell in which it may have been seen.
        """
        verdicts, last = self.usable.copy(), last.copy()
        oldest = self.now - spec.generations
        rest = np.flatnonzero(last[self.item] < oldest)
        # Too old to be remembered, so it is none that others are judged by.
        old = self.cell[rest] < oldest[rest]
        verdicts[self.rows[rest[old]]] = _TOO_OLD
        rest, first = rest[~old], []
        while len(rest):  # once, unless an item comes again after more than a horizon
            item = self.item[rest]
            is_head = np.ones(len(rest), np.bool_)
            is_head[1:] = item[1:] != item[:-1]
            heads = rest[is_head]
            last[item[is_head]] = self.cell[heads]
            first.append(heads)
            rest = rest[~is_head]
            rest = rest[last[self.item[rest]] < oldest[rest]]
        found = np.concatenate([np.empty(0, np.int64), *first])
        verdicts[self.rows[found]] = _FIRST
        return verdicts, found


def _usable(spec: SeenSpec, rows: pa.Table) -> tuple[Ids, Instants]:
    """Why a row cannot be judged, ``_AGAIN`` where it can; and event times."""
    result = np.full(len(rows), _AGAIN)
    time = np.zeros(len(rows), np.int64)
    if spec.time is not None:
        time, valid = instants(rows.column(spec.time))
        result[(time < MIN_INSTANT) | (time > MAX_INSTANT)] = _OUT_OF_RANGE
        result[~valid] = _NO_TIME
    for name in spec.by:
        column = rows.column(name)
        if column.null_count:
            result[np.asarray(column.is_null())] = _NO_IDENTITY
    return result, time


def _by_time(rows: pa.Table, chosen: Ids, order: Ids, begins: Mask, time: Instants) -> Ids:
    """Rows of the same item in the order of event time, and of their content where that is one."""
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins)
    several = ~begins | ~np.append(begins[1:], True)
    some = np.sort(order[several])
    some = some[np.lexsort((time[some], number[some]))]
    same = (np.diff(number[some]) == 0) & (np.diff(time[some]) == 0)
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():
        content = np.zeros(len(some), np.int64)
        content[tied] = _content(take(rows, chosen[some[tied]]))
        some = some[np.lexsort((content, time[some], number[some]))]
    result = order.copy()
    result[several] = some
    return result


def _content(rows: pa.Table) -> Ids:
    """A hash of all columns that have one, and of where they are null."""
    columns = []
    for column in map(one, rows.columns):
        try:
            require_hashable(column.type, where="")
        except SchemaError:
            continue
        columns += [column.is_valid(), column]
    return xxhash64(columns)


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
            expected=f"capacity={spec.capacity} over all shards within a horizon, "
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
