"""Sketches of quantiles that were stored once are read for ever, and made the same again."""

from __future__ import annotations

import math

import pyarrow as pa

from tests.golden.kll_payloads import SKETCH, payloads, stored


def test_equal_input_makes_the_bytes_that_were_made_once() -> None:
    assert payloads() == stored()


def test_bytes_of_version_1_give_the_same_estimates() -> None:
    assert SKETCH.format.version == 1
    array = pa.array(stored(), pa.binary())
    states = SKETCH.revive(array)
    assert SKETCH.payload(states) == array
    found = SKETCH.estimate(states).to_pylist()
    assert [item["count"] for item in found] == [0, 1, 6, 20, 21, 10_007, 10_007]
    special = found[2]["estimate"]
    assert special[:2] == [-math.inf, 5e-324]
    assert all(map(math.isnan, special[2:]))
    assert found[3]["estimate"] == [0.0, 9.0, 19.0, 19.0]
    assert [item["estimate"][1] for item in found[4:]] == [9.0, 616.875, 625.75]
