"""As-of join: each fact with the version of its key closest to its event time.

A fact at ``t`` waits until the operator's watermark has reached ``t``; forward and nearest, until it has
reached ``t + tolerance``. It is then joined: backward with the newest version with version time <= t,
forward with the first with version time >= t, nearest with the closer of the two. Rows are late if their
time is not above the watermark of the previous step, and too late if it is the allowed lateness or more
below it.

A late version counts for every fact that is still waiting. If results are retracted, it also counts
for published facts less than the allowed lateness below the watermark; these facts stay in state. What was
published for them follows from the versions before the step, so it is not stored.

Versions stay in state while a fact that is accepted or stored can find them: of every key the newest at
or below the horizon, and all above it; forward only the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    REVISION,
    is_change_type,
)
from streamops.changelog.table import TOMBSTONE, UNAVAILABLE, drop_tombstones, refuse_change_type
from streamops.changelog.versions import Direction, KeyedRows, MergedVersions, Versions
from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    JoinSpec,
    added_columns,
    join_values,
    require_into,
    require_key_types,
)
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import (
    by_name,
    combine_chunks,
    concat,
    conform,
    filter_rows,
    is_complete,
    key_codes,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Identity, Input, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.errors import located
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.lag import note_lag
from streamops.kernel.lateness import Arrivals, Lateness, build_late
from streamops.kernel.operator import Core, Table, checkpointed
from streamops.kernel.ordering import require_sequence
from streamops.kernel.parameters import (
    Delays,
    refuse_type,
    require_columns,
    require_instant,
    show_delays,
    show_duration,
    unused_watermark,
)
from streamops.kernel.placement import ByKey, Placement
from streamops.kernel.time import BEFORE_ALL, advance_watermark

How = Literal["left", "inner"]
Stragglers = Literal["drop", "route", "answer"]
LateVersions = Literal["ignore", "retract"]
TooLate = Literal["drop", "route"]
WaitsFor = Literal["both", "facts"]


def refuse_pair(time: object) -> None:
    """Refuse a column of each frame as the event time: that of the right one has a parameter of its own."""
    if isinstance(time, tuple | list):
        raise conditions.TIME_OF_ONE_SIDE.error(got=f"time={time!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofSpec(JoinSpec):
    """The parameters of :func:`streamops.joins.asof`. Durations are in microseconds."""

    time: str = checkpointed()
    version: str = checkpointed()
    sequence: str = checkpointed()
    until: str | None = checkpointed()
    deleted: str | None = checkpointed()
    how: How = checkpointed()
    tolerance: int | None = checkpointed(metadata={"shown": show_duration})
    direction: Direction = checkpointed()
    allow_exact: bool = checkpointed()
    waits_for: WaitsFor
    delay: Delays = field(metadata={"shown": show_delays})
    allowed_lateness: int = checkpointed(metadata={"shown": show_duration})
    stragglers: Stragglers = checkpointed()
    late_versions: LateVersions = checkpointed()
    too_late: TooLate = checkpointed()
    into: str
    final: int = field(default=BEFORE_ALL, repr=False)
    """Facts up to here are published, whatever the tolerance is."""
    is_last: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        require_into(self.into)
        self._refuse_contradictions()
        self._refuse_directions()

    def as_last(self) -> AsofSpec:
        """The join behind watermarks without room for facts that wait for later versions."""
        return replace(self, is_last=True)

    def require_tolerance(self) -> None:
        """Refuse a forward search without a bound, on a stream."""
        if self.direction != "backward" and self.tolerance is None:
            raise conditions.TOLERANCE_MISSING.error(
                got=f"direction={self.direction!r} on a stream, without tolerance"
            )

    @property
    def declared(self) -> tuple[Input, Input]:
        """The facts, and the versions."""
        version = self.version if self.waits_for == "both" else None
        return (
            Input(self.left_by, self.time, delay=self.delay[0], columns=(self.time,)),
            Input(
                self.right_by,
                version,
                delay=self.delay[1],
                columns=(self.version, self.sequence),
                accepts_revisions=True,
            ),
        )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> AsofSpec:
        """Resolve the parameters against the schemas of facts and versions."""
        left, right = schemas
        self._refuse_columns(left, right)
        if self.waits_for == "facts" and carried[1] is not None:
            raise unused_watermark(carried[1], waits_for=self.waits_for)
        hidden = {self.deleted, CHANGE_TYPE, TOMBSTONE}
        inputs = self.resolve_inputs(schemas, carried)
        added = added_columns(
            self.into, changes=self.retracts, late=(left, right) if self.routes else None
        )
        visible = pa.schema([column for column in right if column.name not in hidden])
        return self.with_columns(inputs, left, visible, added)

    @property
    def facts(self) -> pa.Schema:
        """All columns of the facts."""
        return self.inputs[0].schema

    @property
    def table(self) -> pa.Schema:
        """All columns of the versions."""
        return self.inputs[1].schema

    @property
    def changes(self) -> bool:
        """Whether the versions are a change stream."""
        return CHANGE_TYPE in self.table.names

    @property
    def retracts(self) -> bool:
        """Whether results can be revised, so that the output is a change stream."""
        return self.late_versions == "retract"

    @property
    def routes(self) -> bool:
        """Whether late rows are emitted as side output."""
        return "route" in (self.stragglers, self.too_late)

    @property
    def look_ahead(self) -> int:
        """How far the watermark must have passed a fact before the fact is joined.

        In a batch without a tolerance it does not matter: the watermark has passed everything.
        """
        return 0 if self.direction == "backward" or self.tolerance is None else self.tolerance

    @property
    def retention(self) -> int:
        """How long after its event time a fact can still be joined, or its result be revised."""
        if self.retracts:
            return self.look_ahead + self.allowed_lateness
        accepted = self.allowed_lateness if self.stragglers == "answer" else 0
        return max(self.look_ahead, accepted)

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness + self.held_back

    def lag_of(self, identity: Identity) -> int:
        """The lag of an operator with this identity."""
        names = ("tolerance", "direction", "allow_exact", "how", "stragglers", "allowed_lateness")
        before = {name: identity[name] for name in (*names, "too_late")}
        return replace(self, **before).lag

    @property
    def held_back(self) -> int:
        """How far behind the watermark a result on time can lie; whole milliseconds, rounded up."""
        return 0 if self.is_last else -(-self.look_ahead // 1_000) * 1_000

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on. ``delay`` and ``waits_for`` may change."""
        return {
            **super(AsofSpec, self).identity,
            "facts": sorted([column.name, str(column.type)] for column in self.facts),
            "table": sorted([column.name, str(column.type)] for column in self.table),
        }

    @property
    def _optional(self) -> dict[str, str]:
        """Optional columns of the versions, by parameter."""
        names = {"until": self.until, "deleted": self.deleted}
        return {role: name for role, name in names.items() if name is not None}

    def _refuse_contradictions(self) -> None:
        roles = {"version": self.version, "sequence": self.sequence, **self._optional}
        used = {"by": [*set(self.right_by)], **{role: [name] for role, name in roles.items()}}
        refuse_change_type(used)
        if self.sequence == REVISION:
            raise conditions.SEQUENCE_OF_VERSIONS.error(got=f"sequence={self.sequence!r}")
        if self.sequence == self.version:  # a key has one version at an instant
            del used["sequence"]
        names = [name for columns in used.values() for name in columns]
        if len(set(names)) < len(names):
            raise conditions.COLUMN_TWICE.error(
                got=", ".join(f"{k}={v!r}" for k, v in {"by": self.by, **roles}.items())
            )
        if self.too_late == "route" and self.stragglers != "answer" and not self.retracts:
            raise conditions.TOO_LATE_WITHOUT_ANSWERS.error(
                got=f"too_late='route' with stragglers={self.stragglers!r}, "
                f"late_versions={self.late_versions!r}"
            )

    def _refuse_directions(self) -> None:
        if self.direction == "forward" and self.until is not None:
            raise conditions.UNTIL_WITHOUT_BACKWARD.error(
                got=f"until={self.until!r} with direction='forward'"
            )
        if self.tolerance == 0 and not self.allow_exact:
            raise conditions.NO_VERSION_CAN_MATCH.error(got="tolerance of 0 with allow_exact=False")

    def _refuse_columns(self, left: pa.Schema, right: pa.Schema) -> None:
        with located(at="left frame"):
            require_columns(left.names, {"by": self.left_by, "time": [self.time]})
            require_instant(left, self.time)
        require_key_types(left, right, self.by)
        with located(at="right frame"):
            self._refuse_versions(right)

    def _refuse_versions(self, right: pa.Schema) -> None:
        used = {"by": self.right_by, "version": [self.version], "sequence": [self.sequence]}
        used |= {role: [name] for role, name in self._optional.items()}
        require_columns(right.names, used)
        for name in (self.version, *([self.until] if self.until is not None else [])):
            require_instant(right, name)
        require_sequence(right, (self.sequence,))
        flag = self.deleted
        if flag in right.names and not pa.types.is_boolean(right.field(flag).type):
            refuse_type(conditions.FLAG_TYPE, right, str(flag))
        marks = {
            TOMBSTONE: (pa.types.is_boolean, "boolean", "a tombstone flag"),
            CHANGE_TYPE: (pa.types.is_string, "string", "the change type"),
        }
        for mark, (is_expected, expected, use) in marks.items():
            if mark in right.names and not is_expected(right.field(mark).type):
                refuse_type(conditions.MARK_TYPE, right, mark, use=use, expected=expected)
        if UNAVAILABLE in right.names:
            raise conditions.ROWS_NOT_WHOLE.error(
                unavailable=UNAVAILABLE,
                got=f"a column {UNAVAILABLE!r} with their names: these values are null",
            )


_NO_KEY = -1


def _fact_key(identity: Identity) -> list[str]:
    return [fact for fact, _ in identity["by"]]


class AsofCore(Core[AsofSpec]):
    """As-of join: each fact with the version of its key closest to its event time."""

    STATE = StateFormat("joins.asof", 1)
    # The columns of the inputs, in the order of their names.
    TABLES: ClassVar = {
        "versions": Table(
            lambda spec: by_name(spec.table),
            ByKey(key=lambda identity: [version for _, version in identity["by"]]),
        ),
        "facts": Table(lambda spec: by_name(spec.facts), ByKey(key=_fact_key)),
    }
    PLACEMENT = Placement(key=_fact_key)

    def pack(self, spec: AsofSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """The rows with their columns in the order of the state."""
        return conform(rows, by_name(spec.facts if side == "left" else spec.table))

    def step(
        self, spec: AsofSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring."""
        left, right = inputs
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        previous = BEFORE_ALL if previous_watermark is None else previous_watermark
        current = BEFORE_ALL if watermark is None else watermark
        new_facts = _accept_facts(spec, left, previous_watermark)
        new_versions = _accept_versions(spec, right, previous_watermark)

        versions, stored = state.tables["versions"], state.tables["facts"]
        keys = _number_keys(spec, [versions, new_versions.rows], [stored, new_facts.rows])
        merged = Versions.merge(
            spec,
            KeyedRows(versions, keys[0], timestamp_micros(versions.column(spec.version))[0]),
            KeyedRows(new_versions.rows, keys[1], new_versions.times),
        )
        facts = KeyedRows(
            concat([stored, new_facts.rows]),
            np.concatenate([keys[2], keys[3]]),
            np.concatenate([timestamp_micros(stored.column(spec.time))[0], new_facts.times]),
        )
        deadlines = np.where(facts.times <= spec.final, BEFORE_ALL, facts.times + spec.look_ahead)
        # A fact that is never revised leaves when it is published. After a change of the tolerance it may be due.
        is_published = (deadlines <= previous) & spec.retracts
        is_published[len(stored) :] = False

        output, published = _publish(spec, facts, ~is_published & (deadlines <= current), merged)
        metrics = new_facts.metrics + new_versions.metrics + published
        # A version that results have missed is emitted, unless it is emitted as a conflict.
        missed = new_versions.lateness.too_late
        if spec.stragglers == "route" and not spec.retracts:
            missed = ~new_versions.lateness.on_time
        missed = missed & ~merged.is_rejected
        late = [new_facts.late, new_versions.late]
        late.append(new_versions.side_output(missed))
        if len(merged.conflicting.keys):
            late.append(_build_conflicts(spec, merged.conflicting.table))
            metrics += _count_conflicts(spec, merged.conflicting, previous_watermark)
        is_behind = new_versions.times <= previous
        if spec.retracts and is_behind.any():
            # A version above the watermark cannot change a published result.
            affected = is_published & np.isin(facts.keys, keys[1][is_behind])
            revised, corrections = _revise(spec, facts, np.flatnonzero(affected), merged)
            output, metrics = concat([revised, output]), metrics + corrections

        is_needed = merged.versions.is_needed(spec, current - spec.retention)
        tables = {
            "versions": filter_rows(merged.versions.table, is_needed),
            "facts": filter_rows(facts.table, _is_waiting(spec, facts, current)),
        }
        return Step(State(watermark, tables), output, concat(late), metrics)

    def adapt(
        self,
        spec: AsofSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the columns by name. Rows that the parameters do not need any more leave in the next step."""
        schemas = self.layout(spec)
        mapped = {
            name: map_columns(schema.names, tables[name].column_names, tables[name], schema)
            for name, schema in schemas.items()
        }
        raised = spec.lag - spec.lag_of(stored)
        return note_lag({**tables, **mapped}, raised, final=not spec.retracts)

    def finalize(self, spec: AsofSpec, until: int) -> AsofSpec:
        """Facts are published."""
        return replace(spec, final=until)

    def next_deadline(self, spec: AsofSpec, state: State) -> int | None:
        """The next watermark at which a fact is joined, or a row is evicted."""
        versions, facts = _read(spec, state)
        deadlines = facts.times + spec.look_ahead
        waits = deadlines > (BEFORE_ALL if state.watermark is None else state.watermark)
        if (
            spec.retracts and spec.how == "inner"
        ):  # a fact without a match is stored and not emitted
            waits &= (facts.keys != _NO_KEY) & (versions.find(spec, facts.keys, facts.times) >= 0)
        evicted_at = facts.times + spec.retention
        due = np.concatenate(
            [versions.evicted_at(spec) + spec.retention, np.where(waits, deadlines, evicted_at)]
        )
        return int(due.min()) if len(due) else None

    def check(self, spec: AsofSpec, state: State) -> None:
        """Every version is stored once, and no row longer than needed."""
        versions, facts = _read(spec, state)
        current = BEFORE_ALL if state.watermark is None else state.watermark
        tables = (f"{name}: {table.to_string()}" for name, table in state.tables.items())
        formatted = "\n".join([f"watermark {state.watermark}", *tables])
        needed = versions.is_needed(spec, current - spec.retention)
        assert len(versions) == len(state.tables["versions"]), f"a version twice: {formatted}"
        assert needed.all(), f"versions overdue: {formatted}"
        assert _is_waiting(spec, facts, current).all(), f"facts overdue: {formatted}"


def _accept_facts(spec: AsofSpec, rows: pa.Table, previous_watermark: int | None) -> Arrivals:
    """The facts to join; late ones are emitted as side output or counted."""
    facts = _classify(spec, "left", rows, spec.time, previous_watermark)
    lateness = facts.lateness
    accepted = ~lateness.too_late if spec.stragglers == "answer" else lateness.on_time
    late = ~lateness.on_time if spec.stragglers == "route" else lateness.too_late
    return facts.accept(accepted, routed=late)


def _classify(
    spec: AsofSpec,
    side: SideName,
    rows: pa.Table,
    time: str,
    previous_watermark: int | None,
    invalid: Sequence[tuple[str, Mask]] = (),
) -> Arrivals:
    """The rows with a usable time."""
    lateness = Lateness.of(rows.column(time), previous_watermark, spec.allowed_lateness, invalid)
    return Arrivals.classify(spec.output, rows, lateness, side=side)


def _accept_versions(spec: AsofSpec, rows: pa.Table, previous_watermark: int | None) -> Arrivals:
    """The versions that can be found, late ones among them.

    Preimages, and versions with a null in the key, are counted and have no effect; so are tombstones,
    which have no time.
    """
    versions = drop_tombstones(rows)
    tombstones = len(rows) - len(versions)
    invalid = [("null_sequence", ~is_complete(versions, (spec.sequence,)))]
    if spec.until is not None:
        times, _ = timestamp_micros(versions.column(spec.version))
        until, is_closed = timestamp_micros(versions.column(spec.until))
        invalid.append(("until_before_version", is_closed & (until < times)))
    if spec.changes:
        invalid.append(("unknown_change_type", ~is_change_type(versions.column(CHANGE_TYPE))))
    arrivals = _classify(spec, "right", versions, spec.version, previous_watermark, invalid)
    counted = Metrics(rows=tombstones, on_time=tombstones) + arrivals.metrics
    effective = is_complete(arrivals.rows, spec.right_by)
    if spec.changes:
        types = combine_chunks(arrivals.rows.column(CHANGE_TYPE))
        effective &= ~np.asarray(pc.equal(types, PREIMAGE))
    return replace(arrivals.where(effective), metrics=counted)


def _build_conflicts(spec: AsofSpec, rows: pa.Table) -> pa.Table:
    """Versions in conflict with another one, as side output."""
    if not spec.routes:
        return spec.output.empty_table()
    reason = {"reason": pa.repeat("conflicting_version", len(rows))}
    return build_late(spec.output, rows, reason, side="right")


def _count_conflicts(spec: AsofSpec, rows: KeyedRows, previous_watermark: int | None) -> Metrics:
    """Count conflicting versions as rejected, instead of by their lateness as before."""
    counted = Lateness.compare(rows.times, previous_watermark, spec.allowed_lateness).metrics
    return Metrics(
        rejected=len(rows.times),
        on_time=-counted.on_time,
        stragglers=-counted.stragglers,
        too_late=-counted.too_late,
    )


def _publish(
    spec: AsofSpec, facts: KeyedRows, which: Mask, merged: MergedVersions
) -> tuple[pa.Table, Metrics]:
    """Join facts for the first time."""
    rows = np.flatnonzero(which)
    found = merged.versions.find(spec, facts.keys[rows], facts.times[rows])
    if spec.how == "inner":
        rows, found = rows[found >= 0], found[found >= 0]
    output = _build_output(spec, facts.table, rows, merged.versions.table, found, INSERT)
    return output, Metrics(results=len(rows))


def _revise(
    spec: AsofSpec, facts: KeyedRows, rows: Ids, merged: MergedVersions
) -> tuple[pa.Table, Metrics]:
    """The changes of published results, over these facts."""
    before, position = merged.before(spec)
    old = before.find(spec, facts.keys[rows], facts.times[rows])
    new = merged.versions.find(spec, facts.keys[rows], facts.times[rows])
    differs = np.append(position, -1)[old] != new
    differs |= np.append(merged.is_replaced, False)[new]
    rows, old, new = rows[differs], old[differs], new[differs]
    # An inner join has no row for a fact without a version.
    had, has = (spec.how == "left") | (old >= 0), (spec.how == "left") | (new >= 0)
    changes = [
        (before, old, had & has, PREIMAGE),
        (before, old, had & ~has, DELETE),
        (merged.versions, new, had & has, POSTIMAGE),
        (merged.versions, new, ~had & has, INSERT),
    ]
    output = [
        _build_output(spec, facts.table, rows[which], versions.table, found[which], change)
        for versions, found, which, change in changes
    ]
    return concat(output), Metrics(corrections=int(np.count_nonzero(has)))


def _build_output(
    spec: AsofSpec, facts: pa.Table, rows: Ids, versions: pa.Table, found: Ids, change: str
) -> pa.Table:
    """Facts joined with versions; nulls where there is none."""
    values = [versions.column(name) for name, _ in spec.names.right]
    chosen = take(facts.select(spec.facts.names), rows)
    return join_values(spec.output, chosen, values, found, change if spec.retracts else None)


def _is_waiting(spec: AsofSpec, facts: KeyedRows, watermark: int) -> Mask:
    """Which facts can still be joined, or have their result revised."""
    waits = (facts.times + spec.look_ahead > watermark) & (facts.times > spec.final)
    if spec.how == "inner":  # without a key there is never a result
        waits &= facts.keys != _NO_KEY
    if spec.retracts:
        waits |= (facts.times > watermark - spec.retention) & (facts.keys != _NO_KEY)
    return waits


def _number_keys(
    spec: AsofSpec, versions: Sequence[pa.Table], facts: Sequence[pa.Table]
) -> list[Ids]:
    """The number of the key of each row, over all tables; ``_NO_KEY`` for facts with a null key."""
    names = [spec.right_by] * len(versions) + [spec.left_by] * len(facts)
    tables = [*versions, *facts]
    keys = [[combine_chunks(t.column(n)) for n in by] for t, by in zip(tables, names, strict=True)]
    sizes = [len(table) for table in tables]
    columns = [pa.concat_arrays(pieces) for pieces in zip(*keys, strict=True)]
    codes = key_codes(columns, sum(sizes))
    numbers = np.split(codes - codes.min(initial=0), np.cumsum(sizes)[:-1])
    for at, rows in enumerate(facts, len(versions)):
        numbers[at] = np.where(is_complete(rows, spec.left_by), numbers[at], _NO_KEY)
    return numbers


def _read(spec: AsofSpec, state: State) -> tuple[Versions, KeyedRows]:
    """The tables of a state."""
    versions, facts = state.tables["versions"], state.tables["facts"]
    keys = _number_keys(spec, [versions], [facts])
    stored = KeyedRows(versions, keys[0], timestamp_micros(versions.column(spec.version))[0])
    return Versions.read(spec, stored), KeyedRows(
        facts, keys[1], timestamp_micros(facts.column(spec.time))[0]
    )
