"""State of home timelines that was written once is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.joins.core.timeline import TimelineCore
from streamops.testing.laws import to_rows
from tests.golden.reading import Format, multiset
from tests.golden.timeline_states import HISTORY, ROWS, stepped, table

FORMAT = Format(TimelineCore(), "joins.timeline")


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    assert FORMAT.equals_its_history(HISTORY).rows == 6


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    state, oracle, published = FORMAT.read(HISTORY), HISTORY.oracle(), 0
    for changes in HISTORY.more:
        step = stepped(HISTORY.spec, state, changes)
        state = step.state
        expected = oracle.step(to_rows(table(changes)))
        assert multiset(to_rows(step.output)) == multiset(expected.emitted)
        published += len(expected.emitted)
    assert published > 5


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(HISTORY)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cap", {"cap": 3}),
        ("key", {"key": ("post", "author")}),
        ("ranked_by", {"ranked_by": "post"}),
        ("user", {"users": ("author",)}),
        ("author", {"by": (("at", "whom"),)}),
        ("columns", {"schema": ROWS.append(pa.field("more", pa.int64()))}),
    ],
)
def test_state_is_refused_by_timelines_with_another(name: str, settings: dict[str, Any]) -> None:
    error = FORMAT.refused(HISTORY, identity=HISTORY.spec_of(**settings).identity)
    assert error.code == "STATE_PARAMETERS"
    assert name in error.what.partition(": ")[2].split(", ")
