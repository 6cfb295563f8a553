"""No operator and no sink orders changes by text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import changes, joins, search
from streamops.kernel.errors import SchemaError
from streamops.kernel.ordering import ranks, require_sequence
from streamops.sinks.core.net import compute_net

TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
    pa.list_(pa.string()),
    pa.list_(pa.struct([("a", pa.list_(pa.string()))])),
]
CHANGE = ("_change_type", pa.string())
TIME = pa.timestamp("us", tz="UTC")


def table(dtype: pa.DataType, *more: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("seq", dtype), ("at", TIME), CHANGE, *more])


def resolve(operator: Any, *schemas: pa.Schema) -> None:
    operator.parameters.resolve(schemas, carried=(None,) * len(schemas), shards=1)


LONG: dict[str, Any] = {"sequence": "seq", "time": "at", "horizon": "1 day"}
FACTS = pa.schema(
    [("id", pa.int64()), ("ts", TIME), ("title", pa.string()), ("seq", pa.int64()), CHANGE]
)
USES: dict[str, Any] = {
    "normalize": lambda of: resolve(changes.normalize("id", **LONG), table(of)),
    "apply": lambda of: resolve(changes.apply("id", **LONG), table(of)),
    "history": lambda of: resolve(changes.apply("id", history="intervals", **LONG), table(of)),
    "enrich": lambda of: resolve(joins.enrich(None, by="id", **LONG), FACTS, table(of)),
    "asof": lambda of: resolve(
        joins.asof(None, by="id", time="ts", version="at", sequence="seq", delay="1 second"), FACTS, table(of)
    ),
    "tables": lambda of: resolve(
        joins.tables(None, by="id", key="id", sequence="seq", remember=1), FACTS, table(of)
    ),
    "search": lambda of: resolve(
        search.match(None, text="title", **LONG), FACTS, table(of, ("query", pa.string()))
    ),
    "search as of": lambda of: resolve(
        search.match(None, text="title", as_of="ts", delay="1 second", **LONG), FACTS, table(of, ("query", pa.string()))
    ),
    "sinks, upserts": lambda of: compute_net(
        table(of).remove(3).empty_table(), key=["id"], sequence=["seq"]
    ),
    "sinks, changes": lambda of: compute_net(
        table(of).empty_table(), key=["id"], sequence=["seq"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dtype", TEXTS, ids=str)
def test_text_is_refused_while_the_plan_is_built(use: str, dtype: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="SEQUENCE_TYPE") as caught:
        USES[use](dtype)
    assert "changes.parse_lsn('seq')" in caught.value.fix
    for accepted in (pa.int64(), pa.decimal128(20, 0), pa.binary(), pa.struct([("a", TIME)])):
        USES[use](accepted)


def test_a_map_is_no_sequence() -> None:
    schema = pa.schema([("m", pa.map_(pa.int64(), pa.int64()))])
    with pytest.raises(SchemaError, match="SEQUENCE_TYPE"):
        require_sequence(schema, ["m"])


def test_binary_is_ordered_by_unsigned_bytes() -> None:
    values = [b"\x7f", b"\x80", b"\xff\x00", b"\xff", b"", b"\x00"]
    assert ranks(pa.array(values)).argsort().tolist() == [4, 5, 0, 1, 3, 2]


LSNS = [
    ("0/0", 0),
    ("0/16B37480", 0x16B37480),
    ("a/B", (10 << 32) + 11),
    ("00000001/00000000", 1 << 32),
    ("7FFFFFFF/FFFFFFFF", (1 << 63) - 1),
    ("80000000/0", None),
    ("0/123456789", None),
    *[(text, None) for text in ("", "0/", "/0", "1/2/3", " 0/1", "0/1\n", "0x1/2", "12", None)],
]


@pytest.mark.spark
@pytest.mark.smoke
def test_positions_in_the_log_of_postgresql_and_readers_without_a_core(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(text, number) for text, number in LSNS], "`a.b` string, n bigint"
    )
    found = rows.select("n", changes.parse_lsn("a.b"), changes.parse_lsn(F.col("`a.b`"))).collect()
    assert [tuple(row) for row in found] == [(number,) * 3 for _, number in LSNS]

    text = spark.createDataFrame(
        [], "id int, seq string, at timestamp, value string, _change_type string"
    )
    uses: list[Any] = [
        lambda: changes.fold("id", sequence="seq")(text),
        lambda: changes.fold("id", sequence="seq")(text.drop("_change_type")),
        lambda: changes.compact("id", sequence="seq", time="at", retention="1 day")(text),
        lambda: text.transform(changes.from_debezium("id int", key="id", sequence=["seq"])),
    ]
    for refused in uses:
        with pytest.raises(SchemaError, match="SEQUENCE_TYPE"):
            refused()
