"""A history of changes, whose state is kept, as in :mod:`tests.golden.states`.

``python -m tests.golden.latest_states`` writes the bytes if there are none yet.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from streamops.changes.core import latest
from streamops.changes.core.spec import TableSpec
from streamops.changes.latest_settings import LatestSettings
from streamops.kernel.codec import encode
from streamops.kernel.contract import State
from tests.golden.states import FOLDER, SHARDS

SEQUENCE = pa.struct([("log", pa.int64()), ("offset", pa.int64())])
SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("n", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("ts", pa.timestamp("us", "UTC")),
        ("seq", SEQUENCE),
        ("_change_type", pa.string()),
        ("_snapshot", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
    ]
)
FILE = FOLDER / "changes.latest-v3.bin"

Rows = list[tuple[Any, ...]]


def said(page: str, place: int, n: Any, tags: Any, *lacks: str, **other: Any) -> tuple[Any, ...]:
    """A change; its time is its place in seconds."""
    word, snapshot = other.get("word", "update_postimage"), other.get("snapshot", False)
    place_ = {"log": 1, "offset": place}
    return (page, n, tags, place * 1_000_000, place_, word, snapshot, [*lacks])


BATCHES: list[Rows] = [
    [said("a", 1, 1, ["x"]), said("a", 3, None, None, "n", "tags"), said("b", 2, 2, None)],
    [said("b", 4, None, None, word="delete"), said("ä", 5, 3, [], snapshot=True)],
    [said("old", 1, 9, None), said("old", 2, None, None, word="delete")],
    [said("c", 13, None, ["y", None], "n"), said("d", 14, None, None, word="delete")],
]
MORE: list[Rows] = [
    [said("a", 2, 7, ["late"]), said("old", 2, 5, None), said("b", 3, 8, None)],
    [said("b", 15, 1, None), said("ä", 16, None, None, "tags"), said("c", 13, 4, ["y", None])],
]


def spec_of(**changed: Any) -> TableSpec:
    """The operator, or one with other parameters."""
    given: dict[str, Any] = {
        "sequence": "seq",
        "horizon": "10 seconds",
        "time": "ts",
        "publish": "every change",
        "snapshots": "below_log",
        "max_keys": 100,
        "when_full": "fail",
    }
    given |= changed
    schema = given.pop("schema", SCHEMA)
    return LatestSettings.of("golden", given.pop("key", "page"), **given).bind(
        schema, shards=SHARDS
    )


SPEC = spec_of()


def table(rows: Rows) -> pa.Table:
    """The rows, as they come."""
    columns = []
    for at, each in enumerate(SCHEMA):
        kind = pa.int64() if pa.types.is_timestamp(each.type) else each.type
        columns.append(pa.array([row[at] for row in rows], kind).cast(each.type))
    return pa.table(columns, schema=SCHEMA)


def state() -> State:
    """The core's state after the history."""
    after = latest.empty(SPEC)
    for rows in BATCHES:
        after = latest.step(SPEC, after, latest.pack(SPEC, table(rows)), None).state
    return after


def main() -> None:
    """Write what is not there yet."""
    if not FILE.exists():
        frame = encode(latest.STATE, SPEC.identity, SHARDS, state().tables)
        FILE.write_bytes(frame)
        print(f"{FILE.name}: {len(frame)} bytes, {dt.datetime.now(dt.UTC):%Y-%m-%d}")


if __name__ == "__main__":
    main()
