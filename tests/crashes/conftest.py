"""The table of all points, at the end of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.crashes.figures import PROPERTY, Point, table
from tests.crashes.targets import spill


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY
    ]
    if found:
        terminalreporter.section("crash points")
        points = [Point(*point) for result in found for point in result["points"]]
        restarts = sum(result["restarts"] for result in found)
        differences = [line for result in found for line in result["differences"]]
        for line in [*table(points, restarts, len(differences)), *differences]:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def small_cache_of_sqlite() -> Iterator[None]:
    """Let SQLite write pages before the end of a transaction."""
    sa = pytest.importorskip("sqlalchemy")
    sa.event.listen(sa.Engine, "connect", spill)
    yield
    sa.event.remove(sa.Engine, "connect", spill)
