"""A history of stored queries whose state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import search
from streamops.kernel.core import State
from streamops.search.core.match import SearchCore
from streamops.search.core.spec import MatchSpec
from tests.golden.states import FOLDER, SHARDS, stored

Rows = list[tuple[Any, ...]]

FILE = FOLDER / "search.match-v1.bin"
DOCUMENTS = pa.schema(
    [("n", pa.int64()), ("title", pa.string()), ("body", pa.string()), ("price", pa.float64()), ("city", pa.string())]
)  # fmt: skip
QUERIES = pa.schema(
    [("id", pa.int64()), ("query", pa.string()), ("lsn", pa.int64()), ("_change_type", pa.string())]
)
BATCHES: list[Rows] = [
    [
        (1, 'title:"new york" OR yor*', 1, "insert"),
        (2, "+price:[1.5 TO 3} -city:Oslo", 2, "insert"),
        (3, "never parsed (", 3, "delete"),
        (4, "été AND NOT (a b)", 4, "insert"),
        (5, "invalid (", 5, "insert"),
    ],
    [
        (4, "city:{B TO P}", 60, "update_postimage"),
        (6, "city:* price:2 city:O*", 70, "insert"),
        (7, "gone", 71, "delete"),
    ],
]
DOCUMENT_ROWS: Rows = [
    (1, "In New York!", None, 2.0, "Oslo"),
    (2, None, "yorkshire", 1.5, None),
    (3, "x", "y", float("nan"), "Bergen"),
    (4, None, None, -0.0, None),
]


def spec_of(**changed: Any) -> MatchSpec:
    """The spec over this history's columns."""
    given: dict[str, Any] = {
        "text": ["title", "body"],
        "fields": ["price", "city"],
        "sequence": "lsn",
        "horizon": 20,
        "max_keys": 100,
    }
    documents = changed.pop("documents", DOCUMENTS)
    parameters = search.match(None, **(given | changed)).parameters
    spec: MatchSpec = parameters.resolve((documents, QUERIES), carried=(None, None), shards=SHARDS)
    return spec


SPEC = spec_of()


def inputs(documents: Rows, changes: Rows) -> list[pa.Table]:
    """The packed rows of both inputs."""
    tables = [
        pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema), schema=schema)
        for rows, schema in ((documents, DOCUMENTS), (changes, QUERIES))
    ]  # fmt: skip
    return [SearchCore().pack(SPEC, table, side) for table, side in zip(tables, ("left", "right"), strict=True)]  # type: ignore[arg-type]  # fmt: skip


def state() -> State:
    """The core's state after the history."""
    after = State.empty(SearchCore().layout(SPEC))
    for rows in BATCHES:
        after = SearchCore().step(SPEC, after, inputs([], rows), None).state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(SearchCore, SPEC, state())}
