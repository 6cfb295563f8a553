"""A history of changes for ``apply``, whose state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamops.changes import apply
from streamops.changes.core.history import HistoryCore
from streamops.changes.core.latest import ApplySpec
from streamops.kernel.core import State
from tests.golden.latest_states import BATCHES, SCHEMA, table
from tests.golden.states import FOLDER, SHARDS, stored

FILE = FOLDER / "changes.intervals-v1.bin"


def spec_of(**changed: Any) -> ApplySpec:
    """The operator, or one with other parameters."""
    given: dict[str, Any] = {
        "history": "intervals",
        "track": ["n", "tags"],
        "sequence": "seq",
        "horizon": "10 seconds",
        "time": "ts",
        "snapshots": "below_log",
        "max_keys": 100,
        "when_full": "fail",
    }
    transform = apply("page", **{**given, **changed})
    spec: ApplySpec = transform.parameters.resolve((SCHEMA,), carried=(None,), shards=SHARDS)
    return spec


SPEC = spec_of()


def state() -> State:
    """The state after the history."""
    after = State.empty(HistoryCore().layout(SPEC))
    for rows in BATCHES:
        after = HistoryCore().step(SPEC, after, [HistoryCore().pack(SPEC, table(rows))]).state
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(HistoryCore, SPEC, state())}
