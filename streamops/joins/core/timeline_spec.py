"""The parameters of home timelines: of the join of posts and follows, and of the newest posts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import refuse_change_type
from streamops.joins.core.inputs import refuse_missing, shown_keys
from streamops.joins.core.tables_spec import Rejected, TablesSpec, WithoutEventTime
from streamops.kernel.core import Input
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_orderable
from streamops.kernel.parameters import refuse_type, require_name

__all__ = ["NewestParameters", "TimelineParameters", "TimelineSpec"]

Names = tuple[str, ...]

MAX_CAP = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineParameters(WithoutEventTime):
    """The parameters of home timelines. They resolve to the join of posts and follows."""

    where: ClassVar[str] = "joins.timeline"

    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    user: Names
    key: Names
    ranked_by: str
    cap: int
    sequence: tuple[str, str] | None
    remember: int | None
    rejected: Rejected
    joined: TablesSpec = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_name(self.ranked_by, parameter="ranked_by", where=self.where)
        named_columns = {"user": self.user, "key": self.key, "ranked_by": (self.ranked_by,)}
        refuse_change_type(named_columns, where=self.where)
        _refuse_cap(self.cap, self.where)
        # The key of the right is who follows whom: `user`, and the columns of the join.
        joined = TablesSpec(
            where=self.where,
            by=self.by,
            how="inner",
            key=(self.key, self.user),
            sequence=self.sequence,
            remember=self.remember,
            rejected=self.rejected,
        )
        object.__setattr__(self, "joined", joined)
        for name in self.user:
            if name in (right for _, right in self.by):
                raise _user_is_author(name, self)

    @property
    def reads(self) -> tuple[Names, Names]:
        """Columns whose values are compared."""
        left, right = self.joined.reads
        return tuple(dict.fromkeys((*left, self.ranked_by))), right

    @property
    def follows(self) -> Names:
        """Columns of the right that matter: who, whom, since which change."""
        sequence = self.sequence[1:] if self.sequence else ()
        whom = (right for _, right in self.by)
        return tuple(dict.fromkeys((*whom, *self.user, *sequence)))

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> TablesSpec:
        """The spec of the join over these columns; of the right, over those that are used."""
        left, right = schemas
        sides = (f"{self.where}, left side", f"{self.where}, right side")
        refuse_missing(left, {"key": self.key, "ranked_by": (self.ranked_by,)}, where=sides[0])
        for name in (self.ranked_by, *self.key):
            if not is_orderable(left.field(name).type):
                use = "an order of posts" if name == self.ranked_by else "a tie-break of posts"
                expected = "a type with an order: numbers, strings, binary, timestamps"
                fix = f"df.withColumn({name!r}, ...): a part of it that has an order"
                refuse_type(left, name, use, expected, fix, where=sides[0])
        whom = [name for _, name in self.by]
        refuse_missing(right, {"by": whom, "user": self.user}, where=sides[1])
        used = [name for name in (*self.follows, CHANGE_TYPE) if name in right.names]
        columns = pa.schema([right.field(name) for name in used])
        spec = self.joined.resolve((left, columns), carried=carried, shards=shards)
        if self.sequence:
            return spec
        # Who follows twice unfollows twice: both tables are multisets.
        return replace(spec, tables=tuple(replace(table, key=()) for table in spec.tables))


@dataclass(frozen=True, slots=True)
class NewestParameters:
    """The parameters of the follow-up: the newest posts of each user, from the changes of the join."""

    timeline: TimelineParameters

    times: ClassVar[tuple[None]] = (None,)
    delays: ClassVar[tuple[None]] = (None,)
    lag: ClassVar[int] = 0
    accepts_revisions: ClassVar[tuple[bool]] = (True,)
    needs_preimages: ClassVar[bool] = True
    reads: ClassVar[tuple[Names]] = ((),)

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> TimelineSpec:
        """The spec over the columns of the join: those of the posts, the user, a sequence."""
        (schema,) = schemas
        parameters, names = self.timeline, schema.names
        whom = {right for _, right in parameters.by}
        rest = len([name for name in parameters.follows if name not in whom])
        end = len(names) - 1 - (parameters.rejected == "route")
        users = tuple(names[end - rest : end][: len(parameters.user)])
        used = [*names[: end - rest], *users, *names[end:]]
        return TimelineSpec(parameters, users, pa.schema([schema.field(name) for name in used]))


@dataclass(frozen=True, slots=True)
class TimelineSpec:
    """The newest posts of each user, resolved.

    Parameters
    ----------
    parameters : TimelineParameters
    user : tuple of str
        The user's columns, as they are named in the joined row.
    schema : Schema
        Columns of the posts, those of the user, the change type, and `late` if rows are routed.
    """

    parameters: TimelineParameters
    user: Names
    schema: pa.Schema

    lag: ClassVar[int] = 0
    held_back: ClassVar[int] = 0
    event_time: ClassVar[str] = CHANGE_TYPE
    """There is none; the column whose metadata the next operator reads."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The changes of the join."""
        return (Input(self.user, None, self.schema),)

    @property
    def author(self) -> Names:
        """Columns of the posts that are joined on."""
        return tuple(left for left, _ in self.parameters.by)

    @property
    def routes(self) -> bool:
        """Whether the input has rejected changes, which are passed through."""
        return self.parameters.rejected == "route"

    @property
    def output(self) -> pa.Schema:
        """The columns of the input."""
        return self.schema

    @property
    def names(self) -> list[str]:
        """Columns of a row, by name: in which order the frame has them may change."""
        aside = {CHANGE_TYPE, *(["late"] if self.routes else [])}
        return sorted(name for name in self.schema.names if name not in aside)

    @property
    def values(self) -> list[str]:
        """Columns of a row beside those of the user."""
        return [name for name in self.names if name not in self.user]

    @property
    def rows(self) -> pa.Schema:
        """The state: rows of all timelines, also of what is beyond the cap, and how often each is there."""
        columns = [(f"c.{i}", self.schema.field(n).type) for i, n in enumerate(self.names)]
        return pa.schema([*columns, ("weight", pa.int64())])

    @property
    def packed(self) -> pa.Schema:
        """As the state; a weight of 0: a rejected change."""
        late = [self.schema.field("late")] if self.routes else []
        return pa.schema([*self.rows, *late])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output that hold values of one of the input."""
        return {name: (0, name) for name in self.schema.names if name != CHANGE_TYPE}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that the state depends on, and that determines what was emitted, which is not stored."""
        return {
            "columns": [[name, str(self.schema.field(name).type)] for name in self.names],
            "user": list(self.user),
            "author": list(self.author),
            "key": list(self.parameters.key),
            "ranked_by": self.parameters.ranked_by,
            "cap": self.parameters.cap,
        }


def _refuse_cap(cap: object, where: str) -> None:
    # 100.0 and True are in the range, too.
    if type(cap) is not int or cap not in range(1, MAX_CAP):
        raise SpecError(
            "CAP_OUT_OF_RANGE",
            "`cap` is not a number of posts",
            where=where,
            got=f"cap={cap!r}",
            expected=f"an integer from 1 to {MAX_CAP - 1}",
            fix="cap=800, or as many posts as are read of a timeline",
        )


def _user_is_author(name: str, parameters: TimelineParameters) -> SpecError:
    return SpecError(
        "USER_IS_AUTHOR",
        f"column {name!r} cannot be both who follows and who is followed",
        where=parameters.where,
        got=f"user={parameters.user!r}, by={shown_keys(parameters.by)}",
        expected="two columns of the right frame",
        fix='with one row per user and author followed: user="user", by={"author": "whom"}',
    )
