"""Checks of a server, its outbox table, the publication and the slot, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass

from streamops.kernel.databases import format_lsn
from streamops.kernel.ddl import quote
from streamops.sources import conditions
from streamops.sources.core.outbox import Outbox

PLUGIN = "pgoutput"

CONFIGURE = (
    "SELECT set_config('streamops.slot', $1, false), set_config('streamops.publication', $2, false), "
    # Values are read as text, which must be the same each time.
    "set_config('client_encoding', 'UTF8', false), set_config('DateStyle', 'ISO', false), "
    "set_config('IntervalStyle', 'postgres', false), set_config('TimeZone', 'UTC', false), "
    "set_config('extra_float_digits', '3', false), set_config('bytea_output', 'hex', false), "
    "set_config('xmlbinary', 'base64', false), set_config('lc_monetary', 'C', false)"
)

STATUS = (
    "SELECT (SELECT system_identifier::text FROM pg_control_system()), current_setting('wal_level'), "
    "pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN 0 "
    "ELSE (pg_current_wal_flush_lsn() - '0/0')::bigint END, current_database()::text, "
    "EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')), "
    "p.oid IS NOT NULL, coalesce(p.pubinsert, false), "
    "EXISTS (SELECT FROM pg_publication_tables t "
    "WHERE t.pubname = $3 AND t.schemaname = $1 AND t.tablename = $2), "
    "s.slot_name IS NOT NULL, s.slot_type::text, s.plugin::text, s.database::text, "
    "s.wal_status::text, (s.confirmed_flush_lsn - '0/0')::bigint "
    "FROM (SELECT 1) AS one LEFT JOIN pg_publication p ON p.pubname = $3 "
    "LEFT JOIN pg_replication_slots s ON s.slot_name = $4"
)
"""The server, table, publication and slot in one row. Parameters: schema, table, publication, slot."""

SELECT_COLUMNS = (
    "SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 "
    "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)

SELECT_IDENTITY = (
    "SELECT c.relreplident IN ('f', 'i') OR EXISTS (SELECT FROM pg_index i "
    "WHERE i.indrelid = c.oid AND i.indisprimary) FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"
)
"""Whether PostgreSQL permits updates of the table if a publication publishes them."""

CREATE_SLOT = f"SELECT 1 FROM pg_create_logical_replication_slot($1, '{PLUGIN}')"
DROP_SLOT = "SELECT 1 FROM pg_drop_replication_slot($1)"
ADVANCE = "SELECT 1 FROM pg_replication_slot_advance($1, $2::pg_lsn)"

SELECT_READER = (
    "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL"
)

BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def create_publication(publication: str, schema: str, table: str) -> str:
    """Publish inserts, and updates because they would be lost otherwise; rows of a partition as the table's."""
    return (
        f"CREATE PUBLICATION {quote(publication)} FOR TABLE {quote(schema)}.{quote(table)} "
        "WITH (publish = 'insert, update', publish_via_partition_root = true)"
    )


def peek(until: int | None, messages: int | None) -> str:
    """Read messages without advancing the slot: transactions up to a position, up to a number of messages."""
    upto = "NULL" if until is None else f"'{format_lsn(until)}'"
    number = "NULL" if messages is None else f"{messages:d}"
    return (
        "SELECT data FROM pg_logical_slot_peek_binary_changes("
        f"current_setting('streamops.slot')::name, {upto}::pg_lsn, {number}::int, "
        "'proto_version', '1', 'publication_names', current_setting('streamops.publication'))"
    )


def count_other_rows(schema: str, table: str, column: str) -> str:
    """Count the rows of the table whose id is not in a JSON array."""
    return (
        f"SELECT count(*) FROM {quote(schema)}.{quote(table)} t WHERE t.{quote(column)}::text "
        "NOT IN (SELECT jsonb_array_elements_text($1::jsonb))"
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
        return create_publication(self.publication, self.outbox.schema, self.outbox.table)

    @property
    def create_slot(self) -> str:
        """The statement that creates the slot."""
        return f"SELECT pg_create_logical_replication_slot('{self.slot}', '{PLUGIN}')"


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
            create_slot=names.create_slot, plugin=PLUGIN, got=f"no slot {names.slot!r}"
        )
    found = (status.slot_type, status.plugin, status.slot_database)
    if found != ("logical", PLUGIN, status.database):
        raise conditions.SLOT_UNFIT.error(
            plugin=PLUGIN,
            database=status.database,
            got=f"type {status.slot_type}, plugin {status.plugin}, database {status.slot_database}",
        )
    if status.wal_status == "lost" or status.confirmed is None:
        raise conditions.SLOT_LOST.error(
            got=f"slot {names.slot!r} with wal_status={status.wal_status}"
        )
    return status.confirmed
