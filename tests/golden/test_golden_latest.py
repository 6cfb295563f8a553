"""State of the newest rows, written once, is read for ever, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from streamops.changes.core import latest
from streamops.testing.laws import rows_of
from tests.golden.latest_states import BATCHES, FILE, MORE, SCHEMA, SPEC, spec_of, state, table
from tests.golden.reading import Format, Kept, bag
from tests.golden.states import FOLDER

FORMAT = Format(latest, "changes.normalize")
KEPT = Kept(FILE, SPEC, state)
read, refused = partial(FORMAT.read, KEPT), partial(FORMAT.refused, KEPT)


def test_state_of_version_3_is_the_state_that_its_history_leaves() -> None:
    found = FORMAT.is_what_is_left(KEPT)
    assert found.watermark == 14_000_000
    assert found.tables["forgotten"].num_rows == 1
    (givers,) = (row["givers"] for row in rows_of(found.tables["rows"]) if row["key.0"] == "a")
    assert [(each["place"]["offset"], each["value.0"]) for each in givers] == [(1, 1)]


def test_a_stream_goes_on_from_state_of_version_3_as_if_nothing_had_happened() -> None:
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


def test_state_of_version_3_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(KEPT)


@pytest.mark.parametrize("version", [1, 2])
def test_state_of_an_older_version_is_refused_with_what_to_do(version: int) -> None:
    FORMAT.refuses_an_older_version(KEPT, FOLDER / f"changes.latest-v{version}.bin", version)


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
