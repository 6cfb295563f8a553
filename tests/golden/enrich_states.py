"""A history of an enrichment whose state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import joins
from streamops.joins.core.enrich import EnrichCore, EnrichSpec
from streamops.kernel.core import State
from tests.golden.states import FOLDER, SHARDS, stored

Rows = list[tuple[Any, ...]]

FILE = FOLDER / "joins.enrich-v1.bin"
INSTANT = pa.timestamp("us", tz="UTC")
POSITION = pa.struct([("log", pa.int64()), ("offset", pa.int64())])
FACTS = pa.schema([("word", pa.string()), ("x", pa.float64()), ("n", pa.int64())])
TABLE = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("v", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("ts", INSTANT),
        ("seq", POSITION),
        ("_change_type", pa.string()),
        ("_unavailable", pa.list_(pa.string())),
    ]
)
SECOND = 1_000_000


def position(log: int, offset: int) -> dict[str, int]:
    return {"log": log, "offset": offset}


SNAPSHOT: Rows = [
    ("a", 1.0, 1, ["snap"], 0, position(9, 9), "insert", None),
    ("ä", -0.0, 2, None, 0, position(9, 9), "insert", None),
]
BATCHES: list[Rows] = [
    [
        ("a", 1.0, 3, ["log"], SECOND, position(1, 0), "insert", None),
        ("b", float("nan"), None, [None], 2 * SECOND, position(1, 1), "insert", None),
        ("", 0.0, 5, None, -SECOND, position(1, 2), "delete", None),
        ("c", 2.0, 6, ["c"], 0, position(0, 1), "delete", None),
    ],
    [
        ("a", 1.0, None, None, 3 * SECOND, position(2, 0), "update_postimage", ["tags"]),
        ("d", 7.0, None, None, 11 * SECOND, position(2, 1), "insert", ["v"]),
        ("e", 7.0, 1, None, 10 * SECOND, position(2, 2), "delete", None),
    ],
]
MORE: list[tuple[Rows, Rows]] = [
    (
        [("a", 1.0, 1), ("ä", 0.0, 2), ("b", float("nan"), 3), ("c", 2.0, 4), ("e", 7.0, 5)],
        [
            ("c", 2.0, 7, None, 0, position(0, 0), "insert", None),
            ("a", 1.0, 8, ["late"], 2 * SECOND, position(1, 5), "insert", None),
        ],
    ),
    (
        [("a", 1.0, 1), ("d", 7.0, 2), (None, 1.0, 3), ("", -0.0, 4)],
        [("a", 1.0, 9, [], 30 * SECOND, position(3, 0), "delete", None)],
    ),
    ([("a", 1.0, 1), ("b", float("nan"), 2)], []),
]


def spec_of(**changed: Any) -> EnrichSpec:
    """The spec over this history's columns."""
    given: dict[str, Any] = {
        "by": {"word": "k", "x": "x"},
        "sequence": "seq",
        "horizon": "10 seconds",
        "time": "ts",
        "how": "left",
        "max_keys": 100,
        "when_full": "fail",
        "rejected": "drop",
        "into": "status",
    }
    given |= changed
    table = given.pop("table", TABLE)
    parameters = joins.enrich(None, **given).parameters
    spec: EnrichSpec = parameters.resolve((FACTS, table), carried=(None, None), shards=SHARDS)
    return spec


SPEC = spec_of()


def table_of(rows: Rows, schema: pa.Schema = TABLE) -> pa.Table:
    """The rows, as they come."""
    columns = []
    for at, item in enumerate(schema):
        dtype = pa.int64() if pa.types.is_timestamp(item.type) else item.type
        columns.append(pa.array([row[at] for row in rows], dtype).cast(item.type))
    return pa.table(columns, schema=schema)


def changes(rows: Rows) -> pa.Table:
    return EnrichCore().pack(SPEC, table_of(rows), "right")


def state() -> State:
    """The core's state after the history; of a snapshot one row has waited since."""
    after = EnrichCore().begin(SPEC, State.empty(EnrichCore().layout(SPEC)), changes(SNAPSHOT[:1]))
    for rows in BATCHES:
        facts = FACTS.empty_table()
        after = EnrichCore().step(SPEC, after, [facts, changes(rows)], None).state
    return EnrichCore().begin(SPEC, after, changes(SNAPSHOT[1:]))


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(EnrichCore, SPEC, state())}
