"""Servers of the tests that want TLS, with certificates of an authority of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kafka import broker as kafka_broker
from tests.kafka.broker import Broker, free_port
from tests.servers.certificates import LOCALHOST, Authority, Identity
from tests.servers.postgres import Server, serving

USER, PASSWORD = "alice", "hunter-two"


@dataclass(frozen=True)
class Trust:
    """Files of clients: the certificates of the server's authority and of another one."""

    right: Path
    wrong: Path


@dataclass(frozen=True)
class Secured:
    """A broker, its addresses by protocol, and the certificate of a client."""

    broker: Broker
    servers: dict[str, str]
    client: Identity


@contextmanager
def postgres(installed: Path, authority: Authority) -> Iterator[Server]:
    """A server that accepts encrypted connections only, except by its socket."""
    identity = authority.sign("server", LOCALHOST)
    files = {
        "server.crt": identity.certificate,
        "server.key": identity.key,
        "hba.conf": "local all all trust\nhostssl all all 127.0.0.1/32 trust\n",
    }
    settings = {"listen_addresses": "localhost", "port": str(free_port())}
    settings |= {"ssl": "on", "hba_file": "data/hba.conf"}
    with serving(installed, files, **settings) as server:
        yield server


@contextmanager
def kafka(authority: Authority) -> Iterator[Secured]:
    """A broker that wants a certificate of clients on one port, and a password on another one."""
    server, client = authority.sign("server", LOCALHOST), authority.sign("client")
    ports = {name: free_port() for name in ("SSL", "SASL_SSL")}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _one_line(server.certificate),
        "ssl.keystore.key": _one_line(server.key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _one_line(authority.certificate),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} user_{USER}="{PASSWORD}";',
    }
    with kafka_broker.running(ports, settings) as broker:
        servers = {name: f"{LOCALHOST}:{port}" for name, port in ports.items()}
        yield Secured(broker, servers, client)


def _one_line(pem: str) -> str:
    """PEM as a value of a file of properties."""
    return pem.strip().replace("\n", "\\n")
