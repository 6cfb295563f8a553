"""State of home timelines that was written once is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.joins.core import timeline
from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from tests.golden.states import SHARDS
from tests.golden.test_golden_states import bag
from tests.golden.timeline_states import HISTORY, ROWS, stepped, table


def read(**known: Any) -> State:
    said = {"layout": timeline.STATE, "identity": HISTORY.spec.identity, "shards": SHARDS} | known
    return State(None, decode(HISTORY.file.read_bytes(), **said, where="joins.timeline"))


def refused(**known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(**known)
    return caught.value


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found, now = read().tables["rows"], HISTORY.state().tables["rows"]
    assert len(found) == 6
    assert found.schema == now.schema
    assert bag(rows_of(found)) == bag(rows_of(now))
    timeline.check(HISTORY.spec, read())


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    state, oracle, published = read(), HISTORY.oracle(), 0
    for changes in HISTORY.more:
        step = stepped(HISTORY.spec, state, changes)
        state = step.state
        expected = oracle.step(rows_of(table(changes)))
        assert bag(rows_of(step.emitted)) == bag(expected.emitted)
        published += len(expected.emitted)
    assert published > 5


def test_state_of_version_1_is_refused_by_another_version() -> None:
    error = refused(layout=StateFormat("joins.timeline", 2))
    assert (error.code, error.got) == ("STATE_VERSION", "frame 1, joins.timeline version 1")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cap", {"cap": 3}),
        ("key", {"key": ("post", "author")}),
        ("ranked_by", {"ranked_by": "post"}),
        ("user", {"user": ("author",)}),
        ("author", {"author": ("user",)}),
        ("columns", {"input": ROWS.append(pa.field("more", pa.int64()))}),
    ],
)
def test_state_is_refused_by_timelines_with_another(name: str, settings: dict[str, Any]) -> None:
    error = refused(identity=HISTORY.spec_of(**settings).identity)
    assert error.code == "STATE_PARAMETERS"
    assert name in error.what.partition(": ")[2].split(", ")
