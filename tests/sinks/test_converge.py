"""Index, cache, mirror and warehouses equal the database; ``make converge`` has ten thousand histories."""

from __future__ import annotations

import pytest

from tests.servers import mariadb, opensearch, redis
from tests.servers.installed import skip
from tests.sinks.converge import converge

pytestmark = [
    pytest.mark.opensearch,
    pytest.mark.redis,
    pytest.mark.mariadb,
    pytest.mark.slow,
]


def test_all_systems_equal_the_database_whatever_is_killed() -> None:
    if None in (opensearch.program(), redis.program(), mariadb.program()):
        skip("OpenSearch, Redis or MariaDB is not there")
    counts = converge(40, seed=1, at_once=20)
    assert counts["differences"] == 0
    for system in ("index", "cache", "mirror", "delta", "iceberg"):
        assert counts[f"rows compared in the {system}"] > 40
    for happened in ("repeats", "out of order", "restarts", "kills of the index"):
        assert counts[happened] > 0, happened
