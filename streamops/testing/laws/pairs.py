"""The laws of a core with two inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamops.testing.laws.cases import play, whole
from streamops.testing.laws.comparing import Row, rows_of, same_rows
from streamops.testing.laws.cores import (
    a_restart_changes_nothing,
    a_state_is_a_value,
    equals_the_oracle,
    keep,
    nothing_happens_before_the_deadline,
    order_within_a_batch_is_irrelevant,
    packing_in_pieces_changes_nothing,
    published,
    sharding_changes_nothing,
    state_stays_within_its_bound,
)
from streamops.testing.laws.pair_cases import (
    Both,
    PairCase,
    bad_rows,
    folded_pair,
    interleaved,
    pair_times,
    pair_watermarks,
)

__all__ = ["PAIR", "keep_pair"]


def stream_equals_batch(case: PairCase) -> None:
    """While no row is late, the folded stream is the batch result, however the inputs were cut
    and met: also where all of one came before the other.
    """
    rng = np.random.default_rng(case.seed)
    (left, right), (no_left, no_right) = case.everything(), case.nothing()
    batch = _run(case, (left, right))
    for batches in (
        case.batches,
        *(interleaved((left, right), rng) for _ in range(2)),
        [(left, no_right), (no_left, right)],
        [(no_left, right), (left, no_right)],
    ):
        steps = play(case, batches, _ahead(case, batches))
        assert not any(s.metrics.stragglers + s.metrics.too_late for s in steps), "a row was late"
        same_rows(folded_pair(case, steps), batch, "stream and batch")


def stream_equals_batch_over_accepted_rows(case: PairCase) -> None:
    """The folded stream is the batch result over the rows accepted, however the inputs met."""
    rng = np.random.default_rng(case.seed)
    rows = case.everything()
    for pieces in (None, *(interleaved(rows, rng) for _ in range(2))):
        batches = case.batches if pieces is None else pieces
        marks = pair_watermarks(case.spec, batches)
        steps = play(case, pieces)
        judged = zip(batches, [None, *marks[:-1]], strict=True) if batches else ()
        accepted = case.accepted([(*batch, mark) for batch, mark in judged])
        theirs = _results(case, accepted)
        same_rows(folded_pair(case, steps), theirs, "stream and batch over accepted rows")


def counts_are_conserved(case: PairCase) -> None:
    """Every row is counted and judged once, and everything published is counted."""
    for step, batch in zip(play(case), case.batches, strict=True):
        counts = step.metrics
        assert counts.rows == len(batch[0]) + len(batch[1])
        bad = bad_rows(case.spec, batch)
        assert counts.rejected >= bad, f"{counts.rejected} rejected, {bad} without time"
        judged = counts.rejected + counts.on_time + counts.stragglers + counts.too_late
        assert judged == counts.rows or not case.timed, f"judged {judged}: {counts}"
        said = published(step)
        assert counts.results + counts.corrections == said, f"{counts}: {said}"


def what_is_taken_back_leaves_nothing(case: PairCase) -> None:
    """Change streams: once all that came is taken back, output and state are empty."""
    if not case.undo:
        return
    batches = [*case.batches, *case.undo]
    steps = play(case, batches, [None] * len(batches))
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
    state_stays_within_its_bound,
    counts_are_conserved,
    nothing_happens_before_the_deadline,
    what_is_taken_back_leaves_nothing,
)
"""Every law of a core with two inputs."""


def keep_pair(case: PairCase, laws: Sequence[Callable[[PairCase], None]] = PAIR) -> None:
    """Fail where the case breaks one of the laws, and say which: as :func:`keep`."""
    keep(case, laws)


def _run(case: PairCase, rows: Both) -> list[Row]:
    return _results(case, rows_of(case.core.run(case.spec, case.packed(rows, whole))))


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
