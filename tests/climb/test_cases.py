"""The climb over the versions of Spark has every operator with a state."""

from __future__ import annotations

import pytest

from streamops.state.operators import FORMATS
from tests.climb.cases import cases, queries

pytestmark = pytest.mark.spark


def test_every_layout_of_a_state_is_there() -> None:
    cores = [operator.core for case in cases(5).values() for operator in case.chain]
    assert {core.STATE.kind for core in cores if core is not None} >= {*FORMATS}


def test_every_query_state_api_has_every_operator() -> None:
    names = [*cases(5)]
    for of in queries(names).values():
        assert sorted(name for query in of for name in query) == sorted(names)
