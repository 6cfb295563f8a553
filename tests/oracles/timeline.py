"""Home timelines: for every user, sort all posts of the authors that they follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable
from tests.oracles.tables import Multiset, Versions, multiset_of, takes, without
from tests.oracles.windows import Expected

Row = dict[str, Any]


def newest_posts(
    rows: Sequence[Row],
    user: Sequence[str],
    key: Sequence[str],
    ranked_by: str,
    cap: int,
    tie: Callable[[Row], Any],
) -> list[Row]:
    """The newest posts of each user, each post once. ``tie``: the order of two rows of a post."""
    # Sort by the least significant order first: Python's sort is stable.
    ordered = sorted(rows, key=tie)
    ordered.sort(key=lambda row: [comparable(row[name]) for name in key], reverse=True)
    ordered.sort(key=lambda row: comparable(row[ranked_by]), reverse=True)
    timelines: dict[Any, dict[Any, Row]] = {}
    for row in ordered:
        timeline = timelines.setdefault(comparable([row[name] for name in user]), {})
        post = comparable([row[name] for name in key])
        if post not in timeline and len(timeline) < cap:
            timeline[post] = row
    return [row for timeline in timelines.values() for row in timeline.values()]


@dataclass
class Home:
    """The timelines after changes of both tables."""

    posts: Multiset | Versions
    follows: Multiset | Versions
    by: Mapping[str, str]
    user: Sequence[str]
    key: Sequence[str]
    ranked_by: str
    cap: int
    tie: Callable[[Row], Any]

    def step(self, posts: Sequence[Row], follows: Sequence[Row]) -> int:
        """Apply the changes of a micro-batch; return how many were rejected."""
        joinable = [
            [change for change in changes if all(change[name] is not None for name in names)]
            for changes, names in ((posts, self.by), (follows, self.by.values()))
        ]
        return len(self.posts.step(joinable[0])) + len(self.follows.step(joinable[1]))

    def rows(self) -> list[Row]:
        """All timelines, recomputed."""
        everything = [
            {**post, **{name: follow[name] for name in self.user}}
            for post in self.posts.rows
            for follow in self.follows.rows
            if all(comparable(post[a]) == comparable(follow[b]) for a, b in self.by.items())
        ]
        return newest_posts(everything, self.user, self.key, self.ranked_by, self.cap, self.tie)


@dataclass
class TimelineOracle:
    """The output of the second step in a micro-batch: the difference to the timelines before."""

    user: Sequence[str]
    key: Sequence[str]
    ranked_by: str
    cap: int
    tie: Callable[[Row], Any]
    there: list[Row] = field(default_factory=list)

    def fresh(self) -> TimelineOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, there=[])

    def rows(self) -> list[Row]:
        """All timelines, recomputed."""
        return newest_posts(self.there, self.user, self.key, self.ranked_by, self.cap, self.tie)

    def step(self, rows: Sequence[Row], watermark: int | None = None) -> Expected:
        """The expected results of a micro-batch."""
        before, expected = {self._of(row): row for row in self.rows()}, Expected()
        self.there += [without(row) for row in rows if not takes(row)]
        for row in filter(takes, rows):
            found = [comparable(other) for other in self.there].index(comparable(without(row)))
            del self.there[found]
        after = {self._of(row): row for row in self.rows()}
        for post in [*before, *(post for post in after if post not in before)]:
            old, new = before.get(post), after.get(post)
            if comparable(old) == comparable(new):
                continue
            change_types = "update_preimage", "update_postimage"
            if old is None or new is None:
                change_types = "delete", "insert"
            if old is not None:
                expected.emitted.append({**old, "_change_type": change_types[0]})
            if new is not None:
                expected.emitted.append({**new, "_change_type": change_types[1]})
                expected.counts["results" if old is None else "corrections"] += 1
        expected.counts["rows"] = len(rows)
        return expected

    def _of(self, row: Row) -> Any:
        return comparable([row[name] for name in (*self.user, *self.key)])

    def finish(self) -> list[Row]:
        """Nothing is pending."""
        return []

    def bound(self) -> int:
        """One row of state per distinct row, visible or not."""
        return len(multiset_of(self.there))
