"""An event log to the state of each entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.changelog.chains import refuse_revised
from streamops.environment.settings import PARTITIONS
from streamops.kernel.columns import conform, suit
from streamops.kernel.ddl import SchemaLike
from streamops.kernel.errors import located
from streamops.kernel.parameters import parse_names, refuse_taken_names, require_columns
from streamops.kernel.versions import apply_in_arrow
from streamops.process.core.values import parse_initial
from streamops.process.per_key import to_schema
from streamops.sourcing import conditions
from streamops.sourcing.core.fold import FoldSpec
from streamops.sourcing.core.fold import fold as fold_log
from streamops.spark.checks import columns_of
from streamops.spark.columns import (
    arrow_schema,
    column,
    refuse_collated,
    require_frame,
    spark_schema,
)
from streamops.spark.operator import Operator
from streamops.spark.results import restore

_WHERE = "sourcing.fold"


def fold(
    evolve: Callable[[Any, Any], Any],
    *,
    by: str | Sequence[str],
    state: SchemaLike | StructType,
    initial: Mapping[str, Any] | None = None,
    version: str = "version",
    upcast: Callable[[Any], Any] | None = None,
    snapshot: DataFrame | None = None,
) -> Operator:
    """Fold an event log to the state of each entity, from the beginning or from a snapshot.

    The same `evolve` as in ``sourcing.decide`` gives the same state.

    Input        key columns: the entity · `version`: integer, the number of the event in its entity · all
                 columns of the frame are passed to `evolve`
    Output       key columns · `version`: bigint, of the last event · the fields of `state`: a snapshot
    Output mode  none: batch frames only
    Watermark    none
    State        none
    Order        by `version`; events may be delivered twice and in any order
    Batch        one row per entity of the log or the snapshot

    Parameters
    ----------
    evolve : callable
        ``evolve(state, event)`` returns the next state, such as ``state._replace(...)``. State and event are
        named tuples.
    by : str or sequence of str
        Key columns: the entity.
    state : str, Schema, StructType or mapping
        Fields of the state.
    initial : mapping of str to value, optional
        Values of the state before the first event. Fields without a value are None.
    version : str
        Column with the number of the event in its entity, from 1.
    upcast : callable, optional
        ``upcast(event)`` converts an event of an older schema to one that `evolve` understands, such as
        ``event._replace(...)``. It is called for every event.
    snapshot : DataFrame, optional
        An earlier output: the fold continues after its versions, and ignores the events up to them.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type. ``STREAMING_FRAME``: the frame is a stream.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type. While the query runs, ``MALFORMED_LOG``: an event is missing, has
        no version, or the version of another one.
    FunctionError
        While the query runs: a function raised an exception, or did not return a state.

    Examples
    --------
    >>> from streamops import sourcing
    >>> def change(state, event):
    ...     return state._replace(balance=state.balance + event.amount)
    >>> balances = sourcing.fold(change, by="account", state="balance bigint", initial={"balance": 0})
    >>> log.transform(balances)
    DataFrame[account: string, version: bigint, balance: bigint]

    Notes
    -----
    Spark folds the entities in as many groups as ``spark.sql.shuffle.partitions``. The events of a group
    must fit into the memory of a worker.

    See Also
    --------
    decide : the stream of commands that writes the log.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Event Sourcing".
    """
    for name, function in (("evolve", evolve), ("upcast", upcast)):
        if not callable(function) and (name == "evolve" or function is not None):
            raise conditions.NOT_A_FUNCTION.error(parameter=name, got=f"{name}={function!r}")
    of_state = to_schema(state, parameter="state")
    keys = parse_names(by, parameter="by")
    given = {"by": list(keys), "version": version, "state": of_state.names}
    names = [*keys, version, *of_state.names]
    refuse_taken_names(names, (), given, conditions.NAME_TAKEN)
    if not of_state.names:
        raise conditions.BAD_STATE.error(got="state without fields")
    values = parse_initial(of_state, initial)
    if snapshot is not None:
        require_frame(snapshot, "the snapshot")
    parameters = _Fold(
        evolve=evolve,
        upcast=upcast,
        by=keys,
        version=version,
        state=of_state,
        initial=values,
        snapshot=snapshot,
    )
    return Operator(_WHERE, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold(FoldSpec):
    """The parameters with the snapshot, and the plan."""

    snapshot: DataFrame | None = field(repr=False)

    adds: ClassVar[tuple[str, ...]] = ()

    @property
    def marked(self) -> str:
        """The version. A batch has no metadata."""
        return self.version

    def check(self, frame: DataFrame) -> None:
        """Refuse streams, revisions, and columns that are missing or have another type."""
        for part in filter(None, (frame, self.snapshot)):
            if part.isStreaming:
                raise conditions.FOLD_OF_A_STREAM.error(got="a streaming frame")
            refuse_revised(columns_of(part))
            refuse_collated(part, (*self.by, self.version))
        output = self.output(arrow_schema(frame))
        if self.snapshot is not None:
            names = arrow_schema(self.snapshot).names
            require_columns(names, {"snapshot": output.names})

    def apply(self, frame: DataFrame) -> DataFrame:
        """Fold groups of entities: a call of Python per entity would cost more than its events.

        There are as many groups as Spark has partitions after a shuffle.
        """
        log = arrow_schema(frame)
        output = self.output(log)
        groups = int(frame.sparkSession.conf.get(PARTITIONS) or 1)
        spec = FoldSpec(**{of.name: getattr(self, of.name) for of in fields(FoldSpec)})

        @located(_WHERE)
        def run(*tables: pa.Table) -> pa.Table:
            parts = []
            for table, schema in zip(tables, (log, output), strict=False):
                parts.append(
                    conform(table.drop_columns("group").rename_columns(schema.names), schema)
                )
            rows = fold_log(spec, *parts)
            return suit(rows, tables[0].schema.field("group").type)

        def grouped(part: DataFrame, names: Sequence[str]) -> GroupedData:
            # The group is text, so that its type tells which types Spark expects. By position: PySpark's
            # Python functions fail on names with dots or backticks in them.
            keys = [column(name) for name in self.by] or [F.lit(0)]
            group = F.pmod(F.xxhash64(*keys), F.lit(groups)).cast("string").alias("group")
            renamed = (column(name).alias(f"c{i}") for i, name in enumerate(names))
            return part.select(group, *renamed).groupBy("group")

        events, schema = grouped(frame, log.names), spark_schema(output)
        if self.snapshot is None:
            rows = apply_in_arrow(events, lambda table: run(table), schema)
        else:
            both = events.cogroup(grouped(self.snapshot, output.names))
            rows = apply_in_arrow(both, lambda table, before: run(table, before), schema)
        return restore(rows, frame.select(*map(column, self.by)))

    def counts(self) -> Mapping[str, Column]:
        """The number of entities."""
        return {"results": F.count(F.lit(1))}
