"""What the SQLAlchemy sink requires of tables that others created."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from streamops.kernel.errors import SinkError
from streamops.sinks import conditions
from streamops.sinks.core.sqlalchemy_types import MYSQL, changes_value

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
    """Find a table; None if it does not exist.

    Raises
    ------
    SinkError
        ``TARGET_KIND``.
    """
    inspector = sa.inspect(connection)
    if not inspector.has_table(table, schema=schema):
        return None
    find = _PROBLEMS.get(connection.dialect.name, _check_others)
    problem, fires = find(connection, table, schema)
    if problem is None and connection.dialect.name != "sqlite":  # which has none by default
        problem = _own_cascade(inspector, table, schema)
    if problem is not None:
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
