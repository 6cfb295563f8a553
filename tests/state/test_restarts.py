"""What a changed query does with the state of before, where it is not looked at in the first micro-batch only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import joins, patterns, process, windows
from streamops.errors import StateFormatError
from streamops.kernel.codec import encode
from streamops.spark.operator import Operator
from streamops.spark.step import Stored, to_text
from streamops.state.shards import StoredShard, decode_shards
from streamops.testing import Replay, at
from tests.laws.test_changed_aggregates_laws import segments_of
from tests.laws.test_migration_laws import migrate
from tests.laws.test_restarts_laws import BOTH, WITH_B, restart, step

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
T: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}


def rows(second: int, keys: str, value: int = 5) -> list[dict[str, Any]]:
    return [{"k": key, "ts": at(second), "v": value} for key in keys]


def hopping(**aggregates: Any) -> Operator:
    return windows.hopping("1 minute", "30 seconds", agg=aggregates, **T)


@pytest.mark.parametrize("is_migrated", [False, True])
@pytest.mark.parametrize("again", [agg.max("v"), agg.sum("v")])
def test_an_aggregate_comes_back_while_segments_have_the_one_of_before(
    again: Any, is_migrated: bool
) -> None:
    """As another one, it is unknown for all rows from before; as itself, for those in between."""
    with segments_of(1):
        query = Replay(hopping(x=agg.sum("v"), n=agg.count()), SCHEMA, shards=1)
        query.run([rows(1, "abc")])
        restart(query, [hopping(n=agg.count())])
        query.run([rows(2, "abe")])
        last = hopping(n=agg.count(), x=again)
        if is_migrated:
            other = Replay(last, SCHEMA, shards=1)
            migrate(query, other, {})
            query = other
        else:
            restart(query, [last])
        query.run([rows(3, "da")])
        found = [row for result in query.run([rows(170, "a")]) for row in result.rows]
    known = {"c": 5} if again == agg.sum("v") else {}
    expected = {
        "a": (3, None),
        "b": (2, None),
        "c": (1, known.get("c")),
        "d": (1, 5),
        "e": (1, None),
    }
    assert {row["k"]: (row["n"], row["x"]) for row in found} == expected
    assert len(found) == 2 * len(expected)


def credit(key: Any, rows: Any, state: Any) -> Any:
    for row in rows:
        state.credit += row.v
        yield (state.credit,)


def wake(key: Any, time: Any, state: Any, timers: Any) -> Any:
    yield (0,)


def spend(key: Any, rows: Any, state: Any, timers: Any) -> Any:
    yield from credit(key, rows, state)


def of_credit(limit: int = 100, **changed: Any) -> Operator:
    parameters: Any = {"by": "k", "state": "credit bigint", "output": "credit bigint"}
    return process.per_key(credit, **(parameters | {"initial": {"credit": limit}} | changed))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"initial": {"credit": 0}}, "initial"),
        ({"state": "credit double", "initial": {"credit": 100.0}}, "state"),
        (
            {"state": "credit bigint, more int NOT NULL", "initial": {"credit": 100, "more": 0}},
            "state",
        ),
        ({"state": "other bigint", "initial": {"other": 0}}, "state"),
    ],
)
def test_the_state_of_a_function_is_compared_in_each_shard(changed: Any, name: str) -> None:
    """Keys in the initial state are not stored: they would get another one. All parameters as before go on."""
    query = Replay(of_credit(), SCHEMA, shards=4)
    query.run([rows(1, "ab", -30)])
    query.run([rows(1, "a", 30)])
    restart(query, [of_credit(**changed)])
    with pytest.raises(StateFormatError, match="STATE_PARAMETERS") as refused:
        query.run([rows(1, "z", 1)])  # in whichever shard
    assert name in refused.value.what
    restart(query, [of_credit()])
    (result,) = query.run([rows(1, "ab", 1)])
    assert sorted((row["k"], row["credit"]) for row in result.rows) == [("a", 101), ("b", 71)]


def test_fields_that_may_be_null_are_added_with_an_initial_value() -> None:
    query = Replay(of_credit(), SCHEMA, shards=4)
    query.run([rows(1, "ab", -30)])
    more = {"state": "credit bigint, tier string", "initial": {"tier": "new", "credit": 100}}
    restart(query, [of_credit(**more)])
    (result,) = query.run([rows(1, "ab", 1)])
    assert sorted((row["k"], row["credit"]) for row in result.rows) == [("a", 71), ("b", 71)]


def test_timers_need_their_function() -> None:
    timed: Any = {"by": "k", "time": "ts", "delay": "5 seconds", "output": "v bigint"}
    state: Any = {"state": "credit bigint", "initial": {"credit": 0}}
    query = Replay(process.per_key(spend, on_timer=wake, **timed, **state), SCHEMA, shards=4)
    query.run([rows(1, "abc")])
    restart(query, [process.per_key(credit, **timed, **state)])
    with pytest.raises(StateFormatError, match="on_timer") as refused:
        query.run([rows(2, "z")])
    assert "one that does nothing" in refused.value.fix

    def nothing(key: Any, time: Any, state: Any, timers: Any) -> Any:
        yield from ()

    restart(query, [process.per_key(spend, on_timer=nothing, **timed, **state)])
    assert query.run([rows(20, "z")])


def _counting(time: str) -> Operator:
    return windows.tumbling("10 seconds", time=time, by="k", agg={"n": agg.count()})


def _pattern(within: int) -> Operator:
    return patterns.match(
        "A B+", define={"A": "a", "B": "b"}, within=f"{within} seconds", measures={},
        time="ts", by="k", delay="0 seconds",
    )  # fmt: skip


def _row(second: int, key: str = "a", a: bool = False, b: bool = False) -> dict[str, Any]:
    return {"k": key, "ts": at(second), "rt": at(second), "a": a, "b": b, "n": 0, "w": second}


def _sides(left: Sequence[Any], right: Sequence[Any]) -> Any:
    return tuple(
        [{name: row[name] for name in schema.names} for row in side]
        for schema, side in zip(BOTH, (left, right), strict=True)
    )


CASES: dict[str, tuple[Callable[[int], Operator], str, int, list[Any], list[Any]]] = {
    "interval": (
        lambda upper: joins.interval(
            None, "0 seconds", f"{upper} seconds", by="k", time=("ts", "rt"), delay="0 seconds"
        ),
        "ts",
        0,
        [_sides([_row(12)], [_row(5)]), _sides([_row(40, "z")], [_row(40, "z")])],
        [_sides([_row(n)], [_row(n)]) for n in (41, 42, 43)],
    ),
    "asof": (
        lambda tolerance: joins.asof(
            None, by="k", time="ts", version="rt", sequence="w", direction="nearest",
            tolerance=f"{tolerance} seconds", delay="0 seconds",
        ),
        "ts",
        1,
        [_sides([_row(12)], [_row(6)]), _sides([_row(41, "z")], [_row(41, "z")])],
        [_sides([_row(n)], [_row(n)]) for n in (42, 150, 200)],
    ),
    "pattern": (
        _pattern,
        "match_end",
        5,
        [[_row(10, "z"), _row(12, a=True), _row(13, b=True)], [_row(45, "z")]],
        [[_row(n, "z")] for n in (46, 200, 300)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_wider_bound_makes_no_result_late_in_the_next_operator(name: str) -> None:
    """Spark's watermark is that of the bound before: what was final by it stays final."""
    build, time, bound, before, after = CASES[name]
    schema: Any = WITH_B[0] if name == "pattern" else BOTH
    query = Replay([build(bound), _counting(time)], schema, shards=1)
    results = [step(query, _fit(batch, query)) for batch in before]
    restart(query, [build(60), _counting(time)])
    results += [step(query, _fit(batch, query)) for batch in after]
    assert sum(of.counts.too_late for of in results) == 0
    assert sum(of.counts.rows for of in results) > 0


def _fit(batch: Any, query: Replay) -> Any:
    """The rows with the columns of the schema."""
    if isinstance(batch, tuple):
        return batch
    return [{name: row[name] for name in query._schemas[0].names} for row in batch]


@pytest.mark.parametrize(("before", "after"), [("never", "every batch"), ("every batch", "never")])
def test_a_migration_to_other_early_results_is_published_by_shards_without_rows(
    before: Any, after: Any
) -> None:
    def of(early: Any) -> Operator:
        return windows.tumbling(
            "1 hour", agg={"n": agg.count()}, stragglers="retract", allowed_lateness="10 minutes",
            early=early, **T,
        )  # fmt: skip

    query = Replay(of(before), SCHEMA, shards=8)
    query.run([rows(10, "abcdefgh")])
    query.run([rows(20, "a")])
    new = Replay(of(after), SCHEMA, shards=8)
    migrate(query, new, {})
    found = [
        [row["k"] for result in new.run([rows(n, "a")]) for row in result.rows] for n in (30, 40)
    ]
    assert sorted(found[0]) == list("abcdefgh")
    assert found[1] == (["a", "a"] if after != "never" else [])


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_table_that_this_release_does_not_know_is_refused(is_rewritten: bool) -> None:
    query = Replay(hopping(n=agg.count()), SCHEMA, shards=1)
    query.run([rows(1, "ab")])
    (stage,) = query._stages
    run, stored = stage.run_step, Stored(*stage.stored[0])
    tables = {**run.decode(stored, None).tables, "later": pa.table({"x": [1]})}
    changed = Stored(0, *stored.row[1:4], to_text(encode(*run.header, tables)))
    stage.stored[0] = changed.row
    shards = [StoredShard(0, changed, None, 0)]
    read: Callable[[], Any] = lambda: query.run([rows(2, "a")])  # noqa: E731
    with pytest.raises(StateFormatError, match="STATE_VERSION") as refused:
        decode_shards(shards) if is_rewritten else read()
    assert "'later'" in refused.value.got
    assert "a release of streamops that reads it" in refused.value.fix
