"""Every form of a value in JSON is read exactly, or its record is rejected, in every session."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates, changes, sources, time, windows
from streamops.errors import SchemaError
from tests.borders import IS_LONG, cases
from tests.borders.lexical_forms import NULL, REJECTED, TYPES, canonical, expected, forms, texts

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

ZONE = "America/New_York"
SESSIONS: list[dict[str, str]] = [
    {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.legacy.json.allowEmptyString.enabled": "true",
        "spark.sql.json.enablePartialResults": "false",
    },
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "true",
        "spark.sql.json.enableExactStringParsing": "false",
        "spark.sql.variant.allowDuplicateKeys": "true",
    },
    {},
]
# How a value is nested in a column, in JSON and as a type, and where it is.
POSITIONS: dict[str, tuple[str, str, str]] = {
    "flat": ("%s", "%s", "%s"),
    "array": ("[%s]", "array<%s>", "get(%s, 0)"),
    "map": ('{"k":%s}', "map<string,%s>", "try_element_at(%s, 'k')"),
    "struct": ('{"x":%s}', "struct<x:%s>", "%s.x"),
    "deep": (
        '[{"x":{"k":%s}}]',
        "array<struct<x:map<string,%s>>>",
        "try_element_at(get(%s, 0).x, 'k')",
    ),
}
KAFKA = "value binary, key binary, topic string, partition int, offset long, timestamp timestamp"
Case = tuple[str, str, str]  # type, position, form

# Whole records, and the value of the column `a`, a string.
RECORDS: list[tuple[str, str | None]] = [
    ('{"a":"x"}', "x"),
    (' \t\r\n{"a":"x"}\n', "x"),
    ('{"a":"x","b":[{"c":[1,2.50,true,null,"y"]}]}', "x"),
    ('{"\\u0061":"x"}', "x"),
    ('{"a":"\\ud83d\\ude00"}', "\U0001f600"),
    ('{"a":"\\\\ud800"}', "\\ud800"),
    ('{"a":"\\u0000"}', "\0"),
    ('{"a":' + "7" * 5_000 + "}", "7" * 5_000),
    ('{"a":"' + "\\n" * 50_000 + '"}', "\n" * 50_000),
    ('{"a":"x","b":[' + ",".join(['"y",1'] * 50_000) + "]}", "x"),
    ('{"a":' + "[" * 200 + "]" * 200 + "}", "[" * 200 + "]" * 200),
    ('{"A":"x"}', NULL),
    ('{" a":"x"}', NULL),
    ("{'a':'x'}", None),
    ('{a:"x"}', None),
    ('{"a":"x",}', None),
    ('{"a":"x"}//c', None),
    ('{"a":/*c*/"x"}', None),
    ('{"a":"x"}#c', None),
    ('\ufeff{"a":"x"}', None),
    ('{"a":"x","a":"y"}', None),
    ('{"a":"x","b":1,"b":1}', None),
    ('{"a":"x"} {"a":"y"}', None),
    ('{"a":"x"},{"a":"y"}', None),
    ('{"a":"x"}]', None),
    ('{"a":"x"}],"b":[{"a":"y"}', None),
    ('[{"a":"x"}]', None),
    ('"a"', None),
    ("5", None),
    ("true", None),
    ("", None),
    (" ", None),
    ("{", None),
    ('{"a":"x"', None),
    ('{"a":"x', None),
    ('{"a":"\n"}', None),
    ('{"a":"\\x"}', None),
    ('{"a":"\\ud800"}', None),
    ('{"a":"\\ude00\\ud83d"}', None),
    ('{"a":"\u0081\u0090#1"}', None),
    *(
        (f'{{"a":"x","b":{number}}}', None)
        for number in ("01", "+1", "1.", ".5", "-", "0x1", "1e", "--1")
    ),
    *(
        (f'{{"a":"x","b":{word}}}', None)
        for word in ("NaN", "Infinity", "-Infinity", "True", "nul", "x")
    ),
]


@pytest.fixture(params=range(cases(1, len(SESSIONS))))
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    other = spark.newSession()
    settings = {"spark.sql.session.timeZone": ZONE, "spark.sql.timeType.enabled": "true"}
    for name, value in {**settings, **SESSIONS[request.param]}.items():
        other.conf.set(name, value)
    yield other
    spark.newSession()  # the active session is not one with such settings
    SparkSession._instantiatedSession = spark


def batches(seed: int) -> Iterator[list[Case]]:
    """All forms of each type at all positions; or a few of all types."""
    everything = [(t, position, form) for t in TYPES for position in POSITIONS for form in forms()]
    if IS_LONG:
        for type_name in TYPES:
            yield [case for case in everything if case[0] == type_name]
    else:
        source = random.Random(seed)
        positions = {t: ("flat", source.choice([*POSITIONS])) for t in TYPES}
        few = [case for case in everything if case[1] in positions[case[0]]]
        fitting = [case for case in few if expected(case[0], case[2], ZONE) != REJECTED]
        yield [*source.sample(few, 600), *source.sample(fitting, 300)]


def read(session: SparkSession, reader: str, batch: list[Case]) -> list[str]:
    columns = {pair: f"c{n}" for n, pair in enumerate(dict.fromkeys((t, p) for t, p, _ in batch))}
    fields = [f"{name} {POSITIONS[p][1] % t}" for (t, p), name in columns.items()]
    members = [f'"{columns[t, p]}":{POSITIONS[p][0] % form}' for t, p, form in batch]
    if reader == "kafka_events":
        rows = [
            (bytearray(f"{{{m}}}".encode()), None, "t", 0, n, None) for n, m in enumerate(members)
        ]
        read = sources.kafka_events(", ".join(fields))
        frame = session.createDataFrame(
            rows, KAFKA.replace("stamp timestamp", "stamp timestamp_ltz")
        )
        frame = frame.transform(read).withColumnRenamed("_offset", "n")
    else:
        made = [(f'{{"op":"c","after":{{"id":1,{m}}}}}', n) for n, m in enumerate(members)]
        read = changes.from_debezium(
            ", ".join(["id int", *fields]), key="id", sequence=["n"], keep=["n"]
        )
        frame = session.createDataFrame(made, "value string, n int").transform(read)
    values = [render(F.expr(POSITIONS[p][2] % name), t) for (t, p), name in columns.items()]
    result = frame.select("n", F.col("rejected").isNotNull(), F.coalesce(*values, F.lit(None)))
    found = {n: REJECTED if rejected else text for n, rejected, text in result.collect()}
    return [
        REJECTED if found[n] == REJECTED else canonical(case[0], found[n])
        for n, case in enumerate(batch)
    ]


def render(value: Column, type_name: str) -> Column:
    if type_name == "timestamp":
        value = F.unix_micros(value)
    if type_name == "date":
        value = F.unix_date(value)
    return F.hex(value) if type_name == "binary" else value.cast("string")


@pytest.mark.parametrize("reader", ["kafka_events", "from_debezium"])
def test_a_value_is_the_one_sent_or_its_record_is_rejected(
    session: SparkSession, reader: str
) -> None:
    wrong: list[Any] = []
    for batch in batches(seed=len(reader)):
        for case, got in zip(batch, read(session, reader, batch), strict=True):
            is_coded = reader == "from_debezium"
            wanted = expected(case[0], case[2], ZONE, is_coded=is_coded)
            if got != wanted and not (wanted == "any" and got != REJECTED):
                wrong.append((*case, wanted, got))
    assert not wrong, (len(wrong), wrong[:20])


def test_a_record_is_exactly_one_object_of_json(session: SparkSession) -> None:
    rows = [(bytearray(t.encode()), None, "t", 0, n, None) for n, (t, _) in enumerate(RECORDS)]
    frame = session.createDataFrame(rows, KAFKA.replace("stamp timestamp", "stamp timestamp_ltz"))
    for schema in ("a string", "a string, z struct<y:int>"):
        result = frame.transform(sources.kafka_events(schema)).orderBy("_offset")
        for (text, wanted), row in zip(
            RECORDS, result.select("a", "rejected.reason").collect(), strict=True
        ):
            got = NULL if row["a"] is None else row["a"]
            assert row["reason"] == (None if wanted else "unparsable_json"), text[:100]
            assert got == (wanted or NULL), text[:100]


def test_a_text_is_an_event_time_or_unusable(session: SparkSession) -> None:
    given = texts()
    frame = session.createDataFrame(list(enumerate(given)), "n int, ts string")
    guarded = frame.transform(time.guard("ts")).select("n", F.unix_micros("ts"), "guarded.reason")
    for n, micros, reason in guarded.collect():
        wanted = expected("timestamp", json.dumps(given[n].strip(" ")), ZONE)
        assert (reason == "unparsable_time") == (wanted == REJECTED), (given[n], wanted, reason)
        assert micros is None or wanted in (str(micros), "any"), given[n]


def test_the_fix_for_a_wrong_type_works(session: SparkSession) -> None:
    values = {"date": "2026-01-01", "timestamp_ntz": "2026-01-01", "string": "2026-01-01"}
    for type_name, value in {**values, "bigint": "1", "double": "1", "decimal(9,0)": "1"}.items():
        frame = session.sql(f"SELECT CAST('{value}' AS {type_name}) AS ts")
        counting = windows.tumbling("1 day", time="ts", agg={"n": aggregates.count()})
        with pytest.raises(SchemaError, match="COLUMN_TYPE") as caught:
            frame.transform(counting)
        fix = caught.value.fix.partition(" for ")[0].partition(", which")[0]
        eval(fix, {"df": frame, "F": F}).transform(counting)


def test_a_timestamp_of_a_schema_is_an_instant(session: SparkSession) -> None:
    types = "a timestamp, timestamp timestamp, b array<struct<`timestamp_ntz`:timestamp, c:timestamp_ntz>>"
    row = session.createDataFrame([], "value string").transform(
        changes.from_debezium(types, key="a")
    )
    assert [field.dataType.simpleString() for field in row.schema.fields[:3]] == [
        "timestamp",
        "timestamp",
        "array<struct<timestamp_ntz:timestamp,c:timestamp_ntz>>",
    ]
