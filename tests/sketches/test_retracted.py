"""What windows take back of sketches is what they published, also where merging tells."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamops import sketches, windows
from streamops.kernel.aggregation import merges_exactly
from streamops.testing import at, fold, replay

pytestmark = pytest.mark.thorough

SKETCHES = [
    sketches.top_k_sketch_agg("v", counters=2),
    sketches.kll_sketch_agg("n", k=8),
    sketches.hll_sketch_agg("v"),
]
WINDOWS: list[tuple[Any, list[str]]] = [
    (
        lambda **arguments: windows.cumulative("60 seconds", "10 seconds", **arguments),
        ["window_end"],
    ),
    (lambda **arguments: windows.hopping("60 seconds", "10 seconds", **arguments), ["window_end"]),
    (lambda **arguments: windows.session("2 seconds", **arguments), ["window_start", "window_end"]),
    (lambda **arguments: windows.sliding("30 seconds", **arguments), ["ts"]),
]


def script(seed: int) -> list[list[dict[str, Any]]]:
    dice, now, batches = random.Random(seed), 0, []
    for _ in range(12):
        now += dice.randrange(1, 15)
        behind = [dice.choice([0, 0, 5, 20, 40]) for _ in range(dice.randrange(1, 25))]
        batches.append(
            [
                {
                    "ts": at(max(0, now - late)),
                    "v": str(min(dice.choices(range(400), k=2))),
                    "n": dice.random(),
                }
                for late in behind
            ]
        )
    return batches


@pytest.mark.parametrize(
    ("make", "key"), WINDOWS, ids=["cumulative", "hopping", "session", "sliding"]
)
@pytest.mark.parametrize("aggregate", SKETCHES, ids=repr)
def test_retracted_results_were_published_before(aggregate: Any, make: Any, key: list[str]) -> None:
    taking_back = make(
        time="ts",
        agg={"sketch": aggregate},
        delay="0 seconds",
        allowed_lateness="50 seconds",
        stragglers="retract",
    )
    for seed in range(2):
        played = replay(taking_back, script(seed), flush=True)
        assert fold((row for batch in played for row in batch.rows), key=key)
        assert sum(batch.counts.corrections for batch in played if batch.counts) > 3


def test_sketches_that_depend_on_merging_declare_it() -> None:
    arguments = [merges_exactly(item.sketch(None)) for item in SKETCHES[1:]]
    assert arguments == [False, True]
    assert not merges_exactly(
        sketches.top_k_sketch_agg("v", counters=2, item_type="string").sketch(None)
    )
