"""After every micro-batch, the output folds to the join of the current tables."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.joins.core.tables import TablesCore
from streamops.kernel.core import State, Step
from streamops.testing import fold, laws
from streamops.testing.laws import to_rows
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
from tests.oracles.tables import (
    Folded,
    KeyedMultiset,
    Multiset,
    Row,
    TablesOracle,
    Versions,
    joined,
    multiset_of,
)

pytestmark = pytest.mark.laws

IN_ORDER = histories(sequenced=False)
BOGUS = histories(sequenced=False, bogus=True)
SEQUENCED = histories(sequenced=True)
DISORDERED = histories(sequenced=True, disorder=True)


def play(history: History, batches: Sequence[Batch]) -> list[Step]:
    spec, state, steps = history.spec, State.empty(TablesCore().layout(history.spec)), []
    for left, right in batches:
        packs = (
            TablesCore().pack(spec, table_of(left, SCHEMAS[0]), "left"),
            TablesCore().pack(spec, table_of(right, SCHEMAS[1]), "right"),
        )
        steps.append(TablesCore().step(spec, state, packs, None))
        state = steps[-1].state
        TablesCore().check(spec, state)
        assert steps[-1].output.schema == steps[-1].late.schema == spec.output
        assert {n: t.schema for n, t in state.tables.items()} == dict(TablesCore().layout(spec))
    return steps


def oracles(history: History) -> list[Multiset | Versions]:
    keys = [(KEYS[i], *on) for i, on in enumerate([ON.keys(), ON.values()])]
    if not history.spec.tables[0].key:
        return [Multiset(), Multiset()]
    if history.spec.tables[0].sequence is None:
        return [KeyedMultiset(key=key) for key in keys]
    return [Versions(key, "seq") for key in keys]


def recomputed(history: History, sides: Sequence[Multiset | Versions]) -> list[Row]:
    return joined(sides[0].rows, sides[1].rows, ON, history.spec.how, NAMES)


def follow(history: History) -> None:
    """The output folds to the join of the tables, after every micro-batch."""
    sides, folded = oracles(history), Folded()
    for step, batch in zip(play(history, history.batches), history.batches, strict=True):
        rejected = [side.step(changes) for side, changes in zip(sides, batch, strict=True)]
        before = folded.there
        emitted = to_rows(step.output)
        folded.step(emitted)
        assert folded.there == multiset_of(recomputed(history, sides))
        # The output is net: a row is removed or added, and not both.
        assert len(emitted) == sum(((before - folded.there) + (folded.there - before)).values())
        ignored = [
            row
            for table, on, rows in zip(
                history.spec.tables, (ON, ON.values()), rejected, strict=True
            )
            for _, row in rows
            if not table.outer and any(row[name] is None for name in on)
        ]
        assert step.metrics.rejected == sum(map(len, rejected)) - len(ignored)
        counted = step.metrics
        assert counted.rows == sum(map(len, batch))
        assert counted.rows == counted.rejected + counted.on_time + counted.too_late
        arguments = [row["_change_type"] for row in emitted]
        assert counted.results == arguments.count("insert")
        assert counted.corrections == arguments.count("update_postimage")


@given(history=IN_ORDER)
def test_the_fold_is_the_join_recomputed_after_every_batch(history: History) -> None:
    follow(history)


@given(history=BOGUS)
def test_removals_of_missing_rows_and_conflicting_rows_are_rejected(
    history: History,
) -> None:
    follow(history)


@given(history=SEQUENCED)
def test_with_sequences_the_fold_is_the_join_recomputed_after_every_batch(history: History) -> None:
    follow(history)


@given(history=DISORDERED)
def test_with_sequences_disorder_duplicates_and_conflicts_do_not_matter(
    history: History,
) -> None:
    follow(history)


@given(history=DISORDERED)
def test_with_sequences_the_fold_does_not_depend_on_order_and_cutting(history: History) -> None:
    """Of conflicting rows the same ones are effective in any order of arrival."""
    dice, found = random.Random(history.seed), []
    sides = [[row for batch in history.batches for row in batch[i]] for i in (0, 1)]
    for size in (1, 2, 5, 1000):
        for rows in sides:
            dice.shuffle(rows)
        longest = max(map(len, sides))
        cuts = [slice(at, at + size) for at in range(0, longest, size)]
        folded = Folded()
        for step in play(history, [(sides[0][cut], sides[1][cut]) for cut in cuts]):
            folded.step(to_rows(step.output))
        found.append(folded.there)
    assert all(item == found[0] for item in found)


@given(history=histories(sequenced=False, keyed=True), seed=st.integers(0, 2**16))
def test_with_keys_inserts_may_repeat_and_conflict_in_any_order(
    history: History, seed: int
) -> None:
    """Without sequences and deletes: every row is stored once, and of two the greater."""
    dice, found = random.Random(seed), []
    sides = [
        [{**row, "_change_type": "insert"} for batch in history.batches for row in batch[i]]
        for i in (0, 1)
    ]
    for size in (1, 3, 1000):
        for rows in sides:
            dice.shuffle(rows)
        again = [[*rows, *dice.choices(rows, k=2)] if rows else rows for rows in sides]
        longest = max(map(len, again))
        cuts = [slice(at, at + size) for at in range(0, longest, size)]
        batches = [(again[0][cut], again[1][cut]) for cut in cuts]
        follow(replace(history, batches=batches))
        folded = Folded()
        for step in play(history, batches):
            folded.step(to_rows(step.output))
        found.append(folded.there)
    assert all(item == found[0] for item in found)


@pytest.mark.parametrize("sequenced", [False, True])
def test_after_all_deletes_output_and_state_are_empty(sequenced: bool) -> None:
    @given(history=histories(sequenced=sequenced))
    def law(history: History) -> None:
        steps = play(history, [*history.batches, history.ending])
        folded = Folded()
        for step in steps:
            folded.step(to_rows(step.output))
        assert not folded.there
        assert steps[-1].state.rows == 0

    law()


@given(history=histories(sequenced=False))
def test_with_keys_the_output_folds_by_key(history: History) -> None:
    if history.spec.tables[0].key:
        rows = [row for step in play(history, history.batches) for row in to_rows(step.output)]
        fold(rows, key=["id", "rid", "k", "n"])


@given(history=DISORDERED)
def test_the_inputs_may_interleave_in_any_way(history: History) -> None:
    """One side after the other, in turns, or all at once."""
    lefts, rights = ([batch[i] for batch in history.batches] for i in (0, 1))
    everything = ([row for rows in lefts for row in rows], [row for rows in rights for row in rows])
    ways: list[list[Batch]] = [
        history.batches,
        [*((rows, []) for rows in lefts), *(([], rows) for rows in rights)],
        [*(([], rows) for rows in rights), *((rows, []) for rows in lefts)],
        [item for one, two in history.batches for item in ((one, []), ([], two))],
        [everything],
    ]
    found = []
    for batches in ways:
        folded = Folded()
        for step in play(history, batches):
            folded.step(to_rows(step.output))
        found.append(folded.there)
    assert all(item == found[0] for item in found)


def case_of(history: History) -> laws.Case:
    table, how = history.spec.tables[0], history.spec.how
    left, right = oracles(history)
    identity = ["id", "rid", "k", "n"] if table.key else None
    oracle = TablesOracle(
        left, right, ON, how, NAMES, identity, remembers=history.spec.remember_per_shard > 0
    )

    def accepted(arrivals: Sequence[laws.Arrival]) -> list[Row]:
        all_ = oracle.fresh()
        lefts = [row for (batch, _), _ in arrivals for row in to_rows(batch)]
        rights = [row for (_, batch), _ in arrivals for row in to_rows(batch)]
        return all_.step(lefts, rights).emitted

    def both(batch: Batch) -> tuple[pa.Table, pa.Table]:
        return table_of(batch[0], SCHEMAS[0]), table_of(batch[1], SCHEMAS[1])

    return laws.Case(
        core=TablesCore(),
        spec=history.spec,
        batches=tuple(map(both, history.batches or [([], [])])),
        oracle=oracle.fresh,
        accepted=accepted,
        key=None if identity is None else tuple(identity),
        undo=() if history.spec.remember_per_shard else (both(history.ending),),
        seed=history.seed,
    )


@given(history=IN_ORDER)
def test_a_join_of_multisets_obeys_every_law(history: History) -> None:
    laws.check_laws(case_of(history))


@given(history=SEQUENCED)
def test_a_join_by_sequence_obeys_every_law(history: History) -> None:
    laws.check_laws(case_of(history))


@pytest.mark.parametrize("histories_", [BOGUS, DISORDERED], ids=["bogus", "disordered"])
def test_invalid_and_late_changes_violate_only_the_law_of_batches(
    histories_: st.SearchStrategy[History],
) -> None:
    """A delete before its insert is valid in one micro-batch, and rejected in several."""
    some = [law for law in laws.CORE if "batch" not in law.__name__ or "within" in law.__name__]
    assert len(some) == len(laws.CORE) - 2

    @given(history=histories_)
    def law(history: History) -> None:
        laws.check_laws(replace(case_of(history), undo=()), some)

    law()
