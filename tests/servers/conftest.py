"""Servers with TLS, and the certificates that their clients trust."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.certificates import Authority
    from tests.servers.postgres import Server
    from tests.servers.secured import Secured, Trust


@pytest.fixture(scope="session")
def authority() -> Authority:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    from tests.servers.certificates import Authority

    return Authority()


@pytest.fixture(scope="session")
def trust(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Trust:
    from tests.servers.secured import Trust

    folder = tmp_path_factory.mktemp("trust")
    found = Trust(folder / "right.pem", folder / "wrong.pem")
    found.right.write_text(authority.certificate)
    found.wrong.write_text(type(authority)("another authority").certificate)
    return found


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[Server]:
    """A PostgreSQL server that accepts encrypted connections only, except by its socket."""
    from tests.servers.postgres import programs
    from tests.servers.secured import postgres

    installed = programs()
    if installed is None:
        pytest.skip("PostgreSQL is not installed: apt-get install -y postgresql")
    with postgres(installed, authority) as server:
        yield server


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Secured]:
    """A Kafka broker that wants a certificate on one port, and a password on another one."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    from tests.kafka.broker import jars
    from tests.servers.secured import kafka

    if not jars("broker"):
        pytest.skip("Kafka is not there: scripts/get-kafka")
    with kafka(authority) as secured:
        yield secured
