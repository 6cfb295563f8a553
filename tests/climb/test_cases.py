"""The climb over the versions of Spark has every operator with a state."""

from __future__ import annotations

import pytest

from streamops.state.operators import FORMATS
from streamops.testing.batches import expand
from tests.climb.cases import cases, queries

pytestmark = pytest.mark.spark


def test_every_layout_of_a_state_is_there() -> None:
    stages = [stage for case in cases(5).values() for stage in expand(case.operator)]
    assert {stage.core.STATE for stage in stages if stage.core is not None} >= {*FORMATS.values()}


def test_every_query_state_api_has_every_operator() -> None:
    names = [*cases(5)]
    for of in queries(names).values():
        assert sorted(name for query in of for name in query) == sorted(names)
