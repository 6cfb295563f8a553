"""An event log to the state of each entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamops.kernel.ddl import SchemaLike
from streamops.kernel.parameters import parse_names, refuse_taken_names
from streamops.process.core.values import parse_initial
from streamops.process.per_key import to_schema
from streamops.sourcing import conditions
from streamops.sourcing.core.fold import FoldCore, FoldSpec
from streamops.spark.columns import require_frame
from streamops.spark.operator import Operator

__all__ = ["fold"]

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
    fields = to_schema(state, parameter="state")
    keys = parse_names(by, parameter="by")
    given = {"by": list(keys), "version": version, "state": fields.names}
    fix = "name the field differently"
    refuse_taken_names([*keys, version, *fields.names], (), given, fix)
    if not fields.names:
        raise conditions.BAD_STATE.error(got="state without fields")
    values = parse_initial(fields, initial)
    if snapshot is not None:
        require_frame(snapshot, "the snapshot")
    spec = FoldSpec(
        operator=_WHERE,
        evolve=evolve,
        upcast=upcast,
        by=keys,
        version=version,
        state=fields,
        initial=values,
        has_snapshot=snapshot is not None,
    )
    return Operator(_WHERE, spec, FoldCore(), right=snapshot, check=_refuse_stream)


def _refuse_stream(frame: DataFrame) -> None:
    if frame.isStreaming:
        raise conditions.FOLD_OF_A_STREAM.error(got="a streaming frame")
