"""The state of a comparison does not grow with the stream: hundreds of micro-batches of changing keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import windows
from streamops.kernel.core import State
from streamops.spark.operator import Operator
from tests.resources import Resources

pytestmark = pytest.mark.laws

ROWS, SIZE = 60, 3_600_000_000
BEGIN = 1_362_000_000_000_000 // SIZE  # a month before the clock is put forward in Berlin
INSTANT = pa.timestamp("us", tz="UTC")
PLAIN = pa.schema(
    [("k", pa.int64()), ("window_start", INSTANT), ("window_end", INSTANT), ("n", pa.int64())]
)
CHANGES = PLAIN.append(pa.field("revision", pa.int64())).append(
    pa.field("_change_type", pa.string())
)
COMMON: dict[str, Any] = {"values": "n", "by": "k", "delay": "2 hours"}
CORRECTS = {"stragglers": "retract", "allowed_lateness": "6 hours"}
CASES: list[tuple[Operator, pa.Schema]] = [
    (windows.compare("1 day", **COMMON), PLAIN),
    (windows.compare("1 day", **COMMON, **CORRECTS), CHANGES),
    (windows.compare("day", zone="Europe/Berlin", **COMMON, **CORRECTS), CHANGES),
    (windows.compare("12 hours", periods=3, **COMMON, **CORRECTS), CHANGES),
]


def micro_batch(number: int, schema: pa.Schema, rng: np.random.Generator) -> pa.Table:
    """Windows of an hour, of keys that live for about twenty hours; a tenth arrives later."""
    late = np.where(rng.random(ROWS) < 0.1, rng.integers(0, 12, ROWS), 0)
    start = (BEGIN + number - late) * SIZE
    # In a micro-batch each window once; across them a higher revision is newer.
    keys = number // 20 * 40 + np.arange(ROWS) * 40 // ROWS
    keep = np.unique(np.stack([keys, start]), axis=1, return_index=True)[1]
    columns: dict[str, Any] = {
        "k": keys[keep],
        "window_start": pa.array(start[keep]).cast(INSTANT),
        "window_end": pa.array(start[keep] + SIZE).cast(INSTANT),
        "n": rng.integers(0, 9, len(keep)) if len(schema) > 4 else np.zeros(len(keep), np.int64),
        "revision": np.full(len(keep), number),
        "_change_type": np.where(rng.random(len(keep)) < 0.1, "delete", "insert"),
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)


@pytest.mark.parametrize("batches", [120, pytest.param(1_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("transform", "schema"), CASES, ids=["drop", "retract", "calendar", "band"]
)
def test_state_is_as_large_in_the_last_quarter_as_in_the_second(
    transform: Operator, schema: pa.Schema, batches: int
) -> None:
    core, spec = transform.core, transform.parameters.resolve((schema,), carried=(None,), shards=1)
    rng, state = np.random.default_rng(7), State.empty(core.layout(spec))
    sizes, resources = [], Resources()
    for number in range(batches):
        batch = micro_batch(number, schema, rng).select(spec.input.names)
        watermark = (BEGIN + number - 2) * SIZE
        state = core.step(spec, state, [core.pack(spec, batch)], watermark).state
        sizes.append(state.rows)
        resources.measure()
    quarter = batches // 4
    second, last = max(sizes[quarter : 2 * quarter]), max(sizes[3 * quarter :])
    assert second > 500, "the state is too small to show anything"
    assert last <= 1.1 * second, f"{second} entries in the second quarter, {last} in the last"
    resources.check()
