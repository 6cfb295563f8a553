"""The newest posts of each user: additions to a full timeline, and replacements of removed posts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops.joins.core.timeline import TimelineCore, TimelineParameters, TimelineSpec
from streamops.kernel.core import Metrics, State, Step

ROWS = pa.schema(
    [
        ("user", pa.string()),
        ("post", pa.int64()),
        ("at", pa.float64()),
        ("author", pa.string()),
        ("_change_type", pa.string()),
    ]
)
LATE = pa.struct([("side", pa.string()), ("reason", pa.string())])
PLUS, MINUS, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"
NAN = float("nan")

Change = tuple[Any, ...]


def spec_of(cap: int = 2, *, routed: bool = False, rows: pa.Schema = ROWS) -> TimelineSpec:
    columns = rows.append(pa.field("late", LATE)) if routed else rows
    parameters = TimelineParameters(
        by=(("author", "whom"),),
        user=("user",),
        key=("post",),
        ranked_by="at",
        cap=cap,
        sequence=None,
        remember=None,
        rejected="route" if routed else "drop",
    )
    return TimelineSpec(parameters, ("user",), columns)


def play(spec: TimelineSpec, *batches: Sequence[Change]) -> list[Step]:
    """Rows of (user, post, at, change), or with the author before the change."""
    state, steps = State.empty(TimelineCore().layout(spec)), []
    for rows in batches:
        whole = [(*row[:3], "x", *row[3:]) if len(row) < 5 else row for row in rows]
        table = pa.table(
            [pa.array([row[at] for row in whole], f.type) for at, f in enumerate(spec.output)],
            schema=spec.output,
        )
        steps.append(TimelineCore().step(spec, state, [TimelineCore().pack(spec, table)], None))
        state = steps[-1].state
        TimelineCore().check(spec, state)
        assert state.tables["rows"].schema == TimelineCore().layout(spec)["rows"]
        assert steps[-1].output.schema == steps[-1].late.schema == spec.output
    return steps


def emitted(step: Step) -> list[tuple[Any, ...]]:
    return [(r["user"], r["post"], r["_change_type"]) for r in step.output.to_pylist()]


def test_the_newest_are_emitted_and_all_are_stored() -> None:
    (step,) = play(spec_of(), [("a", 1, 1, PLUS), ("a", 3, 3, PLUS), ("a", 2, 2, PLUS)])
    assert emitted(step) == [("a", 3, PLUS), ("a", 2, PLUS)]
    assert step.state.rows == 3
    assert step.metrics == Metrics(rows=3, results=2)


def test_deletes_precede_inserts() -> None:
    rows = [("a", 1, 1, PLUS), ("a", 2, 2, PLUS)]
    steps = play(spec_of(), rows, [("a", 3, 3, PLUS), ("a", 2, 2, PRE), ("a", 2, 9, POST)])
    assert emitted(steps[1]) == [("a", 1, MINUS), ("a", 2, PRE), ("a", 2, POST), ("a", 3, PLUS)]
    assert steps[1].metrics == Metrics(rows=3, results=1, corrections=1)


def test_users_without_changes_have_no_output() -> None:
    steps = play(spec_of(1), [("a", 1, 1, PLUS), (None, 1, 1, PLUS)], [(None, 2, 2, PLUS)])
    assert emitted(steps[1]) == [(None, 1, MINUS), (None, 2, PLUS)]
    assert steps[1].state.rows == 3


def test_changes_that_cancel_out_emit_nothing() -> None:
    steps = play(spec_of(), [("a", 1, 1, PLUS)], [("a", 2, 2, PLUS), ("a", 2, 2, MINUS)], [])
    assert [emitted(step) for step in steps[1:]] == [[], []]
    assert steps[1].state.rows == 1


def test_a_repeated_row_is_emitted_once_and_stays_while_one_remains() -> None:
    row = ("a", 1, 1)
    steps = play(spec_of(), [(*row, PLUS), (*row, PLUS)], [(*row, MINUS)], [(*row, MINUS)])
    assert [emitted(step) for step in steps] == [[("a", 1, PLUS)], [], [("a", 1, MINUS)]]
    assert [step.state.rows for step in steps] == [1, 1, 0]


@pytest.mark.parametrize(
    ("ranks", "formatted"),
    [
        ([1.0, NAN, 2.0, None], [2, 3]),  # NaN is greater than any number
        ([None, None, None, None], [3, 4]),  # the greatest key
        ([0.0, -0.0, 0.0, -1.0], [2, 3]),  # they are equal
        ([None, -1.0, None, None], [2, 4]),  # what has no time is the oldest
    ],
)
def test_ranks_compare_as_in_spark_and_equal_ones_by_key(
    ranks: list[float | None], formatted: list[int]
) -> None:
    (step,) = play(spec_of(), [("a", n, rank, PLUS) for n, rank in enumerate(ranks, start=1)])
    assert sorted(post for _, post, _ in emitted(step)) == formatted


def test_a_post_with_two_authors_is_in_a_timeline_once() -> None:
    one, two = ("a", 1, 1, "x"), ("a", 1, 1, "y")
    for first, second in ((one, two), (two, one)):
        steps = play(spec_of(), [(*first, PLUS)], [(*second, PLUS)], [(*first, MINUS)])
        assert emitted(steps[0]) == [("a", 1, PLUS)]
        # Which of the two holds in between is not a matter of which came first.
        moved = [PRE, POST]
        assert [word for step in steps[1:] for _, _, word in emitted(step)] == moved
    formatted = [
        play(spec_of(), [(*a, PLUS), (*b, PLUS)])[0].output.column("author").to_pylist()
        for a, b in ((one, two), (two, one))
    ]
    assert len(formatted[0]) == 1
    assert formatted[0] == formatted[1]


def test_a_post_is_in_a_timeline_once_even_if_it_has_an_older_row() -> None:
    rows = [("a", 1, 5, "x", PLUS), ("a", 1, 4, "y", PLUS), ("a", 2, 3, "x", PLUS)]
    (step,) = play(spec_of(), rows)
    assert emitted(step) == [("a", 1, PLUS), ("a", 2, PLUS)]


def test_rows_have_all_columns_except_the_change_type_and_late_rows() -> None:
    assert spec_of().names == spec_of(routed=True).names == ["at", "author", "post", "user"]


def test_rejected_changes_pass_through_unchanged() -> None:
    spec = spec_of(routed=True)
    reason = {"side": "left", "reason": "bad_change"}
    rows = [("a", 1, 1, "x", PLUS, None), (None, None, None, None, None, reason)]
    (step,) = play(spec, rows)
    assert emitted(step) == [("a", 1, PLUS), (None, None, None)]
    assert step.output.column("late").to_pylist() == [None, reason]
    assert step.state.rows == 1


def test_a_batch_is_one_step_and_nothing_is_pending() -> None:
    spec = spec_of(1)
    table = pa.table([["a", "a"], [1, 2], [1.0, 2.0], ["x", "x"], [PLUS, PLUS]], schema=spec.output)
    assert TimelineCore().run(spec, [TimelineCore().pack(spec, table)]).rows.column(
        "post"
    ).to_pylist() == [2]
    state = State.empty(TimelineCore().layout(spec))
    assert len(TimelineCore().finish(spec, state)) == 0
    assert TimelineCore().next_deadline(spec, state) is None


def test_an_invalid_state_is_detected() -> None:
    spec = spec_of()
    (step,) = play(spec, [("a", 1, 1, PLUS)])
    rows = step.state.tables["rows"]
    for wrong in (
        pa.concat_tables([rows, rows]),
        rows.set_column(4, rows.schema.field(4), pa.array([0])),
    ):
        with pytest.raises(AssertionError):
            TimelineCore().check(spec, State(None, {"rows": wrong}))
