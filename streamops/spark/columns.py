"""Names and types at the border to Spark. Names are quoted, never pasted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.parameters import require_name, suggest_timestamp

__all__ = [
    "arrow_schema",
    "column",
    "contains_type",
    "instant_field",
    "make_nullable",
    "map_type",
    "refuse_collated",
    "refuse_duplicates",
    "relax_nulls",
    "require_frame",
    "require_name",
    "require_names",
    "spark_schema",
    "suggest_timestamp",
    "type_name",
]

# Spark 4.1 and 4.2 say "in UTC" by another word than 4.3.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"}
    if "timezone" in inspect.signature(to_arrow_type).parameters
    else {"timestamp_utc": True}
)

_BINARY = "UTF8_BINARY"  # the collation that compares strings byte by byte


def column(name: str) -> Column:
    """The column of exactly this name, whatever characters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def map_type(
    kind: DataType,
    leaf: Callable[[DataType], DataType] = lambda each: each,
    *,
    relax: bool = False,
) -> DataType:
    """The type with others in place of those that hold none, at every depth.

    Parameters
    ----------
    kind : DataType
    leaf : function
        What takes the place of a type that holds no other.
    relax : bool
        Whether nulls are allowed at every depth, as in a row that may be null as a whole.

    Examples
    --------
    >>> from pyspark.sql.types import IntegerType, StringType
    >>> map_type(ArrayType(IntegerType(), False), lambda each: StringType(), relax=True)
    ArrayType(StringType(), True)
    """
    match kind:
        case StructType():
            return StructType(
                [
                    StructField(
                        each.name,
                        map_type(each.dataType, leaf, relax=relax),
                        relax or each.nullable,
                        each.metadata,
                    )
                    for each in kind.fields
                ]
            )
        case ArrayType():
            element = map_type(kind.elementType, leaf, relax=relax)
            return ArrayType(element, relax or kind.containsNull)
        case MapType():
            key = map_type(kind.keyType, leaf, relax=relax)
            value = map_type(kind.valueType, leaf, relax=relax)
            return MapType(key, value, relax or kind.valueContainsNull)
    return leaf(kind)


def contains_type(kind: DataType, is_meant: Callable[[DataType], bool]) -> bool:
    """Whether this is said of the type, or of one inside of it, at whatever depth.

    Examples
    --------
    >>> contains_type(ArrayType(StructType()), lambda each: isinstance(each, StructType))
    True
    """
    match kind:
        case StructType():
            inner = [each.dataType for each in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    return is_meant(kind) or any(contains_type(each, is_meant) for each in inner)


def relax_nulls(frame: DataFrame) -> DataFrame:
    """The same rows, in columns that may be null at every depth, which changes no value.

    A struct that is null itself while one of its fields may not be, as beside a row without a partner,
    is one that PySpark cannot hand over as Arrow.
    """
    kinds = {each.name: each.dataType for each in frame.schema.fields}
    loose = {name: map_type(kind, relax=True) for name, kind in kinds.items()}
    return frame.select(
        *(
            # What is as it should be is not cast: not every type can be cast to itself.
            column(name) if loose[name] == kind else column(name).cast(loose[name]).alias(name)
            for name, kind in kinds.items()
        )
    )


def make_nullable(value: Column) -> Column:
    """The same, declared to be null at times, which changes no value.

    A struct that is null itself while one of its fields may not be is one that PySpark cannot
    hand over as Arrow. Spark's optimizer takes the condition out again.
    """
    return F.when(value.isNotNull(), value)


def arrow_schema(frame: DataFrame, *, where: str, only: Collection[str] | None = None) -> pa.Schema:
    """The frame's columns, or only those of these names, as Arrow types, timestamps in UTC.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``: two columns of one name, as the session compares names.
        ``TYPE_NOT_CARRIED``: a type that Spark does not hand over to Python as Arrow.
    """
    refuse_duplicates(frame, where=where)
    fields = []
    for field in frame.schema.fields:
        if only is not None and field.name not in only:
            continue
        try:
            kind = to_arrow_type(map_type(field.dataType, relax=True), **_IN_UTC)
        except Exception as error:  # PySpark's own error type moved between releases
            raise SchemaError(
                "TYPE_NOT_CARRIED",
                f"column {field.name!r} has a type that cannot be handed to Python",
                where=where,
                got=field.dataType.simpleString(),
                expected="a type that Spark carries as Arrow",
                fix="cast the column, or drop it before the operator",
            ) from error
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def refuse_duplicates(frame: DataFrame, *, where: str) -> None:
    """Refuse two columns of one name, as the session compares names.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``.
    """
    names = [field.name for field in frame.schema.fields]
    twice = _duplicates(names, names)
    if not twice:
        # To Spark, names that differ only in case are one name, unless it is told otherwise.
        twice = _duplicates(names, [name.lower() for name in names])
        if twice and frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
            twice = []
    if twice:
        raise SchemaError(
            "DUPLICATE_COLUMN",
            "the frame has more than one column of the same name",
            where=where,
            got=", ".join(twice),
            expected="unique column names",
            fix="rename or drop one of them before the operator",
        )


def refuse_collated(frame: DataFrame, names: Iterable[str], *, where: str) -> None:
    """Refuse strings that Spark compares by other rules than byte by byte.

    Arrow does not carry the collation: the kernel would tell apart what Spark holds equal.
    """
    read = set(names)
    for field in frame.schema.fields:
        if field.name in read and contains_type(field.dataType, _collated):
            raise SchemaError(
                "COLLATED_COLUMN",
                f"column {field.name!r} has a collation that the kernel does not know",
                where=where,
                got=field.dataType.simpleString(),
                expected="string, compared byte by byte (UTF8_BINARY)",
                fix=f"df.withColumn({field.name!r}, F.lower({field.name!r}).cast('string')), "
                "or another form in which equal values have equal bytes",
            )


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's types for Arrow columns; timestamps are instants."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def type_name(kind: pa.DataType) -> str:
    """Spark's word for the type, or Arrow's where Spark has none.

    Examples
    --------
    >>> type_name(pa.list_(pa.int64())), type_name(pa.timestamp("us", "UTC"))
    ('array<bigint>', 'timestamp')
    """
    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
    except Exception:  # PySpark's own error type moved between releases
        return str(kind)


def _duplicates(names: list[str], compared: list[str]) -> list[str]:
    pairs = zip(names, compared, strict=True)
    return sorted({name for name, each in pairs if compared.count(each) > 1})


def _collated(kind: DataType) -> bool:
    return bool(getattr(kind, "collation", _BINARY) != _BINARY)


def require_frame(value: object, what: str, *, where: str) -> DataFrame:
    """Refuse what is given in place of a frame, such as the name of a table.

    Raises
    ------
    SpecError
        ``NOT_A_FRAME``.
    """
    if isinstance(value, DataFrame):
        return value
    raise SpecError(
        "NOT_A_FRAME",
        f"{what} is not a DataFrame",
        where=where,
        got=f"{value!r}, of type {type(value).__name__}",
        expected="a DataFrame",
        fix=f"spark.table({value!r})" if isinstance(value, str) else "spark.table(...)",
    )


def instant_field(
    frame: DataFrame,
    name: str,
    *,
    role: str,
    where: str,
    accepts: Callable[[DataType], bool] = lambda kind: False,
    expected: str = "timestamp",
) -> StructField:
    """The field of a column that holds instants.

    Parameters
    ----------
    frame : DataFrame
    name, role, where : str
        For the error: the column, the parameter that names it, the operator.
    accepts : function
        Which types do beside timestamp.
    expected : str
        All types that do, in words.

    Raises
    ------
    ColumnNotFound
        There is no such column.
    SchemaError
        ``COLUMN_TYPE``.
    """
    fields = {field.name: field for field in frame.schema.fields}
    if name not in fields:
        raise ColumnNotFound(name, list(fields), where=where, role=role)
    field = fields[name]
    if not (isinstance(field.dataType, TimestampType) or accepts(field.dataType)):
        raise SchemaError(
            "COLUMN_TYPE",
            f"column {name!r} cannot be used as `{role}`",
            where=where,
            got=f"{name!r} of type {field.dataType.simpleString()}",
            expected=expected,
            fix=suggest_timestamp(name, field.dataType.simpleString()),
        )
    return field


def require_names(where: str, **named: Any) -> None:
    """Refuse parameters that are no names of columns, or name the same column twice.

    Raises
    ------
    SpecError
        ``NOT_A_NAME`` or ``SAME_COLUMN``.
    """
    roles: dict[str, str] = {}
    for role, name in named.items():
        require_name(name, parameter=role, where=where)
        if name in roles:
            raise SpecError(
                "SAME_COLUMN",
                f"`{roles[name]}` and `{role}` name the same column",
                where=where,
                got=f"{roles[name]}={name!r}, {role}={name!r}",
                expected="a column for each",
                fix=f"name the column that holds what `{role}` says",
            )
        roles[name] = role
