"""Run micro-batches through cores without event time, and check the invariants of their states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import State, Step
from streamops.kernel.segments import UNMERGED

Between = Callable[[State], State]


def unchanged(state: State) -> State:
    """Return the state."""
    return state


def restart(core: Any, spec: Any) -> Between:
    """A function that encodes and decodes a state, as a restart does."""
    header = core.STATE, spec.identity, 3

    def restarted(state: State) -> State:
        return State(state.watermark, decode(encode(*header, state.tables), *header))

    return restarted


def play(
    core: Any, spec: Any, batches: Sequence[pa.Table], between: Between = unchanged
) -> list[Step]:
    """The step of each micro-batch."""
    state, steps = State.empty(core.layout(spec)), []
    for batch in batches:
        step = core.step(spec, between(state), [core.pack(spec, batch, "left")], None)
        state = step.state
        _check(core, spec, state)
        assert step.output.schema == step.late.schema == spec.output
        steps.append(step)
    return steps


def annotate(
    core: Any, spec: Any, batches: Sequence[pa.Table], between: Between = unchanged
) -> tuple[list[pa.Table], list[State]]:
    """The output rows and the state after each micro-batch, for a core that adds columns."""
    state, outputs, states = State.empty(core.layout(spec)), [], []
    for batch in batches:
        packed = core.pack(spec, batch, "left")
        if hasattr(core, "annotate"):
            state, rows = core.annotate(spec, between(state), [packed])
        else:
            step = core.step(spec, between(state), [packed], None)
            state, rows = step.state, step.output
        _check(core, spec, state)
        assert rows.schema == spec.output
        outputs.append(rows)
        states.append(state)
    return outputs, states


def _check(core: Any, spec: Any, state: State) -> None:
    core.check(spec, state)
    has_segments = state.segments is not None and state.segments.index
    if not has_segments and UNMERGED not in state.tables:
        assert {n: t.schema for n, t in state.tables.items()} == dict(core.layout(spec))
