"""The statements that read an outbox table from the log of PostgreSQL.

Names are quoted, or parameters. The statement that reads the log has none, because the driver receives the
rows of a statement without parameters as a stream: its names are settings of the session.
"""

from __future__ import annotations

from streamops.kernel.sql import quote
from streamops.sources.core.outbox import format_lsn

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
