"""Files of lines, JSON, CSV and text, as Spark reads them; what it may read otherwise is refused."""

from __future__ import annotations

import codecs
import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
from pyarrow import fs

from streamops.observe import conditions

_FORMATS: dict[str, set[str]] = {
    "parquet": set(), "json": set(), "text": set(), "csv": {"header", "sep", "delimiter"},
}  # fmt: skip
_BREAK = "\r\n|\r|\n"
# Values that Spark and Arrow read equally. Spark has further notations, and nulls for what is none.
_DATE = r"\d{4}-\d{2}-\d{2}"
_INSTANT = rf"^{_DATE}[T ]\d{{2}}:\d{{2}}:\d{{2}}(\.\d{{1,6}})?Z$"


def require_options(format: str, options: Mapping[str, str]) -> None:
    """Refuse a format or an option that only Spark reads."""
    if format not in _FORMATS:
        raise conditions.FORMAT_NEEDS_SPARK.error(
            formats=", ".join(_FORMATS), got=f"format={format!r}"
        )
    unknown = sorted(name for name in options if name.lower() not in _FORMATS[format])
    separator = next((v for k, v in options.items() if k.lower() in ("sep", "delimiter")), ",")
    if unknown or len(separator) != 1 or separator in '"\\\r\n':
        raise conditions.OPTION_NEEDS_SPARK.error(
            format=format, known=", ".join(sorted(_FORMATS[format])) or "none",
            got=f"options {', '.join(unknown)}" if unknown else f"sep={separator!r}",
        )  # fmt: skip


def require_types(format: str, schema: pa.Schema | None) -> None:
    """Refuse columns whose values Spark may read otherwise."""
    if schema is None:
        raise conditions.SCHEMA_REQUIRED.error(format=format, got="schema=None")
    for field in schema:
        if _pattern(field.type) is None and not pa.types.is_string(field.type):
            raise conditions.TYPE_NEEDS_SPARK.error(
                column=field.name, got=f"{field.name} of type {field.type}"
            )


def read_lines(
    system: fs.FileSystem, name: str, format: str, schema: pa.Schema, options: Mapping[str, str]
) -> pa.Table:
    """The rows of a file.

    Raises
    ------
    RequirementError
        ``SOURCE_UNFIT``: it has something that Spark may read otherwise.
    """
    with system.open_input_stream(name, compression="detect") as stream:
        content = stream.read()
    try:
        _require(pa.array([not content.startswith(codecs.BOM_UTF8)]))
        text = pa.array([content], pa.binary()).cast(pa.string())
        lines = pc.list_flatten(pc.split_pattern_regex(text, _BREAK))
        if not len(lines) or lines[-1].as_py() == "":
            lines = lines.slice(0, len(lines) - 1)
        if format == "text":
            return pa.table([lines], names=["value"])
        lines = lines.filter(pc.match_substring_regex(lines, r"[^ \t]"))
        read = _read_json if format == "json" else _read_csv
        table = read(lines, schema, {key.lower(): value for key, value in options.items()})
        return pa.table(
            [_convert(column, field) for column, field in zip(table.columns, schema, strict=True)],
            schema=schema,
        )
    except (pa.ArrowException, ValueError) as error:
        # The text of an error may have a value.
        raise conditions.LINES_NEED_SPARK.error(
            format=format, got=f"{name} ({type(error).__name__})"
        ) from None


def _read_json(lines: pa.Array, schema: pa.Schema, options: Mapping[str, str]) -> pa.Table:
    fields = [
        field if _is_native(field.type) else pa.field(field.name, pa.string()) for field in schema
    ]
    # One object per line: Arrow's reader would accept two of them, or one on two lines.
    _require(pc.match_substring_regex(lines, r"^\s*\{.*\}\s*$"))
    if not len(lines):
        return pa.schema(fields).empty_table()
    parsed = pyarrow.json.read_json(
        _joined(lines),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
        ),
    )
    _require(pa.array([len(parsed) == len(lines)]))
    return parsed.select(schema.names)


def _read_csv(lines: pa.Array, schema: pa.Schema, options: Mapping[str, str]) -> pa.Table:
    # Spark reads quotes and escapes by rules of its own.
    _require(pc.invert(pc.match_substring_regex(lines, r'["\\]|^[\x00-\x20]*$')))
    if options.get("header", "false").lower() == "true":
        lines = lines.slice(1)
    strings = pa.schema([(name, pa.string()) for name in schema.names])
    if not len(lines):
        return strings.empty_table()
    return pyarrow.csv.read_csv(
        _joined(lines),
        read_options=pyarrow.csv.ReadOptions(column_names=schema.names),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=options.get("sep", options.get("delimiter", ",")),
            quote_char=False,
            ignore_empty_lines=False,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=strings, null_values=[""], strings_can_be_null=True
        ),
    )


def _joined(lines: pa.Array) -> io.BytesIO:
    joined = pc.binary_join(
        pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n"
    )
    return io.BytesIO(joined[0].as_buffer())


def _is_native(type_: pa.DataType) -> bool:
    """Whether the reader of JSON reads values of this type, and refuses all others."""
    return not (pa.types.is_date32(type_) or pa.types.is_timestamp(type_))


def _pattern(type_: pa.DataType) -> str | None:
    """What values of a type look like; None if only Spark reads them."""
    if pa.types.is_signed_integer(type_):
        return r"^-?\d+$"
    if pa.types.is_float64(type_):
        return r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"
    if pa.types.is_boolean(type_):
        return "^(true|false)$"
    if pa.types.is_date32(type_):
        return f"^{_DATE}$"
    return _INSTANT if pa.types.is_timestamp(type_) and type_.tz is not None else None


def _convert(column: Any, field: pa.Field) -> Any:
    if column.type == field.type:
        return column
    pattern = _pattern(field.type)
    assert pattern is not None
    _require(pc.match_substring_regex(column, pattern))
    if pa.types.is_timestamp(field.type):
        column = pc.utf8_rtrim(column, "Z").cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return column.cast(field.type)


def _require(fits: Any) -> None:
    if pc.all(fits, min_count=0).as_py() is False:
        message = "a line that Spark may read otherwise"
        raise ValueError(message)
