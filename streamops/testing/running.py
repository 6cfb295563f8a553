"""Running values of keys over scripted micro-batches: without Spark, and what Spark told of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from streamops.kernel.codec import ipc_read
from streamops.kernel.columns import concat, conform
from streamops.kernel.contract import Counts
from streamops.spark.annotate import Annotating
from streamops.spark.packing import NOTHING, packer
from streamops.spark.running import Keeping, RunningTransform, told_by
from streamops.testing.batches import canonical, to_table
from streamops.testing.results import BatchResult, split

if TYPE_CHECKING:
    import pandas as pd

    from streamops.testing.batches import Batch

    _Stepped: TypeAlias = tuple[Sequence[Any] | None, pd.DataFrame | None]

__all__ = ["AnnotateReplay", "RunningReplay", "followed", "noted", "packs_by_shard", "told"]


def packs_by_shard(core: Any, spec: Any, shards: int, rows: pa.Table) -> dict[int, list[bytes]]:
    """The packs of a micro-batch, of an operator that goes by no time; every shard is visited."""
    packs: dict[int, list[bytes]] = {}
    pack: Any = packer(partial(core.pack, spec), spec, shards, newest=False)
    for row in pack(iter(rows.select(spec.input.names).to_batches())):
        (shard,), (packed,), _ = (column.to_pylist() for column in row.columns)
        packs.setdefault(shard, []).extend([] if packed == NOTHING else [packed])
    return packs


class _Replay(ABC):
    """An operator that goes by no time, from micro-batch to micro-batch.

    Parameters
    ----------
    transform : RunningTransform or AnnotateTransform
    schema : Schema
        The columns of every micro-batch.
    shards, restart
        As in :func:`streamops.testing.replay`.
    """

    spec: Any

    def __init__(
        self,
        transform: Any,
        schema: pa.Schema,
        *,
        shards: int | None = None,
        restart: bool = False,
    ) -> None:
        self.schema = canonical(schema)
        self._transform = transform
        self._restart = restart
        self._count = transform.options.shards if shards is None else shards
        self._stored: dict[int, Sequence[Any]] = {}
        self._batches = 0
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Make anew what is no state."""

    @abstractmethod
    def _step(self, stored: Sequence[Any] | None, packs: list[bytes]) -> _Stepped:
        """The step of a shard: what is to be stored, if it changed, and what it put out, if anything."""

    @abstractmethod
    def _result(self, table: pa.Table, frames: Sequence[pd.DataFrame]) -> BatchResult:
        """The result of a micro-batch in which shards put out these rows, of these frames."""

    def run(self, batches: Iterable[Batch]) -> list[BatchResult]:
        """Run until all micro-batches are done: there is nothing to say after them."""
        return [self.step(to_table(batch, self.schema)) for batch in batches]

    def step(self, rows: pa.Table) -> BatchResult:
        """A micro-batch."""
        if self._restart:  # state is kept as bytes in any case; the rest is made anew
            self._start()
        output, frames = self.spec.output, []
        packs = packs_by_shard(self._transform.core, self.spec, self._count, rows)
        for shard, came in packs.items():
            kept, frame = self._step(self._stored.get(shard), came)
            if kept is not None:
                self._stored[shard] = kept
            if frame is not None:
                frames.append(frame)
        cells = [cell for frame in frames for cell in frame["emitted"] if cell is not None]
        emitted = [output.empty_table(), *(conform(ipc_read(cell), output) for cell in cells)]
        result = self._result(concat(emitted), frames)
        self._batches += 1
        return result


class RunningReplay(_Replay):
    """Running values of keys, from micro-batch to micro-batch; ``transform`` is a RunningTransform."""

    def _start(self) -> None:
        transform, count = self._transform, self._count
        self.spec = transform.settings.bind(self.schema, shards=count)
        self._keeping = Keeping(transform.operator, transform.core, self.spec, count)

    def _step(self, stored: Sequence[Any] | None, packs: list[bytes]) -> _Stepped:
        return self._keeping(stored, packs)

    def _result(self, table: pa.Table, frames: Sequence[pd.DataFrame]) -> BatchResult:
        names = (*told_by(self._transform.core), "state_rows", "state_bytes")
        totals = dict.fromkeys(names, 0)
        for frame in frames:
            for name, value in zip(names, frame["counts"][0], strict=True):
                totals[name] += value
        return told(self._transform, self._batches, table, totals)

    def flush(self) -> BatchResult:
        """What is still open: nothing."""
        nothing = self.spec.output.empty_table()
        return BatchResult(self._batches, nothing, pa.table({}), None, Counts(), 0, 0)


class AnnotateReplay(_Replay):
    """Rows of which something is said, from micro-batch to micro-batch; of an AnnotateTransform."""

    def _start(self) -> None:
        transform = self._transform
        self.spec = transform.settings.bind(self.schema)
        self._annotating = Annotating(transform.operator, transform.core, self.spec, self._count)

    def _step(self, stored: Sequence[Any] | None, packs: list[bytes]) -> _Stepped:
        return self._annotating(stored, packs)

    def _result(self, table: pa.Table, frames: Sequence[pd.DataFrame]) -> BatchResult:
        return noted(self._batches, self._transform.settings.finished(table))


def noted(number: int, table: pa.Table) -> BatchResult:
    """The result of a micro-batch whose rows have something said of them; it counts nothing."""
    return BatchResult(number, table, pa.table({}), None, None, None, None)


def followed(first: BatchResult, second: BatchResult) -> BatchResult:
    """The result of an operator of two steps: what came is counted by the first, what goes by the other."""
    table, late = split(second.table, None)
    counts = None
    if first.counts is not None and second.counts is not None:
        said = second.counts
        counts = replace(first.counts, results=said.results, corrections=said.corrections)
    rows, size = (
        None if one is None or other is None else one + other
        for one, other in (
            (first.state_rows, second.state_rows),
            (first.state_bytes, second.state_bytes),
        )
    )
    return BatchResult(first.batch, table, late, first.watermark, counts, rows, size)


def told(
    transform: RunningTransform, number: int, table: pa.Table, metrics: Mapping[str, Any]
) -> BatchResult:
    """The result of a micro-batch with these counts; what is ignored is counted as rejected."""
    names = told_by(transform.core)
    said = {field: metrics.get(name) or 0 for name, field in names.items()}
    kind: type[Counts] = getattr(transform.core, "COUNTS", Counts)
    rows, size = (metrics.get(name) or 0 for name in ("state_rows", "state_bytes"))
    return BatchResult(number, table, pa.table({}), None, kind(**said), rows, size)
