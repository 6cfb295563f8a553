"""What the documents say of joins is what the code does."""

from __future__ import annotations

from typing import get_args

from streamops import joins
from streamops.joins.core import interval
from streamops.joins.core.interval_spec import Early, How, Matches, Stragglers, TooLate
from tests.docs.test_readme import ROOT, public, words


def test_every_word_of_joins_is_in_the_glossary() -> None:
    known = words(ROOT / "docs" / "glossary.md")
    assert public(joins) - known == set()
    choices = (
        word for choice in (How, Matches, Stragglers, TooLate, Early) for word in get_args(choice)
    )
    assert {part for word in choices for part in word.split()} - known == set()
    assert {"matched", "expired", "late_match", "early"} <= known


def test_every_join_is_in_its_document() -> None:
    text = (ROOT / "docs" / "joins.md").read_text()
    assert [name for name in joins.__all__ if f"joins.{name}(" not in text] == []


def test_the_state_of_interval_joins_is_documented() -> None:
    formats = (ROOT / "docs" / "state-formats.md").read_text()
    assert f"## {interval.STATE.kind}, version {interval.STATE.version}" in formats
