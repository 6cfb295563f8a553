"""The PostgreSQL server of a test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.changes.postgres.server import programs, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Connection string of a PostgreSQL server that runs as long as the tests."""
    installed = programs()
    if installed is None:
        pytest.skip("PostgreSQL is not installed: apt-get install -y postgresql")
    with running(installed) as where:
        yield where
