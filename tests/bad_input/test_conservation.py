"""Every row is in the result, or in the side output with a reason, or counted: no row is lost.

Each operator runs over good and bad rows, each of which has a fate. The side output and the metrics have
exactly these, and the results are those of the accepted rows alone.
"""

from __future__ import annotations

import ast
import datetime as dt
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, search, sketches, time, windows
from tests.bad_input.fates import (
    ACCEPTED,
    FAR,
    SECOND,
    TOO_EARLY,
    TOO_FAR,
    TS,
    Played,
    Poisoned,
    Side,
    after,
)
from tests.process.functions import sums
from tests.process.silences import silences
from tests.sourcing.seats import COMMAND, seats

pytestmark = pytest.mark.thorough

SILENCE = dt.timedelta(seconds=1)
NAN, INF = float("nan"), float("inf")
EVENT = pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.float64())])
EVENTS = Side(
    EVENT,
    [
        [(ACCEPTED, key, after(n), float(n)) for n, key in enumerate("abcabcabcabc")],
        [
            (ACCEPTED, None, after(15), 1.0),
            ("null_time", "a", None, 2.0),
            ("null_time", None, None, None),
            ("time_out_of_range", "b", TOO_FAR, 3.0),
            ("time_out_of_range", "b", TOO_EARLY, 3.0),
            (ACCEPTED, "a", after(16.000001), NAN),
            (ACCEPTED, "b", after(16), INF),
            (ACCEPTED, "c", after(16), -INF),
            (ACCEPTED, "", after(17), -0.0),
        ],
        [(ACCEPTED, "b", after(60), None)],
        [],  # late rows are compared with the watermark of the micro-batch before
        [
            ("too_late", "a", after(1), 5.0),
            ("too_late", "b", after(-3_600), 6.0),
            ("too_late", "a", -1, 6.0),  # a microsecond before 1970
            (ACCEPTED, "c", after(100), 7.0),
        ],
        [(ACCEPTED, "a", FAR, 8.0), (ACCEPTED, "a", after(95), 9.0)],
        [],
        # Without time.guard, a row of the year 9999 makes all rows after it late.
        [("too_late", "a", after(101), 10.0), (ACCEPTED, "b", FAR, 11.0)],
    ],
)
OF_A_DAY = Side(
    EVENT,
    [
        [(ACCEPTED, *row[1:]) if row[2] == after(1) else row for row in batch]
        for batch in EVENTS.batches
    ],
)
VERSIONS = Side(
    pa.schema([("k", pa.string()), ("since", TS), ("seq", pa.int64()), ("w", pa.string())]),
    [
        [(ACCEPTED, "a", after(0), 1, "x"), (ACCEPTED, "b", after(0.5), 2, "y")],
        [
            (ACCEPTED, None, after(15), 4, "null key"),
            ("null_time", "a", None, 5, "x"),
            ("time_out_of_range", "a", TOO_FAR, 6, "x"),
            (ACCEPTED, "a", after(14), 7, "z"),
        ],
        [(ACCEPTED, "a", after(60), 8, "s")],
        [],
        # A late version counts for the facts that are not joined yet: for none of these.
        [("too_late", "a", after(-5), 9, "late"), (ACCEPTED, "c", after(100), 9, "c")],
        [(ACCEPTED, "a", FAR, 10, "t")],
        [],
        [("too_late", "b", after(2), 11, "u"), (ACCEPTED, "b", FAR, 12, "t")],
    ],
)
SEQUENCED = Side(
    VERSIONS.schema,
    [
        *VERSIONS.batches[:2],
        [
            *VERSIONS.batches[2],
            ("null_sequence", "b", after(61), None, "n"),
            ("conflicting_version", "b", after(62), 13, "p"),
            (ACCEPTED, "b", after(62), 13, "q"),
        ],
        *VERSIONS.batches[3:],
    ],
)
QUERY_VERSIONS = Side(
    VERSIONS.schema,
    [
        [(ACCEPTED, "a", after(0), 1, "a OR c"), (ACCEPTED, "b", after(0.5), 2, "b v:>1")],
        [
            ("null_key", None, after(15), 4, "a"),
            ("null_time", "a", None, 5, "a"),
            ("time_out_of_range", "a", TOO_FAR, 6, "a"),
            (ACCEPTED, "a", after(14), 7, "-z"),
            ("invalid_query", "b", after(14), 8, "b AND ("),
        ],
        [
            (ACCEPTED, "a", after(60), 8, "c OR a"),
            ("no_sequence", "b", after(61), None, "b"),
            ("conflict", "b", after(62), 13, "a"),
            (ACCEPTED, "b", after(62), 13, "b"),
        ],
        [],
        # A late query counts for the documents that wait: for none of these.
        [("too_late", "a", after(-5), 9, "b"), (ACCEPTED, "c", after(100), 9, "c")],
        [(ACCEPTED, "a", FAR, 10, "b")],
        [],
        [("too_late", "b", after(2), 11, "a"), (ACCEPTED, "b", FAR, 12, "a OR b")],
    ],
)
UPSERTS = Side(
    pa.schema(
        [("_change_type", pa.string()), ("k", pa.string()), ("lsn", pa.int64()), ("w", pa.string())]
    ),
    [
        [(ACCEPTED, "insert", key, n, key) for n, key in enumerate("abc")],
        [
            ("duplicates", "insert", "a", 0, "a"),
            ("conflict", "update_postimage", "a", 4, "x"),
            (ACCEPTED, "update_postimage", "a", 4, "y"),
            ("duplicates", "update_postimage", "a", 4, "y"),
            ("unknown_operation", "nonsense", "b", 5, "x"),
            ("unknown_operation", None, "b", 5, "x"),
            ("null_key", "insert", None, 6, "x"),
            ("no_sequence", "insert", "b", None, "x"),
            ("ignored", "update_preimage", "b", 7, "b"),
            (ACCEPTED, "update_postimage", "b", 7, "b2"),
        ],
        [(ACCEPTED, "delete", "c", 8, None), ("duplicates", "delete", "c", 8, None)],
        [("stale", "insert", "b", 3, "old"), ("stale", "delete", "a", 1, None)],
        [(ACCEPTED, "insert", "d", 5_000, "d")],
        # The delete of "c" is beyond the horizon, and so is what comes before it.
        [("forgotten", "insert", "c", 5, "c"), (ACCEPTED, "insert", "e", 6_000, "e")],
    ],
)
HISTORY = Side(
    UPSERTS.schema,
    [
        UPSERTS.batches[0],
        *UPSERTS.batches[1:3],
        [(ACCEPTED, *row[1:]) for row in UPSERTS.batches[3]],  # they split an interval
        *UPSERTS.batches[4:],
    ],
)
LEFT = pa.schema(
    [("_change_type", pa.string()), ("id", pa.int64()), ("k", pa.string()), ("v", pa.int64())]
)
RIGHT = pa.schema([("_change_type", pa.string()), ("rid", pa.int64()), ("k", pa.string())])
COUNTED = Side(
    LEFT,
    [
        [(ACCEPTED, "insert", 1, "a", 5), (ACCEPTED, "insert", 2, "b", 7)],
        [
            (ACCEPTED, "insert", 3, None, 7),
            ("unknown_operation", "nonsense", 4, "a", 1),
            ("unknown_operation", None, 4, "a", 1),
            ("unknown_operation", "truncate", None, None, None),
        ],
        [
            (ACCEPTED, "update_preimage", 2, "b", 7),
            (ACCEPTED, "update_postimage", 2, "c", 8),
            (ACCEPTED, "delete", 1, "a", 5),
            (ACCEPTED, "insert", 1, "a", 6),
        ],
    ],
)
JOINED = (
    Side(
        LEFT,
        [
            COUNTED.batches[0],
            [
                ("bad_change", *row[1:]) if row[0] == "unknown_operation" else row
                for row in COUNTED.batches[1]
            ],
            [*COUNTED.batches[2], ("not_there", "delete", 9, "a", 1)],
        ],
    ),
    Side(
        RIGHT,
        [
            [(ACCEPTED, "insert", 1, "a"), (ACCEPTED, "insert", 2, "b")],
            [("bad_change", "nonsense", 4, "a"), ("not_there", "delete", 9, "a")],
            [(ACCEPTED, "insert", 3, "c"), (ACCEPTED, "insert", None, "c")],
        ],
    ),
)
COMPARED = Side(
    pa.schema([("k", pa.string()), ("window_start", TS), ("window_end", TS), ("n", pa.int64())]),
    [
        [(ACCEPTED, "a", after(10 * n), after(10 * n + 10), n) for n in range(6)],
        [
            (ACCEPTED, None, after(60), after(70), 1),
            ("null_time", "b", None, after(70), 1),
            ("bad_window", "b", after(60), None, 1),
            ("time_out_of_range", "b", TOO_FAR, TOO_FAR + 1, 1),
        ],
        [(ACCEPTED, "a", after(100), after(110), 1)],
        [("too_late", "a", after(-10), after(0), 1), ("too_late", "b", after(10), after(20), 1)],
    ],
)
NUMBERS = count()
COMMANDS = Side(
    COMMAND,
    [
        *(
            [(*row[:3], next(NUMBERS), "xy"[n % 2], None) for n, row in enumerate(b)]
            for b in EVENTS.batches[:2]
        ),
        [
            ("ignored", "a", after(61), 0, "x", None),
            ("ignored", "a", after(61), 0, "y", 77),
            (ACCEPTED, "b", after(60), 0, "x", None),  # an id of another entity
            (ACCEPTED, "c", after(62), 100, "x", 77),  # another version
            ("ignored", "c", after(63), 100, "x", None),
            (ACCEPTED, "c", after(64), None, "x", None),
            (ACCEPTED, "c", after(64), None, "x", None),
        ],
        [],
        [(*row[:3], next(NUMBERS), "z", None) for row in EVENTS.batches[4]],
    ],
)
"""Commands that are decided, repeated, rejected or late. A rejection is a result."""

REJECTED = {"null_time", "time_out_of_range"}

OF_SILENCES = Side(
    EVENT,
    [
        [("rejected" if row[0] in REJECTED else row[0], *row[1:]) for row in batch]
        for batch in EVENTS.batches
    ],
)

TIMED: dict[str, Any] = {"time": "ts", "by": "k", "delay": "10 seconds", "stragglers": "route"}
SUMS = {"state": "n bigint, total double", "output": "n bigint, total double"}
COUNT: dict[str, Any] = {"agg": {"n": agg.count(), "most": agg.max("v"), "total": agg.sum("v")}}
INTERVAL: dict[str, Any] = {"by": "k", "time": ("ts", "since"), "delay": "10 seconds"}
ASOF: dict[str, Any] = {"by": "k", "time": "ts", "version": "since", "sequence": "seq"}
ASOF |= {"delay": "10 seconds", "stragglers": "route"}
CORRECTED: dict[str, Any] = {"allowed_lateness": "1 second", "too_late": "route"}
CHANGED: dict[str, Any] = {"sequence": "lsn", "horizon": 1_000}
CHANGE_COUNTS = ("duplicates", "stale", "ignored")

TABLE: dict[str, Poisoned] = {
    "tumbling": Poisoned(windows.tumbling("10 seconds", **TIMED, **COUNT), (EVENTS,)),
    "tumbling, retract": Poisoned(
        windows.tumbling("10 seconds", **TIMED | {"stragglers": "retract"}, **COUNT, **CORRECTED),
        (EVENTS,),
    ),
    "calendar": Poisoned(windows.calendar("day", "UTC", **TIMED, **COUNT), (OF_A_DAY,)),
    "sliding": Poisoned(windows.sliding("3 seconds", **TIMED, agg={"n": agg.count()}), (EVENTS,)),
    "rolling": Poisoned(
        windows.rolling("5 seconds", {"10s": "10 seconds"}, **TIMED, agg={"n": agg.count()}),
        (EVENTS,),
    ),
    "over": Poisoned(
        windows.over(
            values={"change": windows.difference("v"), "next": windows.lead("v")},
            within="5 seconds",
            **TIMED,
        ),
        (EVENTS,),
    ),
    "resample": Poisoned(
        windows.resample("2 seconds", values={"v": "linear"}, max_gap="5 seconds", **TIMED),
        (EVENTS,),
    ),
    "patterns": Poisoned(
        patterns.match(
            "low | any low?",
            define={"low": patterns.current("v") < 5},
            within="10 seconds",
            measures={"n": patterns.count(), "most": patterns.max(None, "v")},
            **TIMED,
        ),
        (EVENTS,),
    ),
    "per_key": Poisoned(sums(**SUMS, **TIMED), (EVENTS,)),
    "decide": Poisoned(seats(stragglers="route"), (COMMANDS,), ("ignored",)),
    "per_shard": Poisoned(
        silences(SILENCE, by="k", time="ts", delay=10 * SILENCE),
        (OF_SILENCES,),
        ("rejected", "too_late"),
    ),
    "session": Poisoned(windows.session("4 seconds", **TIMED, **COUNT), (EVENTS,)),
    "compare": Poisoned(
        windows.compare("20 seconds", values="n", by="k", delay="10 seconds", stragglers="route"),
        (COMPARED,),
    ),
    **{
        f"interval, {how}": Poisoned(
            joins.interval(
                None, "-2 seconds", "2 seconds", how=how, stragglers="route", **INTERVAL
            ),
            (EVENTS, VERSIONS),
        )
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
    "interval, retract": Poisoned(
        joins.interval(
            None,
            "-2 seconds",
            "2 seconds",
            how="full",
            stragglers="retract",
            **INTERVAL,
            **CORRECTED,
        ),
        (EVENTS, VERSIONS),
    ),
    "asof": Poisoned(joins.asof(None, **ASOF), (EVENTS, SEQUENCED)),
    "asof, nearest": Poisoned(
        joins.asof(None, direction="nearest", tolerance="1 second", **ASOF), (EVENTS, SEQUENCED)
    ),
    "search, as of": Poisoned(
        search.match(
            None,
            text="k",
            fields="v",
            id="k",
            query="w",
            as_of="ts",
            time="since",
            sequence="seq",
            delay="10 seconds",
            rejected="route",
        ),
        (EVENTS, QUERY_VERSIONS),
    ),
    "normalize": Poisoned(changes.normalize("k", **CHANGED), (UPSERTS,), CHANGE_COUNTS),
    "apply": Poisoned(changes.apply("k", **CHANGED), (UPSERTS,), CHANGE_COUNTS),
    "history": Poisoned(
        changes.apply("k", history="intervals", **CHANGED), (HISTORY,), CHANGE_COUNTS
    ),
    "aggregate": Poisoned(
        changes.aggregate(by="k", agg={"n": agg.count()}, rejected="route"), (COUNTED,)
    ),
    **{
        f"tables, {how}": Poisoned(joins.tables(None, by="k", how=how, rejected="route"), JOINED)
        for how in ("inner", "left", "right", "full")
    },
    "timeline": Poisoned(
        joins.timeline(None, by="k", user="rid", key="id", ranked_by="v", cap=2, rejected="route"),
        JOINED,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_row_is_a_result_or_side_output_or_counted(name: str) -> None:
    case = TABLE[name]
    played = Played.of(case.operator, case.sides)
    alone = Played.of(case.operator, case.sides, only_accepted=True)
    found = played.reasons()
    found.update({fate: played.metric(fate) for fate in case.counted if case.fates[fate]})
    expected = Counter({fate: n for fate, n in case.fates.items() if fate != ACCEPTED})
    assert found == expected
    assert played.rows() == alone.rows() != Counter()
    delivered = sum(case.fates.values())
    assert played.metric("rows") == delivered == alone.metric("rows") + sum(found.values())
    assert not alone.reasons()


def test_every_command_is_events_or_a_rejection_unless_it_is_ignored() -> None:
    played = Played.of(seats(stragglers="route"), (COMMANDS,))
    commands = [row for batch in COMMANDS.batches for row in batch if row[0] == ACCEPTED]
    results = [dict(ast.literal_eval(row)) for row in played.rows().elements()]
    decided = {(row["k"], row["command_id"]) for row in results}
    assert decided == {(k, None if n is None else str(n)) for _, k, _, n, *_ in commands}
    rejections = Counter(row["rejection"] for row in results)
    assert rejections["null_command_id"] == 2
    assert rejections["version_conflict"] == 1
    assert sum(n for reason, n in rejections.items() if str(reason).startswith("taken")) > 0
    events = [row for row in results if row["rejection"] is None]
    versions = Counter((row["k"], row["version"]) for row in events)
    assert set(versions.values()) == {1}


@pytest.mark.parametrize(
    ("operator", "windows_of"),
    [
        (windows.hopping("20 seconds", "5 seconds", **TIMED, **COUNT), lambda t: 4),
        (
            windows.cumulative("1 minute", "20 seconds", **TIMED, **COUNT),
            lambda t: 3 - t % (60 * SECOND) // (20 * SECOND),
        ),
    ],
    ids=["hopping", "cumulative"],
)
def test_every_row_is_in_each_of_its_windows_or_side_output_of_it(
    operator: Any, windows_of: Callable[[int], int]
) -> None:
    played = Played.of(operator, (EVENTS,))
    reasons = played.reasons()
    times = [row[2] for batch in EVENTS.batches for row in batch]
    is_usable = [time is not None and TOO_EARLY < time < TOO_FAR for time in times]
    pairs = sum(windows_of(time) for time, usable in zip(times, is_usable, strict=True) if usable)
    counted = sum(n * rows for n, rows in played.values("n").items())
    assert counted == played.metric("on_time")
    assert counted + reasons["too_late"] == pairs
    assert reasons["too_late"] > 0
    assert reasons["null_time"] + reasons["time_out_of_range"] == is_usable.count(False)


def test_every_row_of_a_full_running_aggregate_is_counted_or_ignored() -> None:
    operator = windows.running(
        by="k", agg={"n": agg.count()}, max_keys=4, when_full="reject_new", changes="retract"
    )
    played = Played.of(operator, (EVENTS,))
    table = played.rows()
    counted = sum(dict(ast.literal_eval(row))["n"] * number for row, number in table.items())
    ignored = played.metric("rejected")
    assert ignored > 0
    assert counted + ignored == played.metric("rows") == EVENTS.fates.total()


def test_every_row_is_emitted_with_what_was_decided_about_it() -> None:
    operator = sketches.seen("k", capacity=100, again="flag", time="ts", horizon="1 minute")
    played = Played.of(operator, (EVENTS,))
    decisions = played.values("seen")
    assert decisions.total() == played.rows().total() == EVENTS.fates.total()
    rows = [row for batch in EVENTS.batches for row in batch]
    assert decisions["null_identity"] == [row[1] for row in rows].count(None) > 0
    for reason in ("null_time", "time_out_of_range"):
        expected = sum(row[0] == reason and row[1] is not None for row in rows)
        assert decisions[reason] == expected > 0
    assert min(decisions["first"], decisions["again"]) > 0


CLOCKED = pa.schema([*EVENT, ("sent", TS), ("received", TS)])


def test_clocks_pass_on_every_row() -> None:
    side = Side(CLOCKED, [[(*row, row[2], row[2]) for row in batch] for batch in EVENTS.batches])
    tracked = Played.of(time.track_clock("ts", by="k", sent="sent", received="received"), (side,))
    qualities = tracked.values("clock_quality")
    assert qualities.total() == EVENTS.fates.total()
    followed = time.producers(
        "k", time="ts", delay="10 seconds", idle="1 minute", arrival="received"
    )
    played = Played.of(followed, (side,))
    assert played.rows().total() == EVENTS.fates.total()
    clocks = [result.clock for result in played.results if result.clock is not None]
    assert sum(clock.rows for clock in clocks) == EVENTS.fates.total()
    unusable = EVENTS.fates["null_time"] + EVENTS.fates["time_out_of_range"]
    assert sum(clock.rejected for clock in clocks) == unusable


def test_every_fact_is_joined_and_every_bad_change_of_its_table_is_rejected() -> None:
    operator = joins.enrich(None, by="k", sequence="lsn", horizon=1_000, rejected="route")
    empty = [[]] * (len(EVENTS.batches) - len(UPSERTS.batches))
    table = Side(UPSERTS.schema, [*UPSERTS.batches, *empty])
    played = Played.of(operator, (EVENTS, table))
    assert played.rows().total() == EVENTS.fates.total()
    rejected = {"unknown_operation", "null_key", "no_sequence", "conflict", "forgotten"}
    assert played.reasons() == Counter({r: table.fates[r] for r in rejected})
    delivered = EVENTS.fates.total() + table.fates.total()
    assert played.metric("rows") == delivered
    without_effect = table.fates["duplicates"] + table.fates["stale"]
    assert played.metric("too_late") == without_effect
    assert played.metric("on_time") == delivered - without_effect - played.reasons().total()


def test_every_invalid_query_is_rejected_and_stops_nothing() -> None:
    operator = search.match(
        None, text="k", id="k_id", query="w", sequence="lsn", horizon=1_000, rejected="route"
    )
    schema = pa.schema([f.with_name("k_id") if f.name == "k" else f for f in UPSERTS.schema])
    invalid = [("invalid_query", "insert", "z", 9_000, text) for text in ("(", "a~", None, "w:a")]
    batches = [*UPSERTS.batches[:1], [*UPSERTS.batches[1], *invalid], *UPSERTS.batches[2:]]
    queries = Side(schema, [*batches, *[[]] * (len(EVENTS.batches) - len(batches))])
    played = Played.of(operator, (EVENTS, queries))
    rejected = {"unknown_operation", "null_key", "no_sequence", "conflict", "forgotten"}
    rejected |= {"invalid_query"}
    assert played.reasons() == Counter({r: queries.fates[r] for r in rejected})
    assert played.rows().total() == played.metric("results") > 0
    assert played.metric("rows") == queries.fates.total()
    without_effect = queries.fates["duplicates"] + queries.fates["stale"]
    assert played.metric("too_late") == without_effect
    rest = queries.fates.total() - without_effect - played.reasons().total()
    assert played.metric("on_time") == rest
