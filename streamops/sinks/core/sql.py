"""The statements of the PostgreSQL sink.

Names are quoted here, and nowhere else. Values are never part of a statement: rows arrive in a staging
table, and everything else as parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamops.kernel.sql import quote

STAGING = "streamops_staging"
"""Temporary table with the rows of a micro-batch, and the columns below."""

REMOVED = "streamops_removed"
"""Column of the staging table: whether the target loses the row."""

MATCHES = "streamops_matches"
"""Column of the staging table: whether the target must have all values of a removed row."""

REPLACED = "streamops_replaced"
"""Column of the staging table: whether another row with the same key replaces or is replaced."""

COPIES = "streamops_copies"
"""Column of the staging table: how often the row occurs."""

_MARKS = ", ".join(f"'{name}'" for name in (REMOVED, MATCHES, REPLACED, COPIES))
_ROW = f"(to_jsonb(s) - ARRAY[{_MARKS}])::text"
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
_STRINGS = ("text", "character varying", "character", "json", "jsonb", "uuid")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the target, in its schema or in the default one."""

    name: str
    schema: str | None

    def __str__(self) -> str:
        return ".".join(quote(part) for part in (self.schema, self.name) if part is not None)


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

    Examples
    --------
    >>> accepts("bigint", pa.int32()), accepts("integer", pa.int64())
    (True, False)
    >>> accepts("numeric(12,2)", pa.decimal128(10, 2)), accepts("numeric(12,1)", pa.decimal128(10, 2))
    (True, False)
    """
    base, _, size = found.partition("(")
    if pa.types.is_decimal(dtype) and base == "numeric" and size:
        precision, _, scale = size.rstrip(")").partition(",")
        digits, decimals = int(precision), int(scale or 0)
        room = digits - decimals >= dtype.precision - dtype.scale
        return bool(room and decimals >= dtype.scale)
    if pa.types.is_string(dtype) and size:
        return base in _STRINGS  # with a length, which PostgreSQL checks
    return found in accepted_types(dtype)


def create_ledger(ledger: Table) -> str:
    """Create the ledger, if it is missing."""
    return (
        f"CREATE TABLE IF NOT EXISTS {ledger} (sink text PRIMARY KEY, query text NOT NULL, "
        "generation bigint NOT NULL, run text NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL, "
        "digest bigint NOT NULL, target text NOT NULL, target_id text NOT NULL, former text[] NOT NULL, at timestamptz NOT NULL DEFAULT now())"
    )


_ENTRY = ("query", "generation", "run", "batch", "rows", "digest", "target", "target_id", "former")


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
        f"ON CONFLICT (sink) DO UPDATE SET {changes}, at = now()"
    )


LOCK = "SELECT 1 FROM pg_advisory_xact_lock(hashtextextended($1, 0))"
"""Lock a sink until the transaction ends, also before its ledger exists."""

SELECT_LOCATION = (
    "SELECT coalesce(n.nspname, current_schema())::text, c.oid::bigint "
    "FROM (SELECT to_regclass($1)::oid AS oid) found "
    "LEFT JOIN pg_catalog.pg_class c USING (oid) LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
)
"""The schema and the oid of a table; the schema in which it would be created, and null, if there is none."""

SELECT_COLUMNS = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typtype::text, "
    "a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '' "
    "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE c.oid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)
"""The columns of a table: name, type, class of the type, and whether a value is required."""

SELECT_UNIQUE = (
    "SELECT (SELECT string_agg(a.attname, E'\\n' ORDER BY a.attname) FROM pg_attribute a "
    "WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)) FROM pg_index i "
    "WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL"
)
"""The columns of each unique index of a table, sorted, one per line."""


def create_table(
    table: Table, types: Mapping[str, str], key: Sequence[str] | None, *, nulls: bool
) -> str:
    """Create the target. With `nulls`, null is a value of the key, as in Spark's groups."""
    columns = [f"{quote(name)} {dtype}" for name, dtype in types.items()]
    if key is not None:
        distinct = "NULLS NOT DISTINCT " if nulls else ""
        columns.append(
            f"UNIQUE {distinct}({_list(key)})" if nulls else f"PRIMARY KEY ({_list(key)})"
        )
    return f"CREATE TABLE {table} ({', '.join(columns)})"


def add_columns(table: Table, types: Mapping[str, str]) -> str:
    """Add columns to the target."""
    return f"ALTER TABLE {table} " + ", ".join(
        f"ADD COLUMN {quote(name)} {dtype}" for name, dtype in types.items()
    )


def select_missing(table: Table, match: Match, types: Mapping[str, str]) -> str:
    """Select a staged row that the target must have, but has not: the row as JSON, and what must match."""
    content = " AND ".join(_equal_or_null(name, dtype) for name, dtype in types.items()) or "true"
    return (
        f"SELECT {_ROW}, s.{MATCHES} FROM {STAGING} s WHERE s.{REMOVED} AND {match.of_staged} "
        f"AND NOT EXISTS (SELECT FROM {table} t WHERE {match.on} AND (NOT s.{MATCHES} OR ({content}))) "
        "LIMIT 1"
    )


def select_existing(table: Table, match: Match) -> str:
    """Select a staged row with a new key that the target already has: the row as JSON."""
    return (
        f"SELECT {_ROW} FROM {STAGING} s JOIN {table} t ON {match.on} "
        f"WHERE NOT s.{REMOVED} AND NOT s.{REPLACED} AND {match.of_staged} LIMIT 1"
    )


def delete_removed(table: Table, match: Match) -> str:
    """Delete the rows of removed keys that no other row replaces."""
    return (
        f"DELETE FROM {table} t USING {STAGING} s "
        f"WHERE {match.on} AND {match.of_staged} AND s.{REMOVED} AND NOT s.{REPLACED}"
    )


def insert(table: Table, types: Mapping[str, str]) -> str:
    """Insert all staged rows, which have no marks."""
    return f"INSERT INTO {table} ({_list(types)}) SELECT {_cast(types)} FROM {STAGING} s"


def insert_copies(table: Table, types: Mapping[str, str]) -> str:
    """Insert all staged rows that are not removed, each as often as it occurs."""
    return f"{insert(table, types)}, generate_series(1, s.{COPIES}) WHERE NOT s.{REMOVED}"


def upsert(
    table: Table,
    types: Mapping[str, str],
    key: Sequence[str],
    sequence: Sequence[str] = (),
    *,
    is_marked: bool,
) -> str:
    """Insert staged rows, or replace the row of the same key if its sequence is lower."""
    added = f"WHERE NOT s.{REMOVED}" if is_marked else "WHERE true"  # or ON would belong to a join
    others = [name for name in types if name not in key]
    changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
    action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
    if sequence and others:
        before = ", ".join(f"t.{quote(name)}" for name in sequence)
        after = ", ".join(f"excluded.{quote(name)}" for name in sequence)
        action += f" WHERE ({before}) < ({after})"
    return (
        f"INSERT INTO {table} AS t ({_list(types)}) SELECT {_cast(types)} FROM {STAGING} s "
        f"{added} ON CONFLICT ({_list(key)}) {action}"
    )


def select_too_few(table: Table, match: Match) -> str:
    """Select a staged row of which the target has fewer copies than it loses: the row as JSON."""
    return (
        f"SELECT {_ROW} FROM {STAGING} s WHERE s.{REMOVED} AND {match.of_staged} "
        f"AND s.{COPIES} > (SELECT count(*) FROM {table} t WHERE {match.on}) LIMIT 1"
    )


def delete_copies(table: Table, match: Match) -> str:
    """Delete as many equal rows as a multiset loses."""
    return (
        f"DELETE FROM {table} t USING (SELECT t.ctid AS at, s.{COPIES} AS copies, "
        f"row_number() OVER (PARTITION BY s.ctid) AS number FROM {STAGING} s JOIN {table} t "
        f"ON {match.on} WHERE s.{REMOVED} AND {match.of_staged}) n "
        "WHERE t.ctid = n.at AND n.number <= n.copies"
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
    def of(cls, types: Mapping[str, str], nulls: Iterable[Collection[str]]) -> list[Match]:
        """One match per combination of null columns, of the columns with these types."""
        return [cls._where(types, set(names)) for names in nulls]

    @classmethod
    def _where(cls, types: Mapping[str, str], nulls: Collection[str]) -> Match:
        staged = [f"s.{quote(n)} IS {'' if n in nulls else 'NOT '}NULL" for n in types]
        on = [
            f"t.{quote(name)} IS NULL" if name in nulls else _equal(name, dtype)
            for name, dtype in types.items()
        ]
        return cls(" AND ".join(staged) or "true", " AND ".join(on) or "true")


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quote, names))


def _cast(types: Mapping[str, str]) -> str:
    return ", ".join(f"CAST(s.{quote(name)} AS {dtype})" for name, dtype in types.items())


def _equal(name: str, dtype: str, operator: str = "=") -> str:
    if dtype == "json":  # has no equality
        return f"CAST(t.{quote(name)} AS jsonb) {operator} CAST(s.{quote(name)} AS jsonb)"
    return f"t.{quote(name)} {operator} CAST(s.{quote(name)} AS {dtype})"


def _equal_or_null(name: str, dtype: str) -> str:
    return _equal(name, dtype, "IS NOT DISTINCT FROM")
