"""Words are runs of letters, marks, digits and underscores, in lower case."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamops.search.core.parse import split_tokens
from tests.oracles.search import tokens_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (None, []),
        ("", []),
        (" ,.!", []),
        ("One TWO", ["one", "two"]),
        ("don't wi-fi 3.14 a_b", ["don", "t", "wi", "fi", "3", "14", "a_b"]),
        ("Été—naïve", ["été", "naïve"]),
        ("e\u0301te", ["e\u0301te"]),  # a mark is part of the word; nothing is composed
        ("ΛΌΓΟΣ", ["λόγοσ"]),  # one letter at a time: the final sigma is that of ΛΌΓΟΣ
        ("日本、東京", ["日本", "東京"]),
        ("a\u00a0b\u2028c", ["a", "b", "c"]),
        ("x²½", ["x²½"]),
        ("🙂ok🙂", ["ok"]),
    ],
)
def test_the_tokens_of_a_text(text: str | None, tokens: list[str]) -> None:
    assert split_tokens(pa.array([text], pa.string())).to_pylist() == [tokens]


def test_all_texts_at_once_are_split_as_each_alone() -> None:
    texts = ["a", "b c", None, "", "é f", "-", "g", "ab\tcd", "é"]
    found = split_tokens(pa.chunked_array([texts[:4], texts[4:]]))
    assert found.to_pylist() == [tokens_of(text) for text in texts]
    assert split_tokens(pa.array(texts)[3:7]).to_pylist() == [
        tokens_of(text) for text in texts[3:7]
    ]
    assert split_tokens(pa.array([], pa.string())).to_pylist() == []


def test_every_character_that_python_knows_is_classified_as_by_python() -> None:
    chars = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    known = [char for char in chars if char.isprintable() and len(char.lower()) == 1]
    found = split_tokens(pa.array([f"a{char}b" for char in known])).to_pylist()
    wrong = [c for c, tokens in zip(known, found, strict=True) if tokens != tokens_of(f"a{c}b")]
    assert wrong == []
