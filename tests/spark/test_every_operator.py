"""Every operator on Spark, on the default state API: as a stream, after a restart, and as a batch.

All operators run in one query: a union of their results, with one checkpoint. That costs a fraction
of a query for each. What an operator means is tested on its core; here the tests check the wiring.

Spark's watermark is the minimum over all inputs of a query, so the expected results are those of
replays that move in step, with one watermark for all of them.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import changes, joins, patterns, search, sketches, time, windows
from streamops.kernel.errors import StreamopsError
from streamops.kernel.versions import create_frame, has_transform, state_messages_problem
from streamops.spark.columns import spark_schema
from streamops.spark.operator import Operator
from streamops.testing import Replay, at, micro_batches, replay
from streamops.testing.batches import to_table
from streamops.testing.results import BatchResult
from streamops.testing.streaming import run_query
from tests.process.functions import bursts, distinct_values, sums, window_totals
from tests.process.silences import silences
from tests.sourcing.alarms import alarms
from tests.sourcing.seats import COMMAND, commands, seats

pytestmark = pytest.mark.spark

Rows = list[dict[str, Any]]
TS = pa.timestamp("us", tz="UTC")
SECOND = dt.timedelta(seconds=1)
_FIRST_DETAIL = "side"
STARTS = (0, 20, 45, 70)
"""Where the event time of each micro-batch starts, in seconds. The query restarts before the third."""


@dataclass(frozen=True)
class Case:
    """An operator, or a chain of them, and its micro-batches."""

    operator: Any
    schemas: tuple[pa.Schema, ...]
    batches: Sequence[tuple[Rows, ...]]

    @property
    def chain(self) -> list[Any]:
        return self.operator if isinstance(self.operator, list) else [self.operator]

    def tables(self, number: int) -> tuple[pa.Table, ...]:
        return tuple(
            to_table(rows, schema)
            for rows, schema in zip(self.batches[number], self.schemas, strict=True)
        )

    @property
    def has_replay(self) -> bool:
        return all(getattr(operator, "core", None) is not None for operator in self.chain)


def columns(text: str) -> pa.Schema:
    """A schema from names and types: `k string, ts timestamp`."""
    types = {"string": pa.string(), "bigint": pa.int64(), "timestamp": TS}
    return pa.schema([(name, types[of]) for name, of in map(str.split, text.split(", "))])


def events(*, last: int = 600, keys: str = "abc") -> list[tuple[Rows, ...]]:
    """Micro-batches of events, out of order by up to nine seconds; the last closes all windows."""
    batches = []
    for batch, start in enumerate(STARTS):
        rows = [
            {
                "k": keys[n % len(keys)],
                "ts": at(start + (n * 7) % 24 - n % 9),
                "v": batch * 100 + n,
                "sent": at(start + (n * 7) % 24),
                "received": at(start + (n * 7) % 24 + 3 + n % 4),
            }
            for n in range(12)
        ]
        if batch == 3:
            rows.append(dict.fromkeys(("ts", "sent", "received"), at(last)) | {"k": "a", "v": 999})
        batches.append((rows,))
    return batches


def select(batches: list[tuple[Rows, ...]], *names: str) -> list[tuple[Rows, ...]]:
    return [([{name: row[name] for name in names} for row in rows],) for (rows,) in batches]


def pair(left: list[tuple[Rows, ...]], right: list[tuple[Rows, ...]]) -> list[tuple[Rows, ...]]:
    return [(*one, *other) for one, other in zip(left, right, strict=True)]


def versions() -> list[tuple[Rows, ...]]:
    """Versions of a table: a new one of each key in each micro-batch."""
    return [
        (
            [
                {"k": k, "since": at(start + 2 * n), "seq": 10 * batch + n, "w": f"{k}{batch}"}
                for n, k in enumerate("abc")
            ]
            + ([{"k": "a", "since": at(600), "seq": 99, "w": "last"}] if batch == 3 else []),
        )
        for batch, start in enumerate(STARTS)
    ]


def table_changes(key: str = "id") -> list[tuple[Rows, ...]]:
    """Changes of a keyed table: rows are inserted, updated and deleted."""
    steps = [
        [("insert", 1, "a", 5, 1), ("insert", 2, "b", 7, 1), ("insert", 3, "a", 1, 1)],
        [("update_preimage", 1, "a", 5, 2), ("update_postimage", 1, "b", 6, 2)],
        [("delete", 3, "a", 1, 2), ("insert", 4, "c", 2, 1)],
        [("update_preimage", 2, "b", 7, 3), ("update_postimage", 2, "b", 9, 3)],
    ]
    names = ("_change_type", key, "k", "v", "lsn")
    return [([dict(zip(names, row, strict=True)) for row in rows],) for rows in steps]


def upserts() -> list[tuple[Rows, ...]]:
    return [
        ([{"k": k, "lsn": 10 * batch + n, "w": f"{k}{batch}"} for n, k in enumerate("abca")],)
        for batch in range(4)
    ]


def stored_queries() -> list[tuple[Rows, ...]]:
    """Queries that are inserted, updated, deleted, and invalid."""
    steps = [
        [("insert", 1, "k:a AND v:[1 TO *]", 1), ("insert", 2, "b OR c", 1)],
        [("update_postimage", 1, "-b", 2), ("insert", 3, "(b", 1)],
        [("delete", 2, None, 2), ("insert", 3, "c v:>205", 1)],
        [("insert", 4, "a*", 1)],
    ]
    names = ("_change_type", "id", "query", "lsn")
    return [([dict(zip(names, row, strict=True)) for row in rows],) for rows in steps]


def query_versions() -> list[tuple[Rows, ...]]:
    """The same queries with the instants at which they take effect; the last one is for the watermark."""
    batches = [
        (
            [row | {"since": at(start + 4 * n)} for n, row in enumerate(rows)]
            + ([{**rows[0], "id": 9, "since": at(600)}] if start == STARTS[-1] else []),
        )
        for start, (rows,) in zip(STARTS, stored_queries(), strict=True)
    ]
    late = {"_change_type": "insert", "id": 5, "query": "a OR b", "lsn": 1, "since": at(21)}
    batches[2][0].append(late)
    return batches


EVENT = columns("k string, ts timestamp, v bigint")
CLOCKED = columns("k string, ts timestamp, sent timestamp, received timestamp")
VERSION = columns("k string, since timestamp, seq bigint, w string")
UPSERT = columns("k string, lsn bigint, w string")
CHANGE = columns("_change_type string, id bigint, k string, v bigint")
RIGHT_CHANGE = columns("_change_type string, rid bigint, k string")
FOLLOW = columns("_change_type string, rid bigint, k string, v bigint")
WINDOW = columns("k string, window_start timestamp, window_end timestamp, n bigint")
DEBEZIUM = columns("value string")
EVENTS = select(events(), "k", "ts", "v")
TIMED_SUMS: dict[str, Any] = {"time": "ts", "delay": "10 seconds"}
COUNT = {"n": agg.count(), "total": agg.sum("v")}
TIMED: dict[str, Any] = {"time": "ts", "by": "k", "delay": "10 seconds"}


def window_rows() -> list[tuple[Rows, ...]]:
    return [
        (
            [
                {"k": k, "window_start": at(s), "window_end": at(s + 10), "n": s + n}
                for n, k in enumerate("ab")
                for s in ((start, start + 10) if start < 70 else (start, 600))
            ],
        )
        for start in (0, 20, 40, 70)
    ]


def debezium_rows() -> list[tuple[Rows, ...]]:
    text = '{"op": "%s", "before": %s, "after": %s, "source": {"lsn": %d}}'
    row = '{"id": %d, "k": "%s"}'
    return [
        (
            [
                {"value": text % ("c", "null", row % (batch, "a"), 10 * batch)},
                {"value": text % ("d", row % (batch, "a"), "null", 10 * batch + 1)},
            ],
        )
        for batch in range(4)
    ]


def delta_rows() -> list[tuple[Rows, ...]]:
    return [
        (
            [
                {
                    "id": batch,
                    "_change_type": "insert",
                    "_commit_version": batch,
                    "_commit_timestamp": at(batch),
                }
            ],
        )
        for batch in range(4)
    ]


CASES: dict[str, Case] = {
    "tumbling": Case(windows.tumbling("10 seconds", agg=COUNT, **TIMED), (EVENT,), EVENTS),
    "tumbling_corrections": Case(
        windows.tumbling(
            "10 seconds",
            agg={"n": agg.count(), "most": agg.max("v")},
            allowed_lateness="20 seconds",
            stragglers="retract",
            early="every batch",
            **TIMED,
        ),
        (EVENT,),
        EVENTS,
    ),
    "hopping": Case(
        windows.hopping("20 seconds", "5 seconds", agg=COUNT, **TIMED), (EVENT,), EVENTS
    ),
    "calendar": Case(windows.calendar("day", "UTC", agg=COUNT, **TIMED), (EVENT,), EVENTS),
    "cumulative": Case(
        windows.cumulative("1 minute", "20 seconds", agg=COUNT, **TIMED), (EVENT,), EVENTS
    ),
    "sliding": Case(windows.sliding("15 seconds", agg=COUNT, **TIMED), (EVENT,), EVENTS),
    "session": Case(windows.session("4 seconds", agg=COUNT, **TIMED), (EVENT,), EVENTS),
    "rolling": Case(
        windows.rolling("5 seconds", {"10s": "10 seconds", "1m": "1 minute"}, agg=COUNT, **TIMED),
        (EVENT,),
        EVENTS,
    ),
    "over": Case(
        windows.over(
            values={
                "before": windows.lag("k"),
                "after": windows.lead("v"),
                "rate": windows.rate("v"),
                "average": windows.ewma("v", half_life="3 seconds"),
            },
            within="20 seconds",
            **TIMED,
        ),
        (EVENT,),
        EVENTS,
    ),
    "resample": Case(
        windows.resample(
            "3 seconds", values={"v": "linear"}, max_gap="20 seconds", stragglers="route", **TIMED
        ),
        (EVENT,),
        EVENTS,
    ),
    "resample_in_a_chain": Case(
        [
            windows.tumbling("10 seconds", agg={"n": agg.count()}, **TIMED),
            windows.resample(
                "10 seconds",
                time="window_end",
                by="k",
                values={"n": "previous"},
                max_gap="1 minute",
            ),
            windows.tumbling("20 seconds", time="window_end", by="k", agg={"total": agg.sum("n")}),
        ],
        (EVENT,),
        EVENTS,
    ),
    "running": Case(windows.running(by="k", agg=COUNT, changes="retract"), (EVENT,), EVENTS),
    "compare": Case(
        windows.compare("20 seconds", values="n", by="k", delay="10 seconds"),
        (WINDOW,),
        window_rows(),
    ),
    "chain": Case(
        [
            windows.tumbling("10 seconds", agg={"n": agg.count()}, **TIMED),
            windows.session("15 seconds", time="window_start", by="k", agg={"total": agg.sum("n")}),
        ],
        (EVENT,),
        EVENTS,
    ),
    "per_key": Case(sums(order_by="v", **TIMED_SUMS), (EVENT,), EVENTS),
    "per_key_timers": Case(bursts(), (EVENT,), EVENTS),
    "per_key_as_rows_arrive": Case(distinct_values(), (EVENT,), EVENTS),
    "per_key_in_a_chain": Case(
        [
            windows.tumbling("10 seconds", agg={"n": agg.count()}, **TIMED),
            window_totals(),
            windows.tumbling("20 seconds", time="window_end", by="k", agg={"n": agg.max("total")}),
        ],
        (EVENT,),
        EVENTS,
    ),
    "decide": Case(seats(), (COMMAND,), commands()),
    "decide_in_a_chain": Case(
        [
            windows.tumbling("10 seconds", agg={"n": agg.count()}, **TIMED),
            alarms(),
            windows.tumbling(
                "20 seconds", time="window_end", by="k", agg={"events": agg.count("type")}
            ),
        ],
        (EVENT,),
        EVENTS,
    ),
    "silences": Case(silences(5 * SECOND, by="k", time="ts", delay=10 * SECOND), (EVENT,), EVENTS),
    "silences_in_a_chain": Case(
        [
            windows.tumbling("5 seconds", agg={"n": agg.count()}, **TIMED),
            silences(5 * SECOND, by="k", time="window_end"),
            windows.tumbling("20 seconds", time="window_end", by="k", agg={"n": agg.count()}),
        ],
        (EVENT,),
        EVENTS,
    ),
    "interval": Case(
        joins.interval(
            None,
            "-5 seconds",
            "5 seconds",
            by="k",
            time=("ts", "since"),
            how="full",
            delay="10 seconds",
        ),
        (EVENT, VERSION),
        pair(EVENTS, versions()),
    ),
    "asof": Case(
        joins.asof(None, by="k", time="ts", version="since", sequence="seq", delay="10 seconds"),
        (EVENT, VERSION),
        pair(EVENTS, versions()),
    ),
    "enrich": Case(
        joins.enrich(None, by="k", sequence="lsn", horizon=1_000),
        (EVENT, UPSERT),
        pair(EVENTS, upserts()),
    ),
    "search": Case(
        search.match(None, text="k", fields="v", sequence="lsn", horizon=1_000, rejected="route"),
        (EVENT, columns("_change_type string, id bigint, query string, lsn bigint")),
        pair(EVENTS, stored_queries()),
    ),
    "search, as of": Case(
        search.match(
            None,
            text="k",
            fields="v",
            as_of="ts",
            time="since",
            sequence="lsn",
            delay="10 seconds",
            rejected="route",
        ),
        (
            EVENT,
            columns("_change_type string, id bigint, query string, lsn bigint, since timestamp"),
        ),
        pair(EVENTS, query_versions()),
    ),
    "tables": Case(
        joins.tables(None, by="k", how="left"),
        (CHANGE, RIGHT_CHANGE),
        pair(
            select(table_changes(), "_change_type", "id", "k", "v"),
            select(table_changes("rid"), "_change_type", "rid", "k"),
        ),
    ),
    "timeline": Case(
        joins.timeline(None, by="k", user="rid", key="id", ranked_by="v", cap=2),
        (CHANGE, columns("_change_type string, rid bigint, k string")),
        pair(
            select(table_changes(), "_change_type", "id", "k", "v"),
            select(table_changes("rid"), "_change_type", "rid", "k"),
        ),
    ),
    "normalize": Case(changes.normalize("k", sequence="lsn", horizon=1_000), (UPSERT,), upserts()),
    "apply": Case(changes.apply("k", sequence="lsn", horizon=1_000), (UPSERT,), upserts()),
    "history": Case(
        changes.apply("k", sequence="lsn", horizon=1_000, history="intervals"),
        (UPSERT,),
        upserts(),
    ),
    "aggregate": Case(
        changes.aggregate(by="k", agg=COUNT),
        (CHANGE,),
        select(table_changes(), "_change_type", "id", "k", "v"),
    ),
    "patterns": Case(
        patterns.match(
            "low+? high | high{2,} ... low",
            define={"low": patterns.previous("v") > "v", "high": patterns.previous("v") < "v"},
            within="12 seconds",
            measures={
                "n": patterns.count("high"),
                "values": patterns.collect_list(None, "v"),
                "names": patterns.classifiers(),
            },
            skip="to next row",
            tie_break="v",
            **TIMED,
        ),
        (EVENT,),
        EVENTS,
    ),
    "patterns, first": Case(
        patterns.match(
            "low",
            define={"low": patterns.previous("v") > "v"},
            within="12 seconds",
            measures={"least": patterns.last("low", "v")},
            matches="first",
            horizon="30 seconds",
            tie_break="v",
            **TIMED,
        ),
        (EVENT,),
        EVENTS,
    ),
    "patterns, initial": Case(
        patterns.match(
            "from (above | fall)+",
            define={
                "above": patterns.initial("v") < "v",
                "fall": (patterns.previous("v") > "v") & (patterns.initial("v") != "v"),
            },
            within="12 seconds",
            measures={"values": patterns.collect_list(None, "v"), "names": patterns.classifiers()},
            tie_break="v",
            **TIMED,
        ),
        (EVENT,),
        EVENTS,
    ),
    "seen": Case(sketches.seen("k", capacity=100), (EVENT,), EVENTS),
    "track_clock": Case(
        time.track_clock("ts", by="k", sent="sent", received="received"),
        (CLOCKED,),
        select(events(), "k", "ts", "sent", "received"),
    ),
    "producers": Case(
        [
            time.producers("k", time="ts", delay="10 seconds", idle="1 minute", arrival="received"),
            windows.tumbling("10 seconds", time="ts", by="k", agg={"n": agg.count()}),
        ],
        (CLOCKED,),
        select(events(), "k", "ts", "sent", "received"),
    ),
    "correct_clock": Case(
        time.correct_clock("ts", sent="sent", received="received"),
        (CLOCKED,),
        select(events(), "k", "ts", "sent", "received"),
    ),
    "guard": Case(
        time.guard("ts", arrival="received"),
        (CLOCKED,),
        select(events(), "k", "ts", "sent", "received"),
    ),
    "from_debezium": Case(
        changes.from_debezium("id bigint, k string", key="id"), (DEBEZIUM,), debezium_rows()
    ),
    "from_delta": Case(
        changes.from_delta("id"),
        (
            columns(
                "id bigint, _change_type string, _commit_version bigint, _commit_timestamp timestamp"
            ),
        ),
        delta_rows(),
    ),
}


STATELESS = {"correct_clock", "guard", "from_debezium", "from_delta"}
NOT_IN_A_BATCH = {
    "producers": "defines a watermark, and a batch has none",
    "tumbling_corrections": "emits early results, and a batch has final ones only",
}
CAN_CHAIN = has_transform() and state_messages_problem() is None
"""Whether ``transformWithStateInPandas`` runs: with Spark 4.0 or later, and the protobuf of its messages."""
REFUSED_UNCHAINED = {
    "resample_in_a_chain": "STATE_API_NOT_CHAINABLE",
    "chain": "STATE_API_NOT_CHAINABLE",
    "per_key_in_a_chain": "STATE_API_NOT_CHAINABLE",
    "decide_in_a_chain": "STATE_API_NOT_CHAINABLE",
    "silences_in_a_chain": "STATE_API_NOT_CHAINABLE",
    "producers": "STATE_API_NOT_CHAINABLE",
    "timeline": "PACKAGE_MISSING" if has_transform() else "VERSION_NOT_SUPPORTED",
}
"""What ``applyInPandasWithState`` cannot run, and the codes of the errors."""
VARIANTS = {
    "tumbling_corrections",
    "per_key_timers",
    "per_key_as_rows_arrive",
    "per_key_in_a_chain",
    "decide_in_a_chain",
    "silences_in_a_chain",
    "search, as of",
    "history",
    "patterns, first",
    "patterns, initial",
}
"""Other parameters of operators: `make test` runs each operator once."""
_ONCE = [name for name in CASES if name not in VARIANTS]
GROUPS = {
    "first": {name: CASES[name] for name in _ONCE[::3]},
    "second": {name: CASES[name] for name in _ONCE[1::3]},
    "third": {name: CASES[name] for name in _ONCE[2::3]},
    "variants": {name: CASES[name] for name in VARIANTS},
}
"""Several queries: tests run in two processes."""


@pytest.fixture
def one_partition(spark: SparkSession) -> Any:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


@pytest.mark.parametrize(
    "group",
    [pytest.param(n, marks=[] if n == "variants" else pytest.mark.smoke) for n in GROUPS],
)
def test_every_operator_as_a_stream_and_after_a_restart(
    one_partition: SparkSession, tmp_path: Path, group: str
) -> None:
    if CAN_CHAIN:
        check_stream(one_partition, GROUPS[group], tmp_path)
        return
    with ThreadPoolExecutor(
        3
    ) as pool:  # a query has one stateful operator, and waits most of its time
        for checked in [
            pool.submit(check_stream, one_partition, {name: case}, tmp_path / name)
            for name, case in GROUPS[group].items()
        ]:
            checked.result()


@pytest.mark.smoke
def test_every_operator_as_a_batch(one_partition: SparkSession) -> None:
    check_batch(
        one_partition,
        {n: c for n, c in CASES.items() if c.has_replay and n not in NOT_IN_A_BATCH},
    )


def check_stream(
    spark: SparkSession,
    cases: dict[str, Case],
    folder: Path,
    before_run: Callable[[int], None] = lambda number: None,
) -> None:
    """Run all cases in one query, with a restart, and compare each micro-batch with the replays."""
    emitted: dict[str, list[list[str]]] = {name: [] for name in cases}
    for start, run in enumerate(((0, 1), (2, 3))):
        before_run(start)
        frames = {}
        for name, case in cases.items():
            try:
                frames[name] = through(case, inputs(spark, case, folder / name, run), name)
            except StreamopsError as error:
                if CAN_CHAIN or REFUSED_UNCHAINED.get(name) != error.code:
                    raise
        if not CAN_CHAIN:
            assert {*cases} & {*REFUSED_UNCHAINED} == {*cases} - {*frames}
            if not frames:
                return
        for _, table, _ in run_query(tag(frames), folder, 600):
            for name, rows in split(table, cases).items():
                emitted[name].append(rows)
    expected = replay_together({name: case for name, case in cases.items() if case.has_replay})
    for name, found in emitted.items():
        assert any(found), f"{name} emitted nothing"
        if name in expected:
            assert found == expected[name], name
        else:  # rows pass through: the stream has the rows of a batch
            frame = through(cases[name], batch_frames(spark, cases[name]), name)
            assert sorted(row for rows in found for row in rows) == as_rows(
                frame.toArrow().to_pylist()
            ), name


def inputs(spark: SparkSession, case: Case, folder: Path, run: Iterable[int]) -> list[DataFrame]:
    """The streams of these micro-batches, which follow those that the folder has."""
    batches = [case.tables(number) for number in run]
    return [
        micro_batches(
            spark,
            [batch[side] for batch in batches],
            schema=schema,
            directory=folder / str(side),
            source="files",
        )
        for side, schema in enumerate(case.schemas)
    ]


def check_batch(spark: SparkSession, cases: dict[str, Case]) -> None:
    """Run all cases as one batch, and compare them with the results over all rows."""
    frames = {name: through(case, batch_frames(spark, case), name) for name, case in cases.items()}
    found = split(tag(frames).toArrow(), cases)
    for name, case in cases.items():
        assert found[name] == at_once(case), name


def through(case: Case, frames: list[DataFrame], name: str, *, shards: int = 2) -> DataFrame:
    """The result of the operator, with metrics of its own name."""
    result = frames[0]
    for number, operator in enumerate(case.chain):
        if isinstance(operator, Operator):
            operator = operator.options(name=f"{name}_{number}")
            if operator.core is not None:
                operator = operator.options(shards=shards)
            if len(frames) > 1:
                operator = replace(operator, right=frames[1])
        result = result.transform(operator)
    return result


def batch_frames(spark: SparkSession, case: Case) -> list[DataFrame]:
    tables = [case.tables(number) for number in range(4)]
    return [
        create_frame(spark, pa.concat_tables(batch[side] for batch in tables), spark_schema(schema))
        for side, schema in enumerate(case.schemas)
    ]


def tag(frames: dict[str, DataFrame]) -> DataFrame:
    """One frame with the results of all: the name of the operator, and a row as JSON."""
    options = {
        "ignoreNullFields": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx",
        "timeZone": "UTC",
    }
    tagged = [
        frame.select(F.lit(name).alias("operator"), F.to_json(F.struct("*"), options).alias("row"))
        for name, frame in frames.items()
    ]
    return functools.reduce(DataFrame.unionByName, tagged)


def split(table: pa.Table, names: Iterable[str]) -> dict[str, list[str]]:
    """The rows of each operator, in a canonical order."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for row in table.to_pylist():
        found[row["operator"]].append(canonical(json.loads(row["row"])))
    return {name: sorted(rows) for name, rows in found.items()}


def emitted_by(result: BatchResult) -> list[dict[str, Any]]:
    """The rows of a micro-batch as Spark has them: results and late rows in one table."""
    if not result.late.column_names:
        return result.table.to_pylist()
    nothing = dict.fromkeys(result.table.column_names)
    results = [{**row, "late": None} for row in result.table.to_pylist()]
    names = result.late.column_names
    keys = names[: len(names) - 1 - names[::-1].index(_FIRST_DETAIL)]
    rows = result.late.select(keys).to_pylist()
    details = result.late.drop_columns(keys).to_pylist()
    return results + [
        {**nothing, **row, "late": late} for row, late in zip(rows, details, strict=True)
    ]


def as_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in the same form and order."""
    return sorted(canonical(row) for row in json.loads(json.dumps(rows, default=text)))


def canonical(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def text(value: Any) -> str:
    """A timestamp or an interval, as Spark writes it into JSON."""
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds")
    assert isinstance(value, dt.timedelta)
    assert dt.timedelta(0) <= value < dt.timedelta(hours=1)
    return f"INTERVAL '0 0{value}' DAY TO SECOND"


def replay_together(
    cases: dict[str, Case],
    runs: Sequence[Sequence[int]] = ((0, 1), (2, 3)),
    look: Callable[[str, Replay], None] = lambda name, query: None,
) -> dict[str, list[list[str]]]:
    """Results of each micro-batch of a query that has all operators, and so one watermark.

    The query restarts before each run. Each operator can be looked at before each micro-batch.
    """
    queries = {
        name: Replay(
            case.operator, case.schemas if len(case.schemas) > 1 else case.schemas[0], shards=2
        )
        for name, case in cases.items()
    }
    has_time = {
        name: query
        for name, query in queries.items()
        if any(s.has_event_time or s.clock is not None for s in query._stages)
    }
    results: dict[str, list[list[str]]] = {name: [] for name in cases}
    watermark = 0

    def step(number: int | None) -> int:
        for name, query in queries.items():
            query._next = watermark
            look(name, query)
            tables = None if number is None else cases[name].tables(number)
            results[name].append(as_rows(emitted_by(query._step(tables))))
        return max(watermark, min((query._next for query in has_time.values()), default=0))

    for run in runs:
        for query in queries.values():
            for stage in query._stages:
                stage.reset_watermarks()
        before = watermark
        for number in run:
            before, watermark = watermark, step(number)
        if watermark > before:
            watermark = step(None)
    return results


def at_once(case: Case) -> list[str]:
    """The result over all rows at once, in which nothing is late."""
    tables = [case.tables(number) for number in range(4)]
    whole: Any = tuple(
        pa.concat_tables(batch[side] for batch in tables) for side in range(len(case.schemas))
    )
    single = len(case.schemas) == 1
    results = replay(
        case.operator,
        [whole[0] if single else whole],
        schema=case.schemas[0] if single else case.schemas,
        shards=2,
        flush=True,
    )
    return as_rows([row for result in results for row in emitted_by(result)])
