"""The servers of the tests where they are installed, for programs that do without them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.kafka.broker import Broker
    from tests.servers.postgres import Server


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
