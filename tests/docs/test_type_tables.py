"""Every cell of a table of types in the documentation is tried: a new row, or another text, without a trial fails."""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamops import aggregates, process, sources, windows
from streamops.errors import StreamopsError
from streamops.sinks.sink import project_json
from streamops.sources.registry import decoded_types
from streamops.testing import Replay, at, replay
from tests.docs.test_readme import ROOT
from tests.settings import configured

ZONED = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
NAIVE = dt.datetime(2026, 1, 31)  # noqa: DTZ001
TYPE_NAMES = re.compile(
    r"\b(tinyint|smallint|int|bigint|float|double|decimal|string|binary|boolean|date|time|timestamp"
    r"|timestamp_ntz|interval|array|map|struct|variant|long|int64)\b"
)
TYPE_HEADERS = {"type", "type accepted", "takes", "JSON", "Avro", "in the schema"}
# Tables of types that other tests try, and those whose types are names of metrics or of stored bytes.
ELSEWHERE = {
    ("changes.md", "Debezium sends"): "tests/changes/test_debezium_spark.py",
    ("observe.md", "column"): "tests/observe/test_accounts_spark.py",
    ("operations.md", "metric"): "tests/docs/test_readme.py",
    ("time.md", "column of the result"): "tests/time/test_clock_spark.py",
    ("time.md", "field of `guarded`"): "tests/time/test_guard_spark.py",
    ("time.md", "metric"): "tests/docs/test_readme.py",
    ("state-formats.md", "column"): "tests/golden",
    ("state-formats.md", "bytes"): "tests/golden",
    ("state-formats.md", "field of a node"): "tests/golden",
}


@dataclass(frozen=True)
class Table:
    page: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> dict[str, str]:
        """The cells of a column, by the first cell of their row."""
        position = self.header.index(name)
        return {row[0]: row[position] for row in self.rows}


def tables() -> Iterator[Table]:
    """The tables that list types."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^\|.*\n\|[-| ]+\|\n(?:\|.*\n)+", path.read_text(), re.MULTILINE):
            lines = [
                tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
                for line in block.splitlines()
            ]
            header, _, *rows = lines
            found = Table(path.name, header, tuple(rows))
            named = sum(any(TYPE_NAMES.search(cell) for cell in row) for row in rows)
            if named >= 2 and TYPE_HEADERS & set(header):
                yield found


def table(page: str, *header: str) -> Table:
    [found] = [t for t in tables() if t.page == page and t.header[: len(header)] == header]
    return found


TRIALS_OF = {
    ("aggregates.md", "result"),
    ("process.md", "type"),
    ("sinks.md", "value"),
    ("sources.md", "type"),
    ("sources.md", "column"),
    ("windows.md", "field of `late`"),
    ("windows.md", "function"),
}


def test_every_table_of_types_has_trials() -> None:
    found = {(t.page, t.header[0]) for t in tables()}
    assert found == {*TRIALS_OF, *ELSEWHERE}
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())


EVENT = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("p", pa.decimal128(6, 2)),
        ("s", pa.string()),
        ("a", pa.list_(pa.date32())),
    ]
)
TIMED: dict[str, Any] = {"time": "ts", "delay": "0 seconds", "by": "k"}


def types_of(operator: Any, schema: pa.Schema = EVENT) -> dict[str, str]:
    """The types of the result, by the names of its columns."""
    output = Replay(operator, schema)._stages[-1].output
    return {part.name: part.dataType.simpleString() for part in output.schema}


agg = aggregates
AGGREGATES: dict[str, dict[str, tuple[Any, str]]] = {
    "number of rows, or of values": {
        "`count()`, `count(column)`": (agg.count(), "bigint"),
        "column": (agg.count("s"), "bigint"),
    },
    "sum, mean, variance": {
        "sum of int": (agg.sum("n"), "bigint"),
        "sum of float": (agg.sum("f"), "double"),
        "sum of decimal": (agg.sum("p"), "decimal(16,2)"),
        "mean": (agg.mean("n"), "double"),
        "mean of decimal": (agg.mean("p"), "decimal(10,6)"),
        "variance": (agg.variance("n"), "double"),
        "stddev": (agg.stddev("x"), "double"),
    },
    "minimum, maximum": {
        "min": (agg.min("p"), "decimal(6,2)"),
        "max": (agg.max("f"), "float"),
    },
    "value of the earliest, or the latest row": {
        "first": (agg.first("a", tie_break="n"), "array<date>"),
        "last": (agg.last("s", tie_break="n"), "string"),
    },
    "most frequent items, with bounds": {
        "approx_top_k": (agg.approx_top_k("s", at_least=0.1), "struct<…array<"),
    },
    "approximate counts of given items": {
        "count_min": (agg.count_min("s", of=["a"]), "struct<…array<"),
    },
    "approximate number of distinct values": {
        "approx_count_distinct": (agg.approx_count_distinct("s"), "struct<"),
    },
    "sizes of audiences, and of their overlaps": {
        "approx_overlap": (agg.approx_overlap("s", of="k", between=["a", "b"]), "struct<…array<"),
    },
    "exact number of distinct values": {
        "count_distinct": (agg.count_distinct("s", at_most=9), "bigint"),
    },
    "approximate percentiles": {
        "approx_percentile": (agg.approx_percentile("x", [0.5, 0.99]), "struct<"),
    },
    "exact percentiles": {
        "one": (agg.percentile("x", 0.5, at_most=9), "double"),
        "several": (agg.percentile("n", [0.5, 0.99], at_most=9), "array<double>"),
    },
    "all values, by event time": {
        "list": (agg.collect_list("f", at_most=9, tie_break="n"), "array<float>"),
    },
    "values of the k rows that are greatest in another column": {
        "top": (agg.top(2, "p", ranked_by="n", tie_break="n"), "array<decimal(6,2)>"),
    },
    "something else": {},
}


def test_types_of_aggregates() -> None:
    page = table("aggregates.md", "result", "aggregate", "type")
    assert set(page.column("type")) == set(AGGREGATES)
    wrong = []
    for row, trials in AGGREGATES.items():
        for name, (aggregate, wanted) in trials.items():
            found = types_of(windows.tumbling("1 minute", agg={"v": aggregate}, **TIMED))["v"]
            if not re.match(re.escape(wanted).replace("…", ".*"), found):
                wrong.append((row, name, wanted, found))
    assert not wrong


def test_types_of_the_results_of_windows() -> None:
    page = table("windows.md", "function", "value", "type")
    functions: dict[str, tuple[Any, dict[str, str]]] = {
        "lag": (windows.lag, {"a": "array<date>", "n": "int"}),
        "lead": (windows.lead, {"s": "string", "p": "decimal(6,2)"}),
        "difference": (
            windows.difference,
            {"n": "bigint", "f": "double", "x": "double", "p": "decimal(7,2)"},
        ),
        "rate": (windows.rate, dict.fromkeys("nfxp", "double")),
        "ewma": (
            lambda name: windows.ewma(name, half_life="1 hour"),
            dict.fromkeys("nfx", "double"),
        ),
    }
    names = [re.match(r"`windows\.(\w+)\(", row[0]) for row in page.rows]
    assert [name and name[1] for name in names] == [*functions]
    for function, wanted in functions.values():
        columns = {f"v_{name}": function(name) for name in wanted}
        found = types_of(windows.over(values=columns, within="1 hour", **TIMED))
        assert {name: found[f"v_{name}"] for name in wanted} == wanted
    late = windows.tumbling("1 minute", agg={"c": agg.count()}, stragglers="route", **TIMED)
    field = types_of(late)["late"]
    page = table("windows.md", "field of `late`", "type")
    for name, dtype in page.column("type").items():
        assert f"{name.strip('`')}:{dtype}" in field.replace("interval day to second", dtype)


Named, Plain = namedtuple("Named", "a b"), dataclass(frozen=True)


@Plain
class Made:
    a: int
    b: str


# For each row: the type, what it takes with what is stored, and what it refuses.
NAN_DECIMAL = Decimal("NaN")
PROCESS: dict[str, list[tuple[str, list[tuple[Any, Any]], list[Any]]]] = {
    "boolean": [("boolean", [(True, True), (np.bool_(False), False)], [0, 1])],
    "tinyint, smallint, int, bigint": [
        (name, [(-(2 ** (bits - 1)), -(2 ** (bits - 1))), (2 ** (bits - 1) - 1, 2 ** (bits - 1) - 1)],
         [True, 1.0, Decimal(1), 2 ** (bits - 1)])
        for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64))
    ],
    "float": [("float", [(0.1, float(np.float32(0.1))), (2**30, 2.0**30)], [1e39, 2**24 + 1])],
    "double": [("double", [(0.1, 0.1), (2**60, 2.0**60)], [True, Decimal(1), 2**53 + 1])],
    "decimal(p,s)": [
        ("decimal(6,2)", [(Decimal("1.5"), Decimal("1.50")), (3, Decimal("3.00"))],
         [1.5, NAN_DECIMAL, Decimal("1.505"), 10**4])
    ],
    "string": [("string", [("é", "é")], [b"a", 1, "\ud800"])],
    "binary": [("binary", [(b"\xff", b"\xff"), (bytearray(b"a"), b"a")], ["a"])],
    "date": [("date", [(dt.date(1, 1, 1), dt.date(1, 1, 1))], [NAIVE, "2026-01-31"])],
    "timestamp": [("timestamp", [(ZONED, ZONED)], [NAIVE, np.datetime64("2026-01-31T00:00:00.000000001")])],
    "timestamp_ntz": [("timestamp_ntz", [(NAIVE, NAIVE)], [ZONED])],
    "array": [
        ("array<int>", [([1, None], [1, None]), ((1,), [1]), (np.array([1, 2]), [1, 2])],
         [{1}, "ab", (n for n in range(2))])
    ],
    "map": [
        ("map<string,int>", [({"a": 1}, {"a": 1}), ([("a", 1), ("b", None)], {"a": 1, "b": None})],
         [[("a", 1), ("a", 2)], {("a", 1)}, {None: 1}])
    ],
    "struct": [
        ("struct<a:int,b:string>",
         [(of, {"a": 1, "b": "x"}) for of in
          ({"a": 1, "b": "x"}, Named(1, "x"), Row(a=1, b="x"), Made(1, "x"), (1, "x"))],
         [{"a": 1}, {"a": 1, "b": "x", "c": 2}, (1,)])
    ],
}  # fmt: skip


def test_values_of_functions() -> None:
    page = table("process.md", "type", "takes", "refuses, for example")
    assert set(page.column("takes")) == set(PROCESS)
    for dtype, takes, refuses in [trial for trials in PROCESS.values() for trial in trials]:
        for value, wanted in [*takes, (None, None)]:
            assert stored(dtype, value) == wanted, (dtype, value)
        for value in refuses:
            with pytest.raises(StreamopsError) as refused:
                stored(dtype, value)
            assert refused.value.code in ("FUNCTION_RESULT", "VALUE_TYPE"), (dtype, value)


def stored(dtype: str, value: Any) -> Any:
    """The value that a function has yielded, as it is in the result."""

    def emit(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        for _ in rows:
            yield {"v": value}

    operator = process.per_key(emit, output=f"v {dtype}", **TIMED)
    results = replay(operator, [[{"k": "a", "ts": at(0)}]], flush=True, shards=1)
    [row] = [row for result in results for row in result.rows]
    return row["v"]


JSON_TYPES: dict[str, list[tuple[str, list[tuple[str, str]], list[str]]]] = {
    # For each row: the type, texts with the values that they are in SQL, and texts that are rejected.
    "tinyint, smallint, int, bigint": [
        (name, [(str(-(2**bits)), str(-(2**bits)))], [str(2**bits), "1.0", "1e1", '"1"'])
        for name, bits in (("tinyint", 7), ("smallint", 15), ("int", 31), ("bigint", 63))
    ],
    "float, double": [
        ("float", [("0.1", "0.1"), ('"NaN"', "NaN")], ["1e39", "1e-60", '"nan"']),
        ("double", [("1e2", "100.0"), ('"-Infinity"', "-Infinity")], ["1e400", "1e-400"]),
    ],
    "decimal(p, s)": [
        ("decimal(6, 2)", [("1.230", "1.23"), ("123e-2", "1.23"), ('"1.5"', "1.50")], ["1.234"])
    ],
    "boolean": [("boolean", [("true", "true"), ("false", "false")], ["1", '"true"'])],
    "string": [("string", [('"a"', "a"), ('{"b": 1.50}', '{"b":1.50}')], [])],
    "binary": [("binary", [('"AAE="', "\0\1")], ['"AAE"', '"AA\\nE="', '"-_8="'])],
    "date": [("date", [('"2026-01-31"', "2026-01-31")], ['"2026-1-31"', "1"])],
    "timestamp": [
        (
            "timestamp",
            [
                *((f'"2026-01-31{t}12:00:00.123456{z}"', "2026-01-31 12:00:00.123456") for t, z in (("T", "Z"), (" ", "+00:00"), ("t", "z"), ("T", "+0000"), ("T", "+00"))),
                ('"2026-01-31T12:00Z"', "2026-01-31 12:00:00"),
                ('"2026-01-31"', "2026-01-31 00:00:00"),
            ],
            ["1", '"12:00"', '"2026-01-31T12:00:00.1234567Z"'],
        )
    ],
    "timestamp_ntz": [("timestamp_ntz", [('"2026-01-31T12:00:00"', "2026-01-31 12:00:00")], ['"2026-01-31T12:00:00Z"'])],
    "time(p)": [
        ("time(6)", [('"12:34:56.123456"', "12:34:56.123456"), ('"12:34"', "12:34:00")], ['"24:00"', "1"]),
        ("time(0)", [('"12:34:56"', "12:34:56")], ['"12:34:56.1"']),
    ],
    "intervals": [
        ("interval day to second", [(f'"{text}"', "INTERVAL '1 02:03:04.5' DAY TO SECOND") for text in ("1 02:03:04.5", "INTERVAL '1 02:03:04.5' DAY TO SECOND")], ["1"]),
        ("interval year to month", [('"1-2"', "INTERVAL '1-2' YEAR TO MONTH")], ["1"]),
    ],
    "array, map, struct": [
        ("array<int>", [("[1, 2]", "[1, 2]")], ["[1.5]", "1", "{}"]),
        ("map<string,int>", [('{"a": 1}', "{a -> 1}")], ['{"a": "x"}', '{"a": 1, "a": 2}', "[]"]),
        ("struct<a:int>", [('{"a": 1, "b": 2}', "{1}")], ['{"a": "x"}', '{"a": 1, "a": 2}', "1"]),
    ],
    "variant": [("variant", [('{"a": 1.5}', '{"a":1.5}'), ("1e2", "100.0")], [])],
}  # fmt: skip


def exists(dtype: str) -> bool:
    needs = {"time(": "TimeType", "variant": "VariantType"}
    return all(hasattr(T, name) for start, name in needs.items() if dtype.startswith(start))


KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
SETTINGS = {"spark.sql.timeType.enabled": "true", "spark.sql.session.timeZone": "UTC"}


@pytest.mark.spark
@pytest.mark.smoke
def test_values_in_json(spark: SparkSession) -> None:
    page = table("sources.md", "type", "accepted")
    assert set(page.column("accepted")) == set(JSON_TYPES)
    trials = [trial for row in JSON_TYPES.values() for trial in row if exists(trial[0])]
    rows, wanted = [], {}
    for number, (_, takes, rejects) in enumerate(trials):
        for text, value in [*takes, *((text, None) for text in rejects)]:
            offset = len(rows)
            wanted[offset] = number, text, value
            record = f'{{"v{number}": {text}}}'.encode()
            rows.append((b"k", record, "t", 0, offset, ZONED))
    schema = ", ".join(f"v{number} {trial[0]}" for number, trial in enumerate(trials))
    with configured(spark, SETTINGS):
        frame = spark.createDataFrame(rows, KAFKA).transform(sources.kafka_events(schema))
        values = [F.col(f"v{n}").cast("string").alias(f"v{n}") for n in range(len(trials))]
        found = frame.select("_offset", "rejected.reason", *values).collect()
    wrong = []
    for row in found:
        number, text, value = wanted[row["_offset"]]
        got = row[f"v{number}"] if row["reason"] is None else row["reason"]
        if got != (value or "wrong_type"):
            # An object with a name twice is none of JSON.
            if value is None and got == "unparsable_json" and text.count('"a"') == 2:
                continue
            wrong.append((trials[number][0], text, value, got))
    assert not wrong
    assert len(found) == len(wanted)


WRITTEN: dict[str, list[tuple[str, str]]] = {
    "`timestamp`": [("TIMESTAMP'2026-01-31 23:59:59.000001Z'", '"2026-01-31T23:59:59.000001Z"')],
    "`timestamp_ntz`": [("TIMESTAMP_NTZ'2026-01-31 23:59:59.000001'", '"2026-01-31T23:59:59.000001"')],
    "`date`, `time`": [
        ("DATE'2026-01-31'", '"2026-01-31"'),
        ("CAST('23:59:59.000001' AS TIME(6))", '"23:59:59.000001"'),
    ],
    "integers, decimals": [
        ("9007199254740993L", "9007199254740993"),
        ("1.50BD", "1.50"),
    ],
    "`float`, `double`": [
        ("CAST(0.1 AS FLOAT)", "0.1"),
        ("0.1D", "0.1"),
        *((f"DOUBLE('{name}')", f'"{name}"') for name in ("NaN", "Infinity", "-Infinity")),
    ],
    "`binary`": [("X'0001'", '"AAE="')],
    "intervals": [
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", "\"INTERVAL '1 02:03:04.5' DAY TO SECOND\"")
    ],
    "a null": [("CAST(NULL AS INT)", "null")],
    "a map": [
        ("map('b', 1, 'a', 2)", '{"a":2,"b":1}'),
        ("map(2, 'x')", '{"2":"x"}'),
        ("map(array(1, 2), 'x')", '{"[1,2]":"x"}'),
    ],
    "`variant`": [("parse_json('{\"a\": 1.5}')", '{"a":1.5}')],
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.smoke
def test_nested_values_as_json(spark: SparkSession) -> None:
    page = table("sinks.md", "value", "JSON")
    assert set(page.column("JSON")) == set(WRITTEN)
    trials = [
        trial
        for row in WRITTEN.values()
        for trial in row
        if exists(
            "variant" if "parse_json" in trial[0] else "time(" if "TIME(6)" in trial[0] else ""
        )
    ]
    with configured(spark, SETTINGS):
        frame = spark.range(1).selectExpr(
            *(f"array({v}) AS v{n}" for n, (v, _) in enumerate(trials))
        )
        rows = project_json(frame, keep_lists=False).collect()
    for number, (value, text) in enumerate(trials):
        assert rows.column(number).to_pylist() == [f"[{text}]"], value


registry = pytest.importorskip("tests.borders.test_registry_bytes")
P = registry.P
DAY = pa.date32()


def avro(dtype: Any, column: pa.DataType, payload: bytes, wanted: Any) -> Any:
    found = registry.read_avro(dtype, column, payload)
    return found == wanted, found


def protobuf(dtype: Any, column: pa.DataType, value: Any, wanted: Any) -> Any:
    written, make = registry.protobuf(("x", dtype))
    payload = b"\0" + make(x=value).SerializeToString()
    [row] = registry.decode(written, [pa.field("x", column)], payload)
    found = row["reason"] or row["c0"]
    return found == wanted, found


logical, zigzag, sized = registry.logical, registry.zigzag, registry.sized
# The columns of each row as Spark's types; and for each cell the writer's type, the column, what is written and read.
COLUMNS = {
    "tinyint to bigint": [T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType()],
    "float, double": [T.FloatType(), T.DoubleType()],
    "decimal(p, s)": [T.DecimalType(6, 2)],
    "string": [T.StringType()],
    "binary": [T.BinaryType()],
    "boolean": [T.BooleanType()],
    "date, time(6) in sessions with `spark.sql.timeType.enabled`": [
        T.DateType(), *([T.TimeType(6)] if hasattr(T, "TimeType") else []),
    ],
    "timestamp; timestamp_ntz": [T.TimestampType(), T.TimestampNTZType()],
    "interval day to second": [T.DayTimeIntervalType()],
    "array, map, struct": [
        T.ArrayType(T.IntegerType()), T.MapType(T.StringType(), T.IntegerType()),
        T.StructType([T.StructField("a", T.IntegerType())]),
    ],
}  # fmt: skip
MICROS = 1_769_904_000_000_001
INSTANT = dt.datetime.fromtimestamp(MICROS // 10**6, dt.UTC) + dt.timedelta(microseconds=1)
OTHER = pa.list_(pa.int64())
CELLS: dict[str, list[tuple[Any, pa.DataType, Any, Any]]] = {
    "int, long": [
        (of, column, zigzag(100), 100)
        for of in ("int", "long")
        for column in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    ],
    "float, double, and integers that it has exactly; a double as a float only without rounding": [
        *(("float", column, struct.pack("<f", 0.5), 0.5) for column in (pa.float32(), pa.float64())),
        ("double", pa.float64(), struct.pack("<d", 0.1), 0.1),
        ("double", pa.float32(), struct.pack("<d", 0.5), 0.5),
        ("double", pa.float32(), struct.pack("<d", 0.1), "wrong_type"),
        ("long", pa.float64(), zigzag(2**60), 2.0**60),
        ("int", pa.float32(), zigzag(2**30), 2.0**30),
        ("long", pa.float64(), zigzag(2**60 + 1), "wrong_type"),
    ],
    "decimal of bytes or fixed, int, long, without loss of digits": [
        (registry.DECIMAL, pa.decimal128(6, 2), sized(b"\x05"), Decimal("0.05")),
        ({"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 2}, pa.decimal128(6, 2), b"\x05", Decimal(5)),
        *((of, pa.decimal128(6, 2), zigzag(5), Decimal(5)) for of in ("int", "long")),
        ("long", pa.decimal128(6, 2), zigzag(10**4), "wrong_type"),
    ],
    "string, enum, bytes in UTF-8": [
        *((of, pa.string(), sized("é".encode()), "é") for of in ("string", "bytes")),
        ("bytes", pa.string(), sized(b"\xff"), "wrong_type"),
        (registry.ENUM, pa.string(), zigzag(1), "B"),
    ],
    "bytes, fixed, string": [
        *((of, pa.binary(), sized(b"a"), b"a") for of in ("string", "bytes")),
        (registry.FIXED, pa.binary(), b"ab", b"ab"),
    ],
    "boolean": [("boolean", pa.bool_(), b"\1", True)],
    "date; time-millis, time-micros": [
        (logical("int", "date"), DAY, zigzag(1), dt.date(1970, 1, 2)),
        (logical("int", "time-millis"), pa.time64("ns"), zigzag(1), 10**6),
        (logical("long", "time-micros"), pa.time64("ns"), zigzag(1), 10**3),
    ],
    "timestamp-millis, -micros, -nanos without digits beyond microseconds; the same of local-timestamp": [
        (logical("long", f"{prefix}timestamp-{unit}"), pa.timestamp("us", zone), zigzag(number), wanted)
        for prefix, zone, made in (("", "UTC", INSTANT), ("local-", None, INSTANT.replace(tzinfo=None)))
        for unit, number, wanted in (
            ("millis", MICROS // 1000, made.replace(microsecond=0)),
            ("micros", MICROS, made),
            ("nanos", MICROS * 1000, made),
            ("nanos", MICROS * 1000 + 1, "wrong_type"),
        )
    ],
    "none": [("long", pa.duration("us"), zigzag(1), "wrong_type")],
    "array, map, record": [
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), b"\2\2\0", [1]),
        ({"type": "map", "values": "int"}, registry.MAP, b"\2\2a\2\0", [("a", 1)]),
        (registry.ROW, pa.struct([("a", pa.int32())]), b"\2", {"a": 1}),
    ],
}  # fmt: skip
INTEGERS = [
    P.TYPE_INT32, P.TYPE_INT64, P.TYPE_UINT32, P.TYPE_UINT64, P.TYPE_SINT32, P.TYPE_SINT64,
    P.TYPE_FIXED32, P.TYPE_FIXED64, P.TYPE_SFIXED32, P.TYPE_SFIXED64,
]  # fmt: skip
WHOLE = ["Int32", "Int64", "UInt32", "UInt64"]
MESSAGES: dict[str, list[tuple[Any, pa.DataType, Any, Any]]] = {
    "all integers, an enum by its number; wrappers": [
        *((of, column, 100, 100) for of in INTEGERS for column in (pa.int8(), pa.int64())),
        *((f"protobuf.{of}Value", pa.int16(), {"value": 100}, 100) for of in WHOLE),
        ("protobuf.NullValue", pa.int32(), 0, 0),
    ],
    "the same; wrappers": [
        *((P.TYPE_FLOAT, column, 0.5, 0.5) for column in (pa.float32(), pa.float64())),
        (P.TYPE_DOUBLE, pa.float64(), 0.1, 0.1),
        (P.TYPE_DOUBLE, pa.float32(), 0.1, "wrong_type"),
        (P.TYPE_INT64, pa.float64(), 2**60, 2.0**60),
        *((f"protobuf.{of}Value", pa.float64(), {"value": 0.5}, 0.5) for of in ("Float", "Double")),
    ],
    "`confluent.type.Decimal`, integers": [
        ("confluent.type.Decimal", pa.decimal128(6, 2), {"value": b"\5", "scale": 2}, Decimal("0.05")),
        *((of, pa.decimal128(6, 2), 5, Decimal(5)) for of in INTEGERS),
    ],
    "string, enum, bytes in UTF-8; wrappers": [
        (P.TYPE_STRING, pa.string(), "é", "é"),
        (P.TYPE_BYTES, pa.string(), "é".encode(), "é"),
        ("protobuf.NullValue", pa.string(), 0, "NULL_VALUE"),
        ("protobuf.StringValue", pa.string(), {"value": "é"}, "é"),
        ("protobuf.BytesValue", pa.string(), {"value": b"a"}, "a"),
    ],
    "bytes, string; wrappers": [
        (P.TYPE_STRING, pa.binary(), "a", b"a"),
        (P.TYPE_BYTES, pa.binary(), b"\xff", b"\xff"),
        ("protobuf.BytesValue", pa.binary(), {"value": b"\xff"}, b"\xff"),
        ("protobuf.StringValue", pa.binary(), {"value": "a"}, b"a"),
    ],
    "bool; wrapper": [
        (P.TYPE_BOOL, pa.bool_(), True, True),
        ("protobuf.BoolValue", pa.bool_(), {"value": True}, True),
    ],
    "`google.type.Date`, `google.type.TimeOfDay`": [
        ("type.Date", DAY, {"year": 1970, "month": 1, "day": 2}, dt.date(1970, 1, 2)),
        ("type.TimeOfDay", pa.time64("ns"), {"minutes": 1}, 60 * 10**9),
    ],
    "`google.protobuf.Timestamp`; none": [
        ("protobuf.Timestamp", pa.timestamp("us", "UTC"), {"seconds": MICROS // 10**6, "nanos": 1000}, INSTANT),
        ("protobuf.Timestamp", pa.timestamp("us"), {"seconds": 1}, "wrong_type"),
    ],
    "`google.protobuf.Duration`": [
        ("protobuf.Duration", pa.duration("us"), {"seconds": -1}, dt.timedelta(seconds=-1))
    ],
    "repeated; map, also with keys of the text that they have in JSON; message": [
        ((P.TYPE_STRING, P.TYPE_INT32), registry.MAP, {"a": 1}, [("a", 1)]),
        ((P.TYPE_INT32, P.TYPE_INT32), registry.MAP, {-1: 1}, [("-1", 1)]),
        ((P.TYPE_INT32, P.TYPE_INT32), pa.map_(pa.int64(), pa.int32()), {-1: 1}, [(-1, 1)]),
        ("type.Date", pa.struct([("year", pa.int32())]), {"year": 5}, {"year": 5}),
        ("protobuf.FieldMask", pa.struct([("paths", pa.list_(pa.string()))]), {"paths": ["a"]}, {"paths": ["a"]}),
    ],
}  # fmt: skip


def test_records_of_a_registry() -> None:
    page = table("sources.md", "column", "Avro", "Protobuf")
    assert set(page.column("column")) == set(COLUMNS)
    assert set(page.column("Avro").values()) == set(CELLS)
    assert set(page.column("Protobuf").values()) == set(MESSAGES)
    for name, columns in COLUMNS.items():
        for of in columns:
            assert decoded_types(T.StructType([T.StructField("v", of)])).names == ["v"], name
    wrong = [
        (cell, str(trial), found)
        for cells, attempt in ((CELLS, avro), (MESSAGES, protobuf))
        for cell, trials in cells.items()
        for trial in trials
        for is_right, found in [attempt(*trial)]
        if not is_right
    ]
    assert not wrong
