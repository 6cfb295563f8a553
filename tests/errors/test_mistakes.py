"""Every mistake of a newcomer raises an error with the remedy, and a code if it is ours."""

from __future__ import annotations

import pickle
import traceback

import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.errors import CallError, SpecError
from streamops.kernel.calls import explain_calls
from tests.errors.mistakes import MISTAKES, Mistake, code_of, raised


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_of_a_newcomer_is_answered_with_its_remedy(mistake: Mistake) -> None:
    error = raised(mistake)
    assert code_of(error) == mistake.code
    assert getattr(error, "where", "known")
    assert mistake.remedy in (getattr(error, "fix", None) or str(error))
    is_replay = any(entry.name == "replay" for entry in traceback.extract_tb(error.__traceback__))
    assert not (is_replay and str(getattr(error, "fix", "")).startswith(("df.", "cast it: df.")))


def test_the_mistakes_are_forty_or_more_and_each_once() -> None:
    assert len(MISTAKES) >= 40
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


def test_a_wrong_call_is_a_type_error_and_names_no_value() -> None:
    with pytest.raises(TypeError) as caught:
        windows.tumbling("1 minute", time="ts", agg={"n": agg.count()}, password="hunter2")  # type: ignore[call-arg]
    assert isinstance(caught.value, CallError)
    assert "hunter2" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_type_error_inside_of_a_function_is_not_replaced() -> None:
    def halve(size: str, *, time: str) -> float:
        return size / 2  # type: ignore

    package = {"__name__": "streamops.planted", "__all__": ["halve"], "halve": halve}
    explain_calls(package)
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        package["halve"]("a", time="ts")  # type: ignore
    assert not isinstance(caught.value, CallError)
    with pytest.raises(CallError, match="`time` must be given"):
        package["halve"]("a")  # type: ignore


def test_an_error_inside_of_a_public_function_is_located_there() -> None:
    def halve(size: str) -> float:
        raise SpecError("ODD", "it is odd", got=size, expected="an even size", fix="add 1")

    package = {"__name__": "streamops.planted", "__all__": ["halve"], "halve": halve}
    explain_calls(package)
    with pytest.raises(SpecError) as caught:
        package["halve"]("3")  # type: ignore
    assert caught.value.where == "planted.halve"
