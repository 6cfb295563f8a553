"""Checks of a server, its outbox table, the publication and the slot, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from streamops.kernel.sql import quote
from streamops.sources import conditions
from streamops.sources.core import log_sql as sql
from streamops.sources.core.outbox import Outbox


@dataclass(frozen=True, slots=True)
class Status:
    """The server, the table, the publication and the slot at one point in time."""

    system: str
    """The identifier of the server, which its replicas and restored backups share."""
    wal_level: str
    in_recovery: bool
    flushed: int
    """The position up to which the log is on disk. A crash of the server changes nothing before it."""
    database: str
    has_table: bool
    has_publication: bool
    publishes_inserts: bool
    publishes_table: bool
    has_slot: bool
    slot_type: str | None
    plugin: str | None
    slot_database: str | None
    wal_status: str | None
    confirmed: int | None
    """The position of the slot: transactions that were committed before it are not read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What is read: the table, the publication that has its rows, and the slot."""

    outbox: Outbox
    publication: str
    slot: str

    @property
    def table(self) -> str:
        """The quoted name of the table."""
        return f"{quote(self.outbox.schema)}.{quote(self.outbox.table)}"

    @property
    def create_publication(self) -> str:
        """The statement that creates the publication."""
        return sql.create_publication(self.publication, self.outbox.schema, self.outbox.table)

    @property
    def create_slot(self) -> str:
        """The statement that creates the slot."""
        return f"SELECT pg_create_logical_replication_slot('{self.slot}', '{sql.PLUGIN}')"


def check_server(status: Status, names: Names) -> None:
    """Refuse a server whose log cannot be read, and one without the table.

    Raises
    ------
    RequirementError
        ``SOURCE_UNFIT``.
    SpecError
        ``SOURCE_MISSING``.
    """
    if status.in_recovery:
        raise conditions.SERVER_IS_A_STANDBY.error(got="pg_is_in_recovery() is true")
    if status.wal_level != "logical":
        raise conditions.WAL_LEVEL.error(got=f"wal_level={status.wal_level}")
    if not status.has_table:
        raise conditions.TABLE_NOT_FOUND.error(got=f"{names.table} in database {status.database!r}")


def check_publication(status: Status, names: Names) -> None:
    """Refuse a publication that does not exist, or that does not have the rows.

    Raises
    ------
    RequirementError
        ``SOURCE_UNFIT``.
    """
    publication = quote(names.publication)
    if not status.has_publication:
        was_dropped = status.has_slot
        condition = conditions.PUBLICATION_DROPPED if was_dropped else conditions.NO_PUBLICATION
        got = f"no publication {names.publication!r} in database {status.database!r}"
        raise condition.error(statement=names.create_publication, got=got)
    expected = "a publication of the inserts and updates of the outbox table"
    if not status.publishes_table:
        raise conditions.PUBLICATION_WITHOUT_TABLE.error(
            publication=publication,
            table=names.table,
            expected=expected,
            got=f"{names.table} is not in {names.publication!r}",
        )
    if not status.publishes_inserts:
        raise conditions.PUBLICATION_WITHOUT_INSERTS.error(
            publication=publication,
            expected=expected,
            got=f"inserts are not published by {names.publication!r}",
        )


def check_slot(status: Status, names: Names) -> int:
    """Refuse a slot that cannot be read, and return its position.

    Raises
    ------
    RequirementError
        ``SOURCE_MISSING``, ``SOURCE_UNFIT``, ``SLOT_LOST``.
    """
    if not status.has_slot:
        raise conditions.SLOT_MISSING.error(
            create_slot=names.create_slot, plugin=sql.PLUGIN, got=f"no slot {names.slot!r}"
        )
    found = (status.slot_type, status.plugin, status.slot_database)
    if found != ("logical", sql.PLUGIN, status.database):
        raise conditions.SLOT_UNFIT.error(
            plugin=sql.PLUGIN,
            database=status.database,
            got=f"type {status.slot_type}, plugin {status.plugin}, database {status.slot_database}",
        )
    if status.wal_status == "lost" or status.confirmed is None:
        raise conditions.SLOT_LOST.error(
            got=f"slot {names.slot!r} with wal_status={status.wal_status}"
        )
    return status.confirmed
