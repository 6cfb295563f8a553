"""Connections that are encrypted, and servers whose certificate is not trusted."""

from __future__ import annotations

import itertools
import sys
import uuid
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streamops import sinks, sources
from streamops.errors import RequirementError, SinkError
from streamops.sinks.core.kafka_records import VALUE
from streamops.sinks.kafka import KafkaSink
from streamops.sources.core.outbox import COLUMNS, Outbox
from streamops.sources.core.status import Names
from streamops.sources.kafka_replay import KafkaClient
from streamops.sources.postgres_log import Client, DriverError, PostgresLog
from tests.servers.certificates import LOCALHOST
from tests.servers.postgres import Server
from tests.servers.secured import PASSWORD, USER, Secured, Trust
from tests.sinks.contract import RUN

_NUMBERS = itertools.count()


@pytest.fixture
def url(server: Server) -> str:
    address = f"{LOCALHOST}:{server.settings['port']}"
    return f"postgresql://postgres@{address}/postgres?application_name=client{next(_NUMBERS)}"


def is_encrypted(server: Server, url: str) -> list[Any]:
    """Whether the connections of this client are encrypted."""
    statement = (
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = %s"
    )
    with psycopg.connect(server.where) as connection:
        name = url.partition("application_name=")[2].partition("&")[0]
        return [row[0] for row in connection.execute(statement, [name])]


@pytest.mark.postgres
def test_the_sink_verifies_the_server(server: Server, url: str, trust: Trust) -> None:
    verified = f"{url}&sslmode=verify-full&sslrootcert={trust.right}"
    sink = sinks.postgres(verified, "tls")
    sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    assert is_encrypted(server, url) == [True]
    assert sink.read_ledger().batch == 0  # type: ignore[union-attr]


@pytest.mark.postgres
def test_the_sink_refuses_a_server_that_it_does_not_trust(url: str, trust: Trust) -> None:
    sink = sinks.postgres(f"{url}&sslmode=verify-full&sslrootcert={trust.wrong}", "wrong")
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    assert "certificate" in error.value.got


@pytest.mark.postgres
def test_the_sink_refuses_a_certificate_of_another_host(url: str, trust: Trust) -> None:
    other = url.replace(LOCALHOST, "localhost")
    for mode, refused in (("verify-full", True), ("verify-ca", False)):
        sink = sinks.postgres(f"{other}&sslmode={mode}&sslrootcert={trust.right}", "host")
        if refused:
            with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
                sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
            assert "localhost" in error.value.got
        else:
            sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)


@pytest.mark.postgres
def test_a_server_that_requires_encryption_refuses_others(url: str) -> None:
    sink = sinks.postgres(f"{url}&sslmode=disable", "plain")
    with pytest.raises(SinkError, match="no encryption"):
        sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)


@pytest.mark.postgres
def test_sqlalchemy_passes_the_options_on(server: Server, url: str, trust: Trust) -> None:
    url = url.replace("postgresql:", "postgresql+psycopg:")
    sink = sinks.sqlalchemy(f"{url}&sslmode=verify-full&sslrootcert={trust.right}", "alchemy")
    sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    assert set(is_encrypted(server, url)) == {True}
    wrong = sinks.sqlalchemy(f"{url}&sslmode=verify-full&sslrootcert={trust.wrong}", "alchemy")
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        wrong._deliver_rows(pa.table({"a": [1]}), 0, RUN)


@pytest.mark.postgres
def test_the_outbox_passes_the_options_on(server: Server, url: str, trust: Trust) -> None:
    client = Client(f"{url}&sslmode=verify-full&sslrootcert={trust.right}", lambda cursor: None)
    assert client.fetch("SELECT 1") == [(1,)]
    assert is_encrypted(server, url) == [True]
    client.close()
    wrong = f"{url}&sslmode=verify-full&sslrootcert={trust.wrong}"
    with pytest.raises(DriverError, match="certificate"):
        Client(wrong, lambda cursor: None).fetch("SELECT 1")
    columns = Outbox(schema="public", table="outbox", columns=COLUMNS)
    with pytest.raises(RequirementError) as error:
        PostgresLog(wrong, Names(outbox=columns, publication="shop", slot="slot")).check()
    assert "certificate" in error.value.got


def deliver(secured: Secured, protocol: str, **client: str) -> Any:
    topic, ledger = secured.broker.create_topic(), f"ledger-{uuid.uuid4().hex}"
    settings = {"security.protocol": protocol, **dotted(client)}
    sink = sinks.kafka(topic, servers=secured.servers[protocol], ledger=ledger, client=settings)
    try:
        sink._deliver_rows(pa.table({VALUE: ["{}"]}), 0, RUN)
    finally:
        sink.session.close()
    return [record.value() for record in secured.broker.read(topic)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (KafkaSink.__module__, KafkaClient.__module__):
        monkeypatch.setattr(sys.modules[module], "_TIMEOUT", 3)


@pytest.mark.kafka
@pytest.mark.usefixtures("impatient")
def test_the_sink_shows_a_certificate(secured: Secured, trust: Trust) -> None:
    own = {"ssl_certificate_pem": secured.client.certificate, "ssl_key_pem": secured.client.key}
    assert deliver(secured, "SSL", ssl_ca_location=str(trust.right), **own) == [b"{}"]


@pytest.mark.kafka
@pytest.mark.usefixtures("impatient")
def test_the_sink_without_a_certificate_is_refused(secured: Secured, trust: Trust) -> None:
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(secured, "SSL", ssl_ca_location=str(trust.right))


@pytest.mark.kafka
@pytest.mark.usefixtures("impatient")
def test_the_sink_refuses_a_broker_that_it_does_not_trust(secured: Secured, trust: Trust) -> None:
    own = {"ssl_certificate_pem": secured.client.certificate, "ssl_key_pem": secured.client.key}
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(secured, "SSL", ssl_ca_location=str(trust.wrong), **own)


@pytest.mark.kafka
@pytest.mark.usefixtures("impatient")
def test_a_password_opens_the_encrypted_port(secured: Secured, trust: Trust) -> None:
    user = {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
    assert deliver(secured, "SASL_SSL", ssl_ca_location=str(trust.right), **user) == [b"{}"]


@pytest.mark.kafka
@pytest.mark.usefixtures("impatient")
def test_sources_pass_the_settings_on(secured: Secured, trust: Trust) -> None:
    topic = secured.broker.create_topic()
    secured.broker.produce(topic, [{"value": "1"}])
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(trust.right),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    servers = secured.servers["SASL_SSL"]
    assert sources.replay(topic, servers=servers, client=client).end == {topic: {0: 1}}
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE"):
        sources.replay(
            topic, servers=servers, client={**client, "ssl.ca.location": str(trust.wrong)}
        )


def dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}
