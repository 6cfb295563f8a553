"""Parse the records of a Kafka topic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructType,
)

from streamops.changelog.table import REJECTED, TOMBSTONE
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import (
    parse_distinct_names,
    refuse_taken_names,
    require_columns,
)
from streamops.kernel.versions import try_validate_utf8
from streamops.sources import conditions
from streamops.sources.registry import Decoding, Settings, decoded_types, parse_defaults
from streamops.spark.columns import VARIANT, column, make_nullable
from streamops.spark.json_columns import (
    member,
    members_json,
    parse_object,
    parse_row_type,
    read_value,
)
from streamops.spark.operator import Operator

Format = Literal["json", "avro"]
Tombstones = Literal["route", "keep", "drop"]
UnknownFields = Literal["drop", "keep"]

REASONS = (
    "null_value",
    "unknown_schema",
    "unparsable_json",
    "unparsable_avro",
    "unparsable_protobuf",
    "wrong_type",
    "missing_field",
)
"""Reasons for which a record is rejected, by precedence."""

POSITION = {name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp")}
"""Where a record is: columns of Spark's Kafka source, and their names in the result."""

UNKNOWN = "unknown"
"""The column with the fields that the schema lacks."""

RECORD = "_record"
"""The column with the name of the record in the writer's schema."""

_VALUE, _KEY = "value", "key"
_NESTED = (ArrayType, MapType, StructType, VARIANT)
_AROUND = "__streamops"
_HEADER_BYTES = 5
_MAX_ID = (1 << 31) - 1


def kafka_events(
    schema: str | StructType,
    *,
    format: Format = "json",
    schema_id: int | Sequence[int] | None = None,
    registry: str | Mapping[str, Any] | None = None,
    unknown_fields: UnknownFields = "drop",
    defaults: Mapping[str, Any] | None = None,
    tombstones: Tombstones = "route",
    keep: Sequence[str] = (),
) -> Operator:
    """Parse the values of Kafka records, with their topic, partition, offset and timestamp.

    A record that cannot be parsed is rejected: it is part of the output, with the reason and its bytes,
    and the query goes on.

    Input        the columns of Spark's Kafka source: value, key: binary or string · topic, partition,
                 offset, timestamp · columns to `keep`, of any type
    Output       the columns of `schema`, null in a rejected record · _topic: string · _partition: int ·
                 _offset: bigint · _timestamp: timestamp, by Kafka's clock or the producer's · with
                 `tombstones` "keep" _tombstone: boolean · with `registry` _record: string, the full name of
                 the record or message, null for JSON · with `unknown_fields` "keep" unknown: string ·
                 rejected: struct<reason, value, key>, with `registry` also schema_id: int; null in a
                 parsed record · the columns of `keep`
    Output mode  any
    Watermark    none is needed; define it on the output
    State        none
    Order        rows may arrive in any order; each record is parsed independently
    Batch        the same rows

    Parameters
    ----------
    schema : str or StructType
        With `format` "json": columns of the value, as SQL DDL or a type. A NOT NULL column must be
        present, and not null. With "avro": the schema of a record, in Avro's JSON.
    format : "json" or "avro"
        Format of the value. "avro" needs the package ``spark-avro``.
    schema_id : int or sequence of int, optional
        The value starts with the header of Confluent's wire format (a zero byte, and the id of the
        schema in four bytes), and these are the ids under which the registry has `schema`. A record
        without the header, or with another id, is rejected. Default: there is no header.
    registry : str or mapping, optional
        The schema registry that has the schemas of the writers: its URL, or the settings of Confluent's
        client, such as ``{"url": ..., "basic.auth.user.info": "user:password"}``. Records are Avro, Protobuf
        or JSON in Confluent's wire format, of any schema that is registered, and are resolved to `schema`,
        which lists columns. A schema may have several records: a union of Avro, messages of Protobuf. Needs ``pip install 'streamops[registry]'``, also where tasks run.
    unknown_fields : "drop" or "keep"
        With `registry`: fields that `schema` lacks. "keep": as a JSON object in the column ``unknown``, null
        if there are none. Its member ``$without_text`` lists fields that have no text in JSON, if any.
    defaults : mapping of str to value, optional
        With `registry`: values of columns that the schema of the writer lacks. Default: null.
    tombstones : "route", "keep" or "drop"
        Records whose value is null, which mark a deleted key for log compaction. "route": as rejected
        records. "keep": as rows of nulls with ``_tombstone``; add the key to `keep`. "drop": not at all.
    keep : sequence of str
        Columns of the frame to copy to each row, such as ``["key", "headers"]``.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range; ``NAME_TAKEN``: two columns of the result have
        the same name.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.
    RequirementError
        ``PACKAGE_MISSING``: the session does not have ``spark-avro``, or the extra ``registry`` is not installed.

    Examples
    --------
    >>> from streamops import sources
    >>> sources.kafka_events("page string NOT NULL, ts timestamp, ms int")
    sources.kafka_events(schema='page string NOT NULL, ts timestamp, ms int')
    >>> events = (
    ...     spark.readStream.format("kafka")
    ...     .option("kafka.bootstrap.servers", "localhost:9092")
    ...     .option("kafka.isolation.level", "read_committed")
    ...     .option("subscribe", "views")
    ...     .load()
    ...     .transform(sources.kafka_events("page string NOT NULL, ts timestamp, ms int"))
    ... )

    Notes
    -----
    Reasons: "null_value", a tombstone; "unknown_schema", no header or another id; "unparsable_json", not
    exactly one JSON object in UTF-8, or a name twice; "unparsable_avro"; "unparsable_protobuf"; "wrong_type", a value, or one inside it, that is
    not exactly one of its type, such as "3.5" for an int; "missing_field", a NOT NULL column that is
    absent or null.

    JSON fits if every value is exactly the one sent: integers and decimals are not cut, floats not made
    infinite, times have no digits beyond microseconds, and numbers and times of day are not read as
    timestamps. A timestamp without a zone is in the time zone of the session. A string column takes any
    value, as its JSON.
    Avro has no marks between its fields: bytes of another schema may be parsed as values, and bytes
    after the record are ignored. So use `schema_id` where records have the header.

    With `registry`, a field is resolved by its name, and its value is exactly the one sent, or the record is
    rejected: an integer may become a wider one, a float or a decimal that has the value. Fields inside of structs
    that `schema` lacks are dropped. A registry that does not answer within half a minute ends the task with
    ``SOURCE_UNAVAILABLE``, and no row is lost. A schema that the registry does not have is asked for again
    after a minute.

    Rejected records would be rows of nulls to the next operator. Write them in ``foreachBatch`` with
    ``split_side_output``, or leave them out by ``.where("rejected IS NULL").drop("rejected")``; the
    metric ``rejected`` counts them in any case.

    See Also
    --------
    streamops.split_side_output : split parsed and rejected records.
    replay : a range of topics, and what follows it.
    streamops.observe.DataLoss : alarm before Kafka deletes what a slow query has not read.
    streamops.changes.from_debezium : Debezium's records as changes.

    References
    ----------
    Apache Spark: "Structured Streaming + Kafka Integration Guide".
    Confluent: "Wire format" of the Schema Registry.
    """
    spec = KafkaEventsSpec(
        schema=schema,
        format=format,
        schema_id=schema_id,
        registry=None if registry is None else Settings.parse(registry),
        unknown_fields=unknown_fields,
        defaults=require_mapping(defaults),
        tombstones=tombstones,
        keep=parse_distinct_names(keep, parameter="keep", empty=True),
    )
    return Operator(KafkaEventsSpec.where, spec)


def _show_schema(schema: str | StructType) -> str:
    return repr(schema if isinstance(schema, str) else schema.simpleString()[len("struct<") : -1])


def require_mapping(defaults: object) -> dict[str, Any]:
    """The defaults by column; none if there are none."""
    if defaults is not None and not isinstance(defaults, Mapping):
        raise conditions.NOT_DEFAULTS.error(got=f"an object of type {type(defaults).__name__}")
    return dict(defaults or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaEventsSpec:
    """Parameters of ``kafka_events``."""

    where: ClassVar[str] = "sources.kafka_events"

    schema: str | StructType = field(metadata={"shown": _show_schema})
    format: Format
    schema_id: int | Sequence[int] | None
    registry: Settings | None
    unknown_fields: UnknownFields
    defaults: Mapping[str, Any]
    tombstones: Tombstones
    keep: tuple[str, ...]

    def __post_init__(self) -> None:
        """Validate the parameters. A schema in DDL or Avro is parsed by Spark, once there is a frame."""
        fits = (type(number) is int and 0 <= number <= _MAX_ID for number in self.ids)
        if self.schema_id is not None and not (self.ids and all(fits)):
            raise conditions.NOT_A_SCHEMA_ID.error(
                max_id=_MAX_ID, got=f"schema_id={self.schema_id!r}"
            )
        if self.tombstones == "keep" and _KEY not in self.keep:
            raise conditions.TOMBSTONE_WITHOUT_KEY.error(
                got=f"tombstones='keep', keep={self.keep!r}"
            )
        if self.registry is not None and (self.format != "json" or self.schema_id is not None):
            raise conditions.REGISTRY_KNOWS.error(
                got=f"format={self.format!r}, schema_id={self.schema_id!r}"
            )
        if self.registry is None and (self.unknown_fields != "drop" or self.defaults):
            raise conditions.REGISTRY_MISSING.error(
                got=f"unknown_fields={self.unknown_fields!r}, defaults={self.defaults!r}"
            )
        if self.format == "avro" and (not isinstance(self.schema, str) or not self.schema.strip()):
            raise self._not_a_record("not a string")
        if self.format == "json" and (not isinstance(self.schema, str) or not self.schema.strip()):
            self.parse_row()

    @property
    def ids(self) -> tuple[Any, ...]:
        """The ids of the schema; none if there is no header."""
        if self.schema_id is None:
            return ()
        return tuple(self.schema_id) if isinstance(self.schema_id, Sequence) else (self.schema_id,)

    @property
    def adds(self) -> tuple[str, ...]:
        """None: the result has no columns of the frame except those to keep."""
        return ()

    @property
    def marked(self) -> str:
        """The column whose metadata describes the stream."""
        return POSITION["offset"]

    @property
    def described(self) -> tuple[str, ...]:
        """The columns of the result that are not values of the record."""
        unknown = (UNKNOWN,) if self.unknown_fields == "keep" else ()
        record = () if self.registry is None else (RECORD,)
        return (*POSITION.values(), TOMBSTONE, REJECTED, *record, *unknown)

    def parse_row(self) -> StructType:
        """The type of a row of JSON, without names that are taken."""
        row = parse_row_type(self.schema)
        self.refuse_taken(row)
        return row

    def refuse_taken(self, row: StructType) -> None:
        """Refuse columns of the result with the same name."""
        given = {"keep": list(self.keep), "schema": ", ".join(row.names)}
        refuse_taken_names([*row.names, *self.keep], self.described, given)

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns that are read, and a schema that Spark cannot read."""
        types = {part.name: part.dataType for part in frame.schema.fields}
        require_columns(types, {"the Kafka source": [_VALUE, _KEY, *POSITION]})
        require_columns(types, {"keep": self.keep})
        for name in (_VALUE, _KEY):
            if not isinstance(types[name], StringType | BinaryType):
                raise conditions.COLUMN_TYPE.error(
                    column=name, got=f"{name!r} of type {types[name].simpleString()}"
                )
        self._reader(frame)

    def apply(self, frame: DataFrame) -> DataFrame:
        """The parsed records of a frame."""
        return self._reader(frame).read(frame)

    def counts(self) -> Mapping[str, Column]:
        """Metrics: parsed and rejected records, by reason."""
        reason = F.col(REJECTED)["reason"]
        counted = {
            "parsed": F.count_if(F.col(REJECTED).isNull()),
            "rejected": F.count_if(F.col(REJECTED).isNotNull()),
            "side_output": F.count_if(F.col(REJECTED).isNotNull()),
            **{name: F.count_if(reason == name) for name in REASONS},
        }
        if self.tombstones == "keep":
            counted["parsed"] = F.count_if(F.col(REJECTED).isNull() & ~F.col(TOMBSTONE))
            counted["tombstones"] = F.count_if(F.col(TOMBSTONE))
        return counted

    def _reader(self, frame: DataFrame) -> _Reader:
        row = self.parse_row() if self.format == "json" else self._parse_avro_row(frame)
        if self.registry is None:
            return _Reader(self, row)
        arrow = decoded_types(row)
        defaults = tuple(parse_defaults(self.defaults, arrow).items())
        keeps_unknown = self.unknown_fields == "keep"
        return _Reader(self, row, Decoding(self.registry, arrow, defaults, keeps_unknown))

    def _parse_avro_row(self, frame: DataFrame) -> StructType:
        """The type of a row of Avro, as Spark reads it."""
        try:
            loaded = json.loads(str(self.schema))
        except ValueError as error:
            raise self._not_a_record(f"not JSON: {error}") from error
        if not isinstance(loaded, dict) or loaded.get("type") != "record":
            raise self._not_a_record("another type")
        try:
            read = frame.select(_from_avro(column(_VALUE), str(self.schema)))
            row = read.schema.fields[0].dataType
        except Exception as error:  # PySpark's own error type moved between releases
            if "AVRO_NOT_LOADED" in str(error):
                raise conditions.AVRO_REQUIRED.error(got="a session without spark-avro") from error
            raise self._not_a_record(str(error).strip().partition("\n")[0]) from error
        assert isinstance(row, StructType), row
        self.refuse_taken(row)
        return row

    def _not_a_record(self, reason: str) -> SpecError:
        return conditions.NOT_A_SCHEMA.error(got=f"schema={self.schema!r}: {reason}")


def _from_avro(value: Column, schema: str) -> Column:
    """The record, or null if the bytes are not one.

    For bytes that are not a record Spark returns one whose fields are null. So this reads a record
    around the record, which has the same bytes.
    """
    fields = [{"name": _AROUND, "type": json.loads(schema)}]
    around = {"type": "record", "name": _AROUND, "fields": fields}
    options = F.create_map(F.lit("mode"), F.lit("PERMISSIVE"))
    parsed = F.call_function("from_avro", value.cast("binary"), F.lit(json.dumps(around)), options)
    return parsed[_AROUND]


def _temp(name: str) -> Column:
    """A column that exists while the records are read."""
    return F.col(f"__streamops_{name}")


def _add(frame: DataFrame, **columns: Column) -> DataFrame:
    """The frame with further temporary columns."""
    return frame.select("*", *(value.alias(f"__streamops_{n}") for n, value in columns.items()))


@dataclass(frozen=True, slots=True)
class _Reader:
    """The expressions that read records: parameters, and the type of a row."""

    spec: KafkaEventsSpec
    row: StructType
    decoding: Decoding | None = None

    def read(self, frame: DataFrame) -> DataFrame:
        """The parsed records of a frame."""
        spec, value = self.spec, column(_VALUE)
        if spec.tombstones == "drop":
            frame = frame.where(value.isNotNull())
        if self.decoding is not None:
            frame = _add(frame, decoded=self.decoding.apply(value, self.row))
        records = _add(frame, value=value, payload=self._payload())
        if spec.format == "json":
            # Spark would replace invalid UTF-8 by marks.
            text = try_validate_utf8(_temp("payload").cast("string"))
            is_nested = spec.unknown_fields == "keep"
            is_nested |= any(isinstance(part.dataType, _NESTED) for part in self.row.fields)
            records = _add(records, members=parse_object(text, is_nested=is_nested))
            # By position, because names may contain any characters.
            parts = list(enumerate(self.row.fields))
            texts = {f"text_{n}": member(_temp("members"), part.name) for n, part in parts}
            records = _add(records, **texts)
            read = {f"part_{n}": read_value(_temp(f"text_{n}"), p.dataType) for n, p in parts}
            records = _add(records, **read)
        else:
            # Null for a header that is not the expected one, of which nothing is decoded.
            records = _add(records, parsed=_from_avro(_temp("payload"), str(spec.schema)))
        records = _add(records, reason=self._reason())
        return records.select(*self._result())

    def _payload(self) -> Column:
        """The value without its header; null if the header is not the expected one."""
        value, spec = column(_VALUE).cast("binary"), self.spec
        length = F.octet_length(value)
        behind = value.substr(F.lit(_HEADER_BYTES + 1), length)
        if self.decoding is not None:
            return F.when(_temp("decoded")["is_json"], behind)
        if spec.schema_id is None:
            return value
        headers = [bytes([0]) + number.to_bytes(4, "big") for number in spec.ids]
        found = F.substring(value, 1, _HEADER_BYTES).isin(*(F.lit(header) for header in headers))
        return F.when(found, behind)

    def _reason(self) -> Column:
        """The reason for which a record is rejected; null if it is not."""
        is_tombstone = _temp("value").isNull()
        first = F.when(is_tombstone, None if self.spec.tombstones == "keep" else "null_value")
        if self.decoding is None:
            first = first.when(_temp("payload").isNull(), "unknown_schema")
        else:
            decoded = _temp("decoded")
            first = first.when(~decoded["is_json"], decoded["reason"])
        if self.spec.format == "avro":
            return first.when(_temp("parsed").isNull(), "unparsable_avro")
        texts = [_temp(f"text_{number}") for number in range(len(self.row))]
        wrong = missing = F.lit(False)
        for number, (text, part) in enumerate(zip(texts, self.row.fields, strict=True)):
            wrong |= text.isNotNull() & self._value(number).isNull()
            if not part.nullable and part.name not in self.spec.defaults:
                missing |= text.isNull()
            elif not part.nullable:
                missing |= text.isNull() & ~self._is_absent(part.name)
        return (
            first.when(_temp("members").isNull(), "unparsable_json")
            .when(wrong, "wrong_type")
            .when(missing, "missing_field")
        )

    def _value(self, number: int) -> Column:
        """A column of a record."""
        if self.spec.format == "json":
            value, part = _temp(f"part_{number}"), self.row.fields[number]
            if self.decoding is None:
                return value
            if part.name in self.spec.defaults:
                default = F.lit(self.spec.defaults[part.name]).cast(part.dataType)
                value = F.when(self._is_absent(part.name), default).otherwise(value)
            decoded = _temp("decoded")
            return F.when(decoded["is_json"], value).otherwise(decoded[f"c{number}"])
        return _temp("parsed")[self.row.names[number]]

    def _is_absent(self, name: str) -> Column:
        """Whether a record of JSON does not have the member, not even as null."""
        return ~F.map_contains_key(_temp("members"), name)

    def _result(self) -> list[Column]:
        is_rejected, is_tombstone = _temp("reason").isNotNull(), _temp("value").isNull()
        columns = [
            F.when(~is_rejected, self._value(number)).alias(part.name, metadata=part.metadata or {})
            for number, part in enumerate(self.row.fields)
        ]
        columns += [column(name).alias(result) for name, result in POSITION.items()]
        if self.spec.tombstones == "keep":
            columns.append(is_tombstone.alias(TOMBSTONE))
        rejected = [
            _temp("reason").alias("reason"),
            make_nullable(column(_VALUE)).alias("value"),
            make_nullable(column(_KEY)).alias("key"),
        ]
        if self.decoding is not None:
            decoded = _temp("decoded")
            columns.append(decoded["record"].alias(RECORD))
            rejected.append(decoded["schema_id"].alias("schema_id"))
            if self.decoding.keeps_unknown:
                unknown = members_json(_temp("members"), without=self.row.names)
                unknown = F.when(decoded["is_json"], unknown).otherwise(decoded[UNKNOWN])
                columns.append(F.when(~is_rejected, unknown).alias(UNKNOWN))
        columns.append(F.when(is_rejected, F.struct(*rejected)).alias(REJECTED))
        return [*columns, *(column(name) for name in self.spec.keep)]
