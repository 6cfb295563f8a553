"""The servers of the tests where they are installed, for tests and programs that do without them elsewhere.

    python -m tests.servers.installed redis

starts one, prints its address, and stops it after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from tests.kafka.broker import Broker
    from tests.servers.mariadb import Server as MariaDB
    from tests.servers.opensearch import Server as OpenSearch
    from tests.servers.postgres import Server
    from tests.servers.redis import Server as Redis


REQUIRE = "STREAMOPS_REQUIRE_SERVERS"
"""The environment variable that turns a skipped test of a server into a failed one, if it is "1"."""


def skip(reason: str) -> NoReturn:
    """Skip a test because a server or a part of one is not installed, or fail if it is required."""
    import pytest

    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{reason}; {REQUIRE}=1", pytrace=False)
    pytest.skip(reason)


@contextmanager
def postgres() -> Iterator[Server | None]:
    """Start a PostgreSQL server, yield it, and stop it; None if it or a driver is not installed."""
    if not all(map(find_spec, ("psycopg", "adbc_driver_postgresql"))):
        yield None
        return
    from tests.servers.postgres import programs, serving

    installed = programs()
    if installed is None:
        yield None
        return
    with serving(installed) as server:
        yield server


@contextmanager
def kafka() -> Iterator[Broker | None]:
    """Start a Kafka broker, yield it, and stop it; None if it or a client is not installed."""
    from tests.kafka.broker import jars, running

    if find_spec("confluent_kafka") is None or not jars("broker"):
        yield None
        return
    with running() as broker:
        yield broker


def mariadb() -> AbstractContextManager[MariaDB | None]:
    """Start a MariaDB server, yield it, and stop it; None if it or its driver is not installed."""
    return _running("mariadb", client="pymysql")


def opensearch() -> AbstractContextManager[OpenSearch | None]:
    """Start an OpenSearch server, yield it, and stop it; None if it, its Java or its client is missing."""
    return _running("opensearch", client="opensearchpy")


def redis() -> AbstractContextManager[Redis | None]:
    """Start a Redis server, yield it, and stop it; None if it or its client is not installed."""
    return _running("redis", client="redis")


@contextmanager
def _running(name: str, *, client: str) -> Iterator[Any]:
    server = import_module(f"tests.servers.{name}")
    installed = server.program()
    if find_spec(client) is None or installed is None:
        yield None
        return
    with server.running(installed) as running:
        yield running


def main() -> None:
    """Run a server until Ctrl-C."""
    servers: dict[str, Any] = {
        "postgres": postgres,
        "mariadb": mariadb,
        "kafka": kafka,
        "opensearch": opensearch,
        "redis": redis,
    }
    parser = argparse.ArgumentParser(prog="python -m tests.servers.installed")
    parser.add_argument("server", choices=servers)
    name = parser.parse_args().server
    with servers[name]() as server:
        if server is None:
            sys.exit(f"It or its Python client is not installed: scripts/get-{name}, docs/sinks.md")
        address = server.bootstrap if name == "kafka" else server.url
        print(address() if name == "mariadb" else address, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
