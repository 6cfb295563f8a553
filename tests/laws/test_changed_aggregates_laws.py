"""Another list of aggregates after a restart: the same results, and null where rows from before are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import windows
from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT, PREIMAGE
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.testing import Replay, at

pytestmark = pytest.mark.laws

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("old", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
AGGREGATES: dict[str, Any] = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "least": agg.min("v"),
    "newest": agg.last("v", tie_break="v"),
    "mean": agg.mean("v"),
    "sketch": agg.approx_count_distinct("v", p=6),
    "distinct": agg.count_distinct("v", at_most=100),
    "top": agg.top(2, "v", ranked_by="v", tie_break="v"),
}
OLD = "old"
"""How many of the aggregated rows are from before the change."""

_TIME: dict[str, Any] = {"time": "ts", "by": "k"}
Build = Callable[[Mapping[str, Any]], Operator]
OPERATORS: dict[str, Build] = {
    "tumbling": lambda of: windows.tumbling("10 seconds", **_TIME, agg=of, delay="5 seconds"),
    "hopping, corrected": lambda of: windows.hopping(
        "20 seconds",
        "5 seconds",
        **_TIME,
        agg=of,
        delay="5 seconds",
        allowed_lateness="30 seconds",
        stragglers="update",
    ),
    "hopping, retracted": lambda of: windows.hopping(
        "20 seconds",
        "10 seconds",
        **_TIME,
        agg=of,
        delay="5 seconds",
        allowed_lateness="30 seconds",
        stragglers="retract",
        too_late="route",
    ),
    "calendar": lambda of: windows.calendar("day", **_TIME, zone="UTC", agg=of, delay="5 seconds"),
    "cumulative": lambda of: windows.cumulative(
        "40 seconds", every="10 seconds", **_TIME, agg=of, delay="5 seconds"
    ),
    "session": lambda of: windows.session("8 seconds", **_TIME, agg=of, delay="5 seconds"),
    "session, retracted": lambda of: windows.session(
        "8 seconds",
        **_TIME,
        agg=of,
        delay="5 seconds",
        allowed_lateness="30 seconds",
        stragglers="retract",
    ),
    "sliding": lambda of: windows.sliding("15 seconds", **_TIME, agg=of, delay="5 seconds"),
    "running": lambda of: windows.running(by="k", agg=of),
}

names = st.lists(st.sampled_from([*AGGREGATES]), min_size=1, max_size=4, unique=True)


@st.composite
def batches(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Micro-batches of rows whose times advance, with late ones among them."""
    rows = st.tuples(st.sampled_from("abc"), st.integers(-3, 3) | st.none(), st.integers(-25, 8))
    found, now = [], 40
    for batch in draw(st.lists(st.lists(rows, max_size=6), min_size=2, max_size=8)):
        now += draw(st.integers(0, 20))
        found.append([{"k": k, "v": v, "ts": at(now + after)} for k, v, after in batch])
    return found


@pytest.mark.parametrize("name", OPERATORS)
@given(
    batches=batches(),
    before=names,
    after=names,
    change=st.integers(1, 7),
    few=st.booleans(),
)
def test_aggregates_may_change(
    name: str,
    batches: list[list[dict[str, Any]]],
    before: list[str],
    after: list[str],
    change: int,
    few: bool,
) -> None:
    change = min(change, len(batches) - 1)
    for number, batch in enumerate(batches):
        for row in batch:
            row["old"] = int(number < change)
    build = OPERATORS[name]
    if name == "running":  # without event time
        before, after = (
            [one for one in names if one != "newest"] or ["n"] for names in (before, after)
        )

    def of(chosen: list[str]) -> Operator:
        return build({one: AGGREGATES[one] for one in chosen})

    usable = {one: of for one, of in AGGREGATES.items() if name != "running" or one != "newest"}
    everything = build({**usable, OLD: agg.sum("old")})
    added = {*after} - {*before}
    event(f"added {len(added)}, removed {len({*before} - {*after})}")
    with segments_of(1 if few else segments.LIMIT):
        reference, query = (
            Replay(everything, SCHEMA, shards=2),
            Replay(of(before), SCHEMA, shards=2),
        )
        expected, found = View(), View()
        for number, batch in enumerate(batches):
            if number == change:
                restart(query, of(after))
                found.select(after)
            chosen = before if number < change else after
            unknown = set() if number < change else added
            left, right = reference.run([batch]), query.run([batch])
            assert len(left) == len(right)
            for one, other in zip(left, right, strict=True):
                expected.apply(one.rows, [*AGGREGATES], unknown)
                found.apply(other.rows, chosen)
            expected.require(found)
        expected.apply(reference.flush().rows, [*AGGREGATES], added)
        found.apply(query.flush().rows, after)
        expected.require(found)


class View:
    """The results of a query: the last one of each key and window, and the late rows."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.late: Counter[str] = Counter()

    def apply(
        self, rows: list[dict[str, Any]], chosen: list[str], unknown: set[str] | None = None
    ) -> None:
        """Apply rows of the output, with null for what is unknown if there are rows from before."""
        for row in rows:
            if row.get("late") is not None:
                self.late[repr((row["k"], row["late"]["reason"], row["late"]["window"]))] += 1
                continue
            change = row.get(CHANGE_TYPE, INSERT)
            key = repr([row["k"], row.get("window_start"), row.get("window_end"), row.get("ts")])
            hidden = (unknown or set()) if row.get(OLD) else set()
            values = {name: None if name in hidden else row.get(name) for name in chosen}
            if change in {PREIMAGE, DELETE}:
                last = self.values.pop(key)  # what was published last
                common = values.keys() & last.keys()
                assert unknown is not None or all(values[n] == last[n] for n in common)
            else:
                self.values[key] = values

    def select(self, chosen: list[str]) -> None:
        """Forget the values of other aggregates, which are not revised any more."""
        self.values = {
            key: {name: value for name, value in values.items() if name in chosen}
            for key, values in self.values.items()
        }

    def require(self, found: View) -> None:
        """The same results; values that were published before the change lack what was added."""
        assert found.late == self.late
        assert found.values.keys() == self.values.keys()
        for key, values in found.values.items():
            assert values == {name: self.values[key][name] for name in values}


def restart(query: Replay, operator: Operator) -> None:
    """Start a query again with another operator."""
    (stage,) = query._stages
    stage.operator = operator
    stage._start()


@contextmanager
def segments_of(rows: int) -> Iterator[None]:
    """With segments beyond so many rows of a shard."""
    with patch.object(segments, "LIMIT", rows):
        yield
