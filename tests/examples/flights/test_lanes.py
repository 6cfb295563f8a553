from __future__ import annotations

import io
import threading
from typing import TextIO

import pytest

from examples.flights.lanes import Held, side_by_side


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def nothing() -> None:
    """There is nothing to stop."""


def test_output_is_buffered_until_shown_and_passed_on_afterwards() -> None:
    screen = io.StringIO()
    held = Held(screen)
    print("one", file=held, flush=True)
    assert screen.getvalue() == ""
    held.show()
    assert screen.getvalue() == "one\n"
    print("two", file=held, flush=True)
    assert screen.getvalue() == "one\ntwo\n"


@pytest.mark.parametrize("screen", [io.StringIO(), Terminal()])
def test_output_is_a_terminal_if_the_screen_is(screen: io.StringIO) -> None:
    assert Held(screen).isatty() == screen.isatty()


def test_two_run_at_a_time_and_are_displayed_one_after_the_other() -> None:
    screen, second = io.StringIO(), threading.Event()

    def run(name: str, ours: TextIO) -> str:
        print(name, "begins", file=ours)
        if name == "first":
            assert second.wait(10)  # the other one runs, and even ends, meanwhile
        print(name, "ends", file=ours)
        if name == "second":
            second.set()
        return name.upper()

    results = side_by_side(run, ["first", "second", "third"], screen, stop=nothing)
    assert results == {name: name.upper() for name in ("first", "second", "third")}
    names = [line.split()[0] for line in screen.getvalue().splitlines()]
    assert names == ["first"] * 2 + ["second"] * 2 + ["third"] * 2


@pytest.mark.parametrize("failing", ["first", "second"])
def test_a_failure_ends_the_others(failing: str) -> None:
    stopped, begun = threading.Event(), []

    def run(name: str, ours: TextIO) -> None:
        begun.append(name)
        if name == failing:
            raise ValueError(name)
        if failing == "first":
            assert stopped.wait(10)

    with pytest.raises(ValueError, match=failing):
        side_by_side(run, ["first", "second"], io.StringIO(), stop=stopped.set)
    assert stopped.is_set()
