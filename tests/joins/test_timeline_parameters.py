"""Parameters of `joins.timeline`, and the errors of invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.timeline import TimelineSpec
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError
from streamops.spark.drive import resolve
from tests.joins.inputs import delays
from tests.time.test_parameters import FakeFrame

CHANGE = ("_change_type", pa.string())
MAP = pa.map_(pa.string(), pa.int64())
POSTS = pa.schema(
    [("post", pa.int64()), ("author", pa.string()), ("at", pa.int64()), ("lsn", pa.int64()), ("m", MAP), ("l", pa.list_(pa.int64())), CHANGE]
)  # fmt: skip
FOLLOWS = pa.schema(
    [("since", pa.int64()), ("user", pa.int32()), ("whom", pa.string()), ("lsn", pa.int64()), ("m", MAP), CHANGE]
)  # fmt: skip
ARGUMENTS: dict[str, Any] = {
    "by": {"author": "whom"},
    "user": "user",
    "key": "post",
    "ranked_by": "at",
    "cap": 100,
}
VERSIONED: dict[str, Any] = {"sequence": "lsn", "remember": 10}


def bound(left: pa.Schema = POSTS, right: pa.Schema = FOLLOWS, **arguments: Any) -> TimelineSpec:
    transform = joins.timeline(None, **(ARGUMENTS | arguments))
    joined = resolve(transform, (left, right), (None, None))
    assert transform.follow_up is not None
    spec = resolve(transform.follow_up, (joined.output,), (None,))
    assert isinstance(spec, TimelineSpec)
    return spec


@pytest.mark.parametrize(
    ("error", "code", "act"),
    [
        (SpecError, "PARAMETER_MISSING", lambda: bound(by=[])),
        (SpecError, "PARAMETER_MISSING", lambda: bound(user=[])),
        (SpecError, "PARAMETER_MISSING", lambda: bound(key=())),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(user=["user", "lsn", "user"])),
        (SpecError, "PARAMETER_TYPE", lambda: bound(user=3)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(key=["post", None])),
        (SpecError, "PARAMETER_TYPE", lambda: bound(ranked_by=None)),
        (SpecError, "NAME_TAKEN", lambda: bound(user=["user", "_change_type"])),
        (SpecError, "NAME_TAKEN", lambda: bound(key="_change_type")),
        (SpecError, "NAME_TAKEN", lambda: bound(ranked_by="_change_type")),
        (SpecError, "NAME_TAKEN", lambda: bound(by={"_change_type": "whom"})),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(cap=0)),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(cap=1 << 31)),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(cap=True)),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(cap=100.0)),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(user="whom")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(rejected="fail")),
        (SpecError, "PARAMETERS_CONTRADICT", lambda: bound(sequence="lsn")),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(**(VERSIONED | {"remember": -1}))),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(user="usr")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(key="pots")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(ranked_by="now")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(by="author")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(sequence=("lsn", "no"), remember=0)),
        (SchemaError, "COLUMN_TYPE", lambda: bound(ranked_by="l")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(key=["post", "m"])),
        (SchemaError, "TYPE_UNSUPPORTED", lambda: bound(user="m")),
        (SchemaError, "COLUMNS_DIFFER", lambda: bound(by={"post": "whom"})),
        (SchemaError, "SEQUENCE_TYPE", lambda: bound(sequence=("m", "lsn"), remember=0)),
        (SchemaError, "FRAME_TYPE", lambda: bound(POSTS.remove(6))),
        (SchemaError, "FRAME_TYPE", lambda: bound(right=FOLLOWS.remove(5))),
        (
            SchemaError,
            "NAME_TAKEN",
            lambda: bound(POSTS.append(pa.field("User", MAP)).append(pa.field("user_right", MAP))),
        ),
        (
            SchemaError,
            "NAME_TAKEN",
            lambda: bound(POSTS.append(pa.field("Late", MAP)), rejected="route"),
        ),
    ],
)
def test_invalid_parameters_are_refused_with_a_code(
    error: type[StreamopsError], code: str, act: Callable[[], object]
) -> None:
    with pytest.raises(error) as caught:
        act()
    assert caught.value.code == code


def test_an_error_names_the_side_and_a_similar_column() -> None:
    with pytest.raises(ColumnNotFound) as caught:
        bound(user="usr")
    assert str(caught.value).startswith("[COLUMN_NOT_FOUND] joins.timeline, right side: ")
    assert "'user'" in str(caught.value)
    with pytest.raises(SpecError) as refused:
        bound(cap=0)
    assert str(refused.value) == (
        "[PARAMETER_OUT_OF_RANGE] joins.timeline: `cap` is not a number of posts\n"
        "  got:       cap=0\n"
        "  expected:  an integer from 1 to 2147483647\n"
        "  fix:       cap=800, or the number of posts that is shown of a timeline"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


def test_the_output_has_the_columns_of_the_posts_and_then_the_user() -> None:
    names = ["post", "author", "at", "lsn", "m", "l"]
    assert bound().output.names == [*names, "user", "_change_type"]
    assert bound(rejected="route").output.names == [*names, "user", "_change_type", "late"]
    assert bound(**VERSIONED).output.names == [*names, "user", "_change_type"]


def test_a_user_column_with_a_taken_name_gets_a_suffix() -> None:
    spec = bound(POSTS.append(pa.field("User", pa.string())), **VERSIONED)
    assert spec.user == ("user_right",)
    assert spec.output.names[-3:] == ["User", "user_right", "_change_type"]


@pytest.mark.parametrize("arguments", [{}, VERSIONED, {"sequence": ("at", "since"), "remember": 0}])
def test_a_user_may_be_several_columns_in_any_order_of_the_frame(arguments: dict[str, Any]) -> None:
    spec = bound(user=["user", "lsn"], **arguments)
    assert spec.user == ("user", "lsn_right")
    assert spec.inputs[0].by == spec.user
    turned = bound(right=pa.schema(list(FOLLOWS)[::-1]), user=["user", "lsn"], **arguments)
    assert turned.identity == spec.identity


def test_repeated_join_columns_are_one() -> None:
    left = POSTS.append(pa.field("other", pa.string()))
    spec = bound(left, by={"author": "whom", "other": "whom"})
    assert spec.user == ("user",)
    assert spec.author == ("author", "other")


def test_the_repr_shows_what_was_written() -> None:
    assert repr(joins.timeline(None, **ARGUMENTS, **VERSIONED)) == (
        "joins.timeline(by={'author': 'whom'}, user=('user',), key=('post',), ranked_by='at', "
        "cap=100, sequence=('lsn', 'lsn'), remember=10)"
    )


def test_parameters_that_change_the_output_are_part_of_the_checkpoint() -> None:
    same = bound().identity
    assert bound(rejected="route").identity == same
    for other in ({"cap": 99}, {"ranked_by": "lsn"}, {"key": ["post", "at"]}):
        assert bound(**other).identity != same


def test_the_follow_up_has_the_options_of_the_join() -> None:
    transform = joins.timeline(None, **ARGUMENTS).options(
        state_api="applyInPandasWithState", shards=3
    )
    assert transform.follow_up is not None
    second = transform.steps[1]
    assert second.execution == transform.execution
    assert (second.execution.shards, second.follow_up) == (3, None)


def test_without_a_right_frame_only_the_test_kit_can_use_it() -> None:
    unused: Any = FakeFrame()
    with pytest.raises(SpecError) as caught:
        joins.timeline(None, **ARGUMENTS)(unused)
    assert caught.value.code == "PARAMETER_MISSING"


def test_there_is_no_watermark() -> None:
    settings = joins.timeline(None, **ARGUMENTS).parameters
    assert (settings.times, delays(settings), settings.lag) == ((None, None), (None, None), 0)
    assert settings.reads == (("author", "post", "at"), ("whom", "user"))
    assert bound().event_time is None
    assert "_change_type" not in bound().origins
