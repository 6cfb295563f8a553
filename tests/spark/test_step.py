"""The step of a shard, as both state APIs call it."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import search, sketches, windows
from streamops.kernel.codec import fingerprint, ipc_read, ipc_write
from streamops.kernel.errors import StateFormatError
from streamops.spark import retained
from streamops.spark.packing import NOTHING, pack_rows
from streamops.spark.step import ShardStep, Stored

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


def test_a_greater_lateness_does_not_move_the_watermark_ahead_of_the_events() -> None:
    before, after = shard_step(), shard_step(allowed_lateness="2 hours")
    stored, _ = before(None, [packed(before, 7_205)], 3_600_000)  # the watermark is 7,200
    stored, frame = after(stored, [NOTHING], 3_600_000)
    assert (metrics(after, frame)["watermark"], metrics(after, frame)["results"]) == (
        7_200 * 10**6,
        0,
    )
    assert Stored(*stored).fingerprint == ~fingerprint(*after.header)
    stored, frame = after(stored, [NOTHING], 3_600_001)  # Spark has computed it anew
    assert (metrics(after, frame)["watermark"], metrics(after, frame)["results"]) == (
        10_800_001_000,
        1,
    )
    assert Stored(*stored).fingerprint == fingerprint(*after.header)


def test_a_smaller_lateness_does_not_move_the_watermark_back() -> None:
    before, after = shard_step(), shard_step(allowed_lateness="1 minute")
    stored, _ = before(None, [packed(before, 7_205)], 3_600_000)
    for mark in (3_600_000, 3_600_001, 3_600_002):
        stored = after(stored, [NOTHING], mark)[0] or stored  # None: nothing changed
        assert Stored(*stored).watermark == 7_200 * 10**6


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
    assert refused.value.code == "STATE_CORRUPT"


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


DOCUMENTS = pa.schema([("title", pa.string())])
QUERIES = pa.schema([("id", pa.int64()), ("query", pa.string()), ("lsn", pa.int64())])


def search_step() -> ShardStep:
    operator = search.match(None, text="title", sequence="lsn", horizon=0)
    schemas = (DOCUMENTS, QUERIES)
    spec = operator.parameters.resolve(schemas, carried=(None, None), shards=SHARDS)
    return ShardStep(operator.name, operator.core, spec, SHARDS)


_numbers = itertools.count()


def copied(stored: Any) -> tuple[Any, ...]:
    """As Spark reads it: other objects of the same values."""
    return (*stored[:-1], "".join(list(stored[-1])))


def found(step: ShardStep, stored: Any, titles: list[str], *queries: str, shard: int = 0) -> Any:
    """What is stored after a micro-batch, and the ids of the queries that match."""
    ids = list(range(len(queries)))
    documents = pa.table([titles], schema=DOCUMENTS)
    changes = pa.table([ids, list(queries), [next(_numbers) for _ in ids]], schema=QUERIES)
    packs = [
        ipc_write(pack_rows(step.core, step.spec, "left", documents)),
        ipc_write(pack_rows(step.core, step.spec, "right", changes)),
    ]
    after, frame = step(stored, packs, shard=shard)
    cells = [cell for cell in frame["emitted"] if cell is not None]
    return after, [n for cell in cells for n in ipc_read(cell).column("query_id").to_pylist()]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The blobs that are decoded during the test."""
    retained.forget_all()
    blobs: list[str] = []
    decode = Stored.state

    def state(self: Stored, *args: Any, **named: Any) -> Any:
        blobs.append(self.blob)
        return decode(self, *args, **named)

    monkeypatch.setattr(Stored, "state", state)
    return blobs


def test_a_worker_decodes_no_state_that_it_has_just_written_or_read(decoded: list[str]) -> None:
    step = search_step()
    first, ids = found(step, None, ["a b"], "a", "c")
    assert (ids, decoded) == ([0], [])
    assert found(step, copied(first), ["c"]) == (None, [1])
    second, ids = found(step, copied(first), ["a"], "b")
    assert (ids, decoded) == ([], [])
    assert found(step, copied(second), ["b"]) == (None, [0])
    assert decoded == []


def test_a_worker_decodes_a_state_that_it_has_not_retained(decoded: list[str]) -> None:
    step = search_step()
    first, _ = found(step, None, [], "a")
    second, _ = found(step, first, [], "b")
    assert found(step, copied(first), ["a"])[1] == [0], "a micro-batch is repeated"
    assert decoded == [first[-1]]
    assert found(step, copied(second), ["b"], shard=1)[1] == [0], "another shard"
    assert found(search_step(), copied(second), ["b"])[1] == [0], "another query"
    assert decoded == [first[-1], second[-1], second[-1]]


def test_a_retained_state_is_not_that_of_a_stored_one_that_was_damaged(decoded: list[str]) -> None:
    step = search_step()
    stored, _ = found(step, None, [], "a")
    with pytest.raises(StateFormatError) as refused:
        found(step, (*stored[:-1], stored[-1][:-8] + "AAAAAAA="), ["a"])
    assert refused.value.code == "STATE_CORRUPT"


def test_a_worker_keeps_one_state_per_shard_and_none_of_a_query_that_has_stopped(
    decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(retained.time, "monotonic", lambda: now[0])
    stopped, running = search_step(), search_step()
    found(stopped, None, [], "a")
    stored = [found(running, None, [], "a", shard=n)[0] for n in range(3)]
    assert len(retained._entries) == 4
    for minute in range(1, 12):
        now[0] = 60.0 * minute
        stored = [found(running, stored[n], [], f"a{minute}", shard=n)[0] for n in range(3)]
    assert [key for key in retained._entries] == [(running.plan, n, 0) for n in range(3)]
    assert decoded == []


def test_a_worker_retains_as_many_states_as_the_core_allows(
    decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = search_step()
    stored = [found(step, None, [], "a", shard=n)[0] for n in range(3)]
    size = next(iter(retained._entries.values())).size
    retained.forget_all()
    monkeypatch.setattr(step.core, "RETAINED_BYTES", 2 * size)
    for _ in range(3):
        assert [found(step, copied(stored[n]), ["a"], shard=n)[1] for n in range(3)] == [[0]] * 3
    assert [shard for _, shard, _ in retained._entries] == [0, 1]
    # The first two are decoded once, the third one in every step.
    assert len(decoded) == 2 + 3


def test_a_worker_decodes_no_filters_that_it_has_just_written(decoded: list[str]) -> None:
    schema = pa.schema([("k", pa.int64())])
    operator = sketches.seen("k", capacity=1_000)
    spec = operator.parameters.resolve((schema,), carried=(None,), shards=SHARDS)
    step = ShardStep(operator.name, operator.core, spec, SHARDS)

    def first(stored: Any, *keys: int) -> tuple[Any, list[int]]:
        rows = pa.table({"k": list(keys)}, schema=schema)
        after, frame = step(stored, [ipc_write(pack_rows(step.core, spec, "left", rows))])
        cells = [cell for cell in frame["emitted"] if cell is not None]
        return after, [k for cell in cells for k in ipc_read(cell).column("k").to_pylist()]

    stored, ids = first(None, 1, 2)
    assert ids == [1, 2]
    stored, ids = first(copied(stored), 2, 3)
    assert (ids, decoded) == ([3], [])
    assert first(copied(stored), 1, 2, 3)[1] == []
    retained.forget_all()
    assert first(copied(stored), 1, 2, 3, 4)[1] == [4]
    assert decoded == [stored[-1]]


def test_a_state_that_changes_in_every_micro_batch_is_not_retained(decoded: list[str]) -> None:
    step = shard_step()
    stored, _ = step(None, [packed(step, 105)], 0)
    step(stored, [packed(step, 106)], 0)
    assert (decoded, len(retained._entries)) == ([stored[-1]], 0)


def test_rows_of_the_side_output_are_counted() -> None:
    step = shard_step(stragglers="route", allowed_lateness="0 seconds")
    stored, _ = step(None, [packed(step, 105)], 4_000_000)
    _, frame = step(stored, [packed(step, 1, 2, 7_000)], 4_000_000)
    counted = metrics(step, frame)
    assert counted["side_output"] == counted["stragglers"] + counted["too_late"] == 2
    _, idle = step(stored, [NOTHING], 4_000_000)
    assert metrics(step, idle)["side_output"] == 0
