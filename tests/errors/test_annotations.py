"""Public functions refuse arguments that the annotations of their parameters exclude."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, get_args

import pytest

import streamops
from streamops import windows
from streamops.errors import CallError, SpecError
from streamops.kernel.calls import _annotated, explain_call
from streamops.kernel.parameters import Text

PACKAGES = [
    importlib.import_module(f"streamops.{name}")
    for name in [*streamops.__all__, "testing.laws"]
    if inspect.ismodule(getattr(streamops, name, streamops)) and name != "errors"
]
OMITTED = {"streamops.testing": ""}
"""What errors omit of the name of a package."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{prefix}.{name}": function
    for package in PACKAGES
    for prefix in [package.__name__.removeprefix(OMITTED.get(package.__name__, "streamops."))]
    for name in package.__all__
    if inspect.isfunction(function := getattr(package, name))
}
PARAMETERS = [
    (name, parameter, accepts, is_optional)
    for name, function in FUNCTIONS.items()
    for parameter, (accepts, is_optional) in _annotated(inspect.unwrap(function))[1].items()
]
VALIDATED_OTHERWISE = {
    "sketches.from_datasketches, dtype": "the choices depend on the sketch",
    "sketches.minhash_sketch_agg, scheme": "it is validated together with the other parameters",
    "windows.session, stragglers": "'update' has a remedy of its own",
}
"""Documented choices that the functions validate themselves."""


def refused(name: str, /, **arguments: Any) -> SpecError:
    """The error of a call with the other parameters at hand."""
    required = {
        p.name: None
        for p in inspect.signature(FUNCTIONS[name]).parameters.values()
        if p.default is p.empty and not str(p).startswith("*")
    }
    accepted = dict(_annotated(inspect.unwrap(FUNCTIONS[name]))[1])
    for other in required.keys() & accepted.keys():
        accepts = accepted[other][0]
        required[other] = (
            "a" if accepts is str else True if accepts is bool else get_args(accepts)[0]
        )
    with pytest.raises(SpecError) as caught:
        FUNCTIONS[name](**{**required, **arguments})
    return caught.value


@pytest.mark.parametrize(
    ("name", "parameter", "accepts"),
    [(n, p, k) for n, p, k, _ in PARAMETERS if k not in (str, bool)],
)
def test_a_word_that_is_not_one_of_the_choices_is_refused(
    name: str, parameter: str, accepts: Any
) -> None:
    error = refused(name, **{parameter: "no such choice"})
    assert (error.code, error.where) == ("UNKNOWN_CHOICE", name)
    assert error.got == f"{parameter}='no such choice'"
    assert all(repr(choice) in error.expected for choice in get_args(accepts))
    assert refused(name, **{parameter: 0.5}).code == "UNKNOWN_CHOICE"


@pytest.mark.parametrize(
    ("name", "parameter", "is_optional"), [(n, p, o) for n, p, k, o in PARAMETERS if k is str]
)
def test_what_is_not_text_is_not_a_name(name: str, parameter: str, is_optional: bool) -> None:
    for value in (5, "", *(() if is_optional else (None,))):
        error = refused(name, **{parameter: value})
        assert (error.code, error.where) == ("PARAMETER_TYPE", name)
        assert error.what == f"`{parameter}` is not a name"
        assert error.got == f"{value!r} of type {type(value).__name__}"


@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, p, k, _ in PARAMETERS if k is bool])
def test_a_word_or_a_number_is_neither_true_nor_false(name: str, parameter: str) -> None:
    for value in ("no", 0, None):
        error = refused(name, **{parameter: value})
        assert (error.code, error.where) == ("PARAMETER_TYPE", name)
        assert error.what == f"`{parameter}` is neither true nor false"


def test_every_documented_choice_is_validated() -> None:
    validated = {
        f"{name}, {parameter}" for name, parameter, accepts, _ in PARAMETERS if accepts is not str
    }
    documented = set()
    for name, function in FUNCTIONS.items():
        written = re.findall(
            r'^([\w, ]+) : ("\w[^\n:]*"(?: or "[^"\n]*")?)(?:, optional)?$',
            inspect.getdoc(function) or "",
            re.MULTILINE,
        )
        documented |= {f"{name}, {of}" for names, _ in written for of in names.split(", ")}
    assert documented - validated == {*VALIDATED_OTHERWISE}
    assert len(documented) > 90


def test_the_choices_of_all_functions_are_found() -> None:
    accepted = [accepts for _, _, accepts, _ in PARAMETERS]
    assert accepted.count(str) > 140
    assert accepted.count(bool) > 3
    assert len(accepted) - accepted.count(str) > 100


def test_a_call_that_does_not_fit_is_explained_before_its_arguments() -> None:
    class DataFrame:
        pass

    with pytest.raises(CallError) as caught:
        windows.calendar(DataFrame(), "day", "UTC", time="ts", agg={})  # type: ignore
    assert caught.value.code == "NOT_CALLED"
    with pytest.raises(CallError) as caught:
        windows.tumbling("1 minute", time=5, agg={}, watermark="1 hour")  # type: ignore[call-arg]
    assert caught.value.code == "UNKNOWN_PARAMETER"


def test_an_argument_without_a_name_is_validated_and_one_that_is_left_out_is_not() -> None:
    @explain_call("planted.count")
    def count(
        how: Literal["a", "b"], column: str | None = None, *rest: str, text: Text = ""
    ) -> str:
        return f"{how} {column} {rest} {text}"

    assert count("a") == "a None () "
    assert count("b", None, "", text="") == "b None ('',) "
    for wrong in (lambda: count("c"), lambda: count("a", 5), lambda: count("a", "")):  # type: ignore
        with pytest.raises(SpecError, match=r"planted\.count"):
            wrong()
