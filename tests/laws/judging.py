"""Laws of operators that judge every row by its lateness."""

from __future__ import annotations

from dataclasses import asdict

from streamops.testing import laws
from tests.oracles.windows import GridOracle


def every_row_is_judged_once(case: laws.Case) -> None:
    """On time, a straggler or too late."""
    for step, batch in zip(case.steps, case.batches, strict=True):
        counts = step.metrics
        judged = counts.on_time + counts.stragglers + counts.too_late
        assert judged == len(case.times(batch)), asdict(counts)


def every_pair_of_a_row_and_a_window_is_judged_once(case: laws.Case) -> None:
    """As often as there are windows that the row lies in."""
    oracle = case.oracle()
    assert isinstance(oracle, GridOracle)
    for step, batch in zip(case.steps, case.batches, strict=True):
        pairs = sum(len(oracle.windows_of(instant)) for instant in case.times(batch))
        counts = step.metrics
        assert pairs == counts.on_time + counts.stragglers + counts.too_late, asdict(counts)


def every_late_row_that_is_delivered_is_counted_as_late(case: laws.Case) -> None:
    """And the rejected ones with it; no other row is."""
    for step in case.steps:
        counts = step.metrics
        if case.spec.routes:
            late = counts.too_late + (0 if case.spec.corrects else counts.stragglers)
            assert len(step.late) == late + counts.rejected
        else:
            assert len(step.late) == 0
