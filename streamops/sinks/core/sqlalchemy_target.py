"""What the SQLAlchemy sink requires of tables that others created."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, postgresql

from streamops.kernel.errors import SinkError
from streamops.sinks import conditions

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


Found = Mapping[str, Any]
"""A column, as SQLAlchemy's inspector describes it."""

# Quoted names, strings and comments; and the clauses with which SQLite drops rows without an error.
_QUOTED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^]]*\]|--[^\n]*|/\*.*?\*/""", re.S
)
_DROPS_ROWS = re.compile(r"\bON\s+CONFLICT\s+(IGNORE|REPLACE)\b", re.I)


@dataclass(frozen=True)
class Target:
    """A table that exists.

    Parameters
    ----------
    columns : dict of str to mapping
        Its columns, as SQLAlchemy's inspector describes them.
    fires : bool
        Whether it has triggers, or may have.
    key : tuple of str
        Its primary key; empty if it has none.
    """

    columns: dict[str, Found]
    fires: bool
    key: tuple[str, ...]


def inspect(connection: Any, table: str, schema: str | None) -> Target | None:
    """Find a table; None if it does not exist, or does not any more.

    Raises
    ------
    SinkError
        ``TARGET_KIND``.
    """
    inspector = sa.inspect(connection)
    if not inspector.has_table(table, schema=schema):
        return None
    try:
        return _inspect(connection, inspector, table, schema)
    except sa.exc.NoSuchTableError:  # another connection has dropped it
        return None


def _inspect(connection: Any, inspector: Any, table: str, schema: str | None) -> Target:
    find = _PROBLEMS.get(connection.dialect.name, _check_others)
    problem, fires = find(connection, table, schema)
    if problem is None and connection.dialect.name != "sqlite":  # which has none by default
        problem = _own_cascade(inspector, table, schema)
    if problem is not None:
        if not sa.inspect(connection).has_table(table, schema=schema):
            raise sa.exc.NoSuchTableError(table)
        raise conditions.NOT_TRANSACTIONAL.error(got=f"{table!r} is {problem}")
    key = inspector.get_pk_constraint(table, schema=schema)["constrained_columns"]
    columns = {column["name"]: column for column in inspector.get_columns(table, schema=schema)}
    if len(key) == 1 and isinstance(columns[key[0]]["type"], sa.Integer):
        columns[key[0]] = {**columns[key[0]], "nullable": False, "autoincrement": True}
    return Target(columns, fires, tuple(key))


def _own_cascade(inspector: Any, table: str, schema: str | None) -> str | None:
    """The problem of a table in which the deletion or change of a row deletes or changes others."""
    for key in inspector.get_foreign_keys(table, schema=schema):
        rules = {(key["options"].get(rule) or "").upper() for rule in ("ondelete", "onupdate")}
        if key["referred_table"] == table and rules - {"", "NO ACTION", "RESTRICT"}:
            return "a table with a foreign key to itself that cascades"
    return None


def is_generated(column: Found) -> bool:
    """Whether the database computes the values of a column."""
    return "computed" in column or bool((column.get("identity") or {}).get("always"))


def is_required(column: Found) -> bool:
    """Whether a row without a value for the column is refused."""
    has_default = column.get("default") is not None or column.get("autoincrement") is True
    return not (column["nullable"] or has_default or "identity" in column or is_generated(column))


def refuse_changed(rows: pa.Table, columns: Mapping[str, Found], dialect: str) -> None:
    """Refuse rows with a value that the database would change.

    Raises
    ------
    SinkError
        ``TARGET_REFUSED``.
    """
    for part in rows.schema:
        column, values = columns[part.name], rows.column(part.name)
        for reason, is_wrong in changes_value(values, column, dialect):
            count = pc.sum(is_wrong).as_py()
            if count:
                empty = "" if column["nullable"] else ", not null"
                raise conditions.VALUES_CHANGED.error(
                    column=part.name, got=f"{count} times {reason}, for {column['type']!r}{empty}"
                )


def equal_keys(key: Sequence[str]) -> SinkError:
    """The error about a database that takes different values for equal ones."""
    return conditions.COLLATION.error(
        got=f"columns {', '.join(key)}, whose collation ignores case, accents or spaces"
    )


def trigger_changes(got: str) -> SinkError:
    """The error about a table that does not store what was sent."""
    return conditions.TARGET_TRIGGER.error(got=got)


def other_values(name: str, got: pa.DataType, found: Any) -> SinkError:
    """The error about rows of the table that the frame could not have."""
    return conditions.COLUMN_TOO_WIDE.error(column=name, got=f"{found!r} for {got}")


def _check_sqlite(connection: Any, table: str, schema: str | None) -> tuple[str | None, bool]:
    names = ("type", "name", "tbl_name", "sql")
    master = sa.table("sqlite_master", *map(sa.column, names), schema=schema)
    mine = sa.func.lower(master.c.tbl_name) == sa.func.lower(table)
    found = connection.execute(sa.select(master.c.type, master.c.sql).where(mine)).all()
    problem = None
    for category, text in found:
        definition = _QUOTED.sub(" ", text or "")
        dropped = _DROPS_ROWS.search(definition)
        if category == "view":
            problem = "a view"
        elif category == "table" and definition.upper().split()[1:2] == ["VIRTUAL"]:
            problem = "a virtual table"
        elif category == "table" and dropped:
            problem = f"defined with {dropped[0]}"
    return problem, any(category == "trigger" for category, _ in found)


def _check_mysql(connection: Any, table: str, schema: str | None) -> tuple[str | None, bool]:
    def catalogue(name: str, *columns: str) -> Any:
        return sa.table(name, *map(sa.column, columns), schema="information_schema")

    database = sa.func.database() if schema is None else sa.literal(schema)
    tables = catalogue("TABLES", "table_schema", "table_name", "table_type", "engine")
    engines = catalogue("ENGINES", "engine", "transactions")
    triggers = catalogue("TRIGGERS", "event_object_schema", "event_object_table")
    wanted = sa.select(
        tables.c.table_name, tables.c.table_type, tables.c.engine, engines.c.transactions
    )
    joined = wanted.outerjoin_from(tables, engines, tables.c.engine == engines.c.engine)
    mine = sa.and_(tables.c.table_schema == database, tables.c.table_name == table)
    found = {row[0]: row[1:] for row in connection.execute(joined.where(mine))}
    # The catalogue ignores case, which the server may not.
    name = table if table in found else next(iter(found), table)
    category, engine, transactions = found.get(name, ("of an unknown sort", None, None))
    problem = None
    if category not in {"BASE TABLE", "SYSTEM VERSIONED"}:
        problem = f"a {category.lower()}"
    elif transactions != "YES":
        problem = f"a table of the engine {engine}, which has no transactions"
    fires = sa.select(triggers.c.event_object_table).where(
        triggers.c.event_object_schema == database, triggers.c.event_object_table == name
    )
    return problem, name in connection.execute(fires).scalars().all()


def _check_postgres(connection: Any, table: str, schema: str | None) -> tuple[str | None, bool]:
    def catalogue(name: str, *columns: str) -> Any:
        return sa.table(name, *map(sa.column, columns), schema="pg_catalog")

    path = connection.dialect.identifier_preparer.format_table(
        sa.Table(table, sa.MetaData(), schema=schema)
    )
    oid = sa.cast(sa.func.to_regclass(path), postgresql.OID)
    names = "oid", "relnamespace", "relkind", "relpersistence", "relhasrules"
    classes = catalogue("pg_class", *names)
    triggers = catalogue("pg_trigger", "tgrelid", "tgisinternal")
    parents = catalogue("pg_inherits", "inhparent")
    parts = sa.func.pg_partition_tree(oid).table_valued("relid")
    is_heir = sa.select(parents.c.inhparent).where(parents.c.inhparent == oid).exists()
    category = sa.select(
        classes.c.relkind,
        classes.c.relhasrules,
        classes.c.relpersistence,
        sa.func.row_security_active(classes.c.oid),
        is_heir,
        classes.c.relnamespace
        == sa.cast(
            sa.func.to_regnamespace(sa.func.quote_ident(sa.func.current_schema())), postgresql.OID
        ),
    ).where(classes.c.oid == oid)
    relkind, has_rules, persistence, is_filtered, has_heirs, is_default = connection.execute(
        category
    ).one()
    of_parts = sa.select(classes.c.relkind, classes.c.relpersistence).join(
        parts, classes.c.oid == sa.cast(parts.c.relid, postgresql.OID)
    )
    relations = {(relkind, persistence), *map(tuple, connection.execute(of_parts))}
    problem = None
    if relkind not in {"r", "p"} or has_rules or ("f", "p") in relations:
        problem = "a view, a foreign table or partition, or a table with rules"
    elif any(durability != "p" for _, durability in relations):
        problem = "an unlogged or temporary table, or has such a partition"
    elif is_filtered:
        problem = "a table with row-level security, which hides rows from this user"
    elif has_heirs and relkind == "r":
        problem = "a table that others inherit from, whose rows would be changed, too"
    elif schema is None and not is_default:
        problem = "in another schema than the first one of the search path: name it with `schema`"
    mine = sa.and_(triggers.c.tgrelid == oid, sa.not_(triggers.c.tgisinternal))
    return problem, connection.execute(
        sa.select(triggers.c.tgrelid).where(mine)
    ).first() is not None


def _check_others(connection: Any, table: str, schema: str | None) -> tuple[str | None, bool]:
    is_view = table in sa.inspect(connection).get_view_names(schema=schema)
    return ("a view" if is_view else None), True  # the triggers are not known


_PROBLEMS = {
    "sqlite": _check_sqlite,
    "postgresql": _check_postgres,
    **dict.fromkeys(MYSQL, _check_mysql),
}
