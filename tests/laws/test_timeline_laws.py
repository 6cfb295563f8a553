"""After every micro-batch, timelines have the newest posts of the authors that each user follows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import joins
from streamops.joins.core.timeline import TimelineCore, TimelineParameters, TimelineSpec
from streamops.kernel.columns import concat
from streamops.kernel.core import Input
from streamops.kernel.hashing import xxhash64
from streamops.kernel.values import comparable
from streamops.testing import fold, laws
from streamops.testing.laws import to_rows
from streamops.testing.replaying import Replay
from streamops.testing.results import BatchResult
from tests.oracles.tables import Multiset, Versions, multiset_of
from tests.oracles.timeline import Home, Row, TimelineOracle

pytestmark = pytest.mark.laws

NAN = float("nan")
JOINED = pa.schema(
    [
        ("post", pa.int64()),
        ("author", pa.string()),
        ("rank", pa.float64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("words", pa.list_(pa.string())),
        ("user", pa.string()),
        ("_change_type", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Timed(TimelineSpec):
    """The laws need a time column, which the operator ignores."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.user, "ts", self.output, 0),)


def joined_changes(dice: random.Random, size: int, there: list[Row]) -> list[Row]:
    """Changes of the join: some rows twice, some posts of two authors for a while."""
    changes_of = []
    for _ in range(size):
        if there and dice.random() < 0.45:
            row = there.pop(dice.randrange(len(there)))
            changes_of.append({**row, "_change_type": dice.choice(["delete", "update_preimage"])})
            continue
        post = dice.randint(1, 6)
        row = {
            "post": post,
            "author": dice.choice(["x", "y"]),
            "rank": [None, NAN, 0.0, -0.0, float("inf"), -1.0][post - 1],
            "ts": 10 * post,
            "words": dice.choice([None, ["new"]]),
            "user": dice.choice(["a", "b", None]),
        }
        same = [
            item for item in there if all(item[n] == row[n] for n in ("post", "author", "user"))
        ]
        row = dict(same[0]) if same else row
        there.append(row)
        changes_of.append({**row, "_change_type": dice.choice(["insert", "update_postimage"])})
    return changes_of


def hashed(row: Row) -> int:
    return int(xxhash64([pa.array([row["author"]])])[0])


@st.composite
def cases(draw: st.DrawFn) -> laws.Case:
    """Few users, short timelines, and ranks that are equal, null and NaN."""
    dice, there = random.Random(draw(st.integers(0, 2**16))), list[Row]()
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, 8]), max_size=6))
    batches = [joined_changes(dice, size, there) for size in sizes]
    cap = draw(st.integers(1, 4))
    user, key = ("user",), ("post",)
    parameters = TimelineParameters(
        by=(("author", "whom"),),
        user=("user",),
        key=("post",),
        ranked_by="rank",
        cap=cap,
        sequence=None,
        remember=None,
        rejected="drop",
    )
    spec = Timed(parameters, user, JOINED)
    oracle = TimelineOracle(user, key, "rank", cap, hashed)

    def accepted(arrivals: Sequence[laws.Arrival]) -> list[Row]:
        return oracle.fresh().step(to_rows(concat([batch for (batch,), _ in arrivals]))).emitted

    tables = tuple((pa.Table.from_pylist(item, JOINED),) for item in batches or [[]])
    return laws.Case(
        core=TimelineCore(),
        spec=spec,
        batches=tables,
        key=("user", "post"),
        undo=laws.invert(tables),
        oracle=oracle.fresh,
        accepted=accepted,
        seed=draw(st.integers(0, 2**16)),
    )


@pytest.mark.parametrize("law", laws.CORE)
@given(case=cases())
def test_the_newest_posts_of_users_obey_the_law_that(
    law: Callable[[laws.Case], None], case: laws.Case
) -> None:
    law(case)


POSTS = pa.schema(
    [
        ("post", pa.int64()),
        ("author", pa.string()),
        ("at", pa.float64()),
        ("likes", pa.int64()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
FOLLOWS = pa.schema(
    [
        ("whom", pa.string()),
        ("since", pa.int64()),
        ("user", pa.string()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
Batch = tuple[list[Row], list[Row]]


@dataclass(frozen=True)
class History:
    """Micro-batches of posts and follows, and deletes of all remaining rows."""

    cap: int
    sequenced: bool
    batches: list[Batch]
    ending: Batch

    @property
    def transform(self) -> Any:
        """The operator."""
        arguments: dict[str, Any] = {"sequence": "lsn", "remember": 1000} if self.sequenced else {}
        return joins.timeline(
            None,
            by={"author": "whom"},
            user="user",
            key="post",
            ranked_by="at",
            cap=self.cap,
            **arguments,
        ).options(shards=2)

    def home(self) -> Home:
        """The oracle."""
        posts, follows = (
            (Versions(("post", "author"), "lsn"), Versions(("user", "whom"), "lsn"))
            if self.sequenced
            else (Multiset(), Multiset())
        )
        by = {"author": "whom"}
        return Home(posts, follows, by, ["user"], ["post"], "at", self.cap, hashed)

    def play(self, batches: Sequence[Batch], **arguments: Any) -> list[BatchResult]:
        return Replay(self.transform, (POSTS, FOLLOWS), **arguments).run(batches)


class Side:
    """A table whose rows are inserted, updated and deleted."""

    def __init__(self, dice: random.Random, make: Callable[[], Row], key: tuple[str, ...]) -> None:
        self.dice, self.make, self.key = dice, make, key
        self.rows: dict[Any, Row] = {}
        self.lsn = 0

    def changes_of(self, row: Row, word: str, lsn: int, *, sequenced: bool) -> Row:
        return {**row, "lsn": lsn if sequenced else 0, "_change_type": word}

    def changes(self, number: int, *, sequenced: bool) -> list[Row]:
        changes_of = []
        for _ in range(number):
            self.lsn += 1
            row = self.make()
            key = tuple(row[name] for name in self.key)
            old = self.rows.pop(key, None)
            if old is None:
                self.rows[key] = row
                changes_of.append(self.changes_of(row, "insert", self.lsn, sequenced=sequenced))
            elif self.dice.random() < 0.6:
                changes_of.append(self.changes_of(old, "delete", self.lsn, sequenced=sequenced))
            else:
                self.rows[key] = row
                changes_of.append(
                    self.changes_of(old, "update_preimage", self.lsn, sequenced=sequenced)
                )
                changes_of.append(
                    self.changes_of(row, "update_postimage", self.lsn, sequenced=sequenced)
                )
        return changes_of

    def end(self, *, sequenced: bool) -> list[Row]:
        self.lsn += 1
        rows = self.rows.values()
        return [self.changes_of(row, "delete", self.lsn, sequenced=sequenced) for row in rows]


@st.composite
def histories(draw: st.DrawFn, *, sequenced: bool) -> History:
    """With a sequence, changes also arrive late and twice."""
    dice = random.Random(draw(st.integers(0, 2**16)))
    posts = Side(
        dice,
        lambda: {
            "post": dice.randint(1, 7),
            "author": dice.choice(["x", "y", "z", None]),
            "at": dice.choice([0.0, -0.0, 1.0, NAN, None]),
            "likes": dice.randint(0, 1),
        },
        ("post",),
    )
    follows = Side(
        dice,
        lambda: {
            "user": dice.choice(["a", "b", "c" if sequenced else None]),
            "whom": dice.choice(["x", "y", "z"]),
            "since": dice.randint(0, 9),
        },
        ("user", "whom"),
    )
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 5]), max_size=6))
    batches: list[Batch] = []
    for size in sizes:
        one, two = (s.changes(dice.randint(0, size), sequenced=sequenced) for s in (posts, follows))
        batches.append((one, two))
    ending = posts.end(sequenced=sequenced), follows.end(sequenced=sequenced)
    if sequenced and batches and draw(st.booleans()):
        again = [(list[Row](), list[Row]()) for _ in batches]
        for number, batch in enumerate(batches):
            for rows, others in zip(batch, zip(*again, strict=True), strict=True):
                for row in rows:
                    others[number if dice.random() < 0.6 else dice.randrange(len(others))].append(
                        row
                    )
                    if dice.random() < 0.2:
                        others[dice.randrange(len(others))].append(row)
        batches = [(dice.sample(a, len(a)), dice.sample(b, len(b))) for a, b in again]
    return History(draw(st.integers(1, 4)), sequenced, batches, ending)


with_and_without_sequence = pytest.mark.parametrize(
    "sequenced", [False, True], ids=["multisets", "versions"]
)


@with_and_without_sequence
def test_the_output_folds_to_the_timelines_recomputed_after_every_batch(
    sequenced: bool,
) -> None:
    @given(history=histories(sequenced=sequenced))
    def law(history: History) -> None:
        home, published = history.home(), list[Row]()
        for result, (posts, follows) in zip(
            history.play(history.batches), history.batches, strict=True
        ):
            home.step(posts, follows)
            published += result.rows
            expected = home.rows()
            # A user and a post identify a row: the fold refuses duplicates.
            assert multiset_of(fold(published, key=["user", "post"])) == multiset_of(expected)
            users = [comparable(row["user"]) for row in expected]
            assert all(users.count(user) <= history.cap for user in users)
            change_types = [row["_change_type"] for row in result.rows]
            counts: Any = result.counts
            assert counts.rows == len(posts) + len(follows)
            assert (counts.results, counts.corrections) == (
                change_types.count("insert"),
                change_types.count("update_postimage"),
            )

    law()


@with_and_without_sequence
def test_after_all_deletes_timelines_and_state_are_empty(
    sequenced: bool,
) -> None:
    @given(history=histories(sequenced=sequenced))
    def law(history: History) -> None:
        results = history.play([*history.batches, history.ending])
        assert fold([row for item in results for row in item.rows], key=["user", "post"]) == []
        removed = results[-1].state_rows
        assert removed == 0 or history.sequenced  # the sequences of what is gone

    law()


@with_and_without_sequence
def test_the_inputs_may_interleave_and_be_cut_in_any_way(sequenced: bool) -> None:
    @given(history=histories(sequenced=sequenced))
    def law(history: History) -> None:
        lefts, rights = ([batch[i] for batch in history.batches] for i in (0, 1))
        everything = tuple([row for rows in side for row in rows] for side in (lefts, rights))
        ways: list[list[Any]] = [
            history.batches,
            [*((rows, []) for rows in lefts), *(([], rows) for rows in rights)],
            [*(([], rows) for rows in rights), *((rows, []) for rows in lefts)],
            [item for one, two in history.batches for item in ((one, []), ([], two))],
            [everything],
        ]
        found = [
            multiset_of(
                fold([row for r in history.play(way) for row in r.rows], key=["user", "post"])
            )
            for way in ways
        ]
        assert all(item == found[0] for item in found)

    law()


@given(history=histories(sequenced=False), shards=st.integers(1, 3))
def test_restarts_and_shards_change_nothing(history: History, shards: int) -> None:
    one = history.play(history.batches, shards=1)
    other = history.play(history.batches, shards=shards, restart=True)
    for ours, theirs in zip(one, other, strict=True):
        assert multiset_of(ours.rows) == multiset_of(theirs.rows)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)


@given(case=cases())
def test_the_order_of_columns_is_not_part_of_the_state(case: laws.Case) -> None:
    turned = replace(case.spec, output=pa.schema(list(JOINED)[::-1]))
    assert turned.identity == case.spec.identity
    assert turned.rows == case.spec.rows
