"""A history of changes for ``normalize``, whose state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops.changes import normalize
from streamops.changes.core.latest import LatestCore, TableSpec
from streamops.kernel.core import State
from tests.golden.states import FOLDER, SHARDS, stored

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
FILE = FOLDER / "changes.latest-v1.bin"

Rows = list[tuple[Any, ...]]


def change(
    page: str | None, offset: int, n: Any, tags: Any, *missing: str, **other: Any
) -> tuple[Any, ...]:
    """A change; its time is its sequence in seconds."""
    change_type = other.get("change_type", "update_postimage")
    snapshot, sequence = other.get("snapshot", False), {"log": 1, "offset": offset}
    return (page, n, tags, offset * 1_000_000, sequence, change_type, snapshot, [*missing])


BATCHES: list[Rows] = [
    [change(None, 0, None, None, change_type="truncate")],
    [change("a", 1, 1, ["x"]), change("a", 3, None, None, "n", "tags"), change("b", 2, 2, None)],
    [change("b", 4, None, None, change_type="delete"), change("ä", 5, 3, [], snapshot=True)],
    [change("old", 1, 9, None), change("old", 2, None, None, change_type="delete")],
    [change("c", 13, None, ["y", None], "n"), change("d", 14, None, None, change_type="delete")],
]
MORE: list[Rows] = [
    [change("a", 2, 7, ["late"]), change("old", 2, 5, None), change("b", 3, 8, None)],
    [
        change("b", 15, 1, None),
        change("ä", 16, None, None, "tags"),
        change("c", 13, 4, ["y", None]),
    ],
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
    transform = normalize(given.pop("key", "page"), **given)
    spec: TableSpec = transform.parameters.resolve((schema,), carried=(None,), shards=SHARDS)
    return spec


SPEC = spec_of()


def table(rows: Rows) -> pa.Table:
    """The rows as a table."""
    columns = []
    for at, field in enumerate(SCHEMA):
        dtype = pa.int64() if pa.types.is_timestamp(field.type) else field.type
        columns.append(pa.array([row[at] for row in rows], dtype).cast(field.type))
    return pa.table(columns, schema=SCHEMA)


def state() -> State:
    """The state after the history."""
    after = State.empty(LatestCore().layout(SPEC))
    for rows in BATCHES:
        after = LatestCore().step(SPEC, after, [LatestCore().pack(SPEC, table(rows))]).state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(LatestCore, SPEC, state())}
