"""The parts of a session that scripts/get-kafka fetches."""

from __future__ import annotations

import pytest

from tests.kafka.broker import jars
from tests.servers.installed import skip


@pytest.fixture
def avro() -> None:
    """The session of the tests can read Avro."""
    if not any(jar.name.startswith("spark-avro") for jar in jars("connector")):
        skip("spark-avro is not there: scripts/get-kafka")
