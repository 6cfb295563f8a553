"""The documentation of joins matches the code."""

from __future__ import annotations

from typing import get_args

from streamops import joins
from streamops.joins.core import asof
from streamops.joins.core.asof import AsofCore
from streamops.joins.core.interval import IntervalCore
from streamops.joins.core.interval_spec import Early, How, Matches, Stragglers, TooLate
from tests.docs.test_readme import ROOT, documented, public


def test_every_name_of_joins_is_documented() -> None:
    known = documented()
    assert public(joins) - known == set()
    own = (How, Matches, Stragglers, TooLate, Early)
    own += tuple(getattr(asof, n) for n in ("WaitsFor", "Stragglers", "LateVersions"))
    choices = (word for choice in own for word in get_args(choice))
    assert {part for word in choices for part in word.split()} - known == set()
    reasons = "null_sequence until_before_version unknown_change_type conflicting_version"
    assert set(reasons.split()) <= known
    assert {"matched", "expired", "late_match", "early", "missing"} <= known


def test_every_join_is_in_the_guide() -> None:
    text = (ROOT / "docs" / "joins.md").read_text()
    assert [name for name in joins.__all__ if f"joins.{name}(" not in text] == []


def test_the_states_of_joins_are_documented() -> None:
    formats = (ROOT / "docs" / "state-formats.md").read_text()
    for core in (IntervalCore(), AsofCore()):
        assert f"## {core.STATE.kind}, version {core.STATE.version}" in formats
