"""The target has the truth whatever became of a request; the answer to some of them in `make test`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.crashes.requests import SYSTEMS, pass_points
from tests.servers.installed import skip


@pytest.mark.parametrize(
    ("name", "form", "way", "every"),
    [
        pytest.param("PostgreSQL", "changes", "driver", 7, marks=pytest.mark.postgres),
        pytest.param("MariaDB", "upsert", "driver", 9, marks=pytest.mark.mariadb),
        pytest.param("Redis", "changes", "tasks", 2, marks=pytest.mark.redis),
        pytest.param(
            "OpenSearch", "changes", "tasks", 1, marks=[pytest.mark.opensearch, pytest.mark.slow]
        ),
    ],
)
def test_a_request_of_unknown_outcome(name: str, form: str, way: str, every: int) -> None:
    run, _, _, outcomes = SYSTEMS[name]
    server = import_module(f"tests.servers.{run.__name__}")
    if getattr(server, "program", None) and server.program() is None:
        skip(f"{name} is not installed: scripts/get-{run.__name__}")
    with run(form, way) as (proxy, target):
        points: Any = 0
        for outcome in outcomes:
            found = pass_points(proxy, target, outcome, every=every)
            assert found.wrong == 0
            points += found.points
    assert points > len(outcomes)
