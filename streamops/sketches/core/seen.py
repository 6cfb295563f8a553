"""Suppression of duplicates by generations of Bloom filters.

An *item* is the digest of the identity columns of a row. Event time is divided into cells; a
horizon is ``generations`` of them. The first row of an item is stored in the generation of the row's
cell. A row is a duplicate if one of the generations within the horizon behind the newest event time
up to the row contains its item.

Within a micro-batch decisions are exact: rows are sorted by item and event time, and the earliest row
of an item is the first; of several with the same event time, the one with the lowest hash of all
columns. So the order of rows in a micro-batch and how they are packed do not matter. How rows are
divided into micro-batches does not matter either if they arrive in the order of event time, except for
false positives, which do not occur within a micro-batch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, take, timestamp_micros
from streamops.kernel.core import Identity, Input, State, StateFormat, Step
from streamops.kernel.errors import located
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import digest_version, digests, require_hashable, xxhash64
from streamops.kernel.operator import Core, Spec, Table
from streamops.kernel.parameters import show_duration
from streamops.kernel.placement import Placement
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants, format_duration
from streamops.sketches import conditions
from streamops.sketches.core import seen_state
from streamops.sketches.core.bloom import (
    LAYOUT,
    MOST_BITS,
    NEVER,
    Generation,
    Rotation,
    Shape,
    newest_cells,
    positions,
    refuse_large,
    require_capacity,
    require_rate,
)
from streamops.sketches.core.seen_state import (
    GENERATIONS,
    PREVIOUS,
    RECENT,
    PreviousFilter,
    read_filters,
    redistribute,
    store_filters,
)

SEEN, FULL = "seen", "seen_full"
"""Columns that are added: the decision, and whether the false positive rate is exceeded."""

DECISIONS = ("first", "again", "too_old", "null_identity", "null_time", "time_out_of_range")
_FIRST, _AGAIN, _TOO_OLD, _NULL_IDENTITY, _NULL_TIME, _OUT_OF_RANGE = range(len(DECISIONS))
_DECISIONS = pa.array(DECISIONS)

Again = Literal["drop", "flag"]
WhenFull = Literal["fail", "flag", "evict_oldest"]


@dataclass(frozen=True, slots=True)
class SeenMetrics:
    """Metrics of a micro-batch: all rows, rows by decision, and rows with ``seen_full``."""

    rows: int = 0
    first: int = 0
    again: int = 0
    too_old: int = 0
    null_identity: int = 0
    null_time: int = 0
    time_out_of_range: int = 0
    full: int = 0


@dataclass(frozen=True, kw_only=True)
class SeenParameters(Spec):
    """Parameters of the operator, as in :func:`streamops.sketches.seen`; microseconds."""

    by: tuple[str, ...] = field(metadata={"parameter": "identity"})
    capacity: int
    false_positive_rate: float
    time: str | None
    horizon: int | None = field(metadata={"shown": show_duration})
    generations: int
    again: Again
    when_full: WhenFull

    adds: ClassVar[tuple[str, str]] = (SEEN, FULL)
    marked: ClassVar[str] = SEEN

    def __post_init__(self) -> None:
        if not self.by or len(set(self.by)) < len(self.by):
            raise conditions.NO_IDENTITY.error(got=f"identity={self.by!r}")
        require_capacity(self.capacity)
        require_rate(self.false_positive_rate)
        if self.horizon is not None and self.time is None:
            raise conditions.HORIZON_WITHOUT_TIME.error(
                got=f"horizon={format_duration(self.horizon)!r}, time=None"
            )

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input. Rows with equal identities meet in one shard."""
        return (Input(self.by, accepts_revisions=True),)

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> SeenSpec:
        """Resolve the parameters against the schema of the input."""
        (schema,) = schemas
        for name in self.by:
            with located(at=f"column {name!r}"):
                require_hashable(schema.field(name).type)
        spec = SeenSpec(self, schema, shards)
        if spec.shape.bits > MOST_BITS:
            enough = shards * -(-spec.shape.bits // MOST_BITS)
            got = f"filters of {spec.shape.bits} bits, with shards={shards}"
            refuse_large(conditions.FILTERS_NEED_SHARDS, got, shards=enough)
        return spec

    def build_rows(self, rows: pa.Table) -> pa.Table:
        """The result of annotated rows: the rows."""
        return rows


@dataclass(frozen=True, slots=True)
class SeenSpec(Spec):
    """The resolved operator."""

    parameters: SeenParameters
    input: pa.Schema
    shards: int

    @property
    def inputs(self) -> tuple[Input]:
        """The input."""
        (own,) = self.parameters.inputs
        return (replace(own, schema=self.input),)

    @property
    def room(self) -> int:
        """Items of a generation in one shard."""
        parameters = self.parameters
        return seen_state.room_of(parameters.capacity, parameters.generations, self.shards)

    @property
    def shape(self) -> Shape:
        """Shape of every filter."""
        parameters = self.parameters
        rate = parameters.false_positive_rate
        return seen_state.shape_of(parameters.capacity, parameters.generations, rate, self.shards)

    @property
    def rotation(self) -> Rotation:
        """Rules of the generations of one shard.

        Within capacity there is one generation with room per cell, and as many again that are full.
        Beyond it, only "flag" stores all of them.
        """
        parameters = self.parameters
        most = 2 * (parameters.generations + 1) if parameters.when_full == "flag" else sys.maxsize
        return Rotation(self.shape, self.room, parameters.false_positive_rate, most)

    @property
    def output(self) -> pa.Schema:
        """The columns of the input and those that are added."""
        return self.input.append(pa.field(SEEN, pa.string())).append(pa.field(FULL, pa.bool_()))

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that the state depends on, and the shape, which is computed from logarithms."""
        parameters, shape = self.parameters, self.shape
        return {
            "identity": [[name, str(self.input.field(name).type)] for name in parameters.by],
            "time": parameters.time,
            "horizon": parameters.horizon,
            "generations": parameters.generations,
            "capacity": parameters.capacity,
            "false_positive_rate": parameters.false_positive_rate,
            "bits": shape.bits,
            "probes": shape.probes,
            **digest_version(self.input.field(name).type for name in parameters.by),
        }

    def cell(self, times: Instants) -> Ids:
        """The cell of each timestamp; 0 without a horizon."""
        horizon = self.parameters.horizon
        if horizon is None:
            return np.zeros(len(times), np.int64)
        return times // -(-horizon // self.parameters.generations)


class SeenCore(Core[SeenSpec]):
    """Suppression of duplicates by generations of Bloom filters."""

    STATE = StateFormat("sketches.seen", 1, segmented=True)
    TABLES: ClassVar = {
        GENERATIONS: Table(lambda spec: LAYOUT),
        **dict.fromkeys((RECENT, PREVIOUS), Table(lambda spec: None)),  # not of each state
    }
    PLACEMENT = Placement(
        watermark="greatest",
        key=lambda identity: [name for name, _ in identity["identity"]],
        redistribute=redistribute,
    )
    METRICS_TYPE = SeenMetrics
    METRICS: ClassVar = {name: name for name in ("rows", *DECISIONS, "full")}
    RETAINED_BYTES = (
        256 << 20
    )  # filters are hardly compressed, so bytes of the checkpoint and memory are alike

    def has_segments(self, spec: SeenSpec) -> bool:
        """Large filters are stored apart."""
        return True

    def adapt(
        self,
        spec: SeenSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> Mapping[str, pa.Table]:
        """The filters of an earlier version, whose items are not digests."""
        return seen_state.mark_former(spec.shape, tables)

    def run(self, spec: SeenSpec, inputs: Sequence[pa.Table]) -> Step:
        """Annotate all rows of a batch in the order of event time, without filters."""
        (rows,) = inputs
        ordered = _order(spec, rows, newest=NEVER)
        decisions, _ = ordered.decide(spec, np.full(len(ordered.items), NEVER))
        annotated = _annotate(spec, rows, decisions, is_full=False)
        return _deliver(spec, State.empty(self.layout(spec)), annotated)

    def step(
        self, spec: SeenSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. The watermark of the state is the newest event time."""
        state, annotated = annotate(spec, state, inputs)
        return _deliver(spec, state, annotated)

    def check(self, spec: SeenSpec, state: State) -> None:
        """Generations are sorted, within the horizon, and have no more bits than their items set."""
        generations, older = read_filters(spec.shape, state)
        count = spec.parameters.generations
        printed = f"newest {state.watermark}, {[(g.cell, g.items) for g in generations]}"
        cells = [generation.cell for generation in generations]
        assert cells == sorted(cells), f"out of order: {printed}"
        assert len(generations) <= 3 * (count + 1), f"too many: {printed}"
        if state.watermark is not None and cells:
            (newest,) = spec.cell(np.array([state.watermark])).tolist()
            assert newest - count <= cells[0] <= cells[-1] <= newest, f"too old: {printed}"
        if state.watermark is not None and older:
            (newest,) = spec.cell(np.array([state.watermark])).tolist()
            assert max(of.cell for of in older) <= newest, f"too new: {printed}"
        for generation in generations:
            bits = int(np.unpackbits(generation.bits.view(np.uint8)).sum())
            assert len(generation.bits) == spec.shape.length, f"another shape: {printed}"
            assert 0 < bits <= generation.items * spec.shape.probes, f"{bits} bits: {printed}"


def _deliver(spec: SeenSpec, state: State, rows: pa.Table) -> Step:
    """The step that annotated rows are, without duplicates if they are dropped."""
    decisions = combine_chunks(rows.column(SEEN))
    counts = {str(c["values"]): int(c["counts"]) for c in decisions.value_counts().to_pylist()}
    full = pc.sum(rows.column(FULL), min_count=0).as_py()
    metrics = SeenMetrics(rows=len(rows), full=full, **counts)
    if spec.parameters.again == "drop" and metrics.again:
        rows = rows.filter(pc.not_equal(decisions, DECISIONS[_AGAIN]))
    return Step(state, rows, spec.output.empty_table(), metrics)


def annotate(spec: SeenSpec, state: State, inputs: Sequence[pa.Table]) -> tuple[State, pa.Table]:
    """The state after a micro-batch, and all of its rows with their decisions."""
    (rows,) = inputs
    if not len(rows):  # no filter is read
        return state, _annotate(spec, rows, np.empty(0, np.int64), is_full=False)
    generations, older = read_filters(spec.shape, state)
    rotation = spec.rotation
    newest = NEVER
    if state.watermark is not None:
        (newest,) = spec.cell(np.array([state.watermark])).tolist()
    ordered = _order(spec, rows, newest=newest)
    probes = positions(spec.shape, ordered.items)
    last = newest_cells(generations, probes)
    if older:
        last = np.maximum(last, seen_state.newest_cells(older, ordered.items, ordered.hashes))
    decisions, first = ordered.decide(spec, last)
    latest = state.watermark
    if spec.parameters.time is not None:
        latest = max((t for t in (latest, ordered.newest_time) if t is not None), default=None)

    oldest = max(newest, int(ordered.newest_cell.max(initial=NEVER)))
    oldest -= spec.parameters.generations
    cells = ordered.cell[first]
    for cell in np.unique(cells[cells >= oldest]).tolist():
        new = ordered.item[first[cells == cell]]
        generations = rotation.add(generations, cell, ordered.items[new], probes[:, new])
    generations = [generation for generation in generations if generation.cell >= oldest]
    older = [of for of in older if of.cell >= oldest]
    is_full = _is_full(spec, generations, older)
    if is_full:
        generations, older = _make_room(spec, generations, older)
    annotated = _annotate(spec, rows, decisions, is_full=is_full and _is_loss(spec))
    return store_filters(spec.shape, latest, generations, older, state.segments), annotated


def _is_loss(spec: SeenSpec) -> bool:
    """Whether a full state breaks a promise. Without a horizon, "evict_oldest" asks for eviction."""
    return spec.parameters.horizon is not None or spec.parameters.when_full != "evict_oldest"


def _is_full(spec: SeenSpec, generations: list[Generation], older: list[PreviousFilter]) -> bool:
    """Whether the rate is exceeded, together with filters of another number of shards."""
    return spec.rotation.is_full(generations, sum(of.rate(spec.shards) for of in older))


def _make_room(
    spec: SeenSpec, generations: list[Generation], older: list[PreviousFilter]
) -> tuple[list[Generation], list[PreviousFilter]]:
    """Fail, or drop the oldest generations, as `when_full` says."""
    parameters = spec.parameters
    if parameters.when_full == "fail":
        items = sum(of.items for of in generations) + sum(of.items for of in older)
        raise conditions.SEEN_FULL.error(
            where=f"sketches.seen, identity {', '.join(parameters.by)}",
            capacity=parameters.capacity,
            room=spec.room * parameters.generations,
            got=f"{items} in one of {spec.shards} shards",
        )
    while parameters.when_full == "evict_oldest" and len(generations) + len(older) > 1:
        if not _is_full(spec, generations, older):
            break
        first = min((of.cell for of in older), default=None)
        if first is not None and (not generations or first <= generations[0].cell):
            older = [of for of in older if of.cell > first]
        else:
            generations = generations[1:]
    return generations, older


def _annotate(spec: SeenSpec, rows: pa.Table, decisions: Ids, *, is_full: bool) -> pa.Table:
    full = pa.array(np.full(len(rows), is_full))
    return pa.table([*rows.columns, _DECISIONS.take(pa.array(decisions)), full], schema=spec.output)


@dataclass(frozen=True, slots=True)
class _OrderedRows:
    """The rows with an identity and an event time, sorted by item, event time and content.

    All fields but the first and the last two have one entry per sorted row.
    """

    decisions: Ids  # of each row of the table: why it is not looked up, else "again"
    rows: Ids  # position in the table
    item: Ids  # index of the item
    time: Instants
    cell: Ids
    newest_cell: Ids  # the newest cell up to the row
    items: Ids  # distinct items
    hashes: Ids  # Spark's hash of each of them, which chose the shard

    @property
    def newest_time(self) -> int | None:
        """The newest event time."""
        return int(self.time.max()) if len(self.time) else None

    def decide(self, spec: SeenSpec, last: Ids) -> tuple[Ids, Ids]:
        """The decision for each row of the table, and which of the sorted rows are first.

        Parameters
        ----------
        last : array of int64
            For each item, the newest cell of a generation that contains it.
        """
        decisions, last = self.decisions.copy(), last.copy()
        oldest = self.newest_cell - spec.parameters.generations
        rest = np.flatnonzero(last[self.item] < oldest)
        # A row behind the horizon is not stored, so others are not compared with it.
        old = self.cell[rest] < oldest[rest]
        decisions[self.rows[rest[old]]] = _TOO_OLD
        rest, first = rest[~old], []
        while len(rest):  # once, unless an item returns after more than a horizon
            item = self.item[rest]
            is_head = np.ones(len(rest), np.bool_)
            is_head[1:] = item[1:] != item[:-1]
            heads = rest[is_head]
            last[item[is_head]] = self.cell[heads]
            first.append(heads)
            rest = rest[~is_head]
            rest = rest[last[self.item[rest]] < oldest[rest]]
        found = np.concatenate([np.empty(0, np.int64), *first])
        decisions[self.rows[found]] = _FIRST
        return decisions, found


def _order(spec: SeenSpec, rows: pa.Table, *, newest: int) -> _OrderedRows:
    """Sort the rows that can be decided; ``newest`` is the newest cell so far."""
    decisions, time = _classify(spec.parameters, rows)
    chosen = np.flatnonzero(decisions == _AGAIN)
    identity = rows.select(spec.parameters.by)
    table = identity if len(chosen) == len(rows) else take(identity, chosen)
    items, time = digests(table.columns), time[chosen]
    hashes = xxhash64(table.columns) if "digests" in spec.identity else items
    order = np.argsort(items)
    begins = np.ones(len(order), np.bool_)
    begins[1:] = items[order][1:] != items[order][:-1]
    if not begins.all():
        order = _order_by_time(rows, chosen, order, begins, time)
    time = time[order]
    cell = spec.cell(time)
    return _OrderedRows(
        decisions=decisions,
        rows=chosen[order],
        item=np.cumsum(begins) - 1,
        time=time,
        cell=cell,
        newest_cell=np.maximum(cell, newest),
        items=items[order[begins]],
        hashes=hashes[order[begins]],
    )


def _classify(parameters: SeenParameters, rows: pa.Table) -> tuple[Ids, Instants]:
    """Why a row cannot be decided, else "again"; and the event times."""
    result = np.full(len(rows), _AGAIN)
    time = np.zeros(len(rows), np.int64)
    if parameters.time is not None:
        time, valid = timestamp_micros(rows.column(parameters.time))
        result[(time < MIN_INSTANT) | (time > MAX_INSTANT)] = _OUT_OF_RANGE
        result[~valid] = _NULL_TIME
    for name in parameters.by:
        column = rows.column(name)
        if column.null_count:
            result[np.asarray(column.is_null())] = _NULL_IDENTITY
    return result, time


def _order_by_time(rows: pa.Table, chosen: Ids, order: Ids, begins: Mask, time: Instants) -> Ids:
    """Sort rows of the same item by event time, and those of the same event time by content."""
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins)
    several = ~begins | ~np.append(begins[1:], True)
    some = np.sort(order[several])
    some = some[np.lexsort((time[some], number[some]))]
    same = (np.diff(number[some]) == 0) & (np.diff(time[some]) == 0)
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():
        content = np.zeros(len(some), np.int64)
        content[tied] = digests(take(rows, chosen[some[tied]]).columns)
        some = some[np.lexsort((content, time[some], number[some]))]
    result = order.copy()
    result[several] = some
    return result
