"""The names of types are those of PySpark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamops.kernel.columns import type_name
from streamops.kernel.versions import has_transform
from streamops.spark.columns import type_name as named_by_pyspark

TYPES = [
    pa.null(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
    *[pa.time64("us")] * has_transform(),  # Spark 3.5 has no name of these two
    pa.time32("s"),
    pa.decimal128(5, 2),
    pa.list_(pa.int8()),
    *[pa.large_list(pa.string())] * has_transform(),
    pa.map_(pa.int8(), pa.list_(pa.string())),
    pa.struct([("a", pa.int8()), ("b c", pa.list_(pa.timestamp("us")))]),
    pa.struct([]),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_type_names_are_those_of_pyspark(dtype: pa.DataType) -> None:
    assert type_name(dtype) == named_by_pyspark(dtype)


@pytest.mark.skipif(not has_transform(), reason="of Spark 4")
def test_the_type_name_of_a_variant_is_that_of_spark() -> None:
    marked = pa.field("metadata", pa.binary(), metadata={"variant": "true"})
    dtype = pa.struct([pa.field("value", pa.binary()), marked])
    assert type_name(dtype) == named_by_pyspark(dtype) == "variant"
