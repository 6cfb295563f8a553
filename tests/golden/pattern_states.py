"""A history of pattern matching and its stored state, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import patterns
from streamops.kernel.core import State
from streamops.patterns.core.match import PatternCore
from streamops.patterns.core.spec import PatternSpec
from tests.golden.states import FOLDER, SHARDS, stored

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("fail", pa.bool_()),
        ("ok", pa.bool_()),
        ("ip", pa.string()),
        ("amount", pa.decimal128(6, 2)),
    ]
)
FILE = FOLDER / "patterns.match-v1.bin"
FIRST_FILE = FOLDER / "patterns.match-v1-first.bin"
INITIAL_FILE = FOLDER / "patterns.match-v1-initial.bin"

Rows = list[tuple[Any, ...]]
BATCHES: list[tuple[Rows, int | None]] = [
    ([("a", 1, True, False, "x", "1.50"), ("a", 2, True, False, None, None)], None),
    ([("b", 3, False, True, "y", "7.00"), (None, 4, True, False, "z", "2.00")], 3),
    ([("a", 9, True, None, "ü", "3.25"), (None, 12, False, True, "z", "-1.00")], 5),
]
MORE: list[tuple[Rows, int | None]] = [
    ([("a", 10, False, True, "w", "9.99"), ("c", 11, True, True, "v", "0.00")], 8),
    ([("c", 40, False, False, "v", None)], 11),
    ([], 60),
]
AFTER_INITIAL: list[tuple[Rows, int | None]] = [
    ([("a", 10, False, True, "w", None), ("a", 11, False, False, None, "5.00")], 9),
    ([("a", 12, False, False, "w", "9.00")], 11),
    ([], 60),
]
AFTER_FIRST: list[tuple[Rows, int | None]] = [
    ([("a", at, True, False, None, None) for at in (11, 13, 14)], 8),
    ([], 60),
]
"""Key a has matched up to 2, and may match again from 12 on."""


def spec_of(**changed: Any) -> PatternSpec:
    """The spec, with other parameters if given."""
    given: dict[str, Any] = {
        "pattern": "fail{2,} ok",
        "define": {"fail": "fail", "ok": "ok", "less": patterns.previous("amount") > "amount"},
        "within": "20 microseconds",
        "measures": {"ip": patterns.last("ok", "ip"), "total": patterns.sum(None, "amount")},
        "skip": "to next row",
        "tie_break": "ip",
    } | changed
    if "less" not in given["pattern"]:
        given["pattern"] = f"{given['pattern']} less?"
    operator = patterns.match(by="user", time="ts", delay="0 seconds", **given)
    spec: PatternSpec = operator.parameters.resolve((SCHEMA,), carried=(None,), shards=SHARDS)
    return spec


SPEC = spec_of()
GIVEN_FIRST: dict[str, Any] = {
    "pattern": "fail{2} (less ok)??",
    "matches": "first",
    "horizon": "10 microseconds",
    "skip": "past last row",
}
FIRST = spec_of(**GIVEN_FIRST)
GIVEN_INITIAL: dict[str, Any] = {
    "pattern": "fail (less | ok)+",
    "define": {
        "fail": "fail",
        "ok": "ok",
        "less": (patterns.previous("amount").is_null()) & (patterns.initial("amount") < "amount"),
    },
}
INITIAL = spec_of(**GIVEN_INITIAL)
HISTORIES = {FILE: SPEC, FIRST_FILE: FIRST, INITIAL_FILE: INITIAL}


def table(rows: Rows) -> pa.Table:
    """The rows, in their order of arrival."""
    columns = []
    for at, column in enumerate(SCHEMA):
        values = pa.array([row[at] for row in rows], _plain(column.type))
        columns.append(values.cast(column.type))
    return pa.table(columns, schema=SCHEMA)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.int64()
    return pa.string() if pa.types.is_decimal(dtype) else dtype


def state(spec: PatternSpec = SPEC) -> State:
    """The core's state after the history."""
    after = State.empty(PatternCore().layout(spec))
    for rows, watermark in BATCHES:
        after = (
            PatternCore()
            .step(spec, after, [PatternCore().pack(spec, table(rows))], watermark)
            .state
        )
    return after


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {file: stored(PatternCore, spec, state(spec)) for file, spec in HISTORIES.items()}
