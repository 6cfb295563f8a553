"""Validation of parameters that operators share: names, choices, durations, keys, aggregates."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NoReturn, get_args

import pyarrow as pa

from streamops.kernel import conditions, hashing
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.columns import column_not_found, type_name
from streamops.kernel.errors import (
    Condition,
    SchemaError,
    SpecError,
    WatermarkError,
    closest,
    located,
)
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.kernel.versions import has_try_cast


def import_object(path: str, *, parameter: str) -> Any:
    """The object that ``module:name`` leads to.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise conditions.NOT_IMPORTED.error(parameter=parameter, got=f"{path}: {error}") from error


def require_package(module: str, *, package: str, extra: str) -> Any:
    """Import a module of an optional package.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise conditions.PACKAGE_MISSING.error(
            package=package, extra=extra, got=str(error)
        ) from error


MILLISECOND = 1_000
"""In microseconds: the resolution of Spark's watermarks."""

Text = Annotated[str, "validated by the function"]
"""A parameter of the type ``str`` is a name; this one is other text."""

Delays = tuple[int | None, int | None]
"""Delays of the watermarks on the inputs, left and right, in microseconds."""

_WHOLE, _FRACTIONS = ("tinyint", "smallint", "int", "bigint"), ("float", "double")
_MEANINGS = {
    "stragglers": '"drop" counts late rows and drops them, "route" emits them as rows of their own, '
    '"update" and "retract" correct the result',
}
"""What the choices of a parameter mean, where users take it for something else."""
_SYNONYMS = {
    "ffill": "previous",
    "full_outer": "full",
    "ignore": "drop",
    "interpolate": "linear",
    "keep": "route",
    "late": "route",
    "left_anti": "anti",
    "left_outer": "left",
    "left_semi": "semi",
    "locf": "previous",
    "outer": "full",
    "right_outer": "right",
    "side_output": "route",
    "spark": "native",
    "upsert": "update",
}
"""Choices in other libraries, and ours with this meaning."""
_SPARK_AGGREGATES = {
    **{name: name for name in ("count", "max", "mean", "min", "stddev", "sum", "variance")},
    "avg": "mean",
    "stddev_samp": "stddev",
    "var_samp": "variance",
}
"""Functions of Spark, and ours with this meaning."""
# The kernel does not import Spark: its columns are known by their repr.
_EXPRESSION = re.compile(r"Column<'.*\(.*'>", re.DOTALL)
_CALL = re.compile(r"Column<'(\w+)\((.*)\)(?: AS .*)?'>", re.DOTALL)
_SERVER = re.compile(
    r"\s*(?:[A-Za-z_]+://)?(?:\[[^\]\s]+\]|[^\s:/@\[\]]+)(?::(?P<port>[0-9]{1,5}))?\s*"
)
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def require_name(value: object, *, parameter: str) -> None:
    """Raise an error if the value is not a non-empty string.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    """
    if not isinstance(value, str) or not value:
        is_expression = _EXPRESSION.fullmatch(repr(value))
        condition = conditions.EXPRESSION_AS_NAME if is_expression else conditions.NOT_A_NAME
        raise condition.error(parameter=parameter, got=f"{value!r} of type {type(value).__name__}")


def parse_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    require_name(text, parameter="path")
    return text


def require_topic(name: str, *, parameter: str) -> None:
    """Raise an error if the name is not one that a topic of Kafka can have.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.
    """
    if not _TOPIC.fullmatch(name):
        raise conditions.NOT_A_TOPIC.error(parameter=parameter, got=f"{name!r}")


def require_servers(servers: str) -> None:
    """Raise an error if the text does not list addresses of brokers of Kafka.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.
    """
    if not all(map(_is_server, servers.split(","))):
        raise conditions.NOT_SERVERS.error(got="text that is not such a list")


def _is_server(text: str) -> bool:
    found = _SERVER.fullmatch(text)
    return found is not None and (found["port"] is None or 0 < int(found["port"]) < 1 << 16)


def require_choice(value: object, choices: object, *, parameter: str) -> None:
    """Raise an error if the value is not among the choices."""
    allowed = get_args(choices)
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(repr(word) for word in allowed)
        text = value.lower().replace(" ", "_") if isinstance(value, str) else ""
        other = _SYNONYMS.get(text)
        near = [other] if other in allowed else closest(text, allowed, 0.65)
        near = near or [word for word in allowed if text.startswith(str(word))]
        condition = conditions.CHOICE_MISSPELT if near else conditions.UNKNOWN_CHOICE
        raise condition.error(
            parameter=parameter,
            choices=listed,
            near=near[0] if near else None,
            meaning=f": {_MEANINGS[parameter]}" if parameter in _MEANINGS else "",
            got=f"{parameter}={value!r}",
        )


def require_distinct_columns(**columns: object) -> None:
    """Refuse parameters that are not column names, or that name the same column.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE`` or ``DUPLICATE_COLUMN``.
    """
    roles: dict[object, str] = {}
    for role, name in columns.items():
        require_name(name, parameter=role)
        if name in roles:
            raise conditions.SAME_COLUMN.error(
                roles=roles[name], role=role, got=f"{roles[name]}={name!r}, {role}={name!r}"
            )
        roles[name] = role


def require_columns(
    available: Collection[str], required: Mapping[str, Sequence[str | None]]
) -> None:
    """Refuse a frame without one of the columns, which are given by parameter. None is not a column.

    Raises
    ------
    ColumnNotFound
    """
    for parameter, names in required.items():
        for name in names:
            if name is not None and name not in available:
                raise column_not_found(name, available, role=parameter)


def parse_names(value: object, *, parameter: str) -> tuple[str, ...]:
    """Return column names as a tuple, from one name or a sequence, each once.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE`` or ``DUPLICATE_COLUMN``.
    """
    names = (value,) if isinstance(value, str) or not isinstance(value, Sequence) else value
    for name in names:
        require_name(name, parameter=parameter)
    if len({*names}) < len(names):
        once = [*dict.fromkeys(names)]
        raise conditions.COLUMN_NAMED_TWICE.error(
            parameter=parameter, once=once, got=f"{parameter}={value!r}"
        )
    return tuple(names)


def parse_distinct_names(value: object, *, parameter: str, empty: bool = False) -> tuple[str, ...]:
    """Return column names as :func:`parse_names` does, and refuse an empty list.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``DUPLICATE_COLUMN``, or ``PARAMETER_MISSING`` unless the list may be `empty`.
    """
    names = parse_names(value, parameter=parameter)
    if not (names or empty):
        raise conditions.NO_COLUMN_NAMED.error(parameter=parameter, got=f"{parameter}={value!r}")
    return names


def parse_delay(text: Duration, *, parameter: str) -> int:
    """Return the delay of a watermark in microseconds. Spark's watermarks have whole milliseconds."""
    return parse_duration(text, parameter=parameter, minimum=0, whole=MILLISECOND)


def parse_optional_delay(text: Duration | None, *, parameter: str) -> int | None:
    """A delay as :func:`parse_delay`; None stays None."""
    return None if text is None else parse_delay(text, parameter=parameter)


def parse_delays(
    delay: Duration | tuple[Duration | None, Duration | None] | None, *, waits_for: str = "both"
) -> Delays:
    """Delays of the watermarks on both inputs, in microseconds, from one duration or two.

    The right input has none unless the operator waits for both.

    Raises
    ------
    SpecError
        ``PARAMETER_WITHOUT_EFFECT``, or an error of ``parse_delay``.
    """
    pair: Any = delay if isinstance(delay, tuple) and len(delay) == 2 else (delay, delay)
    left, right = (parse_optional_delay(one, parameter="delay") for one in pair)
    if waits_for == "both":
        return left, right
    if isinstance(delay, tuple) and right is not None:
        raise conditions.DELAY_WITHOUT_WATERMARK.error(
            delay=delay[0], got=f"delay={delay!r} with waits_for={waits_for!r}"
        )
    return left, None


def unused_watermark(delay: int, *, waits_for: str) -> WatermarkError:
    """The error if the right input brings a watermark that the operator does not wait for."""
    return conditions.WATERMARK_NOT_WAITED_FOR.error(
        at="right frame",
        got=f"a watermark with a delay of {format_duration(delay)!r} and waits_for={waits_for!r}",
    )


def parse_optional_duration(text: Duration | None, *, parameter: str, minimum: int) -> int | None:
    """A duration in microseconds; None stays None."""
    if text is None:
        return None
    return parse_duration(text, parameter=parameter, minimum=minimum)


def show_delays(delays: Delays) -> str:
    """Format durations of both inputs: one if they are equal."""
    left, right = map(show_duration, delays)
    return left if left == right else f"({left}, {right})"


def show_duration(micros: int | None) -> str:
    """Format a duration as a user writes it."""
    return repr(None if micros is None else format_duration(micros))


def refuse_taken_names(
    names: Sequence[str],
    reserved: Sequence[str],
    given: Mapping[str, Any],
    condition: Condition[SpecError] = conditions.NAME_TAKEN,
) -> None:
    """Refuse result columns with the same name. Spark ignores upper and lower case.

    ``given`` are the parameters with these names; the last one can have other names.
    """
    folded = [name.lower() for name in names]
    taken = sorted({n for n in names if folded.count(n.lower()) > 1 or n.lower() in reserved})
    if taken:
        raise condition.error(
            taken=", ".join(taken),
            name=taken[0],
            reserved=", ".join(reserved),
            parameter=[*given][-1],
            got=", ".join(f"{parameter}={value!r}" for parameter, value in given.items()),
        )


def require_keys(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse key columns that Spark does not hash.

    Raises
    ------
    SchemaError
        ``TYPE_UNSUPPORTED``.
    """
    for name in names:
        with located(at=f"key {name!r}"):
            hashing.require_hashable(schema.field(name).type)


def refuse_type(
    condition: Condition[SchemaError], schema: pa.Schema, name: str, **facts: str
) -> NoReturn:
    """Refuse a column for its type: the condition has the fact ``column``, and those that are passed."""
    got = f"{name!r} of type {type_name(schema.field(name).type)}"
    raise condition.error(column=name, got=got, **facts)


def require_instant(schema: pa.Schema, name: str, *, use: str = "event time") -> None:
    """Raise an error that suggests a conversion if a column is not a timestamp.

    Raises
    ------
    SchemaError
        ``COLUMN_TYPE``.
    """
    dtype = schema.field(name).type
    if not (pa.types.is_timestamp(dtype) and dtype.tz is not None):
        condition = not_an_instant(type_name(dtype))
        refuse_type(condition, schema, name, use=use, expected="timestamp")


def not_an_instant(dtype: str) -> Condition[SchemaError]:
    """Return the condition for a column of this type (Spark's name) that is not a timestamp."""
    if dtype in _WHOLE:
        return conditions.INSTANT_AS_INTEGER
    if dtype in _FRACTIONS or dtype.startswith("decimal"):
        return conditions.INSTANT_AS_FRACTION
    if dtype.startswith("struct"):
        return conditions.INSTANT_AS_WINDOW
    if dtype in ("date", "timestamp_ntz"):
        return conditions.INSTANT_WITHOUT_ZONE
    return conditions.INSTANT_AS_TEXT if has_try_cast() else conditions.INSTANT_AS_TEXT_OF_SPARK_3


def require_most_keys(max_keys: object, default: int) -> None:
    """Raise an error if the value is not a positive integer.

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``.
    """
    if type(max_keys) is not int or max_keys < 1:  # not 16.0 or True
        raise conditions.MAX_KEYS_OUT_OF_RANGE.error(default=default, got=f"max_keys={max_keys!r}")


def require_aggregates(agg: object) -> None:
    """Raise an error if the value is not a mapping of names to aggregates. It may be empty."""
    if not isinstance(agg, Mapping):
        condition, call = _instead_of_spark(agg) or (conditions.AGGREGATES_NOT_NAMED, "count()")
        name = "events"
        if isinstance(getattr(agg, "native", None), bool):
            name, call = getattr(agg, "function", name), repr(agg)
        if condition is conditions.NOT_AN_AGGREGATE:
            condition = conditions.AGGREGATES_NOT_NAMED
        raise condition.error(name=name, call=call, got=f"agg={agg!r}")
    for name, value in agg.items():
        require_name(name, parameter="agg")
        # A Spark Column appears to have every attribute.
        methods = (getattr(value, method, None) for method in ("bind", "to_spark"))
        native = getattr(value, "native", None)
        is_one = isinstance(native, bool) and all(map(callable, methods))
        if isinstance(value, type) or not is_one:
            is_uncalled = inspect.isfunction(value) and value.__module__.startswith("streamops.")
            condition, call = conditions.NOT_AN_AGGREGATE, "count()"
            if is_uncalled:
                condition, call = conditions.AGGREGATE_NOT_CALLED, value.__name__
            condition, call = _instead_of_spark(value) or (condition, call)
            raise condition.error(name=name, call=call, got=f"agg={agg!r}")
        if getattr(type(value), "__repr__", None) is object.__repr__:
            raise conditions.AGGREGATE_WITHOUT_REPR.error(
                name=name,
                value=type(value).__name__,
                got=f"{value!r}, another text in each process",
            )


def _instead_of_spark(value: object) -> tuple[Condition[SpecError], str] | None:
    """The condition for an aggregate of Spark, and the call of ours; None if it is another value."""
    call = _CALL.fullmatch(repr(value))
    function = call and _SPARK_AGGREGATES.get(call[1])
    if not call or not function:
        return None
    if call[2].isidentifier():
        return conditions.NOT_AN_AGGREGATE, f'{function}("{call[2]}")'
    if function == "count":
        return conditions.NOT_AN_AGGREGATE, "count()"
    return conditions.AGGREGATE_OF_AN_EXPRESSION, f'{function}("value")'


def parse_aggregates(agg: object) -> tuple[tuple[str, Aggregation], ...]:
    """Return the named aggregates, validated by :func:`require_aggregates`."""
    require_aggregates(agg)
    assert isinstance(agg, Mapping)
    return tuple(agg.items())
