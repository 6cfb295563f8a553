"""Values of Arrow columns as Python objects, and back, a column at a time.

Instants are aware ``datetime`` objects in UTC, maps are dicts, structs are dicts, lists are lists. A value
of a nested type is a new object for each row: a function may change it.
"""

from __future__ import annotations

import datetime as dt
import keyword
import unicodedata
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import make_dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, type_name
from streamops.kernel.errors import FunctionError
from streamops.kernel.values import (
    EPOCH,
    Missing,
    Refused,
    UnsupportedType,
    converter,
    field_converter,
    to_column,
)
from streamops.kernel.versions import pylist
from streamops.process import conditions

MICROSECOND = dt.timedelta(microseconds=1)


def to_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column.

    Examples
    --------
    >>> to_values(pa.array([0, None], pa.timestamp("us", tz="UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), None]
    """
    array = combine_chunks(column)
    dtype = array.type
    if pa.types.is_timestamp(dtype) and dtype.unit == "us":
        return _timestamps(array)
    # Through NumPy a value takes a fifth of the time.
    is_number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype)
    if is_number and not array.null_count:
        numbers: list[Any] = array.to_numpy().tolist()
        return numbers
    values: list[Any] = pylist(array)
    if pa.types.is_nested(dtype) and "tz=" in str(dtype):
        # Arrow has another object for UTC inside of nested values.
        with suppress(UnsupportedType):
            values = list(map(converter(dtype), values))
    return values


def _timestamps(array: pa.Array) -> list[Any]:
    since = np.asarray(array.cast(pa.int64()).fill_null(0)).view("m8[us]").tolist()
    epoch = EPOCH if array.type.tz is not None else EPOCH.replace(tzinfo=None)
    values: list[Any] = [epoch + delta for delta in since]
    for at in np.flatnonzero(np.asarray(array.is_null())).tolist():
        values[at] = None
    return values


def from_values(values: Sequence[Any], field: pa.Field, *, what: str) -> pa.Array:
    """Return a column with these values, each of which is converted exactly.

    Raises
    ------
    FunctionError
        ``VALUE_TYPE``: a value does not have the type of the column. ``FUNCTION_RESULT``: it is None, and the
        column is declared NOT NULL.
    """
    try:
        return to_column(values, field)
    except Refused as error:
        raise value_error(error, field, what=what) from None


def value_error(error: Refused, field: pa.Field, *, what: str) -> FunctionError:
    """The error for a value that a field does not take. It does not have the value in it."""
    if isinstance(error, Missing):
        return conditions.VALUE_MISSING.error(
            thing=what, field=field.name, expected=type_name(field.type), got=str(error)
        )
    return conditions.VALUE_TYPE.error(
        thing=what,
        field=field.name,
        expected=type_name(field.type) + (", or None" if field.nullable else ""),
        got=str(error),
    )


def converters(
    schema: pa.Schema, *, what: str, only: Sequence[str] | None = None
) -> dict[str, Callable[..., Any]]:
    """The conversion of each field, or of these, with errors that name the field."""
    fields = [part for part in schema if only is None or part.name in only]
    return {part.name: _named(part, what) for part in fields}


def _named(field: pa.Field, what: str) -> Callable[..., Any]:
    convert = field_converter(field)

    def convert_named(value: Any, *reused: set[int]) -> Any:
        try:
            return convert(value, *reused)
        except Refused as error:
            raise value_error(error, field, what=what) from None

    return convert_named


@lru_cache(maxsize=64)
def row_type(names: tuple[str, ...], name: str = "Row") -> Any:
    """Return the class of rows with these columns: a named tuple, which may have any names.

    A column is read as an attribute or by its name. Where a column is called like a method of tuples, it is the
    column. Names with two underscores at both ends belong to Python: such a column is read by its name only.

    Examples
    --------
    >>> row = row_type(("user", "_1", "my col"))("ann", 7, None)
    >>> row.user, row._1, row["my col"], row[1]
    ('ann', 7, None, 7)
    """
    positions = {column: at for at, column in enumerate(names)}
    count = len(names)

    def new(cls: Any, /, *values: Any, **by_name: Any) -> Any:
        given = len(values) + len(by_name)
        if by_name:
            values += tuple(by_name[column] for column in names[len(values) :] if column in by_name)
        if not len(values) == given == count:
            message = f"{name} has the columns {', '.join(names)}"
            raise TypeError(message)
        return tuple.__new__(cls, values)

    def get(row: Any, key: Any) -> Any:
        return tuple.__getitem__(row, positions[key] if isinstance(key, str) else key)

    def change(row: Any, /, **changes: Any) -> Any:
        if unknown := changes.keys() - positions.keys():
            message = f"{name} does not have {', '.join(sorted(unknown))}"
            raise ValueError(message)
        return tuple.__new__(
            type(row), [changes.get(key, old) for key, old in zip(names, row, strict=True)]
        )

    def show(row: Any) -> str:
        return f"{name}({', '.join(f'{k}={v!r}' for k, v in zip(names, row, strict=True))})"

    # Descriptors of named tuples read an item without a call of Python.
    getters = vars(namedtuple(name, [f"c{at}" for at in range(count)]))
    own = {
        "_fields": names,
        "_make": classmethod(tuple.__new__),
        "_replace": change,
        "_asdict": lambda row: dict(zip(names, row, strict=True)),
    }
    columns = {column: getters[f"c{at}"] for column, at in positions.items()}
    special = {
        "__slots__": (),
        "__match_args__": names,
        "__new__": new,
        "__getitem__": get,
        "__getnewargs__": lambda row: tuple(row),
        "__repr__": show,
    }
    of_python = {key for key in columns if key.startswith("__") and key.endswith("__")}
    public = {key: item for key, item in columns.items() if key not in of_python}
    return type(name, (tuple,), own | public | special)


def make_rows(made: Any, rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Return rows of a class of :func:`row_type`, whatever its columns are called."""
    return list(map(partial(tuple.__new__, made), rows))


def parse_initial(state: pa.Schema, initial: Any) -> tuple[tuple[str, Any], ...]:
    """Return the initial values of a state, whose fields are names of attributes."""
    fields = f"state with {', '.join(state.names) or 'no field'}"
    for name in state.names:
        if not _is_attribute(name):
            raise conditions.FIELD_NOT_AN_ATTRIBUTE.error(name=name, got=fields)
    initial = {} if initial is None else initial
    if not isinstance(initial, Mapping):
        raise conditions.INITIAL_NOT_A_MAPPING.error(got=f"initial={initial!r}")
    for name in initial:
        if name not in state.names:
            raise conditions.INITIAL_UNKNOWN.error(name=name, got=fields)
    for field in state:
        name, value = field.name, initial.get(field.name)
        try:
            field_converter(field)(value)
        except Refused as error:
            if name not in initial:
                raise conditions.INITIAL_MISSING.error(
                    name=name, got=f"initial={dict(initial)!r}"
                ) from None
            got = f"initial={{{name!r}: {value!r}}}: {error}"
            raise conditions.INITIAL_TYPE.error(
                name=name, dtype=type_name(field.type), got=got
            ) from None
    return tuple(initial.items())


def _is_attribute(name: str) -> bool:
    """Whether ``state.name`` reads it: Python folds letters that are only compatible, such as a ligature."""
    is_name = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
    return is_name and unicodedata.normalize("NFKC", name) == name


@lru_cache(maxsize=64)
def state_type(fields: tuple[pa.Field, ...]) -> Any:
    """Return the class of states with these fields. A value is converted when it is assigned."""
    names = [part.name for part in fields]
    # Of a frozen class, the constructor does not convert: stored values have their types.
    base: Any = make_dataclass("State", names, slots=True, frozen=True)
    assign = {part.name: (field_converter(part), vars(base)[part.name].__set__) for part in fields}

    def set_field(state: Any, name: str, value: Any) -> None:
        try:
            convert, store = assign[name]
        except KeyError:
            message = f"the state has no field {name!r}"
            raise AttributeError(message) from None
        try:
            store(state, convert(value))
        except Refused as error:
            field = fields[names.index(name)]
            raise value_error(error, field, what="state") from None

    def delete_field(_: Any, name: str) -> None:
        message = f"the field {name!r} of the state cannot be deleted"
        raise AttributeError(message)

    body = {"__slots__": (), "__setattr__": set_field, "__delattr__": delete_field}
    return type("State", (base,), {**body, "__hash__": None})


def settler(fields: Sequence[pa.Field]) -> Callable[[Any], None] | None:
    """Return what converts the lists and dicts of a state that a function changed in place, if it can.

    It is called after each row and timer, so that no function sees what is not stored.
    """
    nested = [
        (attrgetter(part.name), field_converter(part), part)
        for part in fields
        if pa.types.is_nested(part.type)
    ]
    if not nested:
        return None

    def settle(state: Any) -> None:
        # A list that another field has, too, stays that of its own field.
        own = {id(get(state)) for get, _, _ in nested}
        for get, convert, field in nested:
            value = get(state)
            own.discard(id(value))
            try:
                convert(value, own)
            except Refused as error:
                raise value_error(error, field, what="state") from None

    return settle


def to_rows(table: pa.Table) -> list[Any]:
    """Return the rows of a table as named tuples."""
    made = row_type(tuple(table.column_names))
    if not table.num_columns:
        return [made()] * len(table)
    columns = [_column_values(table, name) for name in table.column_names]
    return make_rows(made, zip(*columns, strict=True))


def _column_values(table: pa.Table, name: str) -> list[Any]:
    try:
        return to_values(table.column(name))
    except (OverflowError, ValueError) as error:
        raise conditions.VALUE_NOT_IN_PYTHON.error(
            where=f"column {name!r}", column=name, got=f"{table.schema.field(name).type}, {error}"
        ) from error


def micros_of(instant: dt.datetime) -> int:
    """Return the microseconds since 1970 of an aware datetime."""
    return (instant - EPOCH) // MICROSECOND


def instant_of(micros: int) -> dt.datetime:
    """Return the aware datetime of microseconds since 1970."""
    return EPOCH + micros * MICROSECOND
