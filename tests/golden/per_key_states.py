"""A history of a function per key and its stored state, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops.kernel.codec import encode
from streamops.kernel.core import State
from streamops.process.core.per_key import PerKeyCore
from streamops.process.core.spec import PerKeySpec
from tests.golden.states import FOLDER, SHARDS, stored
from tests.process.functions import bursts

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
FILE = FOLDER / "process.per_key-v1.bin"
EARLIER = FOLDER / "process.per_key-v1-earlier.bin"
"""The same, with the parameters that the first states of version 1 have."""
SECOND = 1_000_000
START = 1_700_000_000 * SECOND

Rows = list[tuple[Any, ...]]
BATCHES: list[tuple[Rows, int | None]] = [
    ([("a", 0, 1), ("b", 3, None), (None, 5, 5)], None),
    ([("a", 9, 2), ("ä", 8, -7)], 6),
    ([("b", 30, 4), ("a", 11, 3)], 12),
]
MORE: list[tuple[Rows, int | None]] = [([("a", 40, 6)], 20), ([], 90)]


def spec_of(**changed: Any) -> PerKeySpec:
    """The spec, with other parameters if given."""
    parameters: Any = bursts(**changed).parameters
    resolved: PerKeySpec = parameters.resolve((SCHEMA,), carried=(None,), shards=SHARDS)
    return resolved


SPEC = spec_of()


def table(rows: Rows) -> pa.Table:
    """The rows; times are seconds after the start."""
    times = pa.array([START + row[1] * SECOND for row in rows], pa.int64()).cast(SCHEMA[1].type)
    columns = [pa.array([row[0] for row in rows], pa.string()), times]
    return pa.table([*columns, pa.array([row[2] for row in rows], pa.int64())], schema=SCHEMA)


def play(state: State, history: list[tuple[Rows, int | None]], spec: Any = None) -> list[Any]:
    """The steps over micro-batches."""
    spec = SPEC if spec is None else spec
    steps = []
    for rows, second in history:
        mark = None if second is None else START + second * SECOND
        steps.append(PerKeyCore().step(spec, state, [PerKeyCore().pack(spec, table(rows))], mark))
        state = steps[-1].state
    return steps


def state() -> State:
    """The core's state after the history."""
    after: State = play(State.empty(PerKeyCore().layout(SPEC)), BATCHES)[-1].state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    first = {name: SPEC.identity[name] for name in ("operator", "by", "time", "order_by")}
    return {
        FILE: stored(PerKeyCore, SPEC, state()),
        EARLIER: encode(PerKeyCore.STATE, first, SHARDS, state().tables),
    }
