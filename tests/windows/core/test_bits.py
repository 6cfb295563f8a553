"""Preimages have exactly the bits that were published, also for sums of floats.

Values have many magnitudes, so another order of addition gives other last bits. Numbers are compared as
hexadecimal text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.aggregates.core.functions import FloatSum, Mean, Variance
from streamops.kernel.core import State
from streamops.kernel.grids import CumulativeGrid, FixedGrid
from streamops.testing import fold
from streamops.testing.laws import to_rows
from streamops.windows.core.grid import GridCore
from streamops.windows.core.sliding import SlidingCore
from tests.windows.core import test_sliding
from tests.windows.core.play import SCHEMA, Stream, table

pytestmark = pytest.mark.thorough

MORNING = 1_700_000_000_000_000
STEP, LATENESS = 5_000, 40_000
PUBLISHED = ("never", "every batch")
AGGREGATES = (
    ("total", "", FloatSum("x")),
    ("middle", "", Mean("x")),
    ("spread", "", Variance("x", root=False)),
)
INPUT = SCHEMA.append(pa.field("x", pa.float64()))
GRIDS: dict[str, Any] = {
    "cumulative": CumulativeGrid(FixedGrid(60_000, 60_000), 6_000),
    "hopping": FixedGrid(30_000, 6_000),
    "tumbling": FixedGrid(10_000, 10_000),
}


def of_floats(spec: Any) -> Any:
    return replace(spec, aggregates=AGGREGATES, input=INPUT)


def corrected(core: Any, spec: Any, *, keys: str = "ab") -> tuple[list[dict[str, Any]], int]:
    """The output if half of the rows are stragglers, numbers in hexadecimal; number of corrections."""
    rng = np.random.default_rng(5)
    state, emitted, corrections = State.empty(core.layout(spec)), [], 0
    for number in range(1, 25):
        times = MORNING + STEP * number + rng.integers(-35_000, STEP, 40)
        # The last key has few rows, so that it has empty windows.
        names = [keys[-1] if number % 16 == 1 and t % 5 == 0 else keys[t % 2] for t in times]
        rows = table([(int(t), name) for t, name in zip(times, names, strict=True)])
        rows = rows.append_column("x", pa.array(np.exp(rng.normal(0, 20, 40))))
        step = core.step(spec, state, [core.pack(spec, rows)], MORNING + STEP * number)
        state, corrections = step.state, corrections + step.metrics.corrections
        emitted += [
            {n: v.hex() if isinstance(v, float) else v for n, v in row.items()}
            for row in to_rows(step.output)
        ]
    return emitted, corrections


@pytest.mark.parametrize("empty_for", [None, 60_000], ids=["skip", "empty"])
@pytest.mark.parametrize("early", PUBLISHED)
@pytest.mark.parametrize("grid", GRIDS)
def test_preimages_of_grid_windows_have_the_published_bits(
    grid: str, early: str, empty_for: int | None
) -> None:
    arguments: dict[str, Any] = {"early": early, "empty_for": empty_for, "lateness": LATENESS}
    spec = of_floats(Stream(GRIDS[grid], stragglers="retract", **arguments).spec)
    rows, corrections = corrected(GridCore(), spec, keys="abc")
    assert corrections > 100
    folded = fold(rows, key=("k", "window_start", "window_end"))
    assert any(row["total"] is None for row in folded) == (empty_for is not None)


@pytest.mark.parametrize("early", PUBLISHED)
def test_preimages_of_sliding_windows_have_the_published_bits(early: str) -> None:
    """Whatever was evicted, arrived in between, or is stored in the meantime."""
    stream = test_sliding.Stream(60_000, stragglers="retract", lateness=LATENESS, early=early)
    rows, corrections = corrected(SlidingCore(), of_floats(stream.spec))
    assert corrections > 500
    assert len(fold(rows, key=("k", "t"))) > 500
