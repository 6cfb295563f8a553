"""Passwords of sinks and sources are neither in logs, nor in the terminal, nor in errors, nor in a target."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streamops import erasure, sinks, sources
from streamops.errors import RequirementError, SinkError, StreamopsError
from streamops.sinks.core.kafka_records import VALUE
from streamops.sinks.kafka import KafkaSink
from streamops.sources.kafka_replay import KafkaClient
from tests.servers.certificates import LOCALHOST
from tests.servers.postgres import Server
from tests.servers.secured import PASSWORD, USER, Secured, Trust
from tests.sinks.contract import RUN, run_of

Log = Callable[[], str]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Log:
    """All that Python and native libraries have written, with the most detailed level."""
    caplog.set_level(logging.DEBUG)

    def read() -> str:
        captured = capfd.readouterr()
        return caplog.text + captured.out + captured.err

    return read


def with_causes(error: BaseException | None) -> str:
    """An error, and all errors that a traceback of it would contain."""
    text = ""
    while error is not None:
        text += f"{error}{error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text


@pytest.mark.postgres
@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_the_password_of_a_table(server: Server, trust: Trust, log: Log, scheme: str) -> None:
    make: Any = sinks.postgres if scheme == "postgresql" else sinks.sqlalchemy
    address = f"{LOCALHOST}:{server.settings['port']}/postgres"
    options = f"sslmode=verify-full&sslrootcert={trust.right}"
    url = f"{scheme}://postgres:{PASSWORD}@{address}?{options}"
    sink = make(url, f"of {scheme}")
    sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    displayed = repr(sink)
    for wrong in (
        make(url.replace("postgres:", "nobody:"), f"of {scheme}"),  # a user that does not exist
        make(url.replace("/postgres?", "/nothing?"), f"of {scheme}"),
        make(url.replace("verify-full", PASSWORD), f"of {scheme}"),  # a value that libpq repeats
    ):
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
            wrong._deliver_rows(pa.table({"a": [1]}), 1, run_of(2))
        displayed += with_causes(error.value) + repr(wrong)
    with psycopg.connect(server.where) as connection:
        for ledger in ("streamops_ledger", "streamops_entries"):
            if connection.execute("SELECT to_regclass(%s)", [ledger]).fetchone() != (None,):
                displayed += str(connection.execute(f"TABLE {ledger}".encode()).fetchall())
    assert f"of {scheme}" in displayed
    assert PASSWORD not in displayed + log()


@pytest.mark.postgres
def test_the_password_of_a_key_table(server: Server, log: Log) -> None:
    address = f"{LOCALHOST}:{server.settings['port']}/postgres?sslmode=require"
    url = f"postgresql+psycopg://postgres:{PASSWORD}@{address}"
    table = erasure.KeyTable(url=url)
    assert table._create(["a"])
    displayed = repr(table)
    wrong = erasure.KeyTable(url=url.replace("require", PASSWORD))
    with pytest.raises(StreamopsError, match="KEY_TABLE_UNAVAILABLE") as error:
        wrong._create(["a"])
    displayed += with_causes(error.value) + repr(wrong)
    assert PASSWORD not in displayed + log()


@pytest.mark.kafka
def test_the_password_of_a_topic(
    secured: Secured, trust: Trust, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (KafkaSink.__module__, KafkaClient.__module__):
        monkeypatch.setattr(sys.modules[module], "_TIMEOUT", 3)
    topic, servers = secured.broker.create_topic(), secured.servers["SASL_SSL"]
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(trust.right),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "debug": "security,conf,protocol",
    }
    sink = sinks.kafka(topic, servers=servers, client=client)
    sink._deliver_rows(pa.table({VALUE: ["{}"]}), 0, RUN)
    sink.session.close()
    plan = sources.replay(topic, servers=servers, client=client, options={"kafka.x": PASSWORD})
    displayed = f"{sink!r}{plan!r}"
    # Wrong ones, of which one is a value that the client repeats in its error.
    for name, value in (("sasl.password", f"{PASSWORD}-2"), ("security.protocol", PASSWORD)):
        settings = {**client, name: value}
        wrong = sinks.kafka(topic, servers=servers, client=settings)
        with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
            wrong._deliver_rows(pa.table({VALUE: ["{}"]}), 1, run_of(2))
        displayed += with_causes(error.value) + repr(wrong)
        with pytest.raises((RequirementError, StreamopsError)) as other:
            sources.replay(topic, servers=servers, client=settings)
        displayed += with_causes(other.value)
    records = secured.broker.read(topic) + secured.broker.read(sink.ledger)
    displayed += "".join(f"{record.key()}{record.value()}" for record in records)
    written = log()
    assert "rdkafka" in written  # the client has logged to the terminal
    assert PASSWORD not in displayed
    assert PASSWORD not in written
