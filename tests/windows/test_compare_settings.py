"""Parameters of comparisons, and the errors for mistakes."""

from __future__ import annotations

import datetime as dt
import doctest
import importlib
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates, windows
from streamops.kernel.calendar import CalendarPeriod, FixedPeriod
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError, located
from streamops.kernel.lateness import late_field
from streamops.windows.core.compare_spec import CompareSpec

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("window_start", UTC),
        ("window_end", UTC),
        ("views", pa.int64()),
        ("spent", pa.decimal128(10, 2)),
        ("words", pa.string()),
    ]
)
REVISED = SCHEMA.append(pa.field("revision", pa.int32()))
CHANGES = REVISED.append(pa.field("_change_type", pa.string()))
ARGUMENTS: dict[str, Any] = {"by": "page", "values": "views"}


def settings(period: Any = "1 hour", **arguments: Any) -> CompareSpec:
    made = windows.compare(period, **(ARGUMENTS | arguments)).parameters
    assert isinstance(made, CompareSpec)
    return made


def bound(schema: pa.Schema = SCHEMA, **arguments: Any) -> CompareSpec:
    return settings(**arguments).resolve((schema,), carried=(None,), shards=1)


def refused(error_type: type[StreamopsError], schema: pa.Schema = SCHEMA, **arguments: Any) -> Any:
    with pytest.raises(error_type) as caught, located("windows.compare"):
        bound(schema, **arguments)
    assert caught.value.where == "windows.compare"
    return caught.value


# Valid parameters.


def test_it_reads_results_and_other_windows_read_events() -> None:
    assert settings().inputs[0].accepts_revisions
    agg = {"n": aggregates.count()}
    assert not windows.tumbling("1 hour", time="ts", agg=agg).spec.inputs[0].accepts_revisions


def test_a_period_is_a_duration_or_a_unit_of_the_calendar_in_a_zone() -> None:
    assert bound(period="90 minutes").back(1) == FixedPeriod(5_400_000_000)
    assert bound(period=dt.timedelta(days=7)).back(1) == FixedPeriod(604_800_000_000)
    week = bound(period="week", zone="Europe/Berlin")
    assert week.back(1) == CalendarPeriod("week", "Europe/Berlin")


def test_the_output_has_four_columns_per_value() -> None:
    spec = bound(values=["spent", "views"])
    assert spec.output == pa.schema(
        [
            ("page", pa.string()),
            ("window_start", UTC),
            ("window_end", UTC),
            ("spent", pa.decimal128(10, 2)),
            ("previous_spent", pa.decimal128(10, 2)),
            ("change_spent", pa.decimal128(11, 2)),
            ("rate_spent", pa.float64()),
            ("views", pa.int64()),
            ("previous_views", pa.int64()),
            ("change_views", pa.int64()),
            ("rate_views", pa.float64()),
        ]
    )
    assert spec.event_time == "window_end"
    assert bound(stragglers="update").output.names[-1] == "revision"
    assert bound(stragglers="retract").output.names[-2:] == ["revision", "_change_type"]
    assert bound(stragglers="route").output.names[-1] == "late"
    late = bound(stragglers="route").output.field("late").type
    assert late.field("row").type.num_fields == len(SCHEMA)
    assert spec.origins == {
        "page": (0, "page"),
        "spent": (0, "spent"),
        "previous_spent": (0, "spent"),
        "views": (0, "views"),
        "previous_views": (0, "views"),
    }


def test_a_band_has_four_more_columns_per_value() -> None:
    spec = bound(values=["spent", "views"], periods=8)
    added = [
        name
        for name in spec.output.names
        if name not in bound(values=["spent", "views"]).output.names
    ]
    assert added == [
        f"{word}_{value}"
        for value in ("spent", "views")
        for word in ("median", "deviation", "count", "anomaly")
    ]
    types = [pa.float64(), pa.float64(), pa.int32(), pa.bool_()]
    assert [spec.output.field(name).type for name in added] == 2 * types
    assert [(n, bound(periods=n).fewest) for n in (2, 3, 8)] == [(2, 2), (3, 2), (8, 5)]
    # Names of a band are taken only where there is one.
    assert bound(pa.schema([*SCHEMA, ("median_views", pa.string())]), by="median_views").by


def test_the_identity_has_a_band_if_there_is_one() -> None:
    def added(**arguments: Any) -> dict[str, Any]:
        alone = {k: v for k, v in arguments.items() if k == "stragglers"}
        with_band, without = bound(**arguments).identity, bound(**alone).identity
        return {k: v for k, v in with_band.items() if k not in without}

    assert added(periods=8, threshold=3.0) == {"periods": 8}
    # Preimages are computed again, with the threshold that they were published by.
    assert added(periods=8, threshold=3.0, stragglers="retract") == {
        "periods": 8,
        "threshold": 3.0,
        "min_periods": 5,
    }


def test_only_what_is_needed_is_read() -> None:
    assert bound().input.names == ["page", "window_start", "window_end", "views"]
    spec = bound(CHANGES, stragglers="retract")
    assert spec.input.names[-2:] == ["revision", "_change_type"]
    assert bound(stragglers="route").input == SCHEMA
    assert settings().reads == (("page", "window_start"),)


def test_the_columns_determine_how_the_input_is_revised() -> None:
    assert bound(stragglers="retract").revised == "never"
    assert bound(REVISED, stragglers="update").revised == "upserts"
    assert bound(REVISED, stragglers="retract").revised == "upserts"
    assert bound(CHANGES, stragglers="retract").revised == "changes"


def test_the_identity_does_not_contain_the_delay() -> None:
    spec = bound(period="day", zone="Europe/Berlin", delay="1 minute", allowed_lateness="1 second")
    assert spec.identity == {
        "period": "day",
        "zone": "Europe/Berlin",
        "by": [["page", "string"]],
        "agg": [],
        "values": [["views", "int64"]],
        "revised": "never",
        "allowed_lateness": 1_000_000,
        "stragglers": "drop",
        "too_late": "drop",
    }


def test_a_comparison_is_shown_as_it_is_written() -> None:
    assert repr(windows.compare("1 week", values=["a", "b"], by="page")) == (
        "windows.compare(period='7 days', values=('a', 'b'), by=('page',))"
    )
    band = windows.compare("7 days", values="a", periods=8, threshold=3)
    assert repr(band) == "windows.compare(period='7 days', values=('a',), periods=8, threshold=3)"
    assert repr(windows.compare("week", zone="UTC", values="a")) == (
        "windows.compare(period='week', values=('a',), zone='UTC')"
    )


def test_the_example_of_the_docstring_is_true() -> None:
    outcome = doctest.testmod(importlib.import_module("streamops.windows.compare"))
    skipped = getattr(outcome, "skipped", 0)  # Python 3.13 counts these among the attempted ones
    assert (outcome.attempted - skipped, outcome.failed) == (4, 0)


# What is not.


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"period": "0 seconds"}, "INVALID_DURATION"),
        ({"period": "-1 day"}, "INVALID_DURATION"),
        ({"period": "1 month"}, "INVALID_DURATION"),
        ({"period": None}, "INVALID_DURATION"),
        ({"period": "week"}, "PARAMETER_MISSING"),
        ({"period": "1 week", "zone": "UTC"}, "UNKNOWN_CHOICE"),
        ({"zone": "Europe/berlin", "period": "week"}, "INVALID_PARAMETER"),
        ({"values": ()}, "PARAMETER_MISSING"),
        ({"values": 1}, "PARAMETER_TYPE"),
        ({"values": ["views", None]}, "PARAMETER_TYPE"),
        ({"values": ["views", "Views"]}, "NAME_TAKEN"),
        ({"values": "page"}, "NAME_TAKEN"),
        ({"values": ["views", "change_views"]}, "NAME_TAKEN"),
        ({"values": "revision"}, "NAME_TAKEN"),
        ({"by": "previous_views"}, "NAME_TAKEN"),
        ({"by": 1}, "PARAMETER_TYPE"),
        ({"delay": "1 microsecond"}, "INVALID_DURATION"),
        ({"allowed_lateness": "-1 second"}, "INVALID_DURATION"),
        ({"stragglers": "keep"}, "UNKNOWN_CHOICE"),
        ({"too_late": "route"}, "PARAMETER_WITHOUT_EFFECT"),
        ({"periods": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"periods": True}, "PARAMETER_OUT_OF_RANGE"),
        ({"periods": 1_001}, "PARAMETER_OUT_OF_RANGE"),
        ({"threshold": 0, "periods": 8}, "PARAMETER_OUT_OF_RANGE"),
        ({"threshold": float("nan"), "periods": 8}, "PARAMETER_OUT_OF_RANGE"),
        ({"threshold": float("inf"), "periods": 8}, "PARAMETER_OUT_OF_RANGE"),
        ({"threshold": True, "periods": 8}, "PARAMETER_OUT_OF_RANGE"),
        ({"periods": 8, "min_periods": 9}, "PARAMETER_OUT_OF_RANGE"),
        ({"periods": 8, "min_periods": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"periods": 8, "min_periods": 2.0}, "PARAMETER_OUT_OF_RANGE"),
        ({"threshold": 3.0}, "PARAMETER_WITHOUT_EFFECT"),
        ({"min_periods": 1}, "PARAMETER_WITHOUT_EFFECT"),
        ({"by": "anomaly_views", "periods": 8}, "NAME_TAKEN"),
    ],
    ids=repr,
)
def test_a_parameter_out_of_range_is_refused_before_there_is_a_frame(
    arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        settings(**arguments)
    assert (caught.value.code, caught.value.where) == (code, "windows.compare")
    assert next(iter(arguments)) in str(caught.value)


def test_a_calendar_unit_without_a_zone_is_refused_with_two_remedies() -> None:
    with pytest.raises(SpecError) as caught:
        windows.compare("week", values="views")
    assert str(caught.value) == (
        "[PARAMETER_MISSING] windows.compare: when a week ago was depends on the time zone\n"
        "  got:       period='week' without zone\n"
        "  expected:  a zone with it, or a fixed duration\n"
        '  fix:       for example zone="Europe/Berlin"; or period="1 day", which is 24 hours'
        "\n  see:       docs/errors.md#parameter_missing"
    )


@pytest.mark.parametrize("missing", ["window_start", "window_end"])
def test_rows_that_are_not_windows_are_refused(missing: str) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name != missing])
    assert str(refused(SchemaError, schema)) == (
        "[FRAME_TYPE] windows.compare: the rows are not results of windows\n"
        f"  got:       columns {', '.join(schema.names)}\n"
        "  expected:  window_start and window_end among them\n"
        "  fix:       apply it after a window. After a window of Spark: df.select('window', "
        "F.col('window.start').alias('window_start'), F.col('window.end').alias('window_end'), ...)"
        "\n  see:       docs/errors.md#frame_type"
    )


def test_borders_of_windows_are_instants() -> None:
    position = SCHEMA.get_field_index("window_start")
    schema = SCHEMA.set(position, pa.field("window_start", pa.timestamp("us")))
    error = refused(SchemaError, schema)
    assert (error.code, error.got) == ("COLUMN_TYPE", "'window_start' of type timestamp_ntz")


def test_late_rows_among_the_results_are_refused() -> None:
    assert str(refused(SchemaError, SCHEMA.append(late_field(SCHEMA)))) == (
        "[FRAME_TYPE] windows.compare: the frame includes late rows, which are not results "
        "of windows\n"
        "  got:       a column 'late', as stragglers='route' adds it\n"
        "  expected:  results only\n"
        '  fix:       before it: .where("late is null").drop("late")'
        "\n  see:       docs/errors.md#frame_type"
    )
    # A column of another meaning is left alone.
    for dtype in (pa.bool_(), pa.struct([("reason", pa.string())])):
        assert bound(SCHEMA.append(pa.field("late", dtype))).revised == "never"


def test_a_column_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    error = refused(ColumnNotFound, values="view")
    assert "column 'view', given as `values`, does not exist" in str(error)
    assert error.fix == "did you mean 'views'?"
    assert "given as `by`" in str(refused(ColumnNotFound, by="pages"))


def test_only_numbers_are_compared() -> None:
    assert str(refused(SchemaError, values="words")) == (
        "[COLUMN_TYPE] windows.compare: column 'words' cannot be used as a value to compare\n"
        "  got:       'words' of type string\n"
        "  expected:  a number\n"
        "  fix:       df.withColumn('words', F.col('words').cast('double')), or leave it out"
        "\n  see:       docs/errors.md#column_type"
    )


@pytest.mark.parametrize(
    ("schema", "stragglers", "got", "wanted"),
    [
        (REVISED, "drop", "results with a revision: a column 'revision'", ("update", "retract")),
        (REVISED, "route", "results with a revision: a column 'revision'", ("update", "retract")),
        (CHANGES, "drop", "a change stream: a column '_change_type'", ("retract",)),
        (CHANGES, "update", "a change stream: a column '_change_type'", ("retract",)),
    ],
)
def test_revised_windows_need_a_comparison_that_is_revised(
    schema: pa.Schema, stragglers: str, got: str, wanted: tuple[str, ...]
) -> None:
    assert str(refused(SchemaError, schema, stragglers=stragglers)) == (
        "[ROWS_REVISED] windows.compare: the input is revised, and "
        f"stragglers={stragglers!r} ignores revisions\n"
        f"  got:       {got}\n"
        f"  expected:  {' or '.join(f'stragglers={word!r}' for word in wanted)}\n"
        f"  fix:       stragglers={wanted[0]!r}, with the allowed_lateness of the preceding windows"
        "\n  see:       docs/errors.md#rows_revised"
    )


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA.append(pa.field("_change_type", pa.string())),
        SCHEMA.append(pa.field("revision", pa.string())),
    ],
)
def test_a_change_stream_without_a_revision_is_refused(schema: pa.Schema) -> None:
    assert str(refused(SchemaError, schema, stragglers="retract")) == (
        "[FRAME_TYPE] windows.compare: without a revision, the newer row of a window "
        "is not known\n"
        f"  got:       columns {', '.join(schema.names)}\n"
        "  expected:  an integer column 'revision' with '_change_type'\n"
        "  fix:       keep the column revision of the preceding windows"
        "\n  see:       docs/errors.md#frame_type"
    )
