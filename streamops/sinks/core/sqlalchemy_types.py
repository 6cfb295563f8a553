"""Types of SQLAlchemy for Arrow types, and which columns of a table take values without loss."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql

_ZONED = {"postgresql", "oracle"}
"""Databases with a type for instants. In the others, they are stored in UTC without a zone."""

_WITH_NAN = {"postgresql", "oracle"}

MYSQL = ("mysql", "mariadb")
_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_COLLATIONS = {"mysql": "utf8mb4_0900_bin", "mariadb": "utf8mb4_nopad_bin"}


class Instant(sa.types.TypeDecorator[dt.datetime]):
    """An instant: with time zone, or in UTC where the database has no such type."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """The type in a database."""
        return dialect.type_descriptor(_date_time(dialect.name, dialect.name in _ZONED))

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Convert a value for the database."""
        return value if value is None or dialect.name in _ZONED else value.replace(tzinfo=None)


class LocalTime(sa.types.TypeDecorator[dt.datetime]):
    """A timestamp without time zone, with microseconds."""

    impl = sa.DateTime()
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """The type in a database."""
        return dialect.type_descriptor(_date_time(dialect.name, False))


class Exact(sa.types.TypeDecorator[Decimal]):
    """A decimal number. SQLite would store a double, so there it is text."""

    impl = sa.Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """The type in a database."""
        is_text = dialect.name == "sqlite"
        return dialect.type_descriptor(sa.String(41) if is_text else self.impl_instance)

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Convert a value for the database."""
        if value is None or dialect.name != "sqlite":
            return value
        text = f"{value:f}"  # equal numbers have equal text, whatever their scale
        return text.rstrip("0").rstrip(".") if "." in text else text

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        """Convert a value from the database."""
        return Decimal(value) if isinstance(value, str) else value


def _date_time(dialect: str, with_zone: bool) -> Any:
    if dialect in MYSQL:
        return mysql.DATETIME(fsp=6)
    if dialect == "mssql":
        return mssql.DATETIME2(6)  # type: ignore[no-untyped-call]
    return sa.DateTime(timezone=with_zone)


def column_type(dtype: pa.DataType, *, is_key: bool = False) -> Any:
    """The type of a column for an Arrow type; None if there is none."""
    plain: dict[pa.DataType, Any] = {
        pa.bool_(): sa.Boolean(),
        pa.int8(): sa.SmallInteger(),
        pa.int16(): sa.SmallInteger(),
        pa.int32(): sa.Integer(),
        pa.int64(): sa.BigInteger(),
        pa.float32(): sa.REAL(),
        pa.float64(): sa.Double(),
        pa.date32(): sa.Date(),
        pa.timestamp("us"): LocalTime(),
    }
    if is_key and pa.types.is_floating(dtype):
        return None
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_null(dtype):
        return _text(is_key)
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
    if pa.types.is_decimal128(dtype) and 0 <= dtype.scale <= dtype.precision:
        return Exact(dtype.precision, dtype.scale)
    if pa.types.is_timestamp(dtype) and dtype.tz is not None and dtype.unit == "us":
        return Instant()
    return plain.get(dtype)


def _text(is_key: bool) -> Any:
    """Text that compares by its characters. MySQL's keys have a length."""
    result: Any = sa.String(255) if is_key else sa.Text()
    for dialect, collation in _COLLATIONS.items():
        limited = mysql.VARCHAR(255, collation=collation)
        variant = limited if is_key else mysql.LONGTEXT(collation=collation)
        result = result.with_variant(variant, dialect)
    return result.with_variant(sa.Text(), "postgresql", "sqlite") if is_key else result


def accepts(found: Any, dtype: pa.DataType, dialect: str) -> bool:
    """Whether a column with a reflected type takes values of an Arrow type without loss."""
    if dtype in _BITS:
        return _accepts_integers(found, _BITS[dtype], dialect)
    if pa.types.is_decimal(dtype):
        if dialect == "sqlite":
            return isinstance(found, sa.String)
        return _is_numeric(found) and _has_room(found, dtype.precision, dtype.scale)
    if pa.types.is_floating(dtype):
        if (
            dialect in MYSQL
        ):  # whose FLOAT is rounded when it is read; with a scale, a DOUBLE is rounded, too
            return isinstance(found, sa.Double) and found.scale is None
        accepted = sa.Double if dtype == pa.float64() and dialect != "sqlite" else sa.Float
        return isinstance(found, accepted)
    if pa.types.is_timestamp(dtype):
        zoned = bool(getattr(found, "timezone", False)) if dialect in _ZONED else False
        if dialect in MYSQL and dtype.tz is None and isinstance(found, sa.TIMESTAMP):
            return False  # it is an instant
        return isinstance(found, sa.DateTime) and zoned == (
            dialect in _ZONED and dtype.tz is not None
        )
    if isinstance(found, mysql.SET):
        return False
    classes: dict[pa.DataType, Any] = {
        pa.bool_(): (sa.Boolean, mysql.TINYINT),
        pa.date32(): sa.Date,
        pa.binary(): sa.types._Binary,
        pa.large_binary(): sa.types._Binary,
        pa.string(): sa.String,
        pa.large_string(): sa.String,
    }
    return isinstance(found, classes[dtype]) if dtype in classes else pa.types.is_null(dtype)


def _accepts_integers(found: Any, bits: int, dialect: str) -> bool:
    if _is_numeric(found):
        return dialect != "sqlite" and _has_room(found, _DIGITS[bits], 0)
    if isinstance(found, mysql.TINYINT):
        return bits == 8
    for size, classes in ((64, sa.BigInteger), (16, sa.SmallInteger), (32, sa.Integer)):
        if isinstance(found, classes):
            return dialect == "sqlite" or bits <= size
    return False


def _is_numeric(found: Any) -> bool:
    return isinstance(found, sa.Numeric) and not isinstance(found, sa.Float)


def _has_room(found: Any, precision: int, scale: int) -> bool:
    if found.precision is None:
        return True
    stored = found.scale or 0
    return bool(stored >= scale and found.precision - stored >= precision - scale)


def changes_value(
    values: pa.ChunkedArray, column: Mapping[str, Any], dialect: str
) -> Iterator[tuple[str, Any]]:
    """Values that a column changes or refuses although it has their type: a reason, and which they are.

    MySQL and MariaDB refuse all others themselves, in the mode that the sink sets.
    """
    found, dtype = column["type"], values.type
    if not column["nullable"]:
        yield "null", pc.is_null(values)  # or it becomes a number of the database
    if pa.types.is_floating(dtype) and dialect not in _WITH_NAN:
        yield "NaN", pc.is_nan(values)
        if dialect in MYSQL:
            yield "an infinite number", pc.is_inf(values)
    if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
        days = values.cast(pa.date32())
        outside = pc.or_(pc.less(days, dt.date.min), pc.greater(days, dt.date.max))
        yield "a year before 1 or after 9999", outside
    if pa.types.is_timestamp(dtype) and dialect != "sqlite":
        digits = _fraction_digits(found, dialect)
        micros = values.cast(pa.int64())
        unit = 10 ** (6 - digits)
        rounded = pc.multiply(pc.divide(micros, unit), unit)
        yield f"more than {digits} digits of a second", pc.not_equal(micros, rounded)
    if dialect != "sqlite" and isinstance(found, sa.String) and not pa.types.is_null(dtype):
        yield from _changed_text(values, found, dialect)
    if isinstance(found, sa.BINARY) and found.length is not None:
        yield "bytes of another length", pc.not_equal(pc.binary_length(values), found.length)


def _changed_text(values: pa.ChunkedArray, found: Any, dialect: str) -> Iterator[tuple[str, Any]]:
    if isinstance(found, sa.Enum):
        wanted = pa.array(found.enums, values.type)
        yield "another text", pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, wanted)))
        return
    length = None if found.length is None else pc.utf8_length(values)
    if isinstance(found, sa.CHAR) and dialect in MYSQL:
        yield "a blank at the end", pc.ends_with(values, " ")
    elif isinstance(found, sa.CHAR) and length is not None:
        yield "a text of another length", pc.not_equal(length, found.length)
    if length is not None:
        yield "a longer text", pc.greater(length, found.length)


def _fraction_digits(found: Any, dialect: str) -> int:
    if dialect in MYSQL:
        return getattr(found, "fsp", None) or 0
    digits = getattr(found, "precision", None)
    return 6 if digits is None else int(digits)
