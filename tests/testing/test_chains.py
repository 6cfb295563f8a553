"""A replay refuses the chains that Spark refuses, with the same code; the others do not depend on micro-batches."""

from __future__ import annotations

import collections
import functools
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, search, sketches, time, windows
from streamops.errors import StreamopsError
from streamops.testing import Replay, at, replay
from tests.spark.chain_operators import (
    FIRST,
    REFUSED,
    SECOND,
    First,
    given,
    outcome,
    table,
)

EVENTS: list[Any] = [
    *([{"page": "a", "ts": at(s)}] for s in (1, 100, 150, 3, 20_000)),
    [{"page": "a", "ts": at(30_000)}],
]


def minutes(**given: Any) -> Any:
    return windows.tumbling(
        "1 minute",
        **{"time": "ts", "by": "page", "agg": {"n": agg.count()}, "delay": "10 seconds"} | given,
    )


def hours(**given: Any) -> Any:
    return windows.tumbling(
        "1 hour", **{"time": "window_start", "by": "page", "agg": {"n": agg.sum("n")}} | given
    )


LATE = {"allowed_lateness": "1 hour"}
MISTAKES: dict[str, tuple[list[Any], str]] = {
    "corrections": ([minutes(stragglers="update", **LATE), hours()], "ROWS_REVISED"),
    "retractions": ([minutes(stragglers="retract", **LATE), hours()], "ROWS_REVISED"),
    "late rows": ([minutes(stragglers="route"), hours()], "ROWS_REVISED"),
    "early results": ([minutes(early="every batch"), hours()], "ROWS_REVISED"),
    "revisions of a running total": (
        [minutes(), windows.running(by="page", agg={"n": agg.sum("n")}), hours(time="ts")],
        "ROWS_REVISED",
    ),
    "late rows that passed a clock": (
        [
            changes.aggregate(by="page", agg={"ts": agg.max("ts"), "n": agg.count()}),
            time.producers("page", time="ts", delay="1 minute", idle="1 hour"),
            hours(time="ts"),
        ],
        "ROWS_REVISED",
    ),
    "revisions that passed a filter": (
        [
            windows.running(by="page", agg={"n": agg.count()}),
            sketches.seen("n", capacity=100, false_positive_rate=0.01),
            hours(time="ts"),
        ],
        "ROWS_REVISED",
    ),
    "a second delay": ([minutes(), hours(delay="1 minute")], "WATERMARK_TWICE"),
    "a clock behind a delay": (
        [minutes(), time.producers("page", time="window_end", delay="1 minute", idle="1 hour")],
        "WATERMARK_TWICE",
    ),
    "more lateness than before": (
        [minutes(), hours(stragglers="update", **LATE)],
        "WATERMARK_TOO_TIGHT",
    ),
    "rows of windows by their start": (
        [
            minutes(),
            windows.over(
                time="window_start",
                by="page",
                values={"before": windows.lag("n")},
                tie_break="window_end",
                within="1 hour",
            ),
        ],
        "WATERMARK_MISSING",
    ),
    "matches behind a table": (
        [
            windows.over(
                time="ts",
                by="page",
                values={"next": windows.lead("ts")},
                within="1 minute",
                delay="1 second",
            ),
            patterns.match("a b", define={}, time="ts", within="1 hour"),
            windows.tumbling("1 hour", time="match_end", agg={"n": agg.count()}),
        ],
        "WATERMARK_LOST",
    ),
    "a clock behind a lost watermark": (
        [
            windows.over(
                time="ts",
                by="page",
                values={"next": windows.lead("ts")},
                within="1 minute",
                delay="1 second",
            ),
            patterns.match("a b", define={}, time="ts", within="1 hour"),
            time.producers("match_start", time="match_end", delay="1 minute", idle="1 hour"),
        ],
        "WATERMARK_LOST",
    ),
    "an operator behind applyInPandasWithState": (
        [minutes().options(state_api="applyInPandasWithState"), hours()],
        "STATE_API_NOT_CHAINABLE",
    ),
    "applyInPandasWithState behind a Spark aggregation": (
        [
            minutes().options(engine="native"),
            hours(time="window_end").options(state_api="applyInPandasWithState"),
        ],
        "STATE_API_NOT_CHAINABLE",
    ),
    "Spark's windows over the start of others": (
        [minutes(), hours().options(engine="native")],
        "WATERMARK_MISSING",
    ),
    "Spark's windows with routing": (
        [minutes(stragglers="route").options(engine="native")],
        "PARAMETERS_CONTRADICT",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_chain_that_spark_refuses_is_refused_in_a_replay(name: str) -> None:
    chain, code = MISTAKES[name]
    schema = pa.schema([("page", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    if name == "late rows that passed a clock":
        schema = schema.append(pa.field("_change_type", pa.string()))
    with pytest.raises(StreamopsError) as caught:
        Replay(chain, schema)
    assert caught.value.code == code
    assert caught.value.where.startswith(chain[-1].name)


def test_columns_that_differ_in_case_only_are_one_column() -> None:
    counted = minutes(agg={"n": agg.count(), "x": agg.max("N")})
    with pytest.raises(StreamopsError) as caught:
        replay(counted, [[{"page": "a", "ts": at(1), "n": 1, "N": 2}]])
    assert caught.value.code == "DUPLICATE_COLUMN"


def schema_of(first: str) -> Any:
    """The columns of the first operator's input, or of both inputs."""
    of = FIRST[first]
    return of.schema if of.right is None else (of.schema, of.right)


def replayed(first: str, second: str, columns: Any) -> None:
    """Build the chain for a replay."""
    Replay([FIRST[first].make(), SECOND[second](columns)], schema_of(first))


@functools.cache
def outcomes() -> dict[tuple[str, str], str]:
    """The code of each pair, or "" if it runs."""
    found = {}
    for first, of in FIRST.items():
        columns = given(Replay(of.make(), schema_of(first))._stages[-1].output.columns)
        for second in SECOND:
            found[first, second] = outcome(replayed, first, second, columns)
    return found


def test_every_pair_of_operators_runs_or_is_refused_with_a_code() -> None:
    counts = collections.Counter(outcomes().values())
    assert counts.keys() <= {"", *REFUSED}
    assert len(outcomes()) > 1_000
    assert counts[""] > 400


def plain(name: str) -> str:
    return name.partition(" with ")[0]


REMEDIES = {
    # Without the lateness, or the delay, of the second.
    "WATERMARK_TOO_TIGHT": lambda first, second: (first, plain(second)),
    # Rows that each count once.
    "ROWS_REVISED": lambda first, second: (plain(first), second),
}


@pytest.mark.parametrize("code", REMEDIES)
def test_the_remedies_of_refused_pairs_lead_on(code: str) -> None:
    found = outcomes()
    tried = 0
    for pair, of in found.items():
        mended = REMEDIES[code](*pair)
        if of == code and mended != pair:
            tried += 1
            assert found[mended] != code, pair
    assert tried > 20


def test_a_delay_is_left_out_behind_a_watermark() -> None:
    found = outcomes()
    twice = [
        first
        for (first, second), code in found.items()
        if code == "WATERMARK_TWICE" and second.endswith("a delay")
    ]
    assert len(twice) > 10
    assert {found[first, "windows.tumbling"] for first in twice} == {""}


DEPENDING = {
    # The rows before a row are those of the micro-batches before it.
    "windows.running",
    "process.per_key",
    "sketches.seen",
    "time.track_clock",
    "changes.aggregate",
    "changes.apply",
    "changes.normalize",
    "joins.enrich",
    "joins.tables",
    "joins.timeline",
    "search.match",
}
"""Operators whose results are in the order of arrival, or revise earlier ones."""


def results_of(of: First, chain: list[Any], size: int) -> collections.Counter[str]:
    rows = of.rows()
    batches: list[Any] = [rows[n : n + size] for n in range(0, len(rows), size)]
    schema: Any = of.schema if of.right is None else (of.schema, of.right)
    if of.right is not None:
        batches = [(batch, table() if n == 0 else []) for n, batch in enumerate(batches)]
    found = replay(chain, batches, schema=schema, flush=True)
    return collections.Counter(str(sorted(row.items())) for result in found for row in result.rows)


def differing(every: int) -> tuple[int, list[tuple[str, str]]]:
    """How many pairs were compared, and which results depend on the micro-batches."""
    compared, found = 0, []
    for number, ((first, second), code) in enumerate(outcomes().items()):
        names = {plain(first), plain(second)}
        if code or names & DEPENDING or " with " in second or number % every:
            continue
        of, schema = FIRST[first], schema_of(first)
        columns = given(Replay(of.make(), schema)._stages[-1].output.columns)
        chain = [of.make(), SECOND[second](columns)]
        compared += 1
        if results_of(of, chain, 100) != results_of(of, chain, 2):
            found.append((first, second))
    return compared, found


def test_a_chain_returns_the_same_for_every_division_into_micro_batches() -> None:
    compared, found = differing(every=11)
    assert compared > 20
    assert found == []


@pytest.mark.thorough
def test_all_chains_return_the_same_for_every_division_into_micro_batches() -> None:
    compared, found = differing(every=1)
    assert compared > 250
    # These windows do not lie inside of the minutes: docs/windows.md says to take their end then.
    assert found == [("windows.hopping", "windows.tumbling over the start")]


def test_rules_that_arrive_while_they_are_searched_are_followed_by_a_pattern() -> None:
    """The results of the search lie at its watermark, and matches of a minute lie behind it."""

    def event(second: float, user: str, action: str) -> dict[str, Any]:
        return {"user": user, "ts": at(second), "action": action}

    rules = search.match(
        None,
        text=[],
        fields="action",
        as_of="ts",
        time="since",
        sequence="lsn",
        delay="65 seconds",
        into="rule",
    )
    three = patterns.match(
        "x{3}",
        define={},
        by=["rule", "user"],
        time="ts",
        within="1 minute",
        measures={"first": patterns.first("x", "ts")},
    )
    script: list[Any] = [
        (
            [event(s, "u", "fail") for s in (1, 2)],
            [{"id": "r", "query": "action:fail", "since": at(0), "lsn": 1}],
        ),
        ([event(10, "u", "fail"), event(11, "w", "pay"), event(12, "w", "pay")], []),
        ([event(20, "w", "pay")], [{"id": "q", "query": "action:pay", "since": at(9), "lsn": 2}]),
        ([event(200, "v", "none")], [{"id": "z", "query": "action:z", "since": at(200), "lsn": 3}]),
        ([event(400, "v", "none")], [{"id": "z", "query": "action:y", "since": at(400), "lsn": 4}]),
    ]
    found = {
        (row["rule"], row["match_end"])
        for result in replay([rules, three], script)
        for row in result.rows
    }
    assert found == {("r", at(10)), ("q", at(20))}
    counted = windows.tumbling("1 hour", time="match_end", agg={"n": agg.count()})
    with pytest.raises(StreamopsError) as caught:
        replay([rules, three, counted], script)
    assert caught.value.code == "WATERMARK_LOST"
    assert "from a table, in a second query" in caught.value.fix


def test_a_join_behind_another_operator_is_run_on_spark() -> None:
    with pytest.raises(StreamopsError) as caught:
        replay([minutes(), joins.tables(None, by="page")], EVENTS)
    assert caught.value.code == "NOT_REPLAYABLE"


SAMPLE = [
    ("windows.tumbling with room", "patterns.match"),
    ("windows.over a later row", "patterns.match"),
    ("windows.resample a line", "windows.over a later row"),
    ("windows.tumbling", "windows.session"),
    ("patterns.match", "windows.tumbling"),
    ("windows.session", "windows.resample a line"),
]
"""Chains that also run on Spark."""


@pytest.mark.parametrize(("first", "second"), SAMPLE)
def test_the_chains_that_run_on_spark_return_something(first: str, second: str) -> None:
    of = FIRST[first]
    columns = given(Replay(of.make(), schema_of(first))._stages[-1].output.columns)
    assert results_of(of, [of.make(), SECOND[second](columns)], 4)
