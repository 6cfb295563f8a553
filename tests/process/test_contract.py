"""What functions per key and operators of one's own promise to the driver."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from streamops import process
from streamops.errors import FunctionError
from streamops.kernel.core import State
from streamops.process.core.per_key import PerKeyCore
from streamops.process.core.values import to_rows
from streamops.testing import at, replay
from tests.process.functions import sums
from tests.process.silences import Silences, silences

TS = pa.timestamp("us", tz="UTC")
EVENT = pa.schema([("k", pa.string()), ("ts", TS), ("v", pa.int64())])
TIMED: dict[str, Any] = {"time": "ts", "delay": "10 seconds"}


def resolved(operator: Any, schema: pa.Schema = EVENT) -> Any:
    return operator.parameters.resolve((schema,), carried=(None,), shards=1)


def event(k: str, second: float, v: int | None = 1) -> dict[str, Any]:
    return {"k": k, "ts": at(second), "v": v}


# -- functions per key


def test_a_function_compares_its_keys_and_the_columns_of_the_order() -> None:
    timed, on_arrival = sums(order_by="v", **TIMED).parameters, sums().parameters
    assert timed.reads == (("k", "v"),)
    assert timed.origins == {"k": (0, "k"), "ts": (0, "ts")}
    assert on_arrival.origins == {"k": (0, "k")}


def test_at_the_end_of_a_stream_nothing_is_pending_without_an_event_time() -> None:
    spec = resolved(sums())
    assert (
        PerKeyCore()
        .finish(spec, State.empty(PerKeyCore().layout(spec)))
        .equals(spec.output.empty_table())
    )


def test_rows_without_a_usable_time_are_counted_without_a_side_output() -> None:
    (result, *_) = replay(sums(stragglers="drop", **TIMED), [[event("a", 1), {"k": "a", "v": 1}]])
    assert result.counts is not None
    assert (result.counts.rows, result.counts.rejected) == (2, 1)
    assert result.late_rows == []


def test_garbage_collection_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        replay(sums(), [[event("a", 1)]])
        assert not gc.isenabled()
    finally:
        gc.enable()
    replay(sums(), [[event("a", 1)]])
    assert gc.isenabled()


def test_rows_of_different_lengths_are_an_error() -> None:
    def uneven(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for row in rows:
            yield (row.v,) * row.v

    operator = process.per_key(uneven, by="k", output="n int")
    with pytest.raises(FunctionError, match="rows of 1 or 2 values"):
        replay(operator, [[event("a", 1, 1), event("a", 2, 2)]])


def test_rows_without_columns_are_rows() -> None:
    assert to_rows(pa.table({"v": [1, 2]}).select([])) == [(), ()]


def test_a_timer_without_key_columns_fails_into_the_side_output() -> None:
    def plan(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
        for row in rows:
            timers.set(row.ts + dt.timedelta(seconds=1))
            yield (row.v,)

    def fail(key: Any, time: Any, state: Any, timers: Any) -> Iterator[Any]:
        yield (0,)
        raise ValueError("no")

    operator = process.per_key(
        plan, on_timer=fail, by=(), output="n int", errors="route", time="ts", delay="0 seconds"
    )
    results = replay(operator, [[event("a", 1)], [event("b", 50)], []])
    late = [row for result in results for row in result.late_rows]
    assert [(row["ts"], row["reason"], row["row"]) for row in late] == [
        (at(2), "ValueError: no", None)
    ]


def test_a_function_that_reads_too_little_fails_the_query_although_errors_are_routed() -> None:
    calls: list[int] = []

    def skip(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("so its rows are processed one by one")
        yield (1,)

    operator = process.per_key(skip, by="k", output="n int", errors="route")
    with pytest.raises(FunctionError, match="FUNCTION_RESULT"):
        replay(operator, [[event("a", 1)]])
    assert len(calls) == 2


# -- operators of one's own


@dataclass(frozen=True, kw_only=True)
class CountSpec(process.ShardSpec):
    """Parameters of an operator without event time."""

    @property
    def output(self) -> pa.Schema:
        return pa.schema([*(self.input.field(name) for name in self.by), ("n", pa.int64())])


class Count(process.Core[Any]):  # type: ignore[misc]
    """Counts the rows of each micro-batch by key, without a state."""

    STATE = process.StateFormat("acme.count", 1)

    def step(self, spec: Any, state: Any, inputs: Any, watermark: Any) -> Any:
        rows = inputs[0].group_by(list(spec.by)).aggregate([([], "count_all")])
        rows = rows.rename_columns(spec.output.names).cast(spec.output)
        return process.Step(State(watermark, {}), rows, spec.output.empty_table())


def test_an_operator_without_event_time_needs_only_a_step() -> None:
    operator = process.per_shard(Count(), CountSpec(operator="acme.count", by=("k",)))
    spec = resolved(operator)
    assert spec.columns == ()
    assert (spec.reads, spec.origins) == ((("k",),), {"k": (0, "k")})
    results = replay(operator, [[event("a", 1), event("a", 2)], [event("a", 3)]], schema=EVENT)
    assert [row["n"] for result in results for row in result.rows] == [2, 1]
    core = Count()
    assert core.next_deadline(spec, State.empty({})) is None
    assert len(core.finish(spec, State.empty({}))) == 0
    batch = core.run(spec, [pa.Table.from_pylist([event("a", 1)] * 3, EVENT).select(["k"])])
    assert batch.rows.to_pylist() == [{"k": "a", "n": 3}]


def test_an_operator_of_ones_own_emits_at_the_end_what_is_pending() -> None:
    spec = resolved(
        silences(dt.timedelta(minutes=5), by="k", time="ts", delay=dt.timedelta(seconds=10))
    )
    core, empty = Silences(), State.empty(Silences().layout(spec))
    assert len(core.finish(spec, empty)) == 0
    beats = [event("a", 1), event("a", 601)]
    rows = core.pack(spec, pa.Table.from_pylist(beats, EVENT), "left")
    assert len(core.finish(spec, core.step(spec, empty, [rows], None).state)) == 1


def test_an_operator_of_ones_own_names_the_columns_whose_values_it_keeps() -> None:
    spec = resolved(
        silences(dt.timedelta(minutes=5), by="k", time="ts", delay=dt.timedelta(seconds=10))
    )
    assert spec.reads == (("k",),)
    assert spec.origins == {"k": (0, "k")}


def test_a_core_without_a_step_is_not_complete() -> None:
    spec = resolved(process.per_shard(Count(), CountSpec(operator="acme.count", by=("k",))))
    empty: process.Core[Any] = process.Core()
    with pytest.raises(NotImplementedError):
        _ = process.ShardSpec(operator="acme.nothing", by=("k",)).output
    assert empty.layout(spec) == {}
    with pytest.raises(NotImplementedError):
        empty.step(spec, State.empty({}), [], None)
