"""Columns of every type that an aggregate may meet, and how a test computes over them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.errors import located
from streamops.kernel.groups import Groups

NAN, INFINITY = float("nan"), float("inf")
UTC = dt.UTC
LARGEST = 2**63 - 1

TYPES: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "money": pa.decimal128(6, 2),
    "huge": pa.decimal128(38, 0),
    "tiny": pa.decimal128(38, 38),
    "flag": pa.bool_(),
    "text": pa.string(),
    "raw": pa.binary(),
    "date": pa.date32(),
    "instant": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "span": pa.duration("us"),
    "list": pa.list_(pa.int64()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]),
}
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("seq", pa.int64()), *TYPES.items()])

# What sums without rounding, whatever the order: floats are multiples of 1/4.
VALUES: dict[str, list[Any]] = {
    "byte": [0, 1, -128, 127],
    "short": [0, 1, -(2**15), 2**15 - 1],
    "int": [0, 1, -(2**31), 2**31 - 1],
    "long": [0, 1, -(2**40), 2**40],
    "float": [0.0, -0.0, 0.25, -1.5, NAN, INFINITY, -INFINITY],
    "double": [0.0, -0.0, 0.25, -1e6, NAN, INFINITY, -INFINITY],
    "money": [Decimal("0.00"), Decimal("0.01"), Decimal("-0.05"), Decimal("9999.99")],
    "huge": [Decimal(0), Decimal(1), Decimal(-(10**30)), Decimal(10**30)],
    "tiny": [Decimal("0e-38"), Decimal("1e-38"), Decimal("-1e-30")],
    "flag": [True, False],
    "text": ["", "a", "B", "ä", "a\x00", "\U0001f600", "\uffff"],
    "raw": [b"", b"\x00", b"\xff", b"a"],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "instant": [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    "local": [dt.datetime(1969, 12, 31), dt.datetime(2024, 3, 31, 2, 30)],  # noqa: DTZ001
    "span": [dt.timedelta(0), dt.timedelta(days=-1, microseconds=1), dt.timedelta(days=100)],
    "list": [[], [1, None], [1]],
    "map": [[], [("a", 1)], [("a", None), ("b", 2)]],
    "struct": [{"a": NAN, "b": ["x"]}, {"a": None, "b": None}],
}

INTEGERS = ["byte", "short", "int", "long"]
FLOATS = ["float", "double"]
DECIMALS = ["money", "huge", "tiny"]
ORDERED = [*INTEGERS, *FLOATS, *DECIMALS, "flag", "text", "raw", "date", "instant", "local", "span"]
COMPARABLE = [*ORDERED, "list", "struct"]


def bind(aggregate: Aggregation) -> Summary:
    """The summary of the aggregate over columns of ``SCHEMA``."""
    with located("windows.tumbling"):
        return aggregate.bind(SCHEMA, time="ts")


def column(name: str, values: Sequence[Any]) -> pa.Table:
    """A table with values in one column, one row a second, nulls elsewhere."""
    count = len(values)
    arrays = {f.name: pa.nulls(count, f.type) for f in SCHEMA}
    arrays["ts"] = pa.array(range(count), pa.int64()).cast(SCHEMA.field("ts").type)
    arrays["seq"] = pa.array(range(count), pa.int64())
    arrays[name] = pa.array(values, SCHEMA.field(name).type)
    return pa.table(arrays, schema=SCHEMA)


def over(aggregate: Aggregation, values: Sequence[Any]) -> Any:
    """The aggregate over these values of its column."""
    summary, rows = bind(aggregate), column(aggregate.columns[0], values)
    estimate = summary.estimate(summary.update(one_group(len(rows)), rows))
    assert estimate.type == summary.result
    return estimate[0].as_py()


def over_parts(aggregate: Aggregation, *parts: Sequence[Any]) -> Any:
    """The aggregate over values that were summed up apart."""
    summary, states = bind(aggregate), []
    for values in parts:
        rows = column(aggregate.columns[0], values)
        states.append(summary.update(one_group(len(rows)), rows))
    together = [pa.concat_arrays(pieces) for pieces in zip(*states, strict=True)]
    return summary.estimate(summary.merge(one_group(len(parts)), together))[0].as_py()


def one_group(rows: int) -> Groups:
    """All rows in one group."""
    return Groups(np.zeros(rows, np.int64), 1)
