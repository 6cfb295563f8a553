"""Overlaps of audiences as an operator: per key, and per key and window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import sketches
from streamops.kernel.errors import SpecError
from streamops.testing import at, fold, replay
from tests.sketches.test_overlapping import SCHEMA, estimates, visits

KEYED = SCHEMA.append(pa.field("country", pa.string()))


def of(country: str | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"country": country} for row in rows]


def reached(**said: Any) -> Any:
    return sketches.overlap("user", of="page", between=["a", "b"], k=32, **said)


SCRIPT = [
    [*of("x", visits(1, "a", range(5))), *of("y", visits(2, "b", [1]))],
    [*of("x", visits(70, "b", range(3, 9))), *of("y", visits(3, "other", [2, 3]))],
    of("x", visits(71, "b", [3, 4])),
    of(None, visits(200, None, [7])),
]


def test_per_key_it_is_told_when_it_changes() -> None:
    told = replay(reached(by="country", changes="retract"), SCRIPT, schema=KEYED, restart=True)
    # The second time y saw another page; the third time x saw nothing new.
    assert [
        [(r["country"], r["revision"]) for r in each.rows if r["_change_type"] != "update_preimage"]
        for each in told
    ] == [[("x", 0), ("y", 0)], [("x", 1)], [], [(None, 0)]]
    folded = fold((row for each in told for row in each.rows), key=["country"])
    (final,) = (row for row in folded if row["country"] == "x")
    assert estimates(final["overlap"]) == (
        {"a": 5, "b": 6},
        {("a", "b"): {"both": 2, "only_left": 3, "only_right": 4, "either": 9, "jaccard": 2 / 9}},
    )


def test_with_a_size_it_is_one_per_key_and_window() -> None:
    played = replay(
        reached(into="who", by="country", size="1 minute", time="ts", delay="0 seconds"),
        SCRIPT,
        schema=KEYED,
        flush=True,
    )
    said = {
        (row["country"], row["window_start"]): estimates(row["who"])[0]
        for each in played
        for row in each.rows
    }
    assert said == {
        ("x", at(0)): {"a": 5, "b": 0},
        ("y", at(0)): {"a": 0, "b": 1},
        ("x", at(60)): {"a": 0, "b": 6},
        (None, at(180)): {"a": 0, "b": 0},
    }


def test_it_says_what_it_is() -> None:
    said = repr(reached(by="country"))
    aggregate = "approx_overlap('user', of='page', between=['a', 'b'], k=32)"
    assert said.startswith("sketches.overlap(by=('country',), agg=")
    assert aggregate in said


def test_parameters_that_do_not_go_together_are_refused() -> None:
    for said in ({"time": "ts"}, {"size": "1 minute"}, {"size": "1 minute", "max_keys": 7}):
        with pytest.raises(SpecError, match=r"sketches\.overlap"):
            reached(**said)
    with pytest.raises(TypeError, match=r"sketches\.overlap\(\) got an unexpected keyword"):
        reached(window="1 minute")
    with pytest.raises(SpecError, match="NOT_AUDIENCES"):
        sketches.overlap("user", of="page", between=["a"])
