"""Matches of a pattern in the events of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops import aggregates
from streamops.changelog.chains import Columns
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import (
    Text,
    parse_distinct_names,
    parse_names,
    parse_optional_delay,
    parse_optional_duration,
    require_name,
)
from streamops.kernel.time import Duration
from streamops.patterns import conditions
from streamops.patterns.core.expressions import (
    Expression,
    Function,
    Initial,
    Measure,
    Value,
    not_a_condition,
)
from streamops.patterns.core.match import PatternCore
from streamops.patterns.core.spec import (
    DEFAULT_MAX_ROWS,
    Matches,
    PatternSpec,
    Stragglers,
    Timeouts,
    WhenFull,
)
from streamops.patterns.core.syntax import parse_pattern
from streamops.spark.definition import Frames
from streamops.spark.operator import Operator

Variables = str | Sequence[str] | None


def count(variable: Variables = None, column: str | None = None) -> Measure:
    """Count the rows of a variable, or those with a value in a column.

    Parameters
    ----------
    variable : str or sequence of str, optional
        A variable of the pattern, or several. By default all rows of the match that have one: rows
        that a gap skipped have none.
    column : str, optional
        Count values that are not null.
    """
    names = () if column is None else (column,)
    return _aggregate("count", variable, names, aggregates.count(column))


def first(variable: Variables, column: str) -> Measure:
    """Return the column of the first row of a variable, also if it is null.

    Parameters
    ----------
    variable : str or sequence of str, optional
        A variable of the pattern, or several. None for all rows of the match that have one.
    column : str
    """
    return _ordered("first", variable, column)


def last(variable: Variables, column: str) -> Measure:
    """Return the column of the last row of a variable, also if it is null; as :func:`first`."""
    return _ordered("last", variable, column)


def sum(variable: Variables, column: str) -> Measure:
    """Sum a numeric column over the rows of a variable; null without values."""
    return _aggregate("sum", variable, (column,), aggregates.sum(column))


def mean(variable: Variables, column: str) -> Measure:
    """Average a numeric column over the rows of a variable; null without values."""
    return _aggregate("mean", variable, (column,), aggregates.mean(column))


def min(variable: Variables, column: str) -> Measure:
    """Return the least value of a column over the rows of a variable; null without values."""
    return _aggregate("min", variable, (column,), aggregates.min(column))


def max(variable: Variables, column: str) -> Measure:
    """Return the greatest value of a column over the rows of a variable; null without values."""
    return _aggregate("max", variable, (column,), aggregates.max(column))


def collect_list(variable: Variables, column: str) -> Measure:
    """List a column of the rows of a variable, in order, with nulls; empty without rows."""
    return _ordered("collect_list", variable, column)


def classifiers() -> Measure:
    """List the variable of every row of the match that has one, in order."""
    return Measure("classifiers()", "classifiers", ())


def previous(value: str, offset: int = 1) -> Expression:
    """Refer to an earlier row of the key in a condition.

    Compare it with Spark SQL of the row, a number or another reference, by ``< <= > >= == !=``, and
    combine comparisons by ``& | ~``. ``+ - *`` compute with numbers.

    Parameters
    ----------
    value : str
        Spark SQL of the earlier row, such as the name of a column.
    offset : int
        How many rows before: 1 is the row directly before, whether it is part of the match or not. The
        value is null if there is none, or if it is at least `within` older.

    Examples
    --------
    >>> from streamops import patterns
    >>> "volume > 0" & (patterns.previous("price") > "price")
    (current('volume > 0') & (previous('price') > current('price')))
    """
    if type(offset) is not int or offset < 1:
        raise conditions.OFFSET_OUT_OF_RANGE.error(got=f"offset={offset!r}")
    return Value(value, offset)


def initial(value: str) -> Expression:
    """Refer to the first row of the match in a condition, as ``FIRST(price)`` in ``MATCH_RECOGNIZE``.

    It is used as :func:`previous`, and together with it. In the condition of the first row, it is that
    row itself. The condition is evaluated for each start of a match and each row that is needed to decide
    it: a condition of the first variable, which makes starts few, makes it fast.

    Parameters
    ----------
    value : str
        Spark SQL of the first row of the match, such as the name of a column.

    Examples
    --------
    >>> from streamops import patterns
    >>> "price" < patterns.initial("price") * 0.9
    ((initial('price') * 0.9) > current('price'))
    """
    return Initial(value)


def current(value: str) -> Expression:
    """Refer to the row itself in a condition over other rows; as text, on the left of an operator.

    Parameters
    ----------
    value : str
        Spark SQL, such as the name of a column.
    """
    return Value(value, 0)


def _ordered(function: Function, variable: Variables, column: str) -> Measure:
    variables = _variables(variable)
    return Measure(_text(function, variable, (column,)), function, variables, column)


def _aggregate(
    function: str, variable: Variables, columns: tuple[str, ...], aggregation: Aggregation
) -> Measure:
    text, variables = _text(function, variable, columns), _variables(variable)
    return Measure(text, "aggregate", variables, aggregation=aggregation)


def _variables(variable: Variables) -> tuple[str, ...]:
    if variable is None:
        return ()
    return parse_names(variable, parameter="variable")


def _text(function: str, variable: Variables, columns: tuple[str, ...]) -> str:
    given = [*([] if variable is None and not columns else [repr(variable)]), *map(repr, columns)]
    return f"{function}({', '.join(given)})"


_WHERE = "patterns.match"


def match(
    pattern: Text,
    *,
    define: Mapping[str, str | Expression],
    time: str,
    by: str | Sequence[str] = (),
    within: Duration | None = None,
    measures: Mapping[str, Measure] | None = None,
    matches: Matches = "every",
    horizon: Duration | None = None,
    skip: Text = "past last row",
    tie_break: str | Sequence[str] = (),
    delay: Duration | None = None,
    stragglers: Stragglers = "drop",
    timeouts: Timeouts = "drop",
    max_rows: int = DEFAULT_MAX_ROWS,
    when_full: WhenFull = "fail",
) -> Operator:
    """Find sequences of events that match a pattern, as SQL's ``MATCH_RECOGNIZE`` does.

    "Three failed logins, then a success, within ten minutes." "An order that was not paid within a day."

    The rows of a key are ordered by event time. A match is the one that ``MATCH_RECOGNIZE`` and regular
    expressions prefer: the first row that starts one, alternatives in their order, as many repetitions
    as possible, or as few as possible if reluctant.

    ==================================  =========================================================
    pattern                             matches
    ==================================  =========================================================
    ``a b``                             ``a``, and ``b`` in the next row of the key
    ``a ... b``                         ``b`` in a later row; the nearest is preferred
    ``a !c b``                          ``b`` in a later row, and no ``c`` between
    ``a !c``                            ``a``, and no ``c`` within the bound: at the end only
    ``a | b``, ``(a b)``                either of them; a group
    ``a? a* a+ a{3} a{3,} a{,5}``       repetitions; ``(a ... b)+`` repeats with gaps
    ``a?? a*? a+? a{3,}?``              as few repetitions as possible
    ``permute(a, b, c)``                all of them in any order
    ==================================  =========================================================

    A row may satisfy several conditions. A variable without a condition matches every row.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of conditions and measures · duplicate rows count twice
    Output       key columns · match_start, match_end: timestamp, event time of the first and of the
                 last row of the match · the measures · with routing, late: struct<side, reason, lateness,
                 watermark, row, steps>
    Output mode  append
    Watermark    defined by `delay`, or by the frame; Spark's own delay is delay + within
    State        per shard: the rows above the watermark, and those of a key from its first start that
                 is not decided; none longer than delay + within; at most `max_rows` per key below
                 the watermark · with the first matches only, one row per key that matched within
                 `horizon`
    Order        rows may arrive in any order; rows with the same event time are ordered by
                 `tie_break`, then by all other columns that are read
    Batch        same result, without a watermark; no row is late, and `within` and `horizon` may be
                 omitted

    Parameters
    ----------
    pattern : str
        Names of variables and operators, as in the table. The syntax is in docs/patterns.md.
    define : mapping of str to condition
        The condition of each variable: the name of a boolean column, or Spark SQL that Spark evaluates
        row by row. A condition over earlier rows of the key, or over the first row of the match, is an
        expression with :func:`streamops.patterns.previous` or :func:`streamops.patterns.initial`. Null is
        false.
    time : str
        Event-time column, of type timestamp.
    by : str or sequence of str
        Key columns. By default, all rows are one sequence.
    within : duration, optional
        Bound on a match, > 0, exclusive: the last row is less than this after the first. Required on a
        stream.
    measures : mapping of str to Measure, optional
        Values of the rows of a match by output column: :func:`streamops.patterns.count`, ``first``,
        ``last``, ``sum``, ``mean``, ``min``, ``max``, ``collect_list``, ``classifiers``.
    matches : "every" or "first"
        Which matches of a key are emitted. "every": all of them. "first": the one that starts first. In
        less than `horizon` after its last row, no further match of the key starts, and no partial match;
        then the key may match again.
    horizon : duration, optional
        With "first": how long a match is remembered, > 0, in event time from its last row on. Required
        on a stream; by default for ever in a batch. It may change when a query is restarted; matches
        that are not remembered any more stay so.
    skip : str
        Where the search continues after a match, not with "first". "past last row", or "to next row":
        behind the first row of the match, so that matches overlap. "to first NAME" or "to last NAME": at
        this row of the match, or behind its first row if that is not a later one.
    tie_break : str or sequence of str
        Columns that order rows with the same event time, least first, null before everything.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark, whose delay must then be at least `within`.
    stragglers : "drop" or "route"
        What happens to rows that arrive after the watermark has reached their event time. "drop" counts
        them, "route" emits them with a non-null ``late``. A published match is never corrected.
    timeouts : "drop" or "route"
        "route" emits partial matches that ran out of time with a non-null ``late``: a start whose
        pattern could still have been completed when its bound passed. ``late.reason`` is "timed_out",
        and ``late.steps`` the number of items of the pattern, gaps excluded, that it reached.
    max_rows : int
        Maximum number of rows per key that the watermark has passed and that are not decided.
    when_full : "fail" or "evict_oldest"
        What happens to a key with more rows. "fail" fails the query with ``STATE_FULL``. "evict_oldest"
        removes its oldest rows after each micro-batch, and counts them as ``overflowed``: only then, the
        result depends on the micro-batches.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another. ``PATTERN_INVALID``: the pattern
        cannot be read, matches no row, or begins or ends with a gap. ``PARAMETER_OUT_OF_RANGE``: it
        has more than 63 states. ``PARAMETER_MISSING``: a stream without `within`, or with the first
        matches only and without `horizon`. ``PARAMETER_WITHOUT_EFFECT``. ``CONDITION_INVALID``: a
        condition refers to rows of the match other than the first.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type. ``CONDITION_INVALID``: Spark does not accept a
        condition, or it is not boolean. ``ROWS_REVISED``: the rows of the
        frame can be revised, or include late rows.
    WatermarkError
        A streaming frame has neither a watermark on `time` nor a `delay`, or has both.
    CapacityError
        While the query runs: ``STATE_FULL``.
    RequirementError
        The state API requires RocksDB or protobuf, which is missing.

    Examples
    --------
    >>> from streamops import patterns
    >>> attacks = patterns.match(
    ...     "fail{3,} ok",
    ...     define={"fail": "type = 'fail'", "ok": "type = 'ok'"},
    ...     time="ts",
    ...     by="user",
    ...     within="10 minutes",
    ...     measures={"attempts": patterns.count("fail"), "last_ip": patterns.last("ok", "ip")},
    ...     delay="30 seconds",
    ... )
    >>> logins.transform(attacks)
    DataFrame[user: string, match_start: timestamp, match_end: timestamp, attempts: bigint, last_ip: string]

    Notes
    -----
    A match is emitted as soon as no later row can change it: ``fail{3,} ok`` when the watermark reaches
    the success, ``a b+`` when it reaches the row behind the last ``b``, ``a !c`` when it reaches the
    bound. After a match that is not decided, the later matches of its key wait.

    The cost of finding the matches is linear in the number of rows, whatever the data; with absence and
    with matches that overlap, at most times the logarithm of the number of rows within the bound. Each
    match is measured by itself, at a cost of its rows: with "to next row", "to first" and "to last", a row
    may be in many matches.

    A condition with :func:`streamops.patterns.initial` is evaluated for each start and each row that is
    needed to decide it. Then the cost is linear in the number of these pairs.

    The metrics of a query are ``rows``, ``rejected``, ``too_late``, ``results``, ``timeouts``,
    ``overflowed``, ``state_rows`` and ``state_bytes``. Rows with a null event time are counted as
    ``rejected``, and routed with the reason "null_time" if late rows are routed.

    See Also
    --------
    streamops.windows.session : aggregates over sequences without gaps.
    streamops.joins.interval : pairs of events of two streams.

    References
    ----------
    ISO/IEC TR 19075-5: "Row pattern recognition in SQL".
    """
    spec = PatternSpec(
        operator=_WHERE,
        pattern=parse_pattern(pattern),
        define=_parse_define(define),
        time=time,
        by=parse_names(by, parameter="by"),
        within=parse_optional_duration(within, parameter="within", minimum=1),
        measures=_parse_measures(measures),
        matches=matches,
        horizon=parse_optional_duration(horizon, parameter="horizon", minimum=1),
        skip=skip,
        tie_break=parse_distinct_names(tie_break, parameter="tie_break", empty=True),
        delay=parse_optional_delay(delay, parameter="delay"),
        stragglers=stragglers,
        timeouts=timeouts,
        max_rows=max_rows,
        when_full=when_full,
    )
    return Operator(
        _WHERE, spec, PatternCore(), check=_require_bounds(spec), prepare=_add_conditions(spec)
    )


def _parse_define(define: object) -> tuple[tuple[str, str | Expression], ...]:
    if not isinstance(define, Mapping):
        raise conditions.NOT_A_MAPPING.error(got=f"define={define!r}")
    defined = list[tuple[str, str | Expression]]()
    for name, condition in define.items():
        require_name(name, parameter="define")
        if (isinstance(condition, str) and condition.strip()) or isinstance(condition, Expression):
            defined.append((name, condition))
        else:
            raise not_a_condition(condition)
    return tuple(defined)


def _parse_measures(measures: object) -> tuple[tuple[str, Measure], ...]:
    named = {} if measures is None else measures
    is_mapping = isinstance(named, Mapping)
    for name, value in named.items() if isinstance(named, Mapping) else [("measures", named)]:
        require_name(name, parameter="measures")
        if not (is_mapping and isinstance(value, Measure)):
            raise conditions.NOT_A_MEASURE.error(
                name=name, got=f"{value!r} of type {type(value).__name__}"
            )
    assert isinstance(named, Mapping)
    return tuple(named.items())


def _require_bounds(spec: PatternSpec) -> Callable[[DataFrame, Columns], None]:
    """Refuse a stream without a bound: every start, or every key, would be stored for ever."""

    def check(_: DataFrame, columns: Columns) -> None:
        if columns.is_streaming and spec.within is None:
            raise conditions.WITHIN_MISSING.error(got="within=None on a streaming frame")
        if columns.is_streaming and spec.matches == "first" and spec.horizon is None:
            raise conditions.HORIZON_MISSING.error(
                got="horizon=None with matches='first' on a streaming frame"
            )

    return check


def _add_conditions(spec: PatternSpec) -> Callable[[Frames], Frames]:
    """Let Spark evaluate its SQL: one column for each text that is no column of the frame."""

    def prepare(frames: Frames) -> Frames:
        (frame,) = frames.sides
        columns: dict[str, Any] = {}
        for name, text in spec.missing_texts(frame.schema.names).items():
            try:
                columns[name] = F.expr(text)
                _ = frame.select(columns[name].alias(name)).schema  # Connect analyses it only now
            except PySparkException as error:
                raise conditions.CONDITION_INVALID.error(
                    got=f"{text!r}: {str(error).strip().splitlines()[0]}"
                ) from None
        return Frames((frame.withColumns(columns) if columns else frame,))

    return prepare
