"""A history of changes for ``apply``, whose state is stored, as in :mod:`tests.golden.states`.

``python -m tests.golden.history_states`` writes the bytes if there are none yet.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from streamops.changes import apply
from streamops.changes.core.history import HistoryCore
from streamops.changes.core.spec import ApplySpec
from streamops.kernel.codec import encode
from streamops.kernel.core import State
from tests.golden.latest_states import BATCHES, SCHEMA, table
from tests.golden.states import FOLDER, SHARDS

FILE = FOLDER / "changes.history-v3.bin"


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


def main() -> None:
    """Write the file, unless it exists."""
    if not FILE.exists():
        frame = encode(HistoryCore.STATE, SPEC.identity, SHARDS, state().tables)
        FILE.write_bytes(frame)
        print(f"{FILE.name}: {len(frame)} bytes, {dt.datetime.now(dt.UTC):%Y-%m-%d}")


if __name__ == "__main__":
    main()
