"""Connections to the databases of SQLAlchemy, and the errors of their drivers as those of streamops."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from streamops.kernel.databases import secrets_of_database_url
from streamops.kernel.errors import StreamopsError
from streamops.kernel.parameters import require_package
from streamops.sinks.core import sql
from streamops.sinks.sink import elsewhere, hide, refused, unavailable


@contextmanager
def reported(url: str) -> Iterator[None]:
    """Replace errors of the database by those of streamops, without secrets."""
    sa = require_driver()
    with hide(*secrets_of_database_url(url)):
        try:
            yield
        except StreamopsError:
            raise
        except sa.exc.SQLAlchemyError as error:
            made = unavailable if _is_unavailable(error) or _is_dropped(error) else refused
            if getattr(getattr(error, "orig", None), "sqlite_errorname", "") == "SQLITE_NOTADB":
                made = elsewhere
            raise made("the database", error) from error
        except (ValueError, ArithmeticError, TypeError) as error:
            # Of a driver, which cannot convert a value. Its text has the value.
            without_values = ValueError(f"{type(error).__name__}, while values were converted")
            raise refused("the database", without_values) from None
        except Exception as error:
            # SQLAlchemy does not wrap what the driver raises when a connection gets its isolation level.
            if not isinstance(error, sa.make_url(url).get_dialect().import_dbapi().Error):
                raise
            raise unavailable("the database", error) from error


STAGES = ("mysql", "mariadb", "postgresql")
"""Databases whose triggers are known, and that more than one transaction writes to at a time."""

# Locks, changes by others, and servers that do not write at the moment: for SQLite the names of errors, for
# MySQL the numbers; those of the client begin with 2.
_NOT_NOW = tuple(f"SQLITE_{n}" for n in ("BUSY", "LOCKED", "IOERR", "FULL", "CANTOPEN", "READONLY"))
_NOT_NOW_OF_MYSQL = {1020, 1021, 1040, 1041, 1053, 1114, 1205, 1213, 1290, 1317, 1412, 1684}
_NOT_NOW_OF_MYSQL |= {1792, 1836}  # read only
_NOT_NOW_OF_MYSQL |= {1927, 1969, 3024}  # killed, or longer than a statement may take


def has_table(connection: Any, name: str, schema: str | None) -> bool:
    """Whether the database has a table, or a view, of this name."""
    return bool(require_driver().inspect(connection).has_table(name, schema=schema))


def is_deadlock(error: Any) -> bool:
    """Whether the database ended a transaction so that others could go on."""
    return _is_one_of(error, "40001", "40P01", 1213)


def is_locked(error: Any) -> bool:
    """Whether another transaction used the table for longer than this one waited."""
    return _is_one_of(error, "55P03", 1205)


def is_denied(error: Any) -> bool:
    """Whether the user lacks a privilege."""
    return _is_one_of(error, "42501", 1044, 1142, 1227)


def _is_one_of(error: Any, *wanted: str | int) -> bool:
    """Whether an error has one of these states of SQL, or numbers of MySQL."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state in wanted or error.orig.args[:1] in {(number,) for number in wanted}


def _is_dropped(error: Any) -> bool:
    """Whether a table that was found before is not there any more: another run drops staging tables."""
    is_of_driver = isinstance(error, require_driver().exc.DBAPIError) and error.orig is not None
    return is_of_driver and _is_one_of(error, "42P01", 1146)


def _is_unavailable(error: Any) -> bool:
    """Whether the database did not take the statement for a reason that is not in the rows."""
    sa = require_driver()
    if isinstance(error, sa.exc.InternalError) and _is_one_of(error, "25006"):  # read only for now
        return True
    if not isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
        return False
    if error.connection_invalidated or error.statement is None:
        return True
    if _is_one_of(error, "55000"):  # such as a published table without a replica identity
        return False
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(_NOT_NOW)
    number = error.orig.args[0] if error.orig.args else None
    return (
        not isinstance(number, int) or number in _NOT_NOW_OF_MYSQL or number // 1000 == _OF_CLIENT
    )


_OF_CLIENT = 2


def start(url: Any) -> Any:
    """The engine, with sessions of MySQL and MariaDB in which no value is changed, and of PostgreSQL that lose no commit."""
    sa = require_driver()
    # Values of rows are not part of errors.
    # Joins by `<=>` are conditions that SQLAlchemy does not take for such.
    # A micro-batch has statements of its own: only those of the ledger are worth retaining.
    options = {"hide_parameters": True, "enable_from_linting": False, "query_cache_size": 20}
    engine = sa.create_engine(url, **options)
    settings = _SESSIONS.get(engine.dialect.name)
    if settings is None:
        return engine

    def configure(connection: Any, _: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(settings)
        connection.commit()

    # Before SQLAlchemy asks for the mode.
    sa.event.listen(engine, "connect", configure, insert=True)
    if engine.dialect.name == "mysql":
        with engine.connect():
            pass
        if engine.dialect.is_mariadb:  # it has other collations than MySQL
            engine.dispose()
            return start(url.set(drivername=url.drivername.replace("mysql", "mariadb", 1)))
    return engine


_MYSQL = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', "
    "time_zone = '+00:00', autocommit = 0, "
    # What would cut what is read, refuse deletes, or leave out what the table requires.
    "sql_select_limit = 18446744073709551615, sql_safe_updates = 0, sql_big_selects = 1, "
    "sql_auto_is_null = 0, unique_checks = 1, foreign_key_checks = 1, completion_type = 0"
)


_SESSIONS = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "postgresql": f"SELECT {sql.SETTINGS.format(is_local='false')}",
}


def require_driver() -> Any:
    """SQLAlchemy."""
    return require_package("sqlalchemy", package="sqlalchemy", extra="sqlalchemy")


# These import SQLAlchemy, which is an extra.


def tables() -> Any:
    """The statements of the driver."""
    return importlib.import_module("streamops.sinks.core.sqlalchemy_table")


def targets() -> Any:
    """What is required of tables that exist."""
    return importlib.import_module("streamops.sinks.core.sqlalchemy_target")


def merges() -> Any:
    """The statements that stage and merge rows."""
    return importlib.import_module("streamops.sinks.core.sqlalchemy_staging")
