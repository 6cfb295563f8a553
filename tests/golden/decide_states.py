"""A history of `sourcing.decide` and its stored state, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import sourcing
from streamops.kernel.core import State
from streamops.process.core.per_key import PerKeyCore
from streamops.process.core.spec import PerKeySpec
from streamops.testing import at
from tests.golden.states import FOLDER, SHARDS, stored
from tests.sourcing.seats import COMMAND, change, commands, reserve

FILE = FOLDER / "sourcing.decide-v1.bin"
SECOND = 1_000_000
START = int(at(0).timestamp()) * SECOND
# As `delay` of the operator is 10 seconds, the last commands of a micro-batch wait for the next one.
WATERMARKS = (None, 14, 34, 59)
BATCHES = [batch[0] for batch in commands()][:3]
MORE = [batch[0] for batch in commands()][3:]


def spec_of(**changed: Any) -> PerKeySpec:
    """The spec, with other parameters if given."""
    given = {
        "by": "k",
        "command_id": "id",
        "time": "ts",
        "state": "holder string",
        "event": "type string, user string",
        "expected_version": "seen",
        "delay": "10 seconds",
    }
    parameters: Any = sourcing.decide(reserve, change, **{**given, **changed}).parameters
    resolved: PerKeySpec = parameters.resolve((COMMAND,), carried=(None,), shards=SHARDS)
    return resolved


SPEC = spec_of()


def play(
    state: State, history: list[list[dict[str, Any]]], *, first: int = 0, spec: Any = None
) -> list[Any]:
    """The steps over micro-batches."""
    spec = SPEC if spec is None else spec
    steps = []
    for rows, second in zip(history, WATERMARKS[first:], strict=False):
        mark = None if second is None else START + second * SECOND
        table = pa.Table.from_pylist(rows, COMMAND)
        steps.append(PerKeyCore().step(spec, state, [PerKeyCore().pack(spec, table)], mark))
        state = steps[-1].state
    return steps


def empty() -> State:
    """The state before the first command."""
    return State.empty(PerKeyCore().layout(SPEC))


def state() -> State:
    """The core's state after the history."""
    after: State = play(empty(), BATCHES)[-1].state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(PerKeyCore, SPEC, state())}
