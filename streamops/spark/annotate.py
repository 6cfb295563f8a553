"""Transforms that keep state and no watermark: each row comes out in its micro-batch or not at all,
with something said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.contract import State, StateFormat
from streamops.spark.checks import METRICS, STATE_API, metric_name, state_api
from streamops.spark.columns import (
    arrow_schema,
    column,
    refuse_collated,
    refuse_duplicates,
    spark_schema,
)
from streamops.spark.inputs import packed
from streamops.spark.metadata import drop_stale_metadata
from streamops.spark.packing import unpacker
from streamops.spark.rowwise import noted, refuse_taken
from streamops.spark.runners import Stored
from streamops.spark.transform import Options, is_named, show_fields
from streamops.spark.untimed import untimed
from streamops.spark.wire import EMITTED, cells_of, framed, opened, packs_in

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AnnotateTransform", "Annotating", "Annotation", "Annotator"]


class Annotator(Protocol):
    """The algorithm: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Columns of the state's tables."""

    def pack(self, spec: Any, rows: pa.Table) -> pa.Table:
        """What ``step`` wants of the rows."""

    def empty(self, spec: Any) -> State:
        """The state before the first step."""

    def step(self, spec: Any, state: State, rows: pa.Table) -> tuple[State, pa.Table]:
        """One micro-batch: the state after it, and its rows with what is said of them."""

    def run(self, spec: Any, rows: pa.Table) -> pa.Table:
        """The batch result over all rows."""

    def delivered(self, spec: Any, rows: pa.Table) -> tuple[pa.Table, Sequence[int]]:
        """What comes out of the rows of a step or a batch, and the counts that the core tells."""


class Annotation(Protocol):
    """What a user said about such a transform: a dataclass, shown field by field."""

    @property
    def by(self) -> tuple[str, ...]:
        """Key columns."""

    @property
    def adds(self) -> tuple[str, ...]:
        """Columns that it adds."""

    @property
    def marked(self) -> str:
        """The column whose metadata tells the next operator about this one."""

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns it reads."""

    def bind(self, schema: pa.Schema) -> Any:
        """The spec over these columns."""

    def finish(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """The rows as the core left them, with the columns of the result."""

    def finished(self, rows: pa.Table) -> pa.Table:
        """The same without Spark, of a table."""

    @property
    def told(self) -> tuple[str, ...]:
        """Names of the counts that the core tells: all there are, or none of them."""

    def counts(self) -> Mapping[str, Column]:
        """What is counted, over the columns of the result, where the core tells none."""


@dataclass(frozen=True, slots=True, repr=False)
class AnnotateTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``.

    Its ``repr`` shows the whole specification. Streaming and batch frames are served alike.
    """

    operator: str
    settings: Annotation
    options: Options
    core: Annotator

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked."""
        where, frame = self.operator, drop_stale_metadata(frame)
        refuse_duplicates(frame, where=where)
        self.settings.check(frame)
        refuse_taken(frame, self.settings.adds, where=where)
        refuse_collated(frame, self.settings.by, where=where)
        spec = self.settings.bind(arrow_schema(frame, where=where))
        api = None
        if frame.isStreaming:
            api = state_api(frame, self.options.state_api, where=where)
        names = frame.schema.names
        asked = frame.isStreaming or is_named(self.options, where)
        name, taken = metric_name(frame, self.options.name) if asked else (None, [])
        rows = self._rows(frame, spec, api, name)
        result = self.settings.finish(_restored(rows, frame), names)
        counted = [count.alias(each) for each, count in self.settings.counts().items()]
        if name is not None and counted:
            result = result.observe(name, *counted)
        if api is None:
            return result
        told = {METRICS: ",".join(taken), STATE_API: api}
        return noted(result, self.settings.marked, told)

    def __repr__(self) -> str:
        said = [*show_fields(self.settings), *show_fields(self.options)]
        kept = (each for each in said if not each.startswith("engine="))
        return f"{self.operator}({', '.join(kept)})"

    def _rows(self, frame: DataFrame, spec: Any, api: str | None, name: str | None) -> DataFrame:
        """The rows with what the core says of them; what it tells is counted under this name."""
        packs = packed(frame, partial(self.core.pack, spec), spec, self.options.shards)
        made = spark_schema(spec.output)
        step = Annotating(self.operator, self.core, spec, self.options.shards)
        told = self.settings.told if name is not None else ()
        if api is not None:
            emitted = untimed(packs, step, EMITTED, api)
        elif told:
            emitted = packs.groupBy("shard").applyInArrow(_packed_runner(step), EMITTED)
        else:
            return packs.groupBy("shard").applyInArrow(_runner(step), made)
        if told:
            totals = (F.sum(F.col("counts")[i]) for i in range(len(told)))
            named = zip(told, totals, strict=True)
            counted = [F.coalesce(total, F.lit(0)).alias(each) for each, total in named]
            emitted = emitted.observe(str(name), *counted)
        return emitted.select("emitted").mapInArrow(unpacker(spec.output), made)


def _runner(step: Annotating) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        return step.run(packs_in(table))[0]

    return run


def _packed_runner(step: Annotating) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        frame = _shown(*step.run(packs_in(table)))
        kinds = pa.schema([("emitted", pa.binary()), ("counts", pa.list_(pa.int64()))])
        return pa.Table.from_pandas(frame, kinds, preserve_index=False)

    return run


def _restored(rows: DataFrame, frame: DataFrame) -> DataFrame:
    """The rows with the types and comments that the frame's columns have."""
    own = {field.name: field for field in frame.schema.fields}
    columns = []
    for made in rows.schema.fields:
        each = column(made.name)
        if made.name in own:
            field = own[made.name]
            each = each if field.dataType == made.dataType else each.cast(field.dataType)
            each = each.alias(made.name, metadata=field.metadata or {})
        columns.append(each)
    return rows.select(*columns)


@dataclass(frozen=True, slots=True)
class Annotating:
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
    core: Annotator
    spec: Any
    shards: int

    def __call__(
        self, stored: Sequence[Any] | None, packs: list[bytes]
    ) -> tuple[tuple[Any, ...] | None, pd.DataFrame | None]:
        """Advance by one micro-batch: what to store; packed rows that come out, and counts."""
        if not packs:  # a shard without rows is left alone
            return None, None
        known = self.core.STATE, self.spec.identity, self.shards
        state = self.core.empty(self.spec)
        if stored is not None:
            state = Stored(*stored).state(known, where=self.operator)
        after, rows = self.core.step(self.spec, state, *opened(self.core, self.spec, packs))
        kept = astuple(Stored.of(after, known))
        return kept, _shown(*self.core.delivered(self.spec, rows))

    def run(self, packs: Iterable[bytes | pa.Buffer]) -> tuple[pa.Table, Sequence[int]]:
        """The batch: the rows that come out, and counts."""
        rows = self.core.run(self.spec, *opened(self.core, self.spec, packs))
        return self.core.delivered(self.spec, rows)


def _shown(rows: pa.Table, counts: Sequence[int]) -> pd.DataFrame:
    return framed(cells_of(rows), counts)
