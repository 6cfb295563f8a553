"""Mistakes in the parameters of a pattern, each with its error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import patterns, windows
from streamops.errors import CapacityError, SchemaError, SpecError, StreamopsError, WatermarkError
from streamops.testing import at, replay

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("fail", pa.bool_()),
        ("ok", pa.bool_()),
        ("price", pa.float64()),
    ]
)


def operator(pattern: str = "fail+ ok", **given: Any) -> Any:
    defaults: dict[str, Any] = {"define": {"fail": "fail", "ok": "ok"}, "time": "ts", "by": "user"}
    defaults |= {"within": "10 seconds", "delay": "0 seconds"}
    return patterns.match(pattern, **(defaults | given))


def code_of(error: pytest.ExceptionInfo[Any]) -> str:
    code: str = error.value.code
    return code


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("", 1),
        ("fail (ok", 6),
        ("fail ok)", 8),
        ("fail | ", 7),
        ("+ fail", 1),
        ("fail ++", 7),
        ("fail{3,2} ok", 5),
        ("fail{0} ok", 5),
        ("^fail", 1),
        ("fail $", 6),
        ("fail {- ok -}", 6),
        ("fail ! ok+ (", 10),
        ("fail !", 7),
        ("permute(fail, ok", 1),
        ("permute(fail,, ok)", 14),
        ("fail .. ok", 6),
        pytest.param("fail{" + "1" * 5_000 + "}", 5, id="a number of 5,000 digits"),
        pytest.param("(" * 5_000 + "fail" + ")" * 5_000, 65, id="5,000 nested groups"),
    ],
)
def test_the_position_of_a_mistake_in_a_pattern_is_named(pattern: str, position: int) -> None:
    with pytest.raises(SpecError) as error:
        operator(pattern)
    assert code_of(error) == "PATTERN_INVALID"
    assert f"at character {position}" in str(error.value)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"pattern": 7}, "PATTERN_INVALID"),
        ({"pattern": "fail* ok*"}, "PATTERN_INVALID"),
        ({"pattern": "fail? ok?"}, "PATTERN_INVALID"),
        ({"pattern": "... ok", "define": {"ok": "ok"}}, "PATTERN_INVALID"),
        ({"pattern": "fail ... ok?"}, "PATTERN_INVALID"),
        ({"pattern": "fail (ok !fail)"}, "PATTERN_INVALID"),
        ({"pattern": "fail | ok !fail"}, "PATTERN_INVALID"),
        ({"pattern": "fail{70} ok"}, "PARAMETER_OUT_OF_RANGE"),
        ({"pattern": "fail+ okay"}, "PATTERN_INVALID"),
        ({"pattern": "fail ok !other"}, "PATTERN_INVALID"),
        ({"measures": {"n": patterns.count("fial")}}, "PATTERN_INVALID"),
        ({"measures": {"n": agg.count()}}, "PARAMETER_TYPE"),
        ({"measures": patterns.count()}, "PARAMETER_TYPE"),
        ({"measures": {"match_end": patterns.count()}}, "NAME_TAKEN"),
        ({"measures": {"user": patterns.count()}}, "NAME_TAKEN"),
        ({"define": ["fail"]}, "PARAMETER_TYPE"),
        ({"define": {"fail": True, "ok": "ok"}}, "CONDITION_INVALID"),
        ({"define": {"fail": " ", "ok": "ok"}}, "CONDITION_INVALID"),
        ({"define": {"fail": patterns.count("ok"), "ok": "ok"}}, "CONDITION_INVALID"),
        ({"define": {f"v{n}": "ok" for n in range(63)}}, "PATTERN_INVALID"),
        ({"skip": "till any"}, "UNKNOWN_CHOICE"),
        ({"skip": "to first"}, "UNKNOWN_CHOICE"),
        ({"skip": None}, "UNKNOWN_CHOICE"),
        ({"skip": "to last okay"}, "PATTERN_INVALID"),
        ({"within": "0 seconds"}, "INVALID_DURATION"),
        ({"max_rows": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"max_rows": True}, "PARAMETER_OUT_OF_RANGE"),
        ({"matches": "last"}, "UNKNOWN_CHOICE"),
        ({"matches": "first", "horizon": "0 seconds"}, "INVALID_DURATION"),
        ({"matches": "first", "horizon": "1 month"}, "INVALID_DURATION"),
        ({"horizon": "1 day"}, "PARAMETER_WITHOUT_EFFECT"),
        (
            {"matches": "first", "horizon": "1 day", "skip": "to next row"},
            "PARAMETER_WITHOUT_EFFECT",
        ),
        ({"stragglers": "update"}, "UNKNOWN_CHOICE"),
        ({"timeouts": "yes"}, "UNKNOWN_CHOICE"),
        ({"when_full": "ignore"}, "UNKNOWN_CHOICE"),
        ({"tie_break": ["user", "user"]}, "DUPLICATE_COLUMN"),
        ({"time": None}, "PARAMETER_TYPE"),
    ],
)
def test_parameters_that_cannot_work_are_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as error:
        operator(**given)
    assert code_of(error) == code, error.value


@pytest.mark.parametrize(
    ("given", "what", "fix"),
    [
        (
            {"skip": "till any match"},
            "exponentially many",
            "'to next row' finds one match from every row",
        ),
        ({"skip": "to next"}, "not one of its choices", "'to next row' if they may"),
        ({"pattern": "fail ... ok?"}, "no certain bound", "leave the gap out"),
        ({"pattern": "fail* ok*"}, "matches no row at all", "write + instead of *"),
        ({"pattern": "fail{70} ok"}, "too many states", "a smaller number in {n,m}"),
        ({"pattern": "fail ok !other"}, "!other would exclude every row", "without `!`"),
        ({"measures": {"n": patterns.count("fial")}}, "no variable 'fial'", "did you mean 'fail'?"),
        ({"horizon": "1 day"}, "no match is remembered", "or set matches='first'"),
        (
            {"matches": "first", "horizon": "1 day", "skip": "to next row"},
            "does not continue after the first match",
            "does not change which match is the first",
        ),
        (
            {"define": {"fail": patterns.count("ok"), "ok": "ok"}},
            "other rows of the match than its first one",
            "filter the matches by their measures",
        ),
    ],
)
def test_what_is_not_offered_is_refused_with_a_reason_and_an_alternative(
    given: dict[str, Any], what: str, fix: str
) -> None:
    with pytest.raises(SpecError) as error:
        operator(**given)
    assert what in error.value.what
    assert fix in error.value.fix


def test_a_variable_may_be_called_any() -> None:
    assert operator("fail any+", define={"fail": "fail"}, skip="to last any")


def test_there_are_at_most_62_conditions() -> None:
    names = [f"v{n}" for n in range(63)]
    with pytest.raises(SpecError) as error:
        operator("(" + " | ".join(names) + ")", define=dict.fromkeys(names, "ok"))
    assert code_of(error) == "PARAMETER_OUT_OF_RANGE"
    assert operator("(" + " | ".join(names[1:]) + ")", define=dict.fromkeys(names[1:], "ok"))


@pytest.mark.parametrize(
    "condition",
    [
        lambda: patterns.first("fail", "price") > 3,
        lambda: patterns.last("fail", "price") + 1,
        lambda: patterns.previous("price") > patterns.mean("fail", "price"),
    ],
)
def test_a_condition_over_the_match_is_refused(condition: Any) -> None:
    with pytest.raises(SpecError) as error:
        condition()
    assert code_of(error) == "CONDITION_INVALID"
    assert "other rows of the match than its first one" in error.value.what
    assert "patterns.initial(column)" in error.value.fix
    assert "patterns.previous(column, n)" in error.value.fix
    assert "filter the matches by their measures" in error.value.fix


def test_conditions_are_combined_by_operators_and_not_by_and_or_not() -> None:
    one = patterns.previous("price") > "price"
    with pytest.raises(SpecError) as error:
        assert one
    assert code_of(error) == "CONDITION_INVALID"


@pytest.mark.parametrize("value", ["", None, 3])
@pytest.mark.parametrize("refer", [patterns.initial, patterns.previous, patterns.current])
def test_a_reference_to_a_row_needs_a_value(refer: Any, value: Any) -> None:
    with pytest.raises(SpecError) as error:
        refer(value)
    assert code_of(error) == "PARAMETER_TYPE"
    assert error.value.where == f"patterns.{refer.__name__}"


@pytest.mark.parametrize("offset", [0, -1, True, 1.0])
def test_only_earlier_rows_are_known(offset: Any) -> None:
    with pytest.raises(SpecError) as error:
        patterns.previous("price", offset)
    assert code_of(error) == "PARAMETER_OUT_OF_RANGE"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"by": "usr"}, "COLUMN_NOT_FOUND"),
        ({"tie_break": "seq"}, "COLUMN_NOT_FOUND"),
        ({"measures": {"p": patterns.first("ok", "prise")}}, "COLUMN_NOT_FOUND"),
        ({"time": "price"}, "COLUMN_TYPE"),
        ({"define": {"fail": "price", "ok": "ok"}}, "CONDITION_INVALID"),
        ({"define": {"fail": "price > 3", "ok": "ok"}}, "NOT_REPLAYABLE"),
        ({"define": {"fail": patterns.previous("price"), "ok": "ok"}}, "CONDITION_INVALID"),
        (
            {"define": {"fail": patterns.previous("user") > "price", "ok": "ok"}},
            "CONDITION_INVALID",
        ),
        ({"define": {"fail": patterns.previous("user") + 1 > 0, "ok": "ok"}}, "CONDITION_INVALID"),
        ({"define": {"fail": patterns.initial("user") > "price", "ok": "ok"}}, "CONDITION_INVALID"),
        ({"define": {"fail": "fail", "ok": patterns.initial("price")}}, "CONDITION_INVALID"),
        (
            {"define": {"fail": "fail", "ok": patterns.initial("prise") > 1}},
            "NOT_REPLAYABLE",
        ),
        ({"measures": {"t": patterns.sum("ok", "user")}}, "COLUMN_TYPE"),
    ],
)
def test_columns_that_cannot_work_are_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(StreamopsError) as error:
        replay(operator(**given), [SCHEMA.empty_table()])
    assert code_of(error) == code, error.value


def test_a_stream_needs_a_bound() -> None:
    with pytest.raises(SpecError) as error:
        replay(operator(within=None), [SCHEMA.empty_table()])
    assert code_of(error) == "PARAMETER_MISSING"
    assert "partial matches would be stored for ever" in error.value.what
    assert 'within="1 day"' in error.value.fix


def test_first_matches_on_a_stream_need_a_horizon() -> None:
    with pytest.raises(SpecError) as error:
        replay(operator(matches="first"), [SCHEMA.empty_table()])
    assert code_of(error) == "PARAMETER_MISSING"
    assert "every key would be stored for ever" in error.value.what
    assert 'horizon="30 days"' in error.value.fix
    replay(operator(matches="first", horizon="1 day"), [SCHEMA.empty_table()])


def test_a_watermark_of_the_frame_leaves_room_for_the_bound() -> None:
    counts = windows.tumbling("1 minute", time="match_end", agg={"n": agg.count()})
    chain = [operator(delay=None), counts]
    with pytest.raises(WatermarkError) as error:
        replay(chain, [SCHEMA.empty_table()], watermark="9 seconds")
    assert code_of(error) == "WATERMARK_LOST"
    replay(chain, [SCHEMA.empty_table()], watermark="10 seconds")
    replay(chain[0], [SCHEMA.empty_table()], watermark="9 seconds")


def test_a_key_with_too_many_undecided_rows_fails_the_query() -> None:
    row = {"user": "u", "fail": True, "ok": False, "price": 1.0}
    rows = [row | {"ts": at(n)} for n in range(4)]
    with pytest.raises(CapacityError) as error:
        replay(operator(max_rows=3), [rows])
    assert code_of(error) == "STATE_FULL"
    assert len(replay(operator(max_rows=4), [rows])) == 2
    # The limit is that of each key, and not of the shard; and rows above the watermark do not count.
    others = [row | {"user": "other"} for row in rows]
    assert len(replay(operator(max_rows=4).options(shards=1), [rows + others])) == 2
    assert len(replay(operator(max_rows=1, delay="4 seconds"), [rows])) == 2


def test_the_repr_shows_the_pattern_first() -> None:
    text = repr(
        operator(define={"fail": patterns.previous("price", 2) * 1.1 < "price", "ok": "ok"})
    )
    assert text.startswith(
        "patterns.match(pattern='fail+ ok', define={'fail': ((previous('price', 2)"
    )
    assert "current('price')" in text


def test_errors_have_five_facts() -> None:
    with pytest.raises(SchemaError) as error:
        replay(operator(define={"fail": "price", "ok": "ok"}), [SCHEMA.empty_table()])
    text = str(error.value)
    assert all(part in text for part in ("patterns.match", "got:", "expected:", "fix:"))
