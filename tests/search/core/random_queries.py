"""Random queries and documents, over few words, so that many of them match."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa

from tests.oracles.search import Query

DOCUMENTS = pa.schema(
    [
        ("title", pa.string()),
        ("body", pa.string()),
        ("price", pa.int64()),
        ("weight", pa.float64()),
        ("city", pa.string()),
        ("new", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
TEXT = ("title", "body")
FIELDS = ("price", "weight", "city", "new", "day", "ts")
TOKENS = ("a", "ab", "abc", "b", "Été", "été", "λόγος", "x_1", "42", "日本", "naïve")
CITIES = ("Oslo", "Osaka", "oslo", "São Paulo", "Z", "", "Ä")
SEPARATORS = (" ", ", ", "-", " — ", "\t\n", "'", "。", "...")
DAY = dt.date(2026, 1, 31)
NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def value(dice: random.Random, column: str) -> Any:
    """A value of a field."""
    match column:
        case "price":
            return dice.choice([-3, 0, 1, 2, 5, 10, 2**63 - 1, -(2**63)])
        case "weight":
            return dice.choice([-1.5, -0.0, 0.0, 0.25, 2.0, 1e300])
        case "city":
            return dice.choice(CITIES)
        case "new":
            return dice.random() < 0.5
        case "day":
            return DAY + dt.timedelta(days=dice.randrange(-2, 3))
        case _:
            return NOON + dt.timedelta(microseconds=dice.randrange(-2, 3))


def document(dice: random.Random) -> dict[str, Any]:
    """A document; each column may be null."""
    row: dict[str, Any] = {}
    for name in TEXT:
        tokens = [dice.choice(TOKENS) for _ in range(dice.randrange(6))]
        row[name] = "".join(word + dice.choice(SEPARATORS) for word in tokens)
    row |= {name: value(dice, name) for name in FIELDS}
    row["weight"] = dice.choice([row["weight"], float("nan"), float("inf")])
    return {name: None if dice.random() < 0.1 else content for name, content in row.items()}


def query(dice: random.Random, depth: int = 3) -> Query:
    """A query of at most this many levels."""
    if depth and dice.random() < 0.6:
        parts = [query(dice, depth - 1) for _ in range(dice.randrange(1, 4))]
        node_type = dice.choice(["and", "or", "not", "list"])
        if node_type == "not":
            return ("not", parts[0])
        if node_type == "list":
            return ("list", [(dice.choice(["", "", "+", "-", "NOT "]), part) for part in parts])
        return (node_type, parts) if len(parts) > 1 else parts[0]
    column = dice.choice([None, *TEXT])
    match dice.choice(
        ["word"] * 4 + ["prefix", "phrase", "value", "value", "begins", "range", "exists"]
    ):
        case "word":
            return ("word", column, dice.choice(TOKENS))
        case "prefix":
            word = dice.choice(TOKENS)
            return ("prefix", column, word[: dice.randrange(1, len(word) + 1)])
        case "phrase":
            return ("phrase", column, [dice.choice(TOKENS) for _ in range(dice.randrange(1, 4))])
        case "value":
            field = dice.choice(FIELDS)
            return ("value", field, value(dice, field))
        case "begins":
            city = dice.choice(["O", "Os", "Osl", "o", "S", "Ä"])
            return ("begins", "city", city)
        case "exists":
            return ("exists", dice.choice(FIELDS))
        case _:
            field = dice.choice([name for name in FIELDS if name != "new"])
            ends = [dice.choice([None, value(dice, field)]) for _ in range(2)]
            return ("range", field, *ends, dice.random() < 0.5, dice.random() < 0.5)
