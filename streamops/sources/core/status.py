"""Checks of a server, its outbox table, the publication and the slot, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from streamops.kernel.errors import RequirementError, SpecError
from streamops.kernel.sql import quote
from streamops.sources.core import log_sql as sql
from streamops.sources.core.outbox import Outbox

_WHERE = "sources.outbox"
_READ_TABLE = (
    "read the missing events from the outbox table, if they were not deleted there; drop the slot, "
    "create it again, and use a new checkpoint"
)


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
        raise RequirementError(
            "SOURCE_UNFIT",
            "the server is a standby: its slots do not move with a query",
            where=_WHERE,
            got="pg_is_in_recovery() is true",
            expected="the primary server",
            fix="connect to the primary, for example by target_session_attrs=read-write in the URL",
        )
    if status.wal_level != "logical":
        raise RequirementError(
            "SOURCE_UNFIT",
            "the log of the server does not have what is needed to read rows from it",
            where=_WHERE,
            got=f"wal_level={status.wal_level}",
            expected="wal_level=logical",
            fix="ALTER SYSTEM SET wal_level = logical, and restart the server",
        )
    if not status.has_table:
        raise SpecError(
            "SOURCE_MISSING",
            "the outbox table does not exist",
            where=_WHERE,
            got=f"{names.table} in database {status.database!r}",
            expected="a table, or a partitioned table",
            fix="create it, or correct `schema`, `table` or the database of the URL",
        )


def check_publication(status: Status, names: Names) -> None:
    """Refuse a publication that does not exist, or that does not have the rows.

    Raises
    ------
    RequirementError
        ``SOURCE_UNFIT``.
    """
    publication = quote(names.publication)
    if not status.has_publication:
        fix = f"{names.create_publication}; or create='create'"
        if status.has_slot:
            fix = (
                f"{names.create_publication}; drop the slot, which cannot read rows that were written before, \
and create it again"
            )
        raise RequirementError(
            "SOURCE_UNFIT",
            "the publication does not exist; without it the log has no rows of the outbox table",
            where=_WHERE,
            got=f"no publication {names.publication!r} in database {status.database!r}",
            expected="a publication of the inserts and updates of the outbox table",
            fix=fix,
        )
    expected = "a publication of the inserts and updates of the outbox table"
    if not status.publishes_table:
        raise RequirementError(
            "SOURCE_UNFIT",
            "the publication does not have the outbox table",
            where=_WHERE,
            got=f"{names.table} is not in {names.publication!r}",
            expected=expected,
            fix=f"ALTER PUBLICATION {publication} ADD TABLE {names.table}; if the table is partitioned, "
            f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)",
        )
    if not status.publishes_inserts:
        raise RequirementError(
            "SOURCE_UNFIT",
            "the publication does not have inserts",
            where=_WHERE,
            got=f"inserts are not published by {names.publication!r}",
            expected=expected,
            fix=f"ALTER PUBLICATION {publication} SET (publish = 'insert, update')",
        )


def check_slot(status: Status, names: Names) -> int:
    """Refuse a slot that cannot be read, and return its position.

    Raises
    ------
    RequirementError
        ``SOURCE_MISSING``, ``SOURCE_UNFIT``, ``SLOT_LOST``.
    """
    if not status.has_slot:
        raise RequirementError(
            "SOURCE_MISSING",
            "the replication slot does not exist: events that are written before it is created, or were "
            "written after it was dropped, are not read",
            where=_WHERE,
            got=f"no slot {names.slot!r}",
            expected=f"a logical replication slot of the plugin {sql.PLUGIN}",
            fix=f"{names.create_slot}, or create='create'. If a query has read from it: {_READ_TABLE}",
        )
    found = (status.slot_type, status.plugin, status.slot_database)
    if found != ("logical", sql.PLUGIN, status.database):
        raise RequirementError(
            "SOURCE_UNFIT",
            "the slot belongs to another plugin or another database",
            where=_WHERE,
            got=f"type {status.slot_type}, plugin {status.plugin}, database {status.slot_database}",
            expected=f"type logical, plugin {sql.PLUGIN}, database {status.database}",
            fix="choose another name for the slot, or correct the database of the URL",
        )
    if status.wal_status == "lost" or status.confirmed is None:
        raise RequirementError(
            "SLOT_LOST",
            "the server has removed the log that the slot needs, with events that were not read",
            where=_WHERE,
            got=f"slot {names.slot!r} with wal_status={status.wal_status}",
            expected="a slot whose log is on the server",
            fix=f"{_READ_TABLE}. Raise max_slot_wal_keep_size, and monitor the lag of the query",
        )
    return status.confirmed
