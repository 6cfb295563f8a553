"""The step of a shard, as both state APIs call it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.codec import ipc_write
from streamops.kernel.errors import StateFormatError
from streamops.spark.step import ShardStep
from streamops.spark.wire import NOTHING, pack_rows

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SHARDS = 4
SETTINGS: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": {"n": agg.count()},
    "delay": "5 seconds",
    "allowed_lateness": "1 hour",
    "stragglers": "update",
}
OTHERS: list[dict[str, Any]] = [
    {"size": "20 seconds"},
    {"by": "v"},
    {"agg": {"n": agg.count("v")}},
    {"allowed_lateness": "2 hours"},
    {"stragglers": "retract"},
    {"shards": 8},
]


def shard_step(size: str = "10 seconds", shards: int = SHARDS, **changes: Any) -> ShardStep:
    transform = windows.tumbling(size, **(SETTINGS | changes))
    spec = transform.parameters.resolve((SCHEMA,), carried=(None,), shards=shards)
    return ShardStep(transform.name, transform.core, spec, shards)


def packed(step: ShardStep, *seconds: int) -> bytes:
    micros = [second * 1_000_000 for second in seconds]
    columns = [["a"] * len(micros), [1] * len(micros), micros]
    rows = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA.names
    )
    return ipc_write(pack_rows(step.core, step.spec, "left", rows))


def metrics(step: ShardStep, frame: Any) -> dict[str, int]:
    return dict(zip(step.metric_names, frame["metrics"][0], strict=True))


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: next(iter(change)))
def test_a_shard_with_nothing_to_do_refuses_other_parameters_too(change: dict[str, Any]) -> None:
    stored, _ = shard_step()(None, [NOTHING], 100_000)
    with pytest.raises(StateFormatError) as refused:
        shard_step(**change)(stored, [NOTHING], 200_000)
    assert refused.value.code in ("STATE_PARAMETERS", "STATE_SHARDS")


def test_a_shard_with_nothing_to_do_keeps_its_frame_and_follows_the_watermark() -> None:
    step = shard_step()
    before, _ = step(None, [packed(step, 7_205)], 0)  # closes at 7,210; the lateness is 3,600
    after, frame = step(before, [NOTHING], 1_000)
    assert after[-1] == before[-1]
    assert step.last_watermark(after) == 1_000
    assert (metrics(step, frame)["state_rows"], metrics(step, frame)["results"]) == (1, 0)


@pytest.mark.parametrize("blob", [None, "", "no base64", "AAAA"])
def test_what_is_not_a_frame_is_refused(blob: str | None) -> None:
    step = shard_step()
    stored, _ = step(None, [packed(step, 105)], 0)
    with pytest.raises(StateFormatError) as refused:
        step((*stored[:-1], blob), [packed(step, 106)], 0)
    assert refused.value.code == "STATE_FOREIGN"


def test_rows_that_cannot_be_placed_are_counted_and_not_added_up() -> None:
    """Two of the largest number would be an overflow, and end the query."""
    step = shard_step(agg={"total": agg.sum("v")})
    rows = pa.table([["a"] * 3, [2**63 - 1, 2**63 - 1, 7], [None, None, 105_000_000]], SCHEMA.names)
    packs = [ipc_write(pack_rows(step.core, step.spec, "left", rows.cast(SCHEMA)))]
    _, frame = step(None, packs, 0)
    assert (
        metrics(step, frame)["rows"],
        metrics(step, frame)["rejected"],
        metrics(step, frame)["on_time"],
    ) == (3, 2, 1)
