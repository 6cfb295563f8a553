"""Random nested values, and the one text of JSON that each of them has in every session."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from streamops import erasure, sinks
from streamops.errors import SchemaError
from streamops.sinks.core.net import digest
from streamops.sinks.sink import project_json
from streamops.spark.columns import column as quoted
from tests.borders import cases
from tests.settings import configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For each type: expressions of SQL, and their JSON.
LEAVES: dict[str, list[tuple[str, str]]] = {
    "timestamp": [
        ("TIMESTAMP'2026-01-31 23:59:59.123456Z'", '"2026-01-31T23:59:59.123456Z"'),
        ("TIMESTAMP'2026-03-29 01:30:00.000001Z'", '"2026-03-29T01:30:00.000001Z"'),
        ("TIMESTAMP'0001-01-01 00:00:00.000001Z'", '"0001-01-01T00:00:00.000001Z"'),
        ("TIMESTAMP'1582-10-04 00:00:00Z'", '"1582-10-04T00:00:00.000000Z"'),
        ("TIMESTAMP'9999-12-31 23:59:59.999999Z'", '"9999-12-31T23:59:59.999999Z"'),
    ],
    "timestamp_ntz": [
        ("TIMESTAMP_NTZ'2026-01-31 23:59:59.123456'", '"2026-01-31T23:59:59.123456"'),
        ("TIMESTAMP_NTZ'2026-03-29 02:30:00'", '"2026-03-29T02:30:00.000000"'),
        ("TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'", '"0001-01-01T00:00:00.000001"'),
    ],
    "date": [
        ("DATE'2026-01-31'", '"2026-01-31"'),
        ("DATE'0001-01-01'", '"0001-01-01"'),
        ("DATE'1582-10-04'", '"1582-10-04"'),
    ],
    "decimal(38,10)": [
        ("CAST('1234567890123456789012345678.0123456789' AS DECIMAL(38,10))", "1234567890123456789012345678.0123456789"),
        ("CAST('-0.5' AS DECIMAL(38,10))", "-0.5000000000"),
    ],
    "bigint": [("9007199254740993L", "9007199254740993"), ("-9223372036854775807L", "-9223372036854775807")],
    "tinyint": [("127Y", "127"), ("-128Y", "-128")],
    "boolean": [("true", "true"), ("false", "false")],
    "double": [
        ("CAST('NaN' AS DOUBLE)", '"NaN"'),
        ("CAST('-Infinity' AS DOUBLE)", '"-Infinity"'),
        ("0.1D", "0.1"),
        ("4.9E-324D", "4.9E-324"),
        ("1.7976931348623157E308D", "1.7976931348623157E308"),
    ],
    "float": [("CAST(0.1 AS FLOAT)", "0.1"), ("CAST(16777216 AS FLOAT)", "1.6777216E7")],
    "binary": [("X'00FF'", '"AP8="'), ("X''", '""')],
    "string": [
        ("'a'", '"a"'),
        ("'\\\\ \"q\" \\t \\n'", '"\\\\ \\"q\\" \\t \\n"'),
        ("'\\0 \U0001f600 \u00e4'", '"\\u0000 \U0001f600 \u00e4"'),
        ("''", '""'),
    ],
    "interval day to second": [
        ("INTERVAL '1 02:03:04.567891' DAY TO SECOND", "\"INTERVAL '1 02:03:04.567891' DAY TO SECOND\""),
        ("INTERVAL '-0 00:00:00.000001' DAY TO SECOND", "\"INTERVAL '-0 00:00:00.000001' DAY TO SECOND\""),
    ],
    "interval year to month": [("INTERVAL '1-2' YEAR TO MONTH", "\"INTERVAL '1-2' YEAR TO MONTH\"")],
}  # fmt: skip
SESSIONS = [
    {},
    {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"},
    {
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.jsonGenerator.ignoreNullFields": "true",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
    },
]

Value = tuple[str, str]


def nested(random: random.Random, depth: int) -> Value:
    """An array, a struct or a map, and its JSON."""
    container = random.choice(["array", "struct", "map"])
    if container == "array":
        items = [part(random, depth)]
        items = items * random.randint(1, 2)
        return f"array({', '.join(x for x, _ in items)})", f"[{','.join(y for _, y in items)}]"
    if container == "struct":
        parts = [part(random, depth) for _ in range(random.randint(1, 3))]
        names = ["a b", "\u00e4", "`x`"]
        fields = ", ".join(f"'{name}', {x}" for name, (x, _) in zip(names, parts, strict=False))
        pairs = zip(names, parts, strict=False)
        texts = ",".join(f"{json.dumps(n, ensure_ascii=False)}:{y}" for n, (_, y) in pairs)
        return f"named_struct({fields})", f"{{{texts}}}"
    dtype = random.choice([*LEAVES])
    keys = random.sample(LEAVES[dtype], random.randint(1, len(LEAVES[dtype])))
    item, text = part(random, depth)
    entries = ", ".join(f"{key}, {item}" for key, _ in keys)
    names = sorted((y if y[0] == '"' else f'"{y}"' for _, y in keys), key=_by_bytes)
    return f"map({entries})", f"{{{','.join(f'{name}:{text}' for name in names)}}}"


def _by_bytes(name: str) -> bytes:
    text: str = json.loads(name)
    return text.encode()


def part(random: random.Random, depth: int) -> Value:
    """A value inside of another one."""
    if depth and random.random() < 0.5:
        return nested(random, depth - 1)
    dtype = random.choice([*LEAVES])
    value, text = random.choice(LEAVES[dtype])
    return (f"IF(false, {value}, NULL)", "null") if random.random() < 0.1 else (value, text)


@pytest.mark.smoke
def test_nested_values_have_one_text_in_every_session(spark: SparkSession, tmp_path: Path) -> None:
    choice = random.Random(11)
    values = [nested(choice, 2) for _ in range(cases(quick=15, long=1_200))]
    for start in range(0, len(values), 40):
        some = values[start : start + 40]
        columns = [f"{value} AS v{i}" for i, (value, _) in enumerate(some)]
        frame = spark.range(1).selectExpr(*columns)
        digests = set()
        for settings in SESSIONS:
            with configured(spark, settings):
                rows = project_json(frame, keep_lists=False).collect()
            digests.add(digest(rows))
            for i, (value, text) in enumerate(some):
                assert rows.column(i).to_pylist() == [text], value
        assert len(digests) == 1
    sinks.sqlalchemy(f"sqlite:///{tmp_path}/database", "t").write(frame, query="q")
    with sqlite3.connect(tmp_path / "database") as client:
        assert client.execute("SELECT * FROM t").fetchall() == [tuple(y for _, y in some)]
    client.close()


@pytest.mark.spark
def test_the_remedy_for_a_nested_column_keeps_every_value(spark: SparkSession) -> None:
    time = "TIMESTAMP'2026-01-31 23:59:59.123456Z'"
    values = {
        "v": f"array({time})",
        "a `b`": f"named_struct('t', {time}, 'n', CAST(NULL AS INT))",
        "m": f"map(DATE'2026-01-31', {time})",
        "i": "INTERVAL '0.000001' SECOND",
    }
    frame = spark.range(1).select(
        F.lit("x").alias("k"), *(F.expr(of).alias(name) for name, of in values.items())
    )
    keys = spark.createDataFrame([("x", 1, bytes(32))], "subject string, version int, key binary")
    found = {}
    for name in values:
        shred = erasure.shred(name, subject="k", keys=keys)
        with pytest.raises(SchemaError) as error:
            frame.transform(shred)
        text = eval(error.value.fix.partition(": ")[2], {"F": F})
        frame = frame.withColumn(name, text)
        assert frame.transform(shred).schema[name].dataType.typeName() == "binary"
        found[name] = frame.select(quoted(name)).head()[0]
    instant = "2026-01-31T23:59:59.123456Z"
    assert found == {
        "v": f'["{instant}"]',
        "a `b`": f'{{"t":"{instant}","n":null}}',
        "m": f'[{{"key":"2026-01-31","value":"{instant}"}}]',
        "i": "INTERVAL '00.000001' SECOND",
    }
