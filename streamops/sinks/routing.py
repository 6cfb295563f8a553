"""Sinks that pass rows on to other sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampType

from streamops.kernel.errors import located
from streamops.kernel.parameters import parse_distinct_names, require_columns
from streamops.sinks import conditions
from streamops.sinks.protocol import CheckedTarget
from streamops.sinks.sink import BatchWriter
from streamops.spark.columns import column
from streamops.spark.identity import Identity
from streamops.spark.json_columns import to_json
from streamops.spark.side_output import has_sides, side_output_tags


def fan_out(sinks: Mapping[str, BatchWriter], *, checkpoint: str | None = None) -> FanOut:
    """Write several targets from one micro-batch, which Spark computes once.

    Each sink has a ledger of its own. If the driver crashes between two of them, Spark delivers the
    micro-batch again: the sinks that have it skip it, and the others write it. Between the two commits,
    the targets differ by one micro-batch.

    Input        what every sink accepts
    Output       the targets of all sinks
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        the sinks write in the order of the mapping
    Batch        ``fan_out.write(frame, query=...)``

    Parameters
    ----------
    sinks : mapping of str to sink
        The sinks by name. Each keeps its own name in the ledger of its target. A sink of other rows:
        ``sink.after(transform)``.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    FanOut
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: there is no sink, or a value is not a sink.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.postgres("postgresql://host/db", "daily", key=["page", "window_start"])
    >>> audit = sinks.postgres("postgresql://host/db", "audit")
    >>> both = sinks.fan_out({"daily": daily, "audit": audit})
    >>> views.writeStream.foreachBatch(both).option("checkpointLocation", path)

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Keeping Systems in Sync".
    """
    given: Any = sinks
    writers = list(given.values()) if isinstance(given, Mapping) else []
    if not writers or not all(isinstance(writer, BatchWriter) for writer in writers):
        raise conditions.NOT_SINKS.error(got=repr(sinks))
    return FanOut(sinks=dict(sinks), checkpoint=checkpoint)


@dataclass(frozen=True, kw_only=True, repr=False)
class FanOut(BatchWriter):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = "sinks.fan_out"

    sinks: dict[str, BatchWriter]

    def _checked(self) -> Iterator[CheckedTarget]:
        return chain.from_iterable(sink._checked() for sink in self.sinks.values())

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        batch = batch.persist()
        try:
            for sink in self.sinks.values():
                sink._deliver(batch, batch_id, identity)
        finally:
            batch.unpersist()


Tags = dict[str, list[str]]

_POSITION = ("topic", "partition", "offset")


def side_outputs(
    *,
    results: BatchWriter,
    rejected: BatchWriter,
    operator: str,
    time: str | None = None,
    position: Sequence[str] = _POSITION,
    checkpoint: str | None = None,
) -> SideOutputs:
    """Write results to one sink, and late, rejected and invalid rows to another: a dead letter queue.

    Spark computes the micro-batch once. Each sink has a ledger of its own, so every row is in exactly one
    of the two targets.

    Input        the output of an operator with a side output: ``stragglers="route"``,
                 ``too_late="route"``, ``rejected="route"``, ``time.guard``, or a column ``rejected``
    Output       results, without the columns that tag side output, to `results`; to `rejected` the
                 columns below
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        `results` is written first
    Batch        ``sink.write(frame, query=...)``

    =============  ==================  ================================================================
    column         type                meaning
    =============  ==================  ================================================================
    ``operator``   string              `operator`
    ``output``     string              "late", "rejected" or "guarded": why the row is here
    ``reason``     string              such as "too_late" or "null_key"
    ``time``       timestamp           event time, of `time`
    ``lateness``   decimal(18, 6)      how many seconds late the row was, if it was late
    ``watermark``  timestamp           the watermark that it was compared with
    ``position``   string, JSON        the columns of `position`
    ``row``        string, JSON        all columns of the row that are not null
    =============  ==================  ================================================================

    Parameters
    ----------
    results : sink
        The sink of the results.
    rejected : sink
        The sink of the rows of the side output.
    operator : str
        Name of the operator, for the column ``operator``.
    time : str, optional
        The event-time column, also if it is in the input row within the side output.
    position : sequence of str
        Columns with the position of the row in its source, which are taken where the row has them.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    SideOutputs
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, or a parameter has the wrong type.
    SchemaError
        When the query runs. ``FRAME_TYPE``: the frame has no column that tags side output.

    Examples
    --------
    >>> from streamops import sinks
    >>> url = "postgresql://host/db"
    >>> sink = sinks.side_outputs(
    ...     results=sinks.postgres(url, "daily", key=["page", "window_start"]),
    ...     rejected=sinks.postgres(url, "daily_rejected"),
    ...     operator="daily",
    ... )
    """
    for parameter, sink in (("results", results), ("rejected", rejected)):
        if not isinstance(sink, BatchWriter):
            raise conditions.NOT_A_SINK.error(parameter=parameter, got=repr(sink))
    return SideOutputs(
        results=results,
        rejected=rejected,
        operator=operator,
        time=time,
        position=parse_distinct_names(position, parameter="position"),
        checkpoint=checkpoint,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class SideOutputs(BatchWriter):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = "sinks.side_outputs"

    results: BatchWriter
    rejected: BatchWriter
    operator: str
    time: str | None
    position: tuple[str, ...]

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self.operator!r})"

    def _checked(self) -> Iterator[CheckedTarget]:
        return chain(self.results._checked(), self.rejected._checked())

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        with located(self.label):
            tags = side_output_tags(batch)
            if not tags:
                raise conditions.NO_SIDE_OUTPUT.error(got=f"columns {', '.join(batch.columns)}")
            batch = batch.persist()
            try:
                is_rejected = F.lit(False)
                for tag in tags:
                    is_rejected = is_rejected | _is_tagged(tag)
                columns = [column(name) for name in batch.columns if name not in tags]
                results = batch.where(~is_rejected).select(*columns)
                self.results._deliver(results, batch_id, identity)
                rejected = batch.where(is_rejected).select(*self._columns(batch, tags))
                self.rejected._deliver(rejected, batch_id, identity)
            finally:
                batch.unpersist()

    def _columns(self, batch: DataFrame, tags: Tags) -> list[Column]:
        output = F.coalesce(*(F.when(_is_tagged(tag), F.lit(tag)) for tag in tags))
        found = {name: self._candidates(batch, tags, name) for name in self.position}
        positions = [F.coalesce(*of).alias(name) for name, of in found.items() if of]
        position = F.lit(None).cast("string")
        if positions:
            dtype = batch.select(*positions).schema
            position = to_json(F.struct(*positions), dtype, with_nulls=False)
        times = [] if self.time is None else self._candidates(batch, tags, self.time)
        if self.time is not None and not times:
            require_columns(batch.columns, {"time": [self.time]})
        # Text, and times without a zone, are not instants; `row` has them as they are.
        times = [t for t in times if isinstance(batch.select(t).schema[0].dataType, TimestampType)]
        everything = F.struct(*map(column, batch.columns))
        return [
            F.lit(self.operator).alias("operator"),
            output.alias("output"),
            self._field(tags, "reason", "string"),
            F.coalesce(*times, F.lit(None).cast("timestamp_ltz")).alias("time"),
            # Not every target has intervals.
            self._field(tags, "lateness", "interval second")
            .cast("decimal(18, 6)")
            .alias("lateness"),
            self._field(tags, "watermark", "timestamp_ltz"),
            position.alias("position"),
            to_json(everything, batch.schema, with_nulls=False).alias("row"),
        ]

    def _candidates(self, batch: DataFrame, tags: Tags, name: str) -> list[Column]:
        """Where a row may have a column: in the frame, or in the input row within a tag."""
        found = [column(name)] if name in batch.columns else []
        for tag in tags:
            for row, dtype in _rows(column(tag), batch.schema[tag].dataType):
                if name in dtype.names:
                    found.append(row[name])
        return found

    def _field(self, tags: Tags, name: str, dtype: str) -> Column:
        """A field of the first tag that has it."""
        found = [column(tag)[name] for tag in tags if name in tags[tag]]
        return F.coalesce(*found, F.lit(None).cast(dtype)).cast(dtype).alias(name)


def _rows(tag: Column, dtype: DataType) -> Iterator[tuple[Column, StructType]]:
    """The input rows within a tag, or those of both sides, and their types."""
    assert isinstance(dtype, StructType), dtype
    for field in dtype:
        if has_sides(field.dataType):
            yield from _rows(tag[field.name], field.dataType)
        elif isinstance(field.dataType, StructType) and field.name != "window":
            yield tag[field.name], field.dataType


def _is_tagged(tag: str) -> Column:
    """Whether a row is side output by this tag. A clamped row of ``time.guard`` is a result."""
    if tag == "guarded":
        return F.coalesce(column(tag)["outcome"] == "routed", F.lit(False))
    return column(tag).isNotNull()
