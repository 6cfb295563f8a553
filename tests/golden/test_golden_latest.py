"""State of the newest rows, written once, is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.changes.core import latest
from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.testing.laws import rows_of
from tests.golden.latest_states import BATCHES, FILE, MORE, SCHEMA, SPEC, spec_of, state, table
from tests.golden.states import SHARDS
from tests.golden.test_golden_states import bag


def read(**known: Any) -> State:
    said = {"layout": latest.STATE, "identity": SPEC.identity, "shards": SHARDS} | known
    return State(14_000_000, decode(FILE.read_bytes(), **said, where="changes.normalize"))


def refused(**known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(**known)
    return caught.value


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found, now = read(), state()
    assert found.watermark == now.watermark
    for name, rows in found.tables.items():
        assert rows.schema == now.tables[name].schema
        assert bag(rows_of(rows)) == bag(rows_of(now.tables[name]))
    latest.check(SPEC, found)
    assert found.tables["forgotten"].num_rows == 1
    (cells,) = (row["cells"] for row in rows_of(found.tables["rows"]) if row["key.0"] == "a")
    assert [(cell["value"], cell["place"]["offset"]) for cell in cells] == [(0, 1), (1, 1)]


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    ours, theirs = read(), state()
    for rows in MORE:
        pair = [
            latest.step(SPEC, each, latest.pack(SPEC, table(rows)), None) for each in (ours, theirs)
        ]
        ours, theirs = (step.state for step in pair)
        assert bag(rows_of(pair[0].emitted)) == bag(rows_of(pair[1].emitted))
        assert len(pair[0].emitted)
    assert len(BATCHES) == 4


@pytest.mark.parametrize(
    "changed", [{"max_keys": 7}, {"publish": "last"}, {"horizon": "1 day"}], ids=repr
)
def test_what_may_change_is_read(changed: dict[str, Any]) -> None:
    assert read(identity=spec_of(**changed).identity).rows == 6


def test_state_of_version_1_is_refused_by_another_version() -> None:
    error = refused(layout=StateFormat("changes.latest", 2))
    assert (error.code, error.got) == ("STATE_VERSION", "frame 1, changes.latest version 1")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"snapshots": "by_sequence"}, "snapshots"),
        ({"key": ["page", "n"]}, "key, values"),
        ({"sequence": "n", "horizon": 5, "time": None}, "sequence, time, values"),
        ({"schema": SCHEMA.append(pa.field("more", pa.int64()))}, "values"),
    ],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any], named: str) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert error.what.endswith(named)
