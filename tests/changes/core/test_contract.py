"""The cores of changes as the contract has them: in batches, at the end, of odd columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes
from streamops.kernel.changes import CHANGE_TYPE
from streamops.testing import replay

PLAIN = pa.schema([("k", pa.string()), ("v", pa.int64()), ("lsn", pa.int64())])
OWN = pa.struct([("reason", pa.string())])


def overwriting(**said: Any) -> Any:
    return changes.apply("k", **({"sequence": "lsn", "horizon": 100} | said))


def histories(**said: Any) -> Any:
    return overwriting(history="intervals", **said)


@pytest.mark.parametrize("make", [overwriting, histories])
def test_a_batch_is_one_step_and_its_end_says_nothing_more(make: Any) -> None:
    transform = make(shards=1)
    core, spec = transform.core, transform.settings.bind(PLAIN, shards=1)
    rows = pa.table({"k": ["a", "a", "b"], "v": [1, 2, 3], "lsn": [2, 1, 1]}, schema=PLAIN)
    step = core.step(spec, core.empty(spec), core.pack(spec, rows), None)
    assert core.run(spec, core.pack(spec, rows)).equals(step.emitted)
    assert len(step.emitted) == (2 if make is overwriting else 3)
    core.check(spec, step.state)
    assert len(core.finish(spec, step.state)) == 0
    assert core.next_deadline(spec, step.state) is None
    assert spec.event_time == "revision"
    assert spec.origins == {"k": "k", "v": "v"}
    again = core.step(spec, step.state, core.pack(spec, rows.slice(0, 0)), None)
    assert len(again.emitted) == 0
    core.check(spec, again.state)


@pytest.mark.parametrize("make", [overwriting, histories])
def test_rows_without_a_word_are_upserts_and_tombstones_are_nothing(make: Any) -> None:
    schema = PLAIN.append(pa.field("_tombstone", pa.bool_()))
    rows = [
        {"k": "a", "v": 1, "lsn": 1, "_tombstone": None},
        {"k": "a", "v": None, "lsn": 2, "_tombstone": True},
    ]
    (only,) = replay(make(), [rows], schema=schema)
    assert [(row["v"], row[CHANGE_TYPE]) for row in only.rows] == [(1, "insert")]


@pytest.mark.parametrize("make", [overwriting, histories])
def test_a_row_that_was_rejected_before_keeps_its_reason(make: Any) -> None:
    schema = PLAIN.append(pa.field("rejected", OWN))
    rows = [
        {"k": "a", "v": 1, "lsn": 1, "rejected": None},
        {"k": None, "v": 2, "lsn": 2, "rejected": {"reason": "no_json"}},
        {"k": None, "v": 3, "lsn": 3, "rejected": None},
    ]
    (only,) = replay(make(), [rows], schema=schema)
    reasons = [row["rejected"]["reason"] for row in only.rows if row["rejected"] is not None]
    assert sorted(reasons) == ["no_json", "null_key"]


def test_a_place_may_be_of_several_columns() -> None:
    schema = PLAIN.append(pa.field("position", pa.int64()))
    rows = [
        {"k": "a", "v": 1, "lsn": 1, "position": 2},
        {"k": "a", "v": 2, "lsn": 1, "position": 1},
        {"k": "a", "v": 3, "lsn": 1, "position": None},
        {"k": "b", "v": 4, "lsn": 0, "position": 9},
    ]
    said = {"sequence": ["lsn", "position"], "time": "ts", "horizon": "1 hour"}
    timed = schema.append(pa.field("ts", pa.timestamp("us", "UTC")))
    at = pa.scalar(0, pa.timestamp("us", "UTC")).as_py()
    (only,) = replay(overwriting(**said), [[{**row, "ts": at} for row in rows]], schema=timed)
    good = [(row["k"], row["v"]) for row in only.rows if row["rejected"] is None]
    assert sorted(good) == [("a", 1), ("b", 4)]
    assert [row["rejected"]["row"]["v"] for row in only.rows if row["rejected"]] == [3]


def test_a_table_of_keys_alone_never_changes() -> None:
    schema = pa.schema([("k", pa.string()), ("lsn", pa.int64())])
    rows = [{"k": "a", "lsn": 1}, {"k": "a", "lsn": 2}]
    results = replay(overwriting(), [rows[:1], rows[1:]], schema=schema)
    assert [len(result.rows) for result in results] == [1, 0]


def test_aggregates_of_changes_have_no_event_time() -> None:
    transform = changes.aggregate(by="k", agg={"n": agg.count()})
    spec = transform.settings.bind(PLAIN.append(pa.field(CHANGE_TYPE, pa.string())), shards=1)
    assert spec.event_time == CHANGE_TYPE
