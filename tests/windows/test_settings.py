"""Parameters of tumbling and hopping windows, and the errors for mistakes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError, located
from streamops.kernel.grids import FixedGrid
from streamops.kernel.lateness import late_field
from streamops.kernel.parameters import not_an_instant
from streamops.kernel.versions import has_try_cast
from streamops.windows.core.grid_spec import FixedSpec

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("ts", UTC),
        ("origin", pa.string()),
        ("delay", pa.int64()),
        ("local", pa.timestamp("us")),
        ("text", pa.string()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("nested", pa.struct([("tags", pa.list_(pa.map_(pa.string(), pa.int64())))])),
        ("point", pa.struct([("x", pa.float64())])),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
    ]
)
ARGUMENTS: dict[str, Any] = {
    "time": "ts",
    "by": "origin",
    "agg": {"n": agg.count()},
    "delay": "30 minutes",
    "allowed_lateness": "0 seconds",
    "stragglers": "drop",
    "too_late": "drop",
    "origin": "0 seconds",
}

DURATIONS = ["size", "hop", "allowed_lateness", "delay", "origin", "empty_for"]


def settings(size: Any = "3 hours", hop: Any = "1 hour", **arguments: Any) -> FixedSpec:
    return windows.hopping(size, hop, **(ARGUMENTS | arguments)).parameters


def bound(schema: pa.Schema = SCHEMA, carried: int | None = None, **arguments: Any) -> FixedSpec:
    return settings(**arguments).resolve((schema,), carried=(carried,), shards=1)


def refused(
    error_type: type[StreamopsError], size: Any = "3 hours", hop: Any = "1 hour", **arguments: Any
) -> Any:
    with pytest.raises(error_type) as caught:
        settings(size, hop, **arguments)
    return caught.value


def refused_bound(error_type: type[StreamopsError], **arguments: Any) -> Any:
    with pytest.raises(error_type) as caught, located("windows.hopping"):
        bound(**arguments)
    return caught.value


# Valid parameters.


def test_durations_become_microseconds_and_names_become_tuples() -> None:
    assert settings(by="origin", allowed_lateness=dt.timedelta(hours=6)) == FixedSpec(
        operator="windows.hopping",
        time="ts",
        by=("origin",),
        agg=(("n", agg.count()),),
        delay=1_800_000_000,
        allowed_lateness=21_600_000_000,
        stragglers="drop",
        too_late="drop",
        early="never",
        empty_for=None,
        size=10_800_000_000,
        hop=3_600_000_000,
        origin=0,
    )


def test_keys_may_be_one_name_several_or_none() -> None:
    assert settings(by="origin").by == ("origin",)
    assert settings(by=["origin", "text"]).by == ("origin", "text")
    assert settings(by=()).by == ()


def test_a_delay_may_be_left_out_and_may_be_zero() -> None:
    assert settings(delay=None).delay is None
    assert settings(delay="0 seconds").delay == 0


@pytest.mark.parametrize(
    ("origin", "phase"),
    [
        ("0 seconds", 0),
        ("15 minutes", 900_000_000),
        ("-15 minutes", 2_700_000_000),
        ("25 hours", 0),
        (dt.timedelta(minutes=61), 60_000_000),
        (dt.datetime(2024, 3, 1, 8, 5, tzinfo=dt.UTC), 300_000_000),
        (dt.datetime(1969, 12, 31, 23, 55, tzinfo=dt.UTC), 3_300_000_000),
    ],
)
def test_an_origin_is_stored_as_its_offset_in_a_hop(origin: Any, phase: int) -> None:
    assert settings(origin=origin).origin == phase


def test_a_hop_of_the_size_is_allowed() -> None:
    assert settings("1 hour", "1 hour").hop == 3_600_000_000


@pytest.mark.parametrize("stragglers", ["drop", "route", "update", "retract"])
def test_every_policy_for_stragglers_is_accepted(stragglers: str) -> None:
    spec = settings(stragglers=stragglers, allowed_lateness="1 hour")
    assert spec.stragglers == stragglers


@pytest.mark.parametrize("stragglers", ["update", "retract"])
def test_corrections_need_stragglers_that_are_accepted(stragglers: str) -> None:
    assert str(refused(SpecError, stragglers=stragglers)) == (
        "[PARAMETER_MISSING] windows.hopping: no straggler would be accepted, so there is nothing "
        "to correct\n"
        f"  got:       stragglers={stragglers!r} with allowed_lateness='0 seconds'\n"
        "  expected:  a duration for which rows still correct a published result\n"
        '  fix:       for example allowed_lateness="1 hour"; or stragglers="drop"'
        "\n  see:       docs/errors.md#parameter_missing"
    )
    assert settings(stragglers=stragglers, early="every batch").early == "every batch"


def test_the_spec_reads_the_columns_it_needs_and_no_others() -> None:
    spec = bound(by=["origin"], agg={"mean": agg.mean("delay")})
    assert spec.input.names == ["ts", "origin", "delay"]
    assert spec.grid == FixedGrid(10_800_000_000, 3_600_000_000, 0)


def test_all_columns_are_read_if_rows_are_routed() -> None:
    assert bound(stragglers="route").input == SCHEMA
    late = {"allowed_lateness": "1 hour", "too_late": "route"}
    assert bound(stragglers="update", **late).input == SCHEMA


def test_a_frame_with_a_watermark_brings_its_own_delay() -> None:
    assert bound(carried=60_000_000, delay=None).delay is None
    assert bound(carried=None).delay == 1_800_000_000


def test_the_output_is_keys_window_and_aggregates() -> None:
    assert bound(by=["origin", "point"]).output == pa.schema(
        [
            ("origin", pa.string()),
            ("point", pa.struct([("x", pa.float64())])),
            ("window_start", UTC),
            ("window_end", UTC),
            ("n", pa.int64()),
        ]
    )


def test_corrections_add_a_revision_and_retractions_a_change_type() -> None:
    late = {"allowed_lateness": "1 hour"}
    assert bound(stragglers="update", **late).output.names[-2:] == ["n", "revision"]
    assert bound(stragglers="retract", **late).output.names[-2:] == ["revision", "_change_type"]
    assert bound(stragglers="update", **late).output.field("revision").type == pa.int32()


def test_early_results_add_a_revision_and_their_timing() -> None:
    assert bound(early="every batch").output.names[-3:] == ["n", "revision", "timing"]
    names = bound(early="every batch", stragglers="retract", too_late="route").output.names
    assert names[-4:] == ["revision", "timing", "_change_type", "late"]


def test_routing_adds_a_column_for_late_rows() -> None:
    assert bound(stragglers="route").output.field("late") == late_field(SCHEMA)


def test_the_operators_watermark_is_the_event_time_of_a_window() -> None:
    assert bound().event_time == "window_end"


# What a checkpoint depends on.


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": "4 hours"},
        {"hop": "30 minutes"},
        {"origin": "15 minutes"},
        {"by": "text"},
        {"by": ["origin", "text"]},
        {"by": ()},
        {"agg": {"m": agg.count()}},
        {"agg": {"n": agg.count("delay")}},
        {"agg": {"n": agg.sum("delay")}},
        {"allowed_lateness": "1 hour"},
        {"stragglers": "route"},
        {"stragglers": "update", "allowed_lateness": "1 hour"},
        {"early": "every batch"},
        {"empty_for": "1 day"},
    ],
)
def test_another_parameter_is_another_identity(arguments: dict[str, Any]) -> None:
    assert bound(**arguments).identity != bound().identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (agg.min("delay"), agg.max("delay")),
        (agg.first("text", tie_break="delay"), agg.last("text", tie_break="delay")),
        (agg.sum("delay"), agg.mean("delay")),
        (agg.min("delay"), agg.min("text")),
        (agg.first("text", tie_break="delay"), agg.first("text", tie_break="origin")),
    ],
    ids=str,
)
def test_another_aggregate_is_another_identity(one: agg.Aggregate, other: agg.Aggregate) -> None:
    assert bound(agg={"x": one}).identity != bound(agg={"x": other}).identity


def test_another_event_time_is_another_identity() -> None:
    schema = SCHEMA.append(pa.field("arrived", UTC))
    assert bound(schema, time="arrived").identity != bound(schema).identity


def test_another_type_of_a_key_is_another_identity() -> None:
    number = SCHEMA.set(1, pa.field("origin", pa.int64()))
    assert bound(number).identity != bound().identity


def test_the_same_grid_in_another_spelling_has_the_same_identity() -> None:
    assert bound(origin="1 hour", hop="60 minutes").identity == bound().identity


def test_the_delay_is_not_part_of_the_identity() -> None:
    assert bound(delay="5 minutes").identity == bound().identity


# Mistakes.


@pytest.mark.parametrize("parameter", ["size", "hop", "empty_for"])
@pytest.mark.parametrize("value", ["0 seconds", "-1 hour", dt.timedelta(0)])
def test_a_length_that_is_not_positive_is_refused(parameter: str, value: Any) -> None:
    error = refused(SpecError, **{parameter: value})
    assert str(error) == (
        f"[INVALID_DURATION] windows.hopping: `{parameter}` is too small\n"
        f"  got:       {parameter}={value!r}\n"
        "  expected:  at least 1 microsecond\n"
        f'  fix:       pass a larger duration, such as {parameter}="1 minute"'
        "\n  see:       docs/errors.md#invalid_duration"
    )


@pytest.mark.parametrize("parameter", ["allowed_lateness", "delay"])
def test_a_negative_delay_is_refused(parameter: str) -> None:
    error = refused(SpecError, **{parameter: "-1 second"})
    assert str(error) == (
        f"[INVALID_DURATION] windows.hopping: `{parameter}` is too small\n"
        f"  got:       {parameter}='-1 second'\n"
        "  expected:  at least 0 seconds\n"
        f'  fix:       pass a larger duration, such as {parameter}="1 minute"'
        "\n  see:       docs/errors.md#invalid_duration"
    )


@pytest.mark.parametrize("parameter", ["allowed_lateness", "delay"])
def test_a_delay_finer_than_a_millisecond_is_refused(parameter: str) -> None:
    error = refused(SpecError, **{parameter: "1500 microseconds"})
    assert str(error) == (
        f"[INVALID_DURATION] windows.hopping: `{parameter}` is finer than the engine can honour\n"
        f"  got:       {parameter}='1500 microseconds'\n"
        "  expected:  a multiple of 1 millisecond\n"
        "  fix:       round it: Spark keeps its watermark in whole milliseconds"
        "\n  see:       docs/errors.md#invalid_duration"
    )


@pytest.mark.parametrize("parameter", DURATIONS)
def test_a_month_is_not_a_fixed_duration(parameter: str) -> None:
    error = refused(SpecError, **{parameter: "1 month"})
    assert str(error) == (
        f"[INVALID_DURATION] windows.hopping: `{parameter}` must be a fixed duration, "
        "and a month is not one\n"
        f"  got:       {parameter}='1 month'\n"
        "  expected:  weeks, days, hours, minutes, seconds, milliseconds, microseconds\n"
        '  fix:       a fixed length, such as "30 days"; months of a calendar are those of a time '
        'zone: windows.calendar("month", zone)'
        "\n  see:       docs/errors.md#invalid_duration"
    )


@pytest.mark.parametrize("parameter", DURATIONS)
@pytest.mark.parametrize("value", ["soon", 60, 1.5])
def test_what_is_not_a_duration_is_refused(parameter: str, value: Any) -> None:
    error = refused(SpecError, **{parameter: value})
    assert error.code == "INVALID_DURATION"
    assert error.what == f"`{parameter}` is not a duration"
    assert error.got == f"{parameter}={value!r}"


@pytest.mark.parametrize("parameter", ["size", "allowed_lateness", "delay", "origin"])
def test_a_duration_longer_than_the_calendar_is_refused(parameter: str) -> None:
    error = refused(SpecError, **{parameter: "99999999999999 days"})
    assert error.code == "INVALID_DURATION"
    assert error.got == f"{parameter}='99999999999999 days'"


def test_an_origin_without_a_zone_is_refused() -> None:
    naive = dt.datetime(2024, 1, 1)  # noqa: DTZ001  (this is the mistake)
    error = refused(SpecError, origin=naive)
    assert (error.code, error.where) == ("INVALID_PARAMETER", "windows.hopping")
    assert error.got == "origin=datetime.datetime(2024, 1, 1, 0, 0)"


def test_a_hop_longer_than_the_size_is_refused() -> None:
    error = refused(SpecError, "1 hour", "2 hours")
    assert str(error) == (
        "[PARAMETERS_CONTRADICT] windows.hopping: `hop` is longer than `size`: "
        "events between two windows would be lost\n"
        "  got:       hop='2 hours', size='1 hour'\n"
        "  expected:  0 < hop <= size\n"
        "  fix:       shorten hop, or lengthen size"
        "\n  see:       docs/errors.md#parameters_contradict"
    )


@pytest.mark.parametrize(
    ("parameter", "value", "choices"),
    [
        ("stragglers", "Drop", "'drop', 'route', 'update', 'retract'"),
        ("stragglers", None, "'drop', 'route', 'update', 'retract'"),
        ("too_late", "update", "'drop', 'route'"),
        ("too_late", True, "'drop', 'route'"),
        ("early", "always", "'never', 'every batch'"),
        ("early", True, "'never', 'every batch'"),
        ("too_late", None, "'drop', 'route'"),
        ("early", None, "'never', 'every batch'"),
    ],
)
def test_an_unknown_choice_is_refused(parameter: str, value: Any, choices: str) -> None:
    error = refused(SpecError, **{parameter: value})
    fix = (
        "write stragglers='drop', or another of them"
        if value == "Drop"
        else f"write one of {choices}"
    )
    if parameter == "stragglers":
        fix += ': "drop" counts late rows and drops them, "route" emits them as rows of their own, '
        fix += '"update" and "retract" correct the result'
    assert str(error) == (
        f"[UNKNOWN_CHOICE] windows.hopping: `{parameter}` is not one of its choices\n"
        f"  got:       {parameter}={value!r}\n"
        f"  expected:  one of {choices}\n"
        f"  fix:       {fix}"
        "\n  see:       docs/errors.md#unknown_choice"
    )


@pytest.mark.parametrize("stragglers", ["drop", "route"])
def test_too_late_needs_corrections(stragglers: str) -> None:
    error = refused(SpecError, stragglers=stragglers, too_late="route")
    assert str(error) == (
        "[PARAMETER_WITHOUT_EFFECT] windows.hopping: "
        "`too_late` applies to corrections only\n"
        f"  got:       too_late='route' with stragglers={stragglers!r}\n"
        "  expected:  stragglers='update' or 'retract' with it\n"
        "  fix:       stragglers='route' delivers every late row"
        "\n  see:       docs/errors.md#parameter_without_effect"
    )


def test_windows_without_an_aggregate_are_refused() -> None:
    assert str(refused(SpecError, agg={})) == (
        "[PARAMETER_MISSING] windows.hopping: nothing to compute\n"
        "  got:       agg={}\n"
        "  expected:  at least one named aggregate\n"
        '  fix:       agg={"events": aggregates.count()}'
        "\n  see:       docs/errors.md#parameter_missing"
    )


@pytest.mark.parametrize("value", ["count", agg.count, None])
def test_what_is_not_an_aggregate_is_refused(value: Any) -> None:
    error = refused(SpecError, agg={"n": value})
    assert error.code == "NOT_AN_AGGREGATE"
    assert repr(value) in error.got


def test_aggregates_without_names_are_refused() -> None:
    error = refused(SpecError, agg=[agg.count()])
    assert error.code == "NOT_AN_AGGREGATE"


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ({"by": "origin", "agg": {"origin": agg.count()}}, "origin"),
        ({"agg": {"late": agg.count(), "revision": agg.count()}}, "late, revision"),
        ({"by": "window_start"}, "window_start"),
        ({"agg": {"_change_type": agg.count()}}, "_change_type"),
        ({"agg": {"window_end": agg.count()}}, "window_end"),
    ],
)
def test_a_name_for_two_columns_of_the_result_is_refused(
    arguments: dict[str, Any], taken: str
) -> None:
    error = refused(SpecError, **arguments)
    by = arguments.get("by", "origin")
    keys = [by] if isinstance(by, str) else by
    assert str(error) == (
        f"[NAME_TAKEN] windows.hopping: a name stands for two columns of the result: {taken}\n"
        f"  got:       by={keys}, agg={list(arguments.get('agg', ['n']))}\n"
        "  expected:  names unlike one another and unlike "
        "window_start, window_end, revision, timing, _change_type, late\n"
        "  fix:       rename the column before the operator: "
        f"df.withColumnRenamed({taken.split(', ')[0]!r}, ...); or choose another name in `agg`"
        "\n  see:       docs/errors.md#name_taken"
    )


@pytest.mark.parametrize(
    ("arguments", "parameter", "got"),
    [
        ({"time": None}, "time", "None of type NoneType"),
        ({"time": ["ts"]}, "time", "['ts'] of type list"),
        ({"by": None}, "by", "None of type NoneType"),
        ({"by": [1]}, "by", "1 of type int"),
        ({"by": ["origin", None]}, "by", "None of type NoneType"),
        ({"by": {"origin"}}, "by", "{'origin'} of type set"),
        ({"agg": {1: agg.count()}}, "agg", "1 of type int"),
    ],
)
def test_what_is_not_a_name_is_refused(arguments: dict[str, Any], parameter: str, got: str) -> None:
    error = refused(SpecError, **arguments)
    assert (error.code, error.where) == ("PARAMETER_TYPE", "windows.hopping")
    assert error.what == f"`{parameter}` is not a name"
    assert error.got == got


def test_a_column_expression_is_not_an_aggregate() -> None:
    class Column:
        """Like a Column of Spark, it has every attribute."""

        def __getattr__(self, name: str) -> Column:
            return Column()

    assert refused(SpecError, agg={"n": Column()}).code == "NOT_AN_AGGREGATE"


def test_more_than_ten_thousand_windows_per_event_are_refused() -> None:
    assert settings("10000 seconds", "1 second").hop == 1_000_000
    error = refused(SpecError, "10000 seconds", "999999 microseconds")
    assert str(error) == (
        "[PARAMETER_OUT_OF_RANGE] windows.hopping: "
        "each event would lie in too many windows\n"
        "  got:       hop='999 milliseconds 999 microseconds', "
        "size='2 hours 46 minutes 40 seconds': 10,001 windows\n"
        "  expected:  at most 10,000 windows per event: ceil(size / hop)\n"
        "  fix:       lengthen hop; for one result per event use windows.sliding"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


def test_names_that_differ_only_in_case_are_one_name_to_spark() -> None:
    assert refused(SpecError, by="origin", agg={"Origin": agg.count()}).code == "NAME_TAKEN"
    assert refused(SpecError, agg={"Window_End": agg.count()}).code == "NAME_TAKEN"
    assert refused(SpecError, agg={"n": agg.count(), "N": agg.count()}).code == "NAME_TAKEN"


@pytest.mark.parametrize(
    ("arguments", "name", "role"),
    [
        ({"time": "tss"}, "tss", "time"),
        ({"by": "orgin"}, "orgin", "by"),
        ({"by": ["text", "orgin"]}, "orgin", "by"),
        ({"agg": {"m": agg.mean("dely")}}, "dely", "agg: mean('dely')"),
        (
            {"agg": {"f": agg.first("text", tie_break="sequ")}},
            "sequ",
            "agg: first('text', tie_break='sequ')",
        ),
    ],
)
def test_a_column_that_does_not_exist_is_refused(arguments: Any, name: str, role: str) -> None:
    error = refused_bound(ColumnNotFound, **arguments)
    names = ", ".join(SCHEMA.names)
    assert str(error).startswith(
        f"[COLUMN_NOT_FOUND] windows.hopping: column {name!r}, given as `{role}`, does not exist\n"
        f"  got:       {name}\n"
        f"  expected:  one of: {names}\n"
        "  fix:       "
    )


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    assert refused_bound(ColumnNotFound, by="orgin").fix == "did you mean 'origin'?"


@pytest.mark.parametrize(
    ("column", "dtype"),
    [("text", "string"), ("delay", "bigint"), ("local", "timestamp_ntz"), ("flag", "boolean")],
)
def test_an_event_time_of_another_type_is_refused(column: str, dtype: str) -> None:
    assert str(refused_bound(SchemaError, time=column)) == (
        f"[COLUMN_TYPE] windows.hopping: column {column!r} cannot be used as event time\n"
        f"  got:       {column!r} of type {dtype}\n"
        "  expected:  timestamp\n"
        f"  fix:       {not_an_instant(dtype).fix.format(column=column)}"
        "\n  see:       docs/errors.md#column_type"
    )


@pytest.mark.parametrize(
    ("dtype", "conversion"),
    [
        ("string", f"F.col('at').{'try_' if has_try_cast() else ''}cast('timestamp_ltz')"),
        ("date", "F.col('at').cast('timestamp_ltz')"),
        ("timestamp_ntz", "F.col('at').cast('timestamp_ltz')"),
        ("bigint", "F.timestamp_millis('at')"),
        ("int", "F.timestamp_millis('at')"),
        ("double", "F.timestamp_seconds('at')"),
        ("decimal(20,3)", "F.timestamp_seconds('at')"),
        ("struct<start:timestamp,end:timestamp>", "F.window_time('at')"),
    ],
)
def test_the_fix_converts_the_column_to_a_timestamp(dtype: str, conversion: str) -> None:
    fix = not_an_instant(dtype).fix.format(column="at")
    assert fix.startswith(f"df.withColumn('at', {conversion})")


@pytest.mark.parametrize("column", ["tags", "nested"])
def test_a_map_at_any_depth_cannot_be_a_key(column: str) -> None:
    assert str(refused_bound(SchemaError, by=column)) == (
        f"[TYPE_UNSUPPORTED] windows.hopping, key {column!r}: "
        "a key, an identity or an item has a type that Spark does not hash\n"
        "  got:       map<string,bigint>\n"
        "  expected:  a boolean, number, string, binary, date, time, timestamp, day-time "
        "interval, or a struct or array of these\n"
        "  fix:       cast it to one of these; a map: F.array_sort(F.map_entries(column))"
        "\n  see:       docs/errors.md#type_unsupported"
    )


def test_a_type_that_cannot_be_a_key_is_allowed_in_other_columns() -> None:
    assert "tags" in bound(stragglers="route").input.names


@pytest.mark.parametrize(
    ("aggregate", "dtype", "expected"),
    [
        (agg.sum("text"), "string", "numbers"),
        (agg.mean("flag"), "boolean", "numbers"),
        (agg.variance("raw"), "binary", "numbers"),
        (
            agg.min("point"),
            "struct<x:double>",
            "a type with an order: numbers, strings, binary, booleans, dates, timestamps",
        ),
    ],
    ids=str,
)
def test_an_aggregate_over_a_type_it_does_not_know_is_refused(
    aggregate: agg.Aggregate, dtype: str, expected: str
) -> None:
    assert str(refused_bound(SchemaError, agg={"x": aggregate})) == (
        f"[COLUMN_TYPE] windows.hopping: {aggregate!r} cannot be computed over this type\n"
        f"  got:       column {aggregate.column!r} of type {dtype}\n"
        f"  expected:  {expected}\n"
        f"  fix:       cast it: df.withColumn({aggregate.column!r}, F.col({aggregate.column!r}).cast(...)); "
        "or pick a field of it"
        "\n  see:       docs/errors.md#column_type"
    )


def test_a_tie_break_without_an_order_is_refused_by_its_own_name() -> None:
    error = refused_bound(SchemaError, agg={"f": agg.first("text", tie_break="point")})
    assert error.code == "COLUMN_TYPE"
    assert error.expected == "a tie_break column of a type with an order"
    assert error.got == "column 'point' of type struct<x:double>"


def test_an_error_is_raised_before_the_plan_and_names_the_operator() -> None:
    with pytest.raises(SpecError, match=r"^\[INVALID_DURATION\] windows.tumbling: `size` "):
        windows.tumbling("0 seconds", time="ts", agg={"n": agg.count()})


def test_repr_formats_durations() -> None:
    formatted = repr(
        windows.hopping(
            "3 hours",
            "90 minutes",
            time="ts",
            agg={"n": agg.count()},
            delay=dt.timedelta(seconds=90),
            allowed_lateness="6 hours",
            origin="15 minutes",
        )
    )
    for text in (
        "size='3 hours'",
        "hop='1 hour 30 minutes'",
        "origin='15 minutes'",
        "delay='1 minute 30 seconds'",
        "allowed_lateness='6 hours'",
    ):
        assert text in formatted


def test_the_repr_shows_what_was_written() -> None:
    formatted = repr(windows.tumbling("1 hour", time="ts", by="origin", agg={"n": agg.count()}))
    assert formatted == (
        "windows.tumbling(size='1 hour', time='ts', agg={'n': count()}, by=('origin',))"
    )


def test_origins_are_the_columns_with_values_of_the_input() -> None:
    """Keys, picked values, lists of them; a count, or a mean of another type, is its own."""
    settings = windows.tumbling(
        "10 seconds",
        time="ts",
        by="k",
        agg={
            "n": agg.count(),
            "mean": agg.mean("v"),
            "least": agg.min("v"),
            "total": agg.sum("x"),
            "all": agg.collect_list("x", at_most=9, tie_break="v"),
            "half": agg.percentile("x", [0.5], at_most=9),
        },
        delay="1 second",
    ).parameters
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("v", pa.int64()),
            ("x", pa.int32()),
            ("ts", pa.timestamp("us", "UTC")),
        ]
    )
    assert settings.resolve((schema,), carried=(None,), shards=1).origins == {
        "k": (0, "k"),
        "least": (0, "v"),
        "all": (0, "x"),
    }
