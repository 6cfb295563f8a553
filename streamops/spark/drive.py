"""The driver: an operator over streaming or batch frames.

Streaming: pack the rows of each input, shuffle them by shard, run a step of every shard behind a
state API, unpack its output. Batch: pack, shuffle by shard, run. The driver does not know
any operator by name; it calls whatever satisfies the contract of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.changelog.chains import (
    METRICS,
    ONCE,
    Metadata,
    Resolved,
    operator_metadata,
    refuse_taken,
    require_equal_keys,
    resolve_inputs,
)
from streamops.environment.settings import advise_partitions, refuse_policy
from streamops.kernel.columns import suit
from streamops.kernel.core import SIDES, State
from streamops.kernel.errors import located
from streamops.kernel.operator import Spec
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.kernel.versions import apply_in_arrow
from streamops.spark import conditions
from streamops.spark.checks import columns_of, metric_name
from streamops.spark.columns import (
    arrow_schema,
    column,
    refuse_collated,
    refuse_duplicates,
    require_frame,
    spark_schema,
)
from streamops.spark.definition import Definition, EngineChoice, Frames, RowParameters, engine_of
from streamops.spark.metadata import add_metadata, describe, drop_stale_metadata
from streamops.spark.packing import (
    EMITTED,
    EMITTED_ARROW,
    emit_frame,
    group_packs,
    mark_watermark,
    pack_input,
    read_packs,
    sum_metrics,
    unpacker,
    write_cells,
)
from streamops.spark.processors import run_steps
from streamops.spark.results import declare
from streamops.spark.starting import declare_state
from streamops.spark.state_apis import choose_state_api, refuse_unchainable
from streamops.spark.state_rows import Begin, StoredRow
from streamops.spark.step import STATE_BYTES, ShardStep, Stored


@dataclass(frozen=True, slots=True)
class Query:
    """An operator over its frames, checked and resolved."""

    operator: Definition
    sources: tuple[DataFrame, ...]
    """The frames that the user passes. Their columns have the metadata of the operators before."""
    frames: tuple[DataFrame, ...]
    """The frames with the columns that the core reads."""
    initial: DataFrame | None
    """Rows of the right input that the state starts with."""
    resolved: Resolved
    """The parameters, and the delays of Spark's watermarks."""
    metrics: str
    """Name of the observed metrics, unique in the query."""
    taken: list[str]
    """Names of all observed metrics of the query so far."""
    engine: EngineChoice | None
    """The engine, if Spark has the operator, too."""

    @property
    def is_streaming(self) -> bool:
        """Whether it is a stream."""
        return self.frames[0].isStreaming

    @property
    def is_observed(self) -> bool:
        """Whether metrics are observed: always on a stream, and where the user named a batch.

        Spark refuses two observations of one name in a query, so two operators in the branches of a
        batch union or join would be refused for metrics that nobody reads.
        """
        return self.is_streaming or self.operator.execution.name is not None

    @property
    def step(self) -> ShardStep[Spec]:
        """The step of a shard."""
        operator = self.operator
        assert operator.core is not None, "an operator without a core has no steps"
        return ShardStep(operator.name, operator.core, self.spec, shards_of(operator))

    @property
    def spec(self) -> Spec:
        """The resolved parameters."""
        return self.resolved.spec

    @property
    def spark_delay(self) -> int | None:
        """Delay of Spark's watermark; None if the operator does not follow one."""
        return self.resolved.delay


def drive(operator: Definition, frame: DataFrame) -> DataFrame:
    """Build the result of an operator over a frame, and over its right frame if it has two inputs."""
    if operator.core is None:
        return _apply_to_rows(operator, frame)
    query = resolve_query(operator, frame)
    if query.engine is not None and query.engine.engine == "native":
        return _native(query)
    if query.is_streaming:
        return _stream(query)
    return _batch(query)


def resolve_query(operator: Definition, frame: DataFrame) -> Query:
    """Check an operator with a core and its frames, and resolve its parameters."""
    sources = _sources(operator, frame)
    columns = tuple(map(columns_of, sources))
    if operator.check is not None:
        operator.check(sources[0], columns[0])
    read = Frames(sources, operator.initial)
    frames, initial = read if operator.prepare is None else operator.prepare(read)
    parameters = operator.spec
    resolved = resolve_inputs(
        operator.name,
        parameters,
        operator.sides,
        columns,
        _schemas(operator, frames),
        shards=shards_of(operator),
    )
    spec = resolved.spec
    if len(frames) > 1 and frames[0].isStreaming and None not in parameters.times:
        refuse_policy(frames[0].sparkSession)
    name, taken = metric_name(sources[0], operator.metrics_name, *sources[1:])
    engine = engine_of(operator, frames, spec)
    return Query(operator, sources, frames, initial, resolved, name, taken, engine)


def _schemas(operator: Definition, frames: Sequence[DataFrame]) -> Iterator[pa.Schema]:
    """The Arrow schema of each input, with columns that can be compared."""
    for frame, reads, where in zip(frames, operator.spec.reads, operator.sides, strict=True):
        with located(where):
            schema = arrow_schema(frame)
            refuse_collated(frame, reads)
        yield schema


def _apply_to_rows(operator: Definition, frame: DataFrame) -> DataFrame:
    """Apply an operator without a core, and observe its metrics."""
    parameters = cast("RowParameters", operator.parameters)
    frame = drop_stale_metadata(frame)
    refuse_duplicates(frame)
    parameters.check(frame)
    refuse_taken(frame.schema.names, parameters.adds)
    result: DataFrame = parameters.apply(frame)
    counts = [count.alias(name) for name, count in parameters.counts().items()]
    if not frame.isStreaming:
        # As in `Query.is_observed`: nobody reads the metrics of a batch that has no name.
        return (
            result
            if operator.execution.name is None
            else result.observe(operator.metrics_name, *counts)
        )
    name, taken = metric_name(frame, operator.metrics_name)
    return add_metadata(
        result.observe(name, *counts), parameters.marked, {METRICS: ",".join(taken)}
    )


def resolve(
    operator: Definition, schemas: tuple[pa.Schema, ...], carried: tuple[int | None, ...]
) -> Spec:
    """Resolve the parameters of an operator, and check that its inputs have keys of the same types.

    Raises
    ------
    SchemaError
        ``COLUMNS_DIFFER``: equal values of the two inputs would not meet.
    """
    with located(operator.name):
        spec: Spec = operator.spec.resolve(schemas, carried=carried, shards=shards_of(operator))
        require_equal_keys(spec)
    return spec


def shards_of(operator: Definition) -> int:
    """Number of shards. If a state is that of all keys together, all rows meet in one."""
    is_single = operator.core is not None and operator.core.placement.is_single
    return 1 if is_single else operator.execution.shards


def _sources(operator: Definition, frame: DataFrame) -> tuple[DataFrame, ...]:
    """The frames of all inputs."""
    if len(operator.spec.inputs) == 1:
        return (drop_stale_metadata(frame),)
    if operator.right is None:
        raise conditions.RIGHT_MISSING.error(operator=operator.name, got="right=None")
    frame = drop_stale_metadata(frame)
    right = drop_stale_metadata(require_frame(operator.right, "the right frame"))
    frames = (frame, right)
    modes = ["streaming" if input_.isStreaming else "batch" for input_ in frames]
    if len(set(modes)) > 1:
        batch = SIDES[modes.index("batch")]
        raise conditions.MIXED_FRAMES.error(
            batch=batch,
            got=", ".join(f"{side}: {mode}" for side, mode in zip(SIDES, modes, strict=True)),
        )
    return frames


def _native(query: Query) -> DataFrame:
    """The result by Spark's own operator."""
    operator = query.operator
    assert operator.native is not None
    if query.is_streaming:
        for frame, where in zip(query.frames, operator.sides, strict=True):
            with located(where):
                refuse_unchainable(frame, "native")
    frames = [
        frame if of.time is None else frame.where(is_usable(of.time))
        for frame, of in zip(_observe_inputs(query), query.spec.inputs, strict=True)
    ]
    result = describe(
        operator.native.build(*frames, query.spec), f"{operator.name} by {query.engine}"
    )
    return declare(result, query.frames, query.spec, _metadata(query, "native"))


def _stream(query: Query) -> DataFrame:
    operator, spec, step = query.operator, query.spec, query.step
    advise_partitions(query.frames[0].sparkSession, operator.name, step.shards)
    choice = choose_state_api(
        query.sources,
        operator.execution.state_api,
        sides=operator.sides,
        required=operator.requires_transform,
    )
    packs = [
        pack_input(
            frame,
            step.core,
            spec,
            at,
            step.shards,
            operator=step.where,
            spark_delay=None if spec.inputs[at].delay is None else query.resolved.delays[at],
        )
        for at, frame in enumerate(query.frames)
    ]
    united = packs[0] if len(packs) == 1 else packs[0].unionByName(packs[1])
    if query.spark_delay is not None:
        # The watermark is defined in `pack_input`, or by the frame. This restores the mark that Spark
        # requires on the column.
        united = mark_watermark(united, query.spark_delay)
    begin = None
    if query.initial is not None:
        rows = pack_input(query.initial, step.core, spec, 1, step.shards, operator=step.where)
        begin = (rows, _begin(step))
    has_time = query.spark_delay is not None
    emitted = run_steps(united, step, choice.api, event_time=has_time, initial=begin)
    emitted = declare_state(emitted, step)
    emitted = describe(emitted, f"{operator.name} by {choice.api}: {choice.reason}")
    if query.engine is not None:
        emitted = describe(emitted, f"{operator.name} by {query.engine}")
    return _unpack_result(query, emitted, choice.api)


def _begin(step: ShardStep[Spec]) -> Begin:
    """Put packs of the right input into the state, by the ``begin`` of the core."""

    @located(step.where)
    def begin(stored: StoredRow | None, packs: list[bytes]) -> StoredRow:
        core = step.core
        state = State.empty(core.layout(step.spec))
        if stored is not None:
            state = Stored(*stored).state(step.header)
        _, rows = read_packs(core, step.spec, packs)
        return Stored.of(core.begin(step.spec, state, rows), step.header).row

    return begin


def _unpack_result(query: Query, emitted: DataFrame, api: str | None) -> DataFrame:
    """Unpack what the steps emitted, observe their metrics, and declare the types of the result."""
    spec, names = query.spec, query.step.metric_names
    if query.is_observed and query.step.core.METRICS:  # else `build_result` observes its own
        columns = sum_metrics(names, watermark=query.spark_delay is not None)
        emitted = emitted.observe(query.metrics, *columns, *_engine_metric(query))
    if STATE_BYTES not in spec.output.names:  # else the metrics are read, too
        emitted, names = emitted.select("emitted"), []
    rows = emitted.mapInArrow(unpacker(spec.output, names), spark_schema(spec.output))
    return build_rows(query, rows, _metadata(query, api))


def build_rows(query: Query, rows: DataFrame, metadata: Metadata | None) -> DataFrame:
    """The rows of the core as the operator returns them."""
    build = query.operator.build_result
    if build is not None:
        return build(query.sources[0], rows, metadata, query.metrics)
    return declare(rows, query.frames, query.spec, metadata)


def _batch(query: Query) -> DataFrame:
    spec, step = query.spec, query.step
    packs = [
        pack_input(frame, step.core, spec, at, step.shards, operator=step.where)
        for at, frame in enumerate(query.frames)
    ]
    united = packs[0] if len(packs) == 1 else packs[0].unionByName(packs[1])
    shards = united.groupBy("shard")
    if query.is_observed and step.core.METRICS:
        return _unpack_result(
            query, apply_in_arrow(shards, _runner_with_metrics(step), EMITTED), None
        )
    rows = apply_in_arrow(shards, _runner(step), spark_schema(spec.output))
    return build_rows(query, rows, None)


def _runner(step: ShardStep[Spec]) -> Callable[[pa.Table], pa.Table]:
    # A decorator would hide the argument, and Spark refuses functions without one.
    def run(table: pa.Table) -> pa.Table:
        core, spec = step.core, step.spec
        with located(step.where):
            found = core.run(spec, read_packs(core, spec, group_packs(table)))
        return suit(found.rows, table.schema.field("packed").type)

    return run


def _runner_with_metrics(step: ShardStep[Spec]) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        core, spec = step.core, step.spec
        with located(step.where):
            found = core.run(spec, read_packs(core, spec, group_packs(table)))
        values = [getattr(found.metrics, field) for field in core.METRICS.values()]
        metrics = [*values, len(found.late), 0, 0, None]
        frame = emit_frame(write_cells(found.rows), metrics)
        emitted = pa.Table.from_pandas(frame, EMITTED_ARROW, preserve_index=False)
        return suit(emitted, table.schema.field("packed").type)

    return run


def _observe_inputs(query: Query) -> tuple[DataFrame, ...]:
    """Count rows that a native operator would leave out silently."""
    if not query.is_observed:
        return query.frames
    names = [query.metrics]
    if len(query.frames) > 1:
        names = [f"{query.metrics}-{side}" for side in SIDES]
    observed = []
    for frame, of, name in zip(query.frames, query.spec.inputs, names, strict=True):
        rejected = F.lit(0)
        if of.time is not None:
            rejected = F.count_if(~F.coalesce(is_usable(of.time), F.lit(False)))
        rows = F.count(F.lit(1)).alias("rows")
        counts = rows, rejected.alias("rejected"), *_engine_metric(query)
        observed.append(frame.observe(name, *counts))
    return tuple(observed)


def _engine_metric(query: Query) -> list[Column]:
    """The engine and the reason for it, among the metrics of an operator that Spark has, too."""
    return [] if query.engine is None else [F.lit(str(query.engine)).alias("engine")]


def is_usable(time: str) -> Column:
    """Whether the event time of a row is in the supported range; null if it is null."""
    bounds = (F.timestamp_micros(F.lit(micros)) for micros in (MIN_INSTANT, MAX_INSTANT))
    return column(time).between(*bounds)


def _metadata(query: Query, api: str | None) -> Metadata | None:
    """Column metadata for the next operator of the query; None for a batch."""
    if not query.is_streaming or api is None:
        return None
    once = [
        field.metadata[ONCE]
        for frame in query.sources
        for field in frame.schema.fields
        if ONCE in (field.metadata or {})
    ]
    return operator_metadata(
        query.spec, query.spark_delay, metrics=query.taken, api=api, once=once[0] if once else None
    )
