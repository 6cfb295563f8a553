"""What a user may say about temporal joins, and what every mistake is answered with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.asof_spec import AsofSpec
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SpecError,
    StreamopsError,
    WatermarkError,
)
from streamops.testing import replay

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
SAID: dict[str, Any] = {
    "by": "symbol",
    "time": "ts",
    "version": "since",
    "sequence": "seq",
    "delay": "1 minute",
}


def settings(**said: Any) -> AsofSpec:
    made = joins.asof(None, **(SAID | said)).parameters
    assert isinstance(made, AsofSpec)
    return made


def bound(left: pa.Schema = TRADES, right: pa.Schema = PRICES, **said: Any) -> AsofSpec:
    return settings(**said).resolve((left, right), carried=(None, None), shards=8)


def refused(kind: type[StreamopsError], **said: Any) -> Any:
    with pytest.raises(kind) as caught:
        bound(**said)
    return caught.value


# What is said right.


def test_the_output_is_the_fact_the_version_without_its_keys_and_what_became_of_it() -> None:
    spec = bound()
    facts, version = TRADES.names, ["since", "until", "seq_right", "price", "gone", "tags_right"]
    assert spec.output.names == [*facts, *version, "status"]
    assert spec.event_time == "ts"
    assert bound(late_versions="retract").output.names[-2:] == ["status", "_change_type"]
    assert bound(stragglers="route").output.names[-2:] == ["status", "late"]
    assert bound(into="found").output.names[-1] == "found"
    assert spec.origins["seq_right"] == (1, "seq")
    assert spec.origins["seq"] == (0, "seq")


def test_columns_that_say_what_a_version_does_are_not_in_the_output() -> None:
    assert "gone" not in bound(deleted="gone").output.names
    changes = pa.schema([*PRICES, ("_change_type", pa.string())])
    assert "_change_type" not in bound(right=changes).output.names
    assert bound(right=changes).changes


def test_keys_may_be_called_otherwise_among_the_versions() -> None:
    prices = PRICES.set(0, pa.field("ticker", pa.string()))
    spec = bound(right=prices, by={"symbol": "ticker"})
    assert (spec.left.by, spec.right.by) == (("symbol",), ("ticker",))
    assert "ticker" not in spec.output.names


def test_a_delay_is_for_both_or_for_each() -> None:
    assert settings().delays == (60_000_000, 60_000_000)
    assert settings(delay=("1 second", "2 seconds")).delays == (1_000_000, 2_000_000)
    assert settings(delay=None).delays == (None, None)
    spec = settings().resolve((TRADES, PRICES), carried=(5, None), shards=8)
    assert (spec.left.delay, spec.right.delay) == (None, 60_000_000)


def test_the_facts_alone_may_lead_the_watermark() -> None:
    made = settings(waits_for="facts")
    assert (made.delays, made.times) == ((60_000_000, None), ("ts", None))
    assert settings(waits_for="facts", delay=("1 second", None)).delays == (1_000_000, None)
    assert bound(waits_for="facts").right.time is None


def test_versions_and_facts_are_kept_for_the_lateness_only_where_it_is_used() -> None:
    late = {"allowed_lateness": "1 hour"}
    assert bound(**late).retention == 0
    assert bound(**late, stragglers="answer").retention == 3_600_000_000
    assert bound(**late, late_versions="retract").retention == 3_600_000_000
    assert bound(**late).lag == 3_600_000_000


def test_what_state_depends_on_is_its_identity() -> None:
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
    assert all(bound(**said).identity == bound().identity for said in same)
    identities = [bound(**said).identity for said in (*others, {})]
    assert all(identities.count(each) == 1 for each in identities)


def test_the_transform_shows_what_it_is() -> None:
    assert repr(joins.asof(None, **SAID, tolerance="1 day")) == (
        "joins.asof(by='symbol', time='ts', version='since', sequence='seq', until=None, "
        "deleted=None, how='left', tolerance='1 day', direction='backward', "
        "allow_exact=True, waits_for='both', delay='1 minute', "
        "allowed_lateness='0 seconds', stragglers='drop', late_versions='ignore', "
        "too_late='drop', into='status')"
    )


def test_a_join_that_looks_ahead_holds_its_results_back_by_the_tolerance() -> None:
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


def test_a_join_of_batches_looks_ahead_without_a_bound() -> None:
    class Table:
        isStreaming = False

    said = SAID | {"delay": None}
    join = joins.asof(Table(), **said, direction="forward")  # type: ignore[arg-type]
    assert join.parameters.resolve((TRADES, PRICES), carried=(None, None), shards=8).look_ahead == 0


# Mistakes.


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"how": "full"}, "UNKNOWN_CHOICE"),
        ({"stragglers": "retract"}, "UNKNOWN_CHOICE"),
        ({"late_versions": "update"}, "UNKNOWN_CHOICE"),
        ({"waits_for": "table"}, "UNKNOWN_CHOICE"),
        ({"too_late": "fail"}, "UNKNOWN_CHOICE"),
        ({"version": None}, "NOT_A_NAME"),
        ({"sequence": None}, "NOT_A_NAME"),
        ({"until": 5}, "NOT_A_NAME"),
        ({"by": 5}, "NOT_A_NAME"),
        ({"by": []}, "NO_KEY"),
        ({"tolerance": "-1 second"}, "DURATION_TOO_SMALL"),
        ({"tolerance": "1 month"}, "CALENDAR_DURATION"),
        ({"allowed_lateness": "-1 second"}, "DURATION_TOO_SMALL"),
        ({"delay": "5 microseconds"}, "DURATION_TOO_FINE"),
        ({"delay": ("1 s", "1 s"), "waits_for": "facts"}, "BAD_DURATION"),
        ({"delay": ("1 second",) * 2, "waits_for": "facts"}, "DELAY_WITHOUT_WATERMARK"),
        ({"sequence": "since"}, "COLUMN_TWICE"),
        ({"until": "since"}, "COLUMN_TWICE"),
        ({"sequence": "symbol"}, "COLUMN_TWICE"),
        # A delete has the revision of the row that it deletes: the row would stay.
        ({"sequence": "revision"}, "SEQUENCE_OF_REVISIONS"),
        ({"by": {"symbol": "_change_type"}}, "CHANGE_TYPE_ASKED"),
        ({"sequence": "_change_type"}, "CHANGE_TYPE_ASKED"),
        ({"version": "_change_type"}, "CHANGE_TYPE_ASKED"),
        ({"deleted": "_change_type"}, "CHANGE_TYPE_ASKED"),
        ({"direction": "backwards"}, "UNKNOWN_CHOICE"),
        ({"allow_exact": 1}, "NOT_A_BOOLEAN"),
        ({"direction": "forward"}, "TOLERANCE_MISSING"),
        ({"direction": "nearest", "until": "until"}, "TOLERANCE_MISSING"),
        ({"direction": "forward", "tolerance": "1 s", "until": "until"}, "BAD_DURATION"),
        (
            {"direction": "forward", "tolerance": "1 second", "until": "until"},
            "UNTIL_WITHOUT_BACKWARD",
        ),
        ({"tolerance": "0 seconds", "allow_exact": False}, "NO_VERSION_CAN_MATCH"),
        ({"too_late": "route"}, "TOO_LATE_WITHOUT_CORRECTIONS"),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_refused(said: dict[str, Any], code: str) -> None:
    assert refused(SpecError, **said).code == code


@pytest.mark.parametrize("role", ["time", "version", "sequence", "until", "deleted", "by"])
def test_a_column_that_does_not_exist_is_refused_with_its_side(role: str) -> None:
    error = refused(ColumnNotFound, **{role: "sinse"})
    assert error.code == "COLUMN_NOT_FOUND"
    side = "left" if role in ("time", "by") else "right"
    assert error.where == f"joins.asof, {side} frame"
    assert f"given as `{role}`" in error.what


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"time": "day"}, "event time"),
        ({"version": "price"}, "event time"),
        ({"until": "price"}, "event time"),
        ({"sequence": "tags"}, "a sequence"),
        ({"deleted": "price"}, "a deletion flag"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(said: dict[str, Any], words: str) -> None:
    error = refused(SchemaError, **said)
    assert error.code == "COLUMN_TYPE"
    assert words in error.what


def test_a_change_type_of_facts_is_a_column_like_any_other() -> None:
    facts = pa.schema([*TRADES, ("_change_type", pa.string())])
    spec = bound(facts, by={"_change_type": "symbol"})
    assert spec.left.by == ("_change_type",)


def test_versions_that_may_not_be_whole_rows_are_refused_with_the_way_round() -> None:
    changes = pa.schema([*PRICES, ("_unavailable", pa.list_(pa.string()))])
    error = refused(SchemaError, right=changes)
    assert (error.code, error.where) == ("ROWS_NOT_WHOLE", "joins.asof, right frame")
    assert error.fix.startswith("apply changes.normalize between the reader and the join")


def test_a_sign_of_a_tombstone_that_is_no_boolean_is_refused() -> None:
    changes = pa.schema([*PRICES, ("_tombstone", pa.string())])
    error = refused(SchemaError, right=changes)
    assert (error.code, error.got) == ("COLUMN_TYPE", "'_tombstone' of type string")


def test_versions_whose_watermark_is_not_to_be_waited_for_bring_none() -> None:
    made = settings(waits_for="facts")
    with pytest.raises(WatermarkError) as caught:
        made.resolve((TRADES, PRICES), carried=(None, 5_000_000), shards=8)
    error = caught.value
    assert (error.code, error.where) == ("WATERMARK_NOT_WAITED_FOR", "joins.asof, right frame")
    assert error.got == "a watermark with a delay of '5 seconds' and waits_for='facts'"
    assert "waits_for='both'" in error.fix


def test_a_map_is_no_key() -> None:
    assert refused(SchemaError, by="tags").code == "KEY_NOT_HASHABLE"


def test_a_change_type_that_is_no_text_is_refused() -> None:
    changes = pa.schema([*PRICES, ("_change_type", pa.int64())])
    error = refused(SchemaError, right=changes)
    assert (error.code, error.got) == ("COLUMN_TYPE", "'_change_type' of type bigint")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("status", {}),
        ("STATUS", {}),
        ("_change_type", {"late_versions": "retract"}),
        ("late", {"stragglers": "route"}),
    ],
)
def test_a_name_that_the_join_adds_is_refused(name: str, said: dict[str, Any]) -> None:
    trades = pa.schema([*TRADES, (name, pa.string())])
    assert refused(SchemaError, left=trades, **said).code == "NAME_TAKEN"
    if name.lower() == "status":
        assert bound(left=trades, into="found").output.names[-1] == "found"


@pytest.mark.parametrize("into", ["late", "LATE", "_change_type"])
def test_a_name_that_another_added_column_has_is_refused(into: str) -> None:
    error = refused(SpecError, into=into)
    assert (error.code, error.got) == ("NAME_TAKEN", f"into={into!r}")


@pytest.mark.parametrize(
    ("said", "frame"),
    [
        ({"time": "price"}, "left"),
        ({"version": "price"}, "right"),
        ({"sequence": "tags"}, "right"),
        ({"by": "tags"}, "left"),
    ],
)
def test_an_error_says_of_which_frame_the_column_is(said: dict[str, Any], frame: str) -> None:
    assert f"joins.asof, {frame} frame" in refused(SchemaError, **said).where


# Transforms.


def test_a_transform_without_versions_says_so() -> None:
    with pytest.raises(SpecError) as caught:
        joins.asof(None, **SAID)(None)  # type: ignore[arg-type]
    assert caught.value.code == "RIGHT_MISSING"


def test_key_types_that_differ_are_refused_with_both() -> None:
    prices = PRICES.set(0, pa.field("symbol", pa.int64()))
    with pytest.raises(SchemaError) as caught:
        replay(joins.asof(None, **SAID), [], schema=(TRADES, prices))
    assert caught.value.code == "KEY_TYPES_DIFFER"
    assert caught.value.got == "left 'symbol' and right 'symbol': string and bigint"


def test_a_side_without_a_watermark_is_refused_where_one_is_needed() -> None:
    lone = joins.asof(None, **(SAID | {"delay": None}))
    with pytest.raises(WatermarkError, match="right frame") as caught:
        replay(lone, [], schema=(TRADES, PRICES), watermark=("1 minute", None))
    assert caught.value.code == "WATERMARK_MISSING"
    facts = joins.asof(None, **(SAID | {"delay": None, "waits_for": "facts"}))
    assert replay(facts, [], schema=(TRADES, PRICES), watermark=("1 minute", None)) == []
    with pytest.raises(WatermarkError) as caught:
        replay(facts, [], schema=(TRADES, PRICES), watermark="1 minute")
    assert caught.value.code == "WATERMARK_NOT_WAITED_FOR"
