# mypy: ignore-errors
"""Adapters for operators that are still written against the older contracts."""
# ruff: noqa: D102

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from streamops.kernel.clocks import ClockMetrics
from streamops.kernel.contract import Counts
from streamops.kernel.core import Input, Step
from streamops.spark.checks import METRICS, STATE_API
from streamops.spark.clocks import define_watermark, refuse_watermark
from streamops.spark.metadata import add_metadata
from streamops.spark.operator import Operator, Options, show_fields
from streamops.spark.results import restore
from streamops.spark.rowwise import refuse_taken

RUNNING_METRICS = {
    "rows": "rows",
    "ignored": "rejected",
    "results": "results",
    "corrections": "corrections",
}
TEXT = ("held_by", "led_by")
CLOCK_OUTPUT = pa.schema(
    [(f.name, pa.string() if f.name in TEXT else pa.int64()) for f in fields(ClockMetrics)]
)


class LegacySpec:
    """A spec with ``inputs``."""

    def __init__(self, raw: Any, timed: bool, clock: bool = False) -> None:
        self.raw, self.timed, self.clock = raw, timed, clock

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "raw":
            raise AttributeError(name)
        return getattr(self.raw, name)

    @property
    def inputs(self) -> tuple[Input, ...]:
        raw = self.raw
        if hasattr(raw, "left"):
            return tuple(Input(s.by, s.time, s.input, s.delay) for s in (raw.left, raw.right))
        if self.clock:
            return (Input((), None, raw.input),)
        time, delay = (raw.time, raw.delay) if self.timed else (None, None)
        return (Input(raw.by, time, raw.input, delay, getattr(raw, "replicate", None)),)

    @property
    def output(self) -> pa.Schema:
        if self.clock:
            return CLOCK_OUTPUT.append(pa.field("state_bytes", pa.int64()))
        return self.raw.output

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        found = getattr(self.raw, "origins", {})
        return {
            name: ((0 if of[0] == "left" else 1, of[1]) if isinstance(of, tuple) else (0, of))
            for name, of in found.items()
        }

    @property
    def event_time(self) -> str | None:
        return getattr(self.raw, "event_time", None)

    @property
    def lag(self) -> int:
        return getattr(self.raw, "lag", 0)

    @property
    def held_back(self) -> int:
        return getattr(self.raw, "held_back", 0)


class LegacyCore:
    """A core of an older contract."""

    def __init__(self, module: Any, form: str, metrics: Mapping[str, str] | None) -> None:
        self.module, self.form, self.STATE = module, form, module.STATE
        self.METRICS = metrics
        self.STEPS_WITHOUT_ROWS = form == "clock"
        self.COUNTS = getattr(module, "COUNTS", Counts)
        for name in ("layout", "begin"):
            if hasattr(module, name):
                setattr(self, name, _unwrapped(getattr(module, name)))
        if form == "annotate" and metrics:
            self.deliver = self._deliver

    def pack(self, spec: Any, *args: Any) -> pa.Table:
        if not isinstance(spec, LegacySpec):
            return self.module.pack(spec, *args)
        rows, side = args
        if self.form == "pair":
            return self.module.pack(spec.raw, side, rows)
        return self.module.pack(spec.raw, rows)

    def empty(self, spec: Any) -> Any:
        return self.module.empty(getattr(spec, "raw", spec))

    def step(self, spec: Any, state: Any, *args: Any) -> Step:
        if not isinstance(spec, LegacySpec):
            return self.module.step(spec, state, *args)
        inputs, watermark = args
        if self.form == "annotate":
            after, rows = self.module.step(spec.raw, state, *inputs)
            output, metrics = self._deliver(spec, rows)
            return Step(after, output, spec.output.empty_table(), metrics)
        if self.form == "clock":
            step = self.module.step(spec.raw, state, *inputs)
            row = {f.name: getattr(step.told, f.name) for f in fields(ClockMetrics)}
            output = pa.Table.from_pylist([row], CLOCK_OUTPUT)
            return Step(step.state, output, CLOCK_OUTPUT.empty_table(), None)
        old = self.module.step(spec.raw, state, *inputs, watermark)
        return Step(old.state, old.emitted, old.late, old.counts)

    def _deliver(self, spec: Any, rows: pa.Table) -> tuple[pa.Table, Any]:
        output, counts = self.module.delivered(spec.raw, rows)
        names = self.METRICS or {}
        return output, SimpleNamespace(**dict(zip(names, counts, strict=bool(names))))

    def finish(self, spec: Any, state: Any) -> pa.Table:
        if not hasattr(self.module, "finish"):
            return spec.output.empty_table()
        return self.module.finish(getattr(spec, "raw", spec), state)

    def run(self, spec: Any, *args: Any) -> pa.Table:
        if not isinstance(spec, LegacySpec):
            return self.module.run(spec, *args)
        (inputs,) = args
        rows = self.module.run(spec.raw, *inputs)
        if self.form == "annotate" and not self.METRICS:
            rows, _ = self.module.delivered(spec.raw, rows)
        return rows

    def next_deadline(self, spec: Any, state: Any) -> int | None:
        if not hasattr(self.module, "next_deadline"):
            return None
        return self.module.next_deadline(getattr(spec, "raw", spec), state)

    def check(self, spec: Any, state: Any) -> None:
        self.module.check(getattr(spec, "raw", spec), state)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(spec: Any, *rest: Any) -> Any:
        return function(getattr(spec, "raw", spec), *rest)

    return call


class LegacyParameters:
    """Settings of an older protocol."""

    def __init__(self, raw: Any, form: str) -> None:
        self.raw, self.form = raw, form

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "raw":
            raise AttributeError(name)
        return getattr(self.raw, name)

    def describe(self, operator: Operator) -> str:
        names = ["engine", "state_api", "shards", "name"]
        names = names[1:] if self.form in ("running", "annotate") else names
        names = ["state_api", "name"] if self.form == "clock" else names
        values = {name: getattr(operator.execution, name) for name in names}
        values["name"] = operator.metrics_name
        said = [*show_fields(self.raw), *(f"{k}={v!r}" for k, v in values.items())]
        return f"{operator.name}({', '.join(said)})"

    @property
    def times(self) -> tuple[str | None, ...]:
        if self.form == "pair":
            return self.raw.times
        return (self.raw.time if self.form in ("single", "clock") else None,)

    @property
    def delays(self) -> tuple[int | None, ...]:
        if self.form == "pair":
            return self.raw.delays
        return (self.raw.delay if self.form == "single" else None,)

    @property
    def lag(self) -> int:
        return getattr(self.raw, "lag", 0)

    @property
    def accepts_revisions(self) -> tuple[bool, ...]:
        if self.form == "pair":
            return self.raw.of_results
        return (getattr(self.raw, "of_results", True),)

    @property
    def needs_preimages(self) -> bool:
        return getattr(self.raw, "needs_preimages", False)

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        if self.form == "pair":
            return self.raw.reads
        return (self.raw.by if self.form == "annotate" else self.raw.reads,)

    def projected(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        settings = self.raw
        columns = [rows.column(settings.producer), rows.column(settings.time)]
        type_ = schema.field("arrival").type
        now = pa.scalar(dt.datetime.now(dt.UTC), type_)  # as Spark: when the micro-batch starts
        arrived = pa.chunked_array([pa.repeat(now, len(rows))])
        if settings.arrival is not None:
            given = rows.column(settings.arrival).cast(type_)
            arrived = pc.if_else(pc.greater(given, arrived), arrived, given)  # null stays null
        return pa.table([*columns, arrived], schema=schema)

    def resolve(self, schemas: Any, *, carried: Any, shards: int) -> Any:
        match self.form:
            case "pair":
                spec = self.raw.bind(*schemas, carried=carried)
            case "single":
                spec = self.raw.bind(*schemas, carried=carried[0])
            case "running":
                spec = self.raw.bind(*schemas, shards=shards)
            case _:
                spec = self.raw.bind(*schemas)
        return LegacySpec(spec, self.form == "single", self.form == "clock")


def adapt(form: str, name: str, settings: Any, options: Any, core: Any, **rest: Any) -> Operator:
    """The operator of these settings and options."""
    metrics = getattr(core, "TOLD", RUNNING_METRICS if form == "running" else None)
    native = rest.pop("native", None)
    if native is not None:

        def native_with_raw(*args: Any) -> Any:
            *frames, spec, required = args
            return native(*frames, spec.raw, required)

        rest["native"] = native_with_raw
    if form == "annotate":
        metrics = {each: each for each in settings.told}
    if form == "clock":
        metrics = {}
    own = name.rpartition(".")[2]
    execution = Options(
        None if options.name == own else options.name,
        getattr(options, "shards", 8),
        getattr(options, "engine", "auto"),
        options.state_api,
    )
    return Operator(
        name,
        LegacyParameters(settings, form),
        LegacyCore(core, form, metrics),
        execution=execution,
        **rest,
    )


def annotate(name: str, settings: Any, options: Any, core: Any) -> Operator:
    """An operator that passes its rows on, annotated."""

    def check(frame: DataFrame) -> None:
        settings.check(frame)
        refuse_taken(frame, settings.adds, where=name)

    def finish(frame: DataFrame, rows: DataFrame, metadata: Any, metrics: str) -> DataFrame:
        result = settings.finish(restore(rows, frame), frame.schema.names)
        counted = [count.alias(each) for each, count in settings.counts().items()]
        if counted and (frame.isStreaming or metrics != name.rpartition(".")[2]):
            result = result.observe(metrics, *counted)
        if metadata is None:
            return result
        mark = {key: metadata[key] for key in (METRICS, STATE_API)}
        return add_metadata(result, settings.marked, mark)

    return adapt("annotate", name, settings, options, core, check=check, finish=finish)


def clock(name: str, settings: Any, options: Any, core: Any) -> Operator:
    """An operator that passes its rows on, and defines their watermark by a clock."""

    def check(frame: DataFrame) -> None:
        settings.check(frame)
        if frame.isStreaming:
            refuse_watermark(frame, settings.time, where=name)

    return adapt(
        "clock",
        name,
        settings,
        options,
        core,
        check=check,
        project=settings.inputs,
        finish=functools.partial(define_watermark, settings.time, settings.delay),
    )
