"""Each sentence of the card of an operator is tried by a test: ``cards.yaml`` says by which.

A new or changed sentence of the lines about output mode, watermark, state, order and batch fails here, until
somebody names the test that tries it. The sentences below `untried` have none yet; there may be no new ones.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamops import aggregates as agg
from streamops import joins, patterns, windows
from streamops.kernel.operator import Core
from tests.spark.test_repr import CALLS, made
from website.names import public_names

ROOT = Path(__file__).parent.parent.parent
LINES = ("Output mode", "Watermark", "State", "Order", "Batch")
CARDS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "cards.yaml").read_text())
MOST_UNTRIED = 132
SECOND = 1_000_000

Sentence = tuple[str, str]


def sentences() -> dict[Sentence, set[str]]:
    """Each sentence of a line, and the operators that have it."""
    found = defaultdict(set)
    for name in public_names():
        if name.is_operator:
            for line in LINES:
                for sentence in re.split(r" · |\. (?=[A-Z\"])", name.docstring.card[line]):
                    found[line, sentence.strip()].add(name.title)
    return dict(found)


@cache
def defined_in(path: str) -> set[str]:
    """The tests of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}


def test_each_sentence_of_a_card_names_the_tests_that_try_it() -> None:
    tried = {(card["line"], card["sentence"]): set(card["of"]) for card in CARDS["tried"]}
    untried = {(card["line"], card["sentence"]): set(card["of"]) for card in CARDS["untried"]}
    named: dict[Sentence, set[str]] = defaultdict(set)
    for part in (tried, untried):
        for sentence, operators in part.items():
            assert not named[sentence] & operators, "named twice"
            named[sentence] |= operators
    assert dict(named) == sentences()
    assert sum(map(len, untried.values())) <= MOST_UNTRIED


def test_the_tests_of_the_cards_exist() -> None:
    for card in CARDS["tried"]:
        assert card["tests"], card["sentence"]
        for test in card["tests"]:
            path, _, name = test.partition("::")
            assert name in defined_in(path), test


TIMED: dict[str, Any] = {"time": "ts", "delay": "5 seconds"}
WINDOW: dict[str, Any] = {**TIMED, "agg": {"n": agg.count()}}
CORRECTED: dict[str, Any] = {"stragglers": "retract", "allowed_lateness": "20 seconds"}


@pytest.mark.parametrize(
    ("operator", "lag"),
    [
        (windows.tumbling("1 minute", **WINDOW), 0),
        (windows.tumbling("1 minute", **WINDOW, **CORRECTED), 20),
        (windows.hopping("1 minute", "30 seconds", **WINDOW, **CORRECTED), 20),
        (windows.calendar("day", "UTC", **WINDOW, **CORRECTED), 20),
        (windows.cumulative("1 day", "1 hour", **WINDOW, **CORRECTED), 20),
        (windows.sliding("1 minute", **WINDOW, **CORRECTED), 20),
        (windows.session("1 minute", **WINDOW, **CORRECTED), 20),
        (windows.session("1 minute", until="last", **WINDOW, **CORRECTED), 80),
        (windows.compare("1 day", values="v", delay="5 seconds", **CORRECTED), 20),
        (windows.over(values={"v": windows.lag("v")}, within="1 hour", **TIMED), 0),
        (windows.over(values={"v": windows.lead("v")}, within="1 hour", **TIMED), 3600),
        (windows.resample("1 second", values={"v": "previous"}, max_gap="1 minute", **TIMED), 0),
        (windows.resample("1 second", values={"v": "linear"}, max_gap="1 minute", **TIMED), 60),
        (patterns.match("a", define={"a": "x"}, within="1 hour", measures={}, **TIMED), 3600),
        (
            joins.interval(None, "-1 minute", "30 seconds", by="k", time="ts", delay="5 seconds"),
            30,
        ),
        (
            joins.asof(
                None,
                by="k",
                time="ts",
                version="since",
                sequence="s",
                direction="forward",
                tolerance="1 minute",
                delay="5 seconds",
            ),
            60,
        ),
    ],
    ids=repr,
)
def test_sparks_own_delay_is_what_its_card_has(operator: Any, lag: int) -> None:
    assert operator.parameters.lag == lag * SECOND


@pytest.mark.parametrize("call", CALLS)
def test_an_operator_whose_card_has_no_state_runs_without_one(call: str) -> None:
    title = call.partition("(")[0]
    (card,) = (name.docstring.card for name in public_names() if name.title == title)
    has_state = isinstance(getattr(made(call), "core", None), Core)
    assert has_state is not card["State"].startswith("none")
