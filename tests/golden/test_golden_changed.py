"""A state between a change of parameters and the end of its effects, written once, is read for ever."""

from __future__ import annotations

import pytest

from streamops.kernel.codec import read_stored
from streamops.kernel.values import comparable
from streamops.spark.step import Stored, to_text
from streamops.testing import Replay
from streamops.testing.laws import to_rows
from tests.golden.changed_states import LATER, STATES, path_of, rows
from tests.golden.reading import multiset


def continued(query: Replay) -> list[object]:
    results = [result for batch in LATER for result in query.run([rows(*batch)])]
    return [multiset(of.rows) for of in (*results, query.flush())]


@pytest.mark.parametrize("name", STATES)
def test_a_state_with_traces_of_a_change_is_read(name: str) -> None:
    build, marks = STATES[name]
    query, other = build(), build()
    (stage,) = query._stages
    frame = read_stored(path_of(name).read_bytes())
    now = read_stored(Stored(*stage.stored[0]).frame)
    assert (frame.format, frame.identity) == (now.format, now.identity)
    tables, of_today = frame.tables(), now.tables()
    assert {n: table.schema for n, table in tables.items()} == {
        n: table.schema for n, table in of_today.items()
    }
    for table_name, table in tables.items():
        assert multiset(to_rows(table)) == multiset(to_rows(of_today[table_name]))
    columns = {column for table in tables.values() for column in table.column_names}
    assert marks <= {*tables} | columns
    stage.stored[0] = Stored(*stage.stored[0][:4], to_text(path_of(name).read_bytes())).row
    results = continued(query)
    assert comparable(results) == comparable(continued(other))
    assert any(results)
