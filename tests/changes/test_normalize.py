"""Normalize upserts: parameters and emitted changes, without Spark."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from streamops import changes
from streamops.changelog.classify import copy_truncates
from streamops.changes.core.latest import ChangeMetrics
from streamops.kernel.errors import CapacityError, StreamopsError
from streamops.testing import at, fold, replay

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("w", pa.string()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
        ("_unavailable", pa.list_(pa.string())),
        ("_snapshot", pa.bool_()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)


def upsert(
    key: str | None, lsn: int | None, v: Any = 0, w: Any = "w", **columns: Any
) -> dict[str, Any]:
    row = {
        "k": key,
        "v": v,
        "w": w,
        "lsn": lsn,
        "_change_type": "insert",
        "ts": at(max(lsn or 0, 0)),
    }
    return {**row, "_unavailable": None, "_snapshot": None, **columns}


def delete(key: str, lsn: int) -> dict[str, Any]:
    return upsert(key, lsn, None, None, _change_type="delete")


def emitted(*script: list[dict[str, Any]], **settings: Any) -> list[Any]:
    given = {"sequence": "lsn", "horizon": 100, **settings}
    upserts = changes.normalize("k", **given).options(shards=1)
    results = replay(upserts, [*script], schema=SCHEMA, restart=True)
    return [
        [
            (row["_change_type"], row["v"], row["w"], row["revision"])
            if row["rejected"] is None
            else (row["rejected"]["reason"], row["rejected"]["row"]["v"])
            for row in result.rows
        ]
        for result in results
    ]


def test_a_change_below_the_stored_row_is_stale() -> None:
    assert emitted([upsert("a", 5, 1)], [upsert("a", 4, 2)]) == [[("insert", 1, "w", 0)], []]


def test_a_late_insert_does_not_resurrect_a_deleted_row() -> None:
    _, second, third = emitted([upsert("a", 5, 1)], [delete("a", 7)], [upsert("a", 6, 2)])
    assert (second, third) == ([("delete", 1, "w", 0)], [])


def test_a_delete_that_arrives_before_its_insert_is_effective() -> None:
    assert emitted([delete("a", 7)], [upsert("a", 6, 2)], [upsert("a", 8, 3)]) == [
        [],
        [],
        [("insert", 3, "w", 0)],
    ]


def test_a_row_that_is_inserted_again_continues_from_its_revision() -> None:
    *_, last = emitted([upsert("a", 5, 1)], [delete("a", 7)], [upsert("a", 8, 2)])
    assert last == [("insert", 2, "w", 1)]


def test_an_equal_change_is_a_duplicate_and_a_lesser_change_is_a_conflict() -> None:
    _, again, other = emitted([upsert("a", 5, 2)], [upsert("a", 5, 2)], [upsert("a", 5, 1)])
    assert (again, other) == ([], [("conflict", 1)])


def test_a_greater_change_of_the_same_sequence_retracts_the_published_row() -> None:
    script = [[upsert("a", 5, 1)], [upsert("a", 5, 2)], [upsert("a", 5, 1), upsert("a", 6, 3)]]
    assert emitted(*script)[1:] == [
        [("update_preimage", 1, "w", 0), ("update_postimage", 2, "w", 1)],
        [("update_preimage", 2, "w", 1), ("update_postimage", 3, "w", 2), ("conflict", 1)],
    ]


def test_the_greater_of_two_changes_of_one_sequence_is_effective() -> None:
    assert emitted([upsert("a", 5, 1), upsert("a", 5, 2), upsert("a", 4, 0)]) == [
        [
            ("insert", 0, "w", 0),
            ("update_preimage", 0, "w", 0),
            ("update_postimage", 2, "w", 1),
            ("conflict", 1),
        ]
    ]


def test_values_are_compared_from_the_left_column_and_a_null_is_lowest() -> None:
    script = [[upsert("a", 5, None, "z")], [upsert("a", 5, 1, "x")], [upsert("a", 5, 1, "y")]]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        rows = emitted(*(script[at] for at in order))
        last = [row for batch in rows for row in batch if row[0] != "conflict"][-1]
        assert last[1:3] == (1, "y")


def test_a_row_is_above_a_delete_of_the_same_sequence() -> None:
    row = [upsert("a", 4, 0)]
    first, second = [upsert("a", 5, None, None)], [delete("a", 5)]
    assert emitted(row, first, second)[2] == [("conflict", None)]
    assert emitted(row, second, first)[1:] == [
        [("delete", 0, "w", 0)],
        [("insert", None, None, 1)],
    ]


def test_a_missing_value_is_below_a_sent_one_and_is_carried_forward_from_the_lesser_change() -> (
    None
):
    lacking, sent = upsert("a", 5, 9, None, _unavailable=["w"]), upsert("a", 5, 7, "x")
    before = upsert("a", 4, 1, "old")
    for order in ([before, lacking, sent], [sent, lacking, before], [lacking, before, sent]):
        rows = [row for batch in emitted(*([item] for item in order)) for row in batch]
        assert [row for row in rows if row[0] != "conflict"][-1][1:3] == (9, "x")
    null = upsert("a", 5, 9, None)
    assert emitted([lacking], [null], [lacking])[1:] == [[], [("conflict", 9)]]


def test_values_of_changes_in_conflict_are_carried_forward_in_their_order() -> None:
    """Two changes with one sequence, and a later one with a missing value."""
    one, other = upsert("a", 5, 1, "z"), upsert("a", 5, 2, "b")
    later = upsert("a", 6, 3, None, _unavailable=["w"])
    for order in itertools.permutations([one, other, later]):
        rows = [row for batch in emitted(*([item] for item in order)) for row in batch]
        assert [row for row in rows if row[0] != "conflict"][-1][1:3] == (3, "b")


def test_a_missing_value_is_carried_forward() -> None:
    lacking = upsert("a", 7, 2, None, _unavailable=["w"])
    assert emitted([upsert("a", 5, 1, "x")], [lacking])[1][1] == ("update_postimage", 2, "x", 1)


def test_null_is_not_unavailable() -> None:
    assert emitted([upsert("a", 5, 1, "x")], [upsert("a", 7, 2, None)])[1][1][2] is None


def test_a_late_change_can_supply_a_missing_value() -> None:
    lacking = upsert("a", 7, 2, None, _unavailable=["w"])
    _, _, late, later = emitted(
        [upsert("a", 5, 1, "x")], [lacking], [upsert("a", 6, 9, "y")], [delete("a", 4)]
    )
    assert late == [("update_preimage", 2, "x", 1), ("update_postimage", 2, "y", 2)]
    assert later == []


def test_values_are_not_carried_forward_across_a_delete() -> None:
    lacking = upsert("a", 9, 2, None, _unavailable=["w"])
    assert emitted([upsert("a", 5, 1, "x"), lacking], [delete("a", 7)])[1] == [
        ("update_preimage", 2, "x", 1),
        ("update_postimage", 2, None, 2),
    ]


def test_the_values_that_a_delete_comes_with_are_not_carried_forward() -> None:
    removed = upsert("a", 7, 1, "x", _change_type="delete")
    lacking = upsert("a", 9, 2, None, _unavailable=["w"])
    expected = [("insert", 2, None, 0)]
    assert emitted([removed, lacking]) == [expected]
    assert emitted([removed], [lacking]) == [[], expected]


def test_a_change_that_changes_no_value_publishes_nothing() -> None:
    same = upsert("a", 7, 1, "w", ts=at(5))
    assert emitted([upsert("a", 5, 1)], [same], [upsert("a", 6, 2)])[1:] == [[], []]


@pytest.mark.parametrize(("snapshots", "expected"), [("below_log", 1), ("by_sequence", 2)])
def test_a_row_of_a_snapshot_is_below_the_log(snapshots: Any, expected: int) -> None:
    table = []
    for row in ([upsert("a", 5, 1)], [upsert("a", 9, 2, _snapshot=True)]):
        table.append(row)
    for script in (table, table[::-1], [[*table[0], *table[1]]]):
        given = {"sequence": "lsn", "horizon": 9, "snapshots": snapshots}
        results = replay(changes.normalize("k", **given), script, schema=SCHEMA)
        folded = fold(
            [
                {n: row[n] for n in ("k", "v", "revision", "_change_type")}
                for result in results
                for row in result.rows
            ],
            key="k",
        )
        assert [row["v"] for row in folded] == [expected]


def test_the_log_is_above_the_snapshot_at_the_same_sequence() -> None:
    script = [[upsert("a", 5, 2, _snapshot=True)], [upsert("a", 5, 1)]]
    assert emitted(*script, snapshots="by_sequence")[1][1] == ("update_postimage", 1, "w", 1)
    assert emitted(*script[::-1], snapshots="by_sequence")[1] == []


def test_a_delete_is_stored_up_to_the_horizon_and_then_evicted() -> None:
    within = [[delete("a", 10)], [upsert("b", 20)], [upsert("a", 9)]]
    assert emitted(*within, horizon=10) == [[], [("insert", 0, "w", 0)], []]
    beyond = [[delete("a", 10)], [upsert("b", 21)], [upsert("a", 9, 3), upsert("c", 11, 4)]]
    _, _, last = emitted(*beyond, horizon=10)
    assert last == [("insert", 4, "w", 0), ("forgotten", 3)]


@pytest.mark.parametrize("deletes", [[10, 15], [15, 10]])
def test_a_change_below_any_evicted_delete_does_not_bring_its_row_back(deletes: list[int]) -> None:
    first, second = (delete("ab"[lsn == 15], lsn) for lsn in deletes)
    late = upsert("b", 14, 3)
    for script in ([[first, second]], [[first], [second]]):
        assert emitted(*script, [upsert("c", 90)], [late], horizon=10)[-1] == [("forgotten", 3)]


def test_the_horizon_may_be_a_duration() -> None:
    script = [[delete("a", 10)], [upsert("b", 21)], [upsert("a", 9, 3)]]
    assert emitted(*script, horizon="11 seconds", time="ts")[2] == []
    assert emitted(*script, horizon="10 seconds", time="ts")[2] == [("forgotten", 3)]


def test_an_evicted_key_that_is_inserted_again_continues_above_its_revisions() -> None:
    script = [[upsert("a", 1), upsert("a", 2, 1), delete("a", 3)], [upsert("b", 90)]]
    *_, last = emitted(*script, [upsert("a", 95)], horizon=10)
    assert last == [("insert", 0, "w", 2)]


def test_rows_without_key_sequence_or_time_are_rejected_with_a_reason() -> None:
    bad = [
        upsert(None, 1, 1),
        upsert("a", None, 2),
        upsert("a", 1, 3, _change_type="upsert"),
        upsert("a", 1, 4, _change_type=None),
        upsert("a", 1, 5, ts=None),
    ]
    (rows,) = emitted(bad, horizon="1 day", time="ts")
    assert sorted(rows) == [
        ("no_sequence", 2),
        ("null_key", 1),
        ("null_time", 5),
        ("unknown_operation", 3),
        ("unknown_operation", 4),
    ]


def test_a_row_with_several_faults_is_rejected_with_the_first_reason() -> None:
    bad = [
        upsert(None, None, 1, ts=None, _change_type="upsert"),
        upsert(None, None, 2, ts=None),
        upsert("a", None, 3, ts=None),
    ]
    (rows,) = emitted(bad, horizon="1 day", time="ts")
    assert sorted(rows) == [("no_sequence", 3), ("null_key", 2), ("unknown_operation", 1)]


def test_a_time_outside_the_calendar_is_rejected_and_evicts_nothing() -> None:
    rows = [delete("a", 5), upsert("b", 6, 6)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    late = pa.array([at(5), None], pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(2**62)
    table = table.set_column(7, SCHEMA.field("ts"), late.cast(pa.timestamp("us", "UTC")))
    given: dict[str, Any] = {"sequence": "lsn", "horizon": "1 second", "time": "ts"}
    (result,) = replay(changes.normalize("k", **given), [table])
    rows = result.table.column("rejected").combine_chunks().field("reason").drop_null()
    assert rows.to_pylist() == ["time_out_of_range"]
    assert result.state_rows == 1


@pytest.mark.parametrize("horizon", [0, 10**30])
def test_a_horizon_may_be_zero_or_longer_than_the_log(horizon: int) -> None:
    low = -(2**63)
    script = [[delete("a", low), upsert("b", low + 1)], [upsert("a", low, 3)]]
    rows = [[{**row, "ts": at(0)} for row in batch] for batch in script]
    given: dict[str, Any] = {"sequence": "lsn", "horizon": horizon}
    _, last = replay(changes.normalize("k", **given), rows, schema=SCHEMA, shards=1)
    reasons = [row["rejected"] and row["rejected"]["reason"] for row in last.rows]
    assert reasons == (["forgotten"] if horizon == 0 else [None])


def test_changes_are_counted_by_their_effect() -> None:
    script = [
        [upsert("a", 5, 1), upsert("a", 6, 2), upsert("b", 1), upsert("b", 1), upsert(None, 1)],
        [upsert("a", 4), delete("b", 2), upsert("c", 1, _change_type="update_preimage")],
    ]
    given: dict[str, Any] = {"sequence": "lsn", "horizon": 9}
    upserts = changes.normalize("k", **given).options(shards=3)
    first, second = replay(upserts, script, schema=SCHEMA)
    assert first.counts == ChangeMetrics(rows=5, rejected=1, duplicates=1, results=2, corrections=1)
    assert second.counts == ChangeMetrics(rows=3, stale=1, ignored=1, deletes=1)
    assert second.state_rows == 2


def test_the_number_of_keys_is_limited() -> None:
    script = [[upsert("a", 1)], [upsert("b", 1, 5), upsert("a", 2, 7)]]
    assert emitted(*script, max_keys=1, when_full="reject_new")[1] == [
        ("update_preimage", 0, "w", 0),
        ("update_postimage", 7, "w", 1),
        ("full", 5),
    ]
    with pytest.raises(CapacityError, match=r"\[STATE_FULL\] changes.normalize"):
        emitted(*script, max_keys=1)


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("PARAMETER_MISSING", {"key": []}),
        ("PARAMETER_TYPE", {"sequence": None}),
        ("DUPLICATE_COLUMN", {"key": ["k", "lsn"]}),
        ("DUPLICATE_COLUMN", {"key": "ts", "time": "ts", "horizon": "1 day"}),
        ("PARAMETER_MISSING", {"horizon": "7 days"}),
        ("PARAMETER_MISSING", {"horizon": 7, "time": "ts"}),
        ("PARAMETER_MISSING", {"horizon": -1}),
        ("PARAMETER_MISSING", {"horizon": None}),
        ("INVALID_DURATION", {"horizon": "1 month", "time": "ts"}),
        ("UNKNOWN_CHOICE", {"publish": "all"}),
        ("UNKNOWN_CHOICE", {"snapshots": "win"}),
        ("UNKNOWN_CHOICE", {"when_full": "evict_oldest"}),
        ("PARAMETER_OUT_OF_RANGE", {"max_keys": 0}),
    ],
    ids=repr,
)
def test_a_parameter_out_of_range_is_refused(code: str, changed: dict[str, Any]) -> None:
    given = {"key": "k", "sequence": "lsn", "horizon": 5, **changed}
    with pytest.raises(StreamopsError) as caught:
        changes.normalize(given.pop("key"), **given)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("code", "changed", "columns"),
    [
        ("COLUMN_NOT_FOUND", {"key": "K"}, {}),
        ("COLUMN_NOT_FOUND", {"sequence": "scn"}, {}),
        ("COLUMN_NOT_FOUND", {"time": "at", "horizon": "1 day"}, {}),
        ("TYPE_UNSUPPORTED", {}, {"k": pa.map_(pa.string(), pa.string())}),
        (
            "SEQUENCE_TYPE",
            {"horizon": "1 day", "time": "ts"},
            {"lsn": pa.map_(pa.string(), pa.int8())},
        ),
        ("SEQUENCE_TYPE", {}, {"lsn": pa.string()}),
        ("COLUMN_TYPE", {"sequence": ["lsn", "v"]}, {}),
        ("COLUMN_TYPE", {"horizon": "1 day", "time": "v"}, {}),
        ("COLUMN_TYPE", {}, {"_unavailable": pa.string()}),
        ("COLUMN_TYPE", {}, {"_snapshot": pa.int32()}),
        ("COLUMN_TYPE", {}, {"_change_type": pa.int32()}),
        ("COLUMN_TYPE", {}, {"rejected": pa.string()}),
        ("NAME_TAKEN", {}, {"Revision": pa.string()}),
    ],
    ids=repr,
)
def test_a_frame_with_wrong_columns_is_refused(
    code: str, changed: dict[str, Any], columns: dict[str, pa.DataType]
) -> None:
    given = {"key": "k", "sequence": "lsn", "horizon": 5, **changed}
    transform = changes.normalize(given.pop("key"), **given)
    dtypes = {**{item.name: item.type for item in SCHEMA}, **columns}
    with pytest.raises(StreamopsError) as caught:
        transform.parameters.resolve((pa.schema(list(dtypes.items())),), carried=(None,), shards=1)
    assert caught.value.code == code


def test_the_repr_shows_the_parameters() -> None:
    text = repr(changes.normalize("k", sequence="s", horizon="7 days", time="ts"))
    assert text == "changes.normalize(key=('k',), sequence=('s',), horizon='7 days', time='ts')"


@pytest.mark.parametrize("parts", [1, 2], ids=["one struct", "a struct and a number"])
def test_a_null_in_a_part_of_the_sequence_is_no_sequence(parts: int) -> None:
    inner = pa.struct([("at", pa.struct([("n", pa.int64())]))])
    schema = SCHEMA.append(pa.field("pos", inner))
    values = [{"at": {"n": 1}}, {"at": {"n": None}}, {"at": None}, None]
    script = [[upsert("a", 1, v, pos=value) for v, value in enumerate(values)]]
    sequence = ["pos", "lsn"][:parts]
    upserts = changes.normalize("k", sequence=sequence, horizon="1 day", time="ts").options(
        shards=1
    )
    (result,) = replay(upserts, script, schema=schema, restart=True)
    rows = [(row["v"], row["rejected"] and row["rejected"]["reason"]) for row in result.rows]
    assert rows == [(0, None), *[(None, "no_sequence")] * 3]


def test_a_map_with_its_entries_in_another_order_is_equal() -> None:
    schema = pa.schema(
        [("k", pa.string()), ("m", pa.map_(pa.string(), pa.int64())), ("lsn", pa.int64())]
    )
    upserts = changes.normalize("k", sequence="lsn", horizon=5).options(shards=1)
    maps = [[("p", 1), ("q", 2)], [("q", 2), ("p", 1)], [("q", 1), ("p", 2)]]
    script = [[{"k": "a", "lsn": n, "m": m}] for n, m in enumerate(maps)]
    results = replay(upserts, script, schema=schema, restart=True)
    assert [len(result.rows) for result in results] == [1, 0, 2]
    assert [row["m"] for row in fold(results, key="k")] == [{"q": 1, "p": 2}]
    again = replay(upserts, [[{**row[0], "lsn": 1}] for row in script[:2]], schema=schema)
    assert again[1].counts.duplicates == 1


def test_a_truncate_for_all_shards_is_copied_and_a_tombstone_is_not() -> None:
    schema = SCHEMA.append(pa.field("_tombstone", pa.bool_()))
    rows = [
        {**upsert(None, 5, _change_type="truncate"), "_tombstone": None},
        {**upsert(None, 6, _change_type="truncate"), "_tombstone": True},
    ]
    operator = changes.normalize("k", sequence="lsn", horizon=100)
    spec = operator.parameters.resolve((schema,), carried=(None,), shards=1)
    copies = copy_truncates(spec, pa.Table.from_pylist(rows, schema))
    assert copies is not None
    assert copies.column("lsn").to_pylist() == [5]
