"""Random patterns, and histories in which they match."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import patterns
from streamops.kernel.errors import SpecError
from streamops.patterns.core.match import PatternCore
from streamops.testing import laws
from streamops.testing.laws import to_rows
from tests.oracles.patterns import ENDLESS, Anchored, Node, PatternOracle, Query, render
from tests.oracles.windows import Expected, Row

NAMES = "abcd"
SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        *((name, pa.bool_()) for name in NAMES[:3]),
        ("n", pa.int64()),
    ]
)
MILLI = 1_000
USERS = ["u", "v", None]


def draw_node(dice: random.Random, depth: int) -> Node:
    """An item of a pattern."""
    names = ["row"] * 4 + ["repeat"] * 3 + ["series", "either", "permute"]
    name = dice.choice(names) if depth else "row"
    match name:
        case "row":
            return ("row", dice.choice("abc"))
        case "series":
            return ("series", draw_items(dice, depth - 1, dice.randint(1, 3)))
        case "either":
            count = dice.randint(2, 3)
            return ("either", tuple(draw_node(dice, depth - 1) for _ in range(count)))
        case "permute":
            count = dice.randint(1, 3)
            return ("permute", tuple(draw_node(dice, depth - 1) for _ in range(count)))
    low = dice.randint(0, 2)
    high = dice.choice([None, max(low + dice.randint(0, 2), 1)])
    return ("repeat", draw_node(dice, depth - 1), low, high, dice.random() < 0.6)


def draw_items(dice: random.Random, depth: int, count: int) -> tuple[Node, ...]:
    """Items in a row, some with gaps between them."""
    items = [draw_node(dice, depth)]
    for _ in range(count - 1):
        if dice.random() < 0.25:
            items.append(("gap", tuple(sorted(dice.sample(NAMES, dice.choice([0, 0, 1, 2]))))))
        items.append(draw_node(dice, depth))
    return tuple(items)


def draw_query(
    dice: random.Random, within: int | None, horizons: Sequence[int | None] = (None, 1, 2, 5)
) -> tuple[Query, str]:
    """A pattern with all that decides about matches, and its text."""
    items = draw_items(dice, 2, dice.randint(1, 3))
    while len(items) == 1 and items[0][0] == "series":
        items = items[0][1]
    absent = tuple(sorted(dice.sample(NAMES, dice.randint(1, 2)))) if dice.random() < 0.25 else ()
    text = " ".join(map(render, items)) + "".join(f" !{name}" for name in absent)
    choices = ["past last row", "past horizon"] * 2 + ["to next row", "to first", "to last"]
    resume = dice.choice(choices)
    horizon = dice.choice(horizons) if resume == "past horizon" else None
    used = [name for name in "abc" if name in text.replace("!" + name, "").replace("permute", "")]
    return Query(items, absent, within, resume, dice.choice(used), horizon), text


MEASURES: dict[str, tuple[Any, Any]] = {
    "rows": (patterns.count(), len),
    "values": (patterns.count(None, "n"), lambda of: sum(r["n"] is not None for r, _ in of)),
    "total": (
        patterns.sum(None, "n"),
        lambda of: sum(values) if (values := numbers(of)) else None,
    ),
    "least": (patterns.min(None, "n"), lambda of: min(numbers(of), default=None)),
    "greatest": (patterns.max(None, "n"), lambda of: max(numbers(of), default=None)),
    "first": (patterns.first(None, "n"), lambda of: of[0][0]["n"]),
    "last": (patterns.last(None, "ts"), lambda of: of[-1][0]["ts"]),
    "list": (patterns.collect_list(None, "n"), lambda of: [row["n"] for row, _ in of]),
    "names": (patterns.classifiers(), lambda of: [name for _, name in of]),
}


def numbers(assigned: Sequence[tuple[Row, str]]) -> list[int]:
    return [row["n"] for row, _ in assigned if row["n"] is not None]


def is_less(row: Row, before: Sequence[Row], offset: int = 1) -> bool:
    """Whether the value is less than before, as Spark compares."""
    if len(before) < offset:
        return False
    one, other = row["n"], before[offset - 1]["n"]
    return one is not None and other is not None and one < other


CONDITIONS: dict[str, list[tuple[Any, Any]]] = {
    name: [
        (name, lambda row, before, name=name: bool(row[name])),
        (patterns.previous("n") > "n", is_less),
        (
            (patterns.previous("n", 2) > "n") | name,
            lambda row, before, name=name: is_less(row, before, 2) or bool(row[name]),
        ),
    ]
    for name in NAMES[:3]
}


def rises(row: Row, before: Sequence[Row], first: Row) -> bool:
    """Whether the value is greater than in the first row of the match."""
    return is_less(first, [row])


def returns(row: Row, before: Sequence[Row], first: Row) -> bool:
    """Whether the value fell, and is not the first one; if neither of them is null."""
    return is_less(row, before) and first["n"] is not None and first["n"] != row["n"]


ANCHORED: list[tuple[Any, Any]] = [
    (patterns.initial("n") < "n", Anchored(rises)),
    ((patterns.previous("n") > "n") & ~(patterns.initial("n") == "n"), Anchored(returns)),
]
"""Conditions over the first row of the match."""

CONDITIONS["d"] = [
    (
        patterns.previous("a").is_null(),
        lambda row, before: not before or before[0]["a"] is None,
    )
]


@st.composite
def histories(draw: st.DrawFn, *, overflows: bool = False, anchored: bool = False) -> laws.Case:
    """A pattern, few keys, many ties, micro-batches without rows, late rows.

    With ``overflows``, keys have more rows than `max_rows`, and the oldest are dropped.
    With ``anchored``, at least one condition depends on the first row of the match.
    """
    dice = random.Random(draw(st.integers(0, 2**32)))
    bounds = [1, 3 * MILLI, 3 * MILLI + 1, 8 * MILLI, 20 * MILLI]
    within = draw(st.sampled_from([20 * MILLI, 60 * MILLI] if overflows else bounds))
    while True:
        query, text = draw_query(dice, within, (1, 4 * MILLI, 9 * MILLI, 100 * MILLI))
        named = {name for name in NAMES if name in text.replace("permute", "")}
        chosen = {n: dice.choices(CONDITIONS[n], [4, 1, 1][: len(CONDITIONS[n])])[0] for n in named}
        if anchored:
            chosen |= {name: dice.choice(ANCHORED) for name in dice.sample(sorted(named), 1)}
        undefined = None if anchored else dice.choice([None, None, None, *"abc"])
        if undefined in chosen and "!" + str(undefined) not in text and len(chosen) > 1:
            chosen[str(undefined)] = (None, lambda row, before: True)
        picked = dice.sample(sorted(MEASURES), dice.randint(0, 4))
        stragglers = dice.choice(["drop", "route"])
        timeouts = dice.choice(["drop", "route"])
        by = dice.choice([("user",), ("user",), ()])
        limit: dict[str, Any] = {}
        if overflows:
            limit = {"max_rows": dice.choice([1, 1, 2, 3, 5]), "when_full": "evict_oldest"}
        skip = query.resume + (f" {query.variable}" if query.resume[:4] in ("to f", "to l") else "")
        chosen_matches = {"skip": skip}
        if query.resume == "past horizon":
            chosen_matches = {"matches": "first", "horizon": f"{query.horizon} microseconds"}
        try:
            operator = patterns.match(
                text,
                define={name: of for name, (of, _) in chosen.items() if of is not None},
                time="ts",
                by=by,
                within=f"{within} microseconds",
                measures={name: MEASURES[name][0] for name in picked},
                **chosen_matches,
                tie_break=("n",),
                delay=f"{dice.choice([0, 2, 5])} milliseconds",
                stragglers=stragglers,
                timeouts=timeouts,
                **limit,
            )
            break
        except SpecError as error:
            if error.code not in {"PATTERN_INVALID", "PARAMETER_OUT_OF_RANGE"}:
                raise
    spec = operator.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    count = draw(st.integers(4 if overflows else 2, 6))
    # A row far in the future decides all others.
    odd = [None] if overflows else [None, ENDLESS // 4]
    # Before 1970 Spark has no watermark: with times around 0, there is none until lag and delay have passed.
    base = 1_000 * MILLI if overflows else dice.choice([0, 1_000 * MILLI])
    batches = tuple((_batch(draw, dice, base + at * 6 * MILLI, odd),) for at in range(count))
    native = [name for name, (of, _) in chosen.items() if isinstance(of, str)]

    def tie(row: Row) -> Any:
        """The tie-break, then all other columns that are stored, then the conditions."""
        values = [(0,) if row[name] is None else (1, row[name]) for name in spec.values]
        return values, sum(spec.bits[name] for name in native if row[name])

    oracle = PatternOracle(
        query,
        by,
        "ts",
        tie,
        {name: of for name, (_, of) in chosen.items()},
        {name: MEASURES[name][1] for name in picked},
        stragglers,
        timeouts,
        limit.get("max_rows"),
    )

    def accepted(arrivals: Sequence[laws.Arrival]) -> list[Row]:
        everything = oracle.fresh()
        for (rows,), watermark in arrivals:
            everything.watermark = watermark
            everything.accept(to_rows(rows), Expected())
        return everything.finish()

    return laws.Case(
        core=PatternCore(),
        spec=spec,
        batches=batches,
        oracle=oracle.fresh,
        accepted=accepted,
        seed=draw(st.integers(0, 2**16)),
    )


def _batch(draw: st.DrawFn, dice: random.Random, base: int, odd: Sequence[int | None]) -> pa.Table:
    rows = []
    for _ in range(draw(st.sampled_from([0, 2, 6, 12]))):
        time: int | None = base + dice.randrange(-4, 8) * MILLI + dice.choice([0, 0, 1])
        time = dice.choice([time] * 15 + [*odd])
        flags = [dice.choice([True] * 4 + [False, None]) for _ in NAMES[:3]]
        rows.append(
            [dice.choices(USERS, [4, 1, 1])[0], time, *flags, dice.choice([None, 1, 2, 3, 4])]
        )
    columns = [
        pa.array([row[i] for row in rows], pa.int64()).cast(f.type)
        if pa.types.is_timestamp(f.type)
        else pa.array([row[i] for row in rows], f.type)
        for i, f in enumerate(SCHEMA)
    ]
    return pa.table(columns, schema=SCHEMA)
