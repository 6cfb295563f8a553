"""A join of two tables is, after every micro-batch, the join of what both tables are then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from streamops.joins.core import tables
from streamops.kernel.codec import decode, encode
from streamops.kernel.columns import concat
from streamops.kernel.contract import Counts, State, Step
from streamops.testing import fold
from streamops.testing.laws import rows_of
from tests.laws.tables_strategies import (
    KEYS,
    NAMES,
    ON,
    SCHEMAS,
    Batch,
    History,
    histories,
    table_of,
)
from tests.oracles.tables import Bag, Folded, Row, Versions, bag_of, joined

pytestmark = pytest.mark.laws

IN_ORDER = histories(sequenced=False)
BOGUS = histories(sequenced=False, bogus=True)
SEQUENCED = histories(sequenced=True)
DISORDERED = histories(sequenced=True, disorder=True)


def play(history: History, batches: Sequence[Batch]) -> list[Step]:
    spec, state, steps = history.spec, tables.empty(history.spec), []
    for left, right in batches:
        packs = (
            tables.pack(spec, "left", table_of(left, SCHEMAS[0])),
            tables.pack(spec, "right", table_of(right, SCHEMAS[1])),
        )
        steps.append(tables.step(spec, state, *packs, None))
        state = steps[-1].state
        tables.check(spec, state)
        assert steps[-1].emitted.schema == steps[-1].late.schema == spec.output
        assert {n: t.schema for n, t in state.tables.items()} == dict(tables.layout(spec))
    return steps


def oracles(history: History) -> list[Bag | Versions]:
    if history.spec.tables[0].sequence is None:
        return [Bag(), Bag()]
    keys = [(KEYS[i], *on) for i, on in enumerate([ON.keys(), ON.values()])]
    return [Versions(key, "seq") for key in keys]


def recomputed(history: History, sides: Sequence[Bag | Versions]) -> list[Row]:
    return joined(sides[0].rows, sides[1].rows, ON, history.spec.how, NAMES)


def follow(history: History) -> None:
    """Whatever was published adds up to the join of the tables, after every micro-batch."""
    sides, folded = oracles(history), Folded()
    for step, batch in zip(play(history, history.batches), history.batches, strict=True):
        rejected = [side.step(changes) for side, changes in zip(sides, batch, strict=True)]
        before = folded.there
        emitted = rows_of(step.emitted)
        folded.step(emitted)
        assert folded.there == bag_of(recomputed(history, sides))
        # Nothing is said that did not happen: each row goes or comes, and not both.
        assert len(emitted) == sum(((before - folded.there) + (folded.there - before)).values())
        ignored = [
            row
            for table, on, rows in zip(
                history.spec.tables, (ON, ON.values()), rejected, strict=True
            )
            for _, row in rows
            if not table.outer and any(row[name] is None for name in on)
        ]
        assert step.counts.rejected == sum(map(len, rejected)) - len(ignored)
        counted = step.counts
        assert counted.rows == sum(map(len, batch))
        assert counted.rows == counted.rejected + counted.on_time + counted.too_late
        said = [row["_change_type"] for row in emitted]
        assert counted.results == said.count("insert")
        assert counted.corrections == said.count("update_postimage")


@given(history=IN_ORDER)
def test_the_fold_is_the_join_recomputed_after_every_batch(history: History) -> None:
    follow(history)


@given(history=BOGUS)
def test_what_takes_away_a_row_that_is_not_there_is_rejected_and_changes_nothing(
    history: History,
) -> None:
    follow(history)


@given(history=SEQUENCED)
def test_with_sequences_the_fold_is_the_join_recomputed_after_every_batch(history: History) -> None:
    follow(history)


@given(history=DISORDERED)
def test_with_sequences_neither_disorder_nor_duplicates_matter(history: History) -> None:
    follow(history)


@pytest.mark.parametrize("sequenced", [False, True])
def test_after_all_is_deleted_again_output_and_state_are_empty(sequenced: bool) -> None:
    @given(history=histories(sequenced=sequenced))
    def law(history: History) -> None:
        steps = play(history, [*history.batches, history.ending])
        folded = Folded()
        for step in steps:
            folded.step(rows_of(step.emitted))
        assert not folded.there
        assert steps[-1].state.rows == 0

    law()


@given(history=histories(sequenced=False))
def test_with_keys_the_output_folds_by_them(history: History) -> None:
    if history.spec.tables[0].key:
        rows = [row for step in play(history, history.batches) for row in rows_of(step.emitted)]
        fold(rows, key=["id", "rid", "k", "n"])


@given(history=DISORDERED)
def test_the_inputs_may_interleave_in_any_way(history: History) -> None:
    """First all of one side, then all of the other; or turn and turn about; or all at once."""
    lefts, rights = ([batch[i] for batch in history.batches] for i in (0, 1))
    everything = (sum(lefts, []), sum(rights, []))
    ways: list[list[Batch]] = [
        history.batches,
        [*((rows, []) for rows in lefts), *(([], rows) for rows in rights)],
        [*(([], rows) for rows in rights), *((rows, []) for rows in lefts)],
        [each for one, two in history.batches for each in ((one, []), ([], two))],
        [everything],
    ]
    found = []
    for batches in ways:
        folded = Folded()
        for step in play(history, batches):
            folded.step(rows_of(step.emitted))
        found.append(folded.there)
    assert all(each == found[0] for each in found)


@given(history=DISORDERED)
def test_a_restart_changes_nothing(history: History) -> None:
    state = tables.empty(history.spec)
    for step, (left, right) in zip(play(history, history.batches), history.batches, strict=True):
        known = tables.STATE, history.spec.identity, 3
        state = State(None, decode(encode(*known, state.tables), *known, where="laws"))
        again = tables.step(
            history.spec, state, table_of(left, SCHEMAS[0]), table_of(right, SCHEMAS[1]), None
        )
        same_steps(step, again)
        state = again.state


@pytest.mark.parametrize("sequenced", [False, True])
def test_over_any_number_of_shards_it_is_the_same(sequenced: bool) -> None:
    @given(history=histories(sequenced=sequenced, disorder=sequenced, bogus=not sequenced))
    def law(history: History) -> None:
        dice = np.random.default_rng(history.seed)
        shards = int(dice.integers(1, 5))
        places: dict[int, int] = {}

        def split(batch: Batch) -> list[Batch]:
            columns = [
                [row[a] for row in batch[0]] + [row[b] for row in batch[1]] for a, b in ON.items()
            ]
            keys = [(str(one), str(two)) for one, two in zip(*columns, strict=True)]
            of = [places.setdefault(hash_of(key), int(dice.integers(0, shards))) for key in keys]
            cut = len(batch[0])
            return [
                (
                    [row for row, at in zip(batch[0], of[:cut], strict=True) if at == shard],
                    [row for row, at in zip(batch[1], of[cut:], strict=True) if at == shard],
                )
                for shard in range(shards)
            ]

        parts = [split(batch) for batch in history.batches]
        runs = [play(history, [part[shard] for part in parts]) for shard in range(shards)]
        for whole, *several in zip(play(history, history.batches), *runs, strict=True):
            together = Step(
                State(
                    None,
                    {
                        name: concat([step.state.tables[name] for step in several])
                        for name in ("left", "right")
                    },
                ),
                concat([step.emitted for step in several]),
                concat([step.late for step in several]),
                sum((step.counts for step in several), Counts()),
            )
            same_steps(whole, together)

    law()


@given(history=DISORDERED)
def test_the_order_of_changes_within_a_batch_does_not_matter(history: History) -> None:
    backwards = [(left[::-1], right[::-1]) for left, right in history.batches]
    for one, other in zip(play(history, history.batches), play(history, backwards), strict=True):
        same_steps(one, other)


def hash_of(key: tuple[str, str]) -> int:
    return sum(ord(c) << (8 * i) for i, c in enumerate("|".join(key)))


def same_steps(one: Step, other: Step) -> None:
    assert bag_of(rows_of(one.emitted)) == bag_of(rows_of(other.emitted))
    assert bag_of(rows_of(one.late)) == bag_of(rows_of(other.late))
    assert one.counts == other.counts
    for name in ("left", "right"):
        tables_ = (one.state.tables[name], other.state.tables[name])
        assert bag_of(rows_of(tables_[0])) == bag_of(rows_of(tables_[1])), name
