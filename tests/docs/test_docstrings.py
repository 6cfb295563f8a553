"""Docstrings are written for readers: which of their examples run is decided in the tests."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path

import pytest

from tests import docstrings

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def docstrings_of(path: Path) -> list[str]:
    nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED))
    return [text for node in nodes if (text := ast.get_docstring(node))]


TEXTS = [
    text for path in sorted((ROOT / "streamops").rglob("*.py")) for text in docstrings_of(path)
]


def test_no_docstring_has_a_directive_for_doctest() -> None:
    assert [text for text in TEXTS if "doctest:" in text] == []


@pytest.mark.parametrize("name", sorted({*docstrings.ABSENT, *docstrings.OUTSIDE}))
def test_every_name_that_is_not_run_is_used_by_an_example(name: str) -> None:
    sources = (e.source for t in TEXTS for e in doctest.DocTestParser().get_examples(t))
    assert any(name in source for source in sources)


def test_an_example_is_skipped_if_it_needs_what_is_not_there() -> None:
    found = doctest.DocTestParser().get_examples(
        ">>> rows = views.select('n')\n>>> rows.count()\n3\n>>> 1 + 1\n2\n"
        ">>> views = [1]\n>>> len(views)\n1\n>>> [row for row in views]\n[1]\n"
    )
    assert [doctest.SKIP in example.options for example in found] == [True, True, *[False] * 4]
