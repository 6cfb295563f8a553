"""Floats that are equal in another form: every NaN equals every other one, and -0.0 equals 0.0, at any depth.

The expectation is a number for each form, written by hand below; each operator groups, joins, counts or
compares rows, and what it finds is compared with that of the numbers.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, process, sinks, sketches, sourcing, windows
from streamops.erasure.core.values import ValueType
from streamops.kernel.columns import key_codes, normalize_floats, value_codes
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks
from streamops.kernel.values import same
from streamops.sinks.core.kafka_records import KEY
from streamops.sinks.core.net import compute_net, digest
from streamops.testing import assert_rows, at, replay
from tests.borders import cases
from tests.sourcing.folding import fold_table

# The bits of a float, and the number of the value: equal numbers are equal values.
WIDE = [
    *((bits, 0) for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 5, (0xFFF0 << 48) + 1)),
    *((bits, 1) for bits in (0, 1 << 63)),
    *((bits, at_) for at_, bits in enumerate([1, (1 << 63) + 1, 0x7FF0 << 48, 0xFFF0 << 48], 2)),
    (0x3FF0 << 48, 6),
]
NARROW = [
    *((bits, 0) for bits in (0x7FC0 << 16, 0xFFC0 << 16, (0x7FC0 << 16) + 5, (0xFF80 << 16) + 1)),
    *((bits, 1) for bits in (0, 1 << 31)),
    *((bits, at_) for at_, bits in enumerate([1, (1 << 31) + 1, 0x7F80 << 16, 0xFF80 << 16], 2)),
    (0x3F80 << 16, 6),
]
TIME: dict[str, Any] = {"time": "ts", "delay": "0 seconds"}
COUNT = {"n": agg.count()}
Numbers = list[Any]


def leaves(rng: random.Random, count: int) -> tuple[pa.Array, list[int]]:
    table, bits, dtype = rng.choice(
        [(WIDE, np.uint64, np.float64), (NARROW, np.uint32, np.float32)]
    )
    chosen = rng.choices(table, k=count)
    values = np.array([item[0] for item in chosen], bits).view(dtype)
    return pa.array(values, from_pandas=False), [item[1] for item in chosen]


def values_of(rng: random.Random, count: int, depth: int) -> tuple[pa.Array, Numbers]:
    """Values, and for each of them what makes it equal to another one."""
    if not depth:
        return leaves(rng, count)
    if rng.random() < 0.5:
        lengths = [rng.randint(0, 2) for _ in range(count)]
        items, numbers = values_of(rng, sum(lengths), depth - 1)
        ends = np.append(0, np.cumsum(lengths))
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)
        return lists, [tuple(numbers[a:b]) for a, b in pairwise(ends)]
    items, numbers = values_of(rng, count, depth - 1)
    tags = rng.choices("xy", k=count)
    structs = pa.StructArray.from_arrays([items, pa.array(tags)], ["f", "tag"])
    return structs, list(zip(numbers, tags, strict=True))


def number_of(value: Any) -> Any:
    """What makes a value of a result equal to another one, as in `values_of`."""
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        known = {0.0: 1, math.inf: 4, -math.inf: 5, 1.0: 6}
        return known.get(value, 2 if value > 0 else 3)
    if isinstance(value, list):
        return tuple(map(number_of, value))
    return (number_of(value["f"]), value["tag"])


def hashed(number: Any) -> tuple[Any, ...]:
    """What Spark's hash sees of a nested value: its parts one after the other, without their lists."""
    if isinstance(number, tuple):
        return tuple(part for item in number for part in hashed(item))
    return (number,)


def batches(rng: random.Random, values: pa.Array, **columns: Any) -> list[pa.Table]:
    """The rows, cut into micro-batches."""
    count = len(values)
    times = pa.array([at(number) for number in range(count)], pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "f": values,
            "ts": times,
            "n": pa.array(range(count)),
            "v": pa.array(range(count)),
            **columns,
        }
    )
    ends = [0, *sorted(rng.choices(range(count + 1), k=2)), count]
    return [table.slice(a, b - a) for a, b in pairwise(ends)]


def rows_of(operator: Any, script: Any, rng: random.Random) -> list[dict[str, Any]]:
    results = replay(operator, script, flush=True, shards=rng.choice([1, 3]), restart=True)
    return [row for result in results for row in result.rows]


def check_groups(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """Windows and functions per key: one group for equal values."""

    def count(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            state.n += 1
            yield (state.n,)

    for operator in (
        windows.tumbling("1 day", by="f", agg=COUNT, **TIME),
        windows.session("1 day", by="f", agg=COUNT, **TIME),
        windows.running(by="f", agg=COUNT),
        process.per_key(
            count, by="f", state="n int", initial={"n": 0}, output="n int", order_by="n", **TIME
        ),
    ):
        found: dict[Any, int] = {}
        for row in rows_of(operator, batches(rng, values), rng):
            number = number_of(row["f"])
            found[number] = max(row["n"], found.get(number, 0))
        assert found == Counter(numbers), operator


def check_patterns(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    pairs = patterns.match("a b", define={}, by="f", within="1 day", measures={}, **TIME)
    found = Counter(number_of(row["f"]) for row in rows_of(pairs, batches(rng, values), rng))
    assert found == +Counter({number: size // 2 for number, size in Counter(numbers).items()})


def check_distinct(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    expected, hashes = len({*numbers}), len(set(map(hashed, numbers)))
    counts = {"exact": agg.count_distinct("f", at_most=100), "hll": agg.approx_count_distinct("f")}
    if not pa.types.is_nested(values.type):
        counts["theta"] = agg.approx_count_distinct_theta("f")
    operator = windows.tumbling("1 day", agg=counts, **TIME)
    (row,) = rows_of(operator, batches(rng, values), rng)
    assert row.pop("exact") == expected
    assert {round(_estimate(row[name])) for name in counts if name in row} == {hashes}
    seen = sketches.seen("f", capacity=1_000, false_positive_rate=1e-6)
    assert len(rows_of(seen, batches(rng, values), rng)) == hashes


def _estimate(value: Any) -> float:
    return float(value["estimate"] if isinstance(value, dict) else value)


def check_joins(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    join = joins.interval(None, "-1 day", "1 day", by="f", time="ts", delay="0 seconds")
    half = len(values) // 2
    left, right = batches(rng, values.slice(0, half)), batches(rng, values.slice(half))
    found = rows_of(join, list(zip(left, right, strict=True)), rng)
    pairs = Counter(numbers[:half]), Counter(numbers[half:])
    assert len(found) == sum(count * pairs[1][number] for number, count in pairs[0].items())


def check_changes(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """The newest change of each key; and rows that an equal row takes back."""
    latest = changes.apply("f", sequence="n", horizon=1_000)
    script = batches(rng, values, _change_type=pa.array(["insert"] * len(values)))
    found: dict[Any, int] = {}
    for row in rows_of(latest, script, rng):
        if row["_change_type"] != "delete":
            found[number_of(row["f"])] = row["v"]
    assert found == {number: position for position, number in enumerate(numbers)}


def check_totals(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """Each row is deleted again, in another form."""
    by_number: dict[Any, list[int]] = {}
    for position, number in enumerate(numbers):
        by_number.setdefault(number, []).append(position)
    other = [rng.choice(by_number[number]) for number in numbers]
    both = pa.concat_arrays([values, values.take(pa.array(other))])
    types = pa.array(["insert"] * len(values) + ["delete"] * len(values))
    table = pa.table({"f": both, "_change_type": types})
    operator = changes.aggregate(by="f", agg=COUNT)
    balance: Counter[Any] = Counter()
    for row in rows_of(operator, [table.slice(0, len(values)), table.slice(len(values))], rng):
        sign = -1 if row["_change_type"] in ("delete", "update_preimage") else 1
        balance[number_of(row["f"])] += sign * row["n"]
    assert not +balance, balance
    assert not -balance, balance


def check_net(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """The net effect of a micro-batch on a target, and its digest."""
    table = pa.table({"f": values, "n": pa.array(range(len(values)))})
    net = compute_net(table, key=["f"], sequence=["n"])
    wanted = {number: position for position, number in enumerate(numbers)}
    assert sorted(net.added.column("n").to_pylist()) == sorted(wanted.values())
    firsts = [numbers.index(number) for number in numbers]
    entries = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    maps = pa.MapArray.from_arrays(
        pa.array([0, len(values)], pa.int32()), pa.array(range(len(values))), values
    )
    for array in (values, entries, maps, pa.StructArray.from_arrays([maps], ["m"])):
        again = array
        if array is values:
            again = values.take(pa.array(firsts))
        elif array is not entries:
            forms = values.take(pa.array(firsts))
            again = pa.MapArray.from_arrays(
                pa.array([0, len(values)], pa.int32()), pa.array(range(len(values))), forms
            )
            again = again if array is maps else pa.StructArray.from_arrays([again], ["m"])
        assert digest(pa.table({"x": array})) == digest(pa.table({"x": again}))


def check_kernel(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """What the operators are built on: codes, ranks, hashes and one form."""
    expected = [numbers.index(number) for number in numbers]
    whole = normalize_floats(values)
    assert [number_of(value) for value in whole.to_pylist()] == numbers
    assert normalize_floats(whole).equals(whole) or "nan" in str(whole.to_pylist())
    for codes in (
        value_codes(values),
        key_codes([values], len(values)),
        ranks(values),
    ):
        found = codes.tolist()
        assert [found.index(code) for code in found] == expected
    found, distinct = xxhash64([values]).tolist(), list(map(hashed, numbers))
    assert [found.index(code) for code in found] == [distinct.index(part) for part in distinct]
    rows = values.to_pylist()
    for one, number in zip(rows[:8], numbers[:8], strict=True):
        for two, other in zip(rows[:8], numbers[:8], strict=True):
            assert same(one, two) == (number == other)
    forms = values.take(pa.array(expected)).to_pylist()
    assert_rows([{"f": value} for value in rows], [{"f": value} for value in forms])


def check_shredding(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """Equal values are equal bytes."""
    if pa.types.is_nested(values.type):
        return
    dtype = ValueType.of(values.type)
    assert dtype is not None
    cells = dtype.to_bytes(values)
    assert [cells.index(cell) for cell in cells] == [numbers.index(number) for number in numbers]
    assert list(map(number_of, dtype.from_bytes(cells).to_pylist())) == numbers


def check_sourcing(rng: random.Random, values: pa.Array, numbers: Numbers) -> None:
    """Ids of commands; and events that are delivered twice, in another form."""
    firsts = [numbers.index(number) for number in numbers]
    if not pa.types.is_nested(values.type):
        operator = sourcing.decide(
            lambda state, command: [("e",)],
            lambda state, event: state,
            by=[],
            command_id="f",
            state="x int",
            event="e string",
            **TIME,
        )
        assert len(rows_of(operator, batches(rng, values), rng)) == len({*numbers})
    fold = sourcing.fold(
        lambda state, event: state._replace(n=state.n + 1), by=[], state="n int", initial={"n": 0}
    )
    versions = pa.array([*range(1, len(values) + 1)] * 2)
    both = pa.concat_arrays([values, values.take(pa.array(firsts))])
    log = pa.table({"version": versions, "f": both})
    assert fold_table(fold, log).column("n").to_pylist() == [len(values)]


CHECKS: list[Callable[[random.Random, pa.Array, Numbers], None]] = [
    check_groups,
    check_patterns,
    check_distinct,
    check_joins,
    check_changes,
    check_totals,
    check_net,
    check_kernel,
    check_shredding,
    check_sourcing,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_equal_floats_are_one_value(check: Callable[..., None]) -> None:
    rng = random.Random(check.__name__)
    for number in range(cases(4, 40)):
        values, numbers = values_of(rng, rng.randint(2, 20), rng.choice([0, 0, 1, 2]))
        try:
            check(rng, values, numbers)
        except Exception as error:
            error.add_note(f"case {number}: {values.type} {values.to_pylist()}")
            raise


def test_a_state_that_is_the_initial_one_to_the_bit_is_not_stored() -> None:
    """-0.0 is kept, since a function can tell it from 0.0; a NaN is not, since none can tell two apart."""
    zeros = {"x": 0.0, "xs": [0.0]}
    nans = {"x": math.nan, "xs": [math.nan]}
    minus = {"x": -0.0, "xs": [-0.0]}
    for initial, assigned, size in (
        (zeros, zeros, 0),
        (nans, nans, 0),
        (zeros, minus, 1),
        (minus, zeros, 1),
        (zeros, nans, 1),
    ):

        def assign(key: Any, rows: Iterator[Any], state: Any, new: Any = assigned) -> Iterator[Any]:
            for _ in rows:
                before = repr((state.x, state.xs))
                state.x, state.xs = new["x"], new["xs"]
                yield (before,)

        operator = process.per_key(
            assign,
            by=[],
            state="x double, xs array<double>",
            initial=initial,
            output="s string",
            **TIME,
        )
        rows = [{"ts": at(number)} for number in range(3)]
        found = []
        for script in ([rows], [[row] for row in rows]):
            results = replay(operator, script, flush=True)
            found.append([row["s"] for result in results for row in result.rows])
            assert results[-2].state_rows == size
        assert (
            found[0] == found[1] == [repr((v["x"], v["xs"])) for v in (initial, assigned, assigned)]
        )


@pytest.mark.smoke
def test_equal_keys_are_one_text_in_kafka(spark: Any) -> None:
    """The key of a record, which Kafka compacts by its bytes."""
    rng = random.Random(5)
    for depth in (0, 1, 2):
        values, numbers = values_of(rng, 40, depth)
        table = pa.table({"f": values, "n": pa.array(range(len(values)))})
        frame = spark.createDataFrame(table).orderBy("n")
        sink = sinks.kafka("t", servers="nowhere:9092", key="f", sequence="n", name="s")
        keys = sink._project(frame).collect().column(KEY).to_pylist()
        assert [keys.index(key) for key in keys] == [numbers.index(number) for number in numbers]
