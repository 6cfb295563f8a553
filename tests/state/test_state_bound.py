"""State, memory and open files do not grow with the stream: hundreds of micro-batches of keys that come and go.

Windows have tests of their own, in ``tests/windows``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins, patterns, search, sketches, time, windows
from streamops.kernel.core import State
from streamops.spark.operator import Operator
from tests.process.functions import bursts
from tests.process.silences import silences
from tests.resources import Resources
from tests.sourcing.seats import COMMAND, seats

pytestmark = pytest.mark.laws

ROWS, LIFE, PACE = 20, 20, 10_000_000  # ten seconds of events in each micro-batch
NOW = 1_700_000_000_000_000
DELAY = 5_000_000
TS = pa.timestamp("us", tz="UTC")
EVENT = pa.schema([("k", pa.int64()), ("ts", TS), ("v", pa.int64())])
VERSION = pa.schema([("k", pa.int64()), ("since", TS), ("seq", pa.int64()), ("w", pa.int64())])
DEVICE = pa.schema([("k", pa.int64()), ("ts", TS), ("sent", TS), ("received", TS)])
BEAT = pa.schema([("device", pa.string()), ("ts", TS)])
Rows = dict[str, Any]


def instants(batch: int, rng: np.random.Generator) -> Any:
    """Times of ten seconds; a tenth is up to two minutes late."""
    late = np.where(rng.random(ROWS) < 0.1, rng.integers(0, 120_000_000, ROWS), 0)
    return NOW + batch * PACE + rng.integers(0, PACE, ROWS) - late


def keys(batch: int, rng: np.random.Generator) -> Any:
    """Keys that live for twenty micro-batches."""
    return batch // LIFE * 40 + rng.integers(0, 40, ROWS)


def events(batch: int, rng: np.random.Generator) -> Rows:
    return {"k": keys(batch, rng), "ts": instants(batch, rng), "v": rng.integers(0, 9, ROWS)}


def versions(batch: int, rng: np.random.Generator) -> Rows:
    of = {"k": keys(batch, rng), "since": instants(batch, rng), "w": rng.integers(0, 9, ROWS)}
    return of | {"seq": batch * ROWS + np.arange(ROWS)}


def devices(batch: int, rng: np.random.Generator) -> Rows:
    sent = np.sort(NOW + batch * PACE + rng.integers(0, PACE, ROWS))
    of = {"k": keys(batch, rng), "ts": sent - rng.integers(0, 1_000, ROWS), "sent": sent}
    return of | {"received": sent + rng.integers(0, 1_000_000, ROWS)}


def beats(batch: int, rng: np.random.Generator) -> Rows:
    """Rows of devices, of which the operator remembers all."""
    names = np.array([f"device {number}" for number in rng.integers(0, 40, ROWS)])
    return {"device": names, "ts": instants(batch, rng)}


def commands(batch: int, rng: np.random.Generator) -> Rows:
    """Commands of entities, which live for ever."""
    return {
        "k": np.array([f"seat {number}" for number in rng.integers(0, 40, ROWS)]),
        "ts": instants(batch, rng),
        "id": 1_000_000 + batch * ROWS + np.arange(ROWS),  # of equal length
        "user": rng.choice(["x", "y"], ROWS),
        "seen": pa.nulls(ROWS, pa.int64()),
    }


def table_changes(key: str) -> Callable[[int, np.random.Generator], Rows]:
    """Rows of a table that are inserted, updated once, and deleted after twenty micro-batches."""

    def rows(batch: int, rng: np.random.Generator) -> Rows:
        del rng  # a table is the same in each history
        steps = [(batch, "insert", 0)]
        if batch >= LIFE // 2:
            born = batch - LIFE // 2
            steps += [(born, "update_preimage", 0), (born, "update_postimage", 1)]
        if batch >= LIFE:
            steps.append((batch - LIFE, "delete", 1))
        born, types, values = (np.repeat(part, ROWS) for part in zip(*steps, strict=True))
        number = born.astype(np.int64) * ROWS + np.tile(np.arange(ROWS), len(steps))
        return {
            key: number,
            "k": number // 3,
            "v": values.astype(np.int64),
            "lsn": batch * 1_000 + np.arange(len(number)),
            "_change_type": types.astype(str),
        }

    return rows


def stored_queries(batch: int, rng: np.random.Generator) -> Rows:
    """The same changes as queries."""
    rows = table_changes("rid")(batch, rng)
    return rows | {"query": np.array([f"v:{key % 9}" for key in rows["k"].tolist()])}


def query_versions(batch: int, rng: np.random.Generator) -> Rows:
    """The same changes, in effect at the end of their micro-batch."""
    rows = stored_queries(batch, rng)
    return rows | {"since": np.full(len(rows["rid"]), NOW + (batch + 1) * PACE)}


def change_schema(*names: str) -> pa.Schema:
    types = {"_change_type": pa.string()}
    return pa.schema([(name, types.get(name, pa.int64())) for name in names])


@dataclass(frozen=True)
class Bounded:
    """An operator, and for each of its inputs the columns and the function that makes the rows."""

    operator: Operator
    inputs: tuple[tuple[pa.Schema, Callable[[int, np.random.Generator], Rows]], ...]
    least: int = 20


LEFT = (change_schema("_change_type", "id", "k", "v", "lsn"), table_changes("id"))
RIGHT = (change_schema("_change_type", "rid", "k", "lsn"), table_changes("rid"))
# Without `sequence` a delete must have the values of its insert, and so no position in the log.
LEFT_AS_IS = (change_schema("_change_type", "id", "k", "v"), table_changes("id"))
RIGHT_AS_IS = (change_schema("_change_type", "rid", "k"), table_changes("rid"))
QUERY = pa.schema([*RIGHT[0], pa.field("query", pa.string())])
QUERY_VERSION = pa.schema([*QUERY, pa.field("since", TS)])
PAIR = ((EVENT, events), (VERSION, versions))
INTERVAL: dict[str, Any] = {"by": "k", "time": ("ts", "since"), "delay": "5 seconds"}
ASOF: dict[str, Any] = {"by": "k", "time": "ts", "version": "since", "sequence": "seq"}
ASOF |= {"delay": "5 seconds", "tolerance": "30 seconds"}
CHANGED: dict[str, Any] = {"sequence": "lsn", "horizon": 20_000}
REMEMBER: dict[str, Any] = {"sequence": "lsn", "remember": 200}
COUNT: dict[str, Any] = {"n": agg.count(), "most": agg.max("v")}

CASES: dict[str, Bounded] = {
    "interval inner": Bounded(
        joins.interval(None, "-5 seconds", "20 seconds", how="inner", **INTERVAL), PAIR
    ),
    "interval full, retract": Bounded(
        joins.interval(
            None,
            "-5 seconds",
            "20 seconds",
            how="full",
            stragglers="retract",
            allowed_lateness="1 minute",
            **INTERVAL,
        ),
        PAIR,
    ),
    **{
        f"asof {direction}": Bounded(joins.asof(None, direction=direction, **ASOF), PAIR)
        for direction in ("backward", "forward", "nearest")
    },
    "asof retract": Bounded(
        joins.asof(None, late_versions="retract", allowed_lateness="1 minute", **ASOF), PAIR
    ),
    "enrich": Bounded(joins.enrich(None, by={"k": "rid"}, **CHANGED), ((EVENT, events), RIGHT)),
    "search": Bounded(
        search.match(None, fields="v", id="rid", query="query", max_keys=100_000, **CHANGED),
        ((EVENT, events), (QUERY, stored_queries)),
    ),
    "search, as of": Bounded(
        search.match(
            None,
            fields="v",
            id="rid",
            query="query",
            as_of="ts",
            time="since",
            sequence="lsn",
            horizon="5 minutes",
            delay="5 seconds",
            max_keys=100_000,
        ),
        ((EVENT, events), (QUERY_VERSION, query_versions)),
    ),
    "tables": Bounded(joins.tables(None, by="k", how="full"), (LEFT_AS_IS, RIGHT_AS_IS)),
    "tables, remembered deletes": Bounded(
        joins.tables(None, by="k", how="left", key=("id", "rid"), **REMEMBER), (LEFT, RIGHT)
    ),
    "timeline": Bounded(
        joins.timeline(None, by="k", user="rid", key="id", ranked_by="v", cap=2),
        (LEFT_AS_IS, RIGHT_AS_IS),
    ),
    "normalize": Bounded(changes.normalize("id", **CHANGED), (LEFT,)),
    "apply": Bounded(changes.apply("id", **CHANGED), (LEFT,)),
    "history": Bounded(changes.apply("id", history="intervals", **CHANGED), (LEFT,)),
    "aggregate": Bounded(changes.aggregate(by="k", agg=COUNT), (LEFT,)),
    "seen": Bounded(
        sketches.seen("k", capacity=2_000, time="ts", horizon="10 minutes"), ((EVENT, events),), 1
    ),
    "per key": Bounded(bursts(), ((EVENT, events),)),
    "per shard": Bounded(
        silences(dt.timedelta(minutes=1), by="device", time="ts", delay=dt.timedelta(seconds=5)),
        ((BEAT, beats),),
    ),
    "decide": Bounded(seats(delay="5 seconds", max_ids=50), ((COMMAND, commands),)),
    "running": Bounded(
        windows.running(by="k", agg=COUNT, max_keys=100, when_full="reject_new"),
        ((EVENT, events),),
    ),
    "patterns": Bounded(
        patterns.match(
            "low ... high",
            define={"low": patterns.previous("v") > "v", "high": patterns.previous("v") < "v"},
            time="ts",
            by="k",
            within="30 seconds",
            delay="5 seconds",
        ),
        ((EVENT, events),),
    ),
    "patterns, first": Bounded(
        patterns.match(
            "high",
            define={"high": patterns.previous("v") < "v"},
            time="ts",
            by="k",
            within="30 seconds",
            delay="5 seconds",
            matches="first",
            horizon="1 minute",
        ),
        ((EVENT, events),),
    ),
    "track_clock": Bounded(
        time.track_clock("ts", by="k", sent="sent", received="received", horizon="5 minutes"),
        ((DEVICE, devices),),
    ),
    "producers": Bounded(
        time.producers("k", time="ts", delay="10 seconds", idle="1 minute", arrival="received"),
        ((DEVICE, devices),),
        10,
    ),
}

_PRODUCERS = {"producer": "k", "time": "ts", "arrival": "received"}
"""The core of ``time.producers`` has names of its own for its columns."""


@pytest.mark.parametrize("batches", [240, pytest.param(1_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", CASES)
def test_state_is_as_large_in_the_last_quarter_as_in_the_second(name: str, batches: int) -> None:
    case = CASES[name]
    schemas = tuple(schema for schema, _ in case.inputs)
    operator = case.operator
    core = operator.core
    carried = (None,) * len(schemas)
    spec = operator.parameters.resolve(schemas, carried=carried, shards=1)
    rng, state = np.random.default_rng(7), State.empty(core.layout(spec))
    sizes, widths, resources = [], [], Resources()
    for number in range(batches):
        packs = [
            core.pack(spec, table(schema, make(number, rng), spec.inputs[side].schema), name)
            for side, ((schema, make), name) in enumerate(
                zip(case.inputs, ("left", "right"), strict=False)
            )
        ]
        has_time = any(input_.time is not None for input_ in spec.inputs)
        watermark = NOW + number * PACE - DELAY if has_time else None
        state = core.step(spec, state, packs, watermark).state
        sizes.append(state.rows)
        widths.append(sum(part.nbytes for part in state.tables.values()))
        resources.measure()
    quarter = batches // 4
    for measured, least in ((sizes, case.least), (widths, 0)):
        second, last = max(measured[quarter : 2 * quarter]), max(measured[3 * quarter :])
        assert second >= least, "the state is too small to show anything"
        assert last <= 1.1 * second, f"{second} in the second quarter, {last} in the last"
    resources.check()


def table(schema: pa.Schema, rows: Rows, wanted: pa.Schema) -> pa.Table:
    """The rows as a table with the columns that the operator reads."""
    arrays = [pa.array(rows[field.name]).cast(field.type) for field in schema]
    made = pa.table(arrays, schema=schema)
    return pa.table([made.column(_PRODUCERS.get(n, n)) for n in wanted.names], names=wanted.names)
