"""The server that the tests of a run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.changes.postgres.server import programs, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """How to connect to a PostgreSQL that starts and stops with the tests."""
    installed = programs()
    if installed is None:
        pytest.skip("PostgreSQL is not installed: apt-get install -y postgresql")
    with running(installed) as where:
        yield where
