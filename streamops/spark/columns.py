"""Columns and types of Spark: quoted names, conversion to and from Arrow, comparison, validation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from streamops.changelog import chains
from streamops.kernel.parameters import not_an_instant, require_columns
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.kernel.versions import in_utc, spark_class
from streamops.spark import conditions


def micros(value: Column) -> Column:
    """Convert a timestamp to microseconds; null outside the years 1 to 9999."""
    count = F.unix_micros(value)
    return F.when(count.between(F.lit(MIN_INSTANT), F.lit(MAX_INSTANT)), count)


def now() -> Column:
    """Return the start of the micro-batch or the batch.

    Spark writes it to the checkpoint before a micro-batch runs, so a repeated one has the same.
    """
    return F.unix_micros(F.current_timestamp())


VARIANT = spark_class("sql.types", "VariantType")
_INCOMPARABLE = {"interval", "geometry", "geography"}
_BINARY = "UTF8_BINARY"  # the collation that compares strings byte by byte


def column(name: str) -> Column:
    """The column with exactly this name, which may contain any characters."""
    return F.col(quote(name))


def quote(name: str) -> str:
    """The name of a column, quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"


def map_type(
    dtype: DataType,
    leaf: Callable[[DataType], DataType] = lambda inner: inner,
    *,
    relax: bool = False,
) -> DataType:
    """Replace the types that contain no other type, at every depth.

    Parameters
    ----------
    dtype : DataType
    leaf : function
        Returns the replacement of a type that contains no other.
    relax : bool
        Whether to allow nulls at every depth, as in a row that may be null as a whole.

    Examples
    --------
    >>> from pyspark.sql.types import IntegerType, StringType
    >>> map_type(ArrayType(IntegerType(), False), lambda inner: StringType(), relax=True)
    ArrayType(StringType(), True)
    """
    match dtype:
        case StructType():
            return StructType(
                [
                    StructField(
                        field.name,
                        map_type(field.dataType, leaf, relax=relax),
                        relax or field.nullable,
                        field.metadata,
                    )
                    for field in dtype.fields
                ]
            )
        case ArrayType():
            element = map_type(dtype.elementType, leaf, relax=relax)
            return ArrayType(element, relax or dtype.containsNull)
        case MapType():
            key = map_type(dtype.keyType, leaf, relax=relax)
            value = map_type(dtype.valueType, leaf, relax=relax)
            return MapType(key, value, relax or dtype.valueContainsNull)
    return leaf(dtype)


def contains_type(dtype: DataType, predicate: Callable[[DataType], bool]) -> bool:
    """Whether the predicate holds for a type, or for a type inside of it at any depth.

    Examples
    --------
    >>> contains_type(ArrayType(StructType()), lambda inner: isinstance(inner, StructType))
    True
    """
    match dtype:
        case StructType():
            inner = [field.dataType for field in dtype.fields]
        case ArrayType():
            inner = [dtype.elementType]
        case MapType():
            inner = [dtype.keyType, dtype.valueType]
        case _:
            inner = []
    return predicate(dtype) or any(contains_type(part, predicate) for part in inner)


def relax_nulls(frame: DataFrame) -> DataFrame:
    """Declare every column nullable at every depth. No value changes.

    PySpark cannot convert to Arrow a struct that is null while one of its fields is declared not
    null, as in a row without a partner.
    """
    columns = []
    for field in frame.schema.fields:
        value, relaxed = column(field.name), map_type(field.dataType, relax=True)
        # Cast only if necessary: not every type can be cast to itself.
        if relaxed != field.dataType:
            value = value.cast(relaxed).alias(field.name)
        columns.append(value)
    return frame.select(*columns)


def make_nullable(value: Column) -> Column:
    """Declare a column nullable, see :func:`relax_nulls`. Spark's optimizer removes the condition."""
    return F.when(value.isNotNull(), value)


def comparable(value: Column, dtype: DataType) -> Column:
    """Convert a value to one that Spark can compare, equal where the values are equal.

    Maps become arrays of their entries, sorted by key; variants become JSON.
    """
    if isinstance(dtype, VARIANT):
        return F.to_json(value)
    if not contains_type(dtype, lambda inner: isinstance(inner, (MapType, VARIANT))):
        return value
    if isinstance(dtype, MapType):
        value_type = dtype.valueType
        return F.transform(
            F.array_sort(F.map_keys(value)),
            lambda key: F.struct(
                key.alias("key"), comparable(value[key], value_type).alias("value")
            ),
        )
    if isinstance(dtype, ArrayType):
        element = dtype.elementType
        return F.transform(value, lambda item: comparable(item, element))
    assert isinstance(dtype, StructType), dtype
    parts = [
        comparable(part, inner).alias(f"c{i}")
        for i, (part, inner) in enumerate(fields_by_position(value, dtype))
    ]
    return F.when(value.isNotNull(), F.struct(*parts))


def fields_by_position(value: Column, dtype: StructType) -> list[tuple[Column, DataType]]:
    """The fields of a struct by position, because Spark rejects names that differ only in case."""
    if len({name.lower() for name in dtype.names}) == len(dtype.names):
        return [(value[field.name], field.dataType) for field in dtype.fields]  # also of type time
    fields = [StructField(f"c{i}", field.dataType) for i, field in enumerate(dtype.fields)]
    renamed = value.cast(StructType(fields))
    return [(renamed[field.name], field.dataType) for field in fields]


def refuse_incomparable(frame: DataFrame, names: Iterable[str]) -> None:
    """Refuse columns whose values Spark cannot compare.

    Raises
    ------
    SchemaError
        ``COLUMN_TYPE``.
    """
    read = set(names)
    for field in frame.schema.fields:
        if field.name in read and contains_type(
            field.dataType, lambda inner: inner.typeName() in _INCOMPARABLE
        ):
            raise conditions.COLUMN_TYPE.error(
                column=field.name, got=f"{field.name!r} of type {field.dataType.simpleString()}"
            )


def arrow_schema(frame: DataFrame, *, only: Collection[str] | None = None) -> pa.Schema:
    """The Arrow schema of a frame, or of some of its columns. Timestamps are in UTC.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``: two columns have the same name, as the session compares names.
        ``TYPE_UNSUPPORTED``: Spark cannot convert a type to Arrow.
    """
    refuse_duplicates(frame)
    fields = []
    for field in frame.schema.fields:
        if only is not None and field.name not in only:
            continue
        try:
            dtype = to_arrow_type(map_type(field.dataType, relax=True), **in_utc(to_arrow_type))
        except Exception as error:  # PySpark's own error type moved between releases
            raise conditions.TYPE_NOT_CARRIED.error(
                column=field.name, got=field.dataType.simpleString()
            ) from error
        fields.append(pa.field(field.name, dtype))
    return pa.schema(fields)


def refuse_duplicates(frame: DataFrame) -> None:
    """Refuse two columns with the same name, as the session compares names.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``.
    """
    chains.refuse_duplicates(
        frame.schema.names,
        ignores_case=lambda: frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true",
    )


def refuse_collated(frame: DataFrame, names: Iterable[str]) -> None:
    """Refuse strings that Spark does not compare byte by byte.

    Arrow has no collation, so the kernel would distinguish values that are equal in Spark.
    """
    read = set(names)
    for field in frame.schema.fields:
        if field.name in read and contains_type(field.dataType, _has_collation):
            raise conditions.COLLATED_COLUMN.error(
                column=field.name, got=field.dataType.simpleString()
            )


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow columns. Timestamps with a time zone are instants."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def type_name(dtype: pa.DataType) -> str:
    """Spark's name of a type, or Arrow's if Spark does not have the type.

    Examples
    --------
    >>> type_name(pa.list_(pa.int64())), type_name(pa.timestamp("us", "UTC"))
    ('array<bigint>', 'timestamp')
    """
    try:
        return from_arrow_type(dtype, prefer_timestamp_ntz=True).simpleString()
    except Exception:  # PySpark's own error type moved between releases
        return str(dtype)


def _has_collation(dtype: DataType) -> bool:
    return bool(getattr(dtype, "collation", _BINARY) != _BINARY)


def require_frame(value: object, what: str) -> DataFrame:
    """Refuse a value that is not a DataFrame, such as the name of a table.

    Raises
    ------
    SpecError
        ``NOT_A_FRAME``.
    """
    frame: Any = value
    if hasattr(type(frame), "isStreaming"):  # Connect of Spark 3.5 has a class of its own
        return frame  # type: ignore[no-any-return]
    is_name = isinstance(value, str)
    condition = conditions.NAME_OF_A_TABLE if is_name else conditions.NOT_A_FRAME
    # Not its repr, which has rows of a frame of pandas.
    got = repr(value) if is_name else f"an object of type {type(value).__name__}"
    raise condition.error(what=what, name=value, got=got)


def require_spark_frame(frame: object, operator: str) -> None:
    """Refuse what an operator is not applied to, such as a frame of pandas.

    Raises
    ------
    SpecError
        ``FRAME_TYPE``.
    """
    if not hasattr(type(frame), "isStreaming"):  # Connect of Spark 3.5 has a class of its own
        got = f"an object of type {type(frame).__module__}.{type(frame).__name__}"
        raise conditions.NOT_A_SPARK_FRAME.error(operator=operator, got=got)


def instant_field(
    frame: DataFrame,
    name: str,
    *,
    role: str,
    accepts: Callable[[DataType], bool] = lambda dtype: False,
    expected: str = "timestamp",
) -> StructField:
    """The field of a column with instants.

    Parameters
    ----------
    frame : DataFrame
    name, role : str
        For the error: the column, and the parameter that names it.
    accepts : function
        Whether a type other than timestamp is accepted.
    expected : str
        The accepted types, for the error.

    Raises
    ------
    ColumnNotFound
        There is no such column.
    SchemaError
        ``COLUMN_TYPE``.
    """
    fields = {field.name: field for field in frame.schema.fields}
    require_columns(fields, {role: [name]})
    field = fields[name]
    if not (isinstance(field.dataType, TimestampType) or accepts(field.dataType)):
        dtype = field.dataType.simpleString()
        facts = {"column": name, "use": f"`{role}`", "expected": expected}
        raise not_an_instant(dtype).error(got=f"{name!r} of type {dtype}", **facts)
    return field
