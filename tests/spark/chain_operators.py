"""Every public operator twice: over events, and over what another one returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from streamops import aggregates as agg
from streamops import (
    changes,
    joins,
    patterns,
    process,
    search,
    sketches,
    sourcing,
    time,
    windows,
)
from streamops.errors import StreamopsError
from streamops.testing import at

INSTANT = pa.timestamp("us", tz="UTC")
EVENTS = pa.schema(
    [
        ("k", pa.string()),
        ("ts", INSTANT),
        ("v", pa.int64()),
        ("lsn", pa.int64()),
        ("sent", INSTANT),
        ("received", INSTANT),
    ]
)
CHANGES = EVENTS.append(pa.field("_change_type", pa.string()))
RESULTS = pa.schema(
    [("k", pa.string()), ("window_start", INSTANT), ("window_end", INSTANT), ("v", pa.int64())]
)
TABLE = pa.schema(
    [
        ("k", pa.string()),
        ("since", INSTANT),
        ("lsn", pa.int64()),
        ("query", pa.string()),
        ("_change_type", pa.string()),
    ]
)

SECONDS = (1, 2, 11, 23, 38, 55, 70, 71, 130, 200, 330)


def events(seconds: tuple[int, ...] = SECONDS) -> list[dict[str, Any]]:
    """Events of two keys, in the order of time."""
    return [
        {
            "k": "ab"[n % 2],
            "ts": at(s),
            "v": 1 + n % 4,
            "lsn": 100 + n,
            "sent": at(s),
            "received": at(s + 1),
        }
        for n, s in enumerate(seconds)
    ]


def inserts() -> list[dict[str, Any]]:
    """The events as inserts of a table without a key."""
    return [{**row, "_change_type": "insert"} for row in events()]


def results() -> list[dict[str, Any]]:
    """Results of windows of ten seconds."""
    return [
        {"k": row["k"], "window_start": at(10 * n), "window_end": at(10 * n + 10), "v": row["v"]}
        for n, row in enumerate(events())
    ]


def table() -> list[dict[str, Any]]:
    """Versions of a table, one of each key, that is also one of search queries."""
    return [
        {"k": k, "since": at(s), "lsn": s, "query": "v:[1 TO *]", "_change_type": "insert"}
        for s, k in ((0, "a"), (3, "b"), (400, "c"))
    ]


class First(NamedTuple):
    """An operator over a source, and the columns and rows of the source."""

    make: Callable[..., Any]
    schema: pa.Schema = EVENTS
    rows: Callable[[], list[dict[str, Any]]] = events
    right: pa.Schema | None = None
    """Columns of the right input, if there are two."""


COUNT: Mapping[str, Any] = {"n": agg.count(), "v": agg.sum("v")}
KEYED: Mapping[str, Any] = {"time": "ts", "by": "k", "delay": "5 seconds"}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "": {},
    " with updates": {"stragglers": "update", "allowed_lateness": "1 minute"},
    " with retractions": {"stragglers": "retract", "allowed_lateness": "1 minute"},
    " with late rows": {"stragglers": "route"},
    " with early results": {"early": "every batch"},
    " with room": {"allowed_lateness": "5 minutes"},
}


def numbered(key: Any, rows: Any, state: Any) -> Iterator[Any]:
    for row in rows:
        state.n += 1
        yield (state.n, row.v)


def sized(key: Any, rows: Any, state: Any) -> Iterator[Any]:
    for _ in rows:
        state.n += 1
        yield (state.n,)


def decided(state: Any, command: Any) -> Any:
    return [(1,)]


def added(state: Any, event: Any) -> Any:
    return state._replace(n=state.n + event.added)


def every_row(**given: Any) -> Any:
    return patterns.match(
        "low any",
        define={"low": patterns.current("v") < 3},
        within="1 minute",
        measures={"v": patterns.last("any", "v")},
        **given,
    )


def versioned(right: Any = None, **given: Any) -> Any:
    return joins.asof(right, version="since", sequence="lsn", **{"by": "k", **given})


def searched(right: Any = None, **given: Any) -> Any:
    return search.match(right, text=[], fields=["v"], id="k", sequence="lsn", **given)


FIRST: Mapping[str, First] = {
    **{
        f"windows.tumbling{name}": First(
            lambda policy=policy: windows.tumbling("10 seconds", agg=COUNT, **KEYED, **policy)
        )
        for name, policy in POLICIES.items()
    },
    "windows.hopping": First(
        lambda: windows.hopping("20 seconds", "10 seconds", agg=COUNT, **KEYED)
    ),
    "windows.cumulative": First(
        lambda: windows.cumulative("1 minute", "10 seconds", agg=COUNT, **KEYED)
    ),
    "windows.calendar": First(lambda: windows.calendar("day", "UTC", agg=COUNT, **KEYED)),
    "windows.session": First(lambda: windows.session("10 seconds", agg=COUNT, **KEYED)),
    "windows.sliding": First(lambda: windows.sliding("10 seconds", agg=COUNT, **KEYED)),
    "windows.rolling": First(
        lambda: windows.rolling("10 seconds", {"minute": "1 minute"}, agg=COUNT, **KEYED)
    ),
    "windows.running": First(lambda: windows.running(by="k", agg=COUNT)),
    "windows.over": First(
        lambda: windows.over(values={"p": windows.lag("v")}, within="1 minute", **KEYED)
    ),
    "windows.over a later row": First(
        lambda: windows.over(values={"p": windows.lead("v")}, within="1 minute", **KEYED)
    ),
    "windows.resample": First(
        lambda: windows.resample(
            "10 seconds", values={"v": "previous"}, max_gap="20 seconds", **KEYED
        )
    ),
    "windows.resample a line": First(
        lambda: windows.resample(
            "10 seconds", values={"v": "linear"}, max_gap="20 seconds", **KEYED
        )
    ),
    "windows.compare": First(
        lambda: windows.compare("10 seconds", values="v", by="k", delay="5 seconds"),
        RESULTS,
        results,
    ),
    "patterns.match": First(lambda: every_row(**KEYED)),
    "process.per_key": First(
        lambda: process.per_key(
            numbered, by="k", output="n bigint, v bigint", state="n bigint", initial={"n": 0}
        )
    ),
    "changes.aggregate": First(lambda: changes.aggregate(by="k", agg=COUNT), CHANGES, inserts),
    "changes.apply": First(
        lambda: changes.apply("k", sequence="lsn", horizon=50), CHANGES, inserts
    ),
    "changes.normalize": First(
        lambda: changes.normalize("k", sequence="lsn", horizon=50), CHANGES, inserts
    ),
    "sketches.seen": First(lambda: sketches.seen("lsn", capacity=1000, false_positive_rate=0.01)),
    "sourcing.decide": First(
        lambda: sourcing.decide(
            decided,
            added,
            by="k",
            command_id="lsn",
            time="ts",
            delay="5 seconds",
            state="n bigint",
            event="added bigint",
            initial={"n": 0},
        )
    ),
    "time.producers": First(
        lambda: time.producers("k", time="ts", delay="5 seconds", idle="1 hour")
    ),
    "time.track_clock": First(
        lambda: time.track_clock("ts", by="k", sent="sent", received="received", horizon="1 day")
    ),
    "joins.interval": First(
        lambda right=None: joins.interval(
            right,
            by="k",
            time=("ts", "since"),
            lower="0 seconds",
            upper="1 minute",
            how="left",
            delay="5 seconds",
        ),
        right=TABLE,
    ),
    "joins.asof": First(
        lambda right=None: versioned(right, time="ts", delay="5 seconds"), right=TABLE
    ),
    "joins.enrich": First(
        lambda right=None: joins.enrich(right, by="k", sequence="lsn", horizon=50), right=TABLE
    ),
    "joins.tables": First(
        lambda right=None: joins.tables(right, by="k"), CHANGES, inserts, right=TABLE
    ),
    "joins.timeline": First(
        lambda right=None: joins.timeline(
            right, by="k", user="query", key="v", ranked_by="ts", cap=3
        ),
        CHANGES,
        inserts,
        right=TABLE,
    ),
    "search.match": First(lambda right=None: searched(right, into="rule", horizon=50), right=TABLE),
    "search.match as of": First(
        lambda right=None: searched(
            right, into="rule", as_of="ts", time="since", delay="5 seconds", horizon="1 day"
        ),
        right=TABLE,
    ),
}


class Given(NamedTuple):
    """What the second operator reads: names of columns of the first one's output."""

    names: list[str]
    time: str
    by: list[str]
    value: str
    order: str

    @property
    def keyed(self) -> dict[str, Any]:
        """Event time and key."""
        return {"time": self.time, "by": self.by}


def given(output: pa.Schema) -> Given:
    """The columns that a user would name: the end of a window or match, or the event time."""
    names = output.names
    times = [f.name for f in output if f.type == INSTANT]
    first = [n for n in ("window_end", "match_end", "ts", *times) if n in names]
    numbers = [f.name for f in output if pa.types.is_int64(f.type)]
    by = ["k"] if "k" in names else names[:1]
    value = next((n for n in ("v", "minute_v", *numbers) if n in names), names[0])
    order = next((n for n in ("lsn", *numbers) if n in names), names[0])
    return Given(names, first[0] if first else "ts", by, value, order)


def _counts(of: Given) -> dict[str, Any]:
    return {"rows": agg.count(), "total": agg.sum(of.value)}


SECOND: Mapping[str, Callable[[Given], Any]] = {
    **{
        f"windows.tumbling{name}": lambda of, policy=policy: windows.tumbling(
            "1 minute", agg=_counts(of), **of.keyed, **policy
        )
        for name, policy in POLICIES.items()
    },
    "windows.tumbling with a delay": lambda of: windows.tumbling(
        "1 minute", agg=_counts(of), delay="1 second", **of.keyed
    ),
    "windows.tumbling over the start": lambda of: windows.tumbling(
        "1 minute", agg=_counts(of), time="window_start", by=of.by
    ),
    "windows.hopping": lambda of: windows.hopping(
        "2 minutes", "1 minute", agg=_counts(of), **of.keyed
    ),
    "windows.cumulative": lambda of: windows.cumulative(
        "1 day", "1 minute", agg=_counts(of), **of.keyed
    ),
    "windows.calendar": lambda of: windows.calendar("day", "UTC", agg=_counts(of), **of.keyed),
    "windows.session": lambda of: windows.session("1 minute", agg=_counts(of), **of.keyed),
    "windows.sliding": lambda of: windows.sliding("1 minute", agg=_counts(of), **of.keyed),
    "windows.rolling": lambda of: windows.rolling(
        "10 seconds", {"hour": "1 hour"}, agg=_counts(of), **of.keyed
    ),
    "windows.running": lambda of: windows.running(by=of.by, agg=_counts(of)),
    "windows.over": lambda of: windows.over(
        values={"before": windows.lag(of.value)}, within="1 minute", tie_break=of.order, **of.keyed
    ),
    "windows.over the start": lambda of: windows.over(
        values={"before": windows.lag(of.value)},
        within="1 minute",
        tie_break=of.order,
        time="window_start",
        by=of.by,
    ),
    "windows.over a later row": lambda of: windows.over(
        values={"after": windows.lead(of.value)}, within="1 minute", tie_break=of.order, **of.keyed
    ),
    "windows.resample": lambda of: windows.resample(
        "1 minute",
        values={of.value: "previous"},
        max_gap="2 minutes",
        tie_break=of.order,
        **of.keyed,
    ),
    "windows.resample a line": lambda of: windows.resample(
        "1 minute",
        values={of.value: "linear"},
        max_gap="2 minutes",
        tie_break=of.order,
        **of.keyed,
    ),
    "windows.compare": lambda of: windows.compare("1 minute", values=of.value, by=of.by),
    "windows.compare with retractions": lambda of: windows.compare(
        "1 minute", values=of.value, by=of.by, **POLICIES[" with retractions"]
    ),
    "patterns.match": lambda of: patterns.match(
        "any+",
        define={},
        within="1 minute",
        measures={"least": patterns.min("any", of.value)},
        tie_break=of.order,
        **of.keyed,
    ),
    "process.per_key": lambda of: process.per_key(
        sized,
        by=of.by,
        output="size bigint",
        state="n bigint",
        initial={"n": 0},
    ),
    "changes.aggregate": lambda of: changes.aggregate(by=of.by, agg=_counts(of)),
    "changes.apply": lambda of: changes.apply(of.by, sequence=of.order, horizon=50),
    "changes.normalize": lambda of: changes.normalize(of.by, sequence=of.order, horizon=50),
    "sketches.seen": lambda of: sketches.seen(of.by, capacity=1000, false_positive_rate=0.01),
    "sourcing.decide": lambda of: sourcing.decide(
        decided,
        added,
        by=of.by,
        command_id=of.order,
        time=of.time,
        state="n bigint",
        event="added bigint",
        initial={"n": 0},
    ),
    "time.producers": lambda of: time.producers(
        of.by[0], time=of.time, delay="5 seconds", idle="1 hour"
    ),
    "time.track_clock": lambda of: time.track_clock(
        of.time, by=of.by, sent="sent", received="received", horizon="1 day"
    ),
}

JOINS: Mapping[str, Callable[[Given, Any], Any]] = {
    "joins.interval": lambda of, right: joins.interval(
        right,
        by=dict.fromkeys(of.by, "k"),
        time=(of.time, "since"),
        lower="0 seconds",
        upper="1 minute",
        delay=(None, "5 seconds"),
    ),
    "joins.asof": lambda of, right: versioned(
        right, by=dict.fromkeys(of.by, "k"), time=of.time, delay=(None, "5 seconds")
    ),
    "joins.enrich": lambda of, right: joins.enrich(
        right, by=dict.fromkeys(of.by, "k"), sequence="lsn", horizon=50
    ),
    "joins.tables": lambda of, right: joins.tables(right, by=dict.fromkeys(of.by, "k")),
    "search.match": lambda of, right: search.match(
        right, text=[], fields=[of.value], id="k", sequence="lsn", into="rule", horizon=50
    ),
    "search.match as of": lambda of, right: search.match(
        right,
        text=[],
        fields=[of.value],
        id="k",
        sequence="lsn",
        into="rule",
        as_of=of.time,
        time="since",
        delay=(None, "5 seconds"),
        horizon="1 day",
    ),
}
"""Operators with two inputs behind another one, which is their left input. A replay refuses them."""

REFUSED = {
    "CHANGE_STREAM_INPUT",
    "COLUMN_NOT_FOUND",
    "COLUMN_TYPE",
    "DUPLICATE_COLUMN",
    "FRAME_TYPE",
    "NAME_TAKEN",
    "ROWS_REVISED",
    "WATERMARK_MISSING",
    "WATERMARK_LOST",
    "WATERMARK_TOO_EARLY",
    "WATERMARK_TOO_TIGHT",
    "WATERMARK_TWICE",
}
"""Codes with which a pair may be refused."""


def outcome(build: Callable[..., Any], *arguments: Any) -> str:
    """The code with which a chain is refused; "" if it is not."""
    try:
        build(*arguments)
    except StreamopsError as error:
        return error.code
    return ""
