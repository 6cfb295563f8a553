"""The laws of a core with two inputs: two honest cores keep them, and what is wrong breaks one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.core import Metrics, State, Step
from streamops.testing import laws
from streamops.testing.laws import JudgedPair, rows_of
from streamops.testing.laws.comparing import Row
from tests.oracles.pairs import EarlierOracle, TallyOracle
from tests.spark.pair_cores import Earlier, Tally, earlier, tally

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.string()), ("ts", INSTANT)])
RIGHT = pa.schema([("key", pa.string()), ("at", INSTANT)])
SECOND = 1_000_000


def rows(schema: pa.Schema, dice: random.Random, size: int, since: int) -> pa.Table:
    times = [dice.choice([None, -1, *range(since, since + 12)]) for _ in range(size)]
    columns = [
        pa.array(dice.choices(["a", "b", None], k=size), pa.string()),
        pa.array([t if t is None else t * SECOND for t in times], pa.int64()).cast(INSTANT),
    ]
    return pa.table(columns, schema=schema)


@st.composite
def batches(draw: st.DrawFn) -> tuple[laws.Both, ...]:
    """Times go on, now and then one lies behind; one side may be silent for a while."""
    dice = random.Random(draw(st.integers(0, 2**16)))
    sizes = st.sampled_from([0, 0, 1, 3, 6])
    drawn = draw(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=6))
    return tuple(
        (rows(LEFT, dice, one, 6 * at), rows(RIGHT, dice, other, 6 * at))
        for at, (one, other) in enumerate(drawn)
    )


def accepted_earlier(judged: list[JudgedPair]) -> list[Row]:
    def good(table: pa.Table, name: str, mark: int | None) -> list[Row]:
        found = [row for row in rows_of(table) if row[name] is not None]
        return [row for row in found if mark is None or row[name] > mark]

    oracle = EarlierOracle()
    for left, right, mark in judged:
        oracle.waiting += good(left, "ts", mark)
        oracle.seen += good(right, "at", mark)
    return oracle.finish()


def accepted_tally(judged: list[JudgedPair]) -> list[Row]:
    oracle = TallyOracle()
    for left, right, _ in judged:
        oracle.step(rows_of(left), rows_of(right), None)
    return list(oracle.kept.values())


def case_of_earlier(history: tuple[laws.Both, ...], core: Any = None, **said: Any) -> laws.PairCase:
    operator = earlier(**({"delay": ("2 seconds", "4 seconds")} | said))
    spec = operator.parameters.resolve((LEFT, RIGHT), carried=(None, None), shards=1)
    oracle: Callable[[], Any] = EarlierOracle
    return laws.PairCase(core or Earlier(), spec, history, oracle, accepted_earlier, seed=7)


def case_of_tally(history: tuple[laws.Both, ...], core: Any = None) -> laws.PairCase:
    spec = tally().parameters.resolve((LEFT, RIGHT), carried=(None, None), shards=1)
    oracle: Callable[[], Any] = TallyOracle
    history = tuple((left, right.select(["key"])) for left, right in history)
    return laws.PairCase(core or Tally(), spec, history, oracle, accepted_tally, ("k",), seed=7)


def case_that_is_not_undone(history: tuple[laws.Both, ...], core: Any) -> laws.PairCase:
    case = case_of_tally(history, core)
    return replace(case, undo=case.batches)


@given(history=batches(), lag=st.sampled_from(["0 seconds", "3 seconds"]))
def test_a_core_with_time_keeps_every_law(history: tuple[laws.Both, ...], lag: str) -> None:
    laws.keep_pair(case_of_earlier(history, lag=lag))


@given(history=batches())
def test_a_core_without_time_keeps_every_law(history: tuple[laws.Both, ...]) -> None:
    laws.keep_pair(case_of_tally(history))


def test_the_watermark_is_that_of_the_side_that_is_behind() -> None:
    dice = random.Random(1)
    late, soon = rows(LEFT, dice, 0, 0), rows(RIGHT, dice, 0, 0)
    one = pa.table([["a"], pa.array([9 * SECOND]).cast(INSTANT)], schema=LEFT)
    other = pa.table([["a"], pa.array([7 * SECOND]).cast(INSTANT)], schema=RIGHT)
    case = case_of_earlier(((one, soon), (late, other), (late, soon)))
    assert case.watermarks(case.batches) == [None, None, 3 * SECOND]


DICE = random.Random(3)
HISTORY = tuple((rows(LEFT, DICE, 6, 6 * at), rows(RIGHT, DICE, 6, 6 * at)) for at in range(5))


class Forgets(Earlier):
    """A right row is gone once the watermark has passed it, though older left rows wait."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        kept = {**step.state.tables, "right": step.state.tables["right"].slice(0, 3)}
        return replace(step, state=State(watermark, kept))


class FirstOnly(Earlier):
    """A row depends on the order in which rows stand."""

    def _answered(self, spec: Any, left: pa.Table, right: pa.Table) -> pa.Table:
        table = super()._answered(spec, left, right)
        at = table.schema.get_field_index("n")
        return table.set_column(at, table.schema.field(at), pa.array(range(len(table)), pa.int64()))


class Late(Earlier):
    """It is never to be woken."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        return None


class Soon(Earlier):
    """It is to be woken before there is anything to do."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        deadline = super().next_deadline(spec, state)
        return None if deadline is None else deadline - 1


class Silent(Earlier):
    """It does not count what is late."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        return replace(step, metrics=replace(step.metrics, too_late=0))


class Mixed(Tally):
    """It packs one side as the other."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        if not len(state.tables["tally"]):
            left, right = inputs
            inputs = right.rename_columns(["k"]), left.select(["k"]).rename_columns(["key"])
        return super().step(spec, state, inputs, watermark)


class Hoards(Tally):
    """It keeps a row of every micro-batch."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        assert isinstance(step.metrics, Metrics)
        zeros = pa.table(
            [[f"{np.random.default_rng().random()}"], [0], [0], [0]], schema=spec.output
        )
        more = pa.concat_tables([step.state.tables["tally"], zeros])
        return replace(step, state=State(watermark, {"tally": more}))


BROKEN: list[tuple[Any, Any, str]] = [
    (case_of_earlier, Forgets, "stream_equals_batch"),
    (case_of_earlier, Forgets, "stream_equals_batch_over_accepted_rows"),
    (case_of_earlier, FirstOnly, "order_within_a_batch_is_irrelevant"),
    (case_of_earlier, FirstOnly, "sharding_changes_nothing"),
    (case_of_earlier, Late, "nothing_happens_before_the_deadline"),
    (case_of_earlier, Soon, "nothing_happens_before_the_deadline"),
    (case_of_earlier, Silent, "counts_are_conserved"),
    (case_of_tally, Mixed, "equals_the_oracle"),
    (case_of_tally, Hoards, "packing_in_pieces_changes_nothing"),
    (case_of_tally, Hoards, "a_restart_changes_nothing"),
    (case_of_tally, Hoards, "a_state_is_a_value"),
    (case_of_tally, Hoards, "state_stays_within_its_bound"),
    (case_that_is_not_undone, Tally, "what_is_taken_back_leaves_nothing"),
]


@pytest.mark.parametrize(("make", "core", "name"), BROKEN)
def test_what_is_wrong_breaks_the_law_that_says_so(make: Any, core: Any, name: str) -> None:
    (law,) = (law for law in laws.PAIR if law.__name__ == name)
    with pytest.raises(AssertionError):
        law(make(HISTORY, core()))


def test_every_law_can_be_broken_and_is_named() -> None:
    assert {name for _, _, name in BROKEN} == {law.__name__ for law in laws.PAIR}
    with pytest.raises(AssertionError) as broken:
        laws.keep_pair(case_of_earlier(HISTORY, Late()))
    (note,) = broken.value.__notes__
    assert note == "The law that is broken: nothing_happens_before_the_deadline."


CHANGES = pa.schema([("n", pa.int64()), ("_change_type", pa.string())])


def test_the_inverse_of_change_streams_takes_back_the_last_first() -> None:
    said = [[1, 1, 2, 3], ["insert", "update_preimage", "update_postimage", "delete"]]
    left = pa.table(said, schema=CHANGES)
    (empty, _), (back, none) = laws.inverse([(left, left.slice(0, 0)), (left.slice(0, 0), left)])
    assert len(empty) == len(none) == 0
    assert back.to_pydict() == {
        "n": [3, 2, 1, 1],
        "_change_type": ["insert", "update_preimage", "update_postimage", "delete"],
    }
