"""Errors have five facts and a code, also in other processes."""

from __future__ import annotations

import multiprocessing.reduction
from typing import Any

import pytest

from streamops import errors
from streamops.kernel.columns import column_not_found
from streamops.kernel.errors import (
    Code,
    ColumnNotFound,
    SchemaError,
    SpecError,
    StreamopsError,
    located,
    located_methods,
)

FACTS = {"where": "windows.tumbling", "got": 1, "expected": "2", "fix": "write 2"}
OTHERS = ("Code", "ColumnNotFound", "Condition")
CLASSES = [getattr(errors, name) for name in errors.__all__ if name not in OTHERS]
WRONG_TYPE = Code("WRONG_TYPE", SpecError)(
    "column {column!r} is {bits:,} bits wide", "{expected}", "name={{{column}}}"
)


def shipped(error: StreamopsError) -> Any:
    """The error as another process receives it."""
    return multiprocessing.reduction.ForkingPickler.loads(
        multiprocessing.reduction.ForkingPickler.dumps(error)
    )


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_states_what_where_got_expected_and_fix(error_class: type[StreamopsError]) -> None:
    error = error_class("SOME_CODE", "it broke", **FACTS)
    assert str(error) == (
        "[SOME_CODE] windows.tumbling: it broke\n"
        "  got:       1\n"
        "  expected:  2\n"
        "  fix:       write 2\n"
        "  see:       docs/errors.md#some_code"
    )
    assert (error.code, error.what, error.where, error.got, error.expected, error.fix) == (
        "SOME_CODE",
        "it broke",
        "windows.tumbling",
        1,
        "2",
        "write 2",
    )


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_keeps_its_facts_across_processes(error_class: type[StreamopsError]) -> None:
    error = error_class("SOME_CODE", "it broke", **FACTS)
    received = shipped(error)
    assert type(received) is error_class
    assert vars(received) == vars(error)
    assert str(received) == str(error)


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_error_is_a_streamops_error(error_class: type[StreamopsError]) -> None:
    assert issubclass(error_class, StreamopsError)


@pytest.mark.parametrize(
    ("error_class", "builtin"),
    [
        (errors.SpecError, ValueError),
        (errors.SchemaError, ValueError),
        (errors.WatermarkError, ValueError),
        (errors.ChangeStreamError, ValueError),
        (errors.RequirementError, RuntimeError),
        (errors.ColumnNotFound, errors.SchemaError),
    ],
)
def test_an_error_is_also_the_matching_builtin_error(error_class: type, builtin: type) -> None:
    assert issubclass(error_class, builtin)


def test_a_missing_column_is_reported_with_the_nearest_name() -> None:
    error = column_not_found("orgin", ["ts", "origin"], where="windows.tumbling", role="by")
    assert str(error) == (
        "[COLUMN_NOT_FOUND] windows.tumbling: column 'orgin', given as `by`, does not exist\n"
        "  got:       orgin\n"
        "  expected:  one of: ts, origin\n"
        "  fix:       did you mean 'origin'?\n"
        "  see:       docs/errors.md#column_not_found"
    )


def test_the_nearest_name_is_found_in_any_case() -> None:
    location = {"where": "windows.tumbling", "role": "time"}
    hint = " (names are case-sensitive here)"
    assert column_not_found("TS", ["ts", "k"], **location).fix == f"did you mean 'ts'?{hint}"
    assert column_not_found("ts", ["k", "TS"], **location).fix == f"did you mean 'TS'?{hint}"
    assert column_not_found("ORGIN", ["ts", "Origin"], **location).fix == "did you mean 'Origin'?"


@pytest.mark.parametrize("column", ["s.page", "s.at.page"])
def test_a_field_of_a_struct_must_be_extracted_to_a_column(column: str) -> None:
    error = column_not_found(column, ["ts", "s", "page_s"], where="windows.tumbling", role="by")
    assert error.fix == f"make the field a column first: df.withColumn('page', F.col({column!r}))"
    error = column_not_found("t.page", ["ts", "page"], where="windows.tumbling", role="by")
    assert error.fix == "did you mean 'page'?"


def test_a_missing_column_without_a_similar_name_is_reported_with_all_names() -> None:
    error = column_not_found("zzz", iter(["ts", "origin"]), where="windows.tumbling", role="time")
    assert error.fix == "name one of: ts, origin"


def test_a_missing_column_keeps_its_facts_across_processes() -> None:
    error = column_not_found("orgin", ["origin"], where="windows.tumbling", role="by")
    received = shipped(error)
    assert type(received) is ColumnNotFound
    assert vars(received) == vars(error)


def test_an_error_is_raised_and_caught_by_its_code() -> None:
    with pytest.raises(SpecError, match=r"^\[SOME_CODE\] windows.tumbling: it broke\n") as caught:
        raise SpecError("SOME_CODE", "it broke", **FACTS)
    assert caught.value.code == "SOME_CODE"


def test_a_condition_fills_the_facts_into_its_texts() -> None:
    error = WRONG_TYPE.error(where="windows.tumbling", column="v", bits=4096, expected=64, got=[1])
    assert type(error) is SpecError
    assert (error.code, error.where, error.got) == ("WRONG_TYPE", "windows.tumbling", [1])
    assert error.what == "column 'v' is 4,096 bits wide"
    assert (error.expected, error.fix) == ("64", "name={v}")
    assert error.facts == {"column": "v", "bits": 4096, "expected": 64}
    assert vars(shipped(error)) == vars(error)


def test_braces_in_a_value_have_no_meaning() -> None:
    text = "{bits} {0} {x.__class__} {{"
    error = WRONG_TYPE.error(where="w", column=text, bits=1, expected=text, got=text)
    assert error.what == f"column {text!r} is 1 bits wide"
    assert (error.expected, error.fix) == (text, f"name={{{text}}}")


@pytest.mark.parametrize("template", ["{0}", "{}", "{x.y}", "{x[0]}", "{x:{y}}"])
def test_a_template_only_names_facts(template: str) -> None:
    code = Code("SOME_CODE", SpecError)
    for texts in ((template, "", ""), ("", template, ""), ("", "", template)):
        with pytest.raises(ValueError, match="is not the name of a fact"):
            code(*texts)


def test_a_code_can_have_conditions_of_another_class() -> None:
    condition = Code("SOME_CODE", SpecError).of(SchemaError)("it broke", "2", "write 2")
    assert type(condition.error(where="w", got=1)) is SchemaError


def odd(**facts: Any) -> SpecError:
    return SpecError("ODD", "it is odd", got=1, expected=2, fix="add 1", **facts)


def raised_in(*blocks: located, **facts: Any) -> StreamopsError:
    """The error of the innermost of these blocks, outside of all of them."""

    def fail() -> None:
        raise odd(**facts)

    for block in reversed(blocks):
        fail = block(fail)
    with pytest.raises(StreamopsError) as caught:
        fail()
    assert str(shipped(caught.value)) == str(caught.value)
    return caught.value


def test_an_error_is_located_by_the_innermost_block_around_it() -> None:
    error = raised_in(located("testing.replay"), located("windows.tumbling"))
    assert error.where == "windows.tumbling"
    assert str(error).startswith("[ODD] windows.tumbling: it is odd\n")


def test_parts_of_a_location_are_kept_in_their_order() -> None:
    error = raised_in(located("joins.asof"), located(at="right frame"), at="column 'v'")
    assert error.where == "joins.asof, right frame, column 'v'"


def test_an_error_that_knows_its_location_keeps_it() -> None:
    error = raised_in(located("joins.asof"), located(at="right frame"), where="shard 3", at="row 1")
    assert error.where == "shard 3, row 1"


def test_an_error_without_a_location_has_none_in_its_text() -> None:
    assert str(odd()).startswith("[ODD] it is odd\n")
    assert str(odd(at="column 'v'")).startswith("[ODD] column 'v': it is odd\n")


def test_an_error_of_another_process_is_located() -> None:
    error = shipped(odd(at="column 'v'"))
    error.locate("windows.tumbling")
    assert error.where == "windows.tumbling, column 'v'"
    assert str(error.replace(fix="add 3")).startswith(
        "[ODD] windows.tumbling, column 'v': it is odd\n"
    )


def test_public_methods_and_the_constructor_of_a_class_are_located() -> None:
    @located_methods("doc.Thing")
    class Thing:
        def __init__(self, value: int) -> None:
            if value < 0:
                raise odd()

        def use(self) -> None:
            raise odd()

    for call in (lambda: Thing(-1), Thing(1).use):
        with pytest.raises(SpecError) as caught:
            call()
        assert caught.value.where == "doc.Thing"
