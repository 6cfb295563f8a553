"""A join of two tables with sequences: older changes and duplicates have no effect."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.core import Metrics
from tests.joins.core.test_tables import (
    MINUS,
    NULL,
    PLUS,
    POST,
    PRE,
    emitted,
    play,
    reasons,
    spec_of,
)

LEFT = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("s", pa.int64()), ("_change_type", pa.string())]
)
RIGHT = pa.schema(
    [("rid", pa.int64()), ("k", pa.string()), ("s", pa.int64()), ("_change_type", pa.string())]
)
NONE: list[Any] = []


def versions(**arguments: Any) -> Any:
    given: dict[str, Any] = {"key": ("id", "rid"), "sequence": "s", "remember": 10, "how": "left"}
    return spec_of(LEFT, RIGHT, **(given | arguments))


def test_duplicates_are_absorbed_and_counted() -> None:
    steps = play(
        versions(),
        ([(1, "a", 5, PLUS), (1, "a", 5, PLUS)], NONE),
        ([(1, "a", 5, PLUS), (1, "a", 5, PLUS)], NONE),
    )
    assert [emitted(step) for step in steps] == [[(1, "a", 5, NULL, NULL, PLUS)], []]
    assert steps[0].metrics == Metrics(rows=2, on_time=2, results=1)
    assert steps[1].metrics == Metrics(rows=2, too_late=2)


def test_a_sequence_may_be_a_struct() -> None:
    position = pa.struct([("version", pa.int64()), ("position", pa.int64())])
    left, right = (schema.set(2, pa.field("s", position)) for schema in (LEFT, RIGHT))
    given: Any = {"key": ("id", "rid"), "sequence": "s", "remember": 10, "how": "left"}
    old, new = ({"version": 9, "position": at} for at in (0, 1))
    late = {"version": 8, "position": 7}
    # A version that deletes a key and inserts it again, as Delta's feed has them.
    steps = play(
        spec_of(left, right, **given),
        ([(1, "a", new, PLUS), (1, "a", old, MINUS)], NONE),
        ([(1, "a", late, PLUS), (1, "a", old, MINUS)], NONE),
    )
    assert [emitted(step) for step in steps] == [[(1, "a", new, NULL, NULL, PLUS)], []]
    assert steps[1].metrics == Metrics(rows=2, too_late=2)


def test_an_older_change_has_no_effect() -> None:
    steps = play(
        versions(), ([(1, "a", 5, POST)], NONE), ([(1, "a", 4, PLUS), (1, "a", 5, PRE)], NONE)
    )
    assert [len(step.output) for step in steps] == [1, 0]
    assert steps[1].metrics == Metrics(rows=2, too_late=2)


@pytest.mark.parametrize(("remember", "back"), [(10, 0), (0, 1)])
def test_a_late_insert_does_not_restore_a_row_whose_delete_is_stored(
    remember: int, back: int
) -> None:
    steps = play(
        versions(remember=remember),
        ([(1, "a", 5, PLUS)], NONE),
        ([(1, "a", 6, MINUS)], NONE),
        ([(1, "a", 5, PLUS)], NONE),
    )
    assert [step.state.rows for step in steps] == [1, remember // 10, 1]
    assert len(steps[2].output) == back


def test_a_delete_may_arrive_before_its_insert() -> None:
    steps = play(versions(), ([(1, "a", 6, MINUS)], NONE), ([(1, "a", 5, PLUS)], NONE))
    assert [(len(step.output), step.metrics.rejected) for step in steps] == [(0, 0), (0, 0)]


def test_a_row_has_the_join_key_of_its_last_change() -> None:
    """Each value of what is joined on is independent, as it is in a shard of its own."""
    moves = [
        *[(1, "a", 5, PLUS), (1, "a", 6, PRE), (1, "b", 6, POST)],
        *[(1, "b", 7, PRE), (1, "a", 7, POST)],
    ]
    for order in (moves, moves[::-1], [moves[at] for at in (3, 0, 4, 2, 1)]):
        steps = play(versions(), *(([move], NONE) for move in order))
        weights = {row["c.1"]: row["weight"] for row in steps[-1].state.tables["left"].to_pylist()}
        assert weights == {"a": 1, "b": 0}


def test_within_one_sequence_the_added_row_is_effective() -> None:
    (step,) = play(versions(), ([(1, "a", 6, POST), (1, "a", 6, PRE)], NONE))
    assert emitted(step) == [(1, "a", 6, NULL, NULL, POST.replace("update_postimage", PLUS))]


def test_a_lesser_row_of_the_same_sequence_is_rejected_in_any_order() -> None:
    left = LEFT.insert(3, pa.field("v", pa.int64()))
    spec = spec_of(left, RIGHT, key=("id", "rid"), sequence="s", remember=0, how="left")
    less, more = (1, "a", 5, 10, PLUS), (1, "a", 5, 11, PLUS)
    steps = play(spec, ([more], NONE), ([less, more], NONE))
    assert reasons(steps[1]) == [("left", "contradiction", *less)]
    assert steps[1].metrics == Metrics(rows=2, rejected=1, too_late=1)
    (step,) = play(spec, ([less, more, (1, "a", 4, 9, PLUS)], NONE))
    assert reasons(step) == [("left", "contradiction", *less)]
    assert [row[:4] for row in emitted(step)] == [(1, "a", 5, 11)]


def test_a_greater_row_of_the_same_sequence_revises_the_result() -> None:
    left = LEFT.insert(3, pa.field("v", pa.int64()))
    spec = spec_of(left, RIGHT, key=("id", "rid"), sequence="s", remember=0, how="left")
    less, more = (1, "a", 5, 10, PLUS), (1, "a", 5, 11, PLUS)
    steps = play(spec, ([less], NONE), ([more], NONE), ([less, more], NONE))
    assert [(row[3], row[-1]) for row in emitted(steps[1])] == [(10, PRE), (11, POST)]
    assert steps[1].metrics == Metrics(rows=1, on_time=1, corrections=1)
    assert reasons(steps[2]) == [("left", "contradiction", *less)]
    assert steps[2].metrics == Metrics(rows=2, rejected=1, too_late=1)


def test_changes_without_key_or_sequence_are_rejected() -> None:
    (step,) = play(
        versions(), ([(NULL, "a", 5, PLUS), (1, "a", NULL, PLUS)], [(NULL, "a", NULL, PLUS)])
    )
    assert [item[:2] for item in reasons(step)] == [
        ("left", "null_key"),
        ("left", "null_sequence"),
        ("right", "null_key"),
    ]
    assert step.state.rows == 0


def test_the_highest_sequences_of_deleted_rows_are_remembered() -> None:
    rows = [(number, "a", number, PLUS) for number in range(20)]
    removed = [(number, "a", 100 - number, MINUS) for number in range(20)]
    steps = play(versions(remember=3), (rows, NONE), (removed, NONE))
    assert [row["c.2"] for row in steps[1].state.tables["left"].to_pylist()] == [100, 99, 98]


def test_which_are_remembered_of_one_sequence_does_not_depend_on_their_order() -> None:
    removed = [(number, "a", 7, MINUS) for number in range(20)]
    stored = []
    for order in (removed, removed[::-1]):
        table = play(versions(remember=3), (order, NONE))[0].state.tables["left"]
        stored.append({row["c.0"] for row in table.to_pylist()})
    assert stored[0] == stored[1]
    assert len(stored[0]) == 3
