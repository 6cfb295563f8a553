"""The tree has no retired words, and the checker finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.vocabulary import (
    ALLOWED,
    ROOT,
    SKIPPED,
    TREE,
    TREE_FILES,
    files,
    findings,
)


@pytest.mark.parametrize("name", [*TREE, *TREE_FILES])
def test_the_tree_has_no_retired_words(name: str) -> None:
    assert [found for path in files([ROOT / name]) for found in findings(path)] == []


def test_every_exception_exists_and_has_a_reason() -> None:
    assert all(ALLOWED.values())
    assert all(SKIPPED.values())
    assert [name for name in [*TREE, *TREE_FILES, *SKIPPED] if not (ROOT / name).exists()] == []
    assert [name for name, _ in ALLOWED if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", "x = 1\ntold = 2", 2),
        ("a.py", "class ToldRows: ...", 1),
        ("a.py", "def f(*, told_by): ...", 1),
        ("a.py", "print(f'{told}')", 1),
        ("a.py", "x = 1  # it is told", 1),
        ("a.py", '"""One.\n\nTwo is told.\n"""', 3),
        ("a.py", "raise ValueError('it goes by time')", 1),
        ("a.py", "def test_a_row_is_told(): ...", 1),
        ("a.md", "# A\n\nwhat comes of it", 3),
        ("a.md", "times are put right", 1),
        ("a.md", "rows are handed over", 1),
        ("a.py", "class Meeting: ...", 1),
        ("a.py", "f(when_full='keep_last')", 1),
        ("a.yaml", "spec: {when_full: drop_oldest}", 1),
    ],
)
def test_a_retired_word_is_found(tmp_path: Path, name: str, text: str, line: int) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert [found[:2] for found in findings(path, tmp_path)] == [(name, line)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "x = {'told': 1}  # a key of somebody else's format"),
        ("a.py", "def test_each_row_is_kept_in_place(): ..."),
        ("a.py", "# each row is kept in its place, one at a time"),
        ("a.md", "the kind of words that came and have gone"),
        ("a.md", "come from a place, and go to each of them; they know not; the result stands"),
        ("a.md", "the moment a proof, a meeting or a reach is asked for, hand in what you kept"),
        ("a.md", "put it into the right place, and count by key; several say so, a few of them"),
    ],
)
def test_ordinary_english_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert list(findings(path, tmp_path)) == []
