"""The laws of a core with two inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import decode, encode
from streamops.kernel.columns import concat, key_codes, one, take
from streamops.kernel.contract import Counts, State, Step
from streamops.kernel.groups import Groups
from streamops.kernel.time import MAX_INSTANT
from streamops.testing.laws.cases import Row, cut, rows_of, same_rows, same_steps, same_tables
from streamops.testing.laws.pair_cases import (
    Both,
    PairCase,
    bad_rows,
    folded_pair,
    interleaved,
    pair_times,
    pair_watermarks,
    play_pair,
    sides_of,
    whole,
)
from streamops.testing.values import comparable

__all__ = ["PAIR", "keep_pair"]


def stream_equals_batch(case: PairCase) -> None:
    """While no row is late, the folded stream is the batch result, however the inputs were cut
    and met: also where all of one came before the other.
    """
    rng = np.random.default_rng(case.seed)
    left, right = whole(case)
    no_left, no_right = left.slice(0, 0), right.slice(0, 0)
    batch = _run(case, (left, right))
    for batches in (
        case.batches,
        *(interleaved((left, right), rng) for _ in range(2)),
        [(left, no_right), (no_left, right)],
        [(no_left, right), (left, no_right)],
    ):
        steps = play_pair(case, batches, _ahead(case, batches))
        assert not any(s.counts.stragglers + s.counts.too_late for s in steps), "a row was late"
        same_rows(folded_pair(case, steps), batch, "stream and batch")


def stream_equals_batch_over_accepted_rows(case: PairCase) -> None:
    """The folded stream is the batch result over the rows accepted, however the inputs met."""
    rng = np.random.default_rng(case.seed)
    rows = whole(case)
    for pieces in (None, *(interleaved(rows, rng) for _ in range(2))):
        batches = case.batches if pieces is None else pieces
        marks = pair_watermarks(case.spec, batches)
        steps = play_pair(case, pieces)
        judged = zip(batches, [None, *marks[:-1]], strict=True) if batches else ()
        accepted = case.accepted([(*batch, mark) for batch, mark in judged])
        theirs = _results(case, accepted)
        same_rows(folded_pair(case, steps), theirs, "stream and batch over accepted rows")


def order_within_a_batch_is_irrelevant(case: PairCase) -> None:
    """Shuffled micro-batches give the same steps."""
    rng = np.random.default_rng(case.seed)
    shuffled = [
        (take(left, rng.permutation(len(left))), take(right, rng.permutation(len(right))))
        for left, right in case.batches
    ]
    same_steps(play_pair(case), play_pair(case, shuffled), "in another order")


def packing_in_pieces_changes_nothing(case: PairCase) -> None:
    """Rows may be packed by any number of tasks before they meet."""
    rng = np.random.default_rng(case.seed)
    pieces = play_pair(case, pack=lambda rows: cut(rows, rng))
    same_steps(play_pair(case), pieces, "packed in pieces")


def a_restart_changes_nothing(case: PairCase) -> None:
    """State may be written as bytes and read again between any two steps."""

    def restarted(state: State) -> State:
        known = case.core.STATE, case.spec.identity, 3
        tables = decode(encode(*known, state.tables), *known, where="laws")
        assert {name: t.schema for name, t in tables.items()} == dict(case.core.layout(case.spec))
        return State(state.watermark, tables)

    same_steps(play_pair(case), play_pair(case, between=restarted), "with restarts")


def a_state_is_a_value(case: PairCase) -> None:
    """The same step from the same state gives the same, though steps came in between."""
    core, spec = case.core, case.spec
    left, right = whole(case)

    def twice(state: State) -> State:
        before = [comparable(rows_of(table)) for table in state.tables.values()]
        core.step(spec, state, core.pack(spec, "left", left), core.pack(spec, "right", right), None)
        core.finish(spec, state)
        assert [comparable(rows_of(table)) for table in state.tables.values()] == before
        return state

    same_steps(play_pair(case), play_pair(case, between=twice), "after other steps")


def sharding_changes_nothing(case: PairCase) -> None:
    """Keys may be spread over any number of shards, by any function that both sides share."""
    rng = np.random.default_rng(case.seed)
    left, right = whole(case)
    shards = int(rng.integers(1, 5))
    shard_of = np.split(_spread(case, (left, right), shards, rng), [len(left)])
    marks = pair_watermarks(case.spec, case.batches)
    runs = []
    for shard in range(shards):
        batches, places = [], [0, 0]
        for batch in case.batches:
            mine = []
            for at, rows in enumerate(batch):
                of = shard_of[at][places[at] : places[at] + len(rows)]
                mine.append(rows.filter(pa.array(of == shard)))
                places[at] += len(rows)
            batches.append((mine[0], mine[1]))
        runs.append(play_pair(case, batches, marks))
    together = [_together(steps) for steps in zip(*runs, strict=True)]
    same_steps(play_pair(case), together, f"over {shards} shards")


def equals_the_oracle(case: PairCase) -> None:
    """Step by step, the rows, the late rows and the counts that the oracle gives; and that the
    state is within its bound.
    """
    oracle, marks = case.oracle(), pair_watermarks(case.spec, case.batches)
    steps = play_pair(case)
    for number, (step, batch, mark) in enumerate(zip(steps, case.batches, marks, strict=True)):
        expected = oracle.step(rows_of(batch[0]), rows_of(batch[1]), mark)
        where = f"step {number}"
        same_rows(rows_of(step.emitted), expected.emitted, f"{where}: emitted, and the oracle")
        same_rows(rows_of(step.late), expected.late, f"{where}: late, and the oracle")
        counts = asdict(step.counts)
        assert counts == dict(expected.counts), f"{where}: {counts} != {expected.counts}"
        bound = oracle.bound()
        assert step.state.rows <= bound, f"{where}: {step.state.rows} entries, bound {bound}"
    state = steps[-1].state if steps else case.core.empty(case.spec)
    end = case.core.finish(case.spec, state)
    same_rows(rows_of(end), oracle.finish(), "at the end, and the oracle")


def counts_are_conserved(case: PairCase) -> None:
    """Every row is counted and judged once, and everything published is counted."""
    timed = any(side.time is not None for side in sides_of(case.spec))
    for step, batch in zip(play_pair(case), case.batches, strict=True):
        counts = step.counts
        assert counts.rows == len(batch[0]) + len(batch[1])
        bad = bad_rows(case.spec, batch)
        assert counts.rejected >= bad, f"{counts.rejected} rejected, {bad} without time"
        judged = counts.rejected + counts.on_time + counts.stragglers + counts.too_late
        assert judged == counts.rows or not timed, f"judged {judged}: {counts}"
        changes = [row.get("_change_type") for row in rows_of(step.emitted)]
        said = len(changes) - changes.count("update_preimage") - changes.count("delete")
        assert counts.results + counts.corrections == said, f"{counts}: {changes}"


def nothing_happens_before_the_deadline(case: PairCase) -> None:
    """Woken before ``next_deadline`` without rows, a core does nothing; at it, something.

    Where no side has a time nobody is woken, and there is no deadline.
    """
    core, spec = case.core, case.spec
    timed = any(side.time is not None for side in sides_of(spec))
    no_left = core.pack(spec, "left", spec.left.input.empty_table())
    no_right = core.pack(spec, "right", spec.right.input.empty_table())

    def awake(state: State) -> State:
        deadline = core.next_deadline(spec, state)
        assert timed or deadline is None, f"nobody is woken: {deadline}"
        before: int | None = MAX_INSTANT if timed else None
        if deadline is not None:
            assert state.watermark is None or deadline > state.watermark, f"overdue: {deadline}"
            step = core.step(spec, state, no_left, no_right, deadline)
            assert len(step.emitted) or step.state.rows < state.rows, f"no reason for {deadline}"
            before = deadline - 1
        early = core.step(spec, state, no_left, no_right, before)
        assert not len(early.emitted) + len(early.late), f"before {deadline}: {early}"
        assert early.counts == Counts()
        same_tables(state, early.state, "before the deadline")
        return state

    play_pair(case, between=awake)


def what_is_taken_back_leaves_nothing(case: PairCase) -> None:
    """Change streams: once all that came is taken back, output and state are empty."""
    if not case.undo:
        return
    batches = [*case.batches, *case.undo]
    steps = play_pair(case, batches, [None] * len(batches))
    left_over = folded_pair(case, steps)
    assert not left_over, f"published, and not taken back: {left_over}"
    kept = {name: rows_of(table) for name, table in steps[-1].state.tables.items()}
    assert not steps[-1].state.rows, f"still in state: {kept}"


PAIR: tuple[Callable[[PairCase], None], ...] = (
    stream_equals_batch,
    stream_equals_batch_over_accepted_rows,
    order_within_a_batch_is_irrelevant,
    packing_in_pieces_changes_nothing,
    a_restart_changes_nothing,
    a_state_is_a_value,
    sharding_changes_nothing,
    equals_the_oracle,
    counts_are_conserved,
    nothing_happens_before_the_deadline,
    what_is_taken_back_leaves_nothing,
)
"""Every law of a core with two inputs."""


def keep_pair(case: PairCase, laws: Sequence[Callable[[PairCase], None]] = PAIR) -> None:
    """Fail where the case breaks one of the laws, and say which.

    One history for all of them: it is drawn, and played as it stands, only once.
    """
    for law in laws:
        try:
            law(case)
        except Exception as error:
            error.add_note(f"The law that is broken: {law.__name__}.")
            raise


def _run(case: PairCase, rows: Both) -> list[Row]:
    left, right = (
        case.core.pack(case.spec, "left", rows[0]),
        case.core.pack(case.spec, "right", rows[1]),
    )
    return _results(case, rows_of(case.core.run(case.spec, left, right)))


def _results(case: PairCase, rows: Sequence[Row]) -> list[Row]:
    """Batch results as a folded stream has them."""
    added = (*case.aside, "_change_type", "late")
    results = (row for row in rows if row.get("late") is None)
    return [{name: v for name, v in row.items() if name not in added} for row in results]


def _ahead(case: PairCase, batches: Sequence[Both]) -> list[int | None]:
    """Watermarks below everything that is still to come, so that nothing is late."""
    ahead: list[int | None] = []
    least: int | None = None
    for batch in reversed(batches):
        ahead.insert(0, None if least is None else least - 1)
        times = pair_times(case.spec, batch)
        least = min([*times, *([] if least is None else [least])], default=None)
    return ahead


def _spread(
    case: PairCase, rows: Both, shards: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The shard of each row, the left ones before the right ones: the same where keys are equal."""
    pairs = zip(case.spec.left.by, case.spec.right.by, strict=True)
    columns = [
        pa.concat_arrays([one(rows[0].column(left)), one(rows[1].column(right))])
        for left, right in pairs
    ]
    keys = Groups.of(key_codes(columns, len(rows[0]) + len(rows[1])))[0]
    return rng.integers(0, shards, keys.count)[keys.ids]


def _together(steps: Sequence[Step]) -> Step:
    """What the steps of all shards say as one."""
    names = steps[0].state.tables
    tables = {name: concat([step.state.tables[name] for step in steps]) for name in names}
    return Step(
        State(steps[0].state.watermark, tables),
        concat([step.emitted for step in steps]),
        concat([step.late for step in steps]),
        sum((step.counts for step in steps), Counts()),
    )
