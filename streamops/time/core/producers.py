"""The clock of a stream with several producers, from which Spark derives the watermark.

A producer is *active* from its first row until it has been silent for `idle`, measured by the
arrival of rows; then it is evicted. Its newest event time is the maximum since it became active.
The clock is the minimum of these over the active producers that are not behind the clock, so it
never goes back. A producer that joins or returns behind the clock does not stop the clock, and
holds it again as soon as it has caught up.

*Expected* producers are active from the first micro-batch with a usable row. There is no clock until
each of them has sent a row.

The core has no key: one shard has the state of all producers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, concat, integers, key_codes, take, type_name
from streamops.kernel.core import (
    CLOCK_OUTPUT,
    ClockMetrics,
    Input,
    SideName,
    State,
    StateFormat,
    Step,
)
from streamops.kernel.errors import located
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Mask
from streamops.kernel.hashing import require_hashable
from streamops.kernel.operator import Core, Spec, Table, checkpointed
from streamops.kernel.parameters import require_distinct_columns, show_duration
from streamops.kernel.placement import Placement
from streamops.kernel.time import BEFORE_ALL, MIN_INSTANT
from streamops.time import conditions
from streamops.time.core.track_clock import calendar_micros

ARRIVAL = "__streamops_arrival"
"""The column of the input with the arrival, if it is not a column of the frame."""
PRODUCER, NEWEST, SEEN = "key.0", "newest", "seen"
_ROWS, _REJECTED = "rows", "rejected"
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersSpec(Spec):
    """The parameters of the clock; durations in microseconds.

    A change of `idle` takes effect with the next step; `expected` matters only at the start.
    """

    where: ClassVar[str] = "time.producers"

    producer: str = checkpointed(lambda spec, name: [name, str(spec.producer_type)])
    time: str = checkpointed()
    delay: int = field(metadata={"shown": show_duration})
    idle: int = field(metadata={"shown": show_duration})
    arrival: str | None = checkpointed()
    punctuation: str | None = None
    expected: Sequence[Any]
    producer_type: pa.DataType | None = field(default=None, repr=False)
    """Type of the column `producer`, set by ``resolve``."""

    def __post_init__(self) -> None:
        optional = {"arrival": self.arrival, "punctuation": self.punctuation}
        given = {role: name for role, name in optional.items() if name is not None}
        require_distinct_columns(producer=self.producer, time=self.time, **given)
        if isinstance(self.expected, str | bytes) or not isinstance(self.expected, Sequence):
            raise conditions.NOT_A_LIST.error(
                producer=self.expected, column=self.producer, got=f"expected={self.expected!r}"
            )
        object.__setattr__(self, "expected", tuple(self.expected))

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> ProducersSpec:
        """Return the specification with the type of the producers."""
        (schema,) = schemas
        producer_type = schema.field(self.producer).type
        with located(at=f"producer {self.producer!r}"):
            require_hashable(producer_type)
        try:
            pa.array(self.expected, producer_type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise conditions.EXPECTED_TYPE.error(
                column=self.producer,
                got=f"expected={list(self.expected)!r}, {self.producer!r} of type "
                f"{type_name(producer_type)}",
            ) from error
        return replace(self, producer_type=producer_type)

    @property
    def times(self) -> tuple[str | None, ...]:
        """The event-time column."""
        return (self.time,)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """One shard has the state of all producers."""
        names = (self.producer, self.time, self.arrival, self.punctuation)
        schema = pa.schema([]) if self.producer_type is None else self.input
        columns = tuple(name for name in names if name is not None)
        return (Input((), schema=schema, columns=columns, accepts_revisions=True),)

    @property
    def output(self) -> pa.Schema:
        """The metrics of a step, and the size of the state."""
        return CLOCK_OUTPUT.append(pa.field("state_bytes", pa.int64()))

    @property
    def input(self) -> pa.Schema:
        """Columns that :func:`pack` reads: the producer, the event time, and the arrival."""
        types = (self.producer_type, _INSTANT, _INSTANT)
        names = (self.producer, self.time, self.arrival or ARRIVAL)
        return pa.schema(list(zip(names, types, strict=True)))


class ProducersCore(Core[ProducersSpec]):
    """The clock of a stream with several producers, from which Spark derives the watermark."""

    STATE = StateFormat("time.producers", 1)
    TABLES: ClassVar = {
        "producers": Table(
            lambda spec: pa.schema([(PRODUCER, spec.producer_type), *_instants(NEWEST, SEEN)])
        )
    }
    PLACEMENT = Placement(key=lambda identity: [identity["producer"][0]], is_single=True)
    METRICS: ClassVar = {}
    """None besides the output, which consists of metrics."""
    STEPS_WITHOUT_ROWS = True

    def pack(self, spec: ProducersSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Aggregate to one row per producer: greatest event time, greatest arrival, counts of rows."""
        producers, *instants = rows.columns
        groups, firsts = Groups.of(key_codes([producers], len(rows)))
        (times, has_time), (arrivals, has_arrival) = map(calendar_micros, instants)
        is_usable = has_time & has_arrival
        packed = {
            NEWEST: groups.greatest(np.where(is_usable, times, BEFORE_ALL)),
            SEEN: groups.greatest(np.where(is_usable, arrivals, BEFORE_ALL)),
            _ROWS: groups.sizes(),
            _REJECTED: groups.where(~is_usable).sizes(),
        }
        producer = take(rows.select([0]), firsts).column(0)
        schema = pa.schema([(PRODUCER, spec.producer_type), *_instants(*packed)])
        return pa.table([producer, *packed.values()], schema=schema)

    def step(
        self, spec: ProducersSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch: merge the rows, evict silent producers, advance the clock.

        ``State.watermark`` is the clock. The parameter `watermark`, which Spark derives from the clock,
        is ignored.
        """
        (packed,) = inputs
        before = state.tables["producers"]
        arrived = packed.filter(pc.not_equal(packed.column(NEWEST), BEFORE_ALL))
        arrived = arrived.select(before.column_names).cast(before.schema)
        both = concat([before, arrived, _expected(spec, before, arrived)])
        groups, firsts = Groups.of(key_codes([both.column(PRODUCER)], len(both)))
        newest, seen = (groups.greatest(integers(both, name)) for name in (NEWEST, SEEN))
        is_active = seen.max(initial=BEFORE_ALL) - seen < spec.idle
        is_known = firsts < len(before)

        rows = np.flatnonzero(is_active)
        producers = take(both.select([PRODUCER]), firsts[rows]).column(0)
        stored = pa.table([producers, newest[rows], seen[rows]], schema=before.schema)
        # The clock never passes a producer that holds it, so only one that joins can be behind.
        holds = newest[rows] >= (BEFORE_ALL if state.watermark is None else state.watermark)
        clock = state.watermark
        if holds.any():
            least = int(newest[rows][holds].min())
            clock = None if least == BEFORE_ALL else least
        metrics = ClockMetrics(
            rows=int(integers(packed, _ROWS).sum()),
            rejected=int(integers(packed, _REJECTED).sum()),
            active=len(rows),
            behind=int((~holds).sum()),
            joined=int((is_active & ~is_known).sum()),
            forgotten=int((~is_active & is_known).sum()),
            clock=clock,
            **_extremes(stored, holds),
        )
        output = pa.Table.from_pylist([asdict(metrics)], CLOCK_OUTPUT)
        return Step(
            State(clock, {"producers": stored}), output, CLOCK_OUTPUT.empty_table(), metrics
        )

    def check(self, spec: ProducersSpec, state: State) -> None:
        """Assert the invariants of the state."""
        table = state.tables["producers"]
        codes = key_codes([table.column(PRODUCER)], len(table))
        newest, seen = integers(table, NEWEST), integers(table, SEEN)
        rules = {
            "each producer has one row": len(np.unique(codes)) == len(codes),
            "no producer has been silent for `idle`": (
                seen.max(initial=BEFORE_ALL) - seen < spec.idle
            ).all(),
            "times are in the years 1 to 9999": (
                (newest >= MIN_INSTANT) | (newest == BEFORE_ALL)
            ).all()
            and (seen >= MIN_INSTANT).all(),
            "there is a clock if there are producers, and all have sent a row": (
                state.watermark is not None
            )
            == (len(table) > 0 and bool((newest != BEFORE_ALL).all())),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        assert not broken, f"{'; '.join(broken)}: clock {state.watermark}, {format_rows(table)}"


def _expected(spec: ProducersSpec, before: pa.Table, arrived: pa.Table) -> pa.Table:
    """Return rows of the expected producers in the first micro-batch: without an event time."""
    if len(before) or not len(arrived):
        return before.slice(0, 0)
    since = int(integers(arrived, SEEN).max())
    count = len(spec.expected)
    producers = pa.array(spec.expected, spec.producer_type)
    columns = [producers, np.full(count, BEFORE_ALL), np.full(count, since)]
    return pa.table(columns, schema=before.schema)


def _extremes(stored: pa.Table, holds: Mask) -> dict[str, Any]:
    """Return the newest event time, and the producers that have it and that hold the clock."""
    newest = integers(stored, NEWEST)
    if not len(newest):
        return {}
    greatest = int(newest.max())
    metrics: dict[str, Any] = {"newest": greatest, "led_by": _first(stored, newest == greatest)}
    if holds.any():
        metrics["held_by"] = _first(stored, newest == newest[holds].min())
    return metrics


def _first(stored: pa.Table, mask: Mask) -> str:
    """Return the first producer in alphabetical order, for a deterministic result."""
    producers = combine_chunks(stored.column(PRODUCER).filter(pa.array(mask)))
    try:
        names = producers.cast(pa.string())
    except pa.ArrowException:  # structs, lists, binary that is not UTF-8
        names = pa.array([None if p is None else str(p) for p in producers.to_pylist()])
    return str(pc.min(names.fill_null("null")))


def _instants(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.int64(), nullable=False) for name in names]
