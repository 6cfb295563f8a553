"""Laws of ``apply`` with intervals: of every core, and that no two intervals of a key overlap."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.changes.core.history import HistoryCore
from streamops.changes.core.latest import ApplySpec
from streamops.kernel.core import State, Step
from streamops.kernel.hashing import shard_of
from streamops.kernel.values import comparable
from streamops.testing import fold
from streamops.testing.laws import to_rows
from tests.laws import playing
from tests.laws.changes_strategies import Case as LatestCase
from tests.laws.changes_strategies import (
    by_key,
    changes_of,
    cut,
    histories,
    reasons,
    rejects,
    tight,
)
from tests.oracles.history import HistoryOracle, plain
from tests.oracles.windows import Row

pytestmark = pytest.mark.laws


@dataclasses.dataclass(frozen=True)
class Case:
    """A history of micro-batches."""

    spec: ApplySpec
    batches: tuple[pa.Table, ...]
    oracle: HistoryOracle
    rows: pa.Table
    seed: int


play = partial(playing.play, HistoryCore())


@st.composite
def cases(draw: st.DrawFn, *, odd: int = 0) -> Case:
    """The histories of ``normalize``, with parameters of ``apply``."""
    case: LatestCase = draw(histories(odd=odd))
    given_ = {field.name: getattr(case.spec, field.name) for field in dataclasses.fields(case.spec)}
    track = draw(st.sampled_from([case.spec.values, ("n",), ("n", "map"), ()]))
    spec = ApplySpec(**given_, history="intervals", track=track)
    oracle = HistoryOracle(
        spec.by,
        spec.values,
        "last",
        spec.snapshots,
        spec.time,
        ignore_nulls=spec.ignore_nulls,
        track=track,
    )
    return Case(spec, case.batches, oracle, case.rows, case.seed)


def table(spec: ApplySpec, steps: Sequence[Step]) -> list[Row]:
    """The table that the steps fold to, without revisions."""
    key = [*spec.by, "valid_from"]
    folded = fold((row for step in steps for row in changes_of(step)), key=key)
    return [{n: v for n, v in row.items() if n != "revision"} for row in folded]


def ordered(rows: Sequence[Row]) -> list[Any]:
    return sorted(map(comparable, rows))


def multisets(spec: ApplySpec, rows: Sequence[Row]) -> dict[Any, Counter[Any]]:
    return {key: Counter(rows) for key, rows in by_key(spec, rows).items()}


@given(case=cases(odd=2))
def test_every_step_equals_the_oracle(case: Case) -> None:
    # The oracle finds duplicates and conflicts of final changes, too, so no change is final here.
    spec, oracle = dataclasses.replace(case.spec, horizon=10**12), case.oracle.fresh()
    for step, batch in zip(play(spec, case.batches), case.batches, strict=True):
        expected = oracle.step(to_rows(batch))
        assert multisets(case.spec, changes_of(step)) == multisets(case.spec, expected.emitted)
        assert reasons(step) == Counter(expected.rejected)
        assert (step.metrics.stale, step.metrics.duplicates, step.metrics.ignored) == (
            expected.stale,
            expected.duplicates,
            expected.ignored,
        )
        types = Counter(row["_change_type"] for row in expected.emitted)
        assert (step.metrics.results, step.metrics.corrections, step.metrics.deletes) == (
            types["insert"],
            types["update_postimage"],
            types["delete"],
        )


@given(case=cases())
def test_the_table_equals_the_oracle_with_a_short_horizon(
    case: Case,
) -> None:
    oracle, steps = case.oracle.fresh(), play(case.spec, case.batches)
    for number, batch in enumerate(case.batches):
        oracle.step(to_rows(batch))
        assert ordered(table(case.spec, steps[: number + 1])) == ordered(oracle.rows())


@given(case=cases(odd=1))
def test_no_two_intervals_of_a_key_overlap_after_any_emitted_row(case: Case) -> None:
    tables: dict[Any, dict[Any, Row]] = {}
    for step in play(case.spec, case.batches):
        for row in changes_of(step):
            of_key = tables.setdefault(comparable([row[n] for n in case.spec.by]), {})
            start = plain(row["valid_from"])
            if row["_change_type"] in {"delete", "update_preimage"}:
                del of_key[start]
            else:
                of_key[start] = row
            for one, after in itertools.pairwise(of_key[field] for field in sorted(of_key)):
                assert one["valid_to"] is not None
                assert plain(one["valid_from"]) < plain(one["valid_to"])
                assert plain(one["valid_to"]) <= plain(after["valid_from"])


@given(case=cases())
def test_the_table_depends_neither_on_cuts_nor_on_arrival_nor_on_duplicates(case: Case) -> None:
    spec = dataclasses.replace(case.spec, horizon=10**12)
    dice, expected = random.Random(case.seed), ordered(table(spec, play(spec, case.batches)))
    for _ in range(3):
        order = [
            *range(len(case.rows)),
            *dice.choices(range(len(case.rows)), k=min(4, len(case.rows))),
        ]
        dice.shuffle(order)
        again = case.rows.take(pa.array(order, pa.int64()))
        assert ordered(table(spec, play(spec, cut(again, dice)))) == expected
    batch = HistoryCore().run(spec, [HistoryCore().pack(spec, case.rows)]).rows
    whole = Step(State.empty(HistoryCore().layout(spec)), batch, batch)
    assert {row["_change_type"] for row in changes_of(whole)} <= {"insert"}
    assert ordered(table(spec, [whole])) == expected


@given(case=cases(odd=2))
def test_a_surrogate_identifies_a_version_however_it_arrived(case: Case) -> None:
    spec = dataclasses.replace(case.spec, surrogate="id")
    numbers: dict[str, Any] = {}
    dice = random.Random(case.seed)
    ways = [case.batches, cut(case.rows, dice), (case.rows,)]
    for batches in ways:
        pairs = zip(play(spec, batches), play(case.spec, batches), strict=True)
        for step, plain_step in pairs:
            rows = [{n: v for n, v in row.items() if n != "id"} for row in to_rows(step.output)]
            assert comparable(rows) == comparable(to_rows(plain_step.output))
            for row in changes_of(step):
                version = comparable([row[n] for n in (*spec.by, "valid_from")])
                assert numbers.setdefault(row["id"], version) == version
    assert len(set(map(repr, numbers.values()))) == len(numbers)


@given(case=cases())
def test_repeated_deliveries_change_nothing_however_late(case: Case) -> None:
    oracle = case.oracle.fresh()
    oracle.step(to_rows(case.rows))
    batches = [case.rows.slice(0, number + 1) for number in range(len(case.rows))]
    assert ordered(table(case.spec, play(case.spec, batches))) == ordered(oracle.rows())


@given(case=cases(odd=2))
def test_the_order_within_a_micro_batch_does_not_matter(case: Case) -> None:
    spec = tight(case.spec, case.seed)
    rng = np.random.default_rng(case.seed)
    shuffled = [batch.take(pa.array(rng.permutation(len(batch)))) for batch in case.batches]
    for one, other in zip(play(spec, case.batches), play(spec, shuffled), strict=True):
        assert multisets(case.spec, changes_of(one)) == multisets(case.spec, changes_of(other))
        assert rejects(one) == rejects(other)
        assert one.metrics == other.metrics
        for name, rows in one.state.tables.items():
            assert ordered(to_rows(rows)) == ordered(to_rows(other.state.tables[name]))


@given(case=cases(odd=2))
def test_a_restart_changes_nothing(case: Case) -> None:
    restarted = play(case.spec, case.batches, playing.restart(HistoryCore(), case.spec))
    pairs = zip(play(case.spec, case.batches), restarted, strict=True)
    for one, other in pairs:
        assert comparable(to_rows(one.output)) == comparable(to_rows(other.output))
        assert one.metrics == other.metrics


@given(case=cases())
def test_the_number_of_shards_does_not_matter(case: Case) -> None:
    whole = [multisets(case.spec, changes_of(step)) for step in play(case.spec, case.batches)]
    combined: list[dict[Any, Counter[Any]]] = [{} for _ in case.batches]
    for shard in range(3):
        of_shard = [b.filter(pa.array(shard_of(b, case.spec.by, 3) == shard)) for b in case.batches]
        for found, step in zip(combined, play(case.spec, of_shard), strict=True):
            found |= multisets(case.spec, changes_of(step))
    assert combined == whole


@given(case=cases())
def test_state_has_the_changes_within_the_horizon_and_one_more_of_each_key(case: Case) -> None:
    for step in play(case.spec, case.batches):
        newest = step.state.watermark
        rows = to_rows(step.state.tables["changes"])
        if newest is None:
            continue
        of_key = Counter(
            comparable([row[f"key.{i}"] for i in range(len(case.spec.by))]) for row in rows
        )
        recent = Counter(
            comparable([row[f"key.{i}"] for i in range(len(case.spec.by))])
            for row in rows
            if row["clock"] >= newest - case.spec.horizon
        )
        for key, count in of_key.items():
            old = count - recent[key]
            assert old <= 1 or any(not row["is_log"] for row in rows)
