"""The schemas of a schema registry, and records decoded by them in tasks."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from streamops.kernel.errors import RequirementError, located
from streamops.kernel.parameters import require_package
from streamops.kernel.versions import arrow_udf, in_utc, require_version
from streamops.sources import conditions
from streamops.sources.core.registered import Decoder, Lookup, Reader, Written
from streamops.spark.columns import contains_type, map_type

# Of the client, which retries where no answer or a passing error is returned: for half a minute at most.
_OWN_SETTINGS = {
    "timeout": 10,
    "max.retries": 10,
    "retries.wait.ms": 200,
    "retries.max.wait.ms": 5_000,
}
_PACKAGE = {"package": "confluent-kafka[schemaregistry,avro,protobuf,json]", "extra": "registry"}
_WHERE = "sources.kafka_events"
_NOT_FOUND = (40401, 40402, 40403)  # there is no such subject, version or schema
_FACTS = [
    StructField("reason", T.StringType()),
    StructField("schema_id", T.IntegerType()),
    StructField("is_json", T.BooleanType()),
    StructField("unknown", T.StringType()),
    StructField("record", T.StringType()),
]
_SUPPORTED = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    *(T.DecimalType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
    *(T.ArrayType, T.MapType, T.StructType),
)
_MAX_SCHEMAS = 4_096
_MISSING_SECONDS = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """Settings of the client of a registry. Only the URL is shown."""

    items: tuple[tuple[str, Any], ...]

    @staticmethod
    def parse(registry: object) -> Settings:
        """Parse a URL, or the settings of the client.

        Raises
        ------
        SpecError
            ``PARAMETER_TYPE``, ``PASSWORD_IN_URL`` or ``INVALID_PARAMETER``.
        RequirementError
            ``PACKAGE_MISSING``.
        """
        given = {"url": registry} if isinstance(registry, str) else registry
        if not isinstance(given, Mapping) or not isinstance(given.get("url"), str):
            raise conditions.NOT_A_REGISTRY.error(got=f"a value of type {type(registry).__name__}")
        for url in given["url"].split(","):
            try:
                parts = urlsplit(url.strip())
                is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
            except ValueError:
                is_url = False
            if is_url and "@" in parts.netloc:
                raise conditions.PASSWORD_IN_REGISTRY_URL.error(
                    got="a URL with a user or a password"
                )
            if not is_url:
                raise conditions.NOT_A_REGISTRY.error(got="text that is not such a URL")
        if not all(type(value) in (str, int, float, bool) for value in given.values()):
            raise conditions.NOT_A_REGISTRY_SETTING.error(got=f"settings {', '.join(given)}")
        settings = Settings(tuple(sorted(given.items())))
        settings.open_client().close()
        return settings

    def __repr__(self) -> str:
        others = ", ..." if len(self.items) > 1 else ""
        url = dict(self.items)["url"]
        return f"{{'url': {url!r}{others}}}" if others else repr(url)

    def open_client(self) -> Any:
        """A client, which has not connected yet.

        Raises
        ------
        SpecError
            ``INVALID_PARAMETER``.
        """
        for module in ("fastavro", "google.protobuf", "confluent_kafka.schema_registry"):
            registry = require_package(module, **_PACKAGE)
        try:
            return registry.SchemaRegistryClient({**_OWN_SETTINGS, **dict(self.items)})
        # The texts of its errors may have values.
        except Exception as error:
            names = ", ".join(name for name, _ in self.items)
            raise conditions.NOT_A_REGISTRY_SETTING.error(
                got=f"settings {names} ({type(error).__name__})"
            ) from None


class _NoSchema(LookupError):
    """The registry does not have the schema."""


class _Schemas:
    """The schemas of a registry, by their ids."""

    def __init__(self, settings: Settings) -> None:
        self._client = settings.open_client()
        # The client keeps a schema by its id, in whichever format it was first asked for.
        self._serialized = settings.open_client()
        for client in (self._client, self._serialized):
            weakref.finalize(self, client.close)

    def find(self, number: int) -> Written:
        """The schema of an id, with those that it refers to.

        Raises
        ------
        RequirementError
            ``SOURCE_UNAVAILABLE``: no answer in time, or the registry refuses.
        """
        schema = self._ask(partial(self._client.get_schema, number))
        format, client, form = schema.schema_type or "AVRO", self._client, None
        if format == "PROTOBUF":
            client, form = self._serialized, "serialized"
            schema = self._ask(partial(client.get_schema, number, fmt=form))
        references: dict[str, str] = {}
        for name, text in self._follow(schema, client, form, set()):
            references.setdefault(name, text)
        return Written(format, schema.schema_str or "", references)

    def _follow(
        self, schema: Any, client: Any, form: str | None, seen: set[str]
    ) -> Iterator[tuple[str, str]]:
        """The schemas that a schema refers to, each behind those that it refers to itself."""
        for of in schema.references or ():
            if of.name in seen:
                continue
            seen.add(of.name)
            found = self._ask(partial(client.get_version, of.subject, of.version, True, form))
            yield from self._follow(found.schema, client, form, seen)
            yield of.name, found.schema.schema_str or ""

    def _ask(self, request: Callable[[], Any]) -> Any:
        """An answer of the registry. Errors have no text of the client, which may contain settings."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _NOT_FOUND:
                raise _NoSchema from None
            raise _unavailable(f"HTTP status {error.http_status_code}") from None
        except Exception as error:
            raise _unavailable(type(error).__name__) from None


def _unavailable(got: str) -> RequirementError:
    return conditions.REGISTRY_UNAVAILABLE.error(got=got)


def _make_lookup(settings: Settings, row: pa.Schema) -> Lookup:
    """Readers by the id of their schema, which never changes."""
    schemas = _Schemas(settings)
    missing_until: dict[int, float] = {}

    @lru_cache(maxsize=_MAX_SCHEMAS)
    def find(number: int) -> Reader | str | None:
        return _make_reader(schemas.find(number), row)

    def look_up(number: int) -> Reader | str | None:
        if time.monotonic() < missing_until.get(number, 0.0):
            return None
        try:
            return find(number)
        except _NoSchema:
            if len(missing_until) >= _MAX_SCHEMAS:
                missing_until.clear()
            missing_until[number] = time.monotonic() + _MISSING_SECONDS
            return None

    return look_up


def _make_reader(written: Written, row: pa.Schema) -> Reader | str | None:
    from streamops.sources.core.avro import AvroReader
    from streamops.sources.core.protobuf import ProtobufReader

    if written.format == "PROTOBUF":
        # Older ones have no class by a descriptor, or print other fields.
        require_version("protobuf", "5.26", extra="registry")
    readers: dict[str, Callable[[Written, pa.Schema], Reader]] = {
        "AVRO": AvroReader,
        "PROTOBUF": ProtobufReader,
    }
    if written.format == "JSON":
        return "JSON"
    try:
        return readers[written.format](written, row)
    # Libraries raise many types for schemas that somebody else wrote.
    except Exception:
        return None


def decoded_types(row: StructType) -> pa.Schema:
    """The types of a row in Arrow.

    Raises
    ------
    SchemaError
        ``TYPE_UNSUPPORTED``.
    """
    for part in row.fields:
        if contains_type(part.dataType, _is_unsupported):
            raise conditions.NOT_A_DECODED_TYPE.error(
                column=part.name, got=part.dataType.simpleString()
            )
    return pa.schema(
        [
            pa.field(
                part.name, to_arrow_type(part.dataType, **in_utc(to_arrow_type)), part.nullable
            )
            for part in row.fields
        ]
    )


def _is_unsupported(dtype: DataType) -> bool:
    if isinstance(dtype, T.DayTimeIntervalType):
        return dtype != T.DayTimeIntervalType()
    if isinstance(dtype, T.StringType):
        return dtype != T.StringType()  # one with a collation
    if dtype.simpleString().startswith("time("):
        return dtype.simpleString() != "time(6)"
    return not isinstance(dtype, _SUPPORTED)


def parse_defaults(defaults: Mapping[str, Any], row: pa.Schema) -> dict[str, Any]:
    """The defaults, each of which must be exactly a value of its column.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.
    """
    for name, value in defaults.items():
        dtype = row.field(name).type if name in row.names else pa.null()
        is_float = isinstance(value, float) and pa.types.is_floating(dtype)
        try:
            is_value = pa.scalar(value, dtype).as_py() == value or is_float
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            is_value = False
        if not is_value or value is None or pa.types.is_nested(dtype):
            raise conditions.NOT_A_DEFAULT.error(column=name, got=f"{name}={value!r}")
    return dict(defaults)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How tasks decode records. Equal ones share the client and the schemas of a worker process."""

    settings: Settings
    row: pa.Schema
    defaults: tuple[tuple[str, Any], ...]
    keeps_unknown: bool

    def __hash__(self) -> int:
        return hash((self.settings, self.keeps_unknown, tuple(self.row.names)))

    def apply(self, value: Column, row: StructType) -> Column:
        """A struct with the columns of the row as c0, c1, ..., and what is known of the record."""
        columns = [
            StructField(f"c{n}", map_type(part.dataType, relax=True)) for n, part in enumerate(row)
        ]
        decode: Any = arrow_udf(self.decode, StructType([*columns, *_FACTS]), None)
        decoded: Column = decode.asNondeterministic()(value.cast("binary"))  # or Spark repeats it
        return decoded

    @located(_WHERE)
    def decode(self, values: pa.Array) -> pa.Array:
        """Decode values, in a task."""
        return _decoder(self).decode(values)


@lru_cache(maxsize=32)
def _decoder(decoding: Decoding) -> Decoder:
    lookup = _make_lookup(decoding.settings, decoding.row)
    return Decoder(decoding.row, dict(decoding.defaults), decoding.keeps_unknown, lookup)
