"""The PostgreSQL sink on tables that others made: values are stored as they were sent, or refused."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import ChangeStreamError, SchemaError, SinkError, SpecError
from streamops.sinks.postgres import PostgresSink
from streamops.spark.identity import Identity
from tests.servers.postgres import programs, serving

pytestmark = pytest.mark.postgres

RUN = Identity("query", "run 1")
_NUMBERS = itertools.count()
NOCASE = "COLLATE nocase"
DEFERRED = "AFTER {} ON {} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"


class Shop:
    """A database with a table, a client, and the sinks that write to it."""

    def __init__(self, where: str, database: str = "postgres") -> None:
        self.folder = where.split()[0].partition("=")[2]
        self.database = database
        self.name = f"others_{next(_NUMBERS)}"
        self.client = psycopg.connect(
            f"host={self.folder} user=postgres dbname={database}", autocommit=True
        )

    def run(self, *statements: str) -> list[Any]:
        for statement in statements:
            cursor = self.client.execute(statement.format(t=self.name).encode())
        return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[Any]:
        return sorted(self.run("SELECT * FROM {t}"), key=repr)

    def sink(self, user: str = "postgres", options: str = "", **settings: Any) -> PostgresSink:
        text = options.replace(" ", "%20").replace("=", "%3D")
        url = f"postgresql://{user}@/{self.database}?host={self.folder}&options={text}"
        return sinks.postgres(url, **{"table": self.name, **settings})

    def refuses(self, code: str, sink: PostgresSink, batch: int = 0, **columns: Any) -> str:
        """Require a refusal with a remedy that changes nothing; return its message."""
        before = self.rows()
        with pytest.raises((SinkError, SchemaError)) as error:
            deliver(sink, batch, **columns)
        assert (error.value.code, self.rows()) == (code, before)
        assert error.value.fix
        return str(error.value)


def deliver(sink: PostgresSink, batch: int = 0, types: Any = None, **columns: Any) -> None:
    table = pa.table(columns)
    if types is not None:
        table = table.append_column("_change_type", pa.array(types))
    sink._deliver_rows(table, batch, RUN)


@pytest.fixture(scope="module")
def prepared(postgres: str) -> str:
    with psycopg.connect(postgres, autocommit=True) as client:
        client.execute(
            "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
            "CREATE DOMAIN currency AS varchar(3); CREATE DOMAIN euro AS currency; CREATE EXTENSION citext;"
            "CREATE TABLE notes (note text)"
        )
    return postgres


@pytest.fixture
def shop(prepared: str) -> Iterator[Shop]:
    made = Shop(prepared)
    yield made
    made.client.close()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("varchar(5)", "abcdefgh"), ("euro", "EURO"), ("char(4)", "a"), ("bpchar(2)", "abc")),
        *(
            ("jsonb", "1.0 "),
            ("jsonb", '{"a":1,"a":2}'),
            ("uuid", "A0EEBC999C0B4EF8BB6D6BB9BD380A11"),
        ),
        ("varchar(2)[]", ["abc"]),
        ("timestamp(0)", dt.datetime.fromisoformat("2026-01-01T00:00:00.5")),
        ("timestamptz(3)", dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)),
        ("interval(0)", dt.timedelta(seconds=1.5)),
        ("time(0)", dt.time.fromisoformat("00:00:00.7")),
    ],
)
def test_a_value_that_the_type_would_change_is_refused(shop: Shop, dtype: str, value: Any) -> None:
    shop.run(f"CREATE TABLE {{t}} (k {dtype})")
    assert "changes" not in shop.refuses("TARGET_TYPE", shop.sink(), k=[value])
    # Also where a shorter value would be found and deleted.
    shop.refuses("TARGET_TYPE", shop.sink(), k=[value], types=["delete"])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("varchar(5)", "abcde"), ("euro", "EUR"), ("char(2)", "DE"), ("jsonb", '{"a": 1}')),
        *(
            ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ("citext", "A"),
            ("varchar(2)[]", ["ab"]),
        ),
        ("timestamp(0)", dt.datetime.fromisoformat("2026-01-01")),
    ],
)
def test_a_value_that_fits_is_stored(shop: Shop, dtype: str, value: Any) -> None:
    shop.run(f"CREATE TABLE {{t}} (k {dtype})")
    deliver(shop.sink(), k=[value, value], types=["insert"] * 2)
    deliver(shop.sink(), 1, k=[value], types=["delete"])
    expected = value if dtype.startswith("timestamp") else shop.run("SELECT k::text FROM {t}")[0][0]
    assert len(shop.rows()) == 1
    assert expected in (value, "{ab}")


@pytest.mark.parametrize("relation", ["partitioned", "inherited"])
def test_a_multiset_deletes_the_right_rows_of_several_tables(shop: Shop, relation: str) -> None:
    if relation == "partitioned":
        shop.run("CREATE TABLE {t} (g bigint, v text) PARTITION BY LIST (g)")
        shop.run(
            *(f"CREATE TABLE {{t}}_{g} PARTITION OF {{t}} FOR VALUES IN ({g})" for g in (1, 2, 3))
        )
    else:
        shop.run("CREATE TABLE {t} (g bigint, v text)", "CREATE TABLE {t}_child () INHERITS ({t})")
        shop.run("INSERT INTO {t}_child VALUES (2, 'two'), (7, 'seven')")
    others = shop.rows()
    sink = shop.sink()
    deliver(sink, g=[1, 2, 3], v=["one", "two", "three"], types=["insert"] * 3)
    deliver(sink, 1, g=[2], v=["two"], types=["delete"])
    assert shop.rows() == sorted([(1, "one"), (3, "three"), *others], key=repr)


def test_rows_of_tables_that_inherit_are_of_others(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (g bigint)", "CREATE TABLE {t}_child () INHERITS ({t})")
    shop.run("INSERT INTO {t}_child VALUES (7)")
    with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
        deliver(shop.sink(), g=[7], types=["delete"])
    deliver(shop.sink(), g=[1])
    sink = shop.sink(new_checkpoint="replace")
    sink._deliver_rows(pa.table({"g": [2]}), 0, Identity("other", "run 2"))
    assert shop.rows() == [(2,), (7,)]


INDEXES = [
    "CREATE UNIQUE INDEX ON {t} (k) WHERE n > 0",
    "CREATE UNIQUE INDEX ON {t} (lower(k))",
    "CREATE UNIQUE INDEX ON {t} (k, n)",
    "CREATE UNIQUE INDEX ON {t} (k, (n + 1))",
    "CREATE UNIQUE INDEX ON {t} (k COLLATE nocase)",
    "CREATE UNIQUE INDEX ON {t} (k); CREATE UNIQUE INDEX ON {t} (k COLLATE nocase)",
    "ALTER TABLE {t} ADD UNIQUE (k) DEFERRABLE",
    "ALTER TABLE {t} ADD PRIMARY KEY (k) DEFERRABLE INITIALLY DEFERRED",
    "CREATE INDEX ON {t} (k)",
    "CREATE UNIQUE INDEX {t}_i ON {t} (k); UPDATE pg_index SET indisvalid = false "
    "WHERE indexrelid = '{t}_i'::regclass",
]


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_that_does_not_make_the_key_unique(shop: Shop, index: str) -> None:
    shop.run("CREATE TABLE {t} (k text, n bigint)", *index.split("; "))
    shop.refuses("TARGET_KEY", shop.sink(key="k"), k=["a"], n=[1])


def test_an_index_with_further_columns_is_unique_on_its_key(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k text, n bigint)", "CREATE UNIQUE INDEX ON {t} (k) INCLUDE (n)")
    for batch in range(2):
        deliver(shop.sink(key="k"), batch, k=["a"], n=[batch])
    assert shop.rows() == [("a", 1)]
    shop.refuses("TARGET_KEY", shop.sink(key=["k", "n"], name="both"), k=["a"], n=[1])


def test_null_keys_need_an_index_in_which_nulls_are_equal(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k text, n bigint)", "CREATE UNIQUE INDEX ON {t} (k)")
    nobody = pa.array([None], pa.string())
    sink = shop.sink(key="k")
    deliver(sink, k=["a"], n=[0])
    assert "NULLS NOT DISTINCT" in shop.refuses("TARGET_KEY", sink, 1, k=nobody, n=[1])
    shop.run("CREATE UNIQUE INDEX ON {t} (k) NULLS NOT DISTINCT")
    for batch in (1, 2):
        deliver(sink, batch, k=nobody, n=[batch])
    assert shop.rows() == [("a", 0), (None, 2)]


@pytest.mark.parametrize(
    "dtype", ["jsonb", "citext", f"text {NOCASE}", f"varchar {NOCASE}", "bpchar"]
)
def test_a_key_whose_type_takes_different_keys_for_equal_ones(shop: Shop, dtype: str) -> None:
    shop.run(f"CREATE TABLE {{t}} (k {dtype} PRIMARY KEY, n bigint)")
    shop.refuses("TARGET_KEY", shop.sink(key="k"), k=["1"], n=[1])


@pytest.mark.parametrize(
    "dtype", ["citext", f"text {NOCASE}", f"text[] {NOCASE}", "json", "bpchar"]
)
def test_values_that_the_type_takes_for_equal_are_distinguished(shop: Shop, dtype: str) -> None:
    first, second = ("[1]", "[1] ") if dtype in {"json", "bpchar"} else ("A", "a")
    values: list[Any] = [[first], [second]] if "[]" in dtype else [first, second]
    shop.run(f"CREATE TABLE {{t}} (k {dtype}, n bigint)")
    sink = shop.sink()
    deliver(sink, k=values, n=[1, 1], types=["insert"] * 2)
    deliver(sink, 1, k=values[1:], n=[1], types=["delete"])
    assert shop.run("SELECT concat(k) FROM {t}") == [("{A}" if "[]" in dtype else first,)]


def test_a_null_and_an_empty_text_are_distinguished(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k citext)")
    sink = shop.sink()
    deliver(sink, k=["", None], types=["insert"] * 2)
    deliver(sink, 1, k=pa.array([None], pa.string()), types=["delete"])
    assert shop.rows() == [("",)]


@pytest.mark.parametrize("path", ["public, pg_temp", "pg_temp, public", "others, public", "public"])
def test_the_staging_table_is_not_searched_for(shop: Shop, path: str) -> None:
    shop.run(
        "CREATE SCHEMA IF NOT EXISTS others",
        "CREATE TABLE IF NOT EXISTS others.streamops_staging (n bigint)",
    )
    shop.run(
        "CREATE TABLE IF NOT EXISTS public.streamops_staging (n bigint)",
        "DELETE FROM streamops_staging",
    )
    shop.run("INSERT INTO public.streamops_staging VALUES (666)")
    options = f"-c search_path={path.replace(' ', '')}"
    sink = shop.sink(options=options)
    for batch in range(2):
        deliver(sink, batch, n=[batch])
    schema = "others" if path.startswith("others") else "public"
    assert shop.run(f"SELECT * FROM {schema}.{{t}}") == [(0,), (1,)]
    assert shop.run("SELECT * FROM public.streamops_staging") == [(666,)]
    shop.run("CREATE TABLE IF NOT EXISTS third (n bigint)")
    deliver(shop.sink(options=options, table="streamops_staging", schema="others"), n=[1])
    assert shop.run("SELECT * FROM others.streamops_staging") == [(1,)]
    shop.run("DROP SCHEMA others CASCADE")


def test_a_search_path_without_schemas_is_refused(shop: Shop) -> None:
    sink = shop.sink(options="-c search_path=nowhere")
    with pytest.raises(SinkError, match="TARGET_MISSING"):
        deliver(sink, n=[1])


def test_a_type_that_the_search_path_has_before_that_of_postgresql(shop: Shop) -> None:
    shop.run("CREATE SCHEMA {t}", "CREATE DOMAIN {t}.text AS varchar(3)")
    sink = shop.sink(options=f"-c search_path={shop.name},pg_catalog")
    with pytest.raises(SinkError, match="value too long"):
        deliver(sink, k=["abcd"])
    assert shop.run("SELECT to_regclass('{t}.{t}')") == [(None,)]


def test_columns_may_have_the_names_that_the_statements_use(shop: Shop) -> None:
    sink = shop.sink(key=["t", "s"])
    names: dict[str, Any] = {
        "t": [1],
        "s": [2],
        "n": [3],
        "excluded": [4],
        "stored": [5],
        "revision": [0],
    }
    deliver(sink, **names, types=["insert"])
    with pytest.raises(ChangeStreamError, match="INSERTED_TWICE"):
        deliver(sink, 1, **names, types=["insert"])
    deliver(sink, 1, **names, types=["delete"])
    assert shop.rows() == []


def test_names_that_postgresql_cuts_are_refused(shop: Shop) -> None:
    with pytest.raises(SpecError, match="NAME_TOO_LONG"):
        shop.sink(table="t" * 64)
    with pytest.raises(SpecError, match="NAME_TOO_LONG"):
        shop.sink(schema="é" * 32)
    shop.run("CREATE TABLE {t} (n bigint)")
    long: dict[str, Any] = {"n" * 64: [1]}
    assert "64 bytes" in shop.refuses("NAME_TOO_LONG", shop.sink(), 0, **long)


def test_a_database_with_another_encoding(prepared: str, shop: Shop) -> None:
    shop.run(
        "CREATE DATABASE western ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    western = Shop(prepared, "western")
    sink = western.sink()
    deliver(sink, k=["é"])
    western.refuses("TARGET_REFUSED", sink, 1, k=["日本"])
    assert western.run("SELECT k, octet_length(k) FROM {t}") == [("é", 1)]
    western.client.close()


RELATIONS = [
    "CREATE UNLOGGED TABLE {t} (n bigint)",
    "CREATE TABLE {t} (n bigint) PARTITION BY LIST (n); CREATE UNLOGGED TABLE {t}_1 PARTITION OF {t} DEFAULT",
    "CREATE TABLE {t}_base (n bigint); CREATE VIEW {t} AS SELECT * FROM {t}_base WHERE n < 0",
    "CREATE TABLE {t}_base (n bigint); CREATE MATERIALIZED VIEW {t} AS SELECT * FROM {t}_base",
    "CREATE TABLE {t} (n bigint); CREATE RULE r AS ON INSERT TO {t} DO INSTEAD NOTHING",
    "CREATE TABLE {t} (n bigint); CREATE RULE r AS ON INSERT TO {t} DO ALSO INSERT INTO notes VALUES ('x')",
    "CREATE EXTENSION IF NOT EXISTS postgres_fdw; CREATE SERVER IF NOT EXISTS far FOREIGN DATA WRAPPER postgres_fdw"
    "; CREATE TABLE {t} (n bigint) PARTITION BY LIST (n)"
    "; CREATE FOREIGN TABLE {t}_1 PARTITION OF {t} DEFAULT SERVER far",
]


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_target_that_cannot_keep_each_row_once(shop: Shop, relation: str) -> None:
    shop.run(*relation.split("; "))
    with pytest.raises(SinkError) as error:
        deliver(shop.sink(), n=[1])
    assert error.value.code == "TARGET_KIND"
    assert error.value.fix


def test_row_security_that_hides_rows(shop: Shop) -> None:
    deliver(shop.sink(table="another"), n=[1])  # which makes the ledger
    shop.run(
        *(
            "CREATE TABLE {t} (n bigint)",
            "CREATE ROLE {t} LOGIN",
            "GRANT ALL ON SCHEMA public TO {t}",
        ),
        *(
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO {t}",
            "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
        ),
        "CREATE POLICY p ON {t} USING (n > 0) WITH CHECK (true)",
    )
    assert "BYPASSRLS" in shop.refuses("TARGET_KIND", shop.sink(shop.name), n=[-1])
    shop.run("ALTER ROLE {t} BYPASSRLS")
    deliver(shop.sink(shop.name), n=[-1])
    assert shop.rows() == [(-1,)]


@pytest.mark.parametrize("how", ["UNLOGGED", "view"])
def test_a_ledger_that_is_less_durable_than_the_rows(shop: Shop, how: str) -> None:
    shop.run("CREATE SCHEMA {t}")
    entries = (
        "sink text PRIMARY KEY, query text, generation bigint, run text, batch bigint, rows bigint"
    )
    made = f"CREATE UNLOGGED TABLE {{t}}.streamops_ledger ({entries})"
    shop.run(
        made if how == "UNLOGGED" else "CREATE VIEW {t}.streamops_ledger AS SELECT 'x' AS sink"
    )
    with pytest.raises(SinkError, match="TARGET_KIND"):
        deliver(shop.sink(schema=shop.name), n=[1])
    assert shop.run("SELECT to_regclass('{t}.{t}')") == [(None,)]


FUNCTIONS = {
    "skip": "RETURN NULL;",
    "spoil": "NEW.v := 'spoiled'; RETURN NEW;",
    "note": "NEW.at := 'today'; INSERT INTO notes VALUES ('x'); RETURN NEW;",
    "later": "UPDATE {t} SET v = 'spoiled' WHERE v <> 'spoiled'; RETURN NULL;",
    "remove": "DELETE FROM {t}; RETURN NULL;",
    "again": "IF pg_trigger_depth() = 1 THEN INSERT INTO {t} VALUES (NEW.k + 100, NEW.v); END IF; RETURN NULL;",
}
TRIGGERS = [
    *(
        ("skip", "TRIGGER x BEFORE INSERT ON {t} FOR EACH ROW"),
        ("spoil", "TRIGGER x BEFORE INSERT ON {t} FOR EACH ROW"),
    ),
    *(
        ("skip", "TRIGGER x BEFORE UPDATE ON {t} FOR EACH ROW"),
        ("spoil", "TRIGGER x BEFORE UPDATE ON {t} FOR EACH ROW"),
    ),
    *(("later", "TRIGGER x AFTER INSERT ON {t}"), ("remove", "TRIGGER x AFTER INSERT ON {t}")),
    ("again", "TRIGGER x AFTER INSERT ON {t} FOR EACH ROW"),
    (
        "remove",
        "CONSTRAINT TRIGGER x AFTER INSERT ON {t} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW",
    ),
]


def make_trigger(shop: Shop, function: str, trigger: str) -> None:
    body = FUNCTIONS[function]
    shop.run(
        f"CREATE FUNCTION {{t}}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
        f"CREATE {trigger} EXECUTE FUNCTION {{t}}()",
    )


@pytest.mark.parametrize("form", ["append", "upsert", "revisions", "changes", "multiset"])
@pytest.mark.parametrize(("function", "trigger"), TRIGGERS)
def test_a_trigger_that_changes_what_is_written(
    shop: Shop, form: str, function: str, trigger: str
) -> None:
    shop.run("CREATE TABLE {t} (k bigint PRIMARY KEY, v text, revision bigint, at text)")
    keyed: dict[str, Any] = {} if form in {"append", "multiset"} else {"key": "k"}
    is_update = "UPDATE" in trigger
    if is_update and not keyed:
        pytest.skip("such rows are never updated")
    sink = shop.sink(**keyed, sequence="revision" if form == "changes" else None)
    more: dict[str, Any] = {"types": ["insert"] * 2} if form in {"changes", "multiset"} else {}
    if form in {"revisions", "changes"}:
        more["revision"] = [0, 0]
    if is_update:
        deliver(sink, k=[1, 2], v=["a", "b"], **more)
    make_trigger(shop, function, trigger)
    if form == "changes" and is_update:
        more = {"types": ["update_preimage", "update_postimage"], "revision": [0, 1]}
        shop.refuses("TARGET_TRIGGER", sink, 1, k=[1, 1], v=["a", "c"], **more)
        return
    if form == "revisions":
        more["revision"] = [1, 1]
    shop.refuses("TARGET_TRIGGER", sink, int(is_update), k=[1, 2], v=["c", "d"], **more)


def test_a_trigger_that_skips_deletions(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k bigint PRIMARY KEY, v text, revision bigint)")
    make_trigger(shop, "skip", "TRIGGER x BEFORE DELETE ON {t} FOR EACH ROW")
    for form, key in (("changes", "k"), ("multiset", None)):
        sink = shop.sink(key=key, name=form)
        deliver(sink, k=[1], v=["a"], revision=[0], types=["insert"])
        shop.refuses("TARGET_TRIGGER", sink, 1, k=[1], v=["a"], revision=[0], types=["delete"])
        shop.run(
            "ALTER TABLE {t} DISABLE TRIGGER x",
            "DELETE FROM {t}",
            "ALTER TABLE {t} ENABLE TRIGGER x",
        )


def test_a_trigger_that_keeps_rows_that_are_replaced(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k bigint)")
    make_trigger(shop, "skip", "TRIGGER x BEFORE DELETE ON {t} FOR EACH ROW")
    deliver(shop.sink(), k=[1])
    sink = shop.sink(new_checkpoint="replace")
    with pytest.raises(SinkError, match="TARGET_TRIGGER"):
        sink._deliver_rows(pa.table({"k": [2]}), 0, Identity("other", "run 2"))
    assert shop.rows() == [(1,)]


def test_triggers_that_set_columns_of_their_own(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k double precision PRIMARY KEY, v text, revision bigint, at text)")
    make_trigger(shop, "note", "TRIGGER x BEFORE INSERT OR UPDATE ON {t} FOR EACH ROW")
    sink = shop.sink(key="k")
    deliver(sink, k=[0.0, 2.0], v=["a", "b"], revision=[0, 5])
    deliver(sink, 1, k=[-0.0, 2.0, 3.0], v=["c", "older", None], revision=[1, 4, 0])
    expected = [(0.0, "c", 1, "today"), (2.0, "b", 5, "today"), (3.0, None, 0, "today")]
    assert shop.rows() == expected


def test_a_foreign_key_that_cascades_to_rows_of_the_sink(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE {t} (k bigint PRIMARY KEY, of bigint REFERENCES {t} ON DELETE CASCADE, revision bigint)"
    )
    sink = shop.sink(key="k")
    deliver(sink, k=[1, 2], of=[None, 1], revision=[0, 0], types=["insert"] * 2)
    none = pa.array([None], pa.int64())
    shop.refuses("TARGET_TRIGGER", sink, 1, k=[1], of=none, revision=[0], types=["delete"])
    deliver(sink, 1, k=[1, 2], of=[None, 1], revision=[0, 0], types=["delete"] * 2)
    assert shop.rows() == []


@pytest.mark.parametrize("how", ["GENERATED ALWAYS AS IDENTITY", "GENERATED ALWAYS AS (1) STORED"])
def test_columns_that_the_table_computes_take_no_values(shop: Shop, how: str) -> None:
    shop.run(f"CREATE TABLE {{t}} (k bigint {how}, v text)")
    shop.refuses("TARGET_TYPE", shop.sink(), k=[5], v=["a"])
    deliver(shop.sink(), v=["a"])
    assert shop.rows() == [(1, "a")]


def test_a_stored_row_without_a_revision_is_older(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k bigint PRIMARY KEY, v text)", "INSERT INTO {t} VALUES (1, 'a')")
    deliver(shop.sink(key="k", columns="add"), k=[1], v=["b"], revision=[0])
    assert shop.rows() == [(1, "b", 0)]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.timestamp("ns"), 1),
        (pa.time64("ns"), 1),
        (pa.list_(pa.timestamp("ns", "UTC")), [1]),
        (pa.timestamp("us", "UTC"), 946_684_800_000_000 - 2**63),  # '-infinity' in PostgreSQL
        (pa.date32(), 10_957 - 2**31),
    ],
    ids=str,
)
def test_times_that_postgresql_does_not_have(shop: Shop, dtype: pa.DataType, value: Any) -> None:
    sink = shop.sink()
    items = dtype.value_type if pa.types.is_list(dtype) else dtype
    plain = pa.array([1], pa.int32() if items == pa.date32() else pa.int64())
    number = value[0] if isinstance(value, list) else value
    column = pa.array([number], plain.type).cast(items)
    if pa.types.is_list(dtype):
        column = pa.ListArray.from_arrays([0, 1], column)
    with pytest.raises(SinkError, match="TARGET_TYPE"):
        deliver(sink, t=column)
    assert shop.run("SELECT to_regclass('{t}')") == [(None,)]


def test_a_crash_of_the_server_does_not_empty_the_table() -> None:
    installed = programs()
    if installed is None:
        pytest.skip("PostgreSQL is not installed")
    with serving(installed, fsync="on") as server:
        with psycopg.connect(server.where, autocommit=True) as client:
            client.execute("CREATE UNLOGGED TABLE u (n bigint)")
        with pytest.raises(SinkError) as error:
            deliver(sinks.postgres(server.url, "u"), n=[0])
        with psycopg.connect(server.where, autocommit=True) as client:
            client.execute(error.value.fix.partition(",")[0].encode())
        sink = sinks.postgres(server.url, "u")
        deliver(sink, n=[0])
        sink.session.close()
        server.kill(everything=True)
        server.start()
        deliver(sinks.postgres(server.url, "u"), 1, n=[1])
        with psycopg.connect(server.where) as client:
            assert client.execute("SELECT n FROM u ORDER BY n").fetchall() == [(0,), (1,)]


def test_operators_are_those_of_postgresql(shop: Shop) -> None:
    """An operator in the search path that fits the types better would be taken instead."""
    shop.run(
        "CREATE SCHEMA {t}_own",
        "CREATE FUNCTION {t}_own.alike(varchar, varchar) RETURNS boolean LANGUAGE sql "
        "AS 'SELECT lower($1::text) OPERATOR(pg_catalog.=) lower($2::text)'",
        "CREATE OPERATOR {t}_own.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = {t}_own.alike)",
        "CREATE FUNCTION {t}_own.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR {t}_own.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = {t}_own.never)",
        "CREATE TABLE {t} (k varchar(9), v bigint)",
    )
    path = f"-c search_path={shop.name}_own,pg_catalog,public"
    deliver(shop.sink(options=path, schema="public"), k=["A", "a"], v=[1, 1], types=["insert"] * 2)
    deliver(shop.sink(options=path, schema="public"), 1, k=["a"], v=[1], types=["delete"])
    assert shop.rows() == [("A", 1)]
    shop.run("DROP TABLE {t}", "CREATE TABLE {t} (k bigint PRIMARY KEY, revision bigint)")
    upsert = shop.sink(options=path, schema="public", key="k", name="upsert")
    deliver(upsert, k=[1], revision=[5])
    deliver(upsert, 1, k=[1], revision=[3])
    assert shop.rows() == [(1, 5)]


def test_a_foreign_key_that_changes_other_rows_is_noticed(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE {t} (k bigint PRIMARY KEY, name text UNIQUE, "
        "parent text REFERENCES {t} (name) ON UPDATE CASCADE)",
        "INSERT INTO {t} VALUES (1, 'x', NULL)",
    )
    parents = pa.array([None, "x"], pa.string())
    shop.refuses("TARGET_TRIGGER", shop.sink(key="k"), k=[1, 2], name=["z", "y"], parent=parents)


def test_integers_and_decimals_that_fit(shop: Shop) -> None:
    shop.run("CREATE TABLE {t} (k numeric(20,0), v numeric(19,0), w numeric(18,0))")
    deliver(shop.sink(), k=[2**63 - 1], v=[-(2**63)])
    assert [tuple(map(int, row[:2])) for row in shop.rows()] == [(2**63 - 1, -(2**63))]
    shop.refuses("TARGET_TYPE", shop.sink(), 1, w=[1])


def test_a_user_who_may_only_write_rows(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE {t} (k bigint PRIMARY KEY, v text, by text NOT NULL)",
        "CREATE FUNCTION {t}_by() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN NEW.by := current_user; RETURN NEW; END'",
        "CREATE TRIGGER own BEFORE INSERT ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_by()",
        "CREATE ROLE {t}_writer LOGIN",
        "CREATE SCHEMA {t}_jobs",
        "ALTER TABLE {t} SET SCHEMA {t}_jobs",
        "GRANT USAGE ON SCHEMA {t}_jobs TO {t}_writer",
        "GRANT SELECT, INSERT, UPDATE ON {t}_jobs.{t} TO {t}_writer",
    )
    made = {"schema": f"{shop.name}_jobs", "key": "k"}
    sink = shop.sink(user=f"{shop.name}_writer", **made)
    with pytest.raises(SinkError, match="CREATE"):
        sink.check()
    deliver(shop.sink(name="another", **made), k=[9], v=["creates the ledger"])
    shop.run("GRANT SELECT, INSERT ON {t}_jobs.streamops_ledger TO {t}_writer")
    with pytest.raises(SinkError, match="UPDATE on"):
        sink.check()
    shop.run("GRANT UPDATE ON {t}_jobs.streamops_ledger TO {t}_writer")
    sink.check()
    deliver(sink, k=[1], v=["a"])
    assert shop.run("SELECT k, v, by FROM {t}_jobs.{t} WHERE k = 1") == [
        (1, "a", f"{shop.name}_writer")
    ]
