"""The laws of a core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import decode, encode
from streamops.kernel.columns import concat
from streamops.kernel.core import Metrics, State, Step
from streamops.kernel.time import MAX_INSTANT
from streamops.testing.laws.cases import (
    Case,
    History,
    cut,
    folded,
    play,
    times_of,
    watermarks,
    whole,
)
from streamops.testing.laws.comparing import Row, rows_of, same_rows, same_steps, same_tables
from streamops.testing.values import comparable

__all__ = [
    "CORE",
    "a_restart_changes_nothing",
    "a_state_is_a_value",
    "equals_the_oracle",
    "keep",
    "nothing_happens_before_the_deadline",
    "order_within_a_batch_is_irrelevant",
    "packing_in_pieces_changes_nothing",
    "published",
    "sharding_changes_nothing",
    "state_stays_within_its_bound",
]


def stream_equals_batch(case: Case) -> None:
    """While no row is late, the folded stream is the batch result, however it was cut."""
    rng = np.random.default_rng(case.seed)
    everything = concat(case.batches)
    batch = _results(rows_of(case.core.run(case.spec, case.packed(everything, whole))))
    for batches in (case.batches, *(cut(everything, rng) for _ in range(2))):
        ahead: list[int | None] = []
        for batch_ in reversed([*batches[1:], everything.slice(0, 0)]):
            # Below everything that is still to come, so that nothing is late.
            coming = [t - 1 for t in times_of(case.spec, batch_)]
            coming += [t for t in ahead[:1] if t is not None]
            ahead.insert(0, min(coming, default=None))
        steps = play(case, batches, ahead)
        assert not any(s.metrics.stragglers + s.metrics.too_late for s in steps), "a row was late"
        same_rows(folded(case, steps), batch, "stream and batch")


def stream_equals_batch_over_accepted_rows(case: Case) -> None:
    """The folded stream is the batch result over the rows accepted, however it was cut."""
    rng = np.random.default_rng(case.seed)
    for pieces in (None, *(cut(concat(case.batches), rng) for _ in range(2))):
        batches = case.batches if pieces is None else pieces
        marks = watermarks(case.spec, batches)
        steps = play(case, pieces)
        judged = list(zip(batches, [None, *marks[:-1]], strict=True))
        accepted = _results(case.accepted(judged))
        same_rows(folded(case, steps), accepted, "stream and batch over accepted rows")


def published_rows_fold(case: Case) -> None:
    """A result is published once, and revised one by one; a preimage is what was published.

    The first revision is 0, or 1 where only stragglers made the result; more only where it
    replaces others, which were taken back.
    """
    steps = play(case)
    folded(case, steps)
    first: dict[object, int | None] = {}
    taken_back = False
    for row in (row for step in steps for row in rows_of(step.output)):
        taken_back |= row.get("_change_type") == "delete"
        revision = first.setdefault(
            comparable([row[n] for n in case.identity]), row.get("revision")
        )
        assert revision in {None, 0, 1} or taken_back, first


def order_within_a_batch_is_irrelevant(case: History) -> None:
    """Shuffled micro-batches give the same steps."""
    rng = np.random.default_rng(case.seed)
    shuffled = [case.shuffled(batch, rng) for batch in case.batches]
    same_steps(play(case), play(case, shuffled), "in another order")


def packing_in_pieces_changes_nothing(case: History) -> None:
    """Rows may be packed by any number of tasks before they meet."""
    rng = np.random.default_rng(case.seed)
    pieces = play(case, pack=lambda batch: cut(batch, rng))
    same_steps(play(case), pieces, "packed in pieces")


def a_restart_changes_nothing(case: History) -> None:
    """State may be written as bytes and read again between any two steps."""
    schemas = case.core.layout(case.spec)

    def restarted(state: State) -> State:
        known = case.core.STATE, case.spec.identity, 3
        tables = decode(encode(*known, state.tables), *known, where="laws")
        assert {name: table.schema for name, table in tables.items()} == dict(schemas)
        return State(state.watermark, tables)

    same_steps(play(case), play(case, between=restarted), "with restarts")


def a_state_is_a_value(case: History) -> None:
    """The same step from the same state gives the same, though steps came in between."""

    def twice(state: State) -> State:
        before = [comparable(rows_of(table)) for table in state.tables.values()]
        case.core.step(case.spec, state, case.packed(case.everything(), whole), None)
        case.core.finish(case.spec, state)
        assert [comparable(rows_of(table)) for table in state.tables.values()] == before
        return state

    same_steps(play(case), play(case, between=twice), "after other steps")


def sharding_changes_nothing(case: History) -> None:
    """Keys may be spread over any number of shards, by any function."""
    rng = np.random.default_rng(case.seed)
    shards, marks = int(rng.integers(1, 5)), case.watermarks(case.batches)
    runs = [play(case, batches, marks) for batches in case.spread(shards, rng)]
    together = [
        Step(
            State(steps[0].state.watermark, _below(*(step.state.tables for step in steps))),
            concat([step.output for step in steps]),
            concat([step.late for step in steps]),
            sum((step.metrics for step in steps), Metrics()),
        )
        for steps in zip(*runs, strict=True)
    ]
    same_steps(play(case), together, f"over {shards} shards")


def equals_the_oracle(case: History) -> None:
    """Step by step, the rows, the late rows and the counts that the oracle gives."""
    oracle, marks = case.oracle(), case.watermarks(case.batches)
    steps = play(case)
    for number, (step, batch, mark) in enumerate(zip(steps, case.batches, marks, strict=True)):
        expected = oracle.step(*case.rows(batch), mark)
        same_rows(rows_of(step.output), expected.emitted, f"step {number}: emitted, and the oracle")
        same_rows(rows_of(step.late), expected.late, f"step {number}: late, and the oracle")
        counts = asdict(step.metrics)
        assert counts == dict(expected.counts), f"step {number}: {counts} != {expected.counts}"
    end = case.core.finish(case.spec, steps[-1].state)
    same_rows(rows_of(end), oracle.finish(), "at the end, and the oracle")


def state_stays_within_its_bound(case: History) -> None:
    """No step leaves more entries than the operator's documentation states."""
    oracle, marks = case.oracle(), case.watermarks(case.batches)
    for step, batch, mark in zip(play(case), case.batches, marks, strict=True):
        oracle.step(*case.rows(batch), mark)
        assert step.state.rows <= oracle.bound(), f"{step.state.rows} > {oracle.bound()}"


def counts_are_conserved(case: Case) -> None:
    """Every row is counted, and everything published is."""
    for step, batch in zip(play(case), case.batches, strict=True):
        assert step.metrics.rows == len(batch)
        bad = len(batch) - len(times_of(case.spec, batch)) if case.timed else 0
        assert step.metrics.rejected == bad, f"{step.metrics.rejected} rejected, {bad} without time"
        said = published(step)
        assert step.metrics.results + step.metrics.corrections == said, f"{step.metrics}: {said}"


def nothing_happens_before_the_deadline(case: History) -> None:
    """Woken before ``next_deadline`` without rows, a core does nothing; at it, something.

    Where there is no watermark nobody is woken, and there is no deadline.
    """
    core, spec = case.core, case.spec
    nothing = case.packed(case.nothing(), whole)

    def awake(state: State) -> State:
        deadline = core.next_deadline(spec, state)
        assert case.timed or deadline is None, f"nobody will wake it at {deadline}"
        before: int | None = MAX_INSTANT - 1 if case.timed else None
        if deadline is not None:
            assert state.watermark is None or deadline > state.watermark, f"overdue: {deadline}"
            step = core.step(spec, state, nothing, deadline)
            assert len(step.output) or step.state.rows < state.rows, f"no reason for {deadline}"
            before = deadline - 1
        early = core.step(spec, state, nothing, before)
        assert not len(early.output) + len(early.late), f"before {deadline}: {early}"
        assert early.metrics == Metrics()
        same_tables(state, early.state, "before the deadline")
        return state

    play(case, between=awake)


def published(step: Step) -> int:
    """Rows of a step that say what is, and not what was."""
    changes = [row.get("_change_type") for row in rows_of(step.output)]
    return len(changes) - changes.count("update_preimage") - changes.count("delete")


CORE: tuple[Callable[[Case], None], ...] = (
    stream_equals_batch,
    stream_equals_batch_over_accepted_rows,
    published_rows_fold,
    order_within_a_batch_is_irrelevant,
    packing_in_pieces_changes_nothing,
    a_restart_changes_nothing,
    a_state_is_a_value,
    sharding_changes_nothing,
    equals_the_oracle,
    state_stays_within_its_bound,
    counts_are_conserved,
    nothing_happens_before_the_deadline,
)
"""Every law of a core."""


def keep(case: Any, laws: Sequence[Callable[[Any], None]] = CORE) -> None:
    """Fail where the case, of a core or of a summary, breaks one of the laws, and say which.

    One case for all of them: it is drawn, and a history is played as it stands, only once.
    """
    for law in laws:
        try:
            law(case)
        except Exception as error:
            error.add_note(f"The law that is broken: {law.__name__}.")
            raise


def _results(rows: Sequence[Row]) -> list[Row]:
    """Batch results as a folded stream has them."""
    added = ("revision", "timing", "_change_type", "late")
    results = (row for row in rows if row.get("late") is None)
    return [{name: v for name, v in row.items() if name not in added} for row in results]


def _below(*states: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: concat([tables[name] for tables in states]) for name in states[0]}
