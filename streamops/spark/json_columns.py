"""Write columns as JSON, and read them from JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from streamops.kernel.versions import is_valid_utf8, parse_type, try_cast
from streamops.spark import conditions
from streamops.spark.columns import VARIANT, contains_type, fields_by_position, map_type, quote

OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_INVALID = "invalid UTF-8"  # which is no JSON


def to_json(value: Column, dtype: DataType, *, with_nulls: bool = True) -> Column:
    """A struct, an array or a map as JSON.

    Spark replaces bytes that are not UTF-8 by U+FFFD; see :func:`to_checked_json`.

    Parameters
    ----------
    value : Column
    dtype : DataType
        Its type.
    with_nulls : bool
        Whether fields that are null are written.
    """
    options = OPTIONS | ({} if with_nulls else {"ignoreNullFields": "true"})
    return F.to_json(_with_text_keys(value, dtype), options)


def exact_json(name: str, *, is_map: bool) -> str:
    """The expression by which users make text of a nested column: without options, Spark cuts values.

    Examples
    --------
    >>> exact_json("a", is_map=True).partition(", ")[0]
    "F.to_json(F.map_entries('a')"
    """
    # In JSON, a map with keys that are dates or binary has other ones.
    value = repr(name if name.isidentifier() else quote(name))
    value = f"F.map_entries({value})" if is_map else value
    return f"F.to_json({value}, {OPTIONS})"


def to_checked_json(value: Column, dtype: DataType) -> Column:
    """The same, for :func:`refuse_invalid_text`.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``: a struct has two fields of the same name.
    """
    text, invalid = to_json_and_validity(value, dtype)
    return text if invalid is None else F.when(invalid, F.lit(_INVALID)).otherwise(text)


def to_json_and_validity(value: Column, dtype: DataType) -> tuple[Column, Column | None]:
    """The JSON, and whether a string in it is not UTF-8: None if there is no string.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``: a struct has two fields of the same name.
    """
    if contains_type(dtype, _has_equal_names):
        raise conditions.TWO_FIELDS_OF_A_NAME.error(got=dtype.simpleString())
    return to_json(value, dtype), _has_invalid_text(value, dtype)


def refuse_invalid_text(rows: pa.Table, names: list[str]) -> None:
    """Refuse columns of checked JSON in which a string is not UTF-8.

    Raises
    ------
    SinkError
        ``TARGET_REFUSED``.
    """
    for name in names:
        if pc.any(pc.equal(rows.column(name), pa.scalar(_INVALID))).as_py():
            raise conditions.TARGET_REFUSED.error(got=f"a string inside of {name!r}")


def _has_equal_names(dtype: DataType) -> bool:
    return isinstance(dtype, StructType) and len(set(dtype.names)) < len(dtype.names)


def _with_text_keys(value: Column, dtype: DataType) -> Column:
    """The value with maps that have strings as keys, in their order: Spark writes other keys as it stores them."""
    if not contains_type(dtype, lambda part: isinstance(part, MapType)):
        return value
    match dtype:
        case ArrayType():
            return F.transform(value, lambda item: _with_text_keys(item, dtype.elementType))
        case MapType():
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    text_in_json(entry["key"], dtype.keyType).alias("key"),
                    _with_text_keys(entry["value"], dtype.valueType).alias("value"),
                ),
            )
            return F.map_from_entries(F.array_sort(entries, _compare_keys))
    assert isinstance(dtype, StructType), dtype
    parts = zip(fields_by_position(value, dtype), dtype.names, strict=True)
    fields = [_with_text_keys(part, inner).alias(name) for (part, inner), name in parts]
    return F.when(value.isNotNull(), F.struct(*fields))


def _compare_keys(left: Column, right: Column) -> Column:
    before = F.when(left["key"] < right["key"], -1)
    return before.when(left["key"] > right["key"], 1).otherwise(0)


def text_in_json(key: Column, dtype: DataType) -> Column:
    """The text that the key has as a value of JSON, without quotes."""
    if isinstance(dtype, StringType):
        return key.cast("string")  # without its collation
    text = F.to_json(F.struct(key.alias("k")), OPTIONS)
    value = text.substr(F.lit(len('{"k":') + 1), F.length(text) - len('{"k":}'))
    return F.btrim(value, F.lit('"'))


def _has_invalid_text(value: Column, dtype: DataType) -> Column | None:
    """Whether a string inside of the value is not UTF-8; None if there is no string."""

    def any_of(items: Column, inner: DataType) -> Column | None:
        if not contains_type(inner, lambda part: isinstance(part, StringType)):
            return None
        check: Any = lambda item: _has_invalid_text(item, inner)  # noqa: E731
        return F.coalesce(F.exists(items, check), F.lit(False))

    match dtype:
        case StringType():
            return F.coalesce(~is_valid_utf8(value), F.lit(False))
        case ArrayType():
            return any_of(value, dtype.elementType)
        case MapType():
            found = [
                any_of(F.map_keys(value), dtype.keyType),
                any_of(F.map_values(value), dtype.valueType),
            ]
        case StructType():
            found = [_has_invalid_text(*part) for part in fields_by_position(value, dtype)]
        case _:
            return None
    present = [part for part in found if part is not None]
    return reduce(Column.__or__, present) if present else None


# Two characters that no text has: control characters without a meaning, also in Windows-1252. A record
# with both is refused.
_MARK = "\u0081\u0090"
_TOKEN, _TEXT, _END = f"{_MARK}#", f"{_MARK}'", f"{_MARK}."
_IS_MARKED = "(?:\u0081|\\\\u0081)(?:\u0090|\\\\u0090)"
_LONE_SURROGATE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
# Possessive quantifiers, which Java matches without recursion: records may be long.
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_NEXT_TOKEN = rf'\G((?:[^"\-0-9tf]++|{_QUOTED})*+)({_NUMBER}|true|false)(?=[\s,\]}}])'
# The quote before a text that begins like an array or an object, and is not a name.
_LIKE_JSON = r'(?<!\\)"(?=[\[{\\](?:[^"\\]++|\\.)*+"\s*+[^:\s])'
_OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

_WITHOUT_ZONE = r"(?i)\btimestamp(_ntz\b|\s+without\s+time\s+zone\b)"

_DATE = r"(?:[0-9]{4}|[+-][0-9]{4,6})-[0-9]{2}-[0-9]{2}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.(?=[0-9])[0-9]{0,%d}0*)?)?"
_ZONE = r"(?:[Zz]|[+-][0-9]{2}(?::?[0-5][0-9])?)"
_LOCAL = rf"\A{_DATE}(?:[Tt ]{_CLOCK % 6})?\z"
_ZONED = rf"\A{_DATE}[Tt ]{_CLOCK % 6}{_ZONE}\z"
_BASE64 = (
    r"\A(?:[A-Za-z0-9+/]{4})*+"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?\z"
)
_NONZERO = r"\A-?[0.]*[1-9]"


def parse_row_type(schema: str | StructType) -> StructType:
    """The type of a row, with strings of any length, and of types that JSON has.

    Raises
    ------
    SpecError
        ``INVALID_SCHEMA`` or ``TYPE_UNSUPPORTED``.
    """
    row: Any = schema
    reason = ""
    if isinstance(schema, str) and schema.strip():
        try:
            row = _parse_ddl(schema)
        except Exception as error:  # PySpark's own error type moved between releases
            reason = ": " + str(error).strip().partition("\n")[0]
    if not isinstance(row, StructType) or not row.fields:
        raise conditions.NOT_A_SCHEMA.error(got=f"schema={schema!r}{reason}")
    result = map_type(
        row, lambda leaf: StringType() if isinstance(leaf, T.CharType | T.VarcharType) else leaf
    )
    assert isinstance(result, StructType)
    for part in result.fields:
        if not _has_text_keys(part.dataType):
            raise conditions.KEYS_NOT_TEXT.error(
                column=part.name, got=f"{part.name!r} of type {part.dataType.simpleString()}"
            )
    return result


def _parse_ddl(schema: str) -> DataType:
    """The type, in which ``timestamp`` is an instant whatever ``spark.sql.timestampType`` is."""
    read = parse_type(schema)
    if not contains_type(read, lambda part: isinstance(part, T.TimestampNTZType)):
        return read
    others: list[DataType] = []

    def add(leaf: DataType) -> DataType:
        others.append(leaf)
        return leaf

    # The types that are still without a zone are those that the session gives to ``timestamp``.
    map_type(parse_type(re.sub(_WITHOUT_ZONE, "void", schema)), add)
    left = iter(others)
    return map_type(
        read, lambda leaf: T.TimestampType() if isinstance(next(left), T.TimestampNTZType) else leaf
    )


def _has_text_keys(dtype: DataType) -> bool:
    """Whether all maps in the type have strings as keys, as in JSON."""
    return not contains_type(
        dtype, lambda part: isinstance(part, T.MapType) and not isinstance(part.keyType, StringType)
    )


def parse_object(text: Column, *, is_nested: bool = True) -> Column:
    """The members of a record, as marked text by name; null if it is not exactly one JSON object.

    `is_nested` is whether arrays or objects will be read from it. Spark parses the first value only. In a
    list that ends with a mark, text that follows the value is another element, or not JSON.
    """
    marked = F.regexp_replace(text, F.lit(_NEXT_TOKEN), F.lit(f'$1"{_TOKEN}$2"'))
    if is_nested:
        marked = F.regexp_replace(marked, F.lit(_LIKE_JSON), F.lit(f'"{_TEXT}'))
    listed = F.concat(F.lit("["), marked, F.lit(f',{{"{_END}":""}}]'))
    read = F.from_json(F.when(~_is_refused(text), listed), "array<map<string,string>>", _OPTIONS)

    def first(items: Column) -> Column:
        ends = F.map_contains_key(F.get(items, F.lit(1)), _END)
        return _with_distinct_names(F.when(ends, F.get(items, F.lit(0))))

    return _let(read, first)


def parse_members(text: Column) -> Column:
    """The members of an object in marked text; null if it is not one, or has a name twice."""
    read = F.from_json(text, "map<string,string>", _OPTIONS)
    return _let(F.when(F.startswith(text, F.lit("{")), read), _with_distinct_names)


def member(members: Column, name: str) -> Column:
    """The marked text of a member; null if it is null or there is none."""
    return F.try_element_at(members, F.lit(name))


def members_json(members: Column, *, without: Sequence[str]) -> Column:
    """The JSON of the members with other names, from an object parsed as nested; null if there are none."""

    def convert(entries: Column) -> Column:
        texts = F.transform(
            entries,
            lambda entry: F.concat(_quoted(entry["key"]), F.lit(":"), _value_json(entry["value"])),
        )
        joined = F.concat(F.lit("{"), F.array_join(texts, ","), F.lit("}"))
        return F.when(F.array_size(entries) > 0, joined)

    known = F.array(*(F.lit(name) for name in without))
    others = F.map_filter(members, lambda name, _: ~F.array_contains(known, name))
    return _let(F.map_entries(others), convert)


def _value_json(text: Column) -> Column:
    """The JSON of marked text."""
    is_raw = F.startswith(text, F.lit(_TOKEN)) | text.rlike(r"\A[\[{]")
    return (
        F.when(text.isNull(), "null")
        .when(is_raw, plain_text(text))
        .otherwise(_quoted(plain_text(text)))
    )


def _quoted(text: Column) -> Column:
    listed = F.to_json(F.array(text))
    return listed.substr(F.lit(2), F.length(listed) - 2)


def plain_text(text: Column) -> Column:
    """The text of a string, or the JSON of another value, from marked text."""
    is_scalar = F.startswith(text, F.lit(_TOKEN)) | F.startswith(text, F.lit(_TEXT))
    inner = F.regexp_replace(text, F.lit(f'"{_TOKEN}([^"]*+)"'), F.lit("$1"))
    return (
        F.when(~F.contains(text, F.lit(_MARK)), text)
        .when(is_scalar, _token(text))
        .otherwise(F.replace(inner, F.lit(_TEXT), F.lit("")))
    )


def read_value(text: Column, dtype: DataType, *, is_coded: bool = False) -> Column:
    """The value of marked text in its type; null if it is not exactly a value of the type.

    `is_coded` is whether a decimal may be sent as its bytes in base64, which may look like a number.
    """
    token = F.when(F.startswith(text, F.lit(_TOKEN)), _token(text))
    match dtype:
        case StringType():
            return plain_text(text).cast(dtype)
        case T.BooleanType():
            return F.when(token == "true", True).when(token == "false", False)
        case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
            return try_cast(token, dtype)
        case T.FloatType() | T.DoubleType():
            return _read_float(text, token, dtype)
        case T.DecimalType():
            return _read_decimal(text, token, dtype, is_coded)
        case T.TimestampType():
            return read_instant(text)
        case T.TimestampNTZType():
            return F.when(text.rlike(_LOCAL), try_cast(_complete(text), dtype))
        case T.DateType():
            return F.when(text.rlike(rf"\A{_DATE}\z"), try_cast(text, dtype))
        case T.BinaryType():
            return F.when(text.rlike(_BASE64), F.unbase64(text))
        case _ if isinstance(dtype, VARIANT):
            return _read_variant(text, token)
        case T.NullType():
            return F.lit(None)
        case T.ArrayType():
            return _read_array(text, dtype, is_coded)
        case T.MapType():
            return _read_map(text, dtype, is_coded)
        case StructType():
            return _read_struct(text, dtype, is_coded)
    if dtype.typeName().startswith("time"):
        precision = getattr(dtype, "precision", 6)
        return F.when(text.rlike(rf"\A{_CLOCK % precision}\z"), try_cast(text, dtype))
    # Spark cuts digits beyond microseconds.
    is_exact = text.rlike(r"\A[-+A-Za-z0-9:.' ]+\z") & ~text.rlike(r"\.[0-9]{6}0*[1-9]")
    return F.when(is_exact, try_cast(text, dtype))


def read_instant(text: Column) -> Column:
    """The instant of a text in ISO 8601; null if it is not one.

    Without a zone it is in that of the session; null for a time that the zone skips.
    """
    complete = _complete(text)
    local = try_cast(complete, "timestamp_ntz")
    instant = try_cast(complete, "timestamp_ltz")
    return F.when(text.rlike(_ZONED), instant).when(
        text.rlike(_LOCAL) & (instant.cast("timestamp_ntz") == local), instant
    )


def _complete(text: Column) -> Column:
    """The text of a time in the notation of Spark: with seconds, in upper case."""
    short = F.regexp_replace(F.upper(text), r"([T ][0-9]{2}:[0-9]{2})(?!:)", "$1:00")
    return F.when(text.rlike(r"[T ][0-9]{2}:[0-9]{2}:[^z]*\z"), text).otherwise(short)


def _read_float(text: Column, token: Column, dtype: DataType) -> Column:
    """The nearest float, or one of the three names that JSON has no numbers for."""
    value = try_cast(token, dtype)
    is_infinite = F.abs(value) == F.lit(float("inf"))
    vanishes = (value == F.lit(0.0)) & token.rlike(_NONZERO)
    return F.when(~is_infinite & ~vanishes, value).when(
        text.isin("NaN", "Infinity", "-Infinity"), try_cast(text, dtype)
    )


def _read_decimal(text: Column, token: Column, dtype: T.DecimalType, is_coded: bool) -> Column:
    """The decimal, if no digit is lost: of a number, or of a text that cannot be bytes in base64."""
    is_number = text.rlike(rf"\A{_NUMBER}\z")
    number = F.when(is_number & ~text.rlike(_BASE64) if is_coded else is_number, text)
    number = F.coalesce(token, number)
    value = try_cast(number, dtype)
    is_plain = number.rlike(rf"\A-?[0-9]+(\.[0-9]{{0,{dtype.scale}}}0*)?\z")
    # Of 1200e-3, the exponent less the zeros at the end, plus the digits after the point: one.
    digits = F.regexp_replace(F.regexp_extract(number, r"\A([^eE]*)", 1), r"[-.]", "")
    zeros = F.length(F.regexp_extract(digits, "(0*)$", 1))
    decimals = F.length(F.regexp_extract(number, r"\.([0-9]*)", 1))
    exponent = try_cast(F.regexp_extract(number, r"[eE](.*)", 1), "int").cast("bigint")
    is_exact = (decimals - zeros - exponent <= dtype.scale) | ~digits.rlike("[1-9]")
    return F.when(is_plain, value).when(number.rlike("[eE]") & is_exact, value)


def _read_variant(text: Column, token: Column) -> Column:
    """The variant, if its numbers have at most the digits and the range that variants have."""
    inner = F.concat(F.lit("["), plain_text(text), F.lit("]"))
    numbers = F.regexp_replace(plain_text(text), _QUOTED, "")
    is_wide = numbers.rlike(
        r"(?:[0-9]\.?){39}|(?:[0-9]\.?){18}[eE]|[eE][+-]?0*(?:[3-9][0-9]{2}|[0-9]{4})"
    )
    value = F.try_variant_get(F.try_parse_json(inner), "$[0]", "variant")
    is_json = token.isNotNull() | text.rlike(r"\A[\[{]")
    return F.when(is_json & ~is_wide, value).when(~is_json, plain_text(text).cast("variant"))


def _read_array(text: Column, dtype: T.ArrayType, is_coded: bool) -> Column:
    read = F.from_json(text, "array<string>", _OPTIONS)

    def convert(items: Column) -> Column:
        converted = F.transform(
            items, lambda item: read_value(item, dtype.elementType, is_coded=is_coded)
        )
        return _if_all_read(converted, items, lambda values: values, dtype.containsNull)

    return _let(F.when(F.startswith(text, F.lit("[")), read), convert)


def _read_map(text: Column, dtype: T.MapType, is_coded: bool) -> Column:
    def convert(members: Column) -> Column:
        converted = F.transform_values(
            members, lambda _, item: read_value(item, dtype.valueType, is_coded=is_coded)
        )
        return _if_all_read(converted, members, F.map_values, dtype.valueContainsNull)

    return _let(parse_members(text), convert).cast(T.MapType(dtype.keyType, dtype.valueType))


def _read_struct(text: Column, dtype: StructType, is_coded: bool) -> Column:
    # By number, because Spark does not tell names apart that differ only in case.
    names = {f"c{number}": field for number, field in enumerate(dtype.fields)}

    def convert(members: Column) -> Column:
        def check(row: Column) -> Column:
            valid = (
                row[name].isNotNull() | (F.lit(f.nullable) & member(members, f.name).isNull())
                for name, f in names.items()
            )
            result = F.struct(*(row[name].alias(f.name) for name, f in names.items()))
            return F.when(reduce(Column.__and__, valid, members.isNotNull()), result)

        parts = (
            read_value(member(members, f.name), f.dataType, is_coded=is_coded).alias(name)
            for name, f in names.items()
        )
        return _let(F.struct(*parts), check)

    return _let(parse_members(text), convert)


def _if_all_read(
    converted: Column, texts: Column, values: Callable[[Column], Column], allows_null: bool
) -> Column:
    def count_nulls(container: Column) -> Column:
        return F.array_size(F.filter(values(container), lambda item: item.isNull()))

    expected = count_nulls(texts) if allows_null else F.lit(0)
    return _let(converted, lambda result: F.when(count_nulls(result) == expected, result))


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """The result for a value that Spark computes once, however often it is used."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _token(text: Column) -> Column:
    """What follows the mark."""
    return F.substring(text, len(_TOKEN) + 1, (1 << 31) - 1)


def _is_refused(text: Column) -> Column:
    """Whether a record has the mark, or escapes that are not characters: Spark would replace them."""
    escapes = F.replace(text, F.lit("\\\\"), F.lit("_"))
    return F.contains(text, F.lit(_MARK)) | (
        F.contains(text, F.lit("\\u")) & (text.rlike(_IS_MARKED) | escapes.rlike(_LONE_SURROGATE))
    )


def _with_distinct_names(members: Column) -> Column:
    names = F.map_keys(members)
    return F.when(F.array_size(F.array_distinct(names)) == F.array_size(names), members)
