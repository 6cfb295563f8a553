"""What a user says about home timelines, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import refuse_change_type
from streamops.joins.core.inputs import refuse_missing, shown_keys
from streamops.joins.core.tables_spec import Rejected, TablesSpec
from streamops.joins.core.timeline_spec import TimelineSpec
from streamops.joins.core.untimed import UntimedSettings
from streamops.joins.tables_settings import TablesSettings
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_orderable
from streamops.spark.columns import require_name
from streamops.spark.parameters import parse_distinct_names, refuse_type

__all__ = ["NewestSettings", "TimelineSettings"]

Names = tuple[str, ...]

MAX_CAP = 1 << 31


@dataclass(frozen=True, slots=True)
class TimelineSettings(UntimedSettings):
    """Settings of home timelines: of the posts joined with who follows, and of what is shown."""

    where: str = field(repr=False)
    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    user: Names
    key: Names
    ranked_by: str
    cap: int
    sequence: tuple[str, str] | None
    remember: int | None
    rejected: Rejected
    joined: TablesSettings = field(repr=False)

    of_results: ClassVar[tuple[bool, bool]] = (True, True)
    needs_preimages: ClassVar[bool] = True

    @staticmethod
    def of(
        where: str,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        user: str | Sequence[str],
        key: str | Sequence[str],
        ranked_by: str,
        cap: int,
        sequence: str | tuple[str, str] | None,
        remember: int | None,
        rejected: Rejected,
        shards: int,
    ) -> TimelineSettings:
        """Settings as the user wrote them, normalised, or an error."""
        users = parse_distinct_names(user, parameter="user", where=where)
        posts = parse_distinct_names(key, parameter="key", where=where)
        require_name(ranked_by, parameter="ranked_by", where=where)
        refuse_change_type({"user": users, "key": posts, "ranked_by": (ranked_by,)}, where=where)
        _refuse_cap(cap, where)
        # Who follows whom is the key of the right; joined once more, with what is joined on.
        joined = TablesSettings.of(
            where,
            by=by,
            how="inner",
            key=(list(posts), list(users)),
            sequence=sequence,
            remember=remember,
            rejected=rejected,
            shards=shards,
        )
        for name in users:
            if name in (right for _, right in joined.by):
                raise _follows_itself(name, user, by, where)
        said = joined.by, users, posts, ranked_by, cap, joined.sequence, remember, rejected
        return TimelineSettings(where, *said, joined)

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

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Any) -> TablesSpec:
        """The spec of the join over these columns; of the right, over those that matter."""
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
        matter = [name for name in (*self.follows, CHANGE_TYPE) if name in right.names]
        columns = pa.schema([right.field(name) for name in matter])
        spec = self.joined.bind(left, columns, carried=carried)
        if self.sequence:
            return spec
        # Who follows twice unfollows twice: both tables are bags.
        one, other = (replace(table, key=()) for table in spec.tables)
        return replace(spec, tables=(one, other))


@dataclass(frozen=True, slots=True)
class NewestSettings:
    """Settings of the second step: the newest posts of each user, of those that the join tells."""

    timeline: TimelineSettings

    of_results: ClassVar[bool] = True
    needs_preimages: ClassVar[bool] = True

    @property
    def reads(self) -> Names:
        """Nothing that the join has not read before."""
        return ()

    def bind(self, schema: pa.Schema, *, shards: int) -> TimelineSpec:
        """The spec over the columns that the join has: those of the posts, the user, a sequence."""
        said = self.timeline
        names = schema.names
        routed = said.rejected == "route"
        whom = {right for _, right in said.by}
        rest = len([name for name in said.follows if name not in whom])
        end = len(names) - 1 - routed
        users = tuple(names[end - rest : end][: len(said.user)])
        kept = [*names[: end - rest], *users, *names[end:]]
        author = tuple(left for left, _ in said.by)
        columns = pa.schema([schema.field(name) for name in kept])
        order = said.key, said.ranked_by, said.cap
        return TimelineSpec(said.where, users, author, *order, routed, columns)


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


def _follows_itself(name: str, user: object, by: object, where: str) -> SpecError:
    return SpecError(
        "USER_IS_AUTHOR",
        f"column {name!r} cannot say both who follows and who is followed",
        where=where,
        got=f"user={user!r}, by={by!r}",
        expected="two columns of the right frame",
        fix='with one row per user and author followed: user="user", by={"author": "whom"}',
    )
