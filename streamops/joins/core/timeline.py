"""Home timelines: the newest posts of each user, from the changes of posts joined with follows.

State has all posts of a user's timeline, as a removed post is replaced by the newest that was not in
the timeline. A step reads only the users that occur in its changes: the output is the difference of
their newest posts before and after. What was emitted follows from the rows, so it is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, change_weights
from streamops.changelog.emit import emit_changes
from streamops.changelog.table import refuse_change_type
from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    Columns,
    show_keys,
)
from streamops.joins.core.tables_spec import Rejected, TablesSpec
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, take
from streamops.kernel.core import (
    Identity,
    Input,
    Metrics,
    SideName,
    State,
    StateFormat,
    Step,
)
from streamops.kernel.errors import located
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.hashing import digests
from streamops.kernel.operator import Core, Spec, Table
from streamops.kernel.ordering import is_orderable, ranks
from streamops.kernel.parameters import refuse_type, require_columns
from streamops.kernel.placement import ByKey, Placement

MAX_CAP = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineParameters(Spec):
    """The parameters of :func:`streamops.joins.timeline`. They resolve to the join of both inputs."""

    where: ClassVar[str] = "joins.timeline"

    by: tuple[tuple[str, str], ...] = field(metadata={"shown": show_keys})
    user: Columns
    key: Columns
    ranked_by: str
    cap: int
    sequence: tuple[str, str] | None
    remember: int | None
    rejected: Rejected

    def __post_init__(self) -> None:
        columns = {"user": self.user, "key": self.key, "ranked_by": (self.ranked_by,)}
        refuse_change_type(columns)
        if type(self.cap) is not int or self.cap not in range(1, MAX_CAP):  # not 100.0 or True
            raise conditions.CAP_OUT_OF_RANGE.error(max_cap=MAX_CAP - 1, got=f"cap={self.cap!r}")
        for name in self.user:
            if name in self.join.right_by:
                raise conditions.USER_IS_AUTHOR.error(
                    column=name, got=f"user={self.user!r}, by={show_keys(self.by)}"
                )

    @property
    def join(self) -> TablesSpec:
        """The join of posts and follows. A follow is identified by `user` and the join columns."""
        return TablesSpec(
            by=self.by,
            how="inner",
            key=(self.key, self.user),
            sequence=self.sequence,
            remember=self.remember,
            rejected=self.rejected,
        )

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The changes of the posts, and of who follows whom."""
        posts, follows = self.join.inputs
        ranked = [name for name in [self.ranked_by] if name not in (*posts.by, *posts.columns)]
        return replace(posts, columns=(*posts.columns, *ranked)), follows

    @property
    def follows(self) -> Columns:
        """Columns of the right that are used: author, user, sequence."""
        sequence = self.sequence[1:] if self.sequence else ()
        return tuple(dict.fromkeys((*self.join.right_by, *self.user, *sequence)))

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> TablesSpec:
        """Resolve the join against both schemas; of the right, against the columns that are used."""
        left, right = schemas
        with located(at="left side"):
            require_columns(left.names, {"key": self.key, "ranked_by": (self.ranked_by,)})
        for name in (self.ranked_by, *self.key):
            if not is_orderable(left.field(name).type):
                use = "an order" if name == self.ranked_by else "a tie-break"
                with located(at="left side"):
                    refuse_type(conditions.POSTS_UNORDERED, left, name, use=use)
        with located(at="right side"):
            require_columns(right.names, {"by": self.join.right_by, "user": self.user})
        used = [name for name in (*self.follows, CHANGE_TYPE) if name in right.names]
        columns = pa.schema([right.field(name) for name in used])
        spec = self.join.resolve((left, columns), carried=carried, shards=shards)
        if self.sequence:
            return spec
        # Two follows of the same author need two unfollows: both tables are multisets.
        return replace(spec, tables=tuple(replace(table, key=()) for table in spec.tables))


@dataclass(frozen=True, slots=True)
class NewestParameters(Spec):
    """The parameters of the follow-up: the newest posts of each user, from the changes of the join."""

    timeline: TimelineParameters

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The changes of the join."""
        return (Input((), accepts_revisions=True, needs_preimages=True),)

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> TimelineSpec:
        """Resolve against the columns of the join: those of the posts, the user, a sequence."""
        (schema,) = schemas
        parameters, names = self.timeline, schema.names
        rest = len(set(parameters.follows) - set(parameters.join.right_by))
        end = len(names) - 1 - (parameters.rejected == "route")
        users = tuple(names[end - rest : end][: len(parameters.user)])
        used = [*names[: end - rest], *users, *names[end:]]
        return TimelineSpec(parameters, users, pa.schema([schema.field(name) for name in used]))


@dataclass(frozen=True, slots=True)
class TimelineSpec(Spec):
    """The newest posts of each user, resolved."""

    parameters: TimelineParameters
    user: Columns  # the user's columns, under their names in the joined row
    output: pa.Schema  # as the input: posts, users, the change type, and `late` if rows are routed

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The changes of the join."""
        return (Input(self.user, None, self.output),)

    @property
    def author(self) -> Columns:
        """Columns of the posts that are joined."""
        return self.parameters.join.left_by

    @property
    def routes(self) -> bool:
        """Whether the input has rejected changes, which are passed through."""
        return self.parameters.rejected == "route"

    @property
    def names(self) -> list[str]:
        """Columns of a row, sorted by name: their order in the frame may change."""
        return sorted(set(self.output.names) - {CHANGE_TYPE, *(["late"] if self.routes else [])})

    @property
    def rows(self) -> pa.Schema:
        """The state: all rows of all timelines, those beyond the cap too, with their weights."""
        columns = [(f"c.{i}", self.output.field(n).type) for i, n in enumerate(self.names)]
        return pa.schema([*columns, ("weight", pa.int64())])

    @property
    def packed(self) -> pa.Schema:
        """The columns of the state. A rejected change has the weight 0."""
        late = [self.output.field("late")] if self.routes else []
        return pa.schema([*self.rows, *late])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Output columns that have values of an input column: which input and column."""
        return {name: (0, name) for name in self.output.names if name != CHANGE_TYPE}

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on, and the cap, on which the emitted rows depend."""
        return {
            "columns": [[name, str(self.output.field(name).type)] for name in self.names],
            "user": list(self.user),
            "author": list(self.author),
            "key": list(self.parameters.key),
            "ranked_by": self.parameters.ranked_by,
            "cap": self.parameters.cap,
        }


class TimelineCore(Core[TimelineSpec]):
    """Home timelines: the newest posts of each user, from the changes of posts joined with follows."""

    STATE = StateFormat("joins.timeline", 1)
    TABLES: ClassVar = {
        "rows": Table(
            lambda spec: spec.rows,
            ByKey(
                columns=lambda identity: [name for name, _ in identity["columns"]],
                key=lambda identity: identity["user"],
            ),
        )
    }
    PLACEMENT = Placement(key=lambda identity: identity["user"])
    METRICS: ClassVar = {
        "rows": "rows",
        "ignored": "rejected",
        "results": "results",
        "corrections": "corrections",
    }

    def pack(self, spec: TimelineSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """The rows with weights instead of change types."""
        rows = conform(rows, spec.output)
        columns = [rows.column(name) for name in spec.names]
        columns.append(pa.array(change_weights(rows.column(CHANGE_TYPE))))
        if spec.routes:
            columns.append(rows.column("late"))
        return pa.table(columns, schema=spec.packed)

    def step(
        self, spec: TimelineSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring."""
        (packed,) = inputs
        weight = np.asarray(combine_chunks(packed.column("weight")))
        moves = np.flatnonzero(weight)
        arrived = packed.select(spec.rows.names[:-1])
        arrived = take(arrived, moves) if len(moves) < len(arrived) else arrived
        stored = state.tables["rows"]
        rows, untouched = _rows_of_changed_users(spec, stored, arrived, weight[moves])

        order = _newest_first(spec, rows)
        was, is_ = np.zeros((2, len(order)), np.bool_)
        was[_select_newest(rows, order, rows.before > 0, spec.parameters.cap)] = True
        is_[_select_newest(rows, order, rows.after > 0, spec.parameters.cap)] = True
        changes, results, corrections = _emit(spec, rows, was, is_)

        updated = pa.table([*rows.table.columns, pa.array(rows.after)], schema=spec.rows)
        remaining = updated.filter(pa.array(rows.after != 0))
        table = concat([stored.filter(pa.array(untouched)), remaining])
        output = concat([changes, _build_rejected(spec, take(packed, np.flatnonzero(weight == 0)))])
        metrics = Metrics(rows=len(packed), results=results, corrections=corrections)
        return Step(State(None, {"rows": table}), output, spec.output.empty_table(), metrics)

    def adapt(
        self,
        spec: TimelineSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the columns by name. The join before retracts its rows with the same columns."""
        before = [name for name, _ in stored["columns"]]
        return {"rows": map_columns(spec.names, before, tables["rows"], spec.rows)}

    def check(self, spec: TimelineSpec, state: State) -> None:
        """Every row is stored once, with a positive weight."""
        rows = state.tables["rows"]
        formatted = f"rows: {format_rows(rows)}"
        groups, _ = Groups.of(key_codes(rows.columns[:-1], len(rows)))
        assert groups.count == len(rows), f"a row twice: {formatted}"
        weight = np.asarray(combine_chunks(rows.column("weight")))
        assert (weight > 0).all(), f"a deleted row: {formatted}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of the users that have changes, each once."""

    table: pa.Table  # with the columns of the state, without weights
    before: Ints  # weight before and after the changes
    after: Ints
    user: Ids  # code of the user
    post: Ids  # code of the user and the post's key


def _rows_of_changed_users(
    spec: TimelineSpec, stored: pa.Table, arrived: pa.Table, weight: Ints
) -> tuple[_Rows, Mask]:
    """The rows of the users that have changes, and which stored rows belong to other users."""
    column_of = {name: f"c.{i}" for i, name in enumerate(spec.names)}
    users = _codes([stored, arrived], [column_of[name] for name in spec.user])
    groups, _ = Groups.of(users)
    changed = np.zeros(groups.count, np.bool_)
    changed[groups.ids[len(stored) :]] = True
    active = changed[groups.ids[: len(stored)]]
    old = stored.filter(pa.array(active))
    both = concat([old.drop_columns(["weight"]), arrived])
    # A stored row occurs once and is first: its group is its position.
    equal, firsts = Groups.of(key_codes(both.columns, len(both)))
    before = np.zeros(equal.count, np.int64)
    before[: len(old)] = np.asarray(combine_chunks(old.column("weight")))
    after = before + Groups(equal.ids[len(old) :], equal.count).sum_ints(weight)
    table = take(both, firsts)
    user = np.concatenate([groups.ids[: len(stored)][active], groups.ids[len(stored) :]])[firsts]
    post = pair_codes(user, _codes([table], [column_of[name] for name in spec.parameters.key]))
    return _Rows(table, before, after, user, post), ~active


def _codes(tables: list[pa.Table], names: list[str]) -> Ids:
    columns = [
        pa.concat_arrays([combine_chunks(table.column(name)) for table in tables]) for name in names
    ]
    return key_codes(columns, sum(map(len, tables)))


def _newest_first(spec: TimelineSpec, rows: _Rows) -> Ids:
    """The order of the rows: by user, the newest first; among equally new ones the greatest key."""
    columns = dict(zip(spec.names, map(combine_chunks, rows.table.columns), strict=True))
    order = [~ranks(columns[name]) for name in (spec.parameters.ranked_by, *spec.parameters.key)]
    # A post can have two authors for a while: by hash, so that the order of arrival does not matter.
    order.append(digests([columns[name] for name in spec.author]))
    return np.lexsort([*reversed(order), rows.user])


def _select_newest(rows: _Rows, order: Ids, present: Mask, cap: int) -> Ids:
    """The rows in the timelines, if these rows are present."""
    ordered = order[present[order]]
    _, firsts = Groups.of(rows.post[ordered])  # a post is in a timeline once
    ordered = ordered[firsts]
    user = rows.user[ordered]
    position = np.arange(len(user)) - np.searchsorted(user, user, "left")
    return ordered[position < cap]


def _emit(spec: TimelineSpec, rows: _Rows, was: Mask, is_: Mask) -> tuple[pa.Table, int, int]:
    """The changes, and the numbers of inserts and updates."""
    removed, added = np.flatnonzero(was & ~is_), np.flatnonzero(is_ & ~was)
    # An unchanged row is in neither, so two rows of a post differ.
    changes = emit_changes(
        [], [], (rows.post[removed], rows.post[added]), reemit=np.ones(len(added), np.bool_)
    )
    found = take(rows.table, changes.take_ints(removed, added))
    columns = dict(zip(spec.names, found.columns, strict=True))
    columns[CHANGE_TYPE] = changes.change_type
    if spec.routes:
        columns["late"] = pa.nulls(len(found), spec.output.field("late").type)
    output = pa.table([columns[name] for name in spec.output.names], schema=spec.output)
    return output, changes.inserts, changes.updates


def _build_rejected(spec: TimelineSpec, packed: pa.Table) -> pa.Table:
    """Rejected changes, unchanged."""
    if not spec.routes:
        return spec.output.empty_table()
    columns = {name: packed.column(i) for i, name in enumerate(spec.names)}
    columns["late"] = packed.column("late")
    columns[CHANGE_TYPE] = pa.nulls(len(packed), pa.string())
    return pa.table([columns[name] for name in spec.output.names], schema=spec.output)
