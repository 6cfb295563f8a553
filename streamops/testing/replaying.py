"""A transform over scripted micro-batches, without Spark.

What Spark does is done here by its rules: the watermark, the shards, the micro-batch without
data at the end of a run. What streamops does is done by the drive's own code, from the packing
of rows to the step of a shard and the bytes it stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamops.kernel.time import Duration, spark_watermark
from streamops.spark.annotate import AnnotateTransform
from streamops.spark.pairs import PairTransform
from streamops.spark.running import RunningTransform
from streamops.testing.batches import canonical, schema_of, to_table
from streamops.testing.clocks import ReplayedClock, chained
from streamops.testing.pairs import PairReplay, schemas_of
from streamops.testing.results import BatchResult
from streamops.testing.running import AnnotateReplay, RunningReplay
from streamops.testing.shards import (
    Shards,
    carried_delay,
    newest_of,
    packs_of,
    parsed,
    through_spark,
)

if TYPE_CHECKING:
    from streamops.testing.batches import Batch
    from streamops.testing.clocks import Chain
    from streamops.testing.pairs import Delays, PairBatch, Schemas

__all__ = ["Replay", "replay"]


def replay(
    transform: Chain | PairTransform,
    batches: Iterable[Batch] | Iterable[PairBatch],
    *,
    watermark: Delays = None,
    shards: int | None = None,
    schema: pa.Schema | Schemas | None = None,
    restart: bool = False,
    flush: bool = False,
) -> list[BatchResult]:
    """Run a streaming transform over scripted micro-batches, without Spark.

    The results are those of a query with the trigger ``availableNow``: one per micro-batch,
    and one more for the micro-batch without data that Spark adds where the last one moved the
    watermark. The kernel runs, whatever the transform says of engines and state APIs.

    Parameters
    ----------
    transform : Transform, RunningTransform, AnnotateTransform, PairTransform, or list of ClockTransform and Transform
        Such as ``windows.tumbling(...)``, or ``[time.producers(...), windows.tumbling(...)]``.
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches. An empty one is a micro-batch, too. For an operator with two inputs,
        pairs of them: ``(left, right)``, and None for a side that has no rows.
    watermark : duration, or pair of durations, optional
        Delay of a watermark that the frame brings, as ``withWatermark`` would define it. With two
        inputs: one for both, or a pair, in which None is a side that brings none.
    shards : int, optional
        Instead of the transform's own number.
    schema : Schema, or pair of Schema, optional
        The columns; by default those of the first table, or what all rows together suggest.
    restart : bool, default False
        Keep nothing of the operator between two micro-batches but the bytes that a checkpoint
        would hold. Watermarks go on: see :class:`streamops.testing.pairs.PairReplay` for a
        restart of the query.
    flush : bool, default False
        Add a last result with what is still open: no stream would publish it.

    Returns
    -------
    list of BatchResult

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
    script: list[Any] = list(batches)
    given: Any = schema
    delay: Any = watermark
    said: dict[str, Any] = {"shards": shards, "restart": restart}
    if isinstance(transform, RunningTransform):
        return RunningReplay(transform, schema_of(script, given), **said).run(script)
    if isinstance(transform, AnnotateTransform):
        return AnnotateReplay(transform, schema_of(script, given), **said).run(script)
    played: Replay | PairReplay
    if isinstance(transform, PairTransform):
        pair = schemas_of(script, given)
        played = PairReplay(transform, pair, watermark=delay, **said)
    else:
        columns = schema_of(script, given)
        played = Replay(transform, columns, watermark=delay, **said)
    results = played.run(script)
    return [*results, played.flush()] if flush else results


class Replay:
    """A query over scripted micro-batches that can be stopped and continued.

    Parameters
    ----------
    transform : Transform, or list of ClockTransform and Transform
    schema : Schema
        The columns of every micro-batch.
    watermark, shards, restart
        As in :func:`replay`.
    """

    def __init__(
        self,
        transform: Chain,
        schema: pa.Schema,
        *,
        watermark: Duration | None = None,
        shards: int | None = None,
        restart: bool = False,
    ) -> None:
        clock, transform = chained(transform)
        self._transform = transform
        self._schema = canonical(schema)
        self._clock: ReplayedClock | None = None
        brought, on = parsed(watermark), transform.settings.time
        if clock is not None:
            self._clock = ReplayedClock(clock, self._schema, watermark=watermark is not None)
            brought, on = clock.settings.delay, clock.settings.time
        settings = transform.settings
        self._carried = carried_delay(
            settings.time,
            settings.delay,
            settings.lag,
            brought=brought,
            on=on,
            where=transform.operator,
        )
        self._restart = restart
        bind = partial(settings.bind, self._schema, carried=self._carried)
        count = transform.options.shards if shards is None else shards
        self._shards = Shards(transform, bind, count, restart=restart)

    def run(self, batches: Iterable[Batch]) -> list[BatchResult]:
        """Run until all micro-batches are done and no more could be said, as ``availableNow``."""
        results = [self._data(to_table(batch, self._schema)) for batch in batches]
        return [*results, *self._shards.end()]

    def flush(self) -> BatchResult:
        """What is still open, as if the stream were over. Changes nothing."""
        return self._shards.flush()

    def _data(self, rows: pa.Table) -> BatchResult:
        spec, define = self._shards.spec, self._carried is None
        pack = partial(self._transform.core.pack, spec)
        packs, newest = packs_of(rows, pack, spec, self._shards.count, newest=define)
        if self._restart and self._clock is not None and self._clock.stored is not None:
            self._clock.stored = through_spark(self._clock.stored)
        result = self._shards.step(packs)
        if self._carried is None:
            assert spec.delay is not None
            delay = spec.delay + spec.lag
        else:
            delay = self._carried
            newest = newest_of(rows, spec.time)
        if self._clock is not None:
            told = self._clock.tick(rows)
            newest, result = told.clock, replace(result, clock=told)
        self._shards.move(spark_watermark(newest, delay))
        return result
