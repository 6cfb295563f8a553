"""How the laws call a core, whether it is written against the present contract or the older one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamops.kernel.contract import State
from streamops.kernel.core import Input, SideName, Step

__all__ = ["inputs_of", "pack_rows", "run_batch", "run_step"]


def inputs_of(spec: Any) -> tuple[Input, ...]:
    """The inputs of a resolved operator."""
    if hasattr(spec, "inputs"):
        inputs: tuple[Input, ...] = spec.inputs
        return inputs
    sides = (spec.left, spec.right) if hasattr(spec, "left") else (spec,)
    return tuple(Input(side.by, side.time, side.input, side.delay) for side in sides)


def pack_rows(core: Any, spec: Any, rows: pa.Table, side: SideName) -> pa.Table:
    """Rows of one input as the core packs them."""
    if hasattr(spec, "inputs"):
        return core.pack(spec, rows, side)
    return core.pack(spec, side, rows) if hasattr(spec, "left") else core.pack(spec, rows)


def run_step(
    core: Any, spec: Any, state: State, packed: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One step of the core."""
    if hasattr(spec, "inputs"):
        step: Step = core.step(spec, state, packed, watermark)
        return step
    old = core.step(spec, state, *packed, watermark)
    return Step(old.state, old.emitted, old.late, old.counts)


def run_batch(core: Any, spec: Any, packed: Sequence[pa.Table]) -> pa.Table:
    """The batch result of packed rows."""
    return core.run(spec, packed) if hasattr(spec, "inputs") else core.run(spec, *packed)
