"""The drive of an operator with two inputs: a pair core over two streaming or two batch frames.

Each side is packed by itself and has its own watermark; a pack tells which side its rows are of.
Then both go the same way: shuffled by shard into one state operator. What that sees as watermark
is the lesser of the two, as Spark takes the least of all watermarks in a query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.kernel.errors import SpecError
from streamops.kernel.pairs import PairCore, PairSpec, Side, SideName
from streamops.spark.checks import (
    INSTANT,
    LATENESS,
    METRICS,
    ONCE,
    STATE_API,
    WATERMARK,
    carried_watermark,
    metric_name,
    refuse_unchainable,
    state_api,
)
from streamops.spark.columns import arrow_schema, refuse_collated, spark_schema
from streamops.spark.drive import observed, told, usable
from streamops.spark.inputs import marked, packed
from streamops.spark.metadata import drop_stale_metadata
from streamops.spark.packing import unpacker
from streamops.spark.pairs import Both, PairTransform, bound
from streamops.spark.results import declared_pair, refuse_revised, refuse_upserts
from streamops.spark.runners import Advance, timed
from streamops.spark.settings import refuse_policy
from streamops.spark.transform import StateApi, is_named
from streamops.spark.untimed import Beginning, Standing, untimed
from streamops.spark.wire import EMITTED, opened_pair, packing, packs_in

__all__ = ["drive_pair"]

Frames = Mapping[SideName, DataFrame]


def drive_pair(
    transform: PairTransform,
    left: DataFrame,
    right: DataFrame,
    *,
    first: DataFrame | None = None,
) -> DataFrame:
    """The frame that the transform makes of these two.

    Parameters
    ----------
    transform : PairTransform
    left, right : DataFrame
    first : DataFrame, optional
        A batch frame with the columns of the right, for two streams without event times: rows that
        the state begins with, by the ``begin`` of the core. Only the first micro-batch of a
        checkpoint reads it.
    """
    left, right = drop_stale_metadata(left), drop_stale_metadata(right)
    frames: Frames = {"left": left, "right": right}
    _refuse_mixed(transform, frames)
    for (side, frame), of_results in zip(
        frames.items(), transform.settings.of_results, strict=True
    ):
        if not of_results:
            refuse_revised(frame, where=f"{transform.operator}, {side} frame")
        if transform.settings.needs_preimages:
            refuse_upserts(frame, where=f"{transform.operator}, {side} frame")
    schemas = _schemas(transform, frames)
    carried = _carried(transform, frames)
    spec = bound(transform, *schemas, carried=carried)
    options, streaming = transform.options, left.isStreaming
    if streaming and all(side.time is not None for side in (spec.left, spec.right)):
        refuse_policy(left.sparkSession, where=transform.operator)
    name, names = metric_name(left, options.name, right)
    delays = [
        side.delay + spec.lag if side.delay is not None else brought
        for side, brought in zip((spec.left, spec.right), carried, strict=True)
    ]
    if options.engine != "kernel":
        insists = options.engine == "native"
        if streaming and insists:
            for frame in frames.values():
                refuse_unchainable(frame, "native", where=transform.operator)
        seen = _observed(transform, frames, spec, name)
        one, other = (_placeable(f, _side(spec, side).time) for side, f in seen.items())
        native = transform.native(one, other, spec, insists)
        if native is not None:
            mark = _mark(frames, spec, delays, names, "native") if streaming else None
            return declared_pair(native, frames, spec, mark)
        if insists:
            raise _no_native(transform)
    if not streaming:
        rows = _batch(transform, _observed(transform, frames, spec, name), spec)
        return declared_pair(rows, frames, spec, None)
    api = _state_api(transform, frames)
    rows = _stream(transform, frames, spec, delays, name, api, first)
    return declared_pair(rows, frames, spec, _mark(frames, spec, delays, names, api))


def _schemas(transform: PairTransform, frames: Frames) -> list[pa.Schema]:
    schemas = []
    for (side, frame), reads in zip(frames.items(), transform.settings.reads, strict=True):
        where = f"{transform.operator}, {side} frame"
        refuse_collated(frame, reads, where=where)
        schemas.append(arrow_schema(frame, where=where))
    return schemas


def _carried(transform: PairTransform, frames: Frames) -> Both:
    """Delays of the watermarks that the frames bring, where there is a watermark at all.

    Spark waits for that of a side without event times, too: whether it may, the settings decide.
    """
    settings, found = transform.settings, []
    asked = zip(frames.items(), settings.times, settings.delays, strict=True)
    for (side, frame), time, delay in asked:
        carried = None
        if frame.isStreaming and time is not None:
            where = f"{transform.operator}, {side} frame"
            carried = carried_watermark(frame, delay, settings.lag, time=time, where=where)
        elif frame.isStreaming and any(settings.times):
            carried = _watermark(frame)
        found.append(carried)
    left, right = found
    return left, right


def _watermark(frame: DataFrame) -> int | None:
    """Delay, in microseconds, of a watermark on any column."""
    marks = (field.metadata or {} for field in frame.schema.fields)
    return max((int(m[WATERMARK]) * 1_000 for m in marks if WATERMARK in m), default=None)


def _side(spec: PairSpec, side: SideName) -> Side:
    return spec.left if side == "left" else spec.right


def _stream(
    transform: PairTransform,
    frames: Frames,
    spec: PairSpec,
    delays: Sequence[int | None],
    name: str,
    api: StateApi,
    first: DataFrame | None,
) -> DataFrame:
    core, shards = transform.core, transform.options.shards
    advance = Advance(transform.operator, core, spec, shards, opened_pair)
    packs = []
    for side, frame in frames.items():
        of = _side(spec, side)
        defined = None if of.delay is None else of.delay + spec.lag
        packs.append(packed(frame, packing(core, spec, side), of, shards, defined=defined))
    both = packs[0].unionByName(packs[1])
    known = [delay for delay in delays if delay is not None]
    if known:
        # The mark says which column it is; Spark's watermark is that of both sides in any case.
        emitted = timed(marked(both, max(known)), advance, api)
    else:
        begun = None
        if first is not None:
            rows = packed(first, packing(core, spec, "right"), spec.right, shards)
            begun = rows, Beginning(advance)
        emitted = untimed(both, Standing(advance), EMITTED, api, begun)
    emitted = emitted.observe(name, *told())
    return emitted.select("emitted").mapInArrow(unpacker(spec.output), spark_schema(spec.output))


def _batch(transform: PairTransform, frames: Frames, spec: PairSpec) -> DataFrame:
    core, shards = transform.core, transform.options.shards
    left, right = (
        packed(frame, packing(core, spec, side), _side(spec, side), shards)
        for side, frame in frames.items()
    )
    run = _runner(core, spec)
    return left.unionByName(right).groupBy("shard").applyInArrow(run, spark_schema(spec.output))


def _runner(core: PairCore, spec: PairSpec) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        return core.run(spec, *opened_pair(core, spec, packs_in(table)))

    return run


def _observed(transform: PairTransform, frames: Frames, spec: PairSpec, name: str) -> Frames:
    """Count, side by side, what a native operator or a batch would leave out without a word."""
    streaming = frames["left"].isStreaming
    if not streaming and not is_named(transform.options, transform.operator):
        return frames
    return {
        side: observed(frame, f"{name}-{side}", _side(spec, side).time)
        for side, frame in frames.items()
    }


def _placeable(frame: DataFrame, time: str | None) -> DataFrame:
    return frame if time is None else frame.where(usable(time))


def _mark(
    frames: Frames, spec: PairSpec, delays: Sequence[int | None], names: list[str], api: str
) -> dict[str, Any]:
    """What the next operator must know, for one column of the result."""
    once = [*_once(frames["left"]), *_once(frames["right"])]
    told: dict[str, Any] = {METRICS: ",".join(names), STATE_API: api}
    known = [delay for delay in delays if delay is not None]
    if known and spec.event_time is not None:
        # Results that have waited lie behind the watermark though they are on time: what follows
        # may be no less patient with them than Spark's watermark is.
        room = spec.lag - spec.held_back
        told |= {WATERMARK: max(known) // 1_000, LATENESS: room, INSTANT: True}
    return told | ({ONCE: once[0]} if once else {})


def _once(frame: DataFrame) -> list[str]:
    """The state API that the query cannot use a second time."""
    return [f.metadata[ONCE] for f in frame.schema.fields if ONCE in (f.metadata or {})]


def _state_api(transform: PairTransform, frames: Frames) -> StateApi:
    """The state API to use, if it may follow what is before either side."""
    wanted = transform.options.state_api
    if all(_once(frame) for frame in frames.values()):
        raise SpecError(
            "STATE_API_NOT_CHAINABLE",
            "applyInPandasWithState may stand only once in a query",
            where=transform.operator,
            got="an operator with state_api='applyInPandasWithState' before either frame",
            expected="state_api='transformWithStateInPandas' in one of the two",
            fix="leave state_api out in one of them; it needs RocksDB",
        )
    for side, frame in frames.items():
        api = state_api(frame, wanted, where=f"{transform.operator}, {side} frame")
    return api


def _refuse_mixed(transform: PairTransform, frames: Frames) -> None:
    kinds = {side: "streaming" if f.isStreaming else "batch" for side, f in frames.items()}
    if len(set(kinds.values())) > 1:
        still = next(side for side, kind in kinds.items() if kind == "batch")
        raise SpecError(
            "MIXED_FRAMES",
            "one frame is a stream and the other is not",
            where=transform.operator,
            got=", ".join(f"{side}: {kind}" for side, kind in kinds.items()),
            expected="two streaming frames, or two batch frames",
            fix=f"read the {still} frame with spark.readStream, too; beside what a small table says now "
            "joins.lookup(table, ...) puts a row",
        )


def _no_native(transform: PairTransform) -> SpecError:
    return SpecError(
        "NO_NATIVE_ENGINE",
        "Spark's own operators cannot say this",
        where=transform.operator,
        got=f"engine='native' in {transform!r}",
        expected="what Spark's own join says as well (docs/joins.md)",
        fix="leave engine out, or write engine='kernel'",
    )
