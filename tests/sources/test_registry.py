"""Readers of schemas of a registry: nesting, references, and what is asked of the registry."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip(
    "confluent_kafka.schema_registry.avro", reason="the extra registry is not installed"
)
from google.protobuf import descriptor_pb2

from streamops.errors import RequirementError
from streamops.sources import registry as module
from streamops.sources.registry import Decoding, Settings
from tests.servers.registry import Registry, running

ROW = pa.schema([pa.field("id", pa.int64())])
HURRY = {"timeout": 1, "max.retries": 1, "retries.wait.ms": 10, "retries.max.wait.ms": 20}
P = descriptor_pb2.FieldDescriptorProto


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running("reader", "secret") as found:
        yield found


def decode(registry: Registry, *messages: bytes, row: pa.Schema = ROW) -> list[dict[str, Any]]:
    login = {"url": registry.url, "basic.auth.user.info": "reader:secret", **HURRY}
    decoding = Decoding(Settings.parse(login), row, (), keeps_unknown=True)
    return decoding.decode(pa.array(messages, pa.binary())).to_pylist()  # type: ignore[no-any-return]


def header(number: int) -> bytes:
    return number.to_bytes(5, "big")


def avro(registry: Registry, *fields: tuple[str, Any], name: str = "Event", **more: Any) -> bytes:
    """The header of records with a schema that is registered."""
    parts = [{"name": of, "type": dtype} for of, dtype in fields]
    schema = json.dumps({"type": "record", "name": name, "fields": parts})
    return header(registry.register("events-value", schema, format="AVRO", **more))


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@pytest.mark.parametrize(("depth", "reason"), [(63, None), (64, "unparsable_avro")])
def test_a_record_of_avro_has_at_most_64_levels(
    registry: Registry, depth: int, reason: str | None
) -> None:
    dtype: Any = "int"
    for _ in range(depth):
        dtype = {"type": "array", "items": dtype}
    start = avro(registry, ("id", "long"), ("deep", dtype))
    [row] = decode(registry, start + b"\x02" + b"\x02" * depth + b"\x02" + b"\x00" * depth)
    assert row["reason"] == reason
    if reason is None:
        assert json.loads(row["unknown"])["deep"] == json.loads("[" * depth + "1" + "]" * depth)
        assert row["c0"] == 1


@pytest.mark.parametrize(
    ("nodes", "reason"), [(31, None), (32, "unparsable_avro"), (1_000_000, "unparsable_avro")]
)
def test_a_recursive_type_of_avro_ends(registry: Registry, nodes: int, reason: str | None) -> None:
    start = avro(registry, ("id", "long"), ("deep", NODE))
    [row] = decode(registry, start + b"\x02" + b"\x02" * nodes + b"\x00")
    assert row["reason"] == reason


def test_a_schema_that_is_too_deep_to_parse_is_unknown(registry: Registry) -> None:
    text = '{"type": "array", "items": ' * 5_000 + '"int"' + "}" * 5_000
    schema = f'{{"type": "record", "name": "E", "fields": [{{"name": "a", "type": {text}}}]}}'
    start = header(registry.register("events-value", schema, format="AVRO"))
    good = avro(registry, ("id", "long"))
    assert [row["reason"] for row in decode(registry, start + b"\x00", good + b"\x02")] == [
        "unknown_schema",
        None,
    ]


def file(name: str, *fields: Any, message: str = "Event", needs: tuple[str, ...] = ()) -> Any:
    """A file with one message, whose fields have a name and a type."""
    made = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    made.dependency.extend(needs)
    of = made.message_type.add(name=message)
    for number, (field, dtype) in enumerate(fields, 1):
        more = (
            {"type": dtype}
            if isinstance(dtype, int)
            else {"type": P.TYPE_MESSAGE, "type_name": dtype}
        )
        of.field.add(name=field, number=number, label=P.LABEL_OPTIONAL, **more)
    return made


def serialized(of: Any) -> str:
    return base64.b64encode(of.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("depth", "reason"),
    [(100, None), (101, "unparsable_protobuf"), (100_000, "unparsable_protobuf")],
)
def test_a_message_has_at_most_100_levels_below_it(
    registry: Registry, depth: int, reason: str | None
) -> None:
    made = file("events.proto", ("id", P.TYPE_INT64), ("next", ".shop.Event"))
    number = registry.register("events-value", serialized(made), format="PROTOBUF")
    payload = b"\x08\x01"
    for _ in range(depth):
        size, length = len(payload), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        payload = b"\x08\x01\x12" + length + bytes([size]) + payload
    [row] = decode(registry, header(number) + b"\x00" + payload)
    assert row["reason"] == reason
    assert row["c0"] == (1 if reason is None else None)


def test_protobuf_needs_a_package_that_reads_it_exactly(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Avro is read among older ones, too."""
    start = avro(registry, ("id", "long"))
    made = file("events.proto", ("id", P.TYPE_INT64))
    number = registry.register("events-value", serialized(made), format="PROTOBUF")
    monkeypatch.setattr("importlib.metadata.version", {"protobuf": "5.25.9"}.get)
    assert decode(registry, start + b"\x02")[0]["c0"] == 1
    with pytest.raises(RequirementError, match="VERSION_NOT_SUPPORTED") as refused:
        decode(registry, header(number) + b"\x00\x08\x01")
    assert refused.value.got == "protobuf 5.25.9"


def test_types_of_other_subjects_are_followed(registry: Registry) -> None:
    """Avro and Protobuf: a schema that refers to one that refers to another one."""
    zip_code = {"type": "record", "name": "shop.Zip", "fields": [{"name": "zip", "type": "int"}]}
    home = {"type": "record", "name": "shop.Home", "fields": [{"name": "code", "type": "shop.Zip"}]}
    registry.register("zip", json.dumps(zip_code), format="AVRO")
    to_zip = [{"name": "shop.Zip", "subject": "zip", "version": 1}]
    registry.register("home", json.dumps(home), format="AVRO", references=to_zip)
    to_home = [{"name": "shop.Home", "subject": "home", "version": 1}]
    start = avro(registry, ("id", "long"), ("home", "shop.Home"), references=to_home)
    files = [
        file("zip.proto", ("zip", P.TYPE_INT32), message="Zip"),
        file("home.proto", ("code", ".shop.Zip"), message="Home", needs=("zip.proto",)),
        file("e.proto", ("id", P.TYPE_INT64), ("home", ".shop.Home"), needs=("home.proto",)),
    ]
    number, references = 0, []
    for made in files:
        number = registry.register(
            made.name, serialized(made), format="PROTOBUF", references=references
        )
        references = [{"name": made.name, "subject": made.name, "version": 1}]
    inner = pa.struct([("code", pa.struct([("zip", pa.int32())]))])
    row = pa.schema([pa.field("id", pa.int64()), ("home", inner)])
    messages = [start + b"\x02\x0e", header(number) + b"\x00\x08\x01\x12\x04\x0a\x02\x08\x07"]
    for found in decode(registry, *messages, row=row):
        assert (found["reason"], found["c0"], found["c1"]) == (None, 1, {"code": {"zip": 7}})


def test_a_schema_is_asked_for_once(registry: Registry) -> None:
    """And one that the registry does not have again after a minute."""
    start = avro(registry, ("id", "long"))
    absent = header(77) + b"\x02"
    lookup = module._make_lookup(
        Settings.parse({"url": registry.url, "basic.auth.user.info": "reader:secret"}), ROW
    )
    before = len(registry.requests)
    for _ in range(3):
        assert lookup(int.from_bytes(start, "big")) is not None
        assert lookup(77) is None
    assert len(registry.requests) == before + 2
    assert [row["reason"] for row in decode(registry, start + b"\x02", absent)] == [
        None,
        "unknown_schema",
    ]


def test_an_absent_schema_is_asked_for_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MISSING_SECONDS", 0.2)
    lookup = module._make_lookup(
        Settings.parse({"url": registry.url, "basic.auth.user.info": "reader:secret"}), ROW
    )
    assert lookup(1) is None
    start = avro(registry, ("id", "long"))
    assert start == header(1)
    assert lookup(1) is None
    time.sleep(0.3)
    assert lookup(1) is not None


@pytest.mark.parametrize(
    ("status", "answer", "got"),
    [
        (401, None, "HTTP status 401"),
        (403, None, "HTTP status 403"),
        (404, None, "HTTP status 404"),
        (429, None, "HTTP status 429"),
        (500, None, "HTTP status 500"),
        (None, b"<html>", "Error"),
        (None, b"[]", "Error"),
    ],
)
def test_an_answer_that_is_none_fails_the_task(
    registry: Registry, status: int | None, answer: bytes | None, got: str
) -> None:
    """It must not reject the record, which the registry may know."""
    start = avro(registry, ("id", "long"))
    registry.status, registry.answer = status, answer
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE") as error:
        decode(registry, start + b"\x02")
    assert got in str(error.value)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None
    registry.status = registry.answer = None
    assert decode(registry, start + b"\x02")[0]["c0"] == 1


def test_a_wrong_password_fails_the_task(registry: Registry) -> None:
    start = avro(registry, ("id", "long"))
    login = {"url": registry.url, "basic.auth.user.info": "reader:another-secret"}
    decoding = Decoding(Settings.parse(login), ROW, (), keeps_unknown=False)
    with pytest.raises(RequirementError, match="HTTP status 401") as error:
        decoding.decode(pa.array([start + b"\x02"], pa.binary()))
    assert "another-secret" not in f"{error.value}{decoding!r}"
