"""Cores of streamops.kernel.core for laws that are written against streamops.kernel.contract."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamops.kernel.contract import State, Step


class Adapted:
    """A core with packed tables as single arguments, and steps with emitted rows and counts."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def pack(self, spec: Any, *arguments: Any) -> pa.Table:
        """Pack rows, or the rows of a side: the side comes first."""
        *side, rows = arguments
        return self.core.pack(spec, rows, *side or ["left"])

    def step(self, spec: Any, state: State, *arguments: Any) -> Step:
        """Process packed tables, and the watermark."""
        *inputs, watermark = arguments
        step = self.core.step(spec, state, inputs, watermark)
        return Step(step.state, step.output, step.late, step.metrics)

    def run(self, spec: Any, *inputs: pa.Table) -> pa.Table:
        """Return the batch result."""
        return self.core.run(spec, inputs)
