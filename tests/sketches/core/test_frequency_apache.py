"""Heavy hitters and count-min beside Apache's, over the same items."""

from __future__ import annotations

from collections import Counter

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.groups import Groups
from streamops.sketches.core.countmin import CountMin
from streamops.sketches.core.frequent import Frequent

ROWS = 40_000
ONE = Groups(np.zeros(ROWS, np.int64), 1)
NO_FALSE_NEGATIVES = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES


def stream(exponent: float) -> tuple[list[str], list[int]]:
    rng = np.random.default_rng(9)
    texts = [f"w{entry % 10_007}" for entry in rng.zipf(exponent, ROWS)]
    return texts, rng.integers(1, 20, ROWS).tolist()


@pytest.mark.parametrize("exponent", [1.1, 1.5, 2.0])
def test_both_find_the_same_items_within_bounds_that_hold(exponent: float) -> None:
    texts, weights = stream(exponent)
    theirs = datasketches.frequent_strings_sketch(7)
    truth: Counter[str] = Counter()
    for word, weight in zip(texts, weights, strict=True):
        theirs.update(word, weight)
        truth[word] += weight
    ours = Frequent("c", pa.string(), counters=96, at_least=0.05, weight="w")
    states = ours.update(ONE, pa.table({"c": texts, "w": weights}))
    total = sum(truth.values())
    assert states[2][0].as_py() == theirs.total_weight == total
    reported = {entry["item"]: entry for entry in ours.estimate(states)[0]["items"].as_py()}
    found = {
        item: (lower, upper)
        for item, _, lower, upper in theirs.get_frequent_items(NO_FALSE_NEGATIVES, total // 20)
    }
    above = {word for word, count in truth.items() if count >= 0.05 * total}
    assert above <= reported.keys() & found.keys()
    for item, bounds in reported.items():
        lower, upper = theirs.get_lower_bound(item), theirs.get_upper_bound(item)
        assert max(lower, bounds["lower"]) <= truth[item] <= min(upper, bounds["upper"])
    # Theirs takes one item after the other, ours all that come at once.
    assert states[1][0].as_py() <= total / 97
    assert theirs.get_upper_bound("never") >= states[1][0].as_py()


@pytest.mark.parametrize("exponent", [1.1, 1.3, 1.5])
def test_both_count_every_item_not_below_the_truth_and_within_their_error(exponent: float) -> None:
    texts, weights = stream(exponent)
    theirs = datasketches.count_min_sketch(5, 272)
    truth: Counter[str] = Counter()
    for word, weight in zip(texts, weights, strict=True):
        theirs.update(word, weight)
        truth[word] += weight
    ours = CountMin("c", pa.string(), width=272, depth=5, weight="w")
    states = ours.update(ONE, pa.table({"c": texts, "w": weights}))
    queries = list(truth)
    lower, upper = ours.counts_of(states, np.zeros(len(queries), np.int64), pa.array(queries))
    total = sum(truth.values())
    assert states[2][0].as_py() == theirs.total_weight == total
    error = ours.estimate(states)[0]["relative_error"].as_py() * total
    assert round(error) == int(theirs.get_relative_error() * total)
    expected = np.array([truth[word] for word in queries])
    apache = np.array([theirs.get_estimate(word) for word in queries])
    for estimate in (upper, apache):
        assert (estimate >= expected).all()
        assert (estimate - expected > 0.01 * total).mean() <= 0.01
    assert (lower <= expected).mean() >= 0.99
