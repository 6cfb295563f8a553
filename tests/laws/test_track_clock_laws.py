"""The laws of track_clock: order, restarts, shards, and an oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from streamops.time.core.track_clock import METHOD, OFFSET, TrackClockCore, TrackClockSpec
from tests.laws import playing
from tests.laws.strategies import NUMBERS, TEXTS, YEAR_1, YEAR_9999_ENDS
from tests.oracles.tracking import CELLS, TrackOracle
from tests.oracles.windows import Row

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("word", pa.string()),
        ("sent", INSTANT),
        ("id", pa.int64()),
        ("received", INSTANT),
        ("number", pa.float64()),
    ]
)
ODD = [None, YEAR_1, YEAR_1 - 1, YEAR_9999_ENDS, YEAR_9999_ENDS + 1]


@dataclass(frozen=True)
class Case:
    """A history of micro-batches, in the order in which rows were received."""

    spec: TrackClockSpec
    batches: tuple[pa.Table, ...]
    oracle: Callable[[], TrackOracle]
    seed: int


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Few devices, with clocks that drift and are set, and some slow messages."""
    horizon = draw(st.sampled_from([160, 100, 17, 1]))
    step = draw(st.sampled_from([50, 5, 0]))
    largest = draw(st.sampled_from([None, None, 400]))
    by = draw(st.sampled_from([("word",), ("number", "word"), ()]))
    dice = random.Random(draw(st.integers(0, 2**32)))
    odd = draw(st.sampled_from([0, 0, 1]))
    now, number, batches = draw(st.sampled_from([10**15, 0, -(10**9)])), 0, []
    true = dict.fromkeys(TEXTS, 0)
    for _ in range(draw(st.sampled_from([8, 4, 1]))):
        rows = []
        for _ in range(dice.choice([0, 3, 8, 12])):
            now += dice.choice([0, 0, 0, 1, 1, 3, 3, 10, 10, 40, 200])
            word = dice.choice(TEXTS)
            true[word] += dice.choice([0] * 20 + [1, -1, 100, -300])
            delay = dice.choice([0, 1, 2, 4, 5, 6, 3, 2, 49, 51, 120])
            received: int | None = now
            sent: int | None = now - delay - true[word]
            if dice.randrange(15) < odd:
                received, sent = dice.choice([(None, sent), (now, dice.choice(ODD)), (None, None)])
            rows.append(
                {"word": word, "sent": sent, "id": number, "received": received}
                | {"number": dice.choice(NUMBERS)}
            )
            number += 1
        batches.append(table_of(rows))
    spec = TrackClockSpec(
        time="event",
        sent="sent",
        received="received",
        tolerance=0,
        longest_wait=None,
        largest_offset=largest,
        otherwise="received",
        by=by,
        horizon=horizon,
        step=step,
        input=SCHEMA,
    )
    oracle = TrackOracle(by, horizon, step, largest)
    return Case(spec, tuple(batches), oracle.fresh, draw(st.integers(0, 2**16)))


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Return a table of rows with instants in microseconds."""
    columns = [
        pa.array([row[f.name] for row in rows], pa.int64() if f.type == INSTANT else f.type)
        for f in SCHEMA
    ]
    return pa.table([c.cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


play = partial(playing.annotate, TrackClockCore())


def by_id(tables: Sequence[pa.Table]) -> dict[int, Any]:
    """Return the output rows by id; each row has been emitted once."""
    rows = [row for table in tables for row in to_rows(table)]
    found = {row["id"]: comparable(row) for row in rows}
    assert len(found) == len(rows)
    return found


def cut(rows: pa.Table, dice: random.Random) -> list[pa.Table]:
    """Divide the rows in the same order into random micro-batches."""
    borders = sorted(dice.randrange(len(rows) + 1) for _ in range(dice.randrange(6)))
    pairs = zip([0, *borders], [*borders, len(rows)], strict=True)
    return [rows.slice(begin, end - begin) for begin, end in pairs]


@given(case=histories())
def test_the_output_equals_the_oracle(case: Case) -> None:
    oracle = case.oracle()
    for batch, out in zip(case.batches, play(case.spec, case.batches)[0], strict=True):
        rows, got = to_rows(batch), to_rows(out)
        estimates = [(row.pop(OFFSET), row.pop(METHOD)) for row in got]
        assert comparable(got) == comparable(rows)  # the same rows, in the same order
        assert estimates == oracle.estimate(rows)


@given(case=histories())
def test_the_output_of_rows_out_of_order_equals_the_oracle(case: Case) -> None:
    dice, oracle = random.Random(case.seed), case.oracle()
    order = sorted(range(len(whole := whole_of(case))), key=lambda i: i + dice.choice([0, 0, 5]))
    # At most a horizon late: earlier devices may have been evicted.
    received = [row["received"] or 0 for row in to_rows(whole)]
    newest, chosen = None, []
    for i in order:
        if newest is None or received[i] >= newest - case.spec.horizon:
            chosen.append(i)
            newest = max(received[i], newest if newest is not None else received[i])
    batches = cut(whole.take(pa.array(chosen, pa.int64())), dice)
    for batch, out in zip(batches, play(case.spec, batches)[0], strict=True):
        estimates = [(row[OFFSET], row[METHOD]) for row in to_rows(out)]
        assert estimates == oracle.estimate(to_rows(batch))


def whole_of(case: Case) -> pa.Table:
    return pa.concat_tables([SCHEMA.empty_table(), *case.batches]).combine_chunks()


@given(case=histories())
def test_the_stream_equals_the_batch_for_every_division(case: Case) -> None:
    dice, whole = random.Random(case.seed), whole_of(case)
    batch = by_id([TrackClockCore().run(case.spec, [TrackClockCore().pack(case.spec, whole)]).rows])
    for batches in (case.batches, cut(whole, dice), cut(whole, dice)):
        assert by_id(play(case.spec, batches)[0]) == batch


@given(case=histories())
def test_the_order_within_a_micro_batch_does_not_matter(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    shuffled = [batch.take(pa.array(rng.permutation(len(batch)))) for batch in case.batches]
    one, other = play(case.spec, case.batches), play(case.spec, shuffled)
    assert by_id(one[0]) == by_id(other[0])
    for left, right in zip(one[1], other[1], strict=True):
        assert left.watermark == right.watermark
        for name in left.tables:
            pair = (sorted(map(comparable, to_rows(s.tables[name]))) for s in (left, right))
            assert next(pair) == next(pair)


@given(case=histories())
def test_a_restart_changes_nothing(case: Case) -> None:
    restarted = playing.restart(TrackClockCore(), case.spec)
    assert by_id(play(case.spec, case.batches)[0]) == by_id(
        play(case.spec, case.batches, restarted)[0]
    )


@given(case=histories())
def test_devices_are_independent_of_each_other(case: Case) -> None:
    if case.spec.by != ("word",):
        return
    merged: dict[int, Any] = {}
    for word in dict.fromkeys(TEXTS):
        own = [
            batch.filter(pa.array([row["word"] == word for row in to_rows(batch)], pa.bool_()))
            for batch in case.batches
        ]
        merged |= by_id(play(case.spec, own)[0])
    assert merged == by_id(play(case.spec, case.batches)[0])


@given(case=histories())
def test_the_state_has_the_devices_of_two_horizons(case: Case) -> None:
    oracle, seen = case.oracle(), []
    for batch, state in zip(case.batches, play(case.spec, case.batches)[1], strict=True):
        oracle.estimate(to_rows(batch))
        seen += [at for samples in oracle.samples.values() for at, _ in samples]
        cell = -(-case.spec.horizon // CELLS)
        young = [
            key
            for key, samples in oracle.samples.items()
            if max(seen) // cell - max(at for at, _ in samples) // cell <= 2 * CELLS
        ]
        assert len(state.tables["devices"]) == len(young)


@given(case=histories())
def test_an_offset_is_never_greater_than_that_of_its_own_message(case: Case) -> None:
    for out in play(case.spec, case.batches)[0]:
        for row in to_rows(out):
            assert row[OFFSET] is None or row[OFFSET] <= row["received"] - row["sent"]
