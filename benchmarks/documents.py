"""Documents, stored queries, and which of them match: with and without Spark.

Documents have ten words, with frequencies as in natural texts. The first 1,000 queries are the same for any
number of queries, and match; the others have a frequent word of the documents and two that no document has.
So the number of matches does not depend on the number of queries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

VOCABULARY = 50_000
LENGTH = 10
MATCHING = 1_000
PRICES = 1_000

Array = np.ndarray[Any, Any]

_AT_ONCE = 50_000
_QUERY = re.compile(r"(word\d+) AND price:\[\* TO (\d+)\] AND NOT (word\d+)")


def make_documents(rng: np.random.Generator, count: int) -> dict[str, Array]:
    """Titles and prices."""
    weights = 1.0 / np.arange(1, VOCABULARY + 1)
    vocabulary = np.array([f"word{number}" for number in range(VOCABULARY)])
    titles = np.empty(count, object)
    for first in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - first)
        drawn = rng.choice(VOCABULARY, (size, LENGTH), p=weights / weights.sum())
        titles[first : first + size] = [" ".join(row) for row in vocabulary[drawn].tolist()]
    return {"title": titles, "price": rng.integers(0, PRICES, count)}


def make_queries(count: int) -> list[str]:
    """The texts of the queries."""
    rng = np.random.default_rng(7)
    texts = []
    for number in range(count):
        if number < MATCHING:
            limit = rng.integers(100, 900)
            texts.append(f"word{50 + number} AND price:[* TO {limit}] AND NOT word3")
        else:
            texts.append(f"word{rng.integers(0, 200)} AND (absent{number} OR missing{number})")
    return texts


def make_inputs(
    rows: int, keys: int, divisor: int, seed: int
) -> dict[str, tuple[dict[str, Array], Array]]:
    """The inputs on Spark: all queries, then documents."""
    texts = np.array(make_queries(keys), object)
    positions = np.arange(rows)
    documents = make_documents(np.random.default_rng(seed), rows - keys)
    return {
        "left": ({"k": np.arange(rows - keys), **documents}, positions[keys:]),
        "right": (
            {"id": np.arange(keys), "query": texts, "lsn": np.arange(keys)},
            positions[:keys],
        ),
    }


def expected_matches(inputs: Mapping[str, tuple[dict[str, Array], Array]]) -> pd.DataFrame:
    """All matches, document by document, without the library. Every document comes after all queries."""
    documents, queries = inputs["left"][0], inputs["right"][0]
    found = map(_QUERY.fullmatch, queries["query"].tolist())
    by_word = {m[1]: (n, int(m[2]), m[3]) for n, m in enumerate(found) if m is not None}
    pairs = []
    for k, title, price in zip(
        *(documents[c].tolist() for c in ("k", "title", "price")), strict=True
    ):
        terms = set(title.split())
        for word in terms & by_word.keys():
            number, limit, excluded = by_word[word]
            if price <= limit and excluded not in terms:
                pairs.append((k, number))
    return pd.DataFrame(sorted(pairs), columns=["k", "query_id"], dtype="int64")


def found_matches(results: pd.DataFrame) -> pd.DataFrame:
    """The results on Spark, in the order of the expected ones."""
    found = results[["k", "query_id"]].astype("int64")
    return found.sort_values(["k", "query_id"], ignore_index=True)
