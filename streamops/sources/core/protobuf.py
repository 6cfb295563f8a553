"""Read messages of a Protobuf schema, and resolve them to the columns of a reader."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from operator import attrgetter
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry.common.protobuf import _init_pool
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from streamops.sources.core import registered
from streamops.sources.core.registered import Convert, Unparsable, Written, refuse

_MAIN = "streamops/main.proto"
_TYPES = FieldDescriptor
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_FIRST = (0,)
_MAX_INDEXES = 32


class ProtobufReader:
    """Decodes the messages of a Protobuf schema.

    Raises
    ------
    Exception
        The schema cannot be parsed.
    """

    unparsable = "unparsable_protobuf"

    def __init__(self, written: Written, row: pa.Schema) -> None:
        """Parse the schema. The fields of a message are resolved once it is met."""
        self._pool = DescriptorPool()
        _init_pool(self._pool)
        for name, text in written.references.items():
            self._add(name, text)
        self._file = self._add(_MAIN, written.text)
        self._row = row
        self._messages: dict[tuple[int, ...], _Message] = {}

    def _add(self, name: str, text: str) -> Any:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        file.name = name
        self._pool.Add(file)
        self._pool.FindFileByName(name)  # refuses one whose types are not there
        return file

    def parse(self, payload: bytes) -> tuple[_Message, Any]:
        """The message, which may be any of the schema."""
        indexes, start = _read_indexes(payload)
        message = self._messages.get(indexes)
        if message is None:
            message = self._messages[indexes] = self._find(indexes)
        return message, message.make.FromString(payload[start:])

    def _find(self, indexes: tuple[int, ...]) -> _Message:
        """The message at its position in the schema."""
        within, name = self._file.message_type, self._file.package
        for index in indexes:
            found = within[index]
            within, name = found.nested_type, f"{name}.{found.name}".lstrip(".")
        return _Message(self._pool.FindMessageTypeByName(name), self._row)

    def column(self, records: Sequence[Any], name: str, default: Any) -> tuple[list[Any], Convert]:
        """The values of a field, converted where they are read."""

        def read(record: tuple[_Message, Any]) -> Any:
            field = record[0].fields.get(name)
            return default if field is None else field(record[1])

        return list(records), read

    def unknown(self, record: tuple[_Message, Any]) -> str | None:
        """The fields that the reader lacks, in Protobuf's mapping to JSON."""
        described, message = record
        if not described.unknown:
            return None
        found = json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=self._pool,
        )
        return json.dumps(
            {n: v for n, v in found.items() if n in described.unknown},
            ensure_ascii=False,
            separators=(",", ":"),
        )


class _Message:
    """A message of the schema: how to make it, and how to read its fields."""

    def __init__(self, described: Descriptor, row: pa.Schema) -> None:
        self.make: Any = message_factory.GetMessageClass(described)
        names = described.fields_by_name
        self.fields = {p.name: _read_field(names[p.name], p.type) for p in row if p.name in names}
        self.unknown = frozenset(names) - frozenset(row.names)


def _read_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Where the message is in its schema, and where its bytes begin."""
    if payload[0] == 0:
        return _FIRST, 1
    at = 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 28:
                raise Unparsable("an index of more than 32 bits")

    count = read()
    if not 0 < count <= _MAX_INDEXES:
        raise Unparsable("not a number of indexes")
    indexes = tuple(read() for _ in range(count))
    if min(indexes) < 0:
        raise Unparsable("a negative index")
    return indexes, at


def _read_field(field: FieldDescriptor, dtype: pa.DataType) -> Callable[[Any], Any]:
    """How to read a field of a message as a type of the reader; None where it is absent."""
    name = field.name
    if field.is_repeated:
        return _read_repeated(field, dtype)
    convert = _resolve(field, dtype)
    if not field.has_presence:
        if convert is None:
            return attrgetter(name)
        return lambda message: convert(getattr(message, name))
    absent = field.default_value if field.has_default_value else None

    def read(message: Any) -> Any:
        value = getattr(message, name) if message.HasField(name) else absent
        return value if value is None or convert is None else convert(value)

    return read


def _read_repeated(field: FieldDescriptor, dtype: pa.DataType) -> Callable[[Any], Any]:
    """How to read a list or a map."""
    name, types = field.name, pa.types
    entry = field.message_type
    convert: Callable[[Any], Any] = refuse
    if entry is not None and entry.GetOptions().map_entry:
        if types.is_map(dtype):
            key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
            convert = registered.in_map(_resolve(value, dtype.item_type), dtype)
            if key.type != _TYPES.TYPE_STRING:
                return lambda message: convert(_with_text_keys(getattr(message, name)))
    elif types.is_list(dtype):
        # A list of its own, because Arrow takes no other sequences.
        convert = registered.in_list(_resolve(field, dtype.value_type), dtype) or list
    return lambda message: convert(getattr(message, name))


def _with_text_keys(items: Mapping[Any, Any]) -> dict[str, Any]:
    """The map, with the text that its keys have in JSON."""
    return {json.dumps(key): value for key, value in items.items()}


def _resolve(field: FieldDescriptor, dtype: pa.DataType) -> Convert:
    """How to convert one value of a field to a type of the reader."""
    types = pa.types
    match field.type:
        case _TYPES.TYPE_BOOL:
            return None if types.is_boolean(dtype) else refuse
        case _TYPES.TYPE_FLOAT | _TYPES.TYPE_DOUBLE:
            return registered.from_float(dtype, is_single=field.type == _TYPES.TYPE_FLOAT)
        case _TYPES.TYPE_STRING | _TYPES.TYPE_BYTES:
            return registered.from_text(dtype)
        case _TYPES.TYPE_ENUM:
            if not types.is_string(dtype):
                return registered.from_int(dtype)
            names = {number: of.name for number, of in field.enum_type.values_by_number.items()}
            return lambda number: names[number] if number in names else refuse(number)
        case _TYPES.TYPE_MESSAGE | _TYPES.TYPE_GROUP:
            return _resolve_message(field.message_type, dtype)
    return registered.from_int(dtype)


def _resolve_message(described: Descriptor, dtype: pa.DataType) -> Convert:
    known = _WELL_KNOWN.get(described.full_name)
    if known is not None and known[0](dtype):
        return known[1]
    if described.full_name in _WRAPPERS and not pa.types.is_struct(dtype):
        return _read_field(described.fields_by_name["value"], dtype)
    if not pa.types.is_struct(dtype):
        return refuse
    reads = {}
    for part in dtype:
        field = described.fields_by_name.get(part.name)
        if field is not None:
            reads[part.name] = _checked(_read_field(field, part.type), part.nullable)
        elif not part.nullable:
            return refuse
    return lambda message: {name: read(message) for name, read in reads.items()}


def _checked(read: Callable[[Any], Any], nullable: bool) -> Callable[[Any], Any]:
    if nullable:
        return read

    def read_present(message: Any) -> Any:
        value = read(message)
        return refuse(value) if value is None else value

    return read_present


def _micros(message: Any) -> int:
    """The microseconds of a Timestamp or a Duration."""
    if abs(message.nanos) > _NANOS - 1 or message.nanos % 1_000:
        refuse(message)
    return int(message.seconds * 1_000_000 + message.nanos // 1_000)


def _days(message: Any) -> date:
    """The day of a Date, which must not lack its month or its day."""
    return date(message.year, message.month, message.day)


def _time_of_day(message: Any) -> int:
    """The nanoseconds of a TimeOfDay."""
    seconds = (message.hours * 60 + message.minutes) * 60 + message.seconds
    if not 0 <= seconds < _SECONDS_OF_DAY or not 0 <= message.nanos < _NANOS:
        refuse(message)
    return registered.divided(1_000)(seconds * _NANOS + message.nanos) * 1_000


_NANOS = 1_000_000_000
_SECONDS_OF_DAY = 86_400
_WELL_KNOWN: dict[str, tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": (registered.is_instant, _micros),
    "google.protobuf.Duration": (pa.types.is_duration, _micros),
    "google.type.Date": (pa.types.is_date32, _days),
    "google.type.TimeOfDay": (pa.types.is_time64, _time_of_day),
    "confluent.type.Decimal": (
        pa.types.is_decimal,
        lambda message: registered.to_decimal(message.value, message.scale),
    ),
}
