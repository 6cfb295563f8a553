"""What each operator does with shredded values, as docs/erasure.md states it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, search, sketches, time, windows
from streamops.errors import StreamopsError
from streamops.spark.step import Stored
from streamops.testing import Replay, at
from tests.erasure.operators import SUBJECTS, as_multiset, run, shredded, unshredded
from tests.erasure.samples import key_of

TS = pa.timestamp("us", tz="UTC")
EVENT = pa.schema(
    [("k", pa.string()), ("ts", TS), ("sent", TS), ("v", pa.string()), ("n", pa.int64())]
)
VERSION = pa.schema([("k", pa.string()), ("since", TS), ("seq", pa.int64()), ("v", pa.string())])
UPSERT = pa.schema([("k", pa.string()), ("lsn", pa.int64()), ("v", pa.string())])
CHANGE = pa.schema(
    [("_change_type", pa.string()), ("id", pa.int64()), ("k", pa.string()), ("v", pa.string())]
)
WINDOW = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.string()),
        ("window_start", TS),
        ("window_end", TS),
        ("n", pa.int64()),
    ]
)
QUERY = pa.schema([("id", pa.int64()), ("query", pa.string()), ("lsn", pa.int64())])
VALUES = ("x", "yy", "zzz", None)
STARTS = (0, 10, 20, 600)
TIMED: dict[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}

Make = Callable[[], Any]


def rows(schema: pa.Schema, *rows: Sequence[Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)


def events(start: int) -> pa.Table:
    return rows(
        EVENT,
        *((SUBJECTS[i % 3], at(start + i), at(start + i), VALUES[i * 7 % 4], i) for i in range(12)),
    )


def versions(start: int) -> pa.Table:
    return rows(
        VERSION,
        *(
            (SUBJECTS[i % 3], at(start + 2 * i), 10 * start + i, VALUES[i * 5 % 4])
            for i in range(6)
        ),
    )


def upserts(batch: int) -> pa.Table:
    return rows(
        UPSERT,
        *((SUBJECTS[i % 3], 10 * batch + i, VALUES[(i * 7 + batch) % 4]) for i in range(6)),
    )


EVENTS = [(events(start),) for start in STARTS]
PAIRS = [
    (events(start), versions(start).rename_columns(["k", "since", "seq", "w"])) for start in STARTS
]
SAME_NAME = [(events(start), versions(start)) for start in STARTS]
UPSERTS = [(upserts(batch),) for batch in range(4)]
ENRICHED = [(left, right.drop(["since"])) for left, right in PAIRS]
CHANGES = [
    (rows(CHANGE, *of),)
    for of in (
        [("insert", 1, "ann", "x"), ("insert", 2, "bob", "yy"), ("insert", 3, "ann", "x")],
        [("update_preimage", 1, "ann", "x"), ("update_postimage", 1, "ann", "zzz")],
        [("delete", 3, "ann", "x")],
        [("insert", 4, "cid", "x")],
    )
]
TABLES = [(t, t.rename_columns(["_change_type", "rid", "k", "w"])) for (t,) in CHANGES]
TABLES_OF_ONE_NAME = [(t, t.rename_columns(["_change_type", "rid", "k", "v"])) for (t,) in CHANGES]
FOLLOWS = [(left, right.drop(["w"])) for left, right in TABLES]

WINDOWS = [
    (
        rows(
            WINDOW,
            *(
                (subject, value, at(start), at(start + 10), start + len(value))
                for subject in SUBJECTS
                for value in ("x", "yy", "zzz")
            ),
        ),
    )
    for start in (*range(0, 50, 10), 600)
]
QUERIES = [
    rows(QUERY, (1, "ann n:>3", 1), (2, "bob OR cid", 1)),
    rows(QUERY, (1, "-ann", 2)),
    rows(QUERY),
    rows(QUERY),
]
SEARCHED = [(documents, of) for (documents,), of in zip(EVENTS, QUERIES, strict=True)]
SEARCHED_AS_OF = [
    (documents, of.append_column("since", pa.array([at(start + 4)] * len(of), TS)))
    for (documents, of), start in zip(SEARCHED, STARTS, strict=True)
]

REPEATED = [
    (t.set_column(3, "v", pa.array([VALUES[i // 5 % 4] for i in range(len(t))])),)
    for (t,) in EVENTS
]


def matched(define: dict[str, Any], pattern: str, **measures: Any) -> Any:
    return patterns.match(
        pattern, define=define, measures=measures, within="1 minute", tie_break="n", **TIMED
    )


def searched(**fields: Any) -> Any:
    return search.match(None, **fields, sequence="lsn", horizon=1_000)


def searched_as_of(**fields: Any) -> Any:
    valid: Any = {"as_of": "ts", "time": "since", "delay": "5 seconds", "horizon": "1 hour"}
    return search.match(None, **fields, sequence="lsn", rejected="route", **valid)


def tumbling(aggregate: Any) -> Any:
    return windows.tumbling("10 seconds", agg={"r": aggregate}, **TIMED)


# Operators with the same result as over readable values, once it is unshredded.
SAME: dict[str, tuple[Make, Any]] = {
    "count": (lambda: tumbling(agg.count("v")), EVENTS),
    "first": (lambda: tumbling(agg.first("v", tie_break="n")), EVENTS),
    "last": (lambda: tumbling(agg.last("v", tie_break="n")), EVENTS),
    "top": (lambda: tumbling(agg.top(2, "v", ranked_by="n", tie_break="n")), EVENTS),
    "collect_list": (lambda: tumbling(agg.collect_list("v", at_most=9, tie_break="n")), EVENTS),
    "count_distinct": (lambda: tumbling(agg.count_distinct("v", at_most=9)), EVENTS),
    "approx_count_distinct": (lambda: tumbling(agg.approx_count_distinct("v")), EVENTS),
    "approx_count_distinct_theta": (lambda: tumbling(agg.approx_count_distinct_theta("v")), EVENTS),
    "bloom_filter_stats": (lambda: tumbling(agg.bloom_filter_stats("v", capacity=99)), EVENTS),
    "hopping": (
        lambda: windows.hopping(
            "20 seconds", "5 seconds", agg={"r": agg.last("v", tie_break="n")}, **TIMED
        ),
        EVENTS,
    ),
    "cumulative": (
        lambda: windows.cumulative(
            "20 seconds", "5 seconds", agg={"r": agg.last("v", tie_break="n")}, **TIMED
        ),
        EVENTS,
    ),
    "calendar": (
        lambda: windows.calendar("day", "UTC", agg={"r": agg.last("v", tie_break="n")}, **TIMED),
        [*EVENTS, (events(200_000),)],
    ),
    "session": (
        lambda: windows.session("4 seconds", agg={"r": agg.last("v", tie_break="n")}, **TIMED),
        EVENTS,
    ),
    "sliding": (
        lambda: windows.sliding(
            "4 seconds", agg={"r": agg.count_distinct("v", at_most=9)}, **TIMED
        ),
        EVENTS,
    ),
    "rolling": (
        lambda: windows.rolling(
            "2 seconds",
            {"4s": "4 seconds"},
            agg={"r": agg.count_distinct("v", at_most=9)},
            **TIMED,
        ),
        EVENTS,
    ),
    "over": (
        lambda: windows.over(
            values={"r": windows.lag("v"), "s": windows.lead("v")}, within="9 seconds", **TIMED
        ),
        EVENTS,
    ),
    "resample": (
        lambda: windows.resample(
            "2 seconds", values={"v": "previous"}, max_gap="9 seconds", **TIMED
        ),
        EVENTS,
    ),
    "running": (
        lambda: windows.running(by="k", agg={"r": agg.approx_count_distinct("v")}),
        EVENTS,
    ),
    "late rows": (
        lambda: windows.tumbling("5 seconds", agg={"r": agg.count()}, stragglers="route", **TIMED),
        [*EVENTS, EVENTS[0]],
    ),
    "track_clock": (
        lambda: time.track_clock("ts", by="k", sent="sent", received="ts2"),
        [(t.append_column("ts2", t.column("ts")),) for (t,) in EVENTS],
    ),
    "interval": (
        lambda: joins.interval(
            None,
            "-5 seconds",
            "5 seconds",
            by="k",
            time=("ts", "since"),
            how="full",
            delay="5 seconds",
        ),
        PAIRS,
    ),
    "interval, by subject and value": (
        lambda: joins.interval(
            None,
            "-5 seconds",
            "5 seconds",
            by=["k", "v"],
            time=("ts", "since"),
            how="full",
            delay="5 seconds",
        ),
        SAME_NAME,
    ),
    "asof": (
        lambda: joins.asof(
            None, by="k", time="ts", version="since", sequence="seq", delay="5 seconds"
        ),
        PAIRS,
    ),
    "enrich": (lambda: joins.enrich(None, by="k", sequence="seq", horizon=1_000), ENRICHED),
    "tables": (lambda: joins.tables(None, by="k", how="left"), TABLES),
    "tables, by subject and value": (
        lambda: joins.tables(None, by=["k", "v"], how="left"),
        TABLES_OF_ONE_NAME,
    ),
    "timeline": (
        lambda: joins.timeline(None, by="k", user="rid", key="id", ranked_by="id", cap=2),
        FOLLOWS,
    ),
    "normalize": (lambda: changes.normalize("k", sequence="lsn", horizon=1_000), UPSERTS),
    "apply": (lambda: changes.apply("k", sequence="lsn", horizon=1_000), UPSERTS),
    "apply, history": (
        lambda: changes.apply("k", sequence="lsn", horizon=1_000, history="intervals"),
        UPSERTS,
    ),
    "aggregate": (lambda: changes.aggregate(by="k", agg={"n": agg.count("v")}), CHANGES),
    "aggregate, by subject and value": (
        lambda: changes.aggregate(by=["k", "v"], agg={"n": agg.count()}),
        CHANGES,
    ),
    "tumbling, by subject and value": (
        lambda: windows.tumbling(
            "10 seconds", agg={"r": agg.count()}, time="ts", by=["k", "v"], delay="5 seconds"
        ),
        EVENTS,
    ),
    "seen, by subject and value": (lambda: sketches.seen(["k", "v"], capacity=100), EVENTS),
    "chain": (
        lambda: [
            windows.tumbling("5 seconds", agg={"r": agg.last("v", tie_break="n")}, **TIMED),
            windows.session(
                "15 seconds",
                time="window_start",
                by="k",
                agg={"s": agg.count_distinct("r", at_most=9)},
            ),
        ],
        EVENTS,
    ),
}

SAME |= {
    "compare, by subject and value": (
        lambda: windows.compare("10 seconds", values="n", by=["k", "v"], delay="5 seconds"),
        WINDOWS,
    ),
    "producers": (
        lambda: [
            time.producers("k", time="ts", delay="5 seconds", idle="1 hour"),
            windows.tumbling(
                "10 seconds", time="ts", by="k", agg={"r": agg.last("v", tie_break="n")}
            ),
        ],
        EVENTS,
    ),
    "search.match": (lambda: searched(text="k", fields="n"), SEARCHED),
    "search.match, as of": (
        lambda: searched_as_of(text="k", fields="n"),
        [*SEARCHED_AS_OF, SEARCHED_AS_OF[0]],  # with late documents and changes
    ),
    "patterns": (
        lambda: matched(
            {"changed": patterns.previous("v") != "v", "same": patterns.previous("v") == "v"},
            "changed+ same?",
            first=patterns.first("changed", "v"),
            last=patterns.last(None, "v"),
            values=patterns.collect_list(None, "v"),
            n=patterns.count("changed", "v"),
            variables=patterns.classifiers(),
        ),
        REPEATED,
    ),
}

# Operators that compare values of different subjects, which are different once shredded.
PER_SUBJECT: dict[str, tuple[Make, Any]] = {
    "tumbling": (
        lambda: windows.tumbling(
            "10 seconds", agg={"r": agg.count()}, time="ts", by="v", delay="5 seconds"
        ),
        EVENTS,
    ),
    "count_distinct": (
        lambda: windows.tumbling(
            "10 seconds",
            agg={"r": agg.count_distinct("v", at_most=9)},
            time="ts",
            delay="5 seconds",
        ),
        EVENTS,
    ),
    "interval": (
        lambda: joins.interval(
            None, "-5 seconds", "5 seconds", by="v", time=("ts", "since"), delay="5 seconds"
        ),
        SAME_NAME,
    ),
    "seen": (lambda: sketches.seen("v", capacity=100), EVENTS),
    "aggregate": (lambda: changes.aggregate(by="v", agg={"n": agg.count()}), CHANGES),
}

# Operators that order values: they order the bytes, which has no meaning.
ORDERS: dict[str, tuple[Make, Any]] = {
    "min": (lambda: tumbling(agg.min("v")), EVENTS),
    "max": (lambda: tumbling(agg.max("v")), EVENTS),
    "approx_top_k": (lambda: tumbling(agg.approx_top_k("v", at_least=0.1)), EVENTS),
    "patterns, max": (
        lambda: matched({"row": patterns.current("n") >= 0}, "row+", r=patterns.max("row", "v")),
        EVENTS,
    ),
    "patterns, min": (
        lambda: matched({"row": patterns.current("n") >= 0}, "row+", r=patterns.min("row", "v")),
        EVENTS,
    ),
    "patterns, up": (
        lambda: matched({"up": patterns.previous("v") < "v"}, "up", r=patterns.last("up", "v")),
        EVENTS,
    ),
    "ranked_by": (lambda: tumbling(agg.top(2, "n", ranked_by="v", tie_break="n")), EVENTS),
    "tie_break": (
        lambda: tumbling(agg.last("n", tie_break="v")),
        [
            (t.set_column(1, "ts", pa.array([at(start)] * len(t), TS)),)
            for (t,), start in zip(EVENTS, STARTS, strict=True)
        ],
    ),
}

# Operators that compare values with constants, which never equal a shredded value.
CONSTANTS: dict[str, tuple[Make, Any]] = {
    "count_min": (lambda: tumbling(agg.count_min("v", of=["x"])), EVENTS),
    "approx_overlap": (
        lambda: tumbling(agg.approx_overlap("n", of="v", between=["x", "yy"])),
        EVENTS,
    ),
}

# Operators that compute with values, or with event times.
REFUSED: dict[str, Make] = {
    "sum": lambda: tumbling(agg.sum("n")),
    "mean": lambda: tumbling(agg.mean("n")),
    "variance": lambda: tumbling(agg.variance("n")),
    "stddev": lambda: tumbling(agg.stddev("n")),
    "percentile": lambda: tumbling(agg.percentile("n", 0.5, at_most=9)),
    "approx_percentile": lambda: tumbling(agg.approx_percentile("n", [0.5])),
    "event time": lambda: windows.tumbling(
        "10 seconds", time="n", by="k", agg={"r": agg.count()}, delay="5 seconds"
    ),
    "sequence": lambda: changes.apply("k", sequence="n", horizon=1_000),
    **{
        name: lambda of=of: windows.over(values={"r": of}, within="9 seconds", **TIMED)  # type: ignore[misc]
        for name, of in {
            "difference": windows.difference("n"),
            "rate": windows.rate("n"),
            "ewma": windows.ewma("n", half_life="9 seconds"),
        }.items()
    },
    "resample, linear": lambda: windows.resample(
        "2 seconds", values={"n": "linear"}, max_gap="9 seconds", **TIMED
    ),
    "patterns, sum": lambda: matched(
        {"row": patterns.current("v").is_null()}, "row+", r=patterns.sum("row", "n")
    ),
    "patterns, mean": lambda: matched(
        {"row": patterns.current("v").is_null()}, "row+", r=patterns.mean("row", "n")
    ),
    "patterns, a number": lambda: matched({"row": patterns.current("n") > 3}, "row+"),
}


def compare(make: Make, batches: Any) -> tuple[list[str], list[str]]:
    """The results over readable values, and over shredded ones, unshredded."""
    expected = run(make(), batches)
    found = run(make(), shredded(batches, ("v", "w"), ["k"] * len(batches[0])))
    assert expected
    return as_multiset(expected), as_multiset(unshredded(found, "k"))


@pytest.mark.parametrize("name", SAME)
def test_values_that_are_carried_or_compared_within_a_subject_give_the_same_result(
    name: str,
) -> None:
    expected, found = compare(*SAME[name])
    assert found == expected


@pytest.mark.parametrize("name", PER_SUBJECT)
def test_equal_values_of_different_subjects_are_different_values(name: str) -> None:
    expected, found = compare(*PER_SUBJECT[name])
    assert found != expected


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_of_shredded_values_has_no_meaning(name: str) -> None:
    expected, found = compare(*ORDERS[name])
    assert found != expected


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_never_equal_to_a_shredded_value(name: str) -> None:
    make, batches = CONSTANTS[name]
    expected, found = compare(make, batches)
    assert found != expected
    assert any("'upper': 1" in row for row in expected)
    assert not any("'upper': 1" in row for row in found)


@pytest.mark.parametrize("name", REFUSED)
def test_operators_that_compute_with_values_refuse_shredded_ones(name: str) -> None:
    batches = shredded(EVENTS, ["n"], ["k"])
    with pytest.raises(StreamopsError, match=r"(type|n is) binary"):
        run(REFUSED[name](), batches)


@pytest.mark.parametrize(
    ("make", "batches"), [(searched, SEARCHED), (searched_as_of, SEARCHED_AS_OF)]
)
@pytest.mark.parametrize("columns", [{"text": "v"}, {"text": "k", "fields": "v"}])
def test_stored_queries_refuse_to_search_shredded_values(
    columns: dict[str, str], make: Callable[..., Any], batches: Any
) -> None:
    assert run(make(**columns), batches)
    with pytest.raises(StreamopsError, match="type binary"):
        run(make(**columns), shredded(batches, ["v"], ["k", "id"]))


def test_comparisons_of_windows_refuse_shredded_values() -> None:
    operator = windows.compare("10 seconds", values="n", by="k", delay="5 seconds")
    with pytest.raises(StreamopsError, match="type binary"):
        run(operator, shredded(WINDOWS, ["n"], ["k"]))


def test_a_repeated_micro_batch_is_the_same() -> None:
    assert shredded(EVENTS, ["v"], ["k"]) == shredded(EVENTS, ["v"], ["k"])


@pytest.mark.parametrize(
    "name",
    [
        "count_distinct",
        "last",
        "interval",
        "apply",
        "tables",
        "patterns",
        "search.match, as of",
    ],
)
def test_neither_values_nor_keys_are_in_the_state(name: str) -> None:
    make, batches = SAME[name]
    assert "zzz" in state(make(), batches)  # the check finds what is there
    found = state(make(), shredded(batches, ("v", "w"), ["k"] * len(batches[0])))
    assert "zzz" not in found
    assert not any(key_of(subject).hex() in found for subject in SUBJECTS)


def state(operator: Any, batches: Any) -> str:
    """The rows of the state after every micro-batch; bytes in hexadecimal digits."""
    schemas = tuple(table.schema for table in batches[0])
    query = Replay(operator, schemas if len(schemas) > 1 else schemas[0], shards=2)
    found = []
    for tables in batches:
        query.run([tables if len(schemas) > 1 else tables[0]])
        for stage in query._stages:
            for stored in stage.stored.values():
                of_shard = Stored(*stored).state(stage.run_step.header)
                for table in of_shard.tables.values():
                    found += [
                        value.hex() if isinstance(value, bytes) else repr(value)
                        for row in table.to_pylist()
                        for value in flat(row)
                    ]
    return "\n".join(found)


def flat(value: Any) -> list[Any]:
    match value:
        case dict():
            return [part for inner in value.values() for part in flat(inner)]
        case list():
            return [part for inner in value for part in flat(inner)]
    return [value]
