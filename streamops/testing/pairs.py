"""An operator with two inputs over scripted micro-batches, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from streamops.kernel.errors import SpecError
from streamops.kernel.pairs import Side, SideName
from streamops.kernel.time import Duration, spark_watermark
from streamops.spark.pairs import PairTransform, bound
from streamops.spark.wire import packing
from streamops.testing.batches import canonical, schema_of, to_table
from streamops.testing.results import BatchResult
from streamops.testing.running import RunningReplay, followed
from streamops.testing.shards import Packs, Shards, carried_delay, newest_of, packs_of, parsed

if TYPE_CHECKING:
    from streamops.testing.batches import Batch

    PairBatch: TypeAlias = tuple[Batch | None, Batch | None]

__all__ = ["SIDES", "Delays", "PairReplay", "Schemas", "both_delays", "schemas_of", "tables_of"]

Delays: TypeAlias = "Duration | tuple[Duration | None, Duration | None] | None"
Schemas: TypeAlias = "tuple[pa.Schema | None, pa.Schema | None]"
SIDES: tuple[SideName, SideName] = ("left", "right")


class PairReplay:
    """A query over pairs of scripted micro-batches that can be stopped and continued.

    Spark's watermark is the least of those of the two sides, so it does not move before both were
    seen. The query knows how far each side was; the checkpoint knows the least only. So after a
    restart of the query (:meth:`run` called again) both must be seen anew before it moves on.

    Parameters
    ----------
    transform : PairTransform
    schema : pair of Schema
        The columns of the left and the right micro-batches.
    watermark, shards, restart
        As in :func:`streamops.testing.replay`.
    """

    def __init__(
        self,
        transform: PairTransform,
        schema: tuple[pa.Schema, pa.Schema],
        *,
        watermark: Delays = None,
        shards: int | None = None,
        restart: bool = False,
    ) -> None:
        _refuse_beyond(transform)
        then, second = transform.then, None
        if then is not None:
            transform, second = transform.steps(then)
        self._transform = transform
        left, right = self._schemas = canonical(schema[0]), canonical(schema[1])
        self._carried = _carried(transform, both_delays(watermark))
        bind = partial(bound, transform, left, right, carried=self._carried)
        count = transform.options.shards if shards is None else shards
        whole = second is not None
        self._shards = Shards(transform, bind, count, restart=restart, whole=whole)
        self._then: RunningReplay | None = None
        if second is not None:
            joined = self._shards.spec.output
            self._then = RunningReplay(second, joined, shards=shards, restart=restart)
        # Spark's watermarks of both sides, in milliseconds. A checkpoint does not have them.
        self._seen = [0, 0]

    def run(self, batches: Iterable[PairBatch]) -> list[BatchResult]:
        """Run until all micro-batches are done and no more could be said, as ``availableNow``."""
        self._seen = [0, 0]
        results = [self._data(tables_of(batch, self._schemas)) for batch in batches]
        return [*results, *self._shards.end()]

    def flush(self) -> BatchResult:
        """What is still open, as if the streams were over. Changes nothing."""
        result = self._shards.flush()
        return result if self._then is None else followed(result, self._then.flush())

    def _data(self, tables: tuple[pa.Table, pa.Table]) -> BatchResult:
        spec, timed = self._shards.spec, []
        packs: Packs = {}
        sides = (spec.left, spec.right)
        for at, (side, rows) in enumerate(zip(SIDES, tables, strict=True)):
            came, newest = self._packed(side, sides[at], rows)
            for shard, found in came.items():
                packs[shard] = [*packs.get(shard, []), *found]
            if sides[at].time is not None:
                own, carried = sides[at].delay, self._carried[at]
                delay = carried if own is None else own + spec.lag
                self._seen[at] = max(self._seen[at], spark_watermark(newest, delay or 0))
                timed.append(self._seen[at])
        result = self._shards.step(packs)
        self._shards.move(min(timed, default=0))
        return result if self._then is None else followed(result, self._then.step(result.table))

    def _packed(self, side: SideName, of: Side, rows: pa.Table) -> tuple[Packs, int | None]:
        """Packs of each shard, and the greatest event time that the side's watermark sees."""
        pack = packing(self._transform.core, self._shards.spec, side)
        define = of.delay is not None
        packs, newest = packs_of(rows, pack, of, self._shards.count, newest=define)
        if not define and of.time is not None:
            newest = newest_of(rows, of.time)
        return packs, newest


def schemas_of(batches: Sequence[PairBatch], schema: Schemas | None) -> tuple[pa.Schema, pa.Schema]:
    """Columns of both sides of a script: as given, of its first tables, or as its rows suggest."""
    given: Any = (None, None) if schema is None else schema
    if not isinstance(given, tuple) or len(given) != 2:
        raise _not_a_pair("schema", given, "a pair of schemas: schema=(left, right)")
    for batch in batches:
        _refuse_single(batch)
    left, right = (
        schema_of([batch[at] for batch in batches if batch[at] is not None], given[at])
        for at in (0, 1)
    )
    return left, right


def tables_of(batch: PairBatch, schemas: tuple[pa.Schema, pa.Schema]) -> tuple[pa.Table, pa.Table]:
    """Both sides of a micro-batch with exactly these columns; None is no rows."""
    _refuse_single(batch)
    left, right = (
        schema.empty_table() if rows is None else to_table(rows, schema)
        for rows, schema in zip(batch, schemas, strict=True)
    )
    return left, right


def both_delays(watermark: Delays) -> tuple[Duration | None, Duration | None]:
    """Delays of the watermarks that the frames bring: a pair, or one for both."""
    if isinstance(watermark, tuple):
        if len(watermark) != 2:
            raise _not_a_pair("watermark", watermark, 'one delay, or a pair: ("5 seconds", None)')
        return watermark
    return watermark, watermark


def _refuse_beyond(transform: PairTransform) -> None:
    if (parameter := transform.beyond_a_script) is not None:
        raise SpecError(
            "NOT_IN_A_SCRIPT",
            f"a replay knows no frames, and `{parameter}` is one",
            where="streamops.testing",
            got=f"{parameter}=... in {transform.operator}",
            expected="a transform without it",
            fix=f"leave {parameter} out, and write its rows into the script; or run it on Spark: "
            "streamops.testing.stream",
        )


def _refuse_single(batch: Any) -> None:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise _not_a_pair("a micro-batch", batch, "a pair: (rows of the left, rows of the right)")


def _not_a_pair(what: str, got: Any, expected: str) -> SpecError:
    return SpecError(
        "NOT_A_PAIR",
        f"{what} of an operator with two inputs is a pair",
        where="streamops.testing",
        got=f"{got!r:.100}",
        expected=expected,
        fix="write None for a side that has nothing: (rows, None)",
    )


def _carried(
    transform: PairTransform, brought: tuple[Duration | None, Duration | None]
) -> tuple[int | None, int | None]:
    settings, found = transform.settings, []
    for side, time, delay, each in zip(
        SIDES, settings.times, settings.delays, brought, strict=True
    ):
        where = f"{transform.operator}, {side} frame"
        carried = None
        if time is not None:
            lag, micros = settings.lag, parsed(each)
            carried = carried_delay(time, delay, lag, brought=micros, on=time, where=where)
        elif any(settings.times):
            carried = parsed(each)
        found.append(carried)
    left, right = found
    return left, right
