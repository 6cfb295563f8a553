"""Two small operators with two inputs: one with time and one without, to see how they are wired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import (
    combine_chunks,
    concat,
    key_codes,
    null_table,
    take,
    timestamp_micros,
)
from streamops.kernel.core import SIDES, Input, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Groups
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, parse_duration
from streamops.spark.operator import Operator

INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Spec:
    """The resolved parameters of either operator."""

    inputs: tuple[Input, ...]
    output: pa.Schema
    origins: Mapping[str, tuple[int, str]]
    event_time: str | None
    lag: int
    identity: Mapping[str, Any]

    held_back: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of either operator."""

    by: tuple[str, str]
    times: tuple[str | None, str | None] = ("ts", "at")
    delays: tuple[int | None, int | None] = (None, None)
    lag: int = 0
    word: str = ""
    accepts_revisions: tuple[bool, bool] = (False, False)
    needs_preimages: bool = False

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (self.by[0],), (self.by[1],)

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> Spec:
        (left, right), inputs = schemas, []
        for at, schema in enumerate(schemas):
            read = schema if at == 0 else pa.schema([schema.field(n) for n in self._named(at)])
            delay = None if carried[at] is not None else self.delays[at]
            inputs.append(Input((self.by[at],), self.times[at], read, delay))
        has_event_time = self.times != (None, None)
        output = _earlier(left, right) if has_event_time else _tally(left.field(self.by[0]))
        passed = left.names if has_event_time else self.by[:1]
        origins = {name: (0, name) for name in passed}
        identity = {"by": list(self.by), "word": self.word, "lag": self.lag}
        event_time = self.times[0]
        return Spec(tuple(inputs), output, origins, event_time, self.lag, identity)

    def _named(self, at: int) -> list[str]:
        return [name for name in (self.by[at], self.times[at]) if name is not None]


def _earlier(left: pa.Schema, right: pa.Schema) -> pa.Schema:
    late = [("side", pa.string()), ("reason", pa.string()), ("lateness", pa.duration("us"))]
    rows = [("left", pa.struct(list(left))), ("right", pa.struct(list(right)[:2]))]
    told = pa.struct([*late, ("watermark", INSTANT), *rows])
    return pa.schema([*left, ("n", pa.int64()), ("late", told)])


def _tally(key: pa.Field) -> pa.Schema:
    counts = [(name, pa.int64()) for name in ("lefts", "rights", "revision")]
    return pa.schema([key, *counts])


class Earlier:
    """For each left row, once the watermark has passed it: how many right rows of its key are not
    younger. Late rows are delivered as they came.
    """

    STATE = StateFormat("tests.earlier", 1)

    def layout(self, spec: Spec) -> dict[str, pa.Schema]:
        return {side: of.schema for side, of in zip(SIDES, spec.inputs, strict=True)}

    def pack(self, spec: Spec, rows: pa.Table, side: SideName) -> pa.Table:
        return rows

    def empty(self, spec: Spec) -> State:
        return State(None, {name: kind.empty_table() for name, kind in self.layout(spec).items()})

    def step(
        self, spec: Spec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        left, right = inputs
        kept, late, counts = {}, [spec.output.empty_table()], Metrics()
        for name, rows in (("left", left), ("right", right)):
            good, refused, counted = self._judged(spec, state.watermark, name, rows)
            kept[name] = concat([state.tables[name], good])
            late.append(refused)
            counts += counted
        times = timestamp_micros(kept["left"].column(spec.inputs[0].time))[0]
        due = times <= (MIN_INSTANT - 1 if watermark is None else watermark)
        emitted = self._answered(spec, kept["left"].filter(pa.array(due)), kept["right"])
        after = {"left": kept["left"].filter(pa.array(~due)), "right": kept["right"]}
        counts += Metrics(results=len(emitted))
        return Step(State(watermark, after), emitted, concat(late), counts)

    def _judged(
        self, spec: Spec, mark: int | None, name: str, rows: pa.Table
    ) -> tuple[pa.Table, pa.Table, Metrics]:
        side = spec.inputs[SIDES.index(name)]
        times, valid = timestamp_micros(rows.column(side.time))
        bad = ~valid | (times < MIN_INSTANT) | (times > MAX_INSTANT)
        late = ~bad & (times <= (MIN_INSTANT - 1 if mark is None else mark))
        fine = rows.filter(pa.array(~bad & ~late))
        counts = Metrics(len(rows), int(bad.sum()), len(fine), 0, int(late.sum()))
        where = np.flatnonzero(bad | late)
        refused = take(rows, where)
        behind = pa.array(np.where(bad, 0, (mark or 0) - times)[where], mask=bad[where])
        kind = spec.output.field("late").type
        told: dict[str, pa.Array] = {
            "side": pa.array([name] * len(where), pa.string()),
            "reason": pa.array(np.where(bad[where], "null time", "too late"), pa.string()),
            "lateness": behind.cast(pa.duration("us")),
            "watermark": pa.array([mark] * len(where), pa.int64()).cast(INSTANT),
        }
        for each in ("left", "right"):
            of = kind.field(each).type
            columns = [combine_chunks(refused.column(f.name)) for f in of] if each == name else []
            told[each] = (
                pa.StructArray.from_arrays(columns, fields=list(of))
                if columns
                else pa.nulls(len(where), of)
            )
        struct = pa.StructArray.from_arrays([told[f.name] for f in kind], fields=list(kind))
        whole = null_table(spec.output, len(where))
        at = spec.output.get_field_index("late")
        return fine, whole.set_column(at, spec.output.field(at), struct), counts

    def _answered(self, spec: Spec, left: pa.Table, right: pa.Table) -> pa.Table:
        mine, theirs = (
            combine_chunks(left.column(spec.inputs[0].by[0])),
            combine_chunks(right.column(spec.inputs[1].by[0])),
        )
        codes = key_codes([pa.concat_arrays([mine, theirs])], len(left) + len(right))
        keys, others = codes[: len(left)], codes[len(left) :]
        times = timestamp_micros(left.column(spec.inputs[0].time))[0]
        seen = timestamp_micros(right.column(spec.inputs[1].time))[0]
        known = np.asarray(mine.is_valid())
        n = [
            int(((others == key) & (seen <= time)).sum()) if there else 0
            for key, time, there in zip(keys, times, known, strict=True)
        ]
        columns = [*left.columns, pa.array(n, pa.int64())]
        columns.append(pa.nulls(len(left), spec.output.field("late").type))
        return pa.table(columns, schema=spec.output)

    def finish(self, spec: Spec, state: State) -> pa.Table:
        return self._answered(spec, state.tables["left"], state.tables["right"])

    def run(self, spec: Spec, inputs: Sequence[pa.Table]) -> pa.Table:
        step = self.step(spec, self.empty(spec), inputs, None)
        return concat([self.finish(spec, step.state), step.late])

    def next_deadline(self, spec: Spec, state: State) -> int | None:
        times = timestamp_micros(state.tables["left"].column(spec.inputs[0].time))[0]
        return int(times.min()) if len(times) else None

    def check(self, spec: Spec, state: State) -> None:
        deadline = self.next_deadline(spec, state)
        assert deadline is None or state.watermark is None or deadline > state.watermark, state


class Tally:
    """How many rows of each key both sides have had, whenever it is more."""

    STATE = StateFormat("tests.tally", 1)

    def layout(self, spec: Spec) -> dict[str, pa.Schema]:
        return {"tally": spec.output}

    def pack(self, spec: Spec, rows: pa.Table, side: SideName) -> pa.Table:
        return rows

    def empty(self, spec: Spec) -> State:
        return State(None, {"tally": spec.output.empty_table()})

    def step(
        self, spec: Spec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        left, right = inputs
        before = state.tables["tally"]
        name = spec.output.names[0]
        keys = [
            before.column(name),
            left.column(spec.inputs[0].by[0]),
            right.column(spec.inputs[1].by[0]),
        ]
        whole = pa.concat_arrays([combine_chunks(key) for key in keys])
        groups, firsts = Groups.of(key_codes([whole], len(whole)))
        parts = np.split(groups.ids, np.cumsum([len(before), len(left)]))
        size = {"minlength": groups.count}
        came = [np.bincount(part, **size) for part in parts[1:]]
        was = {
            each: np.bincount(parts[0], before.column(each).to_numpy(), **size).astype(np.int64)
            for each in ("lefts", "rights", "revision")
        }
        known = np.bincount(parts[0], **size) > 0
        touched = came[0] + came[1] > 0
        revision = np.where(known, was["revision"] + touched, 0)
        columns = [was["lefts"] + came[0], was["rights"] + came[1], revision]
        after = pa.table([whole.take(pa.array(firsts)), *columns], schema=spec.output)
        counts = Metrics(
            rows=len(left) + len(right),
            results=int((touched & ~known).sum()),
            corrections=int((touched & known).sum()),
        )
        state = State(watermark, {"tally": after})
        return Step(state, after.filter(pa.array(touched)), spec.output.empty_table(), counts)

    def finish(self, spec: Spec, state: State) -> pa.Table:
        return spec.output.empty_table()

    def run(self, spec: Spec, inputs: Sequence[pa.Table]) -> pa.Table:
        return self.step(spec, self.empty(spec), inputs, None).output

    def next_deadline(self, spec: Spec, state: State) -> int | None:
        return None

    def check(self, spec: Spec, state: State) -> None:
        tally = state.tables["tally"]
        assert pc.all(pc.less_equal(0, tally.column("revision"))).as_py() in (True, None), tally


EARLIER, TALLY = Earlier(), Tally()


def nothing_native(left: Any, right: Any, spec: Any, insists: bool) -> None:
    """Spark has none of these."""


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
    """How many right rows are not younger than a left one."""
    both = delay if isinstance(delay, (tuple, list)) else (delay, delay)
    delays = [None if d is None else parse_duration(d, parameter="delay", where="x") for d in both]
    micros = parse_duration(lag, parameter="lag", where="x", minimum=0)
    parameters = Parameters(tuple(by), tuple(time), (delays[0], delays[1]), micros, word)
    return _operator("joins.earlier", parameters, EARLIER, right, options)


def tally(right: Any = None, *, by: Any = ("k", "key"), word: str = "", **options: Any) -> Operator:
    """How many rows of each key both sides have had."""
    parameters = Parameters(tuple(by), (None, None), word=word)
    return _operator("joins.tally", parameters, TALLY, right, options)


def _operator(name: str, parameters: Parameters, core: Any, right: Any, options: Any) -> Operator:
    operator = Operator(name, parameters, core, right, nothing_native)
    return operator.options(**{"shards": 2, **options})
