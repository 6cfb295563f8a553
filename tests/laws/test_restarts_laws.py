"""Queries that start again and again, with other parameters each time: there and back, migrated or not.

Shards are idle, states are in segments, names come back with another meaning, and a second operator follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import joins, patterns, process, windows
from streamops.errors import StateFormatError
from streamops.kernel import segments
from streamops.spark.operator import Operator
from streamops.testing import BatchResult, Replay, at
from streamops.testing.batches import expand, to_tables
from tests.laws.test_changed_aggregates_laws import segments_of
from tests.laws.test_migration_laws import migrate

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", "UTC")
Rows = list[dict[str, Any]]
T: dict[str, Any] = {"by": "k", "time": "ts", "delay": "2 seconds"}


def restart(query: Replay, operators: Sequence[Operator]) -> None:
    """Start a query again, with other operators."""
    frames = query._stages[0].frames
    parts = [part for operator in operators for part in expand(operator)]
    for stage, operator in zip(query._stages, parts, strict=True):
        stage.operator, stage.frames = operator, frames
        stage._start()
        stage.reset_watermarks()
        frames = (stage.output,)


def step(query: Replay, rows: Any) -> BatchResult:
    return query._step(None if rows is None else to_tables(rows, query._schemas))


LEFT = pa.schema([("k", pa.string()), ("ts", INSTANT), ("a", pa.bool_()), ("n", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("rt", INSTANT), ("w", pa.int64())])
ONE, BOTH = (LEFT,), (LEFT, RIGHT)
Lengths = tuple[int, int]
"""Two lengths in seconds, which each operator uses in its own way."""


def _interval(how: Any, matches: Any = "every") -> Callable[[Lengths], Operator]:
    more = {} if matches == "every" else {"matches": matches, "tie_break": "w"}
    return lambda of: joins.interval(
        None,
        f"{-of[1]} seconds",
        f"{of[0]} seconds",
        by="k",
        time=("ts", "rt"),
        how=how,
        delay="2 seconds",
        **more,
    )


def _asof(direction: Any) -> Callable[[Lengths], Operator]:
    return lambda of: joins.asof(
        None,
        by="k",
        time="ts",
        version="rt",
        sequence="w",
        direction=direction,
        tolerance=f"{of[0]} seconds",
        delay="2 seconds",
    )


def _pattern(of: Lengths) -> Operator:
    return patterns.match(
        "A B+",
        define={"A": "a", "B": "b"},
        measures={},
        within=f"{of[0] + 1} seconds",
        **T,
    )


def _sessions(of: Lengths) -> Operator:
    return windows.session(f"{of[0] + 1} seconds", until="a", agg={"n": agg.count()}, **T)


WITH_B = (LEFT.append(pa.field("b", pa.bool_())),)
CHAINS: dict[str, tuple[Callable[[Lengths], Operator], tuple[pa.Schema, ...], str]] = {
    "inner join": (_interval("inner"), BOTH, "ts"),
    "left join": (_interval("left"), BOTH, "ts"),
    "right join": (_interval("right"), BOTH, "ts"),
    "semi join": (_interval("semi"), BOTH, "ts"),
    "anti join": (_interval("anti"), BOTH, "ts"),
    "first match": (_interval("left", "first"), BOTH, "ts"),
    "last match": (_interval("inner", "last"), BOTH, "ts"),
    "nearest version": (_asof("nearest"), BOTH, "ts"),
    "next version": (_asof("forward"), BOTH, "ts"),
    "pattern": (_pattern, WITH_B, "match_end"),
    "session with a last row": (_sessions, ONE, "window_end"),
}


def ones(key: Any, rows: Any, state: Any) -> Any:
    for _ in rows:
        yield (1,)


BEHIND: dict[str, Callable[[str], Operator]] = {
    "tumbling": lambda time: windows.tumbling(
        "10 seconds", time=time, by="k", agg={"rows": agg.count()}
    ),
    "session": lambda time: windows.session(
        "4 seconds", time=time, by="k", agg={"rows": agg.count()}
    ),
    "sliding": lambda time: windows.sliding(
        "9 seconds", time=time, by="k", agg={"rows": agg.count()}
    ),
    "function": lambda time: process.per_key(ones, by="k", time=time, output="rows bigint"),
}


@st.composite
def histories(draw: st.DrawFn, schemas: tuple[pa.Schema, ...]) -> list[Any]:
    """Micro-batches of rows whose times advance, often by a few seconds, and at times by a minute."""
    row = st.tuples(
        st.sampled_from("abcde"), st.integers(-40, 6) | st.integers(-4, 6), *[st.booleans()] * 2
    )
    found, now = [], 100
    for _ in range(draw(st.integers(3, 9))):
        now += draw(st.sampled_from([0, 1, 4, 9, 15, 60]))
        sides = []
        for schema in schemas:
            rows = draw(st.lists(row, max_size=5))
            made: Rows = [
                {"k": k, "ts": at(now + after), "rt": at(now + after), "a": a, "b": b}
                | {"n": len(found), "w": 10 * len(found) + number}
                for number, (k, after, a, b) in enumerate(rows)
            ]
            sides.append([{name: one[name] for name in schema.names} for one in made])
        found.append(tuple(sides) if len(schemas) > 1 else sides[0])
    return found


lengths = st.tuples(st.sampled_from([1, 5, 20, 60]), st.sampled_from([0, 5, 30]))


@pytest.mark.parametrize("name", CHAINS)
@given(data=st.data(), behind=st.sampled_from([*BEHIND]), shards=st.sampled_from([1, 4]))
def test_no_result_is_late_in_the_next_operator(
    name: str, data: st.DataObject, behind: str, shards: int
) -> None:
    """It has the results that it has over all results of the first one at once."""
    build, schemas, time = CHAINS[name]
    if time == "ts" and name == "right join":
        time = "rt_right" if "rt_right" in _names(build((1, 1))) else "rt"
    batches = data.draw(histories(schemas))
    plans = data.draw(
        st.dictionaries(st.integers(1, len(batches) - 1), st.tuples(lengths, st.booleans()))
    )
    quiet = data.draw(st.sets(st.integers(0, len(batches) - 1)))
    first, second = build(data.draw(lengths)), BEHIND[behind](time)
    event(f"{len(plans)} restarts")
    frames: Any = schemas if len(schemas) > 1 else schemas[0]
    chain, alone = (
        Replay([first, second], frames, shards=shards),
        Replay(first, frames, shards=shards),
    )
    found, passed = list[Any](), list[Any]()

    def run(rows: Any) -> None:
        result = step(chain, rows)
        assert not result.counts.too_late
        found.extend(result.rows)
        passed.extend(step(alone, rows).rows)

    for number, rows in enumerate(batches):
        if number in plans:
            of, is_migrated = plans[number]
            first = build(of)
            if is_migrated:
                other = Replay([first, second], frames, shards=shards)
                migrate(chain, other, {})
                chain, other = other, Replay(first, frames, shards=shards)
                migrate(alone, other, {})
                alone = other
            else:
                restart(chain, [first, second])
                restart(alone, [first])
        run(rows)
        if number in quiet and chain._next > chain._current:
            run(None)
    found.extend(chain.flush().rows)
    passed.extend(alone.flush().rows)
    schema = chain._stages[0].output.columns
    whole = Replay(second, schema, watermark="0 seconds", shards=1)
    expected = [*step(whole, [{n: of.get(n) for n in schema.names} for of in passed]).rows]
    expected += whole.flush().rows
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


def _names(operator: Operator) -> list[str]:
    query = Replay(operator, BOTH, shards=1)
    return list(query._stages[0].output.columns.names)


FUNCTIONS: dict[str, Any] = {
    "sum": agg.sum("n"),
    "max": agg.max("n"),
    "count": agg.count("n"),
    "distinct": agg.count_distinct("n", at_most=1_000),
}
TRUTHS: dict[str, Callable[[list[int]], int]] = {
    "sum": sum,
    "max": max,
    "count": len,
    "distinct": lambda values: len({*values}),
}
NAMED: dict[str, Callable[..., Operator]] = {
    "tumbling": lambda **of: windows.tumbling("20 seconds", **T, **of),
    "hopping": lambda **of: windows.hopping("20 seconds", "5 seconds", **T, **of),
    "cumulative": lambda **of: windows.cumulative("40 seconds", "10 seconds", **T, **of),
    "session": lambda **of: windows.session("15 seconds", **T, **of),
    "sliding": lambda **of: windows.sliding("15 seconds", **T, **of),
    "corrected": lambda **of: windows.tumbling(
        "20 seconds", **T, **of, stragglers="update", allowed_lateness="30 seconds"
    ),
    "running": lambda **of: windows.running(by="k", **of),
}
names = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([*FUNCTIONS]), max_size=3)


def restarted(
    query: Replay, operators: list[Operator], frames: Any, shards: int, how: str
) -> Replay:
    """The query after a restart, or after a migration to another number of shards."""
    if how == "restart":
        restart(query, operators)
        return query
    new = Replay(operators, frames, shards=shards)
    migrate(query, new, {})
    return new


@pytest.mark.parametrize("name", NAMED)
@given(data=st.data(), few=st.booleans())
def test_names_of_aggregates_come_back_with_another_meaning(
    name: str, data: st.DataObject, few: bool
) -> None:
    """A value is that of all rows, or null; and it is not null if its aggregate was there for all of them."""
    batches = data.draw(histories(ONE))
    how = st.sampled_from(["restart", "restart", "migrate"])
    plans = data.draw(
        st.dictionaries(
            st.integers(1, len(batches) - 1),
            st.tuples(names, how, st.sampled_from([1, 3])),
            min_size=1,
        )
    )
    current = data.draw(names)
    rows: list[tuple[int, dict[str, Any]]] = []
    since = dict.fromkeys("xyz", 0)

    def of(chosen: dict[str, str]) -> Operator:
        return NAMED[name](
            agg={"rows": agg.top(1_000, "n", ranked_by="n", tie_break="n")}
            | {called: FUNCTIONS[function] for called, function in chosen.items()}
        )

    def require(found: Rows) -> None:
        for row in found:
            numbers = [rows[number] for number in row["rows"]]
            for called, function in current.items():
                values = [one["n"] for _, one in numbers]
                truth = TRUTHS[function](values)
                first = min((batch for batch, _ in numbers), default=0)
                assert row[called] == truth or (row[called] is None and first < since[called])

    with segments_of(1 if few else segments.LIMIT):
        query = Replay(of(current), LEFT, shards=2)
        for number, batch in enumerate(batches):
            if number in plans:
                wanted, way, shards = plans[number]
                same = {n: f for n, f in wanted.items() if current.get(n, f) == f}
                if same != wanted and way == "restart":  # another function under its name
                    before = of(current)
                    restart(query, [of(wanted)])
                    if query._stages[0].stored:
                        with pytest.raises(StateFormatError, match="another agg needs rows"):
                            step(query, [])
                    restart(query, [before])
                since = {n: since[n] if n in current else number for n in since}
                current = same
                query = restarted(query, [of(current)], LEFT, shards, way)
            for one in batch:
                one["n"] = len(rows)
                rows.append((number, one))
            require(step(query, batch).rows)
            if name != "running" and query._next > query._current:
                require(step(query, None).rows)
        require(query.flush().rows)
