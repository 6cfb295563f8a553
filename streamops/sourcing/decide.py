"""Commands to events, per entity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from streamops.kernel.ddl import SchemaLike
from streamops.kernel.parameters import (
    parse_names,
    parse_optional_delay,
    refuse_taken_names,
)
from streamops.kernel.time import Duration
from streamops.kernel.values import record_values
from streamops.process.core.per_key import IGNORED, PerKeyCore
from streamops.process.core.spec import DEFAULT_MAX_KEYS, PerKeySpec, Stragglers
from streamops.process.core.values import parse_initial
from streamops.process.per_key import to_schema
from streamops.sourcing import conditions
from streamops.sourcing.core.fold import Record
from streamops.spark.operator import Operator

_WHERE = "sourcing.decide"
_VERSION, _COMMAND, _REJECTION = "version", "command_id", "rejection"
_IDS = "command_ids"
DEFAULT_MAX_IDS = 1_000


@dataclass(frozen=True, slots=True)
class Rejected:
    """What ``decide`` returns for a command that has no effect.

    Parameters
    ----------
    reason : str
        Why, for the column ``rejection``.
    """

    reason: str


Decide = Callable[[Any, Any], "Sequence[Any] | Rejected"]
Evolve = Callable[[Any, Any], Any]


def decide(
    decide: Decide,
    evolve: Evolve,
    *,
    by: str | Sequence[str],
    command_id: str,
    time: str,
    state: SchemaLike | StructType,
    event: SchemaLike | StructType,
    initial: Mapping[str, Any] | None = None,
    expected_version: str | None = None,
    order_by: str | Sequence[str] = (),
    delay: Duration | None = None,
    stragglers: Stragglers = "drop",
    max_ids: int = DEFAULT_MAX_IDS,
    max_keys: int = DEFAULT_MAX_KEYS,
) -> Operator:
    """Decide the commands of each entity one after the other, and emit events or rejections.

    The state of an entity is the fold of its events, ``evolve(state, event)``, and nothing else.

    Input        key columns: the entity · `command_id`: any type that is text or can be · `time`: timestamp
                 (event time) · all columns of the frame are passed to `decide`
    Output       key columns · the event time of the command · version: bigint, the number of the event in
                 its entity, from 1; of a rejection, that of the last event · command_id: string · the columns
                 of `event`, null in a rejection · rejection: string, null in an event · with routing, late
    Output mode  append
    Watermark    defined by `delay`, or by the frame
    State        per shard: one row per entity with its state, its version and its last `max_ids` command ids, at
                 most `max_keys` entities over all shards · the commands that are not older than the watermark
    Order        by event time, `order_by`, and the command id
    Batch        same result; no command is late

    Parameters
    ----------
    decide : callable
        ``decide(state, command)`` returns a list of events, which may be empty, or ``Rejected(reason)``. An
        event is a tuple, or a dict by column name. ``state`` and ``command`` are named tuples.
    evolve : callable
        ``evolve(state, event)`` returns the next state, such as ``state._replace(...)``. The event, and then the
        state, have their declared types. What `decide` changes in place has no effect.
    by : str or sequence of str
        Key columns: the entity.
    command_id : str
        A repeated command of an entity yields nothing, and is counted as ``ignored``. Null is rejected.
    time : str
        Event-time column.
    state, event : str, Schema, StructType or mapping
        Fields of the state, and columns of an event, such as ``"items map<string,int>"``.
    initial : mapping of str to value, optional
        Values of the state of a new entity. Fields without a value are None.
    expected_version : str, optional
        Integer column with the version that the sender of a command has seen. Another one is a rejection with the
        reason ``version_conflict``. Null is any version.
    order_by : str or sequence of str
        Columns that order commands of an entity with equal event times, such as a sequence number.
    delay : duration, optional
        How far the watermark is behind the newest command. Omit it if the frame has a watermark.
    stragglers : "drop" or "route"
        What happens to commands that arrive after the watermark has reached their event time.
    max_ids : int
        How many command ids of an entity are remembered. An older command that is repeated is decided again.
    max_keys : int
        Maximum number of stored entities. More fail with ``STATE_FULL``.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type.
    WatermarkError
        A streaming frame has neither a watermark on `time` nor a `delay`, or has both.
    FunctionError
        While the query runs: a function raised an exception, or returned what is not an event or a state. ``VALUE_TYPE``,
        ``FUNCTION_RESULT``.

    Examples
    --------
    >>> from streamops import sourcing
    >>> def seat(state, command):
    ...     if state.holder is not None:
    ...         return sourcing.Rejected("taken")
    ...     return [("reserved", command.user)]
    >>> def change(state, event):
    ...     return state._replace(holder=event.user)
    >>> seats = sourcing.decide(
    ...     seat,
    ...     change,
    ...     by="seat",
    ...     command_id="id",
    ...     time="ts",
    ...     state="holder string",
    ...     event="type string, user string",
    ...     delay="0 seconds",
    ... )

    Notes
    -----
    The metrics of a query are those of ``process.per_key``; ``ignored`` counts repeated commands.

    See Also
    --------
    streamops.process.per_key : the operator that this one is built on.

    References
    ----------
    Chassaing: "Functional Event Sourcing Decider", 2021. Kleppmann: "Designing Data-Intensive
    Applications", chapter 11, "Event Sourcing".
    """
    for name, function in (("decide", decide), ("evolve", evolve)):
        if not callable(function):
            raise conditions.NOT_A_FUNCTION_OF_STATE.error(
                parameter=name, got=f"{name}={function!r}"
            )
    if type(max_ids) is not int or max_ids < 1:
        raise conditions.MAX_IDS_OUT_OF_RANGE.error(
            default_max_ids=DEFAULT_MAX_IDS, got=f"max_ids={max_ids!r}"
        )
    fields = to_schema(state, parameter="state")
    events = to_schema(event, parameter="event")
    own = [(_VERSION, pa.int64()), (_IDS, pa.list_(pa.string()))]
    given = parse_initial(fields, initial)
    reserved, named = [name for name, _ in own], {"state": fields.names}
    refuse_taken_names(fields.names, reserved, named, conditions.NAME_TAKEN)
    columns = [pa.field(f.name, f.type) for f in events]
    parsed = parse_names(order_by, parameter="order_by")
    decider = _Decider(decide, evolve, fields, events, command_id, expected_version, max_ids)
    spec = PerKeySpec(
        operator=_WHERE,
        function=decider,
        by=parse_names(by, parameter="by"),
        state=pa.schema([*own, *fields]),
        result=pa.schema(
            [(_VERSION, pa.int64()), (_COMMAND, pa.string()), *columns, (_REJECTION, pa.string())]
        ),
        initial=((_VERSION, 0), (_IDS, []), *given),
        time=time,
        expected_version=expected_version,
        order_by=parsed if command_id in parsed else (*parsed, command_id),
        delay=parse_optional_delay(delay, parameter="delay"),
        stragglers=stragglers,
        max_keys=max_keys,
    )
    return Operator(_WHERE, spec, PerKeyCore())


@dataclass(frozen=True, slots=True)
class _Decider:
    """The function per key."""

    decide: Decide
    evolve: Evolve
    state: pa.Schema
    event: pa.Schema
    command_id: str
    expected_version: str | None
    max_ids: int

    def __call__(self, key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        names, nothing = self.state.names, (None,) * len(self.event)
        states = Record(self.state, "State", what="state")
        events = Record(self.event, "Event", what="event")
        current = states.of([getattr(state, name) for name in names])
        for command in rows:
            number = command[self.command_id]
            if number is None:
                yield (state.version, None, *nothing, "null_command_id")
                continue
            # -0.0 and 0.0 are one id.
            identifier = str(number + 0.0 if isinstance(number, float) else number)
            if identifier in state.command_ids:
                yield IGNORED
                continue
            state.command_ids = [*state.command_ids, identifier][-self.max_ids :]
            expected = None
            if self.expected_version is not None:
                expected = command[self.expected_version]
            if expected is not None and expected != state.version:
                yield (state.version, identifier, *nothing, "version_conflict")
                continue
            decided = self.decide(states.lend(current), command)
            if isinstance(decided, Rejected):
                if not isinstance(decided.reason, str):
                    raise conditions.REASON_MISSING.error(got=_type_of(decided.reason))
                yield (state.version, identifier, *nothing, decided.reason)
                continue
            for event in map(events.of, self._events(decided)):
                lent = states.lend(current), events.lend(event)
                current = states.evolve(self.evolve, *lent)
                state.version += 1
                for name, value in zip(names, current, strict=True):
                    setattr(state, name, value)
                yield (state.version, identifier, *event, None)

    def _events(self, decided: Any) -> list[Any]:
        """The values of each event."""
        if type(decided) not in (list, tuple):
            raise conditions.NOT_EVENTS.error(got=_type_of(decided))
        names, events = self.event.names, []
        for event in decided:
            values = [*event] if type(event) is list else record_values(event, names)
            if isinstance(event, Mapping) and event.keys() <= {*names}:
                values = [event.get(name) for name in names]
            if values is None or len(values) != len(names):
                raise conditions.NOT_AN_EVENT.error(
                    number=len(names), names=", ".join(names), got=_type_of(event)
                )
            events.append(values)
        return events


def _type_of(value: object) -> str:
    return f"a value of type {type(value).__name__}"
