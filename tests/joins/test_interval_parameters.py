"""Parameters of interval joins, and the errors of invalid ones."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError
from streamops.kernel.lateness import late_field
from streamops.spark.drive import resolve
from tests.joins.inputs import delays
from tests.time.test_parameters import FakeFrame

UTC = pa.timestamp("us", tz="UTC")
SEARCHES = pa.schema(
    [("query", pa.string()), ("searched_at", UTC), ("text", pa.string()), ("day", pa.date32())]
)
CLICKS = pa.schema(
    [
        ("search", pa.string()),
        ("clicked_at", UTC),
        ("text", pa.string()),
        ("click_id", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("number", pa.int32()),
    ]
)
ARGUMENTS: dict[str, Any] = {
    "by": {"query": "search"},
    "time": ("searched_at", "clicked_at"),
    "delay": "1 minute",
}
MINUTE = 60_000_000


def settings(lower: Any = "0 seconds", upper: Any = "1 hour", **arguments: Any) -> IntervalSpec:
    made = joins.interval(None, lower, upper, **(ARGUMENTS | arguments)).parameters
    assert isinstance(made, IntervalSpec)
    return made


def bound(
    left: pa.Schema = SEARCHES,
    right: pa.Schema = CLICKS,
    carried: tuple[int | None, int | None] = (None, None),
    **arguments: Any,
) -> IntervalSpec:
    options = ARGUMENTS | {"lower": "0 seconds", "upper": "1 hour"} | arguments
    lower, upper = options.pop("lower"), options.pop("upper")
    spec = resolve(joins.interval(None, lower, upper, **options), (left, right), carried)
    assert isinstance(spec, IntervalSpec)
    return spec


def refused(error: type[StreamopsError], **arguments: Any) -> Any:
    with pytest.raises(error) as caught:
        bound(**arguments)
    return caught.value


# Valid arguments.


def test_bounds_are_durations_that_may_be_negative() -> None:
    made = settings("-90 minutes", dt.timedelta(microseconds=-1))
    assert (made.lower, made.upper) == (-90 * MINUTE, -1)


def test_names_of_keys_and_times_may_differ() -> None:
    assert settings(by="k").by == (("k", "k"),)
    assert settings(by=["a", "b"]).by == (("a", "a"), ("b", "b"))
    assert settings(by={"a": "x", "b": "y"}).by == (("a", "x"), ("b", "y"))
    assert settings(time="ts").times == ("ts", "ts")


def test_one_delay_applies_to_both_sides_and_either_may_be_omitted() -> None:
    assert delays(settings()) == (MINUTE, MINUTE)
    assert delays(settings(delay=("1 second", "2 seconds"))) == (1_000_000, 2_000_000)
    assert delays(settings(delay=("1 second", None))) == (1_000_000, None)
    assert delays(settings(delay=None)) == (None, None)


def test_the_repr_shows_the_arguments_as_the_user_wrote_them() -> None:
    formatted = repr(joins.interval(None, "-5 minutes", "1 hour", **ARGUMENTS, how="left"))
    assert formatted == (
        "joins.interval(lower='-5 minutes', upper='1 hour', by={'query': 'search'}, "
        "time=('searched_at', 'clicked_at'), how='left', delay='1 minute')"
    )
    arguments: dict[str, Any] = {"by": ["a", "b"], "time": "ts", "delay": ("1 second", None)}
    alike = joins.interval(None, "0 seconds", "1 hour", **arguments)
    assert "by=['a', 'b'], time='ts'" in repr(alike)
    assert "delay=('1 second', None)" in repr(alike)


def test_the_output_has_both_sides_without_the_right_keys_and_a_status() -> None:
    spec = bound()
    names = ["query", "searched_at", "text", "day"]
    joined = ["clicked_at", "text_right", "click_id", "tags", "number"]
    assert spec.output.names == [*names, *joined, "status"]
    assert spec.origins["text_right"] == (1, "text")
    assert spec.origins["query"] == (0, "query")
    assert bound(how="semi").output.names == [*names, "status"]
    assert bound(stragglers="retract").output.names[-2:] == ["status", "_change_type"]
    assert bound(stragglers="route", into="is").output.names[-2:] == ["is", "late"]
    assert bound(stragglers="route").output.field("late") == late_field(SEARCHES, CLICKS)


def test_only_the_needed_columns_of_the_right_are_read() -> None:
    assert bound(how="anti").right.schema.names == ["search", "clicked_at"]
    assert bound(how="anti", stragglers="route").right.schema == CLICKS
    assert bound().right.schema == CLICKS


def test_the_watermark_is_held_back_for_delayed_results() -> None:
    minutes = {"lower": "-2 minutes", "upper": "5 minutes", "allowed_lateness": "1 second"}
    assert (bound(**minutes).event_time, bound(**minutes).lag) == ("searched_at", 301_000_000)
    right = bound(**minutes, how="right")
    assert (right.event_time, right.lag) == ("clicked_at", 121_000_000)
    full = bound(**minutes, how="full")
    assert (full.event_time, full.lag) == (None, 1_000_000)
    for how in ("left", "right", "full", "inner", "semi", "anti"):
        assert (
            settings("-2 minutes", "5 minutes", how=how).lag
            == bound(lower="-2 minutes", upper="5 minutes", how=how).lag
        )
    fine = bound(upper=dt.timedelta(microseconds=1_001))
    assert fine.lag == 2_000  # whole milliseconds, as Spark's watermark


def test_a_watermark_of_a_frame_is_passed_on_only_if_no_result_is_behind_it() -> None:
    brought = bound(carried=(MINUTE, None))
    assert (brought.event_time, brought.lag) == (None, 0)
    assert (brought.left.delay, brought.right.delay) == (None, MINUTE)
    before = bound(carried=(MINUTE, MINUTE), lower="-1 hour", upper="0 seconds")
    assert (before.event_time, before.lag) == ("searched_at", 0)


def test_a_time_that_is_a_key_has_its_left_name() -> None:
    spec = bound(by={"query": "search", "searched_at": "clicked_at"}, how="right")
    assert spec.event_time == "searched_at"


def test_how_long_rows_are_stored() -> None:
    arguments = {"lower": "-2 minutes", "upper": "5 minutes", "allowed_lateness": "1 minute"}
    spec = bound(**arguments)
    assert (spec.retention("left"), spec.retention("right")) == (5 * MINUTE, 2 * MINUTE)
    spec = bound(**arguments, stragglers="retract")
    assert (spec.retention("left"), spec.retention("right")) == (6 * MINUTE, 3 * MINUTE)
    spec = bound(**arguments, matches="last", tie_break="click_id")
    assert (spec.retention("left"), spec.retention("right")) == (5 * MINUTE, 7 * MINUTE)


def test_the_delay_is_not_part_of_a_checkpoint_and_the_bounds_are() -> None:
    assert bound().identity == bound(delay="5 minutes").identity
    assert bound().identity != bound(upper="2 hours").identity
    turned = pa.schema(reversed(list(SEARCHES)))
    assert bound().identity == bound(turned).identity
    assert bound().identity != bound(SEARCHES.append(pa.field("more", pa.int8()))).identity


# Invalid arguments.


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("PARAMETERS_CONTRADICT", {"lower": "2 hours"}),
        ("INVALID_DURATION", {"upper": "soon"}),
        ("INVALID_DURATION", {"upper": "1 month"}),
        ("INVALID_DURATION", {"upper": "9000000 days"}),
        ("INVALID_DURATION", {"delay": "-1 second"}),
        ("INVALID_DURATION", {"delay": ("1 second", dt.timedelta(microseconds=1))}),
        ("INVALID_DURATION", {"allowed_lateness": "-1 second"}),
        ("INVALID_DURATION", {"delay": ("1 second", "1 second", "1 second")}),
        ("UNKNOWN_CHOICE", {"how": "outer"}),
        ("UNKNOWN_CHOICE", {"matches": "best"}),
        ("UNKNOWN_CHOICE", {"stragglers": "update"}),
        ("UNKNOWN_CHOICE", {"too_late": "retract"}),
        ("UNKNOWN_CHOICE", {"early": True}),
        ("PARAMETER_TYPE", {"by": 5}),
        ("PARAMETER_TYPE", {"by": {"query": None}}),
        ("PARAMETER_TYPE", {"time": ("a", "b", "c")}),
        ("PARAMETER_TYPE", {"into": None}),
        ("PARAMETER_TYPE", {"matches": "first", "tie_break": 7}),
        ("PARAMETER_MISSING", {"by": []}),
        ("NAME_TAKEN", {"into": "Late"}),
        ("NAME_TAKEN", {"into": "_change_type", "stragglers": "retract"}),
        ("PARAMETER_WITHOUT_EFFECT", {"too_late": "route"}),
        ("PARAMETER_MISSING", {"matches": "first"}),
        ("PARAMETER_WITHOUT_EFFECT", {"tie_break": "click_id"}),
        ("PARAMETERS_CONTRADICT", {"matches": "last", "tie_break": "click_id", "how": "full"}),
        ("PARAMETERS_CONTRADICT", {"matches": "last", "tie_break": "click_id", "how": "semi"}),
        ("PARAMETER_WITHOUT_EFFECT", {"early": "every batch"}),
        ("PARAMETER_WITHOUT_EFFECT", {"early": "every batch", "how": "semi"}),
    ],
)
def test_contradicting_parameters_are_refused_before_a_frame_is_read(
    code: str, arguments: dict[str, Any]
) -> None:
    assert refused(SpecError, **arguments).code == code


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"by": {"Query": "search"}}, "'query'"),
        ({"by": {"query": "serach"}}, "'search'"),
        ({"time": ("searched_at", "click_at")}, "'clicked_at'"),
        ({"matches": "first", "tie_break": "clickid"}, "'click_id'"),
    ],
)
def test_a_column_that_does_not_exist_is_refused_with_the_nearest_name(
    arguments: dict[str, Any], named: str
) -> None:
    error = refused(ColumnNotFound, **arguments)
    assert named in error.fix
    assert ("left frame" in error.where) == ("Query" in str(arguments))


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("COLUMN_TYPE", {"time": ("day", "clicked_at")}),
        ("COLUMN_TYPE", {"time": ("searched_at", "click_id")}),
        ("COLUMN_TYPE", {"matches": "first", "tie_break": "tags"}),
        ("TYPE_UNSUPPORTED", {"by": {"query": "tags"}}),
        ("COLUMNS_DIFFER", {"by": {"query": "number"}}),
        ("NAME_TAKEN", {"into": "Text_Right"}),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(code: str, arguments: dict[str, Any]) -> None:
    assert refused(SchemaError, **arguments).code == code


@pytest.mark.parametrize(
    ("time", "fix"),
    [
        (("day", "clicked_at"), "df.withColumn('day', F.col('day').cast('timestamp_ltz'))"),
        (
            ("searched_at", "click_id"),
            "df.withColumn('click_id', F.timestamp_millis('click_id')) for milliseconds since 1970; "
            "timestamp_seconds, timestamp_micros for others",
        ),
    ],
)
def test_a_time_of_another_type_is_refused_with_its_conversion(
    time: tuple[str, str], fix: str
) -> None:
    assert refused(SchemaError, time=time).fix == fix


def test_a_column_with_the_name_of_an_added_one_is_refused() -> None:
    for name, arguments in (
        ("status", {}),
        ("_change_type", {"how": "left", "early": "every batch"}),
        ("LATE", {"stragglers": "route"}),
    ):
        error = refused(SchemaError, left=SEARCHES.append(pa.field(name, pa.string())), **arguments)
        assert error.code == "NAME_TAKEN"
    assert bound(SEARCHES.append(pa.field("status", pa.string())), into="match").into == "match"


def test_a_missing_right_frame_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        joins.interval(None, "0 seconds", "1 hour", **ARGUMENTS)(FakeFrame())  # type: ignore[arg-type]
    assert caught.value.code == "PARAMETER_MISSING"


def test_a_semi_join_has_no_column_of_the_right() -> None:
    spec = bound(how="semi")
    assert {side for side, _ in spec.origins.values()} == {0}
    assert {side for side, _ in bound(how="inner").origins.values()} == {0, 1}
