"""Random tables of PostgreSQL that others could have made, and what the sink does to them.

Either an independent client reads what a naive model of the micro-batches has, next to the rows that the
table had before; or the sink refuses, with a remedy, and the table is as it was.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import psycopg
import psycopg.sql
import pyarrow as pa
import pytest
from psycopg.types.string import TextLoader

from streamops import sinks
from streamops.errors import SchemaError, SinkError
from streamops.sinks.sink import JSON, Session
from streamops.spark.identity import Identity
from tests.borders import cases
from tests.borders.postgres_types import JSON_TEXTS, POOLS, PREPARED, UTC

pytestmark = [pytest.mark.postgres, pytest.mark.smoke]

TRIGGERS = [
    *("BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION suppress()",),
    *("BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION suppress_some()",),
    *("BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION suppress()",),
    *("BEFORE DELETE ON {} FOR EACH ROW EXECUTE FUNCTION suppress()",),
    *("BEFORE INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION keep()",),
    *("AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH STATEMENT EXECUTE FUNCTION keep()",),
    *("BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION spoil({})",),
    *("BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION spoil({})",),
    *("BEFORE INSERT OR UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION spoil('noted')",),
    *("AFTER INSERT ON {} FOR EACH STATEMENT EXECUTE FUNCTION spoil_later({})",),
    *("AFTER INSERT OR DELETE ON {} FOR EACH STATEMENT EXECUTE FUNCTION remove_later()",),
    *("AFTER INSERT ON {} FOR EACH ROW EXECUTE FUNCTION duplicate()",),
]
DEFERRED = "CREATE CONSTRAINT TRIGGER x AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {}"
SETTINGS = [
    *(
        "TimeZone=America/New_York",
        "DateStyle=SQL,DMY",
        "IntervalStyle=sql_standard",
        "bytea_output=escape",
    ),
    *(
        "extra_float_digits=-15",
        "client_encoding=LATIN1",
        "search_path=pg_temp,public",
        "search_path=public,pg_temp",
    ),
    *(
        "search_path=first,public",
        "search_path=second,first,public",
        "row_security=off",
        "enable_hashjoin=off",
    ),
    *(
        "default_transaction_isolation=serializable",
        "session_replication_role=replica",
        "xmloption=document",
    ),
]
RELATIONS = [
    *(
        "hash",
        "list",
        "range",
        "two levels",
        "unlogged partition",
        "foreign partition",
        "parent",
        "child",
    ),
    *("unlogged", "view", "instead", "materialized", "foreign", "rule", "also", "secured"),
]


@dataclass
class Column:
    """A column of the rows and of the table."""

    name: str
    arrow: pa.DataType
    values: list[Any]
    dtype: str
    is_json: bool = False

    @property
    def arrow_field(self) -> pa.Field:
        part = pa.field(self.name, self.arrow)
        return part.with_metadata(JSON) if self.is_json else part


@dataclass
class Case:
    """A table, and what is sent to it."""

    seed: int
    form: str
    columns: list[Column] = field(default_factory=list)
    keys: int = 0
    is_plain: bool = True
    database: str = "borders"
    user: str = "postgres"
    schema: str = "public"
    settings: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    sent: list[tuple[Any, ...]] = field(default_factory=list)
    has_others: bool = False  # in a table that inherits from it

    @property
    def name(self) -> str:
        return f"t{self.seed}"

    @property
    def key(self) -> list[str] | None:
        return [column.name for column in self.columns[: self.keys]] or None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def canon(value: Any, dtype: pa.DataType, *, is_key: bool = False) -> Any:
    """All that distinguishes values. Spark, too, has one zero in keys."""
    if value is None:
        return None
    if pa.types.is_list(dtype) and isinstance(value, list):
        return tuple(canon(item, dtype.value_type) for item in value)
    if pa.types.is_floating(dtype) and isinstance(value, float):
        number = pa.scalar(value, pa.float64()).cast(dtype).as_py()
        return "0.0" if is_key and number == 0 else repr(number)
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(UTC)
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


def sorted_json(text: str) -> str:
    """The text of JSON, without what has no meaning in it; of others' rows perhaps no JSON."""
    with suppress(json.JSONDecodeError):
        return json.dumps(json.loads(text), sort_keys=True)
    return text


class World:
    """The server, with two databases, and what an independent client does there."""

    def __init__(self, where: str) -> None:
        self.folder = where.split()[0].partition("=")[2]
        with psycopg.connect(where, autocommit=True) as connection:
            for name, encoding in (("borders", "UTF8"), ("latin", "LATIN1")):
                connection.execute(f"DROP DATABASE IF EXISTS {name}")
                connection.execute(
                    f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
                )
        self.clients = {name: self._client(name) for name in ("borders", "latin")}

    def _client(self, database: str) -> psycopg.Connection[Any]:
        client = psycopg.connect(
            f"host={self.folder} user=postgres dbname={database} client_encoding=utf8",
            autocommit=True,
        )
        client.execute(PREPARED)
        for name in ("uuid", "json", "jsonb", "inet", "int4range", "xml", "money"):
            client.adapters.register_loader(name, TextLoader)
        return client

    def url(self, database: str, user: str, settings: list[str]) -> str:
        options = "".join(f"%20-c%20{s.replace('=', '%3D')}" for s in settings)
        return f"postgresql://{user}@/{database}?host={self.folder}&options={options}"

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


@pytest.fixture(scope="module")
def world(postgres: str) -> Iterator[World]:
    made = World(postgres)
    yield made
    made.close()


def draw_column(draw: random.Random, name: str, *, is_odd: bool) -> tuple[Column, bool]:
    """A column, and whether the table stores all of its values."""
    is_json = draw.random() < 0.1
    pool = JSON_TEXTS if is_json else draw.choices(POOLS, [5, *[1] * (len(POOLS) - 1)])[0]
    is_exact = not is_odd or draw.random() < 0.3
    dtype = draw.choice(pool.exact if is_exact else pool.others)
    return Column(name, pool.arrow, pool.values, dtype, is_json), is_exact


def draw_rows(
    draw: random.Random, columns: list[Column], count: int, *, nulls: float
) -> list[tuple[Any, ...]]:
    some = [draw.sample(c.values, min(len(c.values), 4)) for c in columns]
    return [
        tuple(None if draw.random() < nulls else draw.choice(values) for values in some)
        for _ in range(count)
    ]


class Model:
    """What the table must have, by columns that are sent."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rows: list[tuple[Any, ...]] = []

    def canon(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = len(row) if self.case.form == "multiset" else self.case.keys
        parts = zip(row, self.case.columns, strict=True)
        return tuple(
            canon(value, column.arrow, is_key=at < keys)
            if value is None or not column.is_json
            else sorted_json(value)
            for at, (value, column) in enumerate(parts)
        )

    def key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.canon(row)[: self.case.keys]

    def content(self) -> Counter[Any]:
        return Counter(map(self.canon, self.rows))

    def put(self, row: tuple[Any, ...]) -> None:
        """Replace the row of the key, or add it; with a revision, if it is higher."""
        same = [old for old in self.rows if self.key(old) == self.key(row)]
        known = same[0][-1] if same and self.case.form == "revisions" else None
        is_older = known is not None and known >= row[-1]
        if not is_older:
            self.rows = [old for old in self.rows if old not in same] + [row]


def next_batch(
    draw: random.Random, case: Case, model: Model, number: int
) -> tuple[pa.Table, Model]:
    """A micro-batch, and the model after it."""
    after = Model(case)
    after.rows = list(model.rows)
    columns, types = case.columns, []
    nulls = draw.choice([0, 0, 0.2])
    sent = draw_rows(draw, columns, draw.randint(1, 5), nulls=nulls)
    if case.form == "append":
        after.rows += sent
    elif case.form in {"revisions", "latest"}:
        newest = {after.key(row): row for row in sent}
        sent = list(newest.values())
        if case.form == "revisions":
            sent = [(*row[:-1], draw.randint(0, 3)) for row in sent]
        for row in sent:
            after.put(row)
    elif case.form == "multiset":
        removed = [row for row in after.rows if row in case.sent and draw.random() < 0.4]
        for row in removed:
            after.rows.remove(row)
        after.rows += sent
        case.sent.extend(sent)
        types = ["insert"] * len(sent) + ["delete"] * len(removed)
        sent = sent + removed
    else:
        changes, known = [], {after.key(row): row for row in after.rows}
        for row in {after.key(row): row for row in sent}.values():
            old = known.get(after.key(row))
            row = (*row[:-1], number)
            if old is None:
                changes.append(("insert", row))
                after.put(row)
            elif old in case.sent:
                after.rows.remove(old)
                if draw.random() < 0.5:
                    changes += [("update_preimage", old), ("update_postimage", row)]
                    after.rows.append(row)
                else:
                    changes.append(("delete", old))
        types, sent = [relation for relation, _ in changes], [row for _, row in changes]
        case.sent.extend(sent)
    schema = pa.schema([column.arrow_field for column in columns])
    arrays = [
        pa.array([row[at] for row in sent], column.arrow) for at, column in enumerate(columns)
    ]
    table = pa.table(arrays, schema=schema)
    if case.form in {"changes", "multiset"}:
        table = table.append_column("_change_type", pa.array(types, pa.string()))
    return table, after


INDEXES = [
    "UNIQUE ({0})",
    "UNIQUE ({0}) DEFERRABLE",
    "PRIMARY KEY ({0}) DEFERRABLE INITIALLY DEFERRED",
    "UNIQUE NULLS NOT DISTINCT ({0}) INCLUDE (noted)",
    "PRIMARY KEY ({0}, noted)",
    "UNIQUE NULLS NOT DISTINCT ({0}), UNIQUE ({0}) DEFERRABLE",
    "CREATE UNIQUE INDEX ON {1} ({0}) WHERE {2} IS NOT NULL",
    "CREATE UNIQUE INDEX ON {1} ({0}, (noted IS NULL))",
    "CREATE UNIQUE INDEX ON {1} (lower({2}::text))",
    "CREATE UNIQUE INDEX ON {1} ({2} COLLATE nocase)",
    "CREATE UNIQUE INDEX ON {1} ({0}); CREATE UNIQUE INDEX ON {1} ({2} COLLATE nocase)",
    "CREATE UNIQUE INDEX ON ONLY {1} ({0})",
    "CREATE INDEX ON {1} ({0})",
]
EXTRAS = [
    *("extra int", "extra int DEFAULT 5", "extra int NOT NULL DEFAULT 5", "extra serial"),
    *("extra int GENERATED BY DEFAULT AS IDENTITY", "extra int GENERATED ALWAYS AS IDENTITY"),
    *("extra int GENERATED ALWAYS AS (1 + 1) STORED", "extra int CHECK (extra IS NULL)"),
]


def draw_case(draw: random.Random, seed: int) -> Case:
    """A table, with a share of ordinary ones, and up to three odd properties of the others."""
    case = Case(seed, draw.choice(["append", "revisions", "latest", "changes", "multiset"]))
    odd = draw.sample(
        ["type", "index", "relation", "trigger", "session", "column", "latin"],
        draw.choice([0, 1, 1, 1, 2, 3]),
    )
    case.keys = draw.choice([1, 1, 2]) if case.form in {"revisions", "latest", "changes"} else 0
    names = draw.sample(
        ["k", "Key", "a b", 'x"y', "select", "é", "%s $1", "v"], case.keys + draw.randint(1, 3)
    )
    for at, name in enumerate(names):
        column, is_exact = draw_column(
            draw, name, is_odd="type" in odd and (at == 0 or draw.random() < 0.5)
        )
        case.is_plain &= is_exact
        case.columns.append(column)
    if case.form in {"revisions", "changes"}:
        dtype = draw.choice(["bigint", "numeric"])
        case.columns.append(Column("revision", pa.int64(), [0], dtype))
    if "latin" in odd:
        case.database, case.is_plain = "latin", False
    if "session" in odd:
        case.settings = draw.sample(SETTINGS, draw.randint(1, 2))
        paths = [s.partition("=")[2] for s in case.settings if s.startswith("search_path")]
        if paths and case.database == "borders":
            case.schema = paths[-1].replace("pg_temp", "").strip(",").split(",")[0]
    define_table(draw, case, odd)
    return case


def define_table(draw: random.Random, case: Case, odd: list[str]) -> None:
    table, first = f"{case.schema}.{case.name}", case.columns[0]
    parts = [f"{quoted(c.name)} {c.dtype}" for c in case.columns] + ["noted text"]
    if "column" in odd:
        parts.append(draw.choice(EXTRAS))
        if draw.random() < 0.4:
            at = draw.randrange(len(case.columns))
            also = [
                " NOT NULL",
                " UNIQUE",
                " DEFAULT NULL",
                " CHECK ({} IS NOT NULL)",
                " PRIMARY KEY",
            ]
            also += [" GENERATED ALWAYS AS (NULL) STORED"]
            parts[at] += draw.choice(also).format(quoted(case.columns[at].name))
            case.is_plain = False
    after: list[str] = []
    if case.keys:
        key = ", ".join(quoted(name) for name in case.key or [])
        index = draw.choice(INDEXES) if "index" in odd else "UNIQUE NULLS NOT DISTINCT ({0})"
        case.is_plain &= "index" not in odd
        index = index.format(key, table, quoted(first.name))
        (after if index.startswith("CREATE") else parts).append(index)
    relation = draw.choice(RELATIONS) if "relation" in odd else "ordinary"
    case.is_plain &= relation in {
        "ordinary",
        "hash",
        "list",
        "range",
        "two levels",
        "parent",
        "child",
    }
    case.statements += [*relation_of(draw, case, relation, table, ", ".join(parts)), *after]
    if "trigger" in odd:
        trigger = draw.choice(TRIGGERS)
        argument = "'" + case.columns[-1].name.replace("'", "''") + "'"
        case.is_plain &= "keep" in trigger or "noted" in trigger
        case.statements.append("CREATE TRIGGER x " + trigger.format(table, argument))
        if draw.random() < 0.1:
            case.is_plain = False
            late = f"spoil_later({argument})" if draw.random() < 0.5 else "remove_later()"
            case.statements[-1] = DEFERRED.format(table, late)
    if case.schema == "second":  # another table of the name, which the search path has later
        case.statements.append(f"CREATE TABLE IF NOT EXISTS first.{case.name} (LIKE {table})")


def relation_of(
    draw: random.Random, case: Case, relation: str, table: str, parts: str
) -> list[str]:
    """The statements that make a relation with these columns."""
    first = quoted(case.columns[0].name)
    made = f"CREATE TABLE {table} ({parts})"
    if relation in {
        "hash",
        "list",
        "range",
        "two levels",
        "unlogged partition",
        "foreign partition",
    }:
        by = {"hash": "HASH", "range": "RANGE"}.get(relation, "LIST")
        statements = [f"{made} PARTITION BY {by} ({first})"]
        part = f"CREATE TABLE {table}_{{}} PARTITION OF {table}"
        if relation == "hash":
            for number in range(3):
                values = f" FOR VALUES WITH (MODULUS 3, REMAINDER {number})"
                statements.append(part.format(number) + values)
            return statements
        if relation == "list":
            statements.append(part.format("null") + " FOR VALUES IN (NULL)")
        rest = part.format("rest") + " DEFAULT"
        if relation == "two levels":
            below = f"CREATE TABLE {table}_last PARTITION OF {table}_rest DEFAULT"
            return [*statements, f"{rest} PARTITION BY LIST ({first})", below]
        if relation == "foreign partition":
            rest = (
                rest.replace("TABLE", "FOREIGN TABLE", 1) + " SERVER files OPTIONS (program 'true')"
            )
        return [
            *statements,
            rest.replace("CREATE", "CREATE UNLOGGED") if "unlogged" in relation else rest,
        ]
    if relation == "parent":
        case.has_others = True
        names = ", ".join(quoted(c.name) for c in case.columns)
        children = [
            ", ".join(literal(draw.choice(c.values), c) for c in case.columns) for _ in range(3)
        ]
        copies = ", ".join(f"({row})" for row in children)
        return [
            made,
            f"CREATE TABLE {table}_child () INHERITS ({table})",
            f"INSERT INTO {table}_child ({names}) VALUES {copies}",
        ]
    if relation == "child":
        return [f"CREATE TABLE {table}_parent (noted text)", f"{made} INHERITS ({table}_parent)"]
    if relation in {"view", "instead", "materialized"}:
        create = "CREATE MATERIALIZED VIEW" if relation == "materialized" else "CREATE VIEW"
        statements = [
            made.replace(table, f"{table}_base"),
            f"{create} {table} AS SELECT * FROM {table}_base",
        ]
        if relation == "instead":
            statements.append(
                f"CREATE TRIGGER i INSTEAD OF INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION suppress()"
            )
        return statements
    if relation == "foreign":
        columns = ", ".join(f"{quoted(c.name)} {c.dtype}" for c in case.columns)
        return [f"CREATE FOREIGN TABLE {table} ({columns}) SERVER files OPTIONS (program 'true')"]
    if relation == "rule":
        return [
            made,
            f"CREATE RULE r AS ON {draw.choice(['INSERT', 'DELETE'])} TO {table} DO INSTEAD NOTHING",
        ]
    if relation == "also":
        return [
            made,
            f"CREATE RULE r AS ON INSERT TO {table} DO ALSO INSERT INTO audit VALUES ('x')",
        ]
    if relation == "secured":
        case.user = "app"
        policy = draw.choice(["true", f"{first} IS NOT NULL", "false"])
        check = draw.choice(["", f" WITH CHECK ({draw.choice(['true', policy])})"])
        return [
            *(
                made,
                f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
                f"GRANT ALL ON {table} TO app",
            ),
            f"CREATE POLICY p ON {table} USING ({policy}){check}",
        ]
    return [made.replace("TABLE", "UNLOGGED TABLE", 1) if relation == "unlogged" else made]


def literal(value: Any, column: Column) -> str:
    """A value in SQL, as PostgreSQL's own client writes it."""
    text = psycopg.sql.Literal(value).as_string(None)
    return "NULL" if value is None else f"CAST({text} AS {column.dtype.partition(' COLLATE')[0]})"


def add_rows_of_others(draw: random.Random, case: Case, client: Any) -> None:
    """Rows that the table has before; those that it refuses are left out."""
    names = ", ".join(quoted(c.name) for c in case.columns)
    for row in draw_rows(draw, case.columns, 3, nulls=0.1):
        values = ", ".join(literal(value, c) for value, c in zip(row, case.columns, strict=True))
        with suppress(psycopg.Error):
            client.execute(f"INSERT INTO {case.schema}.{case.name} ({names}) VALUES ({values})")


def content(case: Case, client: Any, *, only: str = "") -> list[tuple[Any, ...]]:
    names = ", ".join(quoted(c.name) for c in case.columns)
    query = f"SELECT {names} FROM {only} {case.schema}.{case.name}"
    rows: list[tuple[Any, ...]] = client.execute(query).fetchall()
    return rows


class NotPossible(Exception):
    """PostgreSQL does not create such a table."""


def run(world: World, seed: int) -> tuple[str, str | None]:
    """What happened: "delivered" or the code of a refusal; and what is wrong with that."""
    draw = random.Random(seed)
    case = draw_case(draw, seed)
    client = world.clients[case.database]
    try:
        with client.transaction():
            for statement in case.statements:
                client.execute(statement.encode())
    except psycopg.Error as error:
        raise NotPossible from error
    if draw.random() < 0.4:
        add_rows_of_others(draw, case, client)
    model = Model(case)
    model.rows = content(case, client, only="ONLY" if case.has_others else "")
    others = Counter(map(model.canon, content(case, client))) - model.content()
    sink: Any = sinks.postgres(
        world.url(case.database, case.user, case.settings),
        case.name,
        key=case.key,
        schema=case.schema if draw.random() < 0.3 and not case.settings else None,
    )
    try:
        for number in range(4):
            is_anew = number == 3 and case.seed % 4 == 0
            if is_anew:  # another query empties the table, and begins again
                sink.session.close()
                sink = replace(sink, new_checkpoint="replace", session=Session())
                model, case.sent = Model(case), []
            rows, after = next_batch(draw, case, model, number)
            before = Counter(map(model.canon, content(case, client)))
            try:
                identity = Identity("another query" if is_anew else "query", "run")
                sink._deliver_rows(rows, 0 if is_anew else number, identity)
            except (SinkError, SchemaError) as error:
                if Counter(map(model.canon, content(case, client))) != before:
                    return error.code, f"refused, and changed: {error}"
                if case.is_plain or not error.fix or error.code == "TARGET_UNAVAILABLE":
                    return error.code, f"refused: {error}"
                return error.code, None
            except Exception as error:
                return type(error).__name__, f"{rows.to_pylist()}: {error!r}"
            found = Counter(map(model.canon, content(case, client)))
            expected = after.content() + others
            if found != expected:
                lost, more = expected - found, found - expected
                return "delivered", f"{rows.to_pylist()}: lost {lost}, and found {more}"
            model = after
    finally:
        sink.session.close()
    return "delivered", None


def test_tables_of_others_have_all_rows_or_refuse(world: World) -> None:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    count, seed = cases(40, 1_500), 0
    while outcomes.total() < count:
        seed += 1
        with suppress(NotPossible):
            outcome, fault = run(world, seed)
            outcomes[outcome] += 1
            if fault is not None:
                case = draw_case(random.Random(seed), seed)
                wrong.append(
                    f"{seed} {case.form} {case.key} {case.settings} {case.statements}\n    {fault}"
                )
    print(f"{count} tables: {dict(outcomes.most_common())}")
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong[:20])
    assert outcomes["delivered"] > count // 3
