"""A join of two tables: what is emitted when either changes, and what is rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import joins
from streamops.changelog.classify import Conflicts
from streamops.joins.core import tables
from streamops.joins.core.tables import TablesCore, Weighted, delta
from streamops.joins.core.tables_spec import TablesSpec
from streamops.kernel.core import Metrics, State, Step
from streamops.spark.drive import resolve

LEFT = pa.schema([("id", pa.int64()), ("k", pa.string()), ("_change_type", pa.string())])
RIGHT = pa.schema([("rid", pa.int64()), ("k", pa.string()), ("_change_type", pa.string())])
PLUS, MINUS, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"
NULL = None

Change = tuple[Any, ...]


def spec_of(left: pa.Schema = LEFT, right: pa.Schema = RIGHT, **arguments: Any) -> TablesSpec:
    given: dict[str, Any] = {"by": "k", "rejected": "route"} | arguments
    spec = resolve(joins.tables(None, **given).options(shards=1), (left, right), (None, None))
    assert isinstance(spec, TablesSpec)
    return spec


def play(spec: TablesSpec, *batches: tuple[Sequence[Change], Sequence[Change]]) -> list[Step]:
    state, steps = State.empty(TablesCore().layout(spec)), []
    for batch in batches:
        packs = [
            pa.table(
                [pa.array([row[at] for row in rows], f.type) for at, f in enumerate(side.schema)],
                schema=side.schema,
            )
            for rows, side in zip(batch, spec.tables, strict=True)
        ]
        steps.append(TablesCore().step(spec, state, packs, None))
        state = steps[-1].state
        TablesCore().check(spec, state)
    return steps


def emitted(step: Step) -> list[tuple[Any, ...]]:
    return [tuple(row.values())[:-1] for row in step.output.to_pylist()]


def reasons(step: Step) -> list[tuple[Any, ...]]:
    late = [row["late"] for row in step.late.to_pylist()]
    return [(row["side"], row["reason"], *row["row"][row["side"]].values()) for row in late]


def test_new_rows_on_both_sides_match_once() -> None:
    (step,) = play(spec_of(), ([(1, "a", PLUS)], [(9, "a", PLUS)]))
    assert emitted(step) == [(1, "a", 9, PLUS)]
    assert step.metrics == Metrics(rows=2, on_time=2, results=1)


def test_deletes_on_both_sides_at_once_delete_a_joined_row_once() -> None:
    steps = play(
        spec_of(),
        ([(1, "a", PLUS)], [(9, "a", PLUS)]),
        ([(1, "a", MINUS)], [(9, "a", MINUS)]),
    )
    assert emitted(steps[1]) == [(1, "a", 9, MINUS)]
    assert steps[1].state.rows == 0


def test_a_delete_on_one_side_with_an_insert_on_the_other_emits_nothing() -> None:
    steps = play(spec_of(), ([(1, "a", PLUS)], []), ([(1, "a", MINUS)], [(9, "a", PLUS)]))
    assert [emitted(step) for step in steps] == [[], []]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("left", [(1, "a", NULL, PLUS)]),
        ("right", [(NULL, "b", 9, PLUS)]),
        ("full", [(1, "a", NULL, PLUS), (NULL, "b", 9, PLUS)]),
    ],
)
def test_a_row_without_partner_is_joined_with_nulls(how: str, expected: list[Change]) -> None:
    (step,) = play(spec_of(how=how), ([(1, "a", PLUS)], [(9, "b", PLUS)]))
    assert emitted(step) == expected


def test_the_first_partner_retracts_the_row_without_partner_and_the_last_restores_it() -> None:
    steps = play(
        spec_of(how="left"),
        ([(1, "a", PLUS)], []),
        ([], [(8, "a", PLUS), (9, "a", PLUS)]),
        ([], [(8, "a", MINUS)]),
        ([], [(9, "a", MINUS)]),
    )
    assert [emitted(step) for step in steps] == [
        [(1, "a", NULL, PLUS)],
        [(1, "a", NULL, MINUS), (1, "a", 8, PLUS), (1, "a", 9, PLUS)],
        [(1, "a", 8, MINUS)],
        [(1, "a", 9, MINUS), (1, "a", NULL, PLUS)],
    ]


def test_a_partner_added_and_removed_in_one_micro_batch_has_no_effect() -> None:
    steps = play(
        spec_of(how="left"),
        ([(1, "a", PLUS)], []),
        ([], [(8, "a", PLUS), (8, "a", MINUS)]),
        ([(1, "a", PRE), (1, "a", POST)], []),
    )
    assert [emitted(step) for step in steps[1:]] == [[], []]


def test_a_partner_of_nulls_equals_no_partner_and_emits_nothing() -> None:
    steps = play(
        spec_of(how="left"), ([(1, "a", PLUS)], []), ([], [(NULL, "a", PLUS)]), ([], [(NULL, "a", MINUS)])
    )  # fmt: skip
    assert [emitted(step) for step in steps] == [[(1, "a", NULL, PLUS)], [], []]


def test_rows_with_null_keys_match_nothing_and_are_stored_only_on_outer_sides() -> None:
    rows = ([(1, NULL, PLUS)], [(9, NULL, PLUS)])
    lone, both = (1, NULL, NULL, PLUS), (NULL, NULL, 9, PLUS)
    for how, expected in {"inner": [], "left": [lone], "full": [lone, both]}.items():
        (step,) = play(spec_of(how=how), rows)
        assert emitted(step) == expected
        assert step.state.rows == len(expected)
        assert step.metrics.rejected == 0


def test_the_join_key_may_change_in_an_update() -> None:
    steps = play(
        spec_of(how="left", key=("id", "rid")),
        ([(1, "a", PLUS)], [(8, "a", PLUS), (9, "b", PLUS)]),
        ([(1, "a", PRE), (1, "b", POST)], []),
        ([], [(9, "b", PRE), (9, "c", POST)]),
    )
    assert [emitted(step) for step in steps[1:]] == [
        [(1, "a", 8, MINUS), (1, "b", 9, PLUS)],
        [(1, "b", 9, MINUS), (1, "b", NULL, PLUS)],
    ]


def test_with_keys_a_joined_row_is_updated_and_without_keys_replaced() -> None:
    left = LEFT.insert(2, pa.field("v", pa.int64()))
    batches: Any = [
        ([(1, "a", 5, PLUS)], [(9, "a", PLUS)]),
        ([(1, "a", 5, PRE), (1, "a", 6, POST)], []),
    ]
    with_keys = play(spec_of(left, key=("id", "rid")), *batches)[1]
    assert emitted(with_keys) == [(1, "a", 5, 9, PRE), (1, "a", 6, 9, POST)]
    assert with_keys.metrics == Metrics(rows=2, on_time=2, corrections=1)
    without = play(spec_of(left), *batches)[1]
    assert emitted(without) == [(1, "a", 5, 9, MINUS), (1, "a", 6, 9, PLUS)]
    assert without.metrics == Metrics(rows=2, on_time=2, results=1)


def test_equal_rows_are_stored_once_and_emitted_as_often_as_they_occur() -> None:
    steps = play(
        spec_of(),
        ([(1, "a", PLUS)] * 2, [(9, "a", PLUS)] * 3),
        ([(1, "a", MINUS)], []),
    )
    assert steps[0].state.rows == 2
    assert emitted(steps[0]) == [(1, "a", 9, PLUS)] * 6
    assert emitted(steps[1]) == [(1, "a", 9, MINUS)] * 3


def test_the_removal_of_a_missing_row_is_rejected_and_routed() -> None:
    steps = play(
        spec_of(),
        ([(1, "a", PLUS)], []),
        ([(1, "a", MINUS), (1, "a", MINUS), (2, "a", PRE)], [(9, "a", "upsert"), (9, "a", NULL)]),
    )
    assert steps[1].metrics == Metrics(rows=5, rejected=4, on_time=1)
    assert reasons(steps[1]) == [
        ("left", "not_there", 1, "a", MINUS),
        ("left", "not_there", 2, "a", PRE),
        ("right", "bad_change", 9, "a", "upsert"),
        ("right", "bad_change", 9, "a", NULL),
    ]
    assert steps[1].state.rows == 0


def test_in_one_micro_batch_a_delete_may_precede_its_insert() -> None:
    (step,) = play(spec_of(how="left"), ([(1, "a", MINUS), (1, "a", PLUS)], []))
    assert (emitted(step), step.metrics.rejected) == ([], 0)


def test_rejected_changes_are_only_counted_unless_routed() -> None:
    (step,) = play(spec_of(rejected="drop"), ([(1, "a", MINUS)], []))
    assert step.metrics.rejected == 1
    assert len(step.late) == 0
    assert "late" not in step.late.schema.names


def test_a_batch_is_one_step_and_routes_rejected_changes() -> None:
    spec = spec_of()
    packs = [side.schema.empty_table() for side in spec.tables]
    assert TablesCore().run(spec, packs).rows.to_pylist() == []
    bad = pa.table({"id": [1], "k": ["a"], "_change_type": ["?"]}, schema=LEFT)
    assert [
        row["late"]["reason"] for row in TablesCore().run(spec, [bad, packs[1]]).rows.to_pylist()
    ] == ["bad_change"]
    assert len(TablesCore().finish(spec, State.empty(TablesCore().layout(spec)))) == 0
    assert TablesCore().next_deadline(spec, State.empty(TablesCore().layout(spec))) is None


def test_a_state_is_not_changed_by_the_step_after_it() -> None:
    spec = spec_of()
    (step,) = play(spec, ([(1, "a", PLUS)], [(9, "a", PLUS)]))
    before = {name: table.to_pylist() for name, table in step.state.tables.items()}
    removed = pa.table({"id": [1], "k": ["a"], "_change_type": [MINUS]}, schema=LEFT)
    TablesCore().step(spec, State(None, step.state.tables), [removed, RIGHT.empty_table()], None)
    assert {name: table.to_pylist() for name, table in step.state.tables.items()} == before


def test_maps_and_structs_are_compared_by_their_values() -> None:
    dtype = pa.map_(pa.string(), pa.int64())
    left = LEFT.set(0, pa.field("id", dtype))
    steps = play(
        spec_of(left, how="left"),
        ([([("x", 1)], "a", PLUS), ([("x", 2)], "a", PLUS)], []),
        ([([("x", 1)], "a", MINUS)], []),
    )
    assert emitted(steps[1]) == [([("x", 1)], "a", NULL, MINUS)]
    assert steps[1].metrics.rejected == 0


def test_the_product_rule_counts_pairs_that_changed_on_both_sides_once() -> None:
    """(L + dL)(R + dR) - LR = dL R + (L + dL) dR, with weights 2 to 3 and 5 to 7."""
    one, true = np.zeros(1, np.int64), np.ones(1, np.bool_)
    left = Weighted(one, true, np.array([2]), np.array([3]), False)
    right = Weighted(one, true, np.array([5]), np.array([7]), False)
    found = delta(left, right, 1)
    assert found.weight.tolist() == [1 * 5 + 3 * 2]


KEYED = LEFT.insert(2, pa.field("v", pa.int64()))


def keyed(**arguments: Any) -> TablesSpec:
    return spec_of(KEYED, RIGHT, key=("id", "rid"), how="left", **arguments)


def test_with_keys_a_repeated_insert_counts_once() -> None:
    one = (1, "a", 5, PLUS)
    steps = play(keyed(), ([one, one], []), ([one], []), ([(1, "a", 5, MINUS)], []))
    assert [emitted(step) for step in steps] == [
        [(1, "a", 5, NULL, PLUS)],
        [],
        [(1, "a", 5, NULL, MINUS)],
    ]
    assert steps[0].metrics == Metrics(rows=2, on_time=1, too_late=1, results=1)
    assert steps[1].metrics == Metrics(rows=1, too_late=1)
    assert steps[2].state.rows == 0


def test_a_deleted_row_that_is_inserted_again_is_not_a_duplicate() -> None:
    one, removed = (1, "a", 5, PLUS), (1, "a", 5, MINUS)
    steps = play(keyed(), ([one], []), ([removed, one], []))
    assert emitted(steps[1]) == []
    assert steps[1].metrics == Metrics(rows=2, on_time=2)


def test_of_two_rows_of_a_key_the_greater_is_effective_in_any_order_of_arrival() -> None:
    less, more = (1, "a", 5, PLUS), (1, "a", 6, PLUS)
    steps = play(keyed(), ([more], []), ([less, less], []))
    assert (emitted(steps[1]), reasons(steps[1])) == ([], [("left", "contradiction", *less)] * 2)
    assert steps[1].metrics == Metrics(rows=2, rejected=2)
    steps = play(keyed(), ([less], []), ([more, less], []))
    assert emitted(steps[1]) == [(1, "a", 5, NULL, PRE), (1, "a", 6, NULL, POST)]
    assert reasons(steps[1]) == [("left", "contradiction", *less)]
    (step,) = play(keyed(), ([less, more, more], []))
    assert emitted(step) == [(1, "a", 6, NULL, PLUS)]
    assert step.metrics == Metrics(rows=3, on_time=1, too_late=1, rejected=1, results=1)


def test_a_row_with_a_new_join_key_is_in_two_joins_until_its_old_row_is_removed() -> None:
    steps = play(keyed(), ([(1, "a", 5, PLUS), (1, "b", 5, PLUS)], []), ([(1, "a", 5, PRE)], []))
    assert [len(step.output) for step in steps] == [2, 1]
    assert [step.metrics.rejected for step in steps] == [0, 0]


def test_an_update_in_one_micro_batch_is_not_a_conflict_in_any_order() -> None:
    update = [(1, "a", 5, PRE), (1, "a", 6, POST), (1, "a", 6, PRE), (1, "a", 4, POST)]
    for order in (update, update[::-1]):
        steps = play(keyed(), ([(1, "a", 5, PLUS)], []), (order, []))
        assert emitted(steps[1]) == [(1, "a", 5, NULL, PRE), (1, "a", 4, NULL, POST)]
        assert steps[1].metrics == Metrics(rows=4, on_time=4, corrections=1)


def test_a_repeated_insert_is_a_duplicate_only_while_its_row_exists() -> None:
    """With a `sequence` all three are left out; without one they are what they say."""
    five, removed = (1, "a", 5, PLUS), (1, "a", 5, MINUS)
    steps = play(keyed(), ([five], []), ([five, removed], []))
    assert (emitted(steps[1]), steps[1].state.rows) == ([], 1)
    steps = play(keyed(), ([five], []), ([removed], []), ([five], []))
    assert emitted(steps[2]) == [(1, "a", 5, NULL, PLUS)]
    three = [(1, "a", 5, PRE), (1, "a", 3, POST)]
    steps = play(keyed(), ([five], []), (three, []), ([five], []))
    assert emitted(steps[2]) == [(1, "a", 3, NULL, PRE), (1, "a", 5, NULL, POST)]


def test_values_are_compared_only_for_repeated_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    class Spied(Conflicts):
        @staticmethod
        def of(position: Any, values: Any, lacks: Any, is_delete: Any) -> Conflicts:
            compared.append(len(position))
            return Conflicts.of(position, values, lacks, is_delete)

    monkeypatch.setattr(tables, "Conflicts", Spied)
    many: Any = [(number, "a", 5, PLUS) for number in range(9)]
    update: Any = [(3, "a", 5, PRE), (3, "a", 6, POST)]
    steps = play(keyed(), (many, []), (update, []), ([(4, "a", 7, PLUS)], []))
    assert compared == [2]
    assert emitted(steps[2]) == [(4, "a", 5, NULL, PRE), (4, "a", 7, NULL, POST)]


def test_without_keys_every_insert_counts() -> None:
    steps = play(spec_of(how="left"), ([(1, "a", PLUS), (1, "a", PLUS)], []))
    assert emitted(steps[0]) == [(1, "a", NULL, PLUS)] * 2


@pytest.mark.parametrize("key", [None, ("id", "rid")], ids=["bag", "key"])
def test_a_row_is_removed_whatever_the_order_of_entries_in_its_maps(
    key: tuple[str, str] | None,
) -> None:
    left = LEFT.insert(2, pa.field("m", pa.map_(pa.string(), pa.int64())))
    one, other = [("p", 1), ("q", 2)], [("q", 2), ("p", 1)]
    inserts = [(1, "a", one, PLUS)], [(9, "a", PLUS)]
    deletes = [(1, "a", other, MINUS)], [(9, "a", MINUS)]
    steps = play(spec_of(left, key=key), inserts, deletes)
    assert [len(emitted(step)) for step in steps] == [1, 1]
    assert not any(reasons(step) for step in steps)
    assert steps[-1].state.rows == 0
