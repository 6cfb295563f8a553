"""Two small operators with two inputs: one with time and one without, to see how they are wired."""

from __future__ import annotations

from collections.abc import Mapping
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
from streamops.kernel.contract import Counts, State, StateFormat, Step
from streamops.kernel.groups import Groups
from streamops.kernel.pairs import Side, SideName
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, parse_duration
from streamops.spark.pairs import PairTransform
from streamops.spark.transform import Options

INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Spec:
    """Bound settings of either operator."""

    left: Side
    right: Side
    output: pa.Schema
    origins: Mapping[str, tuple[SideName, str]]
    event_time: str | None
    lag: int
    identity: Mapping[str, Any]

    held_back: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user would say."""

    by: tuple[str, str]
    times: tuple[str | None, str | None] = ("ts", "at")
    delays: tuple[int | None, int | None] = (None, None)
    lag: int = 0
    word: str = ""
    of_results: tuple[bool, bool] = (False, False)
    needs_preimages: bool = False

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (self.by[0],), (self.by[1],)

    def bind(
        self, left: pa.Schema, right: pa.Schema, *, carried: tuple[int | None, int | None]
    ) -> Spec:
        schemas, sides = (left, right), []
        for at, schema in enumerate(schemas):
            read = schema if at == 0 else pa.schema([schema.field(n) for n in self._named(at)])
            delay = None if carried[at] is not None else self.delays[at]
            sides.append(Side((self.by[at],), self.times[at], read, delay))
        timed = self.times != (None, None)
        made = _earlier(left, right) if timed else _tally(left.field(self.by[0]))
        passed = left.names if timed else self.by[:1]
        origins = {name: ("left", name) for name in passed}
        identity = {"by": list(self.by), "word": self.word, "lag": self.lag}
        event_time = self.times[0]
        return Spec(sides[0], sides[1], made, origins, event_time, self.lag, identity)

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
        return {"left": spec.left.input, "right": spec.right.input}

    def pack(self, spec: Spec, side: SideName, rows: pa.Table) -> pa.Table:
        return rows

    def empty(self, spec: Spec) -> State:
        return State(None, {name: kind.empty_table() for name, kind in self.layout(spec).items()})

    def step(
        self, spec: Spec, state: State, left: pa.Table, right: pa.Table, watermark: int | None
    ) -> Step:
        kept, late, counts = {}, [spec.output.empty_table()], Counts()
        for name, rows in (("left", left), ("right", right)):
            good, refused, counted = self._judged(spec, state.watermark, name, rows)
            kept[name] = concat([state.tables[name], good])
            late.append(refused)
            counts += counted
        times = timestamp_micros(kept["left"].column(spec.left.time))[0]
        due = times <= (MIN_INSTANT - 1 if watermark is None else watermark)
        emitted = self._answered(spec, kept["left"].filter(pa.array(due)), kept["right"])
        after = {"left": kept["left"].filter(pa.array(~due)), "right": kept["right"]}
        counts += Counts(results=len(emitted))
        return Step(State(watermark, after), emitted, concat(late), counts)

    def _judged(
        self, spec: Spec, mark: int | None, name: str, rows: pa.Table
    ) -> tuple[pa.Table, pa.Table, Counts]:
        side = spec.left if name == "left" else spec.right
        times, valid = timestamp_micros(rows.column(side.time))
        bad = ~valid | (times < MIN_INSTANT) | (times > MAX_INSTANT)
        late = ~bad & (times <= (MIN_INSTANT - 1 if mark is None else mark))
        fine = rows.filter(pa.array(~bad & ~late))
        counts = Counts(len(rows), int(bad.sum()), len(fine), 0, int(late.sum()))
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
            combine_chunks(left.column(spec.left.by[0])),
            combine_chunks(right.column(spec.right.by[0])),
        )
        codes = key_codes([pa.concat_arrays([mine, theirs])], len(left) + len(right))
        keys, others = codes[: len(left)], codes[len(left) :]
        times = timestamp_micros(left.column(spec.left.time))[0]
        seen = timestamp_micros(right.column(spec.right.time))[0]
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

    def run(self, spec: Spec, left: pa.Table, right: pa.Table) -> pa.Table:
        step = self.step(spec, self.empty(spec), left, right, None)
        return concat([self.finish(spec, step.state), step.late])

    def next_deadline(self, spec: Spec, state: State) -> int | None:
        times = timestamp_micros(state.tables["left"].column(spec.left.time))[0]
        return int(times.min()) if len(times) else None

    def check(self, spec: Spec, state: State) -> None:
        deadline = self.next_deadline(spec, state)
        assert deadline is None or state.watermark is None or deadline > state.watermark, state


class Tally:
    """How many rows of each key both sides have had, whenever it is more."""

    STATE = StateFormat("tests.tally", 1)

    def layout(self, spec: Spec) -> dict[str, pa.Schema]:
        return {"tally": spec.output}

    def pack(self, spec: Spec, side: SideName, rows: pa.Table) -> pa.Table:
        return rows

    def empty(self, spec: Spec) -> State:
        return State(None, {"tally": spec.output.empty_table()})

    def step(
        self, spec: Spec, state: State, left: pa.Table, right: pa.Table, watermark: int | None
    ) -> Step:
        before = state.tables["tally"]
        name = spec.output.names[0]
        keys = [before.column(name), left.column(spec.left.by[0]), right.column(spec.right.by[0])]
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
        counts = Counts(
            rows=len(left) + len(right),
            results=int((touched & ~known).sum()),
            corrections=int((touched & known).sum()),
        )
        state = State(watermark, {"tally": after})
        return Step(state, after.filter(pa.array(touched)), spec.output.empty_table(), counts)

    def finish(self, spec: Spec, state: State) -> pa.Table:
        return spec.output.empty_table()

    def run(self, spec: Spec, left: pa.Table, right: pa.Table) -> pa.Table:
        return self.step(spec, self.empty(spec), left, right, None).emitted

    def next_deadline(self, spec: Spec, state: State) -> int | None:
        return None

    def check(self, spec: Spec, state: State) -> None:
        tally = state.tables["tally"]
        assert pc.all(pc.less_equal(0, tally.column("revision"))).as_py() in (True, None), tally


EARLIER, TALLY = Earlier(), Tally()


def nothing_native(left: Any, right: Any, spec: Any, insists: bool) -> None:
    """Spark has none of these."""


def _options(**said: Any) -> Options:
    known = {"engine": "auto", "state_api": "auto", "shards": 2} | said
    return Options(**known)


def earlier(
    right: Any = None,
    *,
    by: Any = ("k", "key"),
    time: Any = ("ts", "at"),
    delay: Any = (None, None),
    lag: str = "0 seconds",
    word: str = "",
    **options: Any,
) -> PairTransform:
    """How many right rows are not younger than a left one."""
    both = delay if isinstance(delay, (tuple, list)) else (delay, delay)
    delays = [None if d is None else parse_duration(d, parameter="delay", where="x") for d in both]
    micros = parse_duration(lag, parameter="lag", where="x", minimum=0)
    settings = Settings(tuple(by), tuple(time), (delays[0], delays[1]), micros, word)
    named = _options(**{"name": "earlier", **options})
    return PairTransform("joins.earlier", settings, named, EARLIER, right, nothing_native)


def tally(
    right: Any = None, *, by: Any = ("k", "key"), word: str = "", **options: Any
) -> PairTransform:
    """How many rows of each key both sides have had."""
    settings = Settings(tuple(by), (None, None), word=word)
    named = _options(**{"name": "tally", **options})
    return PairTransform("joins.tally", settings, named, TALLY, right, nothing_native)
