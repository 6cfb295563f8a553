"""What the queries that crash have to lose, without Spark."""

from __future__ import annotations

import pytest

from tests.crashes.cases import CRASHED, expected_rows, has_rows, has_state, shows_a_crash
from tests.crashes.queries import GROUPS, ON_HDFS, ON_ROCKSDB, ON_SERVERS, Query

pytestmark = pytest.mark.thorough

QUERIES = {str(query): query for query in (*ON_ROCKSDB, *ON_HDFS)}


def numbers(query: Query) -> set[int]:
    return {*query.numbers, *query.some}


def test_every_operator_has_rows_in_the_end_also_if_one_query_has_all() -> None:
    assert [*expected_rows(tuple(CRASHED))] == [*CRASHED]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_operator_crashes_with_a_state_before_and_with_rows(query: Query) -> None:
    assert expected_rows(query.names)
    for name in query.names:
        both = {
            number
            for number in numbers(query)
            if has_state(query.names, name, number) and has_rows(query.names, name, number)
        }
        assert both, name


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_every_micro_batch_with_a_crash_has_something_to_lose(query: Query) -> None:
    for number in numbers(query):
        assert query.affected(number) == [*query.operators.values()], number


def test_the_groups_have_all_operators() -> None:
    assert sorted(name for query in GROUPS for name in query.names) == sorted(CRASHED)


def test_all_operators_crash_in_a_sink_on_a_server_with_something_to_lose() -> None:
    crashed = {
        name
        for query in ON_SERVERS["postgres"]
        for name in query.names
        if any(shows_a_crash(query.names, name, number) for number in query.numbers)
    }
    assert crashed == {*CRASHED}


def test_an_operator_with_event_time_has_nothing_to_lose_in_the_first_micro_batch() -> None:
    """So it would not count there."""
    query = Query("rocksdb", ("tumbling", "apply"))
    assert query.affected(0) == ["apply"]
