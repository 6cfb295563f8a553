"""Instants and stored sketches that are none have codes."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops import sketches, windows
from streamops.kernel.errors import StreamopsError
from streamops.testing import at, replay


@pytest.mark.parametrize(
    "odd", [None, "x", [], b"x", float("nan"), float("inf"), 10**30, 1e12, object()]
)
def test_an_odd_instant_has_a_code(odd: Any) -> None:
    with pytest.raises(StreamopsError, match="no such instant"):
        at(odd)


@pytest.mark.parametrize("odd", [None, "x", 5, 10**30, 1.5, [], True, object()])
def test_a_sketch_of_an_odd_type_has_a_code(odd: Any) -> None:
    for call in (sketches.read, lambda of: sketches.may_contain(of, "k")):
        with pytest.raises(StreamopsError, match="not bytes"):
            call(odd)


@pytest.mark.parametrize(
    ("time", "published", "late"), [("window_start", 8, 12), ("window_end", 20, 0)]
)
def test_hopping_windows_are_grouped_by_their_end(time: str, published: int, late: int) -> None:
    """As the guide says: the start of a window lies in a second window that is over when it is published."""
    first = windows.hopping("10 minutes", "1 minute", time="ts", by="k", agg={"n": agg.count()},
                            delay="1 second")  # fmt: skip
    second = windows.tumbling("5 minutes", time=time, by="k", agg={"windows": agg.count()})
    found = replay([first, second], [[{"k": "a", "ts": at(s)}] for s in (660, 6_000, 12_000)])
    assert sum(row["windows"] for of in found for row in of.rows) == published
    assert sum(of.counts.too_late for of in found) == late
