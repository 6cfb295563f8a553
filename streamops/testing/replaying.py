"""Operators over scripted micro-batches, without Spark.

This module simulates the rules of Spark: watermarks, shards, and the micro-batch without data at the
end of a run. Everything else is the code that runs on Spark, from packing rows to encoding the state.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from streamops.changelog.chains import (
    METRICS,
    ONCE,
    STATE_API,
    WATERMARK,
    Columns,
    Metadata,
    clock_mark,
    follow,
    operator_metadata,
    output_marks,
    refuse_duplicates,
    require_transform,
    resolve_inputs,
)
from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.columns import concat, timestamp_micros
from streamops.kernel.core import SIDES, ClockMetrics, State
from streamops.kernel.errors import located, located_methods
from streamops.kernel.parameters import parse_delay
from streamops.kernel.time import Duration, spark_watermark
from streamops.spark.annotate import AnnotatedSpec
from streamops.spark.clocks import ClockSpec
from streamops.spark.definition import EngineChoice, engine_of
from streamops.spark.drive import shards_of
from streamops.spark.operator import Operator
from streamops.spark.packing import EMITTED_ARROW, packer, unpacker
from streamops.spark.state_rows import STATE_SCHEMA, StoredRow
from streamops.spark.step import ShardStep, Stored
from streamops.testing import conditions
from streamops.testing.batches import (
    Chain,
    Delays,
    Schemas,
    canonical,
    expand,
    infer_schemas,
    per_input,
    remedies_for_a_script,
    require_batches,
    to_tables,
)
from streamops.testing.results import BatchResult, combine_results, read_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamops.testing.batches import Inputs

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ARROW = {"bigint": pa.int64(), "string": pa.string()}
_STORED = pa.schema(
    [(name, _ARROW[type_]) for name, type_ in map(str.split, STATE_SCHEMA.split(", "))]
)


def replay(
    operator: Chain,
    batches: Iterable[Inputs],
    *,
    watermark: Delays = None,
    shards: int | None = None,
    schema: Schemas = None,
    restart: bool = False,
    flush: bool = False,
) -> list[BatchResult]:
    """Run a streaming operator, or a chain of them, over scripted micro-batches, without Spark.

    The results are those of a query with the trigger ``availableNow``: one per micro-batch,
    and one more for the micro-batch without data that Spark adds if the last one advanced the
    watermark. The kernel runs, regardless of the engine and state API of the operator.

    Parameters
    ----------
    operator : Operator, or sequence of Operator
        Such as ``windows.tumbling(...)``; or a chain, in which each operator reads the output of the
        one before: ``[time.producers(...), windows.tumbling(...), windows.session(...)]``.
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches, which may be empty. If the first operator has two inputs, pairs of them:
        ``(left, right)``, and None for an input without rows.
    watermark : duration, or pair of durations, optional
        Delay of the watermark of the frame, as ``withWatermark`` would define it. With two inputs:
        one delay for both, or a pair, in which None is an input without a watermark.
    shards : int, optional
        Overrides the number of shards of the operators.
    schema : Schema, or pair of Schema, optional
        The columns; by default those of the first table, or those of all rows together.
    restart : bool, default False
        Restart the operators before every micro-batch, from the bytes that a checkpoint would store.
        Watermarks are not reset: see :class:`Replay` for a restart of the query.
    flush : bool, default False
        Add a last result with everything that is still pending, which no stream would emit.

    Returns
    -------
    list of BatchResult
        Of a chain, the results of the last operator; ``upstream`` has those of the others.

    Raises
    ------
    SpecError, SchemaError, WatermarkError
        What the query would raise while its plan is built, in a session with RocksDB: all checks are those of
        Spark's queries. ``NOT_REPLAYABLE``: an operator without a state, or a join behind another operator;
        ``INVALID_ROWS``: these are not micro-batches.

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> from streamops.testing import at, replay
    >>> per_key = windows.tumbling(
    ...     "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds"
    ... )
    >>> first, second, after = replay(
    ...     per_key, [[{"k": "a", "ts": at(1)}, {"k": "a", "ts": at(9)}], [{"k": "a", "ts": at(15)}]]
    ... )
    >>> len(first.rows), len(second.rows), [row["n"] for row in after.rows]
    (0, 0, [2])
    """
    first, *_ = expand(operator)
    script = require_batches(batches)
    query = Replay(
        operator,
        infer_schemas(first, script, schema),
        watermark=watermark,
        shards=shards,
        restart=restart,
    )
    results = query.run(script)
    return [*results, query.flush()] if flush else results


@located_methods("streamops.testing.Replay")
class Replay:
    """A query over scripted micro-batches that can be stopped and continued.

    Spark's watermark is the minimum over all inputs, so it does not advance before every input had
    rows. The checkpoint stores the minimum only. So after a restart of the query (:meth:`run` called
    again), the watermark does not advance before every input had rows again.

    Parameters
    ----------
    operator : Operator, or sequence of Operator
    schema : Schema, or pair of Schema
        The columns of every micro-batch, for each input.
    watermark, shards, restart
        As in :func:`replay`.
    """

    def __init__(
        self,
        operator: Chain,
        schema: Schemas,
        *,
        watermark: Delays = None,
        shards: int | None = None,
        restart: bool = False,
    ) -> None:
        operators = expand(operator)
        _refuse_snapshot(operators[0])
        schemas: Any = schema if isinstance(schema, tuple) else (schema,)
        self._schemas = tuple(map(canonical, schemas))
        self._stages: list[_Stage] = []
        frames = tuple(
            _Frame(
                schema_,
                {}
                if delay is None
                else {time or schema_.names[0]: {WATERMARK: _micros(delay) // 1_000}},
                delay is not None,
            )
            for schema_, time, delay in zip(
                self._schemas,
                operators[0].spec.times,
                per_input(operators[0], watermark),
                strict=True,
            )
        )
        for operator_ in operators:
            stage = _Stage(operator_, frames, shards, restart=restart, is_first=not self._stages)
            self._stages.append(stage)
            frames = (stage.output,)
        self._batches = 0
        # Spark's watermark in milliseconds, of this micro-batch and of the next one.
        self._current = self._next = 0

    def run(self, batches: Iterable[Inputs]) -> list[BatchResult]:
        """Run all micro-batches, and the one without data, as ``availableNow`` does."""
        for stage in self._stages:
            stage.reset_watermarks()
        results = [
            self._step(to_tables(batch, self._schemas)) for batch in require_batches(batches)
        ]
        if self._next > self._current:
            results.append(self._step(None))
        return results

    def flush(self) -> BatchResult:
        """Everything that is still pending, as if the stream had ended. The query can continue."""
        table: pa.Table | None = None
        results = []
        for stage in self._stages:
            result, table = stage.flush(self._batches, table, self._current)
            results.append(result)
        assert table is not None
        return self._combine(results, table)

    def _step(self, tables: tuple[pa.Table, ...] | None) -> BatchResult:
        self._current = self._next
        results, marks = [], []
        for stage in self._stages:
            result, output = stage.step(self._batches, tables, self._current)
            marks += stage.watermarks(tables, result)
            results.append(result)
            tables = None if output is None else (output,)
        if marks:
            self._next = max(self._next, min(marks))
        self._batches += 1
        return self._combine(results, pa.table({}) if output is None else output)

    def _combine(self, results: Sequence[BatchResult], output: pa.Table) -> BatchResult:
        return combine_results([stage.operator for stage in self._stages], results, output)


def _refuse_snapshot(operator: Operator) -> None:
    if operator.initial is not None:
        raise conditions.NOT_IN_A_SCRIPT.error(got=f"snapshot=... in {operator.name}")


@dataclass(frozen=True, slots=True)
class _Frame:
    """The part of a DataFrame that the checks of the driver use."""

    columns: pa.Schema
    metadata: Mapping[str, Mapping[str, Any]]
    follows_watermark: bool
    """Whether an operator before, or the frame of the user, has a watermark."""
    isStreaming: bool = True
    sparkSession: None = None

    @property
    def marks(self) -> Columns:
        """The columns with the metadata."""
        return Columns(
            {name: self.metadata.get(name, {}) for name in self.columns.names},
            frozenset(f.name for f in self.columns if pa.types.is_struct(f.type)),
            follows_watermark=lambda: self.follows_watermark,
        )

    @property
    def schema(self) -> StructType:
        """The columns as Spark's types, with the metadata."""
        return StructType(
            [
                StructField(f.name, f.dataType, metadata=dict(self.metadata.get(f.name, {})))
                for f in from_arrow_schema(self.columns, prefer_timestamp_ntz=True).fields
            ]
        )


class MemoryStore(dict[int, str]):
    """The segments of a shard, by number."""

    def read(self, number: int) -> str:
        """Return a segment; empty if there is none of this number."""
        return self.get(number, "")

    def write(self, number: int, blob: str) -> None:
        """Store a segment."""
        self[number] = blob

    def remove(self, number: int) -> None:
        """Remove a segment."""
        del self[number]


@dataclass
class _Stage:
    """One operator of a query, with its stored state."""

    operator: Operator
    frames: tuple[_Frame, ...]
    shards: int | None
    restart: bool = field(kw_only=True)
    is_first: bool = field(kw_only=True)
    """Whether its inputs are the frames of the user, which may have watermarks."""

    @remedies_for_a_script()
    def __post_init__(self) -> None:
        operator = self.operator
        of = operator.parameters
        # Passes its rows on, with a watermark.
        self.clock = of if isinstance(of, ClockSpec) else None
        if operator.check is not None:
            with located(operator.name):
                operator.check(cast("DataFrame", self.frames[0]), self.frames[0].marks)
        self.count = shards_of(operator)
        if self.shards is not None and self.clock is None:
            self.count = self.shards
        self.stored: dict[int, StoredRow] = {}
        self.stores: MutableMapping[int, MemoryStore] = defaultdict(MemoryStore)
        self.reset_watermarks()
        self._start()
        with located(operator.name):
            engine = engine_of(operator, cast("Sequence[DataFrame]", self.frames), self.spec)
            self.api = self._require_chainable(engine)

    def _start(self) -> None:
        """Resolve the operator anew, as a restarted query does."""
        operator = self.operator
        self.resolved = resolve_inputs(
            operator.name,
            operator.spec,
            operator.sides,
            [frame.marks for frame in self.frames],
            map(_columns_of, self.frames),
            shards=self.count,
        )
        self.spec, self.delays = self.resolved
        assert operator.core is not None, "an operator without a core has no steps"
        self.run_step = ShardStep(operator.name, operator.core, self.spec, self.count)
        self.has_event_time = self.resolved.delay is not None

    def _require_chainable(self, engine: EngineChoice | None) -> str:
        """Refuse what Spark would refuse in a session with RocksDB. Returns how Spark would run the operator."""
        api: str = self.operator.execution.state_api
        require_transform(self.operator.requires_transform, api)
        if engine is not None and engine.engine == "native":
            api = "native"
        for frame in self.frames:
            found = follow(frame.marks, api)
            if found is not None:
                condition, got = found
                raise condition.error(got=got)
        return api

    def reset_watermarks(self) -> None:
        """Reset the watermark of each input, which a checkpoint does not store."""
        self._marks = [0] * len(self.frames)

    @property
    def output(self) -> _Frame:
        """The output, with the metadata for the next operator."""
        marks_before = (mark for of in self.frames for mark in of.metadata.values())
        once = next((mark[ONCE] for mark in marks_before if ONCE in mark), None)
        delay, api = self.resolved.delay, self.api
        metadata = operator_metadata(self.spec, delay, metrics=(), api=api, once=once)
        (before, *_), of = self.frames, self.operator.parameters
        follows = self.has_event_time or any(frame.follows_watermark for frame in self.frames)
        if self.clock is not None:
            mark = clock_mark(self.clock.delay, metadata)
            return _Frame(before.columns, _with(before.metadata, self.clock.time, mark), True)
        schema = canonical(self._build_rows(self.spec.output.empty_table()).schema)
        if isinstance(of, AnnotatedSpec):  # passes its rows on, with their marks
            mark = {key: metadata[key] for key in (METRICS, STATE_API)}
            return _Frame(schema, _with(before.metadata, of.marked, mark), follows)
        marks = output_marks(self.spec, [frame.marks for frame in self.frames], metadata)
        return _Frame(schema, marks, follows)

    def step(
        self, number: int, tables: tuple[pa.Table, ...] | None, watermark: int
    ) -> tuple[BatchResult, pa.Table | None]:
        """Run a micro-batch. Without data (None), the timers of all shards fire."""
        if self.clock is not None and tables is None:  # it has no timers
            return BatchResult(number), None
        if self.restart:
            self._start()
            self.stored = {shard: _through_spark(row) for shard, row in self.stored.items()}
        packs: dict[int, list[bytes]] = {shard: [] for shard in self.stored}
        if tables is not None:
            packs = self._pack(tables)
        table, metrics = self._step_shards(packs, watermark, self.stored, self.stores)
        output = table
        if tables is not None and self.clock is not None:
            output = tables[0]
        return self._result(number, table, metrics, watermark), self._build_rows(output)

    def flush(
        self, number: int, rows: pa.Table | None, watermark: int
    ) -> tuple[BatchResult, pa.Table]:
        """Everything that is still pending after these rows. Does not change the stored state."""
        if self.clock is not None:  # it passes rows on
            passed = self.frames[0].columns.empty_table() if rows is None else rows
            return BatchResult(number), passed
        stored, tables = dict(self.stored), []
        stores = defaultdict(
            MemoryStore, {n: MemoryStore(store) for n, store in self.stores.items()}
        )
        if rows is not None:
            table, _ = self._step_shards(self._pack((rows,)), watermark, stored, stores)
            tables.append(table)
        step = self.run_step
        for shard, row in stored.items():
            segments = step.open_segments(stores[shard], shard)
            with located(step.where):
                state = step.decode(Stored(*row), segments)
                spec, state, _ = step.core.attune(self.spec, state, ())
                tables.append(step.core.finish(spec, state))
        table = concat([self.spec.output.empty_table(), *tables])
        return self._result(number, table, {}, watermark), self._build_rows(table)

    def watermarks(self, tables: tuple[pa.Table, ...] | None, result: BatchResult) -> list[int]:
        """The watermarks that Spark computes for the inputs of this operator after a micro-batch."""
        marks = []
        for at, input_ in enumerate(self.spec.inputs):
            time, delay = input_.time, self.delays[at]
            newest: int | None = None
            if self.clock is not None:
                delay = self.clock.delay
                newest = result.clock.clock if result.clock is not None else None
            elif time is None or delay is None:
                continue
            elif input_.delay is None and not self.is_first:
                continue  # an operator before it defines the watermark
            elif tables is not None:
                own = input_.delay is not None
                newest = self._newest[at] if own else _newest(tables[at], time)
            assert delay is not None
            self._marks[at] = max(self._marks[at], spark_watermark(newest, delay))
            marks.append(self._marks[at])
        return marks

    def _pack(self, tables: tuple[pa.Table, ...]) -> dict[int, list[bytes]]:
        """Pack the rows per shard, and set the newest event time of each input."""
        packs: dict[int, list[bytes]] = {}
        self._newest: list[int | None] = [None] * len(tables)
        for at, (input_, rows) in enumerate(zip(self.spec.inputs, tables, strict=True)):
            if self.clock is not None:
                rows = self.clock.projected(rows, input_.schema)
            rows = rows.select(input_.schema.names)
            has_delay = input_.delay is not None
            step = self.run_step
            pack = packer(
                step.core, self.spec, at, self.count, newest=has_delay, operator=step.where
            )
            for row in pack(iter(rows.to_batches())):
                (shard,), (packed,), (event_time,) = (column.to_pylist() for column in row.columns)
                if packed is None:
                    self._newest[at] = (event_time - _EPOCH) // dt.timedelta(microseconds=1)
                else:
                    packs.setdefault(shard, []).append(packed)
        return packs

    def _step_shards(
        self,
        packs: Mapping[int, list[bytes]],
        watermark: int,
        stored: dict[int, StoredRow],
        stores: MutableMapping[int, MemoryStore],
    ) -> tuple[pa.Table, dict[str, int]]:
        """Run the step of each shard, and sum up the metrics."""
        emitted, metrics = [self.spec.output.empty_table()], []
        unpack = unpacker(self.spec.output, self.run_step.metric_names)
        for shard, pack in packs.items():
            after, frame = self.run_step(
                stored.get(shard),
                pack,
                watermark if self.has_event_time else None,
                shard=shard,
                store=stores[shard],
            )
            if after is not None:
                stored[shard] = after
            metrics.append(frame["metrics"][0])
            rows = pa.RecordBatch.from_pydict(frame.to_dict("list"), EMITTED_ARROW)
            emitted.append(pa.Table.from_batches(unpack(iter([rows])), self.spec.output))
        names = self.run_step.metric_names[:-1]
        totals = [sum(values) for values in zip(*(row[:-1] for row in metrics), strict=True)]
        return concat(emitted), dict(zip(names, totals, strict=False))

    def _build_rows(self, table: pa.Table) -> pa.Table:
        """The rows that the next operator reads."""
        of = self.operator.parameters
        return of.build_rows(table) if isinstance(of, AnnotatedSpec) else table

    def _result(
        self, number: int, table: pa.Table, metrics: dict[str, int], watermark: int
    ) -> BatchResult:
        """The metrics of a micro-batch, without rows."""
        result = BatchResult(number)
        if self.clock is not None:
            if not len(table):
                return result
            (row,) = table.to_pylist()
            clock = ClockMetrics(**{f.name: row[f.name] for f in fields(ClockMetrics)})
            return replace(result, clock=clock)
        # Of rows that pass through, Spark observes the metrics.
        if self.operator.build_result is not None:
            return result
        if self.has_event_time and watermark > 0:
            lag = dt.timedelta(milliseconds=watermark, microseconds=self.spec.lag)
            result = replace(result, watermark=_EPOCH + lag)
        return replace(
            result,
            counts=read_counts(self.run_step.core, metrics),
            state_rows=metrics.get("state_rows", 0),
            state_bytes=metrics.get("state_bytes", 0),
        )


def _micros(watermark: Duration) -> int:
    return parse_delay(watermark, parameter="watermark")


def _columns_of(frame: _Frame) -> pa.Schema:
    """The columns of a frame, of which no two have one name, as Spark compares names by default."""
    refuse_duplicates(frame.columns.names, ignores_case=lambda: True)
    return frame.columns


def _with(
    metadata: Mapping[str, Mapping[str, Any]], name: str, mark: Metadata
) -> dict[str, Mapping[str, Any]]:
    """The metadata of columns, of which one has another mark."""
    return {**metadata, name: {**metadata.get(name, {}), **mark}}


def _newest(rows: pa.Table, time: str) -> int | None:
    """The newest event time, as ``withWatermark`` on the frame computes it."""
    micros, valid = timestamp_micros(rows.column(time))
    return int(micros[valid].max()) if valid.any() else None


def _through_spark(stored: StoredRow) -> StoredRow:
    """Convert to Spark's types and back: a number that does not fit is an error here."""
    columns = [pa.array([value], type_) for value, type_ in zip(stored, _STORED.types, strict=True)]
    table = ipc_read(ipc_write(pa.table(columns, schema=_STORED)))
    return Stored(*(column[0].as_py() for column in table.columns)).row


_METRICS = ("on_time", "stragglers", "too_late", "rejected")

Count = Callable[[Sequence[int]], list[int]]
"""From positions of rows to the metrics of a step with these rows."""


def classify_rows(
    operator: Operator, batches: Sequence[pa.Table], *, watermark: Delays = None
) -> Iterator[tuple[int | None, list[str]]]:
    """Run an operator with one input over micro-batches, and say what it counts each row as.

    Yields, for each micro-batch, the watermark that its rows are compared with, in microseconds, and the
    metric that counts each row. It is the watermark of the micro-batch before, as in Spark. A row in several windows is "on_time" if one of them is open, else rather one of "stragglers" than
    "too_late".
    """
    query = Replay(operator, batches[0].schema, watermark=watermark, shards=1)
    for batch in batches:
        tables = to_tables(batch, query._schemas)
        yield _classify(query, tables[0])
        query._step(tables)


def _classify(query: Replay, table: pa.Table) -> tuple[int | None, list[str]]:
    stage, spark_watermark = query._stages[0], query._next
    spec, step = stage.spec, stage.run_step
    (input_,) = spec.inputs
    state = State.empty(step.core.layout(spec))
    if 0 in stage.stored:
        segments = step.open_segments(stage.stores[0], 0)
        state = Stored(*stage.stored[0]).state(step.header, segments=segments)
    watermark = spark_watermark * 1_000 + spec.lag if spark_watermark > 0 else None
    rows = table.select(input_.schema.names)

    def count(chosen: Sequence[int]) -> list[int]:
        packed = step.core.pack(spec, rows.take(pa.array(chosen, pa.int64())), SIDES[0])
        metrics = step.core.step(spec, state, (packed,), watermark).metrics
        return [getattr(metrics, name) for name in _METRICS]

    times, _ = timestamp_micros(rows.column(input_.time))
    # Lateness rises with the event time, or with a bound that rises with it: halves are often alike.
    found = _by_halves(count, np.argsort(times, kind="stable").tolist())
    return state.watermark, [found[at] for at in range(len(rows))]


def _by_halves(count: Count, chosen: list[int]) -> dict[int, str]:
    """Count rows, and each half of them where they have several metrics: a row is counted by itself."""
    used = [name for name, number in zip(_METRICS, count(chosen), strict=True) if number]
    if len(used) < 2 or len(chosen) < 2:
        return dict.fromkeys(chosen, used[0] if used else "")
    middle = len(chosen) // 2
    return _by_halves(count, chosen[:middle]) | _by_halves(count, chosen[middle:])
