"""Queries with signs, operators and groups in any order mean what an own parser of the language reads.

The expectation does not come from the library, nor from the parser that it uses.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamops.search.core.evaluate import QueryIndex
from streamops.search.core.parse import compile_queries
from tests.borders import cases
from tests.oracles.query_text import NoMeaning, Reader
from tests.oracles.search import Query
from tests.search.core.random_queries import FIELDS, TEXT, document
from tests.search.core.test_exhaustive import expected, found, language

TERMS = ("a", "ab", "abc", "b", "naïve", "x_1", "42", "Été", "wi-fi", "TO")


def draw(dice: random.Random, depth: int = 3, within: str | None = None) -> str:
    """Conditions with signs, with and without operators between them."""
    text = _condition(dice, depth, within)
    for _ in range(dice.choice([0, 1, 1, 2, 2, 3, 4])):
        text += dice.choice([" ", " ", " OR ", " AND "]) + _condition(dice, depth, within)
    return text


def _condition(dice: random.Random, depth: int, within: str | None) -> str:
    sign = dice.choice([""] * 5 + ["+", "-", "-", "NOT ", "NOT ", "- ", "--", "+-", "NOT -"])
    choice = dice.choice(["text"] * 5 + ["field"] * 2 + ["group"] * 3)
    if choice == "group" and depth:
        name = dice.choice(["", "", "title:", "price:"]) if within is None else ""
        inside = name.rstrip(":") or within
        return f"{sign}{name}({draw(dice, depth - 1, inside)})"
    if within == "price" or (choice == "field" and within is None):
        return sign + _field(dice, within)
    name = dice.choice(["", "", "", "title:", "body:", "title:-", "body:+"]) * (within is None)
    word = dice.choice(TERMS)
    terms = " ".join(dice.choice(TERMS[:-2]) for _ in range(dice.randint(1, 2)))
    prefix = word[: dice.randint(1, 2)] + "*"
    return sign + name + dice.choice([word, word, f'"{terms}"', prefix])


def _field(dice: random.Random, within: str | None) -> str:
    number = dice.choice(["-3", "0", "1", "2", "5", "10"])
    positive = number.strip("-")
    ends = [dice.choice([number, "*"]), dice.choice(["1", "-3", "*"])]
    price = [number, number, f"[{ends[0]} TO {ends[1]}]", f"{{{ends[0]} TO {ends[1]}]"]
    price += [f"[{ends[0]} TO {ends[1]}}}", f">{positive}", f"<={positive}", "*"]
    if within is not None:
        return dice.choice(price)
    city = dice.choice(["Oslo", "Os*", '"São Paulo"', "*", '["O" TO *]'])
    return dice.choice(["price:" + dice.choice(price), "city:" + city, "new:true"])


def value(name: str, text: str) -> Any:
    """The value of a field."""
    match name:
        case "price":
            return int(text)
        case "new":
            return text == "true"
    return text.strip('"')


@pytest.mark.parametrize("operator", ["or", "and"])
def test_random_queries_with_signs_mean_what_is_documented(operator: str) -> None:
    dice = random.Random(f"signs {operator}")
    wanted = cases(250, 10_000)
    trees: dict[str, Query] = {}
    refused: set[str] = set()
    while len(trees) < wanted:
        text = draw(dice)
        if not any(sign in text for sign in ("+", "-", "NOT")):
            continue
        try:
            trees[text] = Reader(text, FIELDS, value).read()
        except NoMeaning:
            refused.add(text)
    texts = list(trees)
    for at in range(0, wanted, 250):
        part = texts[at : at + 250]
        nodes, errors = compile_queries(language(operator), part)
        assert not any(errors), [pair for pair in zip(part, errors, strict=True) if pair[1]]
        index = QueryIndex.of(nodes, len(TEXT), len(FIELDS))
        rows = [document(dice) for _ in range(20)]
        pairs, right = found(index, rows), expected([trees[text] for text in part], rows, operator)
        assert pairs == right, [
            (part[number], trees[part[number]], rows[row]) for row, number in pairs ^ right
        ][:3]
        assert 20 * len(part) * 0.2 < len(right) < 20 * len(part) * 0.8
    assert len(refused) > wanted / 100
    errors = compile_queries(language(operator), sorted(refused))[1]
    assert all(error is not None and "beside OR" in error.message for error in errors)


_PIECES = (
    *("a", "b", "price:", "city:", "title:", "1", "-", "+", "NOT ", "AND ", "OR ", ",", " "),
    *("(", ")", "[", "]", "{", "}", " TO ", "~", "^", ".", "\\", '"', "/", "*", "?", ":", ">"),
    *("<", "=", "&&", "||", "!", "\n", "'", "é", "T10:00", "\0", "1.2.3", "~1", "^2.", "_", "\U0001f6b2"),
)  # fmt: skip


def test_any_text_is_a_query_or_an_invalid_one() -> None:
    dice = random.Random(0)
    pieces = [dice.choices(_PIECES, k=dice.randint(1, 12)) for _ in range(cases(2_000, 40_000))]
    texts = ["".join(of) for of in pieces]
    nodes, errors = compile_queries(language("or"), texts)
    assert nodes.is_null().to_pylist() == [error is not None for error in errors]
    wrong = [(t, e) for t, e in zip(texts, errors, strict=True) if e is not None]
    assert all(0 <= error.position <= len(text) and error.message for text, error in wrong)
    assert 0.5 < len(wrong) / len(texts) < 0.99
