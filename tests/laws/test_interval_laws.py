"""Interval joins obey every law of a core with two inputs."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given

from streamops.joins.core import side_state
from streamops.testing import laws
from tests.laws.interval_strategies import histories

pytestmark = pytest.mark.laws


@given(case=histories())
def test_interval_joins_obey_every_law(case: laws.Case) -> None:
    laws.check_laws(case)


@given(case=histories())
def test_keys_with_the_same_hash_are_compared_by_value(case: laws.Case) -> None:
    hashed = side_state.xxhash64
    # A change of the number of shards sorts by the true hash.
    some = [law for law in laws.CORE if law.__name__ != "rescaling_changes_nothing"]
    assert len(some) == len(laws.CORE) - 1
    with mock.patch.object(side_state, "xxhash64", lambda keys: hashed(keys) % 2):
        laws.check_laws(case, some)
