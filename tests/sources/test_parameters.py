"""Parameters of the sources are checked before Spark or Kafka sees them; credentials stay secret."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from streamops import sources
from streamops.errors import SpecError

_REGISTRY = "https://registry:8081"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"format": "protobuf"}, "UNKNOWN_CHOICE"),
        ({"tombstones": "ignore"}, "UNKNOWN_CHOICE"),
        ({"tombstones": "keep"}, "PARAMETER_MISSING"),
        ({"schema_id": []}, "PARAMETER_OUT_OF_RANGE"),
        ({"schema_id": -1}, "PARAMETER_OUT_OF_RANGE"),
        ({"schema_id": True}, "PARAMETER_OUT_OF_RANGE"),
        ({"schema_id": 1 << 31}, "PARAMETER_OUT_OF_RANGE"),
        ({"schema_id": "7"}, "PARAMETER_OUT_OF_RANGE"),
        ({"keep": ["key", "key"]}, "DUPLICATE_COLUMN"),
        ({"schema": ""}, "INVALID_SCHEMA"),
        ({"schema": "", "format": "avro"}, "INVALID_SCHEMA"),
        ({"unknown_fields": "keep"}, "PARAMETER_WITHOUT_EFFECT"),
        ({"defaults": {"a": 1}}, "PARAMETER_WITHOUT_EFFECT"),
        ({"registry": _REGISTRY, "format": "avro", "schema": "{}"}, "PARAMETERS_CONTRADICT"),
        ({"registry": _REGISTRY, "schema_id": 7}, "PARAMETERS_CONTRADICT"),
        ({"registry": 7}, "PARAMETER_TYPE"),
        ({"registry": "registry:8081"}, "PARAMETER_TYPE"),
        ({"registry": {"url": _REGISTRY, "basic.auth": "a"}}, "INVALID_PARAMETER"),
        ({"registry": {"url": _REGISTRY, "timeout": []}}, "INVALID_PARAMETER"),
    ],
)
def test_parameters_of_kafka_events_are_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError, match=code):
        sources.kafka_events(**{"schema": "a int", **arguments})


def test_credentials_of_a_registry_are_not_shown() -> None:
    login = {"url": _REGISTRY, "basic.auth.user.info": "reader:secret"}
    operator = sources.kafka_events("a int", registry=login)
    assert repr(operator) == (
        "sources.kafka_events(schema='a int', registry={'url': 'https://registry:8081', ...})"
    )
    assert "secret" not in repr(operator.parameters)
    with pytest.raises(SpecError, match="PASSWORD_IN_URL") as refused:
        sources.kafka_events("a int", registry="https://reader:secret@registry:8081")
    with pytest.raises(SpecError, match="INVALID_PARAMETER") as wrong:
        sources.kafka_events("a int", registry={**login, "wrong": "secret"})
    assert "secret" not in f"{refused.value}{wrong.value}"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"topics": "a,b"}, "INVALID_PARAMETER"),
        ({"topics": ["a", "a"]}, "DUPLICATE_COLUMN"),
        ({"servers": ""}, "PARAMETER_TYPE"),
        ({"isolation": "serializable"}, "UNKNOWN_CHOICE"),
        ({"start": "yesterday"}, "INVALID_PARAMETER"),
        ({"end": dt.datetime(2026, 1, 1)}, "INVALID_PARAMETER"),  # noqa: DTZ001
        ({"options": {"StartingOffsets": "earliest"}}, "INVALID_PARAMETER"),
        ({"options": {"kafka.isolation.level": "read_uncommitted"}}, "INVALID_PARAMETER"),
    ],
)
def test_parameters_of_replay_are_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError, match=code):
        sources.replay(**{"topics": "views", "servers": "127.0.0.1:1", **arguments})


def plan(**more: Any) -> sources.KafkaReplay:
    edges = {"views": {0: 5, 10: 1, 2: 7}}
    return sources.KafkaReplay(servers="localhost:9092", start=edges, end=edges, **more)


def test_a_range_names_its_partitions() -> None:
    assert plan().batch_options() == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.isolation.level": "read_committed",
        "assign": '{"views": [0, 2, 10]}',
        "startingOffsets": '{"views": {"0": 5, "2": 7, "10": 1}}',
        "endingOffsets": '{"views": {"0": 5, "2": 7, "10": 1}}',
    }


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({}, {}),
        ({"views": {0: 1}}, {"views": {0: 1, 1: 1}}),
        ({"views": {0: 1}}, {"clicks": {0: 1}}),
        ({"views": {"0": 1}}, {"views": {"0": 2}}),  # as JSON
        ({"views": {0: -2}}, {"views": {0: 2}}),
    ],
)
def test_a_range_without_two_offsets_for_each_partition_is_refused(start: Any, end: Any) -> None:
    with pytest.raises(SpecError, match="INVALID_PARAMETER"):
        sources.KafkaReplay(servers="localhost:9092", start=start, end=end)


def test_credentials_are_passed_to_spark_and_not_shown() -> None:
    secret = 'PlainLoginModule required username="u" password="hunter2";'
    found = plan(options={"kafka.sasl.jaas.config": secret}, client={"sasl.password": "hunter2"})
    assert found.batch_options()["kafka.sasl.jaas.config"] == secret
    assert "hunter2" not in repr(found) + str(found)
    with pytest.raises(SpecError) as raised:
        sources.replay(
            "views", servers="127.0.0.1:1", options={"startingOffsets": json.dumps("hunter2")}
        )
    assert "hunter2" not in str(raised.value)


def test_a_setting_that_the_client_refuses_is_named_without_its_value() -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(SpecError, match="INVALID_PARAMETER") as raised:
        sources.replay("views", servers="127.0.0.1:1", client={"security.protocol": "hunter2"})
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
