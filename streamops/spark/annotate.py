"""Transforms that keep state and no watermark: each row comes out once, in its micro-batch, with
something said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from streamops.kernel.codec import ipc_read
from streamops.kernel.columns import concat
from streamops.kernel.contract import State, StateFormat
from streamops.spark.columns import (
    arrow_schema,
    column,
    refuse_collated,
    refuse_duplicates,
    spark_schema,
)
from streamops.spark.packing import NOTHING, unpacker
from streamops.spark.preflight import METRICS, STATE_API, metric_name, state_api
from streamops.spark.rowwise import noted, refuse_taken
from streamops.spark.runners import Stored, cells_of
from streamops.spark.transform import Options, shown
from streamops.spark.untimed import packed, untimed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AnnotateTransform", "Annotating", "Annotation", "Annotator"]

_EMITTED = "emitted binary"


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

    def counts(self) -> Mapping[str, Column]:
        """What is counted, over the columns of the result."""


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
        where = self.operator
        refuse_duplicates(frame, where=where)
        self.settings.check(frame)
        refuse_taken(frame, self.settings.adds, where=where)
        refuse_collated(frame, self.settings.by, where=where)
        spec = self.settings.bind(arrow_schema(frame, where=where))
        api = None
        if frame.isStreaming:
            api = state_api(frame, self.options.state_api, where=where)
        names = frame.schema.names
        rows = self._rows(frame, spec, api)
        result = self.settings.finish(_restored(rows, frame), names)
        counted = [count.alias(name) for name, count in self.settings.counts().items()]
        if api is None:
            # Nobody listens to the counts of a batch unasked, and Spark refuses two of one name.
            asked = self.options.name != where.rpartition(".")[2]
            return result.observe(self.options.name, *counted) if asked else result
        name, taken = metric_name(frame, self.options.name)
        told = {METRICS: ",".join(taken), STATE_API: api}
        return noted(result.observe(name, *counted), self.settings.marked, told)

    def __repr__(self) -> str:
        said = [*shown(self.settings), *shown(self.options)]
        kept = (each for each in said if not each.startswith("engine="))
        return f"{self.operator}({', '.join(kept)})"

    def _rows(self, frame: DataFrame, spec: Any, api: str | None) -> DataFrame:
        """The rows with what the core says of them."""
        packs = packed(frame, self.core, spec, self.options.shards)
        made = spark_schema(spec.output)
        if api is None:
            return packs.groupBy("shard").applyInArrow(_runner(self.core, spec), made)
        step = Annotating(self.operator, self.core, spec, self.options.shards)
        return untimed(packs, step, _EMITTED, api).mapInArrow(unpacker(spec.output), made)


def _runner(core: Annotator, spec: Any) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        return core.run(spec, _opened(core, spec, table.column("packed").to_pylist()))

    return run


def _opened(core: Annotator, spec: Any, packs: list[bytes]) -> pa.Table:
    rows = [ipc_read(pack) for pack in packs if pack != NOTHING]
    return concat(rows or [core.pack(spec, spec.input.empty_table())])


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
        """Advance by one micro-batch: what to store, and packed rows."""
        import pandas as pd

        if not packs:  # a shard without rows is left alone
            return None, None
        known = self.core.STATE, self.spec.identity, self.shards
        state = self.core.empty(self.spec)
        if stored is not None:
            state = Stored(*stored).state(known, where=self.operator)
        after, rows = self.core.step(self.spec, state, _opened(self.core, self.spec, packs))
        cells = pd.DataFrame({"emitted": [*cells_of(rows)]}, dtype=object)
        return astuple(Stored.of(after, known)), cells
