"""Laws of ``normalize``: of every core, and of changes to keyed rows."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from streamops.changelog.classify import copy_truncates
from streamops.changes.core.latest import LatestCore, TableSpec
from streamops.kernel.core import State, Step
from streamops.kernel.hashing import shard_of
from streamops.kernel.values import comparable
from streamops.testing import fold
from streamops.testing.laws import to_rows
from tests.laws import playing
from tests.laws.changes_strategies import (
    FOREVER,
    Case,
    by_key,
    changes_of,
    cut,
    histories,
    reasons,
    rejects,
    tight,
)

pytestmark = pytest.mark.laws

play = partial(playing.play, LatestCore())


def table(spec: TableSpec, steps: Sequence[Step]) -> list[Any]:
    """The table that the steps fold to, without revisions."""
    folded = fold((row for step in steps for row in changes_of(step)), key=spec.by)
    return sorted(comparable({n: v for n, v in r.items() if n != "revision"}) for r in folded)


@given(case=histories(odd=2))
def test_every_step_equals_the_oracle(case: Case) -> None:
    oracle = case.oracle()
    for step, batch in zip(play(case.spec, case.batches), case.batches, strict=True):
        expected = oracle.step(to_rows(batch))
        assert by_key(case.spec, changes_of(step)) == by_key(case.spec, expected.emitted)
        assert reasons(step) == Counter(expected.rejected)
        counts = step.metrics
        assert (counts.rows, counts.rejected) == (len(batch), len(expected.rejected))
        assert (counts.stale, counts.duplicates, counts.ignored) == (
            expected.stale,
            expected.duplicates,
            expected.ignored,
        )
        types = Counter(row["_change_type"] for row in expected.emitted)
        assert (counts.results, counts.corrections, counts.deletes) == (
            types["insert"],
            types["update_postimage"],
            types["delete"],
        )


@given(case=histories(odd=1))
def test_published_changes_fold(case: Case) -> None:
    table(case.spec, play(case.spec, case.batches))


@given(case=histories())
def test_the_table_depends_neither_on_cuts_nor_on_arrival_nor_on_duplicates(case: Case) -> None:
    spec = dataclasses.replace(case.spec, horizon=FOREVER)
    dice, whole = random.Random(case.seed), case.rows
    expected = table(spec, play(spec, case.batches))
    for _ in range(3):
        order = [*range(len(whole)), *dice.choices(range(len(whole)), k=min(4, len(whole)))]
        dice.shuffle(order)
        again = whole.take(pa.array(order, pa.int64()))
        assert table(spec, play(spec, cut(again, dice))) == expected
    batch = LatestCore().run(spec, [LatestCore().pack(spec, whole)]).rows
    assert table(spec, [Step(State.empty(LatestCore().layout(spec)), batch, batch)]) == expected


@given(case=histories(odd=2))
def test_the_order_within_a_micro_batch_does_not_matter(case: Case) -> None:
    spec = tight(case.spec, case.seed)
    rng = np.random.default_rng(case.seed)
    shuffled = [batch.take(pa.array(rng.permutation(len(batch)))) for batch in case.batches]
    for one, other in zip(play(spec, case.batches), play(spec, shuffled), strict=True):
        assert by_key(case.spec, changes_of(one)) == by_key(case.spec, changes_of(other))
        assert rejects(one) == rejects(other)
        assert one.metrics == other.metrics
        for name, rows in one.state.tables.items():
            other_rows = to_rows(other.state.tables[name])
            assert sorted(map(comparable, to_rows(rows))) == sorted(map(comparable, other_rows))


@given(case=histories(odd=2))
def test_a_restart_changes_nothing(case: Case) -> None:
    restarted = play(case.spec, case.batches, playing.restart(LatestCore(), case.spec))
    pairs = zip(play(case.spec, case.batches), restarted, strict=True)
    for one, other in pairs:
        assert comparable(to_rows(one.output)) == comparable(to_rows(other.output))
        assert one.metrics == other.metrics


@given(case=histories(odd=1))
def test_the_number_of_shards_does_not_matter(case: Case) -> None:
    def emitted_by(step: Step) -> dict[Any, list[Any]]:
        rows = changes_of(step)
        if case.spec.horizon != FOREVER:  # the first revision of a key depends on its shard
            rows = [{name: v for name, v in row.items() if name != "revision"} for row in rows]
        return by_key(case.spec, rows)

    whole = [emitted_by(step) for step in play(case.spec, case.batches)]
    combined: list[dict[Any, list[Any]]] = [{} for _ in case.batches]
    for shard in range(3):
        of_shard = [packed_for(case.spec, batch, shard) for batch in case.batches]
        for found, step in zip(combined, play(case.spec, of_shard), strict=True):
            found |= emitted_by(step)
    assert combined == whole


def packed_for(spec: TableSpec, batch: pa.Table, shard: int) -> pa.Table:
    """The rows of a micro-batch that one of three shards receives."""
    own, copies = (
        batch.filter(pa.array(shard_of(batch, spec.by, 3) == shard)),
        copy_truncates(spec, batch),
    )
    return own if copies is None else pa.concat_tables([copies, own]).combine_chunks()


@given(case=histories(odd=2))
def test_every_row_is_counted_and_state_has_one_row_per_key(case: Case) -> None:
    keys = set()
    for step, batch in zip(play(case.spec, case.batches), case.batches, strict=True):
        assert sum(reasons(step).values()) == step.metrics.rejected
        keys |= {comparable([row[n] for n in case.spec.by]) for row in to_rows(batch)}
        assert step.state.tables["rows"].num_rows <= len(keys)
