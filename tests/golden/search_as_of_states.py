"""A history of stored queries as of event time, whose state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import search
from streamops.kernel.core import SIDES, State
from streamops.search.core.asof import SearchAsofCore
from streamops.search.core.spec import MatchSpec
from tests.golden.states import FOLDER, SHARDS, stored

Rows = list[tuple[Any, ...]]
History = list[tuple[Rows, Rows, int | None]]

FILE = FOLDER / "search.match_as_of-v1.bin"
INSTANT = pa.timestamp("us", tz="UTC")
DOCUMENTS = pa.schema(
    [("seen", INSTANT), ("title", pa.string()), ("n", pa.int64()), ("price", pa.float64())]
)
QUERIES = pa.schema(
    [
        ("id", pa.int64()),
        ("query", pa.string()),
        ("since", INSTANT),
        ("log", pa.int32()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
BATCHES: History = [
    (
        [(30, "In New York!", 1, 2.0)],
        [
            (1, '"new york" OR yor*', 10, 1, 1, "insert"),
            (2, "price:[1.5 TO 3}", 20, 1, 2, "insert"),
            (3, "never parsed (", 5, 1, 3, "delete"),
            (4, "été AND NOT (a b)", 6, 1, 4, "insert"),
        ],
        None,
    ),
    (
        [(60, "yorkshire", 2, None), (70, None, 3, float("nan"))],
        [
            (4, "-title:x", 50, 2, 1, "update_postimage"),
            (4, None, 80, 2, 3, "delete"),
            (5, "gone", 40, 2, 2, "delete"),
        ],
        45,
    ),
]
MORE: History = [
    ([(65, "York", 4, 2.0)], [(6, "new", 8, 3, 1, "insert"), (1, "price:*", 66, 3, 2, "insert")], 66),
    ([(90, "x york", 5, 2.0)], [(3, "title:york", 4, 3, 3, "insert")], 80),
]  # fmt: skip


def spec_of(**changed: Any) -> MatchSpec:
    """The spec over this history's columns."""
    given: dict[str, Any] = {
        "text": "title",
        "fields": "price",
        "as_of": "seen",
        "time": "since",
        "sequence": ["log", "lsn"],
        "horizon": "20 microseconds",
        "delay": "0 seconds",
        "rejected": "route",
        "max_keys": 100,
    }
    documents = changed.pop("documents", DOCUMENTS)
    parameters = search.match(None, **(given | changed)).parameters
    spec: MatchSpec = parameters.resolve((documents, QUERIES), carried=(None, None), shards=SHARDS)
    return spec


SPEC = spec_of()


def inputs(documents: Rows, changes: Rows) -> list[pa.Table]:
    """The packed rows of both inputs."""
    packed = []
    for side, rows, schema in zip(SIDES, (documents, changes), (DOCUMENTS, QUERIES), strict=True):
        columns = [
            pa.array([row[at] for row in rows], pa.int64() if of.type == INSTANT else of.type).cast(
                of.type
            )
            for at, of in enumerate(schema)
        ]
        packed.append(SearchAsofCore().pack(SPEC, pa.table(columns, schema=schema), side))
    return packed


def state() -> State:
    """The core's state after the history."""
    after = State.empty(SearchAsofCore().layout(SPEC))
    for documents, changes, watermark in BATCHES:
        after = SearchAsofCore().step(SPEC, after, inputs(documents, changes), watermark).state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(SearchAsofCore, SPEC, state())}
