"""Values of Python under a declared type: each is taken exactly, or refused.

This is the one conversion between Python and columns. A converted value is what the column would be read
back as, so a function never sees a difference between a value that was assigned and one that was stored. The
conversions are listed in docs/process.md.
"""

from __future__ import annotations

import datetime as dt
import decimal
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import is_opaque

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Converter = Callable[..., Any]
"""From a value to the value as it is stored.

Of nested types, a new object. With a second argument, a set, lists and dicts are converted in place, and
their ids added to the set: one that is at two places becomes two objects, as if it had been stored.
"""

_FLOAT = struct.Struct("<f")
_EXACT_DATES = {"D", "h", "m", "s", "ms", "us"}
_DECIMALS = decimal.Context(prec=120, traps=[decimal.Inexact, decimal.InvalidOperation])


class Refused(TypeError):
    """A value that its declared type does not take. The message does not have the value in it."""


class Missing(Refused):
    """None, where a value is required."""


class UnsupportedType(TypeError):
    """A type whose values are not exchanged with Python."""


@lru_cache(maxsize=512)
def converter(dtype: pa.DataType) -> Converter:
    """Return the conversion to a type. None is taken by every type.

    Raises
    ------
    UnsupportedType
        Spark does not have the type, or Python has no values for it.

    Examples
    --------
    >>> converter(pa.float32())(0.1), converter(pa.list_(pa.int64()))((1, None))
    (0.10000000149011612, [1, None])
    """
    of_leaf = _LEAVES.get(dtype)
    if of_leaf is not None:
        return of_leaf
    types = pa.types
    if is_opaque(dtype):
        raise UnsupportedType(str(dtype))
    if types.is_timestamp(dtype) and dtype.unit == "us":
        return _to_instant
    if types.is_decimal(dtype):
        return _decimals(dtype)
    if types.is_list(dtype) or types.is_large_list(dtype):
        return _lists(dtype)
    if types.is_map(dtype):
        return _maps(dtype)
    if types.is_struct(dtype):
        return _structs(dtype)
    raise UnsupportedType(str(dtype))


@lru_cache(maxsize=512)
def field_converter(field: pa.Field) -> Converter:
    """Return the conversion to the type of a field, which may be declared NOT NULL."""
    convert = converter(field.type)
    if field.nullable:
        return convert

    def require(value: object, *reused: set[int]) -> Any:
        converted = convert(value, *reused)
        if converted is None:
            message = "None"
            raise Missing(message)
        return converted

    return require


def is_mutable(dtype: pa.DataType) -> bool:
    """Whether values of the type can be objects that a function changes later."""
    types = pa.types
    return any(is_(dtype) for is_ in (types.is_nested, types.is_binary, types.is_large_binary))


def to_column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Return a column with these values, each of which is converted exactly.

    Raises
    ------
    Refused
        A value does not have the type of the field.
    """
    if set(map(type, values)) <= _BY_ARROW.get(field.type, _NOTHING):
        try:
            array = pa.array(values, field.type)
        except (pa.ArrowException, ValueError, OverflowError):
            pass  # below, the value is described without Arrow's message, which shows it
        else:
            if field.nullable or not array.null_count:
                return array
    convert = field_converter(field)
    return pa.array([convert(value) for value in values], field.type)


def record_values(value: object, names: Sequence[str]) -> Sequence[Any] | None:
    """Return the values of a record in this order; None if it is not a record with exactly these names.

    A plain tuple has no names: its values are taken by position. A named tuple, a ``Row`` of Spark, a dict and a
    dataclass are read by name.
    """
    if isinstance(value, tuple):
        given = _names_of(value)
        if given is None or tuple(given) == tuple(names):
            return value if len(value) == len(names) else None
        value = dict(zip(given, value, strict=False))
    elif is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if not isinstance(value, Mapping) or len(value) != len(names):
        return None
    try:
        return [value[name] for name in names]
    except KeyError:
        return None


def _names_of(value: tuple[Any, ...]) -> Sequence[str] | None:
    """The names of a named tuple or of a ``Row`` of Spark; None of a plain tuple."""
    if type(value) is tuple:
        return None
    names: Sequence[str] | None = getattr(type(value), "__match_args__", None)
    return getattr(value, "__fields__", None) if names is None else names


def _refuse(value: object, why: str = "") -> NoReturn:
    message = f"a value of type {type(value).__name__}{why}"
    raise Refused(message)


def _plain(value: object) -> Any:
    """A scalar of NumPy as a value of Python."""
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.datetime_data(value.dtype) == ("ns", 1):  # of pandas
            exact = value.astype(f"{value.dtype.kind}8[us]")
            value = exact if exact == value else value
        unit = np.datetime_data(value.dtype)[0]
        # Finer units would be integers, and months are not dates.
        return value.item() if unit in _EXACT_DATES and not np.isnat(value) else value
    return value if isinstance(value, np.void) else value.item()


def _is_nat(value: object) -> bool:
    """Whether it is the missing instant of pandas or NumPy."""
    return isinstance(value, dt.datetime | dt.timedelta | np.datetime64 | np.timedelta64) and bool(
        value != value
    )


def _to_nothing(value: object, *_: set[int]) -> object:
    return None if value is None else _refuse(value)


def _to_bool(value: object, *_: set[int]) -> object:
    if value is None or type(value) is bool:
        return value
    plain = _plain(value)
    return plain if type(plain) is bool else _refuse(value)


def _integers(bits: int) -> Converter:
    high = (1 << (bits - 1)) - 1
    low = ~high

    def convert(value: object, *_: set[int]) -> object:
        if type(value) is int and low <= value <= high:
            return value
        if value is None:
            return None
        plain = _plain(value)
        if not isinstance(plain, int) or isinstance(plain, bool):
            _refuse(value)
        if not low <= plain <= high:
            _refuse(value, " out of range")
        return operator.index(plain)

    return convert


def _to_double(value: object, *_: set[int]) -> object:
    if type(value) is float or value is None:
        return value
    plain = _plain(value)
    if isinstance(plain, float):
        return float(plain)
    if not isinstance(plain, int) or isinstance(plain, bool):
        _refuse(value)
    try:
        number = float(plain)
    except OverflowError:
        number = 0.0
    return number if number == plain else _refuse(value, " that a float does not represent")


def _to_float(value: object, *_: set[int]) -> object:
    number = _to_double(value)
    if number is None:
        return None
    try:
        rounded = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        _refuse(value, " out of range")
    # A float has its nearest value; an integer is exact.
    return rounded if rounded == number or isinstance(_plain(value), float) else _refuse(value)


def _to_string(value: object, *_: set[int]) -> object:
    if value is None or (type(value) is str and value.isascii()):
        return value
    plain = _plain(value)
    if not isinstance(plain, str):
        _refuse(value)
    try:
        plain.encode()
    except UnicodeEncodeError:
        _refuse(value, " that is not Unicode text")
    return str.__str__(plain)


def _to_bytes(value: object, *_: set[int]) -> object:
    if value is None or type(value) is bytes:
        return value
    plain = _plain(value)
    return bytes(plain) if isinstance(plain, bytes | bytearray) else _refuse(value)


def _to_date(value: object, *_: set[int]) -> object:
    if value is None or type(value) is dt.date:
        return value
    plain = _plain(value)
    if isinstance(plain, dt.datetime) or not isinstance(plain, dt.date):
        _refuse(value)
    return dt.date(plain.year, plain.month, plain.day)


def _to_datetime(value: object) -> dt.datetime | None:
    """A value of a subclass, such as that of pandas, as a datetime; None if it is missing."""
    plain = _plain(value)
    if _is_nat(plain):
        return None
    if not isinstance(plain, dt.datetime):
        _refuse(value)
    if getattr(plain, "nanosecond", 0):
        _refuse(value, " with nanoseconds")
    clock = (plain.year, plain.month, plain.day, plain.hour, plain.minute, plain.second)
    return dt.datetime(*clock, plain.microsecond, tzinfo=plain.tzinfo, fold=plain.fold)


def _to_instant(value: object, *_: set[int]) -> object:
    if value is None or (type(value) is dt.datetime and value.tzinfo is dt.UTC and not value.fold):
        return value
    found = _to_datetime(value)
    if found is None:
        return None
    offset = found.utcoffset()
    if offset is None:
        _refuse(value, " without a time zone")
    try:
        return found.replace(tzinfo=dt.UTC, fold=0) - offset
    except OverflowError:
        _refuse(value, " beyond the years 1 to 9999 in UTC")


def _to_local(value: object, *_: set[int]) -> object:
    if value is None or (type(value) is dt.datetime and value.tzinfo is None and not value.fold):
        return value
    found = _to_datetime(value)
    if found is None:
        return None
    return found.replace(fold=0) if found.tzinfo is None else _refuse(value, " with a time zone")


def _to_time(value: object, *_: set[int]) -> object:
    if type(value) is dt.time and value.tzinfo is None:
        return value.replace(fold=0)
    return _to_nothing(value)


def _to_interval(value: object, *_: set[int]) -> object:
    plain = _plain(value)
    if value is None or _is_nat(plain):
        return None
    if not isinstance(plain, dt.timedelta):
        _refuse(value)
    if getattr(plain, "nanoseconds", 0):
        _refuse(value, " with nanoseconds")
    interval = dt.timedelta(plain.days, plain.seconds, plain.microseconds)
    if not -(1 << 63) <= interval // dt.timedelta(microseconds=1) < 1 << 63:
        _refuse(value, " out of range")
    return interval


def _decimals(dtype: pa.DataType) -> Converter:
    last_digit = decimal.Decimal((0, (1,), -dtype.scale))
    bound = decimal.Decimal((0, (1,), dtype.precision - dtype.scale))

    def convert(value: object, *_: set[int]) -> object:
        if value is None:
            return None
        plain = _plain(value)
        if isinstance(plain, bool) or not isinstance(plain, decimal.Decimal | int):
            _refuse(value)
        try:
            number = _DECIMALS.quantize(_DECIMALS.create_decimal(plain), last_digit)
            fits = -bound < number < bound
        except (decimal.Inexact, decimal.InvalidOperation):
            fits = False
        if not fits:
            _refuse(value, " that does not fit")
        return number if number else abs(number)  # one zero

    return convert


def _lists(dtype: pa.DataType) -> Converter:
    item, is_nested = field_converter(dtype.value_field), pa.types.is_nested(dtype.value_type)
    is_exact = _EXACT_LISTS.get(dtype.value_type)

    def convert(value: Any, reused: set[int] | None = None) -> object:
        if value is None:
            return None
        is_list = isinstance(value, list) or type(value) is tuple  # a subclass of it is a record
        if not is_list and (type(value) is not np.ndarray or not value.ndim):
            _refuse(value)
        is_reused = type(value) is list and _is_reused(value, reused)
        if is_exact is not None and type(value) is list and value and is_exact(value):
            return value if is_reused else value.copy()
        try:
            items = [item(v, reused) if is_nested else item(v) for v in value]
        except Refused as error:
            raise type(error)(f"{error} in an array") from None
        if not is_reused:
            return items
        value[:] = items
        return value

    return convert


def _maps(dtype: pa.DataType) -> Converter:
    key, item = converter(dtype.key_type), field_converter(dtype.item_field)
    if pa.types.is_nested(dtype.key_type):
        message = f"{dtype}, whose keys are not keys of a dict"
        raise UnsupportedType(message)

    def convert(value: Any, reused: set[int] | None = None) -> object:
        if value is None:
            return None
        is_pairs = type(value) is list and all(type(p) is tuple and len(p) == 2 for p in value)
        if not is_pairs and not isinstance(value, Mapping):
            _refuse(value)
        is_reused = type(value) is dict and _is_reused(value, reused)
        try:
            given = value if is_pairs else value.items()
            pairs = [(key(k), item(v, reused)) for k, v in given]
        except Refused as error:
            raise type(error)(f"{error} in a map") from None
        converted = dict(pairs)
        if None in converted:
            _refuse(value, " with a null key")
        # NaN is not equal to itself, and one key.
        if len(converted) < len(pairs) or sum(k != k for k in converted) > 1:
            _refuse(value, " with two equal keys")
        return _replaced(value, converted) if is_reused else converted

    return convert


def _structs(dtype: pa.DataType) -> Converter:
    parts = [dtype.field(at) for at in range(dtype.num_fields)]
    names = [part.name for part in parts]
    if len({*names}) < len(names):
        message = f"{dtype}, with two fields of one name"
        raise UnsupportedType(message)
    converters = [field_converter(part) for part in parts]

    def convert(value: Any, reused: set[int] | None = None) -> object:
        if value is None:
            return None
        values = record_values(value, names)
        if values is None:
            _refuse(value, f" that does not have exactly the fields {', '.join(names)}")
        is_reused = type(value) is dict and _is_reused(value, reused)
        converted = {}
        for name, part, given in zip(names, converters, values, strict=True):
            try:
                converted[name] = part(given, reused)
            except Refused as error:
                raise type(error)(f"{error} in field {name!r}") from None
        return _replaced(value, converted) if is_reused else converted

    return convert


def _is_reused(value: object, reused: set[int] | None) -> bool:
    """Whether a list or dict is converted in place: at the first of its places."""
    if reused is None or id(value) in reused:
        return False
    reused.add(id(value))
    return True


def _replaced(value: dict[Any, Any], converted: dict[Any, Any]) -> dict[Any, Any]:
    """The same dict with the converted entries, which keep their order."""
    same = map(operator.is_, (*value, *value.values()), (*converted, *converted.values()))
    if not all(same):
        value.clear()
        value.update(converted)
    return value


def keeps_values(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps each value, or refuses it: text is not a number, and a date is not an instant."""
    types = pa.types
    if types.is_dictionary(given):
        given = given.value_type
    if given == wanted or types.is_null(given):
        return True
    if types.is_nested(given) and types.is_nested(wanted):
        pairs = [
            (given.field(at), wanted.field(at))
            for at in range(min(given.num_fields, wanted.num_fields))
        ]
        same_names = not types.is_struct(wanted) or all(one.name == two.name for one, two in pairs)
        is_same = any(is_of(given) and is_of(wanted) for is_of in _NESTED)
        is_same = is_same and same_names and given.num_fields == wanted.num_fields
        return is_same and all(keeps_values(one.type, two.type) for one, two in pairs)
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    is_narrower = types.is_float64(given) and types.is_float32(wanted)
    return not is_narrower and any(is_of(given) and is_of(wanted) for is_of in _FLAT)


def _is_one_of(*names: str) -> Callable[[pa.DataType], bool]:
    tests = [getattr(pa.types, f"is_{name}") for name in names]
    return lambda dtype: any(test(dtype) for test in tests)


_NESTED = [
    _is_one_of("list", "large_list", "fixed_size_list"),
    _is_one_of("map"),
    _is_one_of("struct"),
]
_FLAT = [
    _is_one_of("integer", "floating"),
    _is_one_of("integer", "decimal"),
    _is_one_of("string", "large_string"),
    _is_one_of("binary", "large_binary", "fixed_size_binary"),
    *map(_is_one_of, ("date", "time", "duration")),
]


def comparable(value: object) -> tuple[Any, ...]:
    """A key to compare and sort values.

    NaN equals NaN at any depth; 0.0 equals -0.0; 2 equals 2.0, but no number equals a boolean.
    Aware datetimes are equal if they are the same instant. (Python's own comparison differs for times
    in the hour that is repeated when clocks are set back.)

    Examples
    --------
    >>> comparable([1, float("nan")]) == comparable([1.0, float("nan")])
    True
    >>> comparable(1) == comparable(True)
    False
    """
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, int | float | decimal.Decimal):
        return (3,) if value != value else (2, value)
    if isinstance(value, str):
        return (4, value)
    if isinstance(value, bytes | bytearray):
        return (5, bytes(value))
    if isinstance(value, dt.datetime):
        aware = value.tzinfo is not None
        return (6, value.astimezone(dt.UTC)) if aware else (7, value)
    for rank, type_ in enumerate((dt.date, dt.time, dt.timedelta), start=8):
        if isinstance(value, type_):
            return (rank, value)
    if isinstance(value, Mapping):
        return (12, tuple(sorted((comparable(k), comparable(v)) for k, v in value.items())))
    if isinstance(value, list | tuple):
        return (11, tuple(comparable(item) for item in value))
    return (13, type(value).__name__, str(value))


def same(one: object, other: object) -> bool:
    """Whether two values are equal, as in ``GROUP BY``: NaN equals NaN, and -0.0 equals 0.0."""
    return comparable(one) == comparable(other)


_LEAVES: dict[pa.DataType, Converter] = {
    pa.null(): _to_nothing,
    pa.bool_(): _to_bool,
    **{getattr(pa, f"int{bits}")(): _integers(bits) for bits in (8, 16, 32, 64)},
    pa.float32(): _to_float,
    pa.float64(): _to_double,
    pa.string(): _to_string,
    pa.large_string(): _to_string,
    pa.binary(): _to_bytes,
    pa.large_binary(): _to_bytes,
    pa.date32(): _to_date,
    pa.timestamp("us"): _to_local,
    pa.duration("us"): _to_interval,
    pa.time64("us"): _to_time,
    pa.time64("ns"): _to_time,
}

_NOTHING: set[type] = set()
_BY_ARROW: dict[pa.DataType, set[type]] = {
    # Arrow takes each value of these Python types exactly, or raises an error.
    pa.bool_(): {bool, type(None)},
    **{getattr(pa, f"int{bits}")(): {int, type(None)} for bits in (8, 16, 32, 64)},
    pa.float64(): {float, type(None)},
    pa.string(): {str, type(None)},
    pa.binary(): {bytes, type(None)},
    pa.date32(): {dt.date, type(None)},
}


def _are(type_: type) -> Callable[[list[Any]], bool]:
    return lambda values: set(map(type, values)) == {type_}


_EXACT_LISTS: dict[pa.DataType, Callable[[list[Any]], bool]] = {
    # Whether all values of a list are already as they are stored, without a call for each of them.
    pa.bool_(): _are(bool),
    pa.int64(): lambda values: (
        set(map(type, values)) == {int} and min(values) >= -(1 << 63) and max(values) < 1 << 63
    ),
    pa.float64(): _are(float),
    pa.string(): lambda values: set(map(type, values)) == {str} and all(map(str.isascii, values)),
}
