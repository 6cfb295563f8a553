"""The documentation of stored queries matches the code."""

from __future__ import annotations

import inspect

from streamops import search
from streamops.search.core.asof import SearchAsofCore
from streamops.search.core.match import INVALID_QUERY, SearchCore
from streamops.search.core.nodes import NODE, NodeType
from streamops.search.core.parse import MAX_DEPTH, MAX_LENGTH, MAX_NODES
from tests.docs.test_readme import ROOT, documented, public
from tests.golden.search_as_of_states import SPEC


def test_every_name_of_search_is_documented() -> None:
    known = documented()
    assert public(search) - known == set()
    assert {*inspect.signature(search.match).parameters} - known == set()
    fields = {field.name for field in SPEC.output.field("late").type}
    assert {*SearchCore.METRICS, *SearchAsofCore.METRICS, INVALID_QUERY, *fields} - known == set()


def test_the_state_of_stored_queries_is_documented() -> None:
    formats = (ROOT / "docs" / "state-formats.md").read_text()
    section = formats.split(f"## {SearchCore.STATE.kind}, version {SearchCore.STATE.version}\n")[1]
    section = section.split("\n## ")[0]
    assert [field.name for field in NODE if f"`{field.name}`" not in section] == []
    (types,) = (line for line in section.splitlines() if line.startswith("| `type`"))
    assert [str(number.value) for number in NodeType if f"{number.value} " not in types] == []


def test_the_state_of_versions_is_documented() -> None:
    formats = (ROOT / "docs" / "state-formats.md").read_text()
    section = formats.split(
        f"## {SearchAsofCore.STATE.kind}, version {SearchAsofCore.STATE.version}\n"
    )[1]
    section = section.split("\n## ")[0]
    layout = SearchAsofCore().layout(SPEC)
    names = {*SPEC.identity, *layout, *layout["versions"].names, *layout["evicted"].names}
    assert [name for name in sorted(names) if f"`{name}`" not in section] == []


def test_the_limits_of_a_query_are_documented() -> None:
    page = (ROOT / "docs" / "search.md").read_text()
    limits = f"{MAX_LENGTH:,}\ncharacters, {MAX_NODES:,} conditions or {MAX_DEPTH} levels"
    assert limits in page
