"""The filters of a shard in the tables of its state, or in segments.

Small filters are rows of the tables, which every step writes again. A large one is a segment of one row:
it has more words than the limit. Items that are added to it are first stored as they are, in the table
``recent``, which every step writes again, too. When a shard has more of them than the limit, the filter
with the most of them is written again. What a filter contains does not depend on how it is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, integers, key_codes, take
from streamops.kernel.core import State
from streamops.kernel.groups import Groups, Ids, Ints
from streamops.kernel.segments import ROWS, UNMERGED, Segments
from streamops.sketches.core.bloom import (
    LAYOUT,
    NEVER,
    FilterBits,
    Generation,
    Shape,
    contained,
    decode_generations,
    encode_generations,
    positions,
)

PREVIOUS = "previous"
"""Name of the table. It exists only after a change of the number of shards."""

PREVIOUS_LAYOUT = pa.schema(
    [
        ("cell", pa.int64()),
        ("items", pa.int64()),
        ("filter", pa.binary()),
        ("probes", pa.int32()),
        ("shards", pa.int32()),
        ("shard", pa.int32()),
    ]
)
"""The columns of a filter; its probes; and the shard that filled it, out of how many.

Their number is negative if the items are ``xxhash64`` of identities: an earlier version stored nested ones so.
"""

_DEVIATIONS = 3


@dataclass(frozen=True, slots=True)
class PreviousFilter:
    """A filter of the items of one cell and one shard, out of another number of shards.

    ``segment`` is the number of the segment with the filter; 0 if there is none.
    """

    cell: int
    items: int
    bits: FilterBits
    probes: int
    shards: int
    shard: int
    segment: int = 0

    @property
    def shape(self) -> Shape:
        """Bits and probes."""
        return Shape(len(self.bits) * 64, self.probes)

    def rate(self, shards: int) -> float:
        """Expected share of false positives among the items of one of these shards.

        It contains a part of them, if there are fewer shards now.
        """
        return self.shape.rate(self.items) * math.gcd(shards, self.shards) / abs(self.shards)


def newest_cells(filters: Sequence[PreviousFilter], items: Ints, hashes: Ints) -> Ids:
    """The newest cell of a filter that contains each item, or ``NEVER``; ``hashes`` chose the shards."""
    found = np.full(len(items), NEVER)
    probes: dict[tuple[Shape, bool], Any] = {}
    for of in sorted(filters, key=lambda of: of.cell, reverse=True):
        among = np.flatnonzero((found == NEVER) & (hashes % abs(of.shards) == of.shard))
        if not len(among):
            continue
        key = of.shape, of.shards < 0
        if key not in probes:
            probes[key] = positions(of.shape, hashes if of.shards < 0 else items)
        found[contained(of.bits, probes[key], among)] = of.cell
    return found


def mark_former(shape: Shape, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of a state, or of a segment, whose items are ``xxhash64`` of identities, as such."""
    marked = dict(tables)
    for name in {PREVIOUS, UNMERGED, ROWS} & tables.keys():
        filters = decode_filters(tables[name])
        marked[name] = encode_filters([replace(of, shards=-of.shards or -1) for of in filters])
    if GENERATIONS not in tables:
        return marked
    own = decode_generations(marked.pop(GENERATIONS))
    if RECENT in tables:
        recent = marked.pop(RECENT)
        cells = np.unique(integers(recent, "cell")).tolist()
        of_cells = [Generation(cell, 0, np.zeros(shape.length, np.uint64)) for cell in cells]
        _add_recent(shape, of_cells, recent, {})
        own += of_cells
    previous = [PreviousFilter(of.cell, of.items, of.bits, shape.probes, -1, 0) for of in own]
    if PREVIOUS in marked:
        previous += decode_filters(marked[PREVIOUS])
    return marked | _tables([], previous)


def decode_filters(table: pa.Table) -> list[PreviousFilter]:
    """The filters of a table of the state."""
    columns = [table.column(name).to_pylist() for name in PREVIOUS_LAYOUT.names if name != "filter"]
    filters = combine_chunks(table.column("filter"))
    bits = [np.frombuffer(filters[i].as_buffer(), np.uint64) for i in range(len(filters))]
    cell, items, *rest = columns
    return [PreviousFilter(*values) for values in zip(cell, items, bits, *rest, strict=True)]


def encode_filters(filters: Sequence[PreviousFilter]) -> pa.Table:
    """The filters as a table of the state."""
    rows = [(f.cell, f.items, f.bits.tobytes(), f.probes, f.shards, f.shard) for f in filters]
    columns = zip(*rows, strict=True) if rows else [()] * len(PREVIOUS_LAYOUT)
    arrays = [pa.array(c, dtype) for c, dtype in zip(columns, PREVIOUS_LAYOUT.types, strict=True)]
    return pa.table(arrays, schema=PREVIOUS_LAYOUT)


def room_of(capacity: int, generations: int, shards: int) -> int:
    """Items of a generation in one shard: the mean, and three standard deviations.

    Shards are chosen by hash, so the number of items in a shard is binomial.
    """
    mean = capacity / generations / shards
    return math.ceil(mean + _DEVIATIONS * math.sqrt(mean * (1 - 1 / shards)))


def shape_of(capacity: int, generations: int, rate: float, shards: int) -> Shape:
    """Shape of every filter. One more than a horizon has are live and share the rate."""
    return Shape.of(room_of(capacity, generations, shards), rate / (generations + 1))


GENERATIONS = "generations"
RECENT = "recent"
"""Name of the table with items that are not yet in the segment of their generation, the last one of the cell."""

RECENT_LAYOUT = pa.schema([("cell", pa.int64()), ("item", pa.int64())])
_OWN = 0
"""In a segment, number of shards of a filter of this shard."""


def read_filters(shape: Shape, state: State) -> tuple[list[Generation], list[PreviousFilter]]:
    """The generations by cell and age, and the filters of another number of shards."""
    tables = state.tables
    generations = decode_generations(tables[GENERATIONS])
    older = decode_filters(tables[PREVIOUS]) if PREVIOUS in tables else []
    stored = [(0, tables[UNMERGED])] if UNMERGED in tables else []
    if state.segments is not None:
        stored += [(of.number, state.segments.read(of)) for of in state.segments.index]
    for number, rows in stored:
        for of in decode_filters(rows):
            if of.shards == _OWN:
                generations.append(Generation(of.cell, of.items, of.bits, number))
            else:
                older.append(replace(of, segment=number))
    generations.sort(key=lambda of: of.cell)
    if RECENT in tables:
        _add_recent(shape, generations, tables[RECENT], state.derived)
    return generations, older


def _add_recent(
    shape: Shape,
    generations: list[Generation],
    recent: pa.Table,
    filled: Mapping[int, FilterBits],
) -> None:
    """Add recent items to their generations; ``filled`` has filters, by segment, that contain them."""
    cells, items = (np.asarray(combine_chunks(column)) for column in recent.columns)
    last = {of.cell: at for at, of in enumerate(generations)}
    for cell in np.unique(cells).tolist():
        added, at = items[cells == cell], last[cell]
        of = generations[at]
        bits = filled.get(of.segment)
        if bits is None:
            generations[at] = of.add(added, positions(shape, added))
        else:
            generations[at] = replace(of, items=of.items + len(added), bits=bits, recent=added)


def store_filters(
    shape: Shape,
    watermark: int | None,
    generations: Sequence[Generation],
    older: Sequence[PreviousFilter],
    segments: Segments | None,
) -> State:
    """The state with these filters.

    Without segments, it has the tables of :func:`streamops.sketches.core.seen.layout`, and that of the
    filters of another number of shards if there are any.
    """
    if segments is None:
        return State(watermark, _tables(generations, older))
    is_large = shape.length > segments.limit
    large = generations if is_large else []
    large_older = [of for of in older if len(of.bits) > segments.limit]
    small = [of for of in older if len(of.bits) <= segments.limit]
    tables = _tables([] if is_large else generations, small)
    there = {of.segment for of in large} | {of.segment for of in large_older}
    segments = segments.remove([of for of in segments.index if of.number not in there])
    waiting = _waiting(large, segments.limit)
    for at, of in enumerate(large):
        if not of.segment or (len(of.recent) and at not in waiting):
            row = PreviousFilter(of.cell, of.items, of.bits, shape.probes, _OWN, 0)
            segments = _write(segments, row, of.segment)
    for previous in large_older:
        if not previous.segment:
            segments = _write(segments, previous)
    recent = [large[at] for at in waiting]
    if recent:
        cells = np.repeat([of.cell for of in recent], [len(of.recent) for of in recent])
        columns = [pa.array(cells), pa.array(np.concatenate([of.recent for of in recent]))]
        tables[RECENT] = pa.table(columns, schema=RECENT_LAYOUT)
    return State(watermark, tables, segments, {of.segment: of.bits for of in recent})


def _tables(
    generations: Sequence[Generation], older: Sequence[PreviousFilter]
) -> dict[str, pa.Table]:
    tables = {GENERATIONS: encode_generations(generations)}
    return tables | ({PREVIOUS: encode_filters(older)} if older else {})


def _waiting(generations: Sequence[Generation], limit: int) -> list[int]:
    """The positions of generations whose recent items are stored as they are, up to a limit.

    They are the last ones of their cells.
    """
    last = {of.cell: at for at, of in enumerate(generations)}
    sizes = {at: len(generations[at].recent) for at in last.values() if generations[at].segment}
    found: list[int] = []
    count = 0
    for at in sorted(sizes, key=sizes.__getitem__):
        count += sizes[at]
        if sizes[at] > 0 and count <= limit:
            found.append(at)
    return found


def _write(segments: Segments, row: PreviousFilter, instead_of: int = 0) -> Segments:
    """With one more segment. Its number is higher than that of the one that it replaces."""
    added = segments.add(encode_filters([row]), first=row.cell, last=row.cell, scale=0)
    return added.remove([of for of in segments.index if of.number == instead_of])


def redistribute(
    identity: Mapping[str, Any],
    states: Mapping[int, Mapping[str, pa.Table]],
    before: int,
    shards: int,
) -> tuple[Mapping[str, Any], list[Mapping[str, pa.Table]]]:
    """Redistribute the filters of shards on another number of them.

    The bits of a filter cannot be split by key, so every new shard that may have items of an old one gets
    a copy of its filters. New items go to new filters.

    Parameters
    ----------
    identity : mapping
        The parameters, with the shape of the filters.
    states : mapping of int to tables
        By shard.
    before, shards : int
        Number of shards, before and after.

    Returns
    -------
    identity : mapping
        With the shape of the new filters.
    tables : list of tables
        One per new shard.
    """
    shape = Shape(identity["bits"], identity["probes"])
    filters: list[PreviousFilter] = []
    for shard, tables in states.items():
        generations, older = read_filters(shape, State(None, tables))
        filters += [
            PreviousFilter(of.cell, of.items, of.bits, shape.probes, before, shard)
            for of in generations
        ]
        filters += [
            replace(of, shards=-before, shard=shard) if of.shards == -1 else of for of in older
        ]
    everything = encode_filters(filters)
    # Copies of one filter come together again.
    codes = key_codes([combine_chunks(column) for column in everything.columns], len(everything))
    everything = take(everything, np.sort(Groups.of(codes)[1]))
    of, residue = (np.asarray(everything.column(name)) for name in ("shards", "shard"))
    common = np.gcd(of, shards)
    placed: list[Mapping[str, pa.Table]] = []
    for number in range(shards):
        chosen = np.flatnonzero((residue - number) % common == 0)
        empty = {GENERATIONS: LAYOUT.empty_table()}
        placed.append(empty | ({PREVIOUS: take(everything, chosen)} if len(chosen) else {}))
    shape = shape_of(
        identity["capacity"], identity["generations"], identity["false_positive_rate"], shards
    )
    return {**identity, "bits": shape.bits, "probes": shape.probes}, placed
