"""As-of joins, step by step: results, late rows, state."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from streamops.joins.core.asof import AsofCore
from streamops.kernel.core import Metrics, State
from tests.joins.core.asof_play import (
    FACTS,
    INSTANT,
    SECOND,
    Played,
    bound,
    bound_to,
    packed,
    results_of,
    rows_as,
)

ONE, TWO = ("a", 10, 1, "one"), ("a", 20, 1, "two")


@pytest.mark.parametrize(
    ("time", "value"),
    [(9.999999, None), (10, "one"), (19.999999, "one"), (20, "two"), (1e6, "two")],
)
def test_a_fact_is_joined_with_the_version_in_effect_at_its_time(
    time: float, value: str | None
) -> None:
    play = Played()
    assert play([("a", time, 1)], [ONE, TWO], watermark=time) == [("a", time, value)]


def test_a_fact_waits_for_the_watermark_to_reach_its_time() -> None:
    play = Played()
    assert play([("a", 15, 1)], [ONE], watermark=14.999999) == []
    assert play.stored == (1, 1)
    assert play(versions=[("a", 12, 1, "newer")], watermark=15) == [("a", 15, "newer")]
    assert play.stored == (1, 0)


def test_versions_of_other_keys_do_not_match() -> None:
    play = Played()
    assert play([("a", 15, 1)], [("b", 10, 1, "b")], watermark=20) == [("a", 15, None)]


def test_an_inner_join_emits_no_fact_without_a_version() -> None:
    play = Played(how="inner")
    facts = [("a", 5, 1), ("a", 15, 2), ("b", 15, 3)]
    assert play(facts, [ONE], watermark=20) == [("a", 15, "one")]
    assert play.counts == Metrics(rows=4, on_time=4, results=1)
    assert play.stored == (1, 0)


@pytest.mark.parametrize("rows", [[("a", 10, 1, "x"), ("a", 10, 2, "y")]])
def test_the_sequence_decides_between_versions_of_one_instant(rows: list[tuple[object]]) -> None:
    for versions in (rows, rows[::-1]):
        together, separate = Played(), Played()
        assert together([("a", 10, 1)], versions, watermark=10) == [("a", 10, "y")]
        separate([("a", 10, 1)], versions[:1])
        assert separate(versions=versions[1:], watermark=10) == [("a", 10, "y")]


def test_the_base_version_stays_in_state_however_old_it_is() -> None:
    play = Played()
    play(versions=[ONE, TWO])
    assert play(watermark=1_000) == []
    assert play.stored == (1, 0)  # the older one cannot be found any more
    assert play([("a", 2_000, 1)], watermark=1_000) == []
    assert play(watermark=2_000) == [("a", 2_000, "two")]


def test_versions_above_the_watermark_do_not_replace_the_base() -> None:
    play = Played()
    play(versions=[ONE, TWO, ("a", 30, 1, "three")], watermark=25)
    assert play.stored == (2, 0)
    assert play([("a", 26, 1), ("a", 31, 2)], watermark=40) == [
        ("a", 26, "two"),
        ("a", 31, "three"),
    ]


def test_null_keys_never_match() -> None:
    play = Played()
    facts, versions = [(None, 15, 1), ("a", 15, 2)], [(None, 10, 1, "null"), ONE]
    assert play(facts, versions) == []
    assert play.stored == (1, 2)
    assert play(watermark=20) == [("a", 15, "one"), (None, 15, None)]
    inner = Played(how="inner")
    inner(facts, versions)
    assert inner.stored == (1, 1)  # a fact that cannot match does not wait
    assert inner(watermark=20) == [("a", 15, "one")]


# Deletes, validities, tolerance.


@pytest.mark.parametrize("column", ["gone", "_change_type"])
def test_a_delete_is_a_version_without_a_value(column: str) -> None:
    play = Played(column, deleted="gone" if column == "gone" else None)
    value, deleted = (False, True) if column == "gone" else ("insert", "delete")
    versions = [
        ("a", 10, 1, "one", value),
        ("a", 20, 2, "one", deleted),
        ("a", 30, 3, "new", value),
    ]
    facts = [("a", 19, 1), ("a", 20, 1), ("a", 29, 1), ("a", 30, 1)]
    assert play(facts, versions, watermark=100) == [
        ("a", 19, "one"),
        ("a", 20, None),
        ("a", 29, None),
        ("a", 30, "new"),
    ]
    assert column not in play.spec.output.names


def test_a_late_version_does_not_restore_a_deleted_row() -> None:
    play = Played("gone", deleted="gone")
    play(versions=[("a", 10, 1, "one", False), ("a", 20, 2, None, True)], watermark=100)
    assert play.stored == (1, 0)
    late = [("a", 15, 9, "late", False)]
    assert play([("a", 150, 1)], late, watermark=200) == [("a", 150, None)]


def test_a_null_deletion_flag_means_not_deleted() -> None:
    play = Played("gone", deleted="gone")
    assert play([("a", 15, 1)], [(*ONE, None)], watermark=20) == [("a", 15, "one")]


def test_a_preimage_has_no_effect() -> None:
    play = Played("_change_type")
    versions = [
        ("a", 10, 1, "one", "insert"),
        ("a", 20, 2, "one", "update_preimage"),
        ("a", 20, 2, "two", "update_postimage"),
    ]
    assert play([("a", 25, 1)], versions, watermark=30) == [("a", 25, "two")]
    assert play.counts == Metrics(rows=4, on_time=4, results=1)


def test_a_row_deleted_and_inserted_in_one_commit_is_replaced() -> None:
    versions = [("a", 10, 1, "old", "delete"), ("a", 10, 1, "new", "insert")]
    for rows in (versions, versions[::-1]):
        for cut in (1, 2):
            play = Played("_change_type", stragglers="route")
            play([("a", 15, 1)], rows[:cut])
            assert play(versions=rows[cut:], watermark=20) == [("a", 15, "new")]
            assert play.late == []
            assert play.counts.rejected == 0


@pytest.mark.parametrize(
    ("time", "value"), [(9, None), (10, "one"), (14.999999, "one"), (15, None)]
)
def test_a_version_is_not_in_effect_at_its_end(time: float, value: str | None) -> None:
    play = Played("until", until="until")
    assert play([("a", time, 1)], [(*ONE, 15)], watermark=100) == [("a", time, value)]


def test_a_higher_sequence_closes_an_open_validity() -> None:
    play = Played("until", until="until")
    versions = [("a", 10, 1, "one", None), ("a", 10, 2, "one", 20)]
    facts = [("a", 19, 1), ("a", 20, 1)]
    assert play(facts, versions, watermark=100) == [("a", 19, "one"), ("a", 20, None)]


@pytest.mark.parametrize(("time", "value"), [(10, "one"), (15, "one"), (15.000001, None)])
def test_a_version_older_than_the_tolerance_does_not_match(time: float, value: str | None) -> None:
    play = Played(tolerance="5 seconds")
    assert play([("a", time, 1)], [ONE], watermark=100) == [("a", time, value)]


def test_a_key_is_evicted_once_its_newest_version_is_older_than_the_tolerance() -> None:
    play = Played(tolerance="5 seconds")
    play(versions=[ONE], watermark=14.999999)
    assert play.stored == (1, 0)
    assert AsofCore().next_deadline(play.spec, play.state) == 15 * SECOND
    assert play([("a", 15.000001, 1)], watermark=15) == []
    assert play.stored == (0, 1)
    assert play(watermark=20) == [("a", 15.000001, None)]


# Duplicates and contradictions.


def test_a_duplicate_version_has_no_effect() -> None:
    play = Played(stragglers="route")
    assert play([("a", 15, 1)], [ONE, ONE]) == []
    assert play(versions=[ONE], watermark=20) == [("a", 15, "one")]
    assert (play.late, play.stored) == ([], (1, 0))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_which_of_two_conflicting_versions_is_effective_does_not_depend_on_arrival(
    order: tuple[int, int], cut: int
) -> None:
    versions = [[("a", 10, 1, "x"), ("a", 10, 1, "y")][i] for i in order]
    play = Played(stragglers="route")
    play([("a", 15, 1)], versions[:cut])
    rejected, late = play.counts.rejected, play.late
    assert play(versions=versions[cut:], watermark=20) == [("a", 15, "y")]
    assert [*late, *play.late] == [("right", "conflicting_version", None, "x")]
    assert rejected + play.counts.rejected == 1


def test_deletes_with_other_values_are_duplicates() -> None:
    play = Played("gone", deleted="gone", stragglers="route")
    deleted = [("a", 10, 1, "x", True), ("a", 10, 1, None, True)]
    assert play([("a", 15, 1)], deleted, watermark=20) == [("a", 15, None)]
    assert (play.counts.rejected, play.late) == (0, [])


def test_a_version_is_effective_over_a_delete_of_its_sequence() -> None:
    play = Played("gone", deleted="gone", stragglers="route")
    rows = [("a", 10, 1, "x", True), ("a", 10, 1, "x", False)]
    assert play([("a", 15, 1)], rows, watermark=20) == [("a", 15, "x")]
    assert play.late == [("right", "conflicting_version", None, "x")]


def test_versions_without_an_order_of_values_conflict_as_well() -> None:
    table = pa.schema([*bound().table, ("tags", pa.map_(pa.string(), pa.int64()))])
    spec = bound_to(FACTS, table)
    versions = [(*ONE, [("x", 1)]), (*ONE, [("x", 2)]), (*ONE, [("x", 2)])]
    outputs = set()
    for rows in (versions, versions[::-1]):
        step = AsofCore().step(
            spec,
            State.empty(AsofCore().layout(spec)),
            packed(spec, [("a", 15, 1)], rows),
            20 * SECOND,
        )
        outputs.add(str(step.output.to_pylist()))
        assert step.metrics.rejected in (1, 2)
        assert len(step.output) == 1
    assert len(outputs) == 1


def test_a_late_conflicting_version_is_emitted_once() -> None:
    play = Played(stragglers="route", allowed_lateness="5 seconds")
    play(versions=[ONE, ("b", 47, 1, "two")], watermark=50)
    late = [("a", 10, 1, "less"), ("b", 47, 1, "less"), ("b", 48, 1, "good")]
    play(versions=late, watermark=50)
    assert play.late == [
        ("right", "conflicting_version", None, "less"),
        ("right", "conflicting_version", None, "less"),
        ("right", "straggler", 2.0, "good"),
    ]
    assert play.counts == Metrics(rows=3, rejected=2, stragglers=1)


def test_conflicts_are_resolved_by_columns_in_the_order_of_their_names() -> None:
    # By "v", which stands left of it, the other one would be the greater.
    rows = [("a", 10, 1, "z", "less"), ("a", 10, 1, "b", "more")]
    for versions in (rows, rows[::-1]):
        play = Played("a")
        assert play([("a", 10, 1)], versions, watermark=10) == [("a", 10, "b")]


def test_a_stream_continues_with_columns_in_another_order() -> None:
    arguments = {"late_versions": "retract", "allowed_lateness": "1 hour", "stragglers": "route"}
    play = Played("a", **arguments)
    facts, versions = [("a", 15, 1), ("a", 60, 2)], [(*ONE, "less")]
    assert play(facts, versions, watermark=50) == [("insert", "a", 15, "one")]
    turned = (pa.schema(list(schema)[::-1]) for schema in (play.spec.facts, play.spec.table))
    other = bound_to(*turned, **arguments)
    assert other.identity == play.spec.identity
    assert AsofCore().layout(other) == AsofCore().layout(play.spec)
    play.spec = other
    again = [("more", "zero", 1, 10, "a"), ("less", "late", 1, None, "a")]
    assert play(versions=again, watermark=70) == [
        ("insert", "a", 60, "zero"),
        ("update_postimage", "a", 15, "zero"),
        ("update_preimage", "a", 15, "one"),
    ]
    assert play.late == [
        ("right", "conflicting_version", None, "one"),
        ("right", "null_time", None, "late"),
    ]


# Late rows.


def test_a_fact_at_the_watermark_is_late_and_a_microsecond_above_it_on_time() -> None:
    play = Played(stragglers="route")
    play(versions=[ONE], watermark=50)
    assert play([("a", 50, 1), ("a", 50.000001, 2)], watermark=60) == [("a", 50.000001, "one")]
    assert play.late == [("left", "too_late", 0.0, 1)]
    assert play.counts == Metrics(rows=2, on_time=1, too_late=1, results=1)


def test_a_straggler_is_joined_with_the_version_in_effect_at_its_time() -> None:
    play = Played(stragglers="answer", allowed_lateness="30 seconds", too_late="route")
    play(versions=[ONE, TWO, ("a", 60, 1, "three")], watermark=45)
    assert play.stored == (3, 0)  # "one" was in effect 30 seconds ago
    assert play([("a", 16, 1), ("a", 15, 2)], watermark=50) == [("a", 16, "one")]
    assert play.late == [("left", "too_late", 30.0, 2)]
    assert play.counts == Metrics(rows=2, stragglers=1, too_late=1, results=1)
    assert play.stored == (2, 0)  # by now it was "two"


def test_stragglers_are_dropped_or_routed() -> None:
    for word, late in (("drop", []), ("route", [("left", "straggler", 5.0, 1)])):
        play = Played(stragglers=word, allowed_lateness="30 seconds")
        play(versions=[ONE], watermark=50)
        assert play([("a", 45, 1)], watermark=60) == []
        assert play.late == late
        assert play.counts == Metrics(rows=1, stragglers=1)


def test_ignored_late_versions_change_later_results_only() -> None:
    play = Played()
    assert play([("a", 30, 1), ("a", 60, 2)], [ONE], watermark=50) == [("a", 30, "one")]
    assert play(versions=[TWO], watermark=60) == [("a", 60, "two")]
    assert play.counts == Metrics(rows=1, too_late=1, results=1)


def test_a_late_version_revises_the_results_that_it_changes() -> None:
    play = Played(late_versions="retract", allowed_lateness="60 seconds")
    first = play([("a", 15, 1), ("a", 25, 2), ("a", 45, 3)], [ONE, ("a", 40, 1, "x")], watermark=50)
    assert first == [
        ("insert", "a", 15, "one"),
        ("insert", "a", 25, "one"),
        ("insert", "a", 45, "x"),
    ]
    assert play(versions=[TWO], watermark=50) == [
        ("update_postimage", "a", 25, "two"),
        ("update_preimage", "a", 25, "one"),
    ]
    assert play.counts == Metrics(rows=1, stragglers=1, corrections=1)


def test_a_result_is_final_once_the_watermark_is_the_allowed_lateness_past_it() -> None:
    play = Played(late_versions="retract", allowed_lateness="10 seconds", too_late="route")
    play([("a", 15, 1), ("a", 15.000001, 2)], [ONE], watermark=25)
    assert play.stored == (1, 1)
    assert play(versions=[("a", 12, 1, "late")], watermark=30) == [
        ("update_postimage", "a", 15.000001, "late"),
        ("update_preimage", "a", 15.000001, "one"),
    ]
    # It counts for pending results, and its row in the side output states that final ones missed it.
    assert play.late == [("right", "too_late", 13.0, "late")]
    assert play.stored == (1, 0)


def test_a_late_version_or_delete_can_add_or_remove_a_row_of_an_inner_join() -> None:
    play = Played(
        "gone", deleted="gone", how="inner", late_versions="retract", allowed_lateness="1 hour"
    )
    assert play([("a", 15, 1)], watermark=50) == []
    assert play.stored == (0, 1)
    assert play(versions=[(*ONE, False)], watermark=50) == [("insert", "a", 15, "one")]
    assert play.counts == Metrics(rows=1, stragglers=1, corrections=1)
    assert play(versions=[("a", 10, 2, None, True)], watermark=50) == [("delete", "a", 15, "one")]
    assert play.counts == Metrics(rows=1, stragglers=1)


def test_a_conflicting_version_that_is_greater_revises_the_result() -> None:
    play = Played(late_versions="retract", allowed_lateness="1 hour")
    assert play([("a", 15, 1)], [ONE], watermark=50) == [("insert", "a", 15, "one")]
    assert play(versions=[("a", 10, 1, "greater")], watermark=50) == []  # it does not count
    assert play.counts == Metrics(rows=1, rejected=1)
    assert play(versions=[("a", 10, 1, "two")], watermark=50) == [
        ("update_postimage", "a", 15, "two"),
        ("update_preimage", "a", 15, "one"),
    ]
    assert play.counts == Metrics(rows=1, rejected=1, corrections=1)


def test_equal_facts_are_retracted_one_by_one() -> None:
    play = Played(late_versions="retract", allowed_lateness="1 hour")
    play([("a", 15, 1)] * 3, [ONE], watermark=50)
    changes = play(versions=[("a", 12, 1, "new")], watermark=50)
    assert (
        changes
        == [("update_postimage", "a", 15, "new")] * 3 + [("update_preimage", "a", 15, "one")] * 3
    )


def test_a_late_version_that_changes_no_result_emits_nothing() -> None:
    play = Played(late_versions="retract", allowed_lateness="1 hour")
    play([("a", 45, 1)], [ONE, TWO], watermark=50)
    assert play(versions=[("a", 15, 1, "between")], watermark=50) == []
    assert play(versions=[TWO], watermark=50) == []


def test_versions_behind_the_watermark_of_the_facts_are_late() -> None:
    play = Played(waits_for="facts", stragglers="route")
    assert play.spec.right.time is None
    assert play([("a", 15, 1)], watermark=20) == [("a", 15, None)]
    assert play([("a", 30, 1)], [ONE], watermark=40) == [("a", 30, "one")]
    assert play.late == [("right", "too_late", 10.0, "one")]


def test_late_rows_without_effect_are_counted_and_not_routed() -> None:
    play = Played("_change_type", stragglers="route")
    play(watermark=50)
    preimage, keyless = ("a", 10, 1, "x", "update_preimage"), (None, 10, 1, "x", "insert")
    play(versions=[preimage, keyless], watermark=50)
    assert (play.counts, play.late) == (Metrics(rows=2, too_late=2), [])


def test_a_tombstone_has_no_effect_whatever_its_values() -> None:
    play = Played("_change_type", "_tombstone", stragglers="route")
    tombstones = [("a", None, None, None, None, True), ("a", 20, 9, "two", "insert", True)]
    versions = [(*ONE, "insert", None), ("b", None, 1, "x", "insert", False)]
    assert play([("a", 25, 1)], [*tombstones, *versions], watermark=30) == [("a", 25, "one")]
    assert play.late == [("right", "null_time", None, "x")]
    assert play.counts == Metrics(rows=5, rejected=1, on_time=4, results=1)
    assert play.stored == (1, 0)
    assert "_tombstone" not in play.spec.output.names


# What cannot be placed.


def test_invalid_rows_are_routed_with_the_reason() -> None:
    play = Played("until", "_change_type", until="until", stragglers="route")
    facts = [("a", None, 1), ("a", 15, 2)]
    versions = [
        ("a", None, 1, "time", None, "insert"),
        ("a", 10, None, "sequence", None, "insert"),
        ("a", 10, 1, "until", 9, "insert"),
        ("a", 10, 1, "change", None, "upsert"),
        ("a", 10, 1, "null", None, None),
        ("a", 10, 1, "good", 10, "insert"),
    ]
    assert play(facts, versions, watermark=20) == [("a", 15, None)]
    assert play.late == [
        ("left", "null_time", None, 1),
        ("right", "null_sequence", None, "sequence"),
        ("right", "null_time", None, "time"),
        ("right", "unknown_change_type", None, "change"),
        ("right", "unknown_change_type", None, "null"),
        ("right", "until_before_version", None, "until"),
    ]
    assert play.counts == Metrics(rows=8, rejected=6, on_time=2, results=1)
    silent = Played("until", "_change_type", until="until")
    silent(facts, versions, watermark=20)
    assert (silent.counts, silent.late) == (play.counts, [])


def test_times_outside_of_the_calendar_are_rejected() -> None:
    spec = bound(stragglers="route")
    left = pa.table([["a"], pa.array([2**62]).cast(INSTANT), [1]], schema=spec.facts)
    left, nothing = (
        AsofCore().pack(spec, left, "left"),
        State.empty(AsofCore().layout(spec)).tables["versions"],
    )
    step = AsofCore().step(spec, State.empty(AsofCore().layout(spec)), [left, nothing], None)
    assert step.metrics == Metrics(rows=1, rejected=1)
    assert step.late.column("late")[0]["reason"].as_py() == "time_out_of_range"


# Borders.


def test_times_before_1970_and_in_the_year_9999() -> None:
    play = Played()
    versions = [("a", -100, 1, "old"), ("a", 253_402_300_799, 1, "last")]
    facts = [("a", -50, 1), ("a", 253_402_300_799.5, 2), ("a", -101, 3)]
    play(facts, versions)
    assert play.finish() == [
        ("a", -101, None),
        ("a", -50, "old"),
        ("a", 253_402_300_799.5, "last"),
    ]


def test_empty_inputs_give_an_empty_output() -> None:
    play = Played()
    assert play() == []
    assert play(watermark=10) == []
    assert play.finish() == []
    assert AsofCore().next_deadline(play.spec, play.state) is None


def test_columns_of_any_type_pass_through_unchanged() -> None:
    columns = {
        "map": (pa.map_(pa.string(), pa.int64()), [[("x", 1)], None]),
        "struct": (pa.struct([("f", pa.list_(pa.int64()))]), [{"f": [1, None]}, None]),
        "decimal": (pa.decimal128(38, 3), [Decimal("0.001"), None]),
        "binary": (pa.binary(), [b"\0", None]),
        "ntz": (pa.timestamp("us"), [5, None]),
    }
    extra = [(name, dtype) for name, (dtype, _) in columns.items()]
    facts, table = pa.schema([*FACTS, *extra]), pa.schema([*bound().table, *extra])
    spec = bound_to(facts, table, late_versions="retract")
    given = [values[0] for _, values in columns.values()]
    left = rows_as(facts, [("a", 15, 1, *given), ("b", 15, 2)])
    right = rows_as(table, [(*ONE, *given)])
    packs = AsofCore().pack(spec, left, "left"), AsofCore().pack(spec, right, "right")
    step = AsofCore().step(spec, State.empty(AsofCore().layout(spec)), packs, 20 * SECOND)
    for row in step.output.to_pylist():
        for name, (dtype, _) in columns.items():
            value = left.column(name)[row["n"] - 1].as_py()
            assert row[name] == value, dtype
            assert row[f"{name}_right"] == (value if row["k"] == "a" else None)


def test_waiting_facts_are_joined_at_the_end_of_the_stream() -> None:
    play = Played()
    assert play([("a", 15, 1)], [ONE], watermark=12) == []
    assert play.finish() == [("a", 15, "one")]
    assert (play.spec.lag, play.spec.held_back) == (0, 0)


def test_an_invalid_state_is_printed() -> None:
    play = Played()
    play([("a", 15, 1)], [ONE], watermark=12)
    overdue = State(16 * SECOND, play.state.tables)
    with pytest.raises(AssertionError, match="facts overdue: watermark 16000000"):
        AsofCore().check(play.spec, overdue)


def test_in_a_batch_nothing_is_late() -> None:
    spec = bound()
    answered = (
        AsofCore()
        .run(spec, packed(spec, [("a", 15, 1), ("a", 5, 2), ("a", 25, 3)], [TWO, ONE]))
        .rows
    )
    assert set(results_of(answered)) == {("a", 5, None), ("a", 15, "one"), ("a", 25, "two")}


# Directions.


LOOK: dict[str, object] = {"direction": "forward", "tolerance": "10 seconds"}
THREE = [("a", 10, 1, "ten"), ("a", 20, 1, "twenty"), ("a", 30, 1, "thirty")]


@pytest.mark.parametrize(
    ("direction", "allow_exact", "expected"),
    [
        ("backward", True, {9: None, 10: "ten", 14: "ten", 15: "ten", 16: "ten", 20: "twenty"}),
        ("backward", False, {9: None, 10: None, 14: "ten", 15: "ten", 16: "ten", 20: "ten"}),
        ("forward", True, {9: "ten", 10: "ten", 14: "twenty", 20: "twenty", 31: None}),
        ("forward", False, {9: "ten", 10: "twenty", 14: "twenty", 20: "thirty", 30: None}),
        ("nearest", True, {9: "ten", 10: "ten", 14: "ten", 15: "ten", 16: "twenty", 31: "thirty"}),
        ("nearest", False, {9: "ten", 10: "twenty", 15: "ten", 20: "ten", 26: "thirty"}),
    ],
)
def test_the_direction_selects_the_version(
    direction: str, allow_exact: bool, expected: dict[int, str | None]
) -> None:
    play = Played(direction=direction, allow_exact=allow_exact, tolerance="10 seconds")
    facts = [("a", time, 1) for time in expected]
    answers = {time: value for _, time, value in play(facts, THREE, watermark=1_000)}
    assert answers == expected


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_with_a_forward_search_a_fact_waits_for_the_watermark_to_pass_its_tolerance(
    direction: str,
) -> None:
    play = Played(direction=direction, tolerance="10 seconds")
    assert play([("a", 15, 1)], [("a", 24, 1, "later")], watermark=24.999999) == []
    assert play(versions=[("a", 18, 1, "sooner")], watermark=24.999999) == []
    assert play(watermark=25) == [("a", 15, "sooner")]


@pytest.mark.parametrize(("time", "value"), [(4.999999, None), (5, "one"), (10, "one")])
def test_a_later_version_is_too_far_away_a_microsecond_beyond_the_tolerance(
    time: float, value: str | None
) -> None:
    play = Played(direction="forward", tolerance="5 seconds")
    assert play([("a", time, 1)], [ONE], watermark=20) == [("a", time, value)]


def test_a_forward_search_over_deletes_alone_finds_nothing() -> None:
    play = Played("gone", deleted="gone", **LOOK)
    assert play([("a", 15, 1)], [("a", 20, 1, None, True)], watermark=40) == [("a", 15, None)]


def test_a_forward_search_skips_deletes_and_a_backward_one_does_not() -> None:
    rows = [("a", 10, 1, "old", False), ("a", 20, 2, None, True), ("a", 30, 3, "new", False)]
    found = {}
    for direction in ("backward", "forward", "nearest"):
        play = Played("gone", deleted="gone", direction=direction, tolerance="20 seconds")
        (answer,) = play([("a", 21, 1)], rows, watermark=100)
        found[direction] = answer[2]
    # The nearest version with a value is "new": nothing held at 21, so "old" is no candidate.
    assert found == {"backward": None, "forward": "new", "nearest": "new"}


def test_a_delete_hides_a_version_of_its_instant_from_a_forward_search() -> None:
    rows = [("a", 20, 1, "x", False), ("a", 20, 2, None, True), ("a", 25, 1, "y", False)]
    play = Played("gone", deleted="gone", **LOOK)
    assert play([("a", 18, 1)], rows, watermark=100) == [("a", 18, "y")]


def test_a_validity_ends_the_older_of_two_near_versions() -> None:
    rows = [("a", 10, 1, "old", 12), ("a", 20, 1, "empty", 20), ("a", 22, 1, "new", None)]
    play = Played("until", until="until", direction="nearest", tolerance="10 seconds")
    facts = [("a", 11, 1), ("a", 12, 2), ("a", 13, 3)]
    expected = [("a", 11, "old"), ("a", 12, "new"), ("a", 13, "new")]
    assert play(facts, rows, watermark=100) == expected


def test_of_several_versions_at_one_instant_the_last_by_sequence_is_joined() -> None:
    rows = [("a", 20, 1, "first"), ("a", 20, 2, "second")]
    for direction in ("forward", "nearest"):
        play = Played(direction=direction, tolerance="10 seconds")
        assert play([("a", 18, 1)], rows, watermark=100) == [("a", 18, "second")]


def test_a_forward_join_stores_no_version_below_the_waiting_facts() -> None:
    play = Played(**LOOK)
    play([("a", 25, 1)], THREE, watermark=30)
    assert play.stored == (1, 1)  # a waiting fact can be as far below the watermark as 20
    assert play(watermark=35) == [("a", 25, "thirty")]
    assert play.stored == (1, 0)
    play(watermark=40)
    assert play.stored == (0, 0)


def test_a_late_version_counts_for_waiting_facts() -> None:
    play = Played(**LOOK)
    play([("a", 15, 1)], [("b", 20, 1, "b")], watermark=20)
    assert play(versions=[("a", 18, 1, "late")], watermark=25) == [("a", 15, "late")]
    assert play.counts == Metrics(rows=1, stragglers=0, too_late=1, results=1)


def test_a_late_version_revises_a_result_of_a_forward_search() -> None:
    late: dict[str, object] = {"late_versions": "retract", "allowed_lateness": "20 seconds"}
    play = Played(**LOOK, **late)
    given = play([("a", 15, 1)], [("a", 24, 1, "later")], watermark=25)
    assert given == [("insert", "a", 15, "later")]
    assert play(versions=[("a", 18, 1, "sooner")], watermark=44) == [
        ("update_postimage", "a", 15, "sooner"),
        ("update_preimage", "a", 15, "later"),
    ]
    # Its answer is final once the watermark is beyond the tolerance and the lateness.
    play(watermark=45)
    assert play(versions=[("a", 17, 1, "too late")], watermark=45) == []
    assert play.stored == (3, 0)  # facts after 15 can still find these versions
    play(watermark=54)
    assert play.stored == (0, 0)


def test_with_a_forward_search_a_straggler_waits_as_well() -> None:
    play = Played(**LOOK, stragglers="answer", allowed_lateness="20 seconds")
    play(versions=[("a", 18, 1, "x")], watermark=20)
    assert play([("a", 15, 1)], watermark=20) == []
    assert play.counts == Metrics(rows=1, stragglers=1)
    assert play(watermark=25) == [("a", 15, "x")]
    assert play([("a", 6, 1), ("a", 8, 2)], watermark=25) == [("a", 6, None), ("a", 8, "x")]


def test_in_a_batch_a_forward_search_needs_no_tolerance() -> None:
    spec = bound(direction="forward")
    assert results_of(
        AsofCore().run(spec, packed(spec, [("a", 1, 1), ("a", 21, 2)], [TWO, ONE])).rows
    ) == [
        ("a", 1, "one"),
        ("a", 21, None),
    ]
