"""Transforms that keep a value per key, and tell it in each micro-batch that changes it.

No watermark, no timers: a row counts whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.kernel.contract import Core, Counts, Spec
from streamops.spark.checks import (
    METRICS,
    ONCE,
    STATE_API,
    metric_name,
    state_api,
)
from streamops.spark.columns import arrow_schema, refuse_collated, spark_schema
from streamops.spark.inputs import packed
from streamops.spark.metadata import drop_stale_metadata
from streamops.spark.packing import unpacker
from streamops.spark.results import declared, refuse_revised, refuse_upserts
from streamops.spark.runners import Stored
from streamops.spark.transform import Options, is_named, show_fields
from streamops.spark.untimed import untimed
from streamops.spark.wire import EMITTED, cells_of, framed, opened, packs_in, totals

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TOLD", "Keeping", "PerKey", "RunningTransform", "told_by"]

TOLD = {
    "rows": "rows",
    "ignored": "rejected",
    "results": "results",
    "corrections": "corrections",
}
"""What is told of a micro-batch, and where it stands among the counts; unless the core has a ``TOLD``
of its own. How much is kept is told as well."""

_KEPT = ("state_rows", "state_bytes")


def told_by(core: Any) -> dict[str, str]:
    """What is told of a micro-batch by a core, and where it stands among its counts."""
    told: dict[str, str] = getattr(core, "TOLD", TOLD)
    return told


class PerKey(Protocol):
    """What a user said about such a transform: a dataclass, shown field by field."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared or computed with."""

    @property
    def of_results(self) -> bool:
        """Whether it reads rows that revise others, instead of events."""

    @property
    def needs_preimages(self) -> bool:
        """Whether an update must come with the row before."""

    def bind(self, schema: pa.Schema, *, shards: int) -> Any:
        """The spec over these columns."""


@dataclass(frozen=True, slots=True, repr=False)
class RunningTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``.

    Its ``repr`` shows the whole specification. Streaming and batch frames are served alike.
    """

    operator: str
    settings: PerKey
    options: Options
    core: Core

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked."""
        where, shards, frame = self.operator, self.options.shards, drop_stale_metadata(frame)
        schema = arrow_schema(frame, where=where)
        refuse_collated(frame, self.settings.reads, where=where)
        spec = self.settings.bind(schema, shards=shards)
        if not self.settings.of_results:
            refuse_revised(frame, where=where)
        if self.settings.needs_preimages:
            refuse_upserts(frame, where=where)
        made = spark_schema(spec.output)
        if not frame.isStreaming:
            if is_named(self.options, where):
                frame = frame.observe(self.options.name, F.count(F.lit(1)).alias("rows"))
            packs = packed(frame, partial(self.core.pack, spec), spec, shards)
            rows = packs.groupBy("shard").applyInArrow(_runner(self.core, spec), made)
            return declared(rows, frame, spec, None)
        api = state_api(frame, self.options.state_api, where=where)
        name, names = metric_name(frame, self.options.name)
        packs = packed(frame, partial(self.core.pack, spec), spec, shards)
        step = Keeping(where, self.core, spec, shards)
        emitted = untimed(packs, step, EMITTED, api)
        emitted = emitted.observe(name, *totals((*told_by(self.core), *_KEPT)))
        rows = emitted.select("emitted").mapInArrow(unpacker(spec.output), made)
        once = [f.metadata[ONCE] for f in frame.schema.fields if ONCE in (f.metadata or {})]
        mark = {METRICS: ",".join(names), STATE_API: api} | ({ONCE: once[0]} if once else {})
        return declared(rows, frame, spec, mark)

    def __repr__(self) -> str:
        said = [*show_fields(self.settings), *show_fields(self.options)]
        kept = (each for each in said if not each.startswith("engine="))
        return f"{self.operator}({', '.join(kept)})"


@dataclass(frozen=True, slots=True)
class Keeping:
    """The step of one shard, from what Spark stored to what Spark shall store.

    Parameters
    ----------
    operator : str
        For errors.
    core, spec : the operator
    shards : int
        As written into the state and checked against it.
    """

    operator: str
    core: Core
    spec: Spec
    shards: int

    def __call__(
        self, stored: Sequence[Any] | None, packs: list[bytes]
    ) -> tuple[tuple[Any, ...] | None, pd.DataFrame]:
        """Advance by one micro-batch; without rows, only say how much is kept."""
        before = None if stored is None else Stored(*stored)
        if not packs:
            kept = (0, 0) if before is None else (before.entries, len(before.blob))
            return None, self._told([], None, *kept)
        known = self.core.STATE, self.spec.identity, self.shards
        state = self.core.empty(self.spec)
        if before is not None:
            state = before.state(known, where=self.operator)
        step = self.core.step(self.spec, state, *opened(self.core, self.spec, packs), None)
        after = Stored.of(step.state, known)
        cells = [*cells_of(step.emitted)]
        return astuple(after), self._told(cells, step.counts, after.entries, len(after.blob))

    def _told(
        self, cells: list[bytes], counts: Counts | None, entries: int, size: int
    ) -> pd.DataFrame:
        names = told_by(self.core).values()
        said = [getattr(counts, name) if counts else 0 for name in names]
        return framed(cells, [*said, entries, size])


def _runner(core: Core, spec: Any) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        return core.run(spec, *opened(core, spec, packs_in(table)))

    return run
