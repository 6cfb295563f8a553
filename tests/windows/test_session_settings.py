"""Parameters of sessions, and the errors for mistakes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import CapacityError, ColumnNotFound, SchemaError, SpecError
from streamops.testing import at, replay
from streamops.windows.core.session_spec import SessionSpec

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("user", pa.string()),
        ("patience", pa.duration("us")),
        ("out", pa.bool_()),
        ("seconds", pa.int64()),
    ]
)


def session(gap: Any = "30 minutes", **arguments: Any) -> Any:
    common: dict[str, Any] = {"time": "ts", "by": "user", "agg": {"n": agg.count()}}
    return windows.session(gap, **{**common, "delay": "1 minute", **arguments})


def settings(**arguments: Any) -> SessionSpec:
    found = session(**arguments).parameters
    assert isinstance(found, SessionSpec)
    return found


def refused(error_type: type[Exception], **arguments: Any) -> Any:
    with pytest.raises(error_type) as caught:
        session(**arguments).parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    return caught.value


def test_durations_become_microseconds() -> None:
    spec = settings(gap=dt.timedelta(minutes=1), max_length="2 hours")
    assert (spec.gap, spec.max_length) == (60_000_000, 7_200_000_000)
    assert settings().max_length is None


def test_the_repr_shows_what_was_written() -> None:
    assert repr(session(until="out", max_length="8 hours", when_longer="fail")) == (
        "windows.session(gap='30 minutes', time='ts', agg={'n': count()}, by=('user',), "
        "until='out', max_length='8 hours', when_longer='fail', delay='1 minute')"
    )


def test_corrections_and_early_results_add_columns_to_the_output() -> None:
    def names(**arguments: Any) -> list[str]:
        found: list[str] = (
            settings(**arguments).resolve((SCHEMA,), carried=(None,), shards=1).output.names
        )
        return found[4:]

    assert names() == []
    assert names(stragglers="route") == ["late"]
    assert names(stragglers="retract", allowed_lateness="1 hour") == ["revision", "_change_type"]
    assert names(early="every batch") == ["revision", "timing", "_change_type"]
    assert names(early="every batch", stragglers="retract", too_late="route") == [
        "revision",
        "timing",
        "_change_type",
        "late",
    ]


def test_only_columns_that_are_read_travel_unless_rows_are_delivered() -> None:
    plain = settings(gap_column="patience", until="out").resolve(
        (SCHEMA,), carried=(None,), shards=1
    )
    assert plain.input.names == ["ts", "user", "patience", "out"]
    assert (
        settings(stragglers="route").resolve((SCHEMA,), carried=(None,), shards=1).input == SCHEMA
    )


def test_closing_rows_delay_the_watermark_of_spark_by_a_gap() -> None:
    for arguments, minutes in (({}, 10), ({"until": "out"}, 40)):
        found = settings(allowed_lateness="10 minutes", **arguments)
        assert (
            found.lag
            == found.resolve((SCHEMA,), carried=(None,), shards=1).lag
            == minutes * 60_000_000
        )


@pytest.mark.parametrize(
    ("arguments", "code", "got"),
    [
        ({"gap": "0 seconds"}, "INVALID_DURATION", "'0 seconds'"),
        ({"gap": "1 month"}, "INVALID_DURATION", "'1 month'"),
        ({"max_length": "-1 hours"}, "INVALID_DURATION", "'-1 hours'"),
        (
            {"max_length": "29 minutes"},
            "PARAMETERS_CONTRADICT",
            "max_length='29 minutes', gap='30 minutes'",
        ),
        ({"when_longer": "split it", "max_length": "1 hour"}, "UNKNOWN_CHOICE", "'split it'"),
        (
            {"when_longer": "fail"},
            "PARAMETER_WITHOUT_EFFECT",
            "when_longer='fail' without max_length",
        ),
        ({"early": True}, "UNKNOWN_CHOICE", "early=True"),
        ({"stragglers": "update"}, "PARAMETERS_CONTRADICT", "stragglers='update'"),
        ({"too_late": "route"}, "PARAMETER_WITHOUT_EFFECT", "too_late='route'"),
        ({"until": 7}, "PARAMETER_TYPE", "7 of type int"),
        ({"by": "timing"}, "NAME_TAKEN", "by=['timing']"),
        ({"allowed_lateness": "-1 second"}, "INVALID_DURATION", "'-1 second'"),
    ],
)
def test_contradictory_parameters_are_refused(
    arguments: dict[str, Any], code: str, got: str
) -> None:
    error = refused(SpecError, **arguments)
    assert error.code == code
    assert error.where.startswith("windows.session")
    assert got in error.got
    assert error.expected
    assert error.fix


def test_update_is_refused_with_a_remedy() -> None:
    assert str(refused(SpecError, stragglers="update")) == (
        "[PARAMETERS_CONTRADICT] windows.session: a straggler can merge sessions, and an update "
        "cannot retract one\n"
        "  got:       stragglers='update'\n"
        "  expected:  one of 'drop', 'route', 'retract'\n"
        "  fix:       use stragglers='retract': it deletes the merged sessions by their start "
        "and end"
        "\n  see:       docs/errors.md#parameters_contradict"
    )


def test_unknown_columns_are_refused_with_the_nearest_name() -> None:
    error = refused(ColumnNotFound, gap_column="patienc")
    assert error.code == "COLUMN_NOT_FOUND"
    assert "patience" in error.fix
    assert "gap_column" in str(error)
    assert "until" in str(refused(ColumnNotFound, until="outt"))


def test_columns_of_another_type_are_refused_with_the_cast() -> None:
    error = refused(SchemaError, gap_column="seconds")
    assert (error.code, error.got) == ("COLUMN_TYPE", "'seconds' of type bigint")
    assert error.expected == "interval day to second"
    assert error.fix == "for a number of seconds: F.make_dt_interval(secs=F.col('seconds'))"
    error = refused(SchemaError, until="seconds")
    assert (error.code, error.expected) == ("COLUMN_TYPE", "boolean")
    assert error.what == "column 'seconds' cannot be used as the mark of a closing row"


def test_rows_without_a_usable_gap_or_time_are_routed_with_the_reason() -> None:
    minute = dt.timedelta(minutes=1)
    rows = [
        {"ts": at(0), "user": "a", "patience": minute},
        {"ts": at(1), "user": "a", "patience": None},
        {"ts": at(2), "user": None, "patience": 0 * minute},
        {"ts": at(3), "user": "a", "patience": 31 * minute},
        {"ts": None, "user": "a", "patience": None},
    ]
    for policy, delivered in (("route", 4), ("drop", 0)):
        transform = session(gap_column="patience", stragglers=policy)
        only, *_, end = replay(transform, [rows], schema=SCHEMA, flush=True)
        assert (only.counts.rows, only.counts.rejected, only.counts.on_time) == (5, 4, 1)
        reasons = sorted(row["reason"] for row in only.late_rows)
        assert reasons == (["gap_out_of_range"] * 3 + ["null_time"])[:delivered]
        assert [row["window_end"] - row["window_start"] for row in end.rows] == [minute]


def test_a_session_that_is_too_long_fails_the_query_if_chosen() -> None:
    transform = session(gap="10 seconds", max_length="15 seconds", when_longer="fail")
    replay(transform, [[{"ts": at(s), "user": "a"} for s in (0, 5, 14)]], schema=SCHEMA)
    with pytest.raises(CapacityError) as caught:
        replay(transform, [[{"ts": at(s), "user": "a"} for s in (0, 9, 15)]], schema=SCHEMA)
    assert str(caught.value) == (
        "[STATE_FULL] windows.session: a session is longer than `max_length`\n"
        "  got:       a session of 25 seconds\n"
        "  expected:  at most 15 seconds, because of when_longer='fail'\n"
        "  fix:       use when_longer='split', or a longer max_length"
        "\n  see:       docs/errors.md#state_full"
    )
