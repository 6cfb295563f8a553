"""The laws of the clock of producers, and of downstream windows."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import time, windows
from streamops.kernel.codec import decode, encode
from streamops.kernel.columns import concat, take
from streamops.kernel.core import State, Step
from streamops.kernel.time import spark_watermark
from streamops.testing import replay
from streamops.testing.laws import to_rows
from streamops.testing.laws.cases import same_rows, split_rows
from streamops.time.core import producers as core
from streamops.time.core.producers import ProducersCore
from tests.oracles.producers import ProducersOracle, Row
from tests.oracles.windows import WindowOracle

pytestmark = pytest.mark.laws

SECOND = 1_000_000
INSTANT = pa.timestamp("us", tz="UTC")
YEAR_1, YEAR_9999_ENDS = -62_135_596_800_000_000, 253_402_300_799_999_999
UNUSUAL = [None, YEAR_1, YEAR_1 - 1, YEAR_9999_ENDS, YEAR_9999_ENDS + 1, -1, 0, 2**62]
NEVER = -(2**62)
NAMES = ["a", "b", "c", "d", None]


@dataclass(frozen=True)
class History:
    """Micro-batches of rows, and the parameters of the clock."""

    idle: int
    batches: tuple[tuple[Row, ...], ...]
    seed: int
    expected: tuple[str | None, ...] = ()

    @property
    def spec(self) -> core.ProducersSpec:
        return core.ProducersSpec(
            producer="device",
            time="ts",
            delay=0,
            idle=self.idle,
            arrival="received",
            expected=self.expected,
            producer_type=pa.string(),
        )

    @property
    def tables(self) -> list[pa.Table]:
        return [table_of(self.spec, rows) for rows in self.batches]


def table_of(spec: core.ProducersSpec, rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 3
    types = [pa.string(), pa.int64(), pa.int64()]
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return pa.table(arrays, names=spec.input.names).cast(spec.input)


@st.composite
def histories(draw: st.DrawFn, odd: bool = True) -> History:
    """Producers of different speeds that become silent and return, with rows out of order."""
    seed = draw(st.integers(0, 2**32))
    start = draw(st.sampled_from([1_700_000_000 * SECOND] * 3 + [0, -86_400 * SECOND]))
    idle = draw(st.sampled_from([1, 3, 10, 1_000])) * SECOND
    batches = []
    for number in range(
        draw(st.integers(1, 12))
    ):  # own random numbers each: a shorter history has the same rows
        dice = random.Random(f"{seed} {number}")
        names = dice.sample(NAMES, dice.choice([1, 2, 3, 5]))
        rows: list[Row] = []
        for _ in range(dice.choice([0, 1, 3, 6])):
            name = dice.choice(names)
            slow = NAMES.index(name) * number  # later producers in the list are slower
            at = start + (4 * number - slow // 2 + dice.randrange(-3, 4)) * SECOND
            arrival = start + (3 * number + dice.randrange(0, 4)) * SECOND
            is_unusual = odd and dice.random() < 0.1
            rows.append(
                (name, dice.choice(UNUSUAL), arrival)
                if is_unusual
                else (name, at, dice.choice(UNUSUAL) if odd and dice.random() < 0.02 else arrival)
            )
        batches.append(tuple(rows))
    expected = draw(st.sampled_from([(), (), ("a",), ("a", "d", "x", "a"), (None, "y")]))
    return History(idle, tuple(batches), seed, expected if odd else ())


def play(
    history: History,
    tables: Sequence[pa.Table] | None = None,
    *,
    between: Callable[[State], State] = lambda state: state,
    pack: Callable[[pa.Table], list[pa.Table]] = lambda table: [table],
) -> list[Step]:
    spec = history.spec
    state, steps = State.empty(ProducersCore().layout(spec)), []
    for table in history.tables if tables is None else tables:
        packed = concat([ProducersCore().pack(spec, piece) for piece in pack(table)])
        step = ProducersCore().step(spec, between(state), [packed], None)
        state = step.state
        ProducersCore().check(spec, state)
        assert {n: t.schema for n, t in state.tables.items()} == ProducersCore().layout(spec)
        steps.append(step)
    return steps


def same_steps(left: Sequence[Step], right: Sequence[Step]) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.metrics == other.metrics
        assert one.state.watermark == other.state.watermark
        for name, table in one.state.tables.items():
            same_rows(to_rows(table), to_rows(other.state.tables[name]), name)


@given(history=histories())
def test_the_clock_equals_the_oracle(history: History) -> None:
    oracle = ProducersOracle(history.idle, history.expected)
    for step, rows in zip(play(history), history.batches, strict=True):
        assert asdict(step.metrics) == oracle.step(rows)
        stored = {row.pop("key.0"): row for row in to_rows(step.state.tables["producers"])}
        assert stored == {
            name: {"newest": NEVER if p.newest is None else p.newest, "seen": p.seen}
            for name, p in oracle.active.items()
        }


@given(history=histories())
def test_the_order_of_rows_in_a_micro_batch_does_not_matter(history: History) -> None:
    rng = np.random.default_rng(history.seed)
    shuffled = [take(table, rng.permutation(len(table))) for table in history.tables]
    same_steps(play(history), play(history, shuffled))


@given(history=histories())
def test_rows_may_be_packed_by_any_number_of_tasks(history: History) -> None:
    rng = np.random.default_rng(history.seed)
    same_steps(play(history), play(history, pack=lambda table: split_rows(table, rng)))


@given(history=histories())
def test_a_restart_between_any_two_steps_changes_nothing(history: History) -> None:
    def restarted(state: State) -> State:
        known = ProducersCore.STATE, history.spec.identity, 1
        tables = decode(encode(*known, state.tables), *known)
        return State(state.watermark, tables)

    same_steps(play(history), play(history, between=restarted))


@given(history=histories())
def test_a_state_is_a_value(history: History) -> None:
    def twice(state: State) -> State:
        before = to_rows(state.tables["producers"])
        ProducersCore().step(
            history.spec, state, [ProducersCore().pack(history.spec, concat(history.tables))], None
        )
        assert to_rows(state.tables["producers"]) == before
        return state

    same_steps(play(history), play(history, between=twice))


@given(history=histories())
def test_the_clock_never_goes_back_and_never_passes_a_producer_that_holds_it(
    history: History,
) -> None:
    clock: int | None = None
    newest: dict[Any, int] = {}
    for step in play(history):
        now = {row["key.0"]: row["newest"] for row in to_rows(step.state.tables["producers"])}
        after = step.metrics.clock
        if clock is not None:
            assert after is not None
            assert after >= clock
        for name, time_of in now.items():
            if name in newest and clock is not None and newest[name] >= clock:
                assert after is not None
                assert after <= time_of, name
        clock, newest = after, now


@given(history=histories(odd=False))
def test_without_idle_and_new_producers_the_clock_does_not_depend_on_the_division(
    history: History,
) -> None:
    everything = concat(history.tables)
    calm = History(10**18, history.batches, history.seed)
    rng = np.random.default_rng(history.seed)
    greatest: dict[Any, int] = {}
    for row in to_rows(everything):
        greatest[row["device"]] = max(row["ts"], greatest.get(row["device"], row["ts"]))
    # All producers have a row in the first micro-batch, with the smallest event time.
    hello = [(name, min(t for t in greatest.values()) - 1, 0) for name in greatest]
    for _ in range(3):
        tables = [table_of(calm.spec, hello), *split_rows(everything, rng)]
        metrics = play(calm, tables)[-1].metrics
        assert metrics.clock == min(greatest.values(), default=None)
        assert metrics.newest == max(greatest.values(), default=None)


def _past(arrival: int | None) -> int | None:
    return None if arrival is None else min(arrival, 1_750_000_000 * SECOND)


SCHEMA = pa.schema([("device", pa.string()), ("ts", INSTANT), ("received", INSTANT)])
DELAY, LATENESS = 5 * SECOND, 2 * SECOND


@given(history=histories())
def test_downstream_windows_equal_a_naive_simulation(history: History) -> None:
    by_device = time.producers(
        "device",
        time="ts",
        delay=dt.timedelta(microseconds=DELAY),
        idle=dt.timedelta(microseconds=history.idle),
        arrival="received",
        expected=history.expected,
    )
    per_window = windows.tumbling(
        "4 seconds",
        time="ts",
        by="device",
        agg={"n": agg.count()},
        allowed_lateness=dt.timedelta(microseconds=LATENESS),
        stragglers="update",
    ).options(shards=2)
    # Arrivals in the future would be replaced by now, which differs between micro-batches.
    batches = [[(name, t, _past(at)) for name, t, at in rows] for rows in history.batches]
    tables = [table_of(history.spec, rows).rename_columns(SCHEMA.names) for rows in batches]
    results = replay([by_device, per_window], tables, schema=SCHEMA, restart=True)

    clock = ProducersOracle(history.idle, history.expected)
    window = WindowOracle(
        size=4 * SECOND,
        hop=4 * SECOND,
        origin=0,
        by=("device",),
        time="ts",
        agg={"n": agg.count()},
        allowed_lateness=LATENESS,
        stragglers="update",
    )
    watermark = 0  # Spark's watermark, in milliseconds; there is none before 1970
    for rows, result in zip([*batches, ()], results, strict=False):
        expected = window.step(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in rows],
            watermark * 1_000 + LATENESS if watermark else None,
        )
        same_rows(to_rows(result.table), expected.emitted, f"micro-batch {result.batch}")
        assert result.counts is not None
        assert asdict(result.counts) == expected.counts
        clock.step(rows)
        watermark = max(watermark, spark_watermark(clock.clock, DELAY))
