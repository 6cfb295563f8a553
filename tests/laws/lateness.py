"""Laws of operators that count every row by its lateness."""

from __future__ import annotations

from dataclasses import asdict

from streamops.testing import laws
from streamops.testing.laws.cases import same_tables
from tests.oracles.windows import GridOracle


def every_row_is_counted_once(case: laws.Case) -> None:
    """As on time, a straggler or too late."""
    for step, batch in zip(case.steps, case.batches, strict=True):
        counts = step.metrics
        counted = counts.on_time + counts.stragglers + counts.too_late
        assert counted == len(case.times(batch)), asdict(counts)


def every_pair_of_a_row_and_a_window_is_counted_once(case: laws.Case) -> None:
    """A row is counted once per window that contains it."""
    oracle = case.oracle()
    assert isinstance(oracle, GridOracle)
    for step, batch in zip(case.steps, case.batches, strict=True):
        pairs = sum(len(oracle.windows_of(instant)) for instant in case.times(batch))
        counts = step.metrics
        assert pairs == counts.on_time + counts.stragglers + counts.too_late, asdict(counts)


def every_late_row_in_the_side_output_is_counted(case: laws.Case) -> None:
    """So is every rejected row, and no other."""
    for step in case.steps:
        counts = step.metrics
        if case.spec.routes:
            late = counts.too_late + (0 if case.spec.corrects else counts.stragglers)
            assert len(step.late) == late + counts.rejected
        else:
            assert len(step.late) == 0


def every_row_that_is_not_accepted_is_routed(case: laws.Case) -> None:
    """Where nothing is corrected: every late or rejected row, and no other, if late rows are routed."""
    for step in case.steps:
        late = step.metrics.too_late + step.metrics.rejected
        assert len(step.late) == (late if case.spec.routes else 0)


def nothing_happens_before_the_deadline(case: laws.Case) -> None:
    """A step without rows changes nothing before ``next_deadline``, which is not overdue.

    Where it is not exact: a pane that enters a horizon, or a row that is known, need not change anything.
    """
    core, spec, no_rows = case.core, case.spec, case.pack(case.empty_batch())
    for step in case.steps:
        deadline = core.next_deadline(spec, step.state)
        if deadline is None:
            assert not step.state.rows
            continue
        assert step.state.watermark is None or deadline > step.state.watermark
        early = core.step(spec, step.state, no_rows, deadline - 1)
        assert not len(early.output) + len(early.late)
        same_tables(step.state, early.state, "before the deadline")
