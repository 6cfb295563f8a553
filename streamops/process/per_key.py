"""A function per key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType

from streamops.kernel.ddl import SchemaLike, parse_schema
from streamops.kernel.parameters import parse_names, parse_optional_delay
from streamops.kernel.time import Duration
from streamops.kernel.values import UnsupportedType, converter
from streamops.process import conditions
from streamops.process.core.per_key import PerKeyCore
from streamops.process.core.spec import (
    DEFAULT_MAX_KEYS,
    Errors,
    Function,
    PerKeySpec,
    Stragglers,
)
from streamops.process.core.values import parse_initial
from streamops.spark.operator import Operator


def per_key(
    function: Function,
    *,
    by: str | Sequence[str],
    output: SchemaLike | StructType,
    state: SchemaLike | StructType = "",
    initial: Mapping[str, Any] | None = None,
    time: str | None = None,
    delay: Duration | None = None,
    order_by: str | Sequence[str] = (),
    on_timer: Function | None = None,
    stragglers: Stragglers = "drop",
    errors: Errors = "fail",
    max_keys: int = DEFAULT_MAX_KEYS,
) -> Operator:
    """Process the rows of each key by a Python function with state and timers.

    The function is called with one key, an iterator over rows of the key, and its state. It changes the
    state and yields rows of the output. It is called inside the shard, so a key costs a Python call and
    not a group of Spark's own.

    Input        key columns: any type except map, null is a key · all columns of the frame are read · with
                 `time`, a timestamp (event time) · duplicate rows count twice
    Output       key columns · with `time`, the event time of the row or timer that was processed · the
                 columns of `output` · with routing, late: struct<side, reason, lateness, watermark, window,
                 row>
    Output mode  append
    Watermark    with `time`: defined by `delay`, or by the frame
    State        per shard: one row per key whose state is not the initial one, at most `max_keys` over all
                 shards; one row per timer; with `time`, the rows that are not older than the watermark
    Order        with `time`: by event time, `order_by` and all other columns; else as rows arrive
    Batch        same result: no row is late, and all timers fire

    Parameters
    ----------
    function : callable
        A generator function ``function(key, rows, state)``; with `on_timer`,
        ``function(key, rows, state, timers)``. ``key`` and each row are named tuples with values of Python;
        instants are ``datetime`` objects in UTC, maps are dicts. A column of any name is ``row["name"]``.
        ``state`` has the fields of `state` as attributes. The function must read all rows. It yields tuples,
        or dicts, named tuples and dataclasses by column name. A value is converted to its declared type when
        it is assigned or yielded, exactly or not at all: see the table in the documentation.
    by : str or sequence of str
        Key columns. An empty list is one key.
    output : str, Schema, StructType or mapping
        Columns that the functions yield, such as ``"total double, items bigint"``.
    state : str, Schema, StructType or mapping
        Fields of the state of a key. Its schema is part of the checkpoint; fields that may be null can be
        added later, and are None for stored keys. By default, there is no state.
    initial : mapping of str to value, optional
        Values of the state of a new key. Fields without a value are None. A key whose state equals the
        initial one again is not stored.
    time : str, optional
        Event-time column. Rows are processed once the watermark has reached them, and the output does not
        depend on how the stream was divided into micro-batches. Without it, rows are processed as they
        arrive.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the frame has a
        watermark.
    order_by : str or sequence of str
        Columns that order rows of a key with equal event times. Rows that are equal in these, too, are
        ordered by all other columns.
    on_timer : callable, optional
        A generator function ``on_timer(key, time, state, timers)`` that is called when a timer fires. Timers
        are set with ``timers.set(time)``. A timer fires when the watermark reaches it: after the rows at
        that instant, and before all later ones.
    stragglers : "drop" or "route"
        What happens to rows that arrive after the watermark has reached their event time. "drop" counts
        them. "route" emits them with a non-null ``late``.
    errors : "fail" or "route"
        What happens if a function raises an exception. "fail" fails the query; the error has the hash of
        the key and no value. "route" emits the row as side output, with the message; its effects are undone.
    max_keys : int
        Maximum number of stored keys. Each shard stores up to ``max_keys / shards``, rounded up.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or contradicts another. ``PARAMETER_TYPE``: the
        function has another form. ``INVALID_SCHEMA``, ``INVALID_PARAMETER``. ``PARAMETER_MISSING``: a parameter needs `time`.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type. ``ROWS_REVISED``: the rows of the frame can be revised.
    WatermarkError
        A streaming frame has neither a watermark on `time` nor a `delay`, or has both.
    FunctionError
        While the query runs: ``FUNCTION_RAISED``, ``FUNCTION_RESULT``, ``VALUE_TYPE``.
    CapacityError
        While the query runs: ``STATE_FULL``.

    Examples
    --------
    >>> from streamops import process
    >>> def detect_jumps(key, rows, state):
    ...     for row in rows:
    ...         if state.last is not None and row.price > 2 * state.last:
    ...             yield state.last, row.price
    ...         state.last = row.price
    >>> jumps = process.per_key(
    ...     detect_jumps,
    ...     by="symbol",
    ...     state="last double",
    ...     output="before double, after double",
    ...     time="ts",
    ...     delay="10 seconds",
    ... )
    >>> trades.transform(jumps)
    DataFrame[symbol: string, ts: timestamp, before: double, after: double]

    Notes
    -----
    The metrics of a query are ``rows``, ``rejected``, ``on_time``, ``too_late``, ``results``, ``failed``,
    ``ignored`` (of ``sourcing.decide``), ``state_rows`` and ``state_bytes``. Rows with a null event time, or with a timestamp outside the years 1
    to 9999, are ``rejected``.

    A function that depends on where a micro-batch ends, for example because it yields once per call,
    violates the laws of :mod:`streamops.testing.laws`.

    See Also
    --------
    per_shard : an algorithm over columns, which is faster than Python per row.

    References
    ----------
    Apache Flink: "Process Function", ``KeyedProcessFunction``. Bytewax: ``stateful_map``.
    """
    where = "process.per_key"
    fields = to_schema(state, parameter="state")
    spec = PerKeySpec(
        operator=where,
        function=function,
        by=parse_names(by, parameter="by"),
        state=fields,
        result=to_schema(output, parameter="output"),
        initial=parse_initial(fields, initial),
        on_timer=on_timer,
        time=time,
        order_by=parse_names(order_by, parameter="order_by"),
        delay=parse_optional_delay(delay, parameter="delay"),
        stragglers=stragglers,
        errors=errors,
        max_keys=max_keys,
    )
    return Operator(where, spec, PerKeyCore())


def to_schema(value: SchemaLike | StructType, *, parameter: str) -> Any:
    """The columns that a parameter defines, as an Arrow schema. A ``StructType`` is one of Spark's."""
    if isinstance(value, StructType):
        fields = [
            f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}"
            + ("" if field.nullable else " NOT NULL")
            for field in value.fields
        ]
        value = ", ".join(fields)
    schema = parse_schema(value, parameter=parameter)
    for field in schema:
        try:
            converter(field.type)
        except UnsupportedType as error:
            raise conditions.BAD_SCHEMA.error(
                field=field.name, got=f"{parameter}={field.name} {error}"
            ) from None
    return schema
