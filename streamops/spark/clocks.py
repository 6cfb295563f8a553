"""Clocks: operators that pass rows on unchanged, and define the watermark by more than the
greatest event time.

The frame is read by two branches of a union. In one of them the rows stay as they are. In the
other each task sums up what it saw, the sums meet in one group of a state operator, and that sends
the time of its clock. The watermark is defined above the union, so that it lies below whatever
follows; and rows of the clock leave there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from streamops.kernel.clocks import ClockCore, ClockSpec
from streamops.kernel.errors import WatermarkError
from streamops.spark.checks import (
    INSTANT,
    METRICS,
    ONCE,
    WATERMARK,
    metric_name,
    state_api,
)
from streamops.spark.clock_runners import (
    TICKED,
    TICKED_NAMES,
    Ticking,
    TickProcessor,
    by_one_group,
)
from streamops.spark.columns import arrow_schema, column, refuse_collated, require_name
from streamops.spark.metadata import drop_stale_metadata
from streamops.spark.packing import PACKED, summarizer
from streamops.spark.runners import STORED
from streamops.spark.transform import StateApi, require_choice, show_fields

__all__ = ["ClockOptions", "ClockSettings", "ClockTransform", "refuse_watermark"]

_CLOCK = "__streamops_clock"
_INSTANTS = ("clock", "newest")


class ClockSettings(Protocol):
    """What a user said about a clock: a dataclass, shown field by field."""

    @property
    def time(self) -> str:
        """Event-time column, which gets the watermark."""

    @property
    def delay(self) -> int:
        """How far the watermark is behind the clock, in microseconds."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that are read."""

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without these columns."""

    def bind(self, schema: pa.Schema) -> ClockSpec:
        """The spec over columns of these types."""

    def inputs(self) -> Sequence[Column]:
        """What the core reads, in the order of ``ClockSpec.input``."""


@dataclass(frozen=True, slots=True)
class ClockOptions:
    """How a clock runs, whatever it goes by.

    Parameters
    ----------
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        Spark's interface to state.
    name : str
        Under which the counts appear in ``observedMetrics``.
    """

    state_api: StateApi
    name: str

    def validated(self, where: str) -> ClockOptions:
        """These options, or an error."""
        require_choice(self.state_api, StateApi, parameter="state_api", where=where)
        require_name(self.name, parameter="name", where=where)
        return self


@dataclass(frozen=True, slots=True, repr=False)
class ClockTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``.

    Its ``repr`` shows the whole specification. A batch frame is returned as it is.
    """

    operator: str
    settings: ClockSettings
    options: ClockOptions
    core: ClockCore

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked."""
        frame = drop_stale_metadata(frame)
        self.settings.check(frame)
        refuse_collated(frame, self.settings.reads, where=self.operator)
        spec = self.settings.bind(
            arrow_schema(frame, where=self.operator, only=self.settings.reads)
        )
        if not frame.isStreaming:
            return frame
        refuse_watermark(frame, self.settings.time, where=self.operator)
        api = state_api(frame, self.options.state_api, where=self.operator)
        name, names = metric_name(frame, self.options.name)
        ticks = self._ticks(frame, spec, api).observe(name, *_told())
        return self._with_watermark(frame, ticks, names, api)

    def __repr__(self) -> str:
        said = [*show_fields(self.settings), *show_fields(self.options)]
        return f"{self.operator}({', '.join(said)})"

    def with_state_api(self, api: StateApi) -> ClockTransform:
        """The same behind another of Spark's interfaces to state."""
        return replace(self, options=replace(self.options, state_api=api))

    def _ticks(self, frame: DataFrame, spec: ClockSpec, api: StateApi) -> DataFrame:
        """One row per micro-batch: the clock, and what is told of it."""
        inputs = [each.alias(f"c{i}") for i, each in enumerate(self.settings.inputs())]
        packs = frame.select(*inputs).mapInArrow(summarizer(self.core, spec), PACKED)
        place = packs.select("shard", "packed").groupBy("shard")
        ticking = Ticking(self.operator, self.core, spec)
        if api == "applyInPandasWithState":
            # Without timeouts, Spark lets other stateful operators follow.
            return place.applyInPandasWithState(
                by_one_group(ticking), TICKED, STORED, "append", GroupStateTimeout.NoTimeout
            )
        return place.transformWithStateInPandas(TickProcessor(ticking), TICKED, "append", "None")

    def _with_watermark(
        self, frame: DataFrame, ticks: DataFrame, names: list[str], api: StateApi
    ) -> DataFrame:
        fields = frame.schema.fields
        clock = F.timestamp_micros("clock").alias(_CLOCK)
        nothing = [F.lit(None).cast(f.dataType).alias(f.name) for f in fields]
        rows = frame.select("*", F.lit(None).cast("timestamp").alias(_CLOCK))
        # A tick before the first producer has no clock, as rows have none: it must not be one.
        both = rows.union(ticks.where(F.col("clock").isNotNull()).select(*nothing, clock))
        milliseconds = self.settings.delay // 1_000
        marked = both.withWatermark(_CLOCK, f"{milliseconds} milliseconds")
        # A condition that follows on a column of the rows would be pushed below the union, where
        # the clock's rows have nothing but nulls, and Spark would leave the clock out. It is not
        # pushed past a filter that is not deterministic, as the number of a task is to Spark.
        kept = marked.where(F.col(_CLOCK).isNull() & (F.spark_partition_id() >= 0))
        told: dict[str, Any] = {
            WATERMARK: milliseconds,
            METRICS: ",".join(names),
            INSTANT: True,
        }
        if api == "applyInPandasWithState":
            told[ONCE] = api
        columns = []
        for field in fields:
            noted = {**(field.metadata or {}), **(told if field.name == self.settings.time else {})}
            columns.append(column(field.name).alias(field.name, metadata=noted))
        return kept.select(*columns)


def refuse_watermark(frame: DataFrame, time: str, *, where: str) -> None:
    """Refuse a frame that has a watermark already, on whatever column.

    Raises
    ------
    WatermarkError
        ``CLOCK_BEHIND_WATERMARK``.
    """
    marks = [field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    if marks:
        raise WatermarkError(
            "CLOCK_BEHIND_WATERMARK",
            "the frame already has a watermark, and Spark does not allow a second one",
            where=where,
            got=f"a frame with a watermark on {marks[0]!r}",
            expected=f"a frame without a watermark: this operator defines one on {time!r}",
            fix=f"leave withWatermark({marks[0]!r}, ...) out; put this operator before all that "
            "are given a delay",
        )


def _told() -> list[Column]:
    """What the one row of a micro-batch tells, as aggregates: Spark observes nothing else."""
    told = {name: F.max(name) for name in TICKED_NAMES}
    # A progress shows an instant without its time zone. These can be compared.
    exact = {f"{name}_micros": told[name] for name in _INSTANTS}
    told |= {name: F.timestamp_micros(told[name]) for name in _INSTANTS} | exact
    return [each.alias(name) for name, each in told.items()]
