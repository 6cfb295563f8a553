"""The statements of the PostgreSQL sink.

Names are quoted here, and nowhere else. Values are never part of a statement: rows arrive in a staging
table, and everything else as parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import pyarrow as pa

from streamops.kernel.ddl import quote
from streamops.sinks.core.ledger import Entry

TEMPORARY = "pg_temp"
"""The schema of the staging table, which is named since a search path can lead to another table first."""

STAGING_NAME = "streamops_staging"

STAGING = f"{TEMPORARY}.{STAGING_NAME}"
"""Temporary table with the rows of a micro-batch, and the columns below."""

REMOVED = "streamops_removed"
"""Column of the staging table: whether the target loses the row."""

MATCHES = "streamops_matches"
"""Column of the staging table: whether the target must have all values of a removed row."""

REPLACED = "streamops_replaced"
"""Column of the staging table: whether another row with the same key replaces or is replaced."""

COPIES = "streamops_copies"
"""Column of the staging table: how often the row occurs."""

MARKS = REMOVED, MATCHES, REPLACED, COPIES

ATTEMPT = "streamops_attempt"
"""Column of a staging table that tasks share: which attempt of a task has copied the row."""

STAGED = f"FROM {STAGING} s WHERE true"  # or ON CONFLICT would belong to a join
ADDED = f"FROM {STAGING} s WHERE NOT s.{REMOVED}"
ADDED_COPIES = f"FROM {STAGING} s, pg_catalog.generate_series(1, s.{COPIES}) WHERE NOT s.{REMOVED}"
"""Which staged rows are inserted: all, which have no marks; those that are not removed; their copies."""

_NOT_SENT = ", ".join(f"'{name}'" for name in (*MARKS, "ctid"))
_ROW = f"(pg_catalog.to_jsonb(s.*) - ARRAY[{_NOT_SENT}])::pg_catalog.text"
"""A staged row as JSON, for errors."""

LEDGER = "streamops_ledger"

_TYPES: Mapping[pa.DataType, tuple[str, ...]] = {
    # The type of a column that the sink creates, and the types that it accepts.
    pa.bool_(): ("boolean",),
    pa.int8(): ("smallint", "integer", "bigint", "numeric"),
    pa.int16(): ("smallint", "integer", "bigint", "numeric"),
    pa.int32(): ("integer", "bigint", "numeric"),
    pa.int64(): ("bigint", "numeric"),
    pa.float32(): ("real", "double precision"),
    pa.float64(): ("double precision",),
    pa.date32(): ("date",),
    pa.binary(): ("bytea",),
    pa.null(): ("text",),
}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_STRINGS = ("text", "character varying", "character", "json", "jsonb", "uuid", "citext")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the target, in its schema or in the default one."""

    name: str
    schema: str | None
    is_partitioned: bool = False

    def __str__(self) -> str:
        return ".".join(quote(part) for part in (self.schema, self.name) if part is not None)

    @property
    def rows(self) -> str:
        """The table in a query: with its partitions, and without tables that inherit from it."""
        return str(self) if self.is_partitioned else f"ONLY {self}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the target.

    Parameters
    ----------
    dtype : str
        Its type, for casts.
    compare : "values", "text" or "json"
        How its values are compared. "text": the type takes some different values for equal.
    is_checked : bool
        Whether the type can change a value that it is cast from.
    """

    dtype: str
    compare: Literal["values", "text", "json"] = "values"
    is_checked: bool = False


Columns = Mapping[str, Column]


def accepted_types(dtype: pa.DataType) -> tuple[str, ...]:
    """The PostgreSQL types that take values of an Arrow type without loss, the default first.

    Empty if there is none: such columns are converted to JSON before.
    """
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return _STRINGS
    if pa.types.is_large_binary(dtype):
        return ("bytea",)
    if pa.types.is_decimal(dtype):
        return (f"numeric({dtype.precision},{dtype.scale})", "numeric")
    if pa.types.is_timestamp(dtype):
        return (f"timestamp {'without' if dtype.tz is None else 'with'} time zone",)
    if pa.types.is_time(dtype):
        return ("time without time zone",)
    if pa.types.is_duration(dtype):
        return ("interval",)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items = dtype.value_type
        is_flat = not pa.types.is_nested(items) and not pa.types.is_duration(items)
        return tuple(f"{item}[]" for item in accepted_types(items)) if is_flat else ()
    return _TYPES.get(dtype, ())


def accepts(found: str, dtype: pa.DataType) -> bool:
    """Whether a column of the target takes values of an Arrow type.

    The type of the target is without a length or precision, except that of numbers. The others are
    compared with each value.

    Examples
    --------
    >>> accepts("bigint", pa.int32()), accepts("integer", pa.int64())
    (True, False)
    >>> accepts("numeric(12,2)", pa.decimal128(10, 2)), accepts("numeric(12,1)", pa.decimal128(10, 2))
    (True, False)
    """
    if found.endswith("[]") and (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)):
        return bool(accepted_types(dtype)) and accepts(found[:-2], dtype.value_type)
    base, _, size = found.partition("(")
    is_integer = dtype in _DIGITS
    if (is_integer or pa.types.is_decimal(dtype)) and base == "numeric" and size:
        precision, _, scale = size.rstrip(")").partition(",")
        digits, decimals = int(precision), int(scale or 0)
        wanted, exact = (_DIGITS[dtype], 0) if is_integer else (dtype.precision, dtype.scale)
        return digits - decimals >= wanted - exact and decimals >= exact
    return found in accepted_types(dtype)


def create_ledger(ledger: Table) -> str:
    """Create the ledger, if it is missing."""
    return (
        f"CREATE TABLE IF NOT EXISTS {ledger} (sink text PRIMARY KEY, query text NOT NULL, "
        "generation bigint NOT NULL, run text NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL, "
        "digest bigint NOT NULL, target text NOT NULL, target_id text NOT NULL, former text[] NOT NULL, "
        "offsets text[] NOT NULL, at timestamptz NOT NULL DEFAULT pg_catalog.now())"
    )


_ENTRY = tuple(field.name for field in fields(Entry))


def select_entries(ledger: Table) -> str:
    """Select the entry of a sink, and those of its target or a former one, with the names of the sinks."""
    is_same = "target = $2 OR target_id = nullif($3, '')"
    return f"SELECT sink, {', '.join(_ENTRY)} FROM {ledger} WHERE sink = $1 OR {is_same}"


def upsert_entry(ledger: Table) -> str:
    """Store the entry of a sink."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in _ENTRY)
    values = ", ".join(f"${number}" for number in range(1, len(_ENTRY) + 2))
    return (
        f"INSERT INTO {ledger} (sink, {', '.join(_ENTRY)}) VALUES ({values}) "
        f"ON CONFLICT (sink) DO UPDATE SET {changes}, at = pg_catalog.now()"
    )


_WAIT = """
DECLARE
    of text := split_part(token, ':', 1);
    a text := split_part(token, ':', 2);
    b text := split_part(token, ':', 3);
    c text := split_part(token, ':', 4);
    ends timestamptz := clock_timestamp() + timeout;
    found text[];
    has_all boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a transaction with a snapshot never sees what is committed later'
            USING HINT = 'wait in READ COMMITTED, before the transaction that reads';
    ELSIF of NOT IN ('kafka', 'lsn', 'delta') THEN
        RAISE EXCEPTION 'not a token: %', token
            USING HINT = 'kafka:TOPIC:PARTITION:OFFSET, lsn:16/B374D848, or delta:VERSION';
    END IF;
    LOOP
        SELECT ledger.offsets INTO found FROM {ledger} AS ledger WHERE ledger.sink = streamops_wait_for.sink;
        SELECT bool_and(answer) INTO has_all FROM (
            SELECT CASE of
                WHEN 'kafka' THEN CASE WHEN jsonb_typeof(at -> a) = 'object'
                    THEN coalesce((at -> a ->> b)::bigint, 0) > c::bigint END
                WHEN 'lsn' THEN (at ->> 'lsn')::pg_lsn >= a::pg_lsn
                ELSE (at ->> 'reservoirVersion')::bigint > a::bigint
            END AS answer
            FROM (SELECT source::jsonb AS at FROM unnest(found) AS source WHERE source <> '') AS sources
        ) AS answers;
        EXIT WHEN has_all;
        IF clock_timestamp() >= ends THEN
            RAISE EXCEPTION '% does not have %: it is at %', sink, token, found
                USING ERRCODE = 'query_canceled', HINT = 'wait longer; see whether the query runs and keeps up';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END
"""


def create_wait_function(schema: str) -> str:
    """Create the function that waits until the ledger of a schema is behind a token."""
    body = _WAIT.replace("{ledger}", str(Table(LEDGER, schema)))
    return (
        f"CREATE OR REPLACE FUNCTION {Table('streamops_wait_for', schema)}"
        "(sink text, token text, timeout interval DEFAULT '30 seconds') RETURNS void "
        f"LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS {_literal(body)}"
    )


SETTINGS = (
    "set_config('quote_all_identifiers', 'off', {is_local}), set_config('datestyle', 'ISO', {is_local}), "
    "set_config('intervalstyle', 'postgres', {is_local}), set_config('extra_float_digits', '1', {is_local}), "
    "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), {is_local})"
)
"""Types and values have their plain texts, and what is committed is on the disk, whatever the owner set for sessions."""

LOCK = "SELECT 1 FROM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))"
"""Lock a sink until the transaction ends, also before its ledger exists."""


def create_staging(table: Table) -> str:
    """Create the table that tasks share, with the columns of STAGING. A crash of the server empties it."""
    return f"CREATE UNLOGGED TABLE {table} (LIKE {STAGING}) WITH (autovacuum_enabled = false)"


def comment(table: Table, text: str) -> str:
    """Say what a table is for."""
    return f"COMMENT ON TABLE {table} IS {_literal(text)}"


def drop_unused(table: Table) -> str:
    """Drop a table, unless another transaction uses it or has dropped it."""
    body = (
        f"BEGIN LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT; DROP TABLE {table}; "
        "EXCEPTION WHEN lock_not_available OR undefined_table THEN NULL; END"
    )
    return f"DO {_literal(body)}"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


SELECT_STAGING = """
SELECT relname::pg_catalog.text FROM pg_catalog.pg_class
WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1)
  AND pg_catalog.starts_with(relname::pg_catalog.text, $2) AND relpersistence = 'u' AND relkind = 'r'
  AND pg_catalog.pg_has_role(relowner, 'USAGE')
"""
"""The staging tables of a schema whose names begin like this, which the user may drop."""


def _attempts(numbers: Sequence[int]) -> str:
    return f"{ATTEMPT} = ANY ('{{{','.join(map(str, numbers))}}}'::pg_catalog.int8[])"


def count_attempts(table: str, attempts: Sequence[int]) -> str:
    """Count the rows that these attempts have copied."""
    return f"SELECT pg_catalog.count(*) FROM {table} WHERE {_attempts(attempts)}"


def create_view(table: str, columns: Sequence[str], attempts: Sequence[int]) -> str:
    """Let STAGING be the rows that these attempts have copied."""
    return (
        f"CREATE VIEW {STAGING} AS SELECT ctid, {_list(columns)} FROM {table} "
        f"WHERE {_attempts(attempts)}"
    )


def create_table(table: Table, columns: Columns, key: Sequence[str] | None, *, nulls: bool) -> str:
    """Create the target. With `nulls`, null is a value of the key, as in Spark's groups."""
    parts = [f"{quote(name)} {column.dtype}" for name, column in columns.items()]
    if key is not None:
        distinct = "NULLS NOT DISTINCT " if nulls else ""
        parts.append(f"UNIQUE {distinct}({_list(key)})" if nulls else f"PRIMARY KEY ({_list(key)})")
    return f"CREATE TABLE {table} ({', '.join(parts)})"


def add_columns(table: Table, columns: Columns) -> str:
    """Add columns to the target."""
    return f"ALTER TABLE {table} " + ", ".join(
        f"ADD COLUMN {quote(name)} {column.dtype}" for name, column in columns.items()
    )


def select_changed(name: str, column: Column) -> str:
    """Select a staged value that the type of the target changes."""
    value = f"s.{quote(name)}"
    return (
        f"SELECT CAST({value} AS pg_catalog.text) FROM {STAGING} s WHERE {value} IS NOT NULL "
        f'AND {_text([_cast(name, column)])} COLLATE "C" OPERATOR(pg_catalog.<>) {_text([value])} LIMIT 1'
    )


def select_missing(table: Table, match: Match, columns: Columns) -> str:
    """Select a staged row that the target must have, but has not: the row as JSON, and what must match."""
    content = " AND ".join(_equal_or_null(*item) for item in columns.items()) or "true"
    return (
        f"SELECT {_ROW}, s.{MATCHES} FROM {STAGING} s WHERE s.{REMOVED} AND {match.of_staged} "
        f"AND NOT EXISTS (SELECT FROM {table.rows} t WHERE {match.on} AND (NOT s.{MATCHES} OR ({content}))) "
        "LIMIT 1"
    )


def select_existing(table: Table, match: Match) -> str:
    """Select a staged row with a new key that the target already has: the row as JSON."""
    return (
        f"SELECT {_ROW} FROM {STAGING} s JOIN {table.rows} t ON {match.on} "
        f"WHERE NOT s.{REMOVED} AND NOT s.{REPLACED} AND {match.of_staged} LIMIT 1"
    )


def delete_removed(table: Table, match: Match) -> str:
    """Delete the rows of removed keys that no other row replaces."""
    return (
        f"DELETE FROM {table.rows} t USING {STAGING} s "
        f"WHERE {match.on} AND {match.of_staged} AND s.{REMOVED} AND NOT s.{REPLACED}"
    )


def insert(table: Table, columns: Columns, source: str) -> str:
    """Insert staged rows of STAGED, ADDED or ADDED_COPIES."""
    return f"INSERT INTO {table} AS t ({_list(columns)}) SELECT {_casts(columns)} {source}"


def upsert(
    table: Table, columns: Columns, key: Sequence[str], sequence: Sequence[str], source: str
) -> str:
    """Insert staged rows, or replace the row of the same key if its sequence is lower."""
    others = [name for name in columns if name not in key]
    changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
    action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
    if sequence and others:
        action += f" WHERE {_is_lower('t', 'excluded', sequence)}"
    return f"{insert(table, columns, source)} ON CONFLICT ({_list(key)}) {action}"


def unstage_older(
    table: Table, match: Match, columns: Columns, key: Sequence[str], sequence: Sequence[str]
) -> str | None:
    """Delete the staged rows that an upsert would not write; None if it writes all."""
    if all(name in key for name in columns):
        older = "true"
    elif sequence:
        older = f"NOT {_is_lower('t', 's', sequence)}"
    else:
        return None
    return (
        f"DELETE FROM {STAGING} s USING {table.rows} t "
        f"WHERE {match.on} AND {match.of_staged} AND {older}"
    )


def insert_and_compare(statement: str, columns: Columns, source: str) -> str:
    """Run an insert or upsert; select how many rows are stored, and whether one is not stored as sent."""
    sent, stored = [], []
    for position, (name, column) in enumerate(columns.items()):
        values = _cast(name, column), f"t.{quote(name)}"
        if column.compare != "values":
            values = _text([values[0]]), _text([values[1]])
        sent.append(values[0])
        stored.append(f"{values[1]} AS c{position}")
    return (
        f"WITH stored AS ({statement} RETURNING {', '.join(stored)}) SELECT (SELECT pg_catalog.count(*) FROM stored), "
        f"EXISTS (SELECT {', '.join(sent)} {source} EXCEPT ALL SELECT * FROM stored)"
    )


def delete_and_count(statement: str) -> str:
    """Run a deletion, and select how many rows it has deleted."""
    return f"WITH gone AS ({statement} RETURNING 1) SELECT pg_catalog.count(*) FROM gone"


def select_too_few(table: Table, match: Match) -> str:
    """Select a staged row of which the target has fewer copies than it loses: the row as JSON."""
    return (
        f"SELECT {_ROW} FROM {STAGING} s WHERE s.{REMOVED} AND {match.of_staged} "
        f"AND s.{COPIES} > (SELECT pg_catalog.count(*) FROM {table.rows} t WHERE {match.on}) LIMIT 1"
    )


def delete_copies(table: Table, match: Match) -> str:
    """Delete as many equal rows as a multiset loses."""
    return (
        f"DELETE FROM {table.rows} t USING (SELECT t.tableoid AS part, t.ctid AS at, s.{COPIES} AS copies, "
        f"pg_catalog.row_number() OVER (PARTITION BY s.ctid) AS number FROM {STAGING} s JOIN {table.rows} t "
        f"ON {match.on} WHERE s.{REMOVED} AND {match.of_staged}) n "
        "WHERE t.ctid = n.at AND t.tableoid = n.part AND n.number <= n.copies"
    )


@dataclass(frozen=True, slots=True)
class Match:
    """Which staged rows, and how they are joined to rows of the target.

    Null equals null. PostgreSQL neither hashes ``IS NOT DISTINCT FROM`` nor finds it in an index, so there
    is one match, and one run of a statement, for each combination of columns that are null together.
    """

    of_staged: str
    on: str

    @classmethod
    def of(cls, columns: Columns, nulls: Iterable[Collection[str]]) -> list[Match]:
        """One match per combination of null columns, of these columns."""
        return [cls._where(columns, set(names)) for names in nulls]

    @classmethod
    def _where(cls, columns: Columns, nulls: Collection[str]) -> Match:
        staged = [f"s.{quote(n)} IS {'' if n in nulls else 'NOT '}NULL" for n in columns]
        on = [
            f"t.{quote(name)} IS NULL" if name in nulls else _equal(name, column)
            for name, column in columns.items()
        ]
        return cls(" AND ".join(staged) or "true", " AND ".join(on) or "true")


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quote, names))


def _casts(columns: Columns) -> str:
    return ", ".join(_cast(name, column) for name, column in columns.items())


def _cast(name: str, column: Column) -> str:
    return f"CAST(s.{quote(name)} AS {column.dtype})"


def _text(values: Iterable[str]) -> str:
    """What clients see of the values. A cast to text would remove the spaces of ``character(n)``."""
    return f"CAST(ROW({', '.join(values)}) AS pg_catalog.text)"


def _is_lower(before: str, after: str, sequence: Sequence[str]) -> str:
    """Whether the sequence of a stored row is lower. Null, which others stored, is the lowest."""
    left, right = (", ".join(f"{row}.{quote(n)}" for n in sequence) for row in (before, after))
    return f"(ROW({left}) OPERATOR(pg_catalog.<) ROW({right})) IS NOT FALSE"


def _equal(name: str, column: Column) -> str:
    stored, sent = _compared(name, column)
    return f"{stored} OPERATOR(pg_catalog.=) {sent}"


def _equal_or_null(name: str, column: Column) -> str:
    # Not IS NOT DISTINCT FROM, whose operator the search path decides.
    nulls = f"t.{quote(name)} IS NULL AND s.{quote(name)} IS NULL"
    return f"(({_equal(name, column)}) IS TRUE OR ({nulls}))"


def _compared(name: str, column: Column) -> tuple[str, str]:
    """The stored value and the one that was sent, as they are compared."""
    stored, sent = f"t.{quote(name)}", _cast(name, column)
    if column.compare == "json":
        stored, sent = f"CAST({stored} AS pg_catalog.jsonb)", f"CAST({sent} AS pg_catalog.jsonb)"
    elif column.compare == "text":  # of values that are not null: null and '' differ in a row
        stored, sent = _text([stored]), f'{_text([sent])} COLLATE "C"'
    return stored, sent
