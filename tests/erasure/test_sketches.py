"""Stored sketches of shredded values: they count what is equal, and query it by the shredded bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from streamops import sketches, windows
from streamops.errors import StreamopsError
from streamops.testing import at
from tests.erasure.operators import SUBJECTS, run, shredded, unshredded

TS = pa.timestamp("us", tz="UTC")
EVENT = pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.string()), ("n", pa.int64())])
VALUES = ("x", "yy", "zzz", None, "x")


def events(start: int) -> pa.Table:
    rows = [
        {"k": SUBJECTS[n % 3], "ts": at(start + n), "v": VALUES[n * 2 % 5], "n": n}
        for n in range(20)
    ]
    return pa.Table.from_pylist(rows, EVENT)


READABLE = [(events(start),) for start in (0, 20, 40, 600)]
SHREDDED = shredded(READABLE, ["v"], ["k"])
PAIRS = {
    (row["k"], row["v"]): stored["v"]
    for tables in zip(READABLE, SHREDDED, strict=True)
    for row, stored in zip(*(table.to_pylist() for (table,) in tables), strict=True)
}
GIVEN = [pair for pair in PAIRS if pair[1] is not None]

DISTINCT: dict[str, Any] = {
    "hll": sketches.hll_sketch_agg("v"),
    "theta": sketches.theta_sketch_agg("v"),
}
COUNTED: dict[str, Any] = {
    "top_k": sketches.top_k_sketch_agg("v", at_least=0.1),
    "count_min": sketches.count_min_sketch("v"),
}


def per_window(aggregate: Any, *, by: Any = "k") -> Any:
    return windows.tumbling("10 seconds", agg={"r": aggregate}, time="ts", by=by, delay="5 seconds")


def stored(aggregate: Any, batches: Any, **options: Any) -> dict[Any, Any]:
    """The sketches by key and window."""
    rows = run(per_window(aggregate, **options), batches)
    found = {(row.get("k"), row["window_start"]): sketches.read(row["r"]) for row in rows}
    assert len(found) == len(rows) > 5
    return found


@pytest.mark.parametrize("name", DISTINCT)
def test_distinct_values_of_a_subject_are_as_many(name: str) -> None:
    expected = stored(DISTINCT[name], READABLE)
    found = stored(DISTINCT[name], SHREDDED)
    assert {key: s.estimate() for key, s in found.items()} == {
        key: s.estimate() for key, s in expected.items()
    }
    # Values of all subjects: pairs of subject and value are counted.
    everyone = stored(DISTINCT[name], SHREDDED, by=())
    of_values = stored(DISTINCT[name], READABLE, by=())
    first = min(everyone)
    assert everyone[first].estimate()["estimate"] > of_values[first].estimate()["estimate"]


def test_merged_sketches_count_values_of_all_parts_once() -> None:
    def chain(batches: Any) -> list[Any]:
        aggregate = sketches.hll_sketch_agg("v")
        hour = windows.tumbling(
            "1 minute", time="window_start", by="k", agg={"r": sketches.merge("r", like=aggregate)}
        )
        rows = run([per_window(aggregate), hour], batches)
        return sorted(
            (row["k"], row["window_start"], sketches.read(row["r"]).estimate()["estimate"])
            for row in rows
        )

    assert chain(SHREDDED) == chain(READABLE)
    assert {estimate for *_, estimate in chain(READABLE)} == {3}


def test_set_operations_on_sketches_of_a_subject_are_the_same() -> None:
    def sizes(batches: Any) -> list[Any]:
        found: Any = stored(sketches.theta_sketch_agg("v"), batches)
        pairs = itertools.combinations(sorted(found), 2)
        return [
            (found[a].overlap(found[b]), found[a].difference(found[b]).estimate())
            for a, b in pairs
            if a[0] == b[0]
        ]

    expected = sizes(READABLE)
    assert sizes(SHREDDED) == expected
    assert any(parts["both"]["estimate"] for parts, _ in expected)


def test_the_similarity_of_sets_of_a_subject_is_the_same_and_of_two_subjects_none() -> None:
    aggregate = sketches.minhash_sketch_agg("v")
    found: Any = stored(aggregate, SHREDDED)
    expected: Any = stored(aggregate, READABLE)
    same = other = 0
    for a, b in itertools.combinations(expected, 2):
        sets = [{row["v"] for row in _rows(key)} - {None} for key in (a, b)]
        if a[0] == b[0] and sets[0] == sets[1]:
            assert found[a].similarity(found[b]) == expected[a].similarity(expected[b]) == 1
            same += 1
        elif a[0] == b[0] and not sets[0] & sets[1]:
            assert found[a].similarity(found[b]) == expected[a].similarity(expected[b]) == 0
        elif a[0] != b[0] and sets[0] == sets[1]:
            assert found[a].similarity(found[b]) == 0 < expected[a].similarity(expected[b])
            other += 1
    assert same
    assert other


def _rows(key: tuple[str, Any]) -> list[Any]:
    k, start = key
    rows = [row for (table,) in READABLE for row in table.to_pylist() if row["k"] == k]
    return [row for row in rows if 0 <= (row["ts"] - start).total_seconds() < 10]


@pytest.mark.parametrize("name", COUNTED)
def test_frequencies_are_queried_by_the_shredded_value(name: str) -> None:
    expected: Any = stored(COUNTED[name], READABLE)
    found: Any = stored(COUNTED[name], SHREDDED)
    counts = set()
    for key, sketch in found.items():
        for subject, value in GIVEN:
            if subject != key[0]:
                continue
            (of_value,) = expected[key].estimate_counts([value])
            assert sketch.estimate_counts([PAIRS[subject, value]]) == [of_value]
            # A readable value was never counted.
            (unknown,) = sketch.estimate_counts([value.encode()])
            assert unknown.upper == 0 or name == "top_k"
            counts.add(of_value.upper)
    assert max(counts) > 1


def test_the_most_frequent_items_are_read_with_the_key() -> None:
    def items(batches: Any) -> list[Any]:
        found: Any = stored(sketches.top_k_sketch_agg("v", at_least=0.1), batches)
        rows = [{"k": key[0], "start": key[1], "of": s.estimate()} for key, s in found.items()]
        return sorted(repr(_as_set(row)) for row in unshredded(rows, "k"))

    assert items(SHREDDED) == items(READABLE)


def _as_set(value: Any) -> Any:
    """Items of equal counts are ordered by their bytes."""
    match value:
        case dict():
            return {name: _as_set(part) for name, part in value.items()}
        case list():
            return sorted(map(repr, map(_as_set, value)))
    return value


def test_a_filter_contains_shredded_values_of_its_subjects_only() -> None:
    aggregate = sketches.bloom_filter_agg("v", capacity=1_000, false_positive_rate=1e-9)
    found: Any = stored(aggregate, SHREDDED)
    for key, sketch in found.items():
        present = {row["v"] for row in _rows(key)}
        queried = sketch.may_contain([PAIRS[pair] for pair in GIVEN]).tolist()
        assert queried == [subject == key[0] and value in present for subject, value in GIVEN]
        assert not any(sketch.may_contain([value.encode() for _, value in GIVEN]))


def test_sketches_of_the_package_datasketch_have_the_same_values() -> None:
    from datasketch import HyperLogLogPlusPlus

    aggregate = sketches.hll_sketch_agg("v")
    ours: Any = stored(aggregate, SHREDDED, by=())
    theirs = HyperLogLogPlusPlus(12, hashfunc=sketches.datasketch_hash(aggregate, pa.binary()))
    for value in PAIRS.values():
        if value is not None:
            theirs.update(value)
    both = ours[min(ours)].merge(sketches.StoredHll.from_datasketch(theirs))
    assert both.estimate()["estimate"] == len(GIVEN)


def test_quantiles_of_shredded_values_are_refused() -> None:
    run(per_window(sketches.kll_sketch_agg("n")), READABLE)
    with pytest.raises(StreamopsError, match="type binary"):
        run(per_window(sketches.kll_sketch_agg("n")), shredded(READABLE, ["n"], ["k"]))
