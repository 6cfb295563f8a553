"""Read messages of a Protobuf schema, and resolve them to the columns of a reader."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, time
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

    def name(self, record: tuple[_Message, Any]) -> str:
        """The full name of the message."""
        return record[0].name

    def unknown(self, record: tuple[_Message, Any]) -> str | None:
        """The fields that the reader lacks, in Protobuf's mapping to JSON."""
        described, message = record
        if not described.unknown:
            return None
        without_text: list[str] = []
        try:
            found = self._to_json(message)
        # Its library raises many types for what has no text.
        except Exception:
            found, without_text = self._to_json_one_by_one(described, message)
        return registered.unknown_json(
            {n: v for n, v in found.items() if n in described.unknown}, without_text
        )

    def _to_json(self, message: Any) -> dict[str, Any]:
        found: dict[str, Any] = json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=self._pool,
        )
        return found

    def _to_json_one_by_one(
        self, described: _Message, message: Any
    ) -> tuple[dict[str, Any], list[str]]:
        """The fields that have a text, and the names of the others."""
        found: dict[str, Any] = {}
        without_text = []
        for name in sorted(described.unknown):
            one = described.make()
            one.CopyFrom(message)
            for other in described.names - {name}:
                one.ClearField(other)
            try:
                found |= {n: v for n, v in self._to_json(one).items() if n == name}
            except Exception:
                without_text.append(name)
        return found, without_text


class _Message:
    """A message of the schema: how to make it, and how to read its fields."""

    def __init__(self, described: Descriptor, row: pa.Schema) -> None:
        self.make: Any = message_factory.GetMessageClass(described)
        names = described.fields_by_name
        self.fields = {p.name: _read_field(names[p.name], p.type) for p in row if p.name in names}
        self.name: str = described.full_name
        self.names = frozenset(names)
        self.unknown = self.names - frozenset(row.names)


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
    if isinstance(
        field.default_value, list
    ):  # Protobuf 5 lacks `is_repeated`, and 7 warns of `label`
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
            # As keys of text, others have the text that they have in JSON.
            is_text = key.type != _TYPES.TYPE_STRING and types.is_string(dtype.key_type)
            to_key = json.dumps if is_text else _resolve(key, dtype.key_type)
            convert = registered.in_map(_resolve(value, dtype.item_type), dtype, to_key)
    elif types.is_list(dtype):
        # A list of its own, because Arrow takes no other sequences.
        convert = registered.in_list(_resolve(field, dtype.value_type), dtype) or list
    return lambda message: convert(getattr(message, name))


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
    return registered.divided(1_000)(int(message.seconds * registered.NANOS + message.nanos))


def _instant(message: Any) -> int:
    """The microseconds of a Timestamp, which is in the years 1 to 9999."""
    is_second = registered.FIRST_SECOND <= message.seconds <= registered.LAST_SECOND
    if not is_second or not 0 <= message.nanos < registered.NANOS:
        refuse(message)
    return _micros(message)


def _duration(message: Any) -> int:
    """The microseconds of a Duration, of at most 10,000 years and with one sign."""
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _MAX_SECONDS or abs(nanos) >= registered.NANOS or seconds * nanos < 0:
        refuse(message)
    return _micros(message)


def _days(message: Any) -> date:
    """The day of a Date, which must not lack its month or its day."""
    return date(message.year, message.month, message.day)


def _time_of_day(message: Any) -> int:
    """The nanoseconds of a TimeOfDay."""
    micros = registered.divided(1_000)(message.nanos)
    found = time(message.hours, message.minutes, message.seconds, micros)
    seconds = (found.hour * 60 + found.minute) * 60 + found.second
    return seconds * registered.NANOS + micros * 1_000


_MAX_SECONDS = 315_576_000_000
_WELL_KNOWN: dict[str, tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": (registered.is_instant, _instant),
    "google.protobuf.Duration": (pa.types.is_duration, _duration),
    "google.type.Date": (pa.types.is_date32, _days),
    "google.type.TimeOfDay": (pa.types.is_time64, _time_of_day),
    "confluent.type.Decimal": (
        pa.types.is_decimal,
        lambda message: registered.to_decimal(message.value, message.scale),
    ),
}
