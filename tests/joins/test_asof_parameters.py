"""Parameters of as-of joins, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.asof import AsofSpec
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SpecError,
    StreamopsError,
    WatermarkError,
    located,
)
from streamops.testing import replay
from tests.joins.inputs import delays
from tests.time.test_parameters import FakeFrame

UTC = pa.timestamp("us", tz="UTC")
TRADES = pa.schema(
    [
        ("symbol", pa.string()),
        ("ts", UTC),
        ("seq", pa.int64()),
        ("day", pa.date32()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
PRICES = pa.schema(
    [
        ("symbol", pa.string()),
        ("since", UTC),
        ("until", UTC),
        ("seq", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("gone", pa.bool_()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
ARGUMENTS: dict[str, Any] = {
    "by": "symbol",
    "time": "ts",
    "version": "since",
    "sequence": "seq",
    "delay": "1 minute",
}


def settings(**arguments: Any) -> AsofSpec:
    parameters = joins.asof(None, **(ARGUMENTS | arguments)).parameters
    assert isinstance(parameters, AsofSpec)
    return parameters


def bound(left: pa.Schema = TRADES, right: pa.Schema = PRICES, **arguments: Any) -> AsofSpec:
    return settings(**arguments).resolve((left, right), carried=(None, None), shards=8)


def refused(error_type: type[StreamopsError], **arguments: Any) -> Any:
    with pytest.raises(error_type) as caught, located("joins.asof"):
        bound(**arguments)
    return caught.value


# Valid arguments.


def test_the_output_has_the_fact_the_version_without_its_keys_and_a_status() -> None:
    spec = bound()
    facts, version = TRADES.names, ["since", "until", "seq_right", "price", "gone", "tags_right"]
    assert spec.output.names == [*facts, *version, "status"]
    assert spec.event_time == "ts"
    assert bound(late_versions="retract").output.names[-2:] == ["status", "_change_type"]
    assert bound(stragglers="route").output.names[-2:] == ["status", "late"]
    assert bound(into="found").output.names[-1] == "found"
    assert spec.origins["seq_right"] == (1, "seq")
    assert spec.origins["seq"] == (0, "seq")


def test_columns_that_describe_a_change_are_not_in_the_output() -> None:
    assert "gone" not in bound(deleted="gone").output.names
    changes = pa.schema([*PRICES, ("_change_type", pa.string())])
    assert "_change_type" not in bound(right=changes).output.names
    assert bound(right=changes).changes


def test_names_of_keys_may_differ() -> None:
    prices = PRICES.set(0, pa.field("ticker", pa.string()))
    spec = bound(right=prices, by={"symbol": "ticker"})
    assert (spec.left.by, spec.right.by) == (("symbol",), ("ticker",))
    assert "ticker" not in spec.output.names


def test_one_delay_applies_to_both_sides_or_is_a_pair() -> None:
    assert delays(settings()) == (60_000_000, 60_000_000)
    assert delays(settings(delay=("1 second", "2 seconds"))) == (1_000_000, 2_000_000)
    assert delays(settings(delay=None)) == (None, None)
    spec = settings().resolve((TRADES, PRICES), carried=(5, None), shards=8)
    assert (spec.left.delay, spec.right.delay) == (None, 60_000_000)


def test_the_facts_alone_may_define_the_watermark() -> None:
    parameters = settings(waits_for="facts")
    assert (delays(parameters), parameters.times) == ((60_000_000, None), ("ts", None))
    assert delays(settings(waits_for="facts", delay=("1 second", None))) == (1_000_000, None)
    assert bound(waits_for="facts").right.time is None


def test_rows_are_stored_for_the_allowed_lateness_only_if_it_is_used() -> None:
    late = {"allowed_lateness": "1 hour"}
    assert bound(**late).retention == 0
    assert bound(**late, stragglers="answer").retention == 3_600_000_000
    assert bound(**late, late_versions="retract").retention == 3_600_000_000
    assert bound(**late).lag == 3_600_000_000


def test_the_identity_has_all_that_the_state_depends_on() -> None:
    same = ({"delay": "9 minutes"}, {"waits_for": "facts"}, {"into": "found"})
    others = (
        {"until": "until"},
        {"deleted": "gone"},
        {"how": "inner"},
        {"tolerance": "1 day"},
        {"tolerance": "1 day", "direction": "forward"},
        {"tolerance": "1 day", "direction": "nearest"},
        {"allow_exact": False},
        {"allowed_lateness": "1 hour"},
        {"stragglers": "answer"},
        {"late_versions": "retract"},
        {"by": ["symbol", "seq"], "sequence": "price"},
    )
    assert all(bound(**arguments).identity == bound().identity for arguments in same)
    identities = [bound(**arguments).identity for arguments in (*others, {})]
    assert all(identities.count(identity) == 1 for identity in identities)


def test_the_repr_shows_what_was_written() -> None:
    assert repr(joins.asof(None, **ARGUMENTS, tolerance="1 day")) == (
        "joins.asof(by='symbol', time='ts', version='since', sequence='seq', "
        "tolerance='1 day', delay='1 minute')"
    )


def test_a_forward_search_holds_results_back_by_the_tolerance() -> None:
    ahead = {"direction": "nearest", "tolerance": "1500 microseconds"}
    spec = bound(**ahead, allowed_lateness="1 minute")
    assert (spec.look_ahead, spec.held_back, spec.lag) == (1_500, 2_000, 60_002_000)
    assert settings(**ahead, allowed_lateness="1 minute").lag == spec.lag
    assert spec.retention == 1_500
    lateness = {"allowed_lateness": "1 minute"}
    assert bound(**ahead, **lateness, stragglers="answer").retention == 60_000_000
    assert bound(**ahead, **lateness, late_versions="retract").retention == 60_001_500
    backward = bound(tolerance="1500 microseconds")
    assert (backward.look_ahead, backward.held_back, backward.lag) == (0, 0, 0)


def test_batches_need_no_tolerance() -> None:
    class Table:
        isStreaming = False

    arguments = ARGUMENTS | {"delay": None}
    join = joins.asof(Table(), **arguments, direction="forward")  # type: ignore[arg-type]
    assert join.parameters.resolve((TRADES, PRICES), carried=(None, None), shards=8).look_ahead == 0


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"how": "full"}, "UNKNOWN_CHOICE"),
        ({"stragglers": "retract"}, "UNKNOWN_CHOICE"),
        ({"late_versions": "update"}, "UNKNOWN_CHOICE"),
        ({"waits_for": "table"}, "UNKNOWN_CHOICE"),
        ({"too_late": "fail"}, "UNKNOWN_CHOICE"),
        ({"version": None}, "PARAMETER_TYPE"),
        ({"sequence": None}, "PARAMETER_TYPE"),
        ({"until": 5}, "PARAMETER_TYPE"),
        ({"by": 5}, "PARAMETER_TYPE"),
        ({"by": []}, "PARAMETER_MISSING"),
        ({"tolerance": "-1 second"}, "INVALID_DURATION"),
        ({"tolerance": "1 month"}, "INVALID_DURATION"),
        ({"allowed_lateness": "-1 second"}, "INVALID_DURATION"),
        ({"delay": "5 microseconds"}, "INVALID_DURATION"),
        ({"delay": ("1 s", "1 s"), "waits_for": "facts"}, "INVALID_DURATION"),
        ({"delay": ("1 second",) * 2, "waits_for": "facts"}, "PARAMETER_WITHOUT_EFFECT"),
        ({"sequence": "since", "until": "since"}, "DUPLICATE_COLUMN"),
        ({"until": "since"}, "DUPLICATE_COLUMN"),
        ({"sequence": "symbol"}, "DUPLICATE_COLUMN"),
        # A delete has the revision of the row that it deletes: the row would stay.
        ({"sequence": "revision"}, "PARAMETERS_CONTRADICT"),
        ({"by": {"symbol": "_change_type"}}, "NAME_TAKEN"),
        ({"sequence": "_change_type"}, "NAME_TAKEN"),
        ({"version": "_change_type"}, "NAME_TAKEN"),
        ({"deleted": "_change_type"}, "NAME_TAKEN"),
        ({"direction": "backwards"}, "UNKNOWN_CHOICE"),
        ({"allow_exact": 1}, "PARAMETER_TYPE"),
        ({"direction": "forward"}, "PARAMETER_MISSING"),
        ({"direction": "nearest", "until": "until"}, "PARAMETER_MISSING"),
        ({"direction": "forward", "tolerance": "1 s", "until": "until"}, "INVALID_DURATION"),
        (
            {"direction": "forward", "tolerance": "1 second", "until": "until"},
            "PARAMETER_WITHOUT_EFFECT",
        ),
        ({"tolerance": "0 seconds", "allow_exact": False}, "PARAMETERS_CONTRADICT"),
        ({"too_late": "route"}, "PARAMETER_WITHOUT_EFFECT"),
    ],
)
def test_contradicting_parameters_are_refused(arguments: dict[str, Any], code: str) -> None:
    assert refused(SpecError, **arguments).code == code


@pytest.mark.parametrize("role", ["time", "version", "sequence", "until", "deleted", "by"])
def test_a_column_that_does_not_exist_is_refused_with_its_side(role: str) -> None:
    error = refused(ColumnNotFound, **{role: "sinse"})
    assert error.code == "COLUMN_NOT_FOUND"
    side = "left" if role in ("time", "by") else "right"
    assert error.where == f"joins.asof, {side} frame"
    assert f"given as `{role}`" in error.what


@pytest.mark.parametrize(
    ("arguments", "use"),
    [
        ({"time": "day"}, "event time"),
        ({"version": "price"}, "event time"),
        ({"until": "price"}, "event time"),
        ({"deleted": "price"}, "a deletion flag"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(arguments: dict[str, Any], use: str) -> None:
    error = refused(SchemaError, **arguments)
    assert error.code == "COLUMN_TYPE"
    assert use in error.what


def test_a_sequence_has_an_order() -> None:
    assert refused(SchemaError, sequence="tags").code == "SEQUENCE_TYPE"


def test_a_change_type_of_facts_is_an_ordinary_column() -> None:
    facts = pa.schema([*TRADES, ("_change_type", pa.string())])
    spec = bound(facts, by={"_change_type": "symbol"})
    assert spec.left.by == ("_change_type",)


def test_versions_with_missing_values_are_refused_with_a_solution() -> None:
    changes = pa.schema([*PRICES, ("_unavailable", pa.list_(pa.string()))])
    error = refused(SchemaError, right=changes)
    assert (error.code, error.where) == ("FRAME_TYPE", "joins.asof, right frame")
    assert error.fix.startswith("apply changes.normalize between the reader and the join")


def test_a_tombstone_flag_of_another_type_is_refused() -> None:
    changes = pa.schema([*PRICES, ("_tombstone", pa.string())])
    error = refused(SchemaError, right=changes)
    assert (error.code, error.got) == ("COLUMN_TYPE", "'_tombstone' of type string")


def test_versions_with_a_watermark_are_refused_if_results_do_not_wait_for_them() -> None:
    parameters = settings(waits_for="facts")
    with pytest.raises(WatermarkError) as caught, located("joins.asof"):
        parameters.resolve((TRADES, PRICES), carried=(None, 5_000_000), shards=8)
    error = caught.value
    assert (error.code, error.where) == ("WATERMARK_NOT_WAITED_FOR", "joins.asof, right frame")
    assert error.got == "a watermark with a delay of '5 seconds' and waits_for='facts'"
    assert "waits_for='both'" in error.fix


def test_a_map_is_refused_as_a_key() -> None:
    assert refused(SchemaError, by="tags").code == "TYPE_UNSUPPORTED"


def test_a_change_type_of_another_type_is_refused() -> None:
    changes = pa.schema([*PRICES, ("_change_type", pa.int64())])
    error = refused(SchemaError, right=changes)
    assert (error.code, error.got) == ("COLUMN_TYPE", "'_change_type' of type bigint")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("status", {}),
        ("STATUS", {}),
        ("_change_type", {"late_versions": "retract"}),
        ("late", {"stragglers": "route"}),
    ],
)
def test_a_column_with_the_name_of_an_added_one_is_refused(
    name: str, arguments: dict[str, Any]
) -> None:
    trades = pa.schema([*TRADES, (name, pa.string())])
    assert refused(SchemaError, left=trades, **arguments).code == "NAME_TAKEN"
    if name.lower() == "status":
        assert bound(left=trades, into="found").output.names[-1] == "found"


@pytest.mark.parametrize("into", ["late", "LATE", "_change_type"])
def test_into_with_the_name_of_another_added_column_is_refused(into: str) -> None:
    error = refused(SpecError, into=into)
    assert (error.code, error.got) == ("NAME_TAKEN", f"into={into!r}")


@pytest.mark.parametrize(
    ("arguments", "frame"),
    [
        ({"time": "price"}, "left"),
        ({"version": "price"}, "right"),
        ({"sequence": "tags"}, "right"),
        ({"by": "tags"}, "left"),
    ],
)
def test_an_error_names_the_frame_of_the_column(arguments: dict[str, Any], frame: str) -> None:
    assert f"joins.asof, {frame} frame" in refused(SchemaError, **arguments).where


# Transforms.


def test_an_operator_without_versions_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        joins.asof(None, **ARGUMENTS)(FakeFrame())  # type: ignore[arg-type]
    assert caught.value.code == "PARAMETER_MISSING"


def test_different_key_types_are_refused() -> None:
    prices = PRICES.set(0, pa.field("symbol", pa.int64()))
    with pytest.raises(SchemaError) as caught:
        replay(joins.asof(None, **ARGUMENTS), [], schema=(TRADES, prices))
    assert caught.value.code == "COLUMNS_DIFFER"
    assert caught.value.got == "left 'symbol' and right 'symbol': string and bigint"


def test_a_side_without_a_required_watermark_is_refused() -> None:
    lone = joins.asof(None, **(ARGUMENTS | {"delay": None}))
    with pytest.raises(WatermarkError, match="right frame") as caught:
        replay(lone, [], schema=(TRADES, PRICES), watermark=("1 minute", None))
    assert caught.value.code == "WATERMARK_MISSING"
    facts = joins.asof(None, **(ARGUMENTS | {"delay": None, "waits_for": "facts"}))
    assert replay(facts, [], schema=(TRADES, PRICES), watermark=("1 minute", None)) == []
    with pytest.raises(WatermarkError) as caught:
        replay(facts, [], schema=(TRADES, PRICES), watermark="1 minute")
    assert caught.value.code == "WATERMARK_NOT_WAITED_FOR"
