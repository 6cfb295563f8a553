"""Apply changes to a table and to a history: parameters and emitted changes, without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import changes
from streamops.kernel.errors import CapacityError, StreamopsError
from streamops.testing import at, fold, replay
from tests.changes.test_normalize import SCHEMA, delete, upsert


def timeless(script: Sequence[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """An upsert with a constant `ts`, which is a value of the row in these tests."""
    return [[{**row, "ts": at(0)} for row in rows] for rows in script]


def emitted(*script: list[dict[str, Any]], **settings: Any) -> list[Any]:
    """The change type, interval, v and revision of each emitted row, or the reason."""
    given = {
        "sequence": "lsn",
        "horizon": 100,
        "history": "intervals",
        **settings,
    }
    applied = changes.apply("k", **given).options(shards=1)
    results = replay(applied, timeless(script), schema=SCHEMA, restart=True)
    return [
        [
            (row["_change_type"], row["valid_from"], row["valid_to"], row["v"], row["revision"])
            if row["rejected"] is None
            else (row["rejected"]["reason"], row["rejected"]["row"]["v"])
            for row in result.rows
        ]
        for result in results
    ]


def table(script: list[list[dict[str, Any]]], **settings: Any) -> list[Any]:
    given = {"sequence": "lsn", "horizon": 100, "history": "intervals", **settings}
    results = replay(changes.apply("k", **given), timeless(script), schema=SCHEMA)
    rows = [row for result in results for row in result.rows if row["rejected"] is None]
    names = ("k", "v", "w", "valid_from", "valid_to", "revision", "_change_type")
    folded = fold([{name: row[name] for name in names} for row in rows], key=["k", "valid_from"])
    return sorted((row["k"], row["valid_from"], row["valid_to"] or 0, row["v"]) for row in folded)


def test_a_change_ends_the_interval_of_the_row_before_it() -> None:
    assert emitted([upsert("a", 5, 1)], [upsert("a", 7, 2)]) == [
        [("insert", 5, None, 1, 0)],
        [
            ("update_preimage", 5, None, 1, 0),
            ("update_postimage", 5, 7, 1, 1),
            ("insert", 7, None, 2, 0),
        ],
    ]


def test_a_late_change_splits_the_interval_that_contains_it() -> None:
    _, late = emitted([upsert("a", 5, 1), upsert("a", 9, 3)], [upsert("a", 7, 2)])
    assert late == [
        ("update_preimage", 5, 9, 1, 0),
        ("update_postimage", 5, 7, 1, 1),
        ("insert", 7, 9, 2, 0),
    ]


def test_a_late_delete_ends_an_interval() -> None:
    _, late = emitted([upsert("a", 5, 1), upsert("a", 9, 3)], [delete("a", 7)])
    assert late == [("update_preimage", 5, 9, 1, 0), ("update_postimage", 5, 7, 1, 1)]


def test_a_row_that_is_inserted_again_leaves_a_gap() -> None:
    script = [[upsert("a", 5, 1)], [delete("a", 7)], [upsert("a", 9, 1)]]
    assert table(script) == [("a", 5, 7, 1), ("a", 9, 0, 1)]


def test_equal_adjacent_intervals_are_one_until_a_change_between_splits_them() -> None:
    one, between = emitted([upsert("a", 5, 1), upsert("a", 9, 1)], [upsert("a", 7, 2)])
    assert one == [("insert", 5, None, 1, 0)]
    assert between == [
        ("update_preimage", 5, None, 1, 0),
        ("update_postimage", 5, 7, 1, 1),
        ("insert", 7, 9, 2, 0),
        ("insert", 9, None, 1, 0),
    ]


def test_intervals_are_merged_when_the_change_between_becomes_equal() -> None:
    lacking = upsert("a", 7, None, _unavailable=["v"])
    script = [[upsert("a", 5, 1), upsert("a", 9, 2)], [lacking], [upsert("a", 6, 2)]]
    assert table(script) == [("a", 5, 6, 1), ("a", 6, 0, 2)]


def test_values_that_are_not_tracked_begin_no_interval() -> None:
    script = [[upsert("a", 5, 1, "x")], [upsert("a", 7, 1, "y")], [upsert("a", 9, 2, "y")]]
    first, other, tracked = emitted(*script, track="v")
    assert first == [("insert", 5, None, 1, 0)]
    assert other == [("update_preimage", 5, None, 1, 0), ("update_postimage", 5, None, 1, 1)]
    assert tracked[2] == ("insert", 9, None, 2, 0)


def test_a_row_of_a_snapshot_is_effective_below_the_log_only() -> None:
    rows = [upsert("a", 3, 0, _snapshot=True), upsert("a", 5, 1), upsert("a", 9, 2, _snapshot=True)]
    for order in itertools.permutations(rows):
        assert table([[row] for row in order]) == [("a", 3, 5, 0), ("a", 5, 0, 1)]
        by_sequence = table([[row] for row in order], snapshots="by_sequence")
        assert by_sequence == [("a", 3, 5, 0), ("a", 5, 9, 1), ("a", 9, 0, 2)]


def test_an_interval_that_is_inserted_again_continues_from_its_revision() -> None:
    first = [upsert("a", 3, 0, _snapshot=True)]
    *_, last = emitted(first, [upsert("a", 2, 1)], [upsert("a", 3, 2)])
    assert last[-1] == ("insert", 3, None, 2, 1)


def test_a_row_of_a_snapshot_that_is_not_effective_does_not_reset_the_revision() -> None:
    snapshot = [upsert("a", 3, 7, _snapshot=True)]
    _, lost, *_, last = emitted(
        [upsert("a", 3, 1)], snapshot, [upsert("a", 5, 2)], [delete("a", 4)]
    )
    assert lost == []
    assert last[0] == ("update_preimage", 3, 5, 1, 1)


def test_retractions_are_emitted_before_additions() -> None:
    _, merged = emitted([upsert("a", 5, 1, _snapshot=True), delete("a", 7)], [upsert("a", 4, 1)])
    assert [row[:3] for row in merged] == [("delete", 5, 7), ("insert", 4, 7)]


def test_changes_older_than_the_horizon_are_final_and_the_others_are_not() -> None:
    script = [[upsert("a", n, n) for n in (1, 5, 9)], [upsert("b", 16)]]
    *_, late = emitted(*script, [upsert("a", 4, 7)], horizon=10)
    assert late == [("forgotten", 7)]
    *_, late = emitted(*script, [upsert("a", 6, 7)], horizon=10)
    assert late == [
        ("update_preimage", 5, 9, 5, 0),
        ("update_postimage", 5, 6, 5, 1),
        ("insert", 6, 9, 7, 0),
    ]


def test_a_change_exactly_a_horizon_late_is_accepted_and_one_later_is_not() -> None:
    versions = changes.apply(
        "k", sequence="lsn", time="ts", horizon="10 seconds", history="intervals"
    )
    for newest, rejected in ((15, [None, None]), (16, ["forgotten"])):
        script = [
            [upsert("a", 1, 1, ts=at(1)), upsert("a", 5, 5, ts=at(5))],
            [upsert("b", 9, ts=at(newest))],
            [upsert("a", 4, 4, ts=at(5))],
        ]
        *_, last = replay(versions, script, schema=SCHEMA, shards=1)
        reasons = [row["rejected"] and row["rejected"]["reason"] for row in last.rows]
        assert (reasons[-2:] if newest == 15 else reasons) == rejected


def test_the_last_change_before_the_horizon_is_a_duplicate_when_it_is_delivered_again() -> None:
    script = [[upsert("a", 5, 1), upsert("a", 6, 2)], [upsert("a", 30, 3)]]
    again = [[upsert("a", 6, 2)], [upsert("a", 6, 9)], [upsert("a", 5, 1)]]
    assert emitted(*script, *again, horizon=10)[2:] == [[], [("conflict", 9)], [("forgotten", 1)]]


def test_a_key_deleted_before_the_horizon_is_evicted_and_can_be_inserted_above_it() -> None:
    script = [[upsert("a", 1), delete("a", 3)], [upsert("b", 90)]]
    *_, last = emitted(
        *script, [upsert("a", 2, 7), upsert("c", 3, 8), upsert("a", 80, 9)], horizon=10
    )
    assert last == [("insert", 80, None, 9, 0), ("forgotten", 7), ("forgotten", 8)]


def test_evicted_changes_of_a_key_that_was_inserted_again_stay_rejected() -> None:
    script = [[upsert("a", 1), delete("a", 3)], [upsert("b", 90)], [upsert("a", 95, 9)]]
    *_, again, late = emitted(*script, [upsert("a", 1)], [upsert("a", 85, 8)], horizon=10)
    assert again == [("forgotten", 0)]
    assert late == [("insert", 85, 95, 8, 0)]  # within the horizon


def test_an_interval_continues_though_its_first_changes_are_final() -> None:
    script = [[upsert("a", n, 1)] for n in (1, 5, 9, 30, 60)]
    *_, last = emitted(*script, [upsert("a", 61, 2)], horizon=10)
    assert last == [
        ("update_preimage", 1, None, 1, 0),
        ("update_postimage", 1, 61, 1, 1),
        ("insert", 61, None, 2, 0),
    ]
    results = replay(
        changes.apply("k", sequence="lsn", horizon=10, history="intervals"),
        script,
        schema=SCHEMA,
    )
    assert results[-1].state_rows == 2


def test_a_missing_value_is_carried_forward_from_a_final_change() -> None:
    lacking = upsert("a", 60, None, "new", _unavailable=["v"])
    *_, last = emitted([upsert("a", 1, 7)], [upsert("b", 50)], [lacking], horizon=10)
    assert last[-1] == ("insert", 60, None, 7, 0)


def test_an_equal_change_is_a_duplicate_and_a_lesser_one_is_a_conflict() -> None:
    first = [upsert("a", 5, 9), upsert("a", 7, 2)]
    _, again, other = emitted(first, [upsert("a", 5, 9)], [upsert("a", 5, 1), delete("a", 7)])
    assert (again, sorted(other, key=str)) == ([], [("conflict", 1), ("conflict", None)])


def test_a_greater_change_of_the_same_sequence_retracts_the_interval() -> None:
    script = [[upsert("a", 5, 1), delete("a", 7)], [upsert("a", 5, 9)], [upsert("a", 7, 2)]]
    assert emitted(*script)[1:] == [
        [("update_preimage", 5, 7, 1, 0), ("update_postimage", 5, 7, 9, 1)],
        [("insert", 7, None, 2, 0)],
    ]


def test_keys_are_limited() -> None:
    with pytest.raises(CapacityError, match=r"\[STATE_FULL\] changes.apply"):
        emitted([upsert("a", 1), upsert("b", 1)], max_keys=1)
    *_, last = emitted([upsert("a", 1)], [upsert("b", 1, 7)], max_keys=1, when_full="reject_new")
    assert last == [("full", 7)]


def test_an_overwritten_table_emits_the_difference_of_a_micro_batch() -> None:
    transform = changes.apply("k", sequence="lsn", horizon=100)
    script = [
        [upsert("a", 5, 1), upsert("a", 6, 2), upsert("b", 1), delete("b", 2)],
        [upsert("a", 7, 3), upsert("a", 8, 4), upsert("b", 1, 9)],
    ]
    first, second = replay(transform, script, schema=SCHEMA)
    assert [(row["k"], row["_change_type"], row["v"]) for row in first.rows] == [("a", "insert", 2)]
    assert [(row["k"], row["_change_type"], row["v"]) for row in second.rows] == [
        ("a", "update_preimage", 2),
        ("a", "update_postimage", 4),
    ]


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("UNKNOWN_CHOICE", {"history": "type 2"}),
        ("PARAMETER_WITHOUT_EFFECT", {"track": "v"}),
        ("PARAMETER_MISSING", {"history": "intervals", "track": []}),
        ("DUPLICATE_COLUMN", {"history": "intervals", "track": ["v", "v"]}),
        ("PARAMETER_MISSING", {"horizon": "1 day"}),
    ],
    ids=repr,
)
def test_a_parameter_out_of_range_is_refused(code: str, changed: dict[str, Any]) -> None:
    given = {"key": "k", "sequence": "lsn", "horizon": 5, **changed}
    with pytest.raises(StreamopsError) as caught:
        changes.apply(given.pop("key"), **given)
    assert (caught.value.code, caught.value.where) == (code, "changes.apply")


@pytest.mark.parametrize(
    ("code", "changed", "more"),
    [
        ("COLUMN_NOT_FOUND", {"track": "x"}, {}),
        ("COLUMN_NOT_FOUND", {"track": "k"}, {}),
        ("NAME_TAKEN", {}, {"Valid_To": pa.int64()}),
    ],
    ids=repr,
)
def test_a_frame_with_wrong_columns_is_refused(
    code: str, changed: dict[str, Any], more: dict[str, pa.DataType]
) -> None:
    transform = changes.apply("k", sequence="lsn", horizon=5, history="intervals", **changed)
    dtypes = {**{item.name: item.type for item in SCHEMA}, **more}
    with pytest.raises(StreamopsError) as caught:
        transform.parameters.resolve((pa.schema(list(dtypes.items())),), carried=(None,), shards=1)
    assert caught.value.code == code


def test_the_repr_shows_the_parameters() -> None:
    text = repr(changes.apply("k", sequence="s", horizon=7, history="intervals", track="v"))
    assert "horizon=7" in text
    assert "history='intervals', track=('v',)" in text


def test_a_row_of_a_snapshot_that_is_not_effective_supplies_values_only_without_history() -> None:
    script = [
        [upsert("a", 5, 1, None, _unavailable=["w"])],
        [upsert("a", 10, 1, "big", _snapshot=True)],
        [upsert("a", 15, 2, None, _unavailable=["w"])],
    ]
    for order in itertools.permutations(script):
        for history, expected in (("overwrite", ["big"]), ("intervals", [None, None])):
            given: dict[str, Any] = {"sequence": "lsn", "horizon": 100, "history": history}
            results = replay(changes.apply("k", **given), timeless(order), schema=SCHEMA)
            published = [row for result in results for row in result.rows]
            key = ["k"] if history == "overwrite" else ["k", "valid_from"]
            rows = fold([{**row, "rejected": None} for row in published], key=key)
            assert [row["w"] for row in rows] == expected


def test_a_surrogate_is_computed_from_the_key_and_the_start_of_the_interval() -> None:
    script = timeless(
        [[upsert("a", 5, 1), upsert("b", 5, 1)], [upsert("a", 7, 2)], [upsert("a", 6, 3)]]
    )
    given = {"sequence": "lsn", "horizon": 100, "history": "intervals", "surrogate": "Id"}
    rows = [
        row for r in replay(changes.apply("k", **given), script, schema=SCHEMA) for row in r.rows
    ]
    names: dict[Any, set[str]] = {}
    for row in rows:
        names.setdefault((row["k"], row["valid_from"]), set()).add(row["Id"])
    assert list(rows[0])[:3] == ["k", "Id", "valid_from"]
    assert sorted(names) == [("a", 5), ("a", 6), ("a", 7), ("b", 5)]
    assert all(len(of) == 1 for of in names.values())
    assert len(set.union(*names.values())) == 4
    # The digits are a promise: facts store them.
    assert names["a", 5] == {"73d34641e3debdb018538b3cce4b2c81"}


@pytest.mark.parametrize("name", ["k", "V", "valid_from", "revision", "_change_type", "rejected"])
def test_the_name_of_a_surrogate_must_be_free(name: str) -> None:
    with pytest.raises(StreamopsError) as caught:
        table([[upsert("a", 5, 1)]], surrogate=name)
    assert caught.value.code == "NAME_TAKEN"


def test_a_surrogate_identifies_an_interval() -> None:
    with pytest.raises(StreamopsError) as caught:
        changes.apply("k", sequence="lsn", horizon=1, surrogate="id")
    assert caught.value.code == "PARAMETER_WITHOUT_EFFECT"
