"""The target of the PostgreSQL sink as the catalogue describes it.

Names are resolved once per transaction. All statements then name the schema, so that a search path cannot
lead two of them to different tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.ddl import quote
from streamops.kernel.errors import SinkError
from streamops.sinks import conditions
from streamops.sinks.core import sql
from streamops.sinks.sink import type_differs

Fetch = Callable[..., list[tuple[Any, ...]]]
Nulls = Sequence[Sequence[str]]
"""Combinations of columns that are null together."""

MAX_BYTES = 63
"""PostgreSQL cuts longer names, without an error."""

_PARTS = "SELECT $1::pg_catalog.oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree($1::pg_catalog.oid)"

_SELECT_TABLE = """
WITH target AS (SELECT pg_catalog.to_regclass($1)::pg_catalog.oid AS oid),
parts AS (SELECT oid FROM target UNION
          SELECT relid FROM target, pg_catalog.pg_partition_tree(target.oid))
SELECT c.oid::bigint, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, c.relkind::pg_catalog.text,
  EXISTS (SELECT FROM parts JOIN pg_catalog.pg_class p USING (oid) WHERE p.relpersistence <> 'p'),
  EXISTS (SELECT FROM parts JOIN pg_catalog.pg_class p USING (oid) WHERE p.relkind = 'f'),
  EXISTS (SELECT FROM pg_catalog.pg_rewrite r
          WHERE r.ev_class = c.oid AND r.ev_type <> '1' AND r.ev_enabled <> 'D'),
  pg_catalog.row_security_active(c.oid),
  EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN parts ON t.tgrelid = parts.oid
          WHERE NOT t.tgisinternal AND t.tgenabled <> 'D')
  OR EXISTS (SELECT FROM pg_catalog.pg_constraint f
             WHERE f.confrelid = c.oid AND f.contype = 'f'
             AND (f.confdeltype IN ('c', 'n', 'd') OR f.confupdtype IN ('c', 'n', 'd')))
FROM target JOIN pg_catalog.pg_class c USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
"""Schema, name and class of the relation; whether a part is not logged or is foreign; rules, row security, triggers."""

_SELECT_COLUMNS = """
WITH RECURSIVE types AS (
  SELECT a.attnum, a.atttypid AS type, a.atttypmod AS size, '' AS lists
  FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT p.attnum, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
    CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE p.size END,
    CASE t.typtype WHEN 'd' THEN p.lists ELSE p.lists || '[]' END
  FROM types p JOIN pg_catalog.pg_type t ON t.oid = p.type
  WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
)
SELECT a.attname::pg_catalog.text, pg_catalog.format_type(a.atttypid, a.atttypmod),
  pg_catalog.format_type(t.oid, CASE t.oid WHEN 'pg_catalog.numeric'::pg_catalog.regtype THEN p.size END)
    || p.lists,
  t.typtype::pg_catalog.text, p.size >= 0 AND t.oid <> 'pg_catalog.numeric'::pg_catalog.regtype,
  COALESCE(l.collisdeterministic, true),
  a.attnotnull,
  a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '',
  CASE WHEN a.attgenerated <> '' THEN 'generated' WHEN a.attidentity = 'a' THEN 'identity, always' END
FROM types p JOIN pg_catalog.pg_type t ON t.oid = p.type
JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::pg_catalog.oid AND a.attnum = p.attnum
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
WHERE t.typtype <> 'd' AND NOT (t.typcategory = 'A' AND t.typelem <> 0) ORDER BY a.attnum
"""
"""Name and type; the type behind domains, its class, whether it has a length; and what is required."""

_SELECT_UNIQUE = """
SELECT ARRAY(SELECT a.attname::pg_catalog.text FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY k(attnum, number)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE k.number <= i.indnkeyatts),
  i.indimmediate AND i.indisvalid AND i.indisready,
  NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indcollation::pg_catalog.oid[]) u(oid) JOIN pg_catalog.pg_collation USING (oid)
              WHERE NOT collisdeterministic)
  AND NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indclass::pg_catalog.oid[]) u(oid) JOIN pg_catalog.pg_opclass o USING (oid)
                  WHERE o.opcnamespace <> 'pg_catalog'::pg_catalog.regnamespace),
  COALESCE((pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
FROM pg_catalog.pg_index i
WHERE i.indrelid = $1::pg_catalog.oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
"""
"""The columns of each unique index; whether ON CONFLICT can use it; whether values that it takes for equal
are the same, and nulls are."""

_SELECT_SCHEMA = """
SELECT s::pg_catalog.text FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY u(s, number)
WHERE s::pg_catalog.text !~ '^pg_temp' ORDER BY number LIMIT 1
"""

_COUNT_CHANGES = f"""
SELECT COALESCE(pg_catalog.sum(pg_catalog.pg_stat_get_xact_tuples_inserted(oid)
                    + pg_catalog.pg_stat_get_xact_tuples_updated(oid)), 0)::bigint,
  COALESCE(pg_catalog.sum(pg_catalog.pg_stat_get_xact_tuples_deleted(oid)), 0)::bigint
FROM ({_PARTS}) parts
"""

_EXACT = {
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "numeric",
    "real",
    "double precision",
    "text",
    "character varying",
    "bytea",
    "date",
    "time without time zone",
    "timestamp without time zone",
    "timestamp with time zone",
    "interval",
}
"""Types that store every value that they accept as it is, and for which only the same values are equal."""

_MINUS_INFINITY = {
    pa.date32().id: 10_957 - 2**31,
    pa.timestamp("us").id: 946_684_800_000_000 - 2**63,
}
"""Days or microseconds since 1970 that, counted from 2000, are PostgreSQL's number for ``-infinity``."""

_RELATIONS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A column that the catalogue describes.

    Parameters
    ----------
    dtype, base : str
        The type, and the type behind domains, which has no length.
    type_class : str
        The class of the type behind domains, such as "b" or "e".
    has_length : bool
        Whether the type has a length or a precision that PostgreSQL may cut or round to.
    is_deterministic : bool
        Whether only the same strings are equal.
    is_not_null, is_required : bool
        Whether the column refuses null; whether rows must have a value for it.
    computed : str or None
        "generated" or "identity, always", if rows cannot have a value for it.
    """

    dtype: str
    base: str
    type_class: str
    has_length: bool
    is_deterministic: bool
    is_not_null: bool
    is_required: bool
    computed: str | None

    def fit(self, arrived: pa.Field, *, is_json: bool) -> sql.Column:
        """How values are stored and compared.

        Raises
        ------
        SinkError
            ``TARGET_TYPE``: the column does not take values of this type.
        """
        is_text = pa.types.is_string(arrived.type) or pa.types.is_large_string(arrived.type)
        fits = sql.accepts(self._plain, arrived.type) or (self.type_class != "b" and is_text)
        if self.computed or not fits:
            accepted = " or ".join(sql.accepted_types(arrived.type))
            found = f"{self.dtype} ({self.computed})" if self.computed else self.dtype
            raise type_differs(arrived.name, arrived.type, found, accepted)
        item = self._plain.partition("(")[0].removesuffix("[]")
        # Full length is required of each value, and then the same strings are equal.
        is_exact = item in _EXACT or item == "uuid" or self.type_class == "e"
        is_exact |= item == "character" and self.has_length
        is_json &= item in {"json", "jsonb"}
        compare = "values" if is_exact and self.is_deterministic else "text"
        return sql.Column(
            dtype=self.dtype,
            compare="json" if is_json else compare,  # type: ignore[arg-type]
            is_checked=self.has_length or not (is_json or item in {*_EXACT, "json", "citext"}),
        )

    @property
    def _plain(self) -> str:
        """The type, without the schema of the extension ``citext``."""
        return "citext" if self.base.rpartition(".")[2] == "citext" else self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a name leads to.

    Parameters
    ----------
    oid : int
        Its identifier in the catalogue.
    table : Table
        Its schema and name.
    columns : dict of str to Found
        Its columns.
    fires : bool
        Whether triggers, or cascades of foreign keys, can change what statements do.
    """

    oid: int
    table: sql.Table
    columns: Mapping[str, Found]
    fires: bool


def resolve(fetch: Fetch, table: sql.Table) -> Target | None:
    """Find the table, without its columns; None if it does not exist.

    Raises
    ------
    SinkError
        ``TARGET_KIND``: rows would not be in it exactly once, or could be lost.
    """
    rows = fetch(_SELECT_TABLE, str(table))
    if not rows:
        return None
    oid, schema, name, relation, is_unlogged, is_foreign, has_rules, is_filtered, fires = rows[0]
    found = sql.Table(name, schema, is_partitioned=relation == "p")
    for is_wrong, got, fix in (
        (
            relation not in "rp",
            _RELATIONS.get(relation, "a relation that is not a table"),
            "write to the table behind it",
        ),
        (
            is_foreign,
            "a foreign partition",
            "write to a table whose partitions are in this database",
        ),
        (
            is_unlogged,
            "an unlogged or temporary table, which a crash of the server empties",
            f"ALTER TABLE {found} SET LOGGED, also for partitions",
        ),
        (has_rules, "a table with rules", "drop the rules, and use triggers"),
        (
            is_filtered,
            "row-level security, which hides rows from this user",
            "write as the owner of the table, or as a user with BYPASSRLS",
        ),
    ):
        if is_wrong:
            raise conditions.NOT_A_PLAIN_TABLE.error(remedy=fix, got=f"{got}: {found}")
    return Target(oid=oid, table=found, columns={}, fires=fires)


def inspect(fetch: Fetch, table: sql.Table) -> Target | None:
    """Find the table and its columns; None if it does not exist.

    Raises
    ------
    SinkError
        As in :func:`resolve`.
    """
    target = resolve(fetch, table)
    if target is None:
        return None
    columns = {
        name: Found(
            dtype=dtype,
            base=base,
            type_class=type_class,
            has_length=has_length,
            is_deterministic=is_deterministic,
            is_not_null=is_not_null,
            is_required=is_required,
            computed=computed,
        )
        for name, dtype, base, type_class, has_length, is_deterministic, is_not_null, is_required, computed in fetch(
            _SELECT_COLUMNS, target.oid
        )
    }
    return Target(oid=target.oid, table=target.table, columns=columns, fires=target.fires)


def creation_schema(fetch: Fetch, table: sql.Table) -> str:
    """The schema in which the table is created: the first of the search path that is not temporary."""
    rows = fetch(_SELECT_SCHEMA) if table.schema is None else [(table.schema,)]
    if not rows:
        raise conditions.NO_SCHEMA.error(got=str(table))
    schema: str = rows[0][0]
    return schema


def require_key(fetch: Fetch, target: Target, key: Sequence[str], columns: sql.Columns) -> bool:
    """Require a unique index on the key, for which only the same keys are equal.

    Returns
    -------
    bool
        Whether null is a value of the key.

    Raises
    ------
    SinkError
        ``TARGET_KEY``.
    """
    for name in key:
        if columns[name].compare == "text":
            raise conditions.KEY_COMPARISON.error(
                column=name,
                got=columns[name].dtype
                + (" with its collation" if "text" in columns[name].dtype else ""),
            )
    found = fetch(_SELECT_UNIQUE, target.oid)
    same = [row for row in found if sorted(row[0]) == sorted(key)]
    if not any(row[1] for row in same) or not all(row[2] for row in same):
        is_complete = all(n in target.columns and target.columns[n].is_not_null for n in key)
        nulls = "" if is_complete else " NULLS NOT DISTINCT"
        raise conditions.NO_UNIQUE_INDEX.error(
            table=target.table,
            columns=", ".join(map(quote, key)),
            nulls=nulls,
            key=", ".join(key),
            got=f"unique indexes on {[list(row[0]) for row in found]}"
            + (
                "; the index on the key is deferrable, invalid, or for another equality"
                if same
                else ""
            ),
        )
    return any(row[3] for row in same)


def refuse_nulls(nulls: Nulls, key: Sequence[str]) -> None:
    """Refuse keys of which columns are null, for an index in which nulls are distinct."""
    for name in chain.from_iterable(nulls):
        raise conditions.NULL_IN_KEY.error(
            name=name, columns=", ".join(map(quote, key)), got="null"
        )


def refuse_changed(fetch: Fetch, columns: sql.Columns, schema: pa.Schema) -> None:
    """Refuse staged values that the types of the target would change.

    Raises
    ------
    SinkError
        ``TARGET_TYPE``.
    """
    for name, column in columns.items():
        rows = fetch(sql.select_changed(name, column)) if column.is_checked else []
        if rows:
            value, dtype = rows[0][0], schema.field(name).type
            raise type_differs(
                name,
                f"{dtype} {value[:40]!r}",
                column.dtype,
                "values that the table returns as they were sent",
            )


def refuse_names(schema: pa.Schema) -> None:
    """Refuse columns whose names PostgreSQL would cut."""
    for name in schema.names:
        if len(name.encode()) > MAX_BYTES:
            raise conditions.COLUMN_NAME_TOO_LONG.error(
                max_bytes=MAX_BYTES, got=f"{name!r}, {len(name.encode())} bytes"
            )


def exact_times(rows: pa.Table) -> pa.Table:
    """Return the rows with times in microseconds, as PostgreSQL stores them.

    Raises
    ------
    SinkError
        ``TARGET_TYPE``: a time has nanoseconds, or is the one that stands for ``-infinity``.
    """
    for position, part in enumerate(rows.schema):
        values, wanted = rows.column(position), _in_micros(part.type)
        if wanted != part.type:
            try:
                values = values.cast(wanted)
            except pa.ArrowInvalid:
                finest = "a time of PostgreSQL"
                raise type_differs(part.name, part.type, finest, "microseconds that fit") from None
            rows = rows.set_column(position, part.with_type(wanted), values)
        while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            values = pc.list_flatten(values)
        infinity = _MINUS_INFINITY.get(values.type.id)
        lowest = pa.scalar(None) if infinity is None else pc.min(values)
        if lowest.is_valid and lowest.value <= infinity:
            raise type_differs(part.name, part.type, "'-infinity'", "times that PostgreSQL has")
    return rows


def _in_micros(dtype: pa.DataType) -> pa.DataType:
    """The type with microseconds, if it has times."""
    if pa.types.is_timestamp(dtype):
        return pa.timestamp("us", dtype.tz)
    if pa.types.is_duration(dtype):
        return pa.duration("us")
    if pa.types.is_time(dtype):
        return pa.time64("us")
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_in_micros(dtype.value_type)))
    return dtype


_COPIED = {
    *(pa.bool_(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32()),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
}
"""Types of which the driver of PostgreSQL sends the same bytes that a table has."""


class Writer:
    """Runs statements that change the target, and compares what they did with what was sent.

    Without triggers and cascades nothing can differ, and nothing is compared.
    """

    def __init__(
        self, execute: Callable[[str], Any], fetch: Fetch, target: Target, columns: sql.Columns
    ) -> None:
        self.fetch, self.table, self.columns = fetch, target.table, columns
        self.fires, self._oid = target.fires, target.oid
        self._execute = execute
        self._stored = self._deleted = self._cleared = 0
        self._before = self._count()

    def matches(self, nulls: Nulls, names: Sequence[str]) -> list[sql.Match]:
        """The ways to join rows by these columns: one per combination of columns that are null."""
        return sql.Match.of({name: self.columns[name] for name in names}, nulls)

    def unstage_older(self, nulls: Nulls, key: Sequence[str], sequence: Sequence[str]) -> None:
        """Remove staged rows that an upsert would not store, if it will be compared with all of them."""
        for match in self.matches(nulls, key) if self.fires else ():
            older = sql.unstage_older(self.table, match, self.columns, key, sequence)
            if older is not None:
                self._execute(older)

    def takes(self, rows: pa.Table | None) -> bool:
        """Whether these rows can be copied to the table as they are: it has no triggers, and their types."""
        if self.fires or rows is None or not len(rows):
            return False
        types = [(self.columns[part.name].dtype, part.type) for part in rows.schema]
        return all(
            found == sql.accepted_types(dtype)[0] and dtype in _COPIED for found, dtype in types
        )

    def insert(self, statement: str, source: str) -> None:
        """Run an insert or an upsert of staged rows, all of which it stores."""
        if not self.fires:
            self._execute(statement)
            return
        stored, is_changed = self.fetch(sql.insert_and_compare(statement, self.columns, source))[0]
        self._stored += stored
        if is_changed:
            raise self._changed("a row of the micro-batch is not stored as it was sent")

    def delete(self, statement: str) -> None:
        """Run a deletion."""
        if self.fires:
            self._deleted += self.fetch(sql.delete_and_count(statement))[0][0]
        else:
            self._execute(statement)

    def require_deleted(self, rows: int) -> None:
        """Require that so many rows were deleted, besides those that were cleared."""
        if self.fires and self._deleted != rows + self._cleared:
            raise self._changed(f"{self._deleted - self._cleared} of {rows} rows were deleted")

    def clear(self) -> None:
        """Delete all rows."""
        rows = self.table.rows
        self.delete(f"DELETE FROM {rows}")
        self._cleared = self._deleted
        if self.fires and self.fetch(f"SELECT EXISTS (SELECT FROM {rows})")[0][0]:
            raise self._changed("not all rows were deleted")

    def finish(self) -> None:
        """Require that nothing else changed rows of the target."""
        if not self.fires:
            return
        self._execute("SET CONSTRAINTS ALL IMMEDIATE")  # runs deferred triggers
        stored, deleted = (a - b for a, b in zip(self._count(), self._before, strict=True))
        if (stored, deleted) != (self._stored, self._deleted):
            raise self._changed(
                f"{stored} rows stored and {deleted} deleted, not {self._stored} and {self._deleted}"
            )

    def _count(self) -> tuple[int, ...]:
        return self.fetch(_COUNT_CHANGES, self._oid)[0] if self.fires else (0, 0)

    def _changed(self, got: str) -> SinkError:
        return conditions.TRIGGER_OR_FOREIGN_KEY.error(got=got)
