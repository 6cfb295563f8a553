"""Parameters of sliding windows, and the errors for mistakes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError, located
from streamops.windows.core.sliding_spec import SlidingSpec

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("ts", UTC),
        ("window_end", UTC),
        ("user", pa.string()),
        ("amount", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
ARGUMENTS: dict[str, Any] = {
    "time": "ts",
    "by": "user",
    "agg": {"n": agg.count()},
    "delay": "1 minute",
}


def settings(size: Any = "1 hour", **arguments: Any) -> SlidingSpec:
    made = windows.sliding(size, **(ARGUMENTS | arguments)).parameters
    assert isinstance(made, SlidingSpec)
    return made


def bound(schema: pa.Schema = SCHEMA, **arguments: Any) -> SlidingSpec:
    return settings(**arguments).resolve((schema,), carried=(None,), shards=1)


def refused(error_type: type[StreamopsError], **arguments: Any) -> Any:
    with pytest.raises(error_type) as caught, located("windows.sliding"):
        bound(**arguments)
    return caught.value


# Valid parameters.


def test_the_size_becomes_microseconds() -> None:
    assert settings("90 minutes").size == 5_400_000_000
    assert settings(dt.timedelta(microseconds=1)).size == 1


def test_the_output_is_keys_the_event_time_by_its_name_and_aggregates() -> None:
    spec = bound(agg={"total": agg.sum("amount")})
    assert spec.output == pa.schema([("user", pa.string()), ("ts", UTC), ("total", pa.int64())])
    assert spec.event_time == "ts"
    late = {"allowed_lateness": "1 hour"}
    assert bound(stragglers="retract", **late).output.names[2:] == ["n", "revision", "_change_type"]
    assert bound(early="every batch").output.names[2:] == ["n", "revision", "timing"]
    assert bound(stragglers="route").output.names == ["user", "ts", "n", "late"]


def test_the_event_time_may_be_the_end_of_a_window() -> None:
    spec = bound(time="window_end", agg={"window_start": agg.count()})
    assert spec.output.names == ["user", "window_end", "window_start"]
    assert spec.event_time == "window_end"


def test_the_event_time_is_a_column_of_the_input() -> None:
    assert bound(agg={"most": agg.max("amount"), "mean": agg.mean("amount")}).origins == {
        "user": (0, "user"),
        "ts": (0, "ts"),
        "most": (0, "amount"),
    }


def test_a_timestamp_is_stored_for_the_size_and_with_corrections_for_the_lateness() -> None:
    arguments = {"size": "1 second", "allowed_lateness": "5 seconds"}
    assert bound(**arguments, stragglers="route").event_retention == 999_999
    assert bound(**arguments, stragglers="update").event_retention == 5_999_999


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": "2 hours"},
        {"by": ()},
        {"time": "window_end"},
        {"agg": {"n": agg.count("amount")}},
        {"allowed_lateness": "1 hour"},
        {"stragglers": "update", "allowed_lateness": "1 hour"},
        {"stragglers": "update", "allowed_lateness": "1 hour", "too_late": "route"},
    ],
)
def test_another_parameter_is_another_identity(arguments: dict[str, Any]) -> None:
    assert bound(**arguments).identity != bound().identity


def test_another_delay_and_another_spelling_of_the_size_are_the_same_identity() -> None:
    assert bound(delay="5 minutes", size="60 minutes").identity == bound().identity


def test_the_repr_shows_what_was_written() -> None:
    formatted = repr(windows.sliding("90 minutes", **ARGUMENTS))
    assert formatted == (
        "windows.sliding(size='1 hour 30 minutes', time='ts', agg={'n': count()}, by=('user',), "
        "delay='1 minute')"
    )


# Mistakes.


@pytest.mark.parametrize("value", ["0 seconds", "-1 hour", dt.timedelta(0)])
def test_a_size_that_is_not_positive_is_refused(value: Any) -> None:
    assert str(refused(SpecError, size=value)) == (
        "[INVALID_DURATION] windows.sliding: `size` is too small\n"
        f"  got:       size={value!r}\n"
        "  expected:  at least 1 microsecond\n"
        '  fix:       pass a larger duration, such as size="1 minute"'
        "\n  see:       docs/errors.md#invalid_duration"
    )


def test_a_month_is_not_a_size() -> None:
    error = refused(SpecError, size="1 month")
    assert (error.code, error.where) == ("INVALID_DURATION", "windows.sliding")
    assert error.got == "size='1 month'"


@pytest.mark.parametrize("value", ["soon", 60, None])
def test_what_is_not_a_duration_is_refused(value: Any) -> None:
    assert refused(SpecError, size=value).code == "INVALID_DURATION"


def test_a_negative_lateness_is_refused() -> None:
    error = refused(SpecError, allowed_lateness="-1 second")
    assert (error.code, error.got) == ("INVALID_DURATION", "allowed_lateness='-1 second'")


@pytest.mark.parametrize(
    ("arguments", "taken", "got"),
    [
        ({"by": "ts"}, "ts", "by=['ts'], time='ts', agg=['n']"),
        ({"agg": {"TS": agg.count()}}, "TS, ts", "by=['user'], time='ts', agg=['TS']"),
        ({"agg": {"user": agg.count()}}, "user", "by=['user'], time='ts', agg=['user']"),
        ({"time": "late"}, "late", "by=['user'], time='late', agg=['n']"),
        ({"by": "revision"}, "revision", "by=['revision'], time='ts', agg=['n']"),
    ],
)
def test_a_name_for_two_columns_of_the_result_is_refused(
    arguments: dict[str, Any], taken: str, got: str
) -> None:
    assert str(refused(SpecError, **arguments)) == (
        f"[NAME_TAKEN] windows.sliding: a name stands for two columns of the result: {taken}\n"
        f"  got:       {got}\n"
        "  expected:  names unlike one another and unlike revision, timing, _change_type, late\n"
        "  fix:       rename the column before the operator: "
        f"df.withColumnRenamed({taken.split(', ')[0]!r}, ...); or choose another name in `agg`"
        "\n  see:       docs/errors.md#name_taken"
    )


def test_too_late_needs_corrections() -> None:
    assert refused(SpecError, too_late="route").code == "PARAMETER_WITHOUT_EFFECT"


def test_windows_without_an_aggregate_are_refused() -> None:
    assert refused(SpecError, agg={}).code == "PARAMETER_MISSING"


@pytest.mark.parametrize(
    ("arguments", "role"),
    [
        ({"time": "usr"}, "time"),
        ({"by": "usr"}, "by"),
        ({"agg": {"x": agg.max("usr")}}, "agg: max('usr')"),
    ],
)
def test_a_column_that_does_not_exist_is_refused(arguments: dict[str, Any], role: str) -> None:
    error = refused(ColumnNotFound, **arguments)
    assert str(error) == (
        f"[COLUMN_NOT_FOUND] windows.sliding: column 'usr', given as `{role}`, does not exist\n"
        "  got:       usr\n"
        f"  expected:  one of: {', '.join(SCHEMA.names)}\n"
        "  fix:       did you mean 'user'?"
        "\n  see:       docs/errors.md#column_not_found"
    )


def test_an_event_time_of_another_type_is_refused() -> None:
    assert str(refused(SchemaError, time="amount")) == (
        "[COLUMN_TYPE] windows.sliding: column 'amount' cannot be used as event time\n"
        "  got:       'amount' of type bigint\n"
        "  expected:  timestamp\n"
        "  fix:       df.withColumn('amount', F.timestamp_millis('amount')) for milliseconds since "
        "1970; timestamp_seconds, timestamp_micros for others"
        "\n  see:       docs/errors.md#column_type"
    )


def test_a_map_cannot_be_a_key() -> None:
    assert refused(SchemaError, by="tags").code == "TYPE_UNSUPPORTED"


def test_an_unknown_choice_of_early_is_refused() -> None:
    error = refused(SpecError, early="always")
    assert (error.code, error.got) == ("UNKNOWN_CHOICE", "early='always'")
    assert error.expected == "one of 'never', 'every batch'"


def test_windows_that_end_with_an_event_are_never_empty() -> None:
    arguments: dict[str, Any] = {"empty_for": "1 day"}
    with pytest.raises(TypeError, match="empty"):
        windows.sliding("1 hour", **ARGUMENTS, **arguments)
