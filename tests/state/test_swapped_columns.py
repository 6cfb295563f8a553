"""Two columns get the names of each other in a migration, also where texts name them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, process, windows
from streamops.errors import StreamopsError
from streamops.spark.operator import Operator
from streamops.state.mapping import _Renamed
from streamops.testing import Replay, at
from tests.laws.test_migration_laws import in_order, migrate

INSTANT, NUMBER = pa.timestamp("us", "UTC"), pa.int64()
To = Callable[[str], str]
Rows = list[dict[str, Any]]
EVENT = {
    "k": pa.string(),
    "ts": INSTANT,
    "a": NUMBER,
    "b": NUMBER,
    "x": pa.bool_(),
    "y": pa.bool_(),
}
OTHER = {"k": pa.string(), "since": INSTANT, "seq": NUMBER, "c": NUMBER, "d": NUMBER}
CHANGE = {"_change_type": pa.string(), "k": pa.string(), "lsn": NUMBER, "a": NUMBER, "b": NUMBER}
SWAPPED = {"a": "b", "b": "a", "c": "d", "d": "c", "x": "y", "y": "x"}
T: dict[str, Any] = {"by": "k", "time": "ts", "delay": "10 seconds"}


def pairs_of(to: To) -> Any:
    def pairs(key: Any, rows: Any, state: Any) -> Any:
        for row in rows:
            yield row[to("a")], row[to("b")]

    return pairs


CASES: dict[str, tuple[Callable[[To], Operator], tuple[dict[str, pa.DataType], ...]]] = {
    "windows": (
        lambda to: windows.tumbling(
            "1 minute",
            **T,
            agg={"one": agg.sum(to("a")), "other": agg.last(to("b"), tie_break=to("a"))},
        ),
        (EVENT,),
    ),
    "over": (
        lambda to: windows.over(
            **T,
            values={"p": windows.lag(to("a")), "q": windows.lead(to("b"))},
            tie_break=to("a"),
            within="50 seconds",
        ),
        (EVENT,),
    ),
    "interval": (
        lambda to: joins.interval(
            None, "-50 seconds", "50 seconds", by="k", time=("ts", "since"), delay="9 seconds"
        ),
        (EVENT, OTHER),
    ),
    "asof": (
        lambda to: joins.asof(
            None, by="k", time="ts", version="since", sequence="seq", delay="9 seconds"
        ),
        (EVENT, OTHER),
    ),
    "normalize": (
        lambda to: changes.normalize("k", sequence="lsn", horizon=1_000),
        ({name: dtype for name, dtype in CHANGE.items() if name != "_change_type"},),
    ),
    "aggregate": (
        lambda to: changes.aggregate(by="k", agg={"p": agg.sum(to("a")), "q": agg.max(to("b"))}),
        (CHANGE,),
    ),
    "pattern": (
        lambda to: patterns.match(
            "A B",
            define={"A": to("x"), "B": patterns.current(to("a")) > patterns.previous(to("b"))},
            measures={"p": patterns.first("A", to("a")), "q": patterns.last("B", to("b"))},
            within="50 seconds",
            **T,
        ),
        (EVENT,),
    ),
    "function": (
        lambda to: process.per_key(pairs_of(to), **T, output="p bigint, q bigint"),
        (EVENT,),
    ),
}


def rows_of(columns: dict[str, pa.DataType], batch: int, side: int) -> Rows:
    dice = Random(10 * batch + side)
    made: dict[str, Callable[[int], Any]] = {
        "k": lambda n: dice.choice("abc"),
        "_change_type": lambda n: "insert",
        **dict.fromkeys(("lsn", "seq"), lambda n: 100 * batch + n),
        **dict.fromkeys(("ts", "since"), lambda n: at(batch * 15 + dice.randrange(20))),
        **dict.fromkeys(("x", "y"), lambda n: dice.random() < 0.4),
        **dict.fromkeys("abcd", lambda n: dice.randrange(50)),
    }
    return [{name: made[name](n) for name in columns} for n in range(12)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("change", [1, 3])
def test_swapped_columns_are_those_of_a_query_that_had_them_from_the_beginning(
    name: str, change: int
) -> None:
    build, columns = CASES[name]
    swap = {old: new for old, new in SWAPPED.items() if any(old in of for of in columns)}
    to: To = lambda column: swap.get(column, column)  # noqa: E731
    schemas, renamed = (
        tuple(pa.schema([(to_(n), dtype) for n, dtype in of.items()]) for of in columns)
        for to_ in (str, to)
    )
    batches = [[rows_of(of, n, at) for at, of in enumerate(columns)] for n in range(6)]
    swapped = [
        [[{to(n): v for n, v in row.items()} for row in of] for of in one] for one in batches
    ]
    given = [
        [of[0] if len(columns) == 1 else tuple(of) for of in rows] for rows in (batches, swapped)
    ]
    query, reference, new = (
        Replay(build(of), frames if len(columns) > 1 else frames[0], shards=2)
        for of, frames in ((str, schemas), (to, renamed), (to, renamed))
    )
    query.run(given[0][:change])
    reference.run(given[1][:change])
    migrate(query, new, swap)
    found = 0
    for batch in given[1][change:]:
        left, right = new.run([batch]), reference.run([batch])
        assert [in_order(of.rows) for of in left] == [in_order(of.rows) for of in right]
        found += sum(len(of.rows) for of in left)
    assert in_order(new.flush().rows) == in_order(reference.flush().rows)
    assert found


def test_a_text_that_does_not_follow_is_refused() -> None:
    """Its column is another one now, and the state has whether the one of before satisfied it."""
    build, (columns,) = CASES["pattern"]
    schema = pa.schema([*columns.items()])
    query, new = Replay(build(str), schema, shards=2), Replay(build(str), schema, shards=2)
    query.run([rows_of(columns, 1, 0)])
    with pytest.raises(StreamopsError, match="define"):
        migrate(query, new, SWAPPED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 10 and `a` < b", "b > 10 and `b` < a"),
        ("a = 'a' or s.a = 1 or a(b) = \"a\"", "b = 'a' or s.a = 1 or a(a) = \"a\""),
        ("(current('a + 1') > previous('b', 2))", "(current('b + 1') > previous('a', 2))"),
        ("sum('a')", "sum('b')"),
        ("x1 > 2", "`x 2` > 2"),
        ("aa > ab", "aa > ab"),
    ],
)
def test_names_in_texts(text: str, expected: str) -> None:
    names = {"a": "b", "b": "a", "x1": "x 2"}
    assert _Renamed(names, (), True)._with_names(text, names) == expected
