"""A history of running aggregates and its stored state, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import aggregates as agg
from streamops.kernel.core import State
from streamops.windows.core.running import RunningCore, RunningSpec
from tests.golden.states import FOLDER, SHARDS, stored

SCHEMA = pa.schema([("page", pa.string()), ("line", pa.float64()), ("n", pa.int64())])
FILE = FOLDER / "windows.running-v1.bin"

Rows = list[tuple[Any, ...]]
NAN = float("nan")
BATCHES: list[Rows] = [
    [("a", 0.5, 1), ("a", 0.5, None), (None, NAN, 7), ("b", None, 1)],
    [("a", 0.5, 4), ("b", None, None), ("ä", -0.0, 2)],
    [("a", 0.5, 9), ("ä", 0.0, 1), (None, NAN, 3)],
]
MORE: list[Rows] = [
    [("a", 0.5, 2), (None, NAN, 8), ("c", 1.5, None)],
    [("c", 1.5, -1), ("b", None, 0)],
]


def spec_of(**changed: Any) -> RunningSpec:
    """The spec, with other parameters if given."""
    given: dict[str, Any] = {"by": ("page", "line"), "changes": "retract", "max_keys": 100}
    given |= {"agg": {"most": agg.max("n"), "there": agg.count("n")}} | changed
    named = tuple(given.pop("agg").items())
    spec = RunningSpec(operator="golden", agg=named, when_full="fail", **given)
    return spec.resolve((SCHEMA,), carried=(None,), shards=SHARDS)


SPEC = spec_of()


def table(rows: Rows) -> pa.Table:
    """The rows, as they come."""
    columns = [pa.array([row[at] for row in rows], f.type) for at, f in enumerate(SCHEMA)]
    return pa.table(columns, schema=SCHEMA)


def state() -> State:
    """The core's state after the history."""
    after = State.empty(RunningCore().layout(SPEC))
    for rows in BATCHES:
        after = RunningCore().step(SPEC, after, [RunningCore().pack(SPEC, table(rows))], None).state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(RunningCore, SPEC, state())}
