"""Two small operators with two inputs, with and without event time, for tests of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import (
    combine_chunks,
    concat,
    key_codes,
    timestamp_micros,
)
from streamops.kernel.core import SIDES, Input, Metrics, State, StateFormat, Step
from streamops.kernel.groups import Groups
from streamops.kernel.lateness import Arrivals, Lateness, late_field
from streamops.kernel.operator import Core, Table
from streamops.kernel.operator import Spec as BaseSpec
from streamops.kernel.placement import ByKey
from streamops.kernel.time import MIN_INSTANT, parse_duration
from streamops.spark.operator import Operator


@dataclass(frozen=True, slots=True)
class Spec(BaseSpec):
    """The resolved parameters of either operator."""

    inputs: tuple[Input, ...]
    output: pa.Schema
    origins: Mapping[str, tuple[int, str]]
    event_time: str | None
    lag: int
    identity: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameters(BaseSpec):
    """The parameters of either operator."""

    by: tuple[str, str]
    time: tuple[str | None, str | None] = ("ts", "at")
    delay: tuple[int | None, int | None] = (None, None)
    lag: int = 0
    word: str = ""

    @property
    def inputs(self) -> tuple[Input, ...]:
        parts = zip(self.by, self.time, self.delay, strict=True)
        return tuple(Input((key,), time, delay=delay) for key, time, delay in parts)

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Spec:
        (left, right), inputs = schemas, []
        for at, schema in enumerate(schemas):
            read = schema if at == 0 else pa.schema([schema.field(n) for n in self._named(at)])
            delay = None if carried[at] is not None else self.delay[at]
            inputs.append(Input((self.by[at],), self.time[at], read, delay))
        has_event_time = self.time != (None, None)
        output = _earlier(left, right) if has_event_time else _tally(left.field(self.by[0]))
        passed = left.names if has_event_time else self.by[:1]
        origins = {name: (0, name) for name in passed}
        identity = {"by": list(self.by), "word": self.word, "lag": self.lag}
        event_time = self.time[0]
        return Spec(tuple(inputs), output, origins, event_time, self.lag, identity)

    def _named(self, at: int) -> list[str]:
        return [name for name in (self.by[at], self.time[at]) if name is not None]


def _earlier(left: pa.Schema, right: pa.Schema) -> pa.Schema:
    late = late_field(left, pa.schema(list(right)[:2]))
    return pa.schema([*left, ("n", pa.int64()), late])


def _tally(key: pa.Field) -> pa.Schema:
    counts = [(name, pa.int64()) for name in ("lefts", "rights", "revision")]
    return pa.schema([key, *counts])


def _key_of(at: int) -> Callable[[Mapping[str, Any]], list[str]]:
    """From the identity to the key column of one side, if it has one."""
    return lambda identity: [name for name in [identity["by"][at]] if name is not None]


class Earlier(Core[Any]):
    """Count, for each left row, the right rows of its key that are not later.

    A left row is emitted once the watermark has passed it. Late rows go to the side output.
    """

    STATE = StateFormat("tests.earlier", 1)
    TABLES: ClassVar = {
        "left": Table(lambda spec: spec.inputs[0].schema, ByKey(key=_key_of(0))),
        "right": Table(lambda spec: spec.inputs[1].schema, ByKey(key=_key_of(1))),
    }

    def step(
        self, spec: Spec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        stored, late, metrics = {}, [spec.output.empty_table()], Metrics()
        for side, rows, of in zip(SIDES, inputs, spec.inputs, strict=True):
            lateness = Lateness.of(rows.column(of.time), state.watermark)
            arrived = Arrivals.classify(spec.output, rows, lateness, side=side)
            arrived = arrived.accept(arrived.lateness.on_time)
            stored[side] = concat([state.tables[side], arrived.rows])
            late.append(arrived.late)
            metrics += arrived.metrics
        times = timestamp_micros(stored["left"].column(spec.inputs[0].time))[0]
        due = times <= (MIN_INSTANT - 1 if watermark is None else watermark)
        output = self._count(spec, stored["left"].filter(pa.array(due)), stored["right"])
        after = {"left": stored["left"].filter(pa.array(~due)), "right": stored["right"]}
        metrics += Metrics(results=len(output))
        return Step(State(watermark, after), output, concat(late), metrics)

    def _count(self, spec: Spec, left: pa.Table, right: pa.Table) -> pa.Table:
        keys = [
            combine_chunks(rows.column(input_.by[0]))
            for rows, input_ in zip((left, right), spec.inputs, strict=True)
        ]
        codes = key_codes([pa.concat_arrays(keys)], len(left) + len(right))
        left_codes, right_codes = codes[: len(left)], codes[len(left) :]
        left_times, right_times = (
            timestamp_micros(rows.column(input_.time))[0]
            for rows, input_ in zip((left, right), spec.inputs, strict=True)
        )
        n = [
            int(((right_codes == code) & (right_times <= time)).sum()) if is_valid else 0
            for code, time, is_valid in zip(
                left_codes, left_times, np.asarray(keys[0].is_valid()), strict=True
            )
        ]
        columns = [*left.columns, pa.array(n, pa.int64())]
        columns.append(pa.nulls(len(left), spec.output.field("late").type))
        return pa.table(columns, schema=spec.output)

    def finish(self, spec: Spec, state: State) -> pa.Table:
        return self._count(spec, state.tables["left"], state.tables["right"])

    def next_deadline(self, spec: Spec, state: State) -> int | None:
        times = timestamp_micros(state.tables["left"].column(spec.inputs[0].time))[0]
        return int(times.min()) if len(times) else None

    def check(self, spec: Spec, state: State) -> None:
        deadline = self.next_deadline(spec, state)
        assert deadline is None or state.watermark is None or deadline > state.watermark, state


class Tally(Core[Any]):
    """Count the rows of each key on both sides, and emit the counts whenever they change."""

    STATE = StateFormat("tests.tally", 1)
    TABLES: ClassVar = {"tally": Table(lambda spec: spec.output, ByKey(key=_key_of(0)))}

    def step(
        self, spec: Spec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        before = state.tables["tally"]
        names = spec.output.names[0], *(input_.by[0] for input_ in spec.inputs)
        tables = before, *inputs
        keys = pa.concat_arrays(
            [combine_chunks(table[name]) for table, name in zip(tables, names, strict=True)]
        )
        groups, firsts = Groups.of(key_codes([keys], len(keys)))
        ids = np.split(groups.ids, np.cumsum([len(table) for table in tables[:-1]]))
        old, lefts, rights = (np.bincount(part, minlength=groups.count) for part in ids)
        exists, changed = old > 0, lefts + rights > 0
        counts = {
            name: np.bincount(ids[0], before.column(name).to_numpy(), groups.count).astype(np.int64)
            for name in ("lefts", "rights", "revision")
        }
        revision = np.where(exists, counts["revision"] + changed, 0)
        columns = [counts["lefts"] + lefts, counts["rights"] + rights, revision]
        after = pa.table([keys.take(pa.array(firsts)), *columns], schema=spec.output)
        metrics = Metrics(
            rows=sum(map(len, inputs)),
            results=int((changed & ~exists).sum()),
            corrections=int((changed & exists).sum()),
        )
        state = State(watermark, {"tally": after})
        return Step(state, after.filter(pa.array(changed)), spec.output.empty_table(), metrics)

    def check(self, spec: Spec, state: State) -> None:
        tally = state.tables["tally"]
        assert pc.all(pc.less_equal(0, tally.column("revision"))).as_py() in (True, None), tally


EARLIER, TALLY = Earlier(), Tally()


def earlier(
    right: Any = None,
    *,
    by: Any = ("k", "key"),
    time: Any = ("ts", "at"),
    delay: Any = (None, None),
    lag: str = "0 seconds",
    word: str = "",
    **options: Any,
) -> Operator:
    """Count, for each left row, the right rows of its key that are not later."""
    both = delay if isinstance(delay, (tuple, list)) else (delay, delay)
    delays = [None if d is None else parse_duration(d, parameter="delay") for d in both]
    micros = parse_duration(lag, parameter="lag", minimum=0)
    parameters = Parameters(tuple(by), tuple(time), (delays[0], delays[1]), micros, word)
    return _operator("joins.earlier", parameters, EARLIER, right, options)


def tally(right: Any = None, *, by: Any = ("k", "key"), word: str = "", **options: Any) -> Operator:
    """Count the rows of each key on both sides."""
    parameters = Parameters(tuple(by), (None, None), word=word)
    return _operator("joins.tally", parameters, TALLY, right, options)


def _operator(name: str, parameters: Parameters, core: Any, right: Any, options: Any) -> Operator:
    operator = Operator(name, parameters, core, right)
    return operator.options(**{"shards": 2, **options})
