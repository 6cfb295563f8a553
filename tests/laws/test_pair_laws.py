"""Two correct cores satisfy every law, and each law detects a broken core."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.core import Metrics, State, Step
from streamops.kernel.operator import Table
from streamops.kernel.placement import ByKey
from streamops.testing import laws
from streamops.testing.laws import Arrival, to_rows
from streamops.testing.laws.cases import Row
from tests.oracles.pairs import EarlierOracle, TallyOracle
from tests.spark.pair_cores import Earlier, Tally, earlier, tally

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.string()), ("ts", INSTANT)])
RIGHT = pa.schema([("key", pa.string()), ("at", INSTANT)])
SECOND = 1_000_000

Batch = tuple[pa.Table, pa.Table]


def rows(schema: pa.Schema, dice: random.Random, size: int, since: int) -> pa.Table:
    times = [dice.choice([None, -1, *range(since, since + 12)]) for _ in range(size)]
    columns = [
        pa.array(dice.choices(["a", "b", None], k=size), pa.string()),
        pa.array([t if t is None else t * SECOND for t in times], pa.int64()).cast(INSTANT),
    ]
    return pa.table(columns, schema=schema)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, ...]:
    """Times increase, some are late; one side may have no rows for a while."""
    dice = random.Random(draw(st.integers(0, 2**16)))
    sizes = st.sampled_from([0, 0, 1, 3, 6])
    drawn = draw(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=6))
    return tuple(
        (rows(LEFT, dice, one, 6 * at), rows(RIGHT, dice, other, 6 * at))
        for at, (one, other) in enumerate(drawn)
    )


def accepted_earlier(arrivals: Sequence[Arrival]) -> list[Row]:
    def accept(table: pa.Table, name: str, mark: int | None) -> list[Row]:
        found = [row for row in to_rows(table) if row[name] is not None]
        return [row for row in found if mark is None or row[name] > mark]

    oracle = EarlierOracle()
    for (left, right), mark in arrivals:
        oracle.waiting += accept(left, "ts", mark)
        oracle.right += accept(right, "at", mark)
    return oracle.finish()


def accepted_tally(arrivals: Sequence[Arrival]) -> list[Row]:
    oracle = TallyOracle()
    for (left, right), _ in arrivals:
        oracle.step(to_rows(left), to_rows(right), None)
    return list(oracle.results.values())


def case_of_earlier(history: tuple[Batch, ...], core: Any = None, **arguments: Any) -> laws.Case:
    operator = earlier(**({"delay": ("2 seconds", "4 seconds")} | arguments))
    spec = operator.parameters.resolve((LEFT, RIGHT), carried=(None, None), shards=1)
    oracle: Callable[[], Any] = EarlierOracle
    return laws.Case(core or Earlier(), spec, history, oracle, accepted_earlier, seed=7)


def case_of_tally(history: tuple[Batch, ...], core: Any = None) -> laws.Case:
    spec = tally().parameters.resolve((LEFT, RIGHT), carried=(None, None), shards=1)
    oracle: Callable[[], Any] = TallyOracle
    history = tuple((left, right.select(["key"])) for left, right in history)
    return laws.Case(core or Tally(), spec, history, oracle, accepted_tally, ("k",), seed=7)


def case_with_wrong_undo(history: tuple[Batch, ...], core: Any) -> laws.Case:
    case = case_of_tally(history, core)
    return replace(case, undo=case.batches)


@given(history=batches(), lag=st.sampled_from(["0 seconds", "3 seconds"]))
def test_a_core_with_event_time_satisfies_every_law(history: tuple[Batch, ...], lag: str) -> None:
    laws.check_laws(case_of_earlier(history, lag=lag))


@given(history=batches())
def test_a_core_without_event_time_satisfies_every_law(history: tuple[Batch, ...]) -> None:
    laws.check_laws(case_of_tally(history))


def test_the_watermark_is_the_minimum_of_both_sides() -> None:
    dice = random.Random(1)
    no_left, no_right = rows(LEFT, dice, 0, 0), rows(RIGHT, dice, 0, 0)
    one = pa.table([["a"], pa.array([9 * SECOND]).cast(INSTANT)], schema=LEFT)
    other = pa.table([["a"], pa.array([7 * SECOND]).cast(INSTANT)], schema=RIGHT)
    case = case_of_earlier(((one, no_right), (no_left, other), (no_left, no_right)))
    assert case.watermarks(case.batches) == [None, None, 3 * SECOND]


DICE = random.Random(3)
HISTORY = tuple((rows(LEFT, DICE, 6, 6 * at), rows(RIGHT, DICE, 6, 6 * at)) for at in range(5))


class ThreeRows(Earlier):
    """Stores three right rows only."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        stored = {**step.state.tables, "right": step.state.tables["right"].slice(0, 3)}
        return replace(step, state=State(watermark, stored))


class RowNumbers(Earlier):
    """The output depends on the order of the rows."""

    def _count(self, spec: Any, left: pa.Table, right: pa.Table) -> pa.Table:
        table = super()._count(spec, left, right)
        at = table.schema.get_field_index("n")
        return table.set_column(at, table.schema.field(at), pa.array(range(len(table)), pa.int64()))


class NoDeadline(Earlier):
    """Has no deadline, although left rows are pending."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        return None


class EarlyDeadline(Earlier):
    """The deadline comes before a row is due."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        deadline = super().next_deadline(spec, state)
        return None if deadline is None else deadline - 1


class Unread(Earlier):
    """Moves right rows to segments, and never reads them."""

    def has_segments(self, spec: Any) -> bool:
        return True

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        tables = {name: state.tables[name] for name in self.layout(spec)}
        step = super().step(spec, State(state.watermark, tables), inputs, watermark)
        right = step.state.tables["right"]
        if state.segments is None or not len(right):
            return replace(step, state=replace(step.state, segments=state.segments))
        stored = {**step.state.tables, "right": right.slice(0, 0)}
        segments = state.segments.add(right, first=0, last=0, scale=0)
        return replace(step, state=State(watermark, stored, segments))


class NotCounted(Earlier):
    """Does not count late rows."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        return replace(step, metrics=replace(step.metrics, too_late=0))


class SecondRevision(Tally):
    """The first revision of a result is 2."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        revision = pc.add(step.output.column("revision"), 2)
        return replace(step, output=step.output.set_column(3, "revision", revision))


class Swapped(Tally):
    """Swaps the inputs of the first step."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        if not len(state.tables["tally"]):
            left, right = inputs
            inputs = right.rename_columns(["k"]), left.select(["k"]).rename_columns(["key"])
        return super().step(spec, state, inputs, watermark)


class RandomRows(Tally):
    """Stores another row, with a random key, in every step."""

    def step(self, spec: Any, state: State, inputs: Any, watermark: int | None) -> Step:
        step = super().step(spec, state, inputs, watermark)
        assert isinstance(step.metrics, Metrics)
        zeros = pa.table(
            [[f"{np.random.default_rng().random()}"], [0], [0], [0]], schema=spec.output
        )
        more = pa.concat_tables([step.state.tables["tally"], zeros])
        return replace(step, state=State(watermark, {"tally": more}))


class Misplaced(Tally):
    """A core whose keys stay in the first shard when the number of shards changes."""

    TABLES: ClassVar = {"tally": Table(lambda spec: spec.output, ByKey(key=lambda identity: []))}


BROKEN: list[tuple[Any, Any, str]] = [
    (case_of_earlier, ThreeRows, "stream_equals_batch"),
    (case_of_earlier, ThreeRows, "stream_equals_batch_over_accepted_rows"),
    (case_of_earlier, RowNumbers, "order_within_a_batch_is_irrelevant"),
    (case_of_earlier, RowNumbers, "sharding_changes_nothing"),
    (case_of_earlier, NoDeadline, "the_deadline_is_exact"),
    (case_of_earlier, EarlyDeadline, "the_deadline_is_exact"),
    (case_of_earlier, Unread, "segments_change_nothing"),
    (case_of_earlier, NotCounted, "metrics_count_every_row"),
    (case_of_tally, SecondRevision, "output_is_a_valid_change_stream"),
    (case_of_tally, Swapped, "equals_the_oracle"),
    (case_of_tally, Misplaced, "rescaling_changes_nothing"),
    (case_of_tally, RandomRows, "packing_in_pieces_changes_nothing"),
    (case_of_tally, RandomRows, "a_restart_changes_nothing"),
    (case_of_tally, RandomRows, "a_state_is_a_value"),
    (case_of_tally, RandomRows, "state_stays_within_its_bound"),
    (case_with_wrong_undo, Tally, "retracting_all_changes_leaves_nothing"),
]


@pytest.mark.parametrize(("make", "core", "name"), BROKEN)
def test_a_broken_core_violates_the_law(make: Any, core: Any, name: str) -> None:
    (law,) = (law for law in laws.CORE if law.__name__ == name)
    with pytest.raises(AssertionError):
        law(make(HISTORY, core()))


def test_every_law_detects_a_broken_core_and_is_named() -> None:
    assert {name for _, _, name in BROKEN} == {law.__name__ for law in laws.CORE}
    with pytest.raises(AssertionError) as broken:
        laws.check_laws(case_of_earlier(HISTORY, NoDeadline()))
    (note,) = broken.value.__notes__
    assert note == "Violated law: the_deadline_is_exact."


def test_a_core_with_one_input_counts_rejected_rows_exactly() -> None:
    operator = windows.tumbling("10 seconds", time="ts", agg={"n": agg.count()}, delay="0 seconds")

    def step(*arguments: Any) -> Step:
        result = operator.core.step(*arguments)
        return replace(result, metrics=replace(result.metrics, rejected=2))

    broken: Any = type(operator.core)()
    broken.step = step
    table = pa.table({"ts": pa.array([1, None, 3], INSTANT)})
    spec = operator.parameters.resolve((table.schema,), carried=(None,), shards=1)
    unused: Any = None
    case = laws.Case(operator.core, spec, ((table,),), unused, unused)
    (law,) = (law for law in laws.CORE if law.__name__ == "metrics_count_every_row")
    law(case)
    with pytest.raises(AssertionError, match="1 without a valid time"):
        law(replace(case, core=broken))


CHANGES = pa.schema([("n", pa.int64()), ("_change_type", pa.string())])


def test_inverted_change_streams_retract_the_last_change_first() -> None:
    columns = [[1, 1, 2, 3], ["insert", "update_preimage", "update_postimage", "delete"]]
    left = pa.table(columns, schema=CHANGES)
    (empty, _), (back, none) = laws.invert([(left, left.slice(0, 0)), (left.slice(0, 0), left)])
    assert len(empty) == len(none) == 0
    assert back.to_pydict() == {
        "n": [3, 2, 1, 1],
        "_change_type": ["insert", "update_preimage", "update_postimage", "delete"],
    }
