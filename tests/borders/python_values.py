"""Random declared types and Python values, and what must become of each value.

The expectation is a table by hand: for each type of Spark, the classes of Python that it takes, and what is stored.
It does not use the library's conversion.
"""

from __future__ import annotations

import datetime as dt
import enum
import random
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from streamops.sketches.core.items import flat_type

BERLIN = ZoneInfo("Europe/Berlin")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class WrongError(Exception):
    """The type does not take the value."""


class Level(enum.IntEnum):
    """An integer with a name."""

    HIGH = 3


class Color(str, enum.Enum):  # noqa: UP042
    """Text with a name."""

    RED = "red"


class Day(dt.date):
    """A date of a class of its own."""


# A type is its name and its parts: ("decimal", 5, 2), ("array", item), ("map", key, item), ("struct", (name, part)...).
Type = tuple[Any, ...]
LEAVES: list[Type] = [
    *((name,) for name in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")),
    *((name,) for name in ("string", "binary", "date", "timestamp", "timestamp_ntz")),
    ("decimal", 5, 2),
    ("decimal", 38, 10),
    ("decimal", 3, 0),
]
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def ddl(of: Type) -> str:
    """The type as Spark writes it."""
    match of:
        case ("decimal", precision, scale):
            return f"decimal({precision},{scale})"
        case ("array", item):
            return f"array<{ddl(item)}>"
        case ("map", key, item):
            return f"map<{ddl(key)},{ddl(item)}>"
        case ("struct", *parts):
            return f"struct<{','.join(f'{name}:{ddl(part)}' for name, part in parts)}>"
    return str(of[0])


def arrow(of: Type) -> pa.DataType:
    """The type in Arrow."""
    match of:
        case ("array", item):
            return pa.list_(arrow(item))
        case ("map", key, item):
            return pa.map_(arrow(key), arrow(item))
        case ("struct", *parts):
            return pa.struct([(name, arrow(part)) for name, part in parts])
    return flat_type(ddl(of))


def random_type(rng: random.Random, depth: int = 3) -> Type:
    """A type with at most `depth` levels below it."""
    shape = rng.choice(["leaf", "leaf", "array", "map", "struct"]) if depth else "leaf"
    if shape == "array":
        return ("array", random_type(rng, depth - 1))
    if shape == "map":
        return ("map", rng.choice(LEAVES), random_type(rng, depth - 1))
    if shape == "struct":
        names = rng.sample(["a", "b", "class", "_1"], rng.randint(1, 3))
        return ("struct", *((name, random_type(rng, depth - 1)) for name in names))
    return rng.choice(LEAVES)


# -- leaves


def _same(_: Type, value: Any) -> Any:
    return value


def _int(of: Type, value: Any) -> int:
    number = int(value)
    if not -(2 ** (_BITS[of[0]] - 1)) <= number < 2 ** (_BITS[of[0]] - 1):
        raise WrongError
    return number


def _float(of: Type, value: Any) -> float:
    number = float(value)
    with np.errstate(over="ignore"):
        stored = float(np.float32(number)) if of[0] == "float" else number
    if np.isinf(stored) and not np.isinf(number):
        raise WrongError
    return stored


def _float_of_int(of: Type, value: Any) -> float:
    digits = 24 if of[0] == "float" else 53
    odd = abs(int(value))
    while odd and odd % 2 == 0:
        odd //= 2
    largest = 2**128 if of[0] == "float" else 2**1024
    if odd >= 2**digits or abs(int(value)) >= largest:
        raise WrongError
    return float(int(value))


def _decimal(of: Type, value: Any) -> Decimal:
    if isinstance(value, Decimal) and not value.is_finite():
        raise WrongError
    units = Fraction(value if isinstance(value, Decimal) else int(value)) * 10 ** of[2]
    if units.denominator != 1 or abs(units) >= 10 ** of[1]:
        raise WrongError
    digits = tuple(map(int, str(abs(units.numerator))))
    return Decimal((int(units < 0), digits, -of[2]))


def _text(_: Type, value: Any) -> str:
    text = "".join([*value])
    if any(0xD800 <= ord(letter) < 0xE000 for letter in text):
        raise WrongError
    return text


def _bytes(_: Type, value: Any) -> bytes:
    return b"".join(bytes([number]) for number in value)


def _date(_: Type, value: Any) -> dt.date:
    if isinstance(value, np.datetime64) and (np.isnat(value) or value.dtype != "M8[D]"):
        raise WrongError
    return dt.date.fromisoformat(str(value))


def _instant(_: Type, value: Any) -> Any:
    if value is pd.NaT:
        return None
    if value.tzinfo is None or getattr(value, "nanosecond", 0):
        raise WrongError
    whole = dt.datetime.fromisoformat(value.isoformat())
    try:
        return EPOCH + (whole - EPOCH)
    except OverflowError:
        raise WrongError from None


def _local(_: Type, value: Any) -> Any:
    if value is pd.NaT:
        return None
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        if value.dtype not in ("M8[s]", "M8[us]"):
            raise WrongError
        return dt.datetime.fromisoformat(str(value))
    if value.tzinfo is not None or getattr(value, "nanosecond", 0):
        raise WrongError
    return dt.datetime.fromisoformat(value.isoformat())


_INTS = dict.fromkeys([int, Level, np.int8, np.int64, np.uint64])
_FLOATS = dict.fromkeys([float, np.float16, np.float32, np.float64], _float)
_TIMES = dict.fromkeys([dt.datetime, pd.Timestamp, type(pd.NaT)])
TAKES: dict[str, dict[type, Callable[[Type, Any], Any]]] = {
    "boolean": {bool: _same, np.bool_: lambda _, value: bool(value)},
    **{name: dict.fromkeys(_INTS, _int) for name in _BITS},
    "float": {**_FLOATS, **dict.fromkeys(_INTS, _float_of_int)},
    "double": {**_FLOATS, **dict.fromkeys(_INTS, _float_of_int)},
    "decimal": dict.fromkeys([Decimal, *_INTS], _decimal),
    "string": {str: _text, np.str_: _text, Color: lambda _, value: value.value},
    "binary": dict.fromkeys([bytes, bytearray, np.bytes_], _bytes),
    "date": dict.fromkeys([dt.date, Day, np.datetime64], _date),
    "timestamp": {**dict.fromkeys(_TIMES, _instant)},
    "timestamp_ntz": dict.fromkeys([*_TIMES, np.datetime64], _local),
}
"""For each type of Spark, the classes that it takes, and what is stored of a value."""


def _nat_in_utc(_: Type, value: Any) -> None:
    if not np.isnat(value):
        raise WrongError


TAKES["timestamp"][np.datetime64] = _nat_in_utc

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, Level.HIGH, Color.RED, 1j, object(), ...),
    *(
        sign * (2**bits) + more
        for bits in (7, 15, 31, 53, 63, 70)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ),
    *(
        0.0,
        -0.0,
        1.0,
        1.5,
        0.1,
        float("nan"),
        float("inf"),
        -float("inf"),
        1e39,
        1e300,
        5e-324,
        16777217.0,
    ),
    *map(
        Decimal,
        ["0", "-0.00", "1", "1.5", "1.50", "1.505", "999.99", "1000", "1E+2", "1E-40", "NaN"],
    ),
    *(
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("9" * 28 + "." + "9" * 10),
        Decimal("1E+500000"),
    ),
    *("", "a", "7", "1.5", "é", "\0", "\ud800", "2024-01-01", np.str_("n"), "true"),
    *(b"", b"a", b"\xff\x00", bytearray(b"ab"), np.bytes_(b"n"), memoryview(b"a")),
    *(dt.date(2024, 1, 1), dt.date(1, 1, 1), dt.date.max, Day(2024, 2, 29)),
    *(
        dt.datetime.fromisoformat("2024-01-01"),
        dt.datetime.fromisoformat("2024-01-01T01:02:03.000004"),
        dt.datetime.fromisoformat("0001-01-01"),
        dt.datetime.fromisoformat("9999-12-31T23:59:59.999999"),
    ),
    *(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC)),
    *(dt.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)),
    *(dt.datetime(2024, 1, 1, fold=1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, fold=1)),  # noqa: DTZ001
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))),
    *(
        pd.Timestamp("2024-01-01T00:00:00.000001"),
        pd.Timestamp(1, unit="ns"),
        pd.Timestamp(0, tz="Asia/Tokyo"),
    ),
    *(
        pd.Timestamp(1, unit="ns", tz="UTC"),
        pd.NaT,
        pd.NA,
        pd.Timedelta(1),
        dt.timedelta(1),
        dt.time(1),
    ),
    *(
        np.bool_(True),
        np.int8(-7),
        np.int64(2**40),
        np.uint64(2**63),
        np.float16(0.5),
        np.float32(0.1),
    ),
    *(
        np.float64(0.1),
        np.float64("nan"),
        np.timedelta64(1, "s"),
        np.timedelta64(1, "ns"),
        np.complex64(1),
    ),
    *(np.datetime64("2024-01-01"), np.datetime64("2024-01"), np.datetime64("2024-01-01T01", "us")),
    *(np.datetime64(1, "ns"), np.datetime64("NaT", "us"), np.datetime64("2024-01-01T01", "s")),
    *(
        [],
        (),
        {},
        set(),
        frozenset({1}),
        [1],
        (1, 2),
        {"a": 1},
        {1: 2},
        "ab",
        range(2),
        deque([1]),
        iter([1]),
    ),
    *(np.array([1, 2]), np.array(5), np.array([0.5]), np.array(["a"]), Row(a=1), Row(1, 2)),
]


def stored(of: Type, value: Any) -> Any:
    """The value as it is stored and read. `WrongError`: it is refused."""
    if value is None:
        return None
    name = of[0]
    if name == "array":
        if type(value) not in (list, tuple, np.ndarray) or (
            type(value) is np.ndarray and not value.ndim
        ):
            raise WrongError
        return [stored(of[1], item) for item in value]
    if name == "map":
        pairs = value
        if type(value) in (dict, OrderedDict):
            pairs = list(value.items())
        elif type(value) is not list or any(type(p) is not tuple or len(p) != 2 for p in value):
            raise WrongError
        found: dict[Any, Any] = {}
        for key, item in pairs:
            new = stored(of[1], key)
            if new is None or any(
                new == other or (new != new and other != other) for other in found
            ):
                raise WrongError
            found[new] = stored(of[2], item)
        return found
    if name == "struct":
        return _stored_struct(of[1:], value)
    take = TAKES[name].get(type(value))
    if take is None:
        raise WrongError
    return take(of, value)


def _stored_struct(parts: tuple[Any, ...], value: Any) -> dict[str, Any]:
    names = [name for name, _ in parts]
    if type(value) is tuple or (type(value) is Row and not hasattr(value, "__fields__")):
        given = dict(enumerate(value))
        keys: list[Any] = list(range(len(parts)))
    else:
        keys = names
        if type(value) in (dict, OrderedDict):
            given = dict(value)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            given = value._asdict()
        elif type(value) is Row:
            given = value.asDict()
        elif hasattr(value, "__dataclass_fields__"):
            given = vars(value)
        else:
            raise WrongError
    if set(given) != set(keys):
        raise WrongError
    return {name: stored(part, given[key]) for (name, part), key in zip(parts, keys, strict=True)}


# -- random values


def _fitting(rng: random.Random, of: Type) -> Iterator[Any]:
    """Leaf values that the type takes."""
    for value in rng.sample(VALUES, len(VALUES)):
        try:
            stored(of, value)
        except WrongError:
            continue
        yield value


def random_value(rng: random.Random, of: Type, wrong: float) -> Any:
    """A value of the type, in one of its forms; each part is another value with this probability."""
    if rng.random() < wrong:
        return rng.choice(VALUES)
    if of[0] == "array":
        items = [random_value(rng, of[1], wrong) for _ in range(rng.randint(0, 3))]
        return rng.choice([list, tuple])(items)
    if of[0] == "map":
        keys = [key for key in rng.sample(list(_fitting(rng, of[1])), 2) if key is not None]
        made = {key: random_value(rng, of[2], wrong) for key in keys if not _is_unhashable(key)}
        return made if rng.random() < 0.7 else list(made.items())
    if of[0] == "struct":
        return _struct_value(
            rng, [(name, random_value(rng, part, wrong)) for name, part in of[1:]], wrong
        )
    return next(_fitting(rng, of))


def _is_unhashable(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):
        return True
    return False


def _struct_value(rng: random.Random, parts: list[tuple[str, Any]], wrong: float) -> Any:
    """A struct in one of the forms of Python, which may lack a field or have another one."""
    if rng.random() < wrong:
        parts = rng.choice([parts[1:], [*parts, ("more", 1)], [("other", parts[0][1]), *parts[1:]]])
    if rng.random() < 0.5:
        parts = rng.sample(parts, len(parts)) if rng.random() < 0.5 else parts
    names, values = [name for name, _ in parts], [value for _, value in parts]
    form = rng.choice(["dict", "dict", "tuple", "Row", "namedtuple", "dataclass"])
    is_python = parts and not {"class", "_1"} & {*names}
    if form == "tuple":
        return tuple(values)
    if form == "Row" and parts:
        return Row(*names)(*values)
    if form == "namedtuple" and is_python:
        return namedtuple("Made", names)(*values)
    if form == "dataclass" and is_python:
        return make_dataclass("Made", names)(*values)
    return dict(parts)
