"""Expressions over columns of sketches: a function over whole columns, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from streamops.spark.columns import column as quoted
from streamops.spark.columns import spark_schema

__all__ = ["as_item", "expression", "mapped"]


def as_item(column: Column, kind: str) -> Column:
    """The value as one of this type, which is flat; null where it is none: 1.5 is no bigint."""
    value = column.try_cast(kind)
    # Compared only where it could be cast: the comparison casts, too, and then fails the query.
    return F.when(value.isNotNull(), F.when(value == column, value))


def expression(answer: Callable[..., pa.Array], result: pa.DataType, *columns: str) -> Column:
    """The answers to the rows in which no column is null; null in the others.

    Parameters
    ----------
    answer : callable
        Takes the columns without nulls.
    result : DataType
        Of the answers.
    """

    # As many parameters as columns: Spark reads from their hints that it is called with columns.
    def of_one(column: pa.Array) -> pa.Array:
        return _answered(answer, column)

    def of_two(left: pa.Array, right: pa.Array) -> pa.Array:
        return _answered(answer, left, right)

    run: Callable[..., pa.Array] = of_one if len(columns) == 1 else of_two
    return mapped(run, result, *map(quoted, columns))


def mapped(run: Callable[..., pa.Array], result: pa.DataType, *columns: Column) -> Column:
    """What a function makes of whole columns, as a column of this type.

    Parameters
    ----------
    run : callable
        With hints that all its parameters, and what it returns, are arrays.
    """
    kind = spark_schema(pa.schema([("result", result)])).fields[0].dataType
    # Its stubs want the word for a scalar function, which it asks to leave to the type hints.
    make: Any = arrow_udf
    found: Column = make(run, kind)(*columns)
    return found


def _answered(answer: Callable[..., pa.Array], *columns: pa.Array) -> pa.Array:
    there = np.logical_and.reduce([np.asarray(column.is_valid()) for column in columns])
    if there.all():
        return answer(*columns)
    found = answer(*(column.filter(pa.array(there)) for column in columns))
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))
