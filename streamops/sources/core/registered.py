"""Decode records in the wire format of a schema registry, and resolve them to a reader's columns.

A record starts with a zero byte and the id of its writer's schema in four bytes. The records of an
id are decoded together, by a reader that is built once per schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[Any], Any] | None
"""A function of a value that is not null; None if the value is passed on as it is."""

HEADER_BYTES = 5
MAX_PRECISION = 76
WITHOUT_TEXT = "$without_text"
"""The member of ``unknown`` that lists fields. No field of Avro or Protobuf has a name with a dollar."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999."""
SECONDS_OF_DAY = 86_400
NANOS = 1_000_000_000
_MAX_DECIMAL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Written:
    """A schema of the registry, with the schemas that it refers to.

    Parameters
    ----------
    format : str
        "AVRO", "PROTOBUF" or "JSON".
    text : str
        The schema; of Protobuf a FileDescriptorProto in base64.
    references : mapping of str to str
        The schemas that it refers to by name, each behind those that it refers to itself.
    """

    format: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


class Unfit(ValueError):
    """A value that a type of the reader does not have."""


class Unparsable(ValueError):
    """Bytes that are not a record of their schema."""


class Reader(Protocol):
    """Decodes the records of one writer's schema."""

    unparsable: str
    """The reason for which bytes are rejected that are not a record."""

    def parse(self, payload: bytes) -> Any:
        """The record of the bytes behind the header; any exception if they are not one."""

    def column(self, records: Sequence[Any], name: str, default: Any) -> tuple[list[Any], Convert]:
        """The values of a field and how to convert them; the default where the writer lacks it."""

    def name(self, record: Any) -> str:
        """The full name of the record in its schema, which may have several."""

    def unknown(self, record: Any) -> str | None:
        """The fields of the record that the reader lacks, as JSON; None if there are none.

        It names the fields that have no text in JSON. They are no reason to reject the record.
        """


Lookup = Callable[[int], Reader | str | None]
"""The reader of a schema by its id: "JSON" if the value is JSON, None if there is no such schema."""


def refuse(value: Any) -> NoReturn:
    """Raise an error for any value: the writer's type is not one that the column takes."""
    raise Unfit(type(value).__name__)


def from_int(dtype: pa.DataType) -> Convert:
    """An integer as an integer, a float or a decimal that is equal; Arrow refuses one that does not fit."""
    types = pa.types
    if types.is_floating(dtype):
        # Arrow refuses all beyond 2**53, also those that a float has.
        to_float = np.float32 if types.is_float32(dtype) else float
        return lambda value: float(value) if int(to_float(value)) == value else refuse(value)
    return None if types.is_integer(dtype) or types.is_decimal(dtype) else refuse


def from_float(dtype: pa.DataType, *, is_single: bool) -> Convert:
    """A float, as one of its own width or a wider one; a double as a float if it is one."""
    if pa.types.is_float64(dtype) or (is_single and pa.types.is_float32(dtype)):
        return None
    return _to_single if pa.types.is_float32(dtype) else refuse


def from_text(dtype: pa.DataType) -> Convert:
    """Text or bytes, as text or bytes; Arrow refuses bytes that are not UTF-8."""
    return None if pa.types.is_string(dtype) or pa.types.is_binary(dtype) else refuse


def to_decimal(unscaled: bytes, scale: int) -> Decimal:
    """The decimal of an unscaled value in two's complement."""
    if abs(scale) > MAX_PRECISION:
        refuse(unscaled)
    return _to_any_decimal(unscaled, scale)


def decimal_text(unscaled: bytes, scale: int) -> str:
    """The decimal with all digits; with an exponent, if no column has its scale."""
    value = _to_any_decimal(unscaled, scale)
    return f"{value:f}" if abs(scale) <= MAX_PRECISION else f"{value:E}"


def _to_any_decimal(unscaled: bytes, scale: int) -> Decimal:
    if len(unscaled) > _MAX_DECIMAL_BYTES:
        refuse(unscaled)
    value = Decimal(int.from_bytes(unscaled, "big", signed=True))
    sign, digits, _ = value.as_tuple()
    return Decimal((sign, digits, -scale))


def unknown_json(found: Mapping[str, Any], without_text: Sequence[str]) -> str:
    """The fields that the reader lacks, and the names of those that have no text in JSON."""
    named = {WITHOUT_TEXT: list(without_text)} if without_text else {}
    return json.dumps({**found, **named}, ensure_ascii=False, separators=(",", ":"))


def is_instant(dtype: pa.DataType) -> bool:
    """Whether the type is a timestamp with a zone."""
    return bool(pa.types.is_timestamp(dtype) and dtype.tz)


def is_local(dtype: pa.DataType) -> bool:
    """Whether the type is a timestamp without a zone."""
    return bool(pa.types.is_timestamp(dtype) and not dtype.tz)


def times(factor: int) -> Convert:
    """A number of a coarser unit."""
    return None if factor == 1 else lambda value: value * factor


def time_of_day(factor: int) -> Callable[[int], int]:
    """The nanoseconds of a time of day, of a number of a coarser unit."""

    def convert(value: int) -> int:
        return value * factor if 0 <= value * factor < SECONDS_OF_DAY * NANOS else refuse(value)

    return convert


def divided(divisor: int) -> Callable[[int], int]:
    """A number of a finer unit, if nothing is cut."""

    def convert(value: int) -> int:
        whole, cut = divmod(value, divisor)
        return refuse(value) if cut else whole

    return convert


def within(convert: Convert, nullable: bool) -> Convert:
    """The same for a value inside of another one, which may be null."""
    if convert is None:
        return None if nullable else _require
    if nullable:
        return lambda value: None if value is None else convert(value)
    return lambda value: refuse(value) if value is None else convert(value)


def in_list(convert: Convert, dtype: pa.ListType) -> Convert:
    """A list of values."""
    inner = within(convert, dtype.value_field.nullable)
    return None if inner is None else lambda values: [inner(value) for value in values]


def in_map(
    convert: Convert, dtype: pa.MapType, to_key: Convert = None
) -> Callable[[Any], list[tuple[Any, Any]]]:
    """A map of values."""
    inner = within(convert, dtype.item_field.nullable) or _same
    to_key = to_key or _same
    return lambda values: [(to_key(key), inner(value)) for key, value in values.items()]


def _same(value: Any) -> Any:
    return value


def _require(value: Any) -> Any:
    return refuse(value) if value is None else value


def _to_single(value: float) -> float:
    with np.errstate(over="ignore"):
        return value if value != value or float(np.float32(value)) == value else refuse(value)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the values of a topic to the columns of a reader.

    Parameters
    ----------
    row : Schema
        The columns. One that is not nullable must be present, and not null.
    defaults : mapping of str to value
        By column: the value where the writer lacks the field; null for others.
    keeps_unknown : bool
        Whether the fields that the reader lacks are returned.
    lookup : callable
        The reader of a schema, by its id.
    """

    row: pa.Schema
    defaults: Mapping[str, Any]
    keeps_unknown: bool
    lookup: Lookup

    def decode(self, values: pa.Array) -> pa.StructArray:
        """Decode values.

        Returns
        -------
        StructArray
            For each value: ``c0``, ``c1``, ... (the columns) · ``reason``: string, for which it is
            rejected · ``schema_id``: int · ``is_json``: bool, if the columns are still to be read
            behind the header · ``unknown``, ``record``: string.
        """
        if pa.types.is_large_binary(values.type):
            values = values.cast(pa.binary())
        headers = pc.binary_slice(values, 0, HEADER_BYTES).dictionary_encode()
        codes = headers.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(-1, len(headers.dictionary) + 1))
        parts = []
        for header, first, end in zip(
            [None, *headers.dictionary.to_pylist()], bounds, bounds[1:], strict=False
        ):
            if first < end:
                parts.append(self._decode_group(header, values.take(pa.array(order[first:end]))))
        if not parts:
            return pa.array([], self.type)
        found = pa.concat_arrays(parts)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return found.take(pa.array(inverse))

    @property
    def type(self) -> pa.StructType:
        """The type of the result."""
        columns = [(f"c{n}", part.type) for n, part in enumerate(self.row)]
        others = [("reason", pa.string()), ("schema_id", pa.int32()), ("is_json", pa.bool_())]
        return pa.struct([*columns, *others, ("unknown", pa.string()), ("record", pa.string())])

    def _decode_group(self, header: bytes | None, values: pa.Array) -> pa.StructArray:
        """Decode values with the same header."""
        if header is None:
            return pa.nulls(len(values), self.type)
        if len(header) < HEADER_BYTES or header[0]:
            return self._without_columns(len(values), reason="unknown_schema", is_json=False)
        number = int.from_bytes(header[1:], "big", signed=True)
        reader = self.lookup(number)
        if reader is None or isinstance(reader, str):
            reason = "unknown_schema" if reader is None else None
            return self._without_columns(
                len(values), reason=reason, schema_id=number, is_json=reader == "JSON"
            )
        return self._read(reader, number, [value[HEADER_BYTES:] for value in values.to_pylist()])

    def _without_columns(self, count: int, **facts: Any) -> pa.StructArray:
        columns = [
            pa.repeat(pa.scalar(facts.get(part.name), part.type), count) for part in self.type
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _read(self, reader: Reader, number: int, payloads: Sequence[bytes]) -> pa.StructArray:
        records = []
        reasons = np.full(len(payloads), None, dtype=object)
        for n, payload in enumerate(payloads):
            try:
                records.append(reader.parse(payload))
            except MemoryError:  # of the worker, and not of the record
                raise
            # Libraries raise many types for bytes that somebody else wrote.
            except Exception:
                reasons[n] = reader.unparsable
        parsed = np.array([n for n, reason in enumerate(reasons) if reason is None], np.int64)
        is_wrong = np.zeros(len(records), bool)
        is_missing = np.zeros(len(records), bool)
        columns = []
        for part in self.row:
            found = reader.column(records, part.name, self.defaults.get(part.name))
            column, wrong = build(*found, part.type)
            is_wrong |= wrong
            if not part.nullable:
                is_missing |= column.is_null().to_numpy(zero_copy_only=False) & ~wrong
            columns.append(column)
        reasons[parsed[is_missing]] = "missing_field"
        reasons[parsed[is_wrong]] = "wrong_type"
        # Null for a record that was not parsed.
        spread = np.full(len(payloads), -1)
        spread[parsed] = np.arange(len(parsed))
        at = pa.array(spread, mask=spread < 0)
        facts = [
            pa.array(reasons, pa.string()),
            pa.repeat(pa.scalar(number, pa.int32()), len(payloads)),
            pa.repeat(pa.scalar(False), len(payloads)),
        ]
        unknown = map(reader.unknown, records) if self.keeps_unknown else [None] * len(records)
        columns += [
            pa.array(unknown, pa.string()),
            pa.array(map(reader.name, records), pa.string()),
        ]
        *spread_columns, others, names = [column.take(at) for column in columns]
        return pa.StructArray.from_arrays(
            [*spread_columns, *facts, others, names], fields=list(self.type)
        )


def build(values: list[Any], convert: Convert, dtype: pa.DataType) -> tuple[pa.Array, Any]:
    """The column of the values, null where one does not fit, and which do not."""
    wrong = np.zeros(len(values), bool)
    inner = within(convert, nullable=True)
    try:
        return pa.array(values if inner is None else map(inner, values), dtype), wrong
    except (Unfit, pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # which one it is, is found one by one
    fitting = []
    for n, value in enumerate(values):
        try:
            fitting.append(pa.array([value if inner is None else inner(value)], dtype))
        except (Unfit, pa.ArrowException, OverflowError, TypeError, ValueError):
            wrong[n] = True
            fitting.append(pa.nulls(1, dtype))
    return pa.concat_arrays(fitting), wrong
