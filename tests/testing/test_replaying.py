from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import time, windows
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SpecError,
    StateFormatError,
    WatermarkError,
)
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing import Replay, at, replay

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def counting(delay: str | None = "5 seconds", **arguments: Any) -> Any:
    return windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=delay, **arguments
    )


def row(key: str, seconds: float) -> dict[str, Any]:
    return {"k": key, "ts": at(seconds)}


SCRIPT = [[row("a", 1), row("b", 2)], [row("a", 12)], [], [row("a", 3), row("c", 40)]]


def test_each_micro_batch_has_a_result_and_so_has_an_advanced_watermark() -> None:
    results = replay(counting(), SCRIPT)
    assert [result.batch for result in results] == [0, 1, 2, 3, 4]
    assert [result.watermark for result in results] == [None, at(-3), at(7), at(7), at(35)]
    assert [result.counts and result.counts.rows for result in results] == [2, 1, 0, 2, 0]
    assert [len(result.rows) for result in results] == [0, 0, 0, 0, 3]


def test_there_is_no_micro_batch_without_data_if_the_watermark_did_not_advance() -> None:
    assert len(replay(counting(), [[row("a", 12)], [row("a", 3)]])) == 2
    assert replay(counting(), [], schema=SCHEMA) == []


@pytest.mark.parametrize("micros", [None, MIN_INSTANT - 1, MAX_INSTANT + 1, 2**62])
def test_a_row_without_a_usable_event_time_does_not_move_the_watermark(micros: int | None) -> None:
    (good,) = pa.Table.from_pylist([row("a", 12)], SCHEMA).to_batches()
    bad = [pa.array(["a"]), pa.array([micros], pa.int64()).cast(SCHEMA.field("ts").type)]
    rows = pa.Table.from_batches([good, pa.record_batch(bad, SCHEMA)])
    results = replay(counting(), [rows, [row("b", 3)]])
    assert [result.watermark for result in results] == [None, at(7)]
    assert results[0].counts.rejected == 1


def test_rows_are_dicts_with_aware_timestamps() -> None:
    (_, after) = replay(counting(), [[row("a", 1), row("a", 15)]])
    assert after.rows == [{"k": "a", "window_start": at(0), "window_end": at(10), "n": 1}]
    assert after.table.num_rows == 1


def test_late_rows_are_separate_from_results() -> None:
    results = replay(counting(stragglers="route"), [[row("a", 20)], [], [row("b", 3)]])
    assert [len(result.late_rows) for result in results] == [0, 0, 1]
    assert results[2].late_rows[0] == {
        "k": "b",
        "window_start": at(0),
        "window_end": at(10),
        "reason": "too_late",
        "lateness": dt.timedelta(seconds=12),
        "watermark": at(15),
        "row": row("b", 3),
        "side": None,
        "window": {"start": at(0), "end": at(10)},
    }
    assert results[2].rows == []
    assert "late" not in results[2].table.column_names


def by_key(**arguments: Any) -> Any:
    return time.producers("k", **{"time": "ts", "delay": "5 seconds", "idle": "1 hour"} | arguments)


def test_a_clock_before_the_operator_defines_the_watermark() -> None:
    chain = [by_key(), counting(None)]
    # No producer is idle for an hour.
    results = replay(chain, SCRIPT, restart=True)
    assert [result.watermark for result in results] == [None, at(-4), at(-3), at(-3)]
    clocks = [result.clock for result in results]
    assert [clock and clock.held_by for clock in clocks] == ["a", "b", "b", "b"]
    assert [clock and clock.active for clock in clocks] == [2, 2, 2, 3]
    assert replay(chain[1:], SCRIPT, watermark="5 seconds")[0].clock is None


def test_a_replay_of_a_clock_can_be_continued_and_has_a_micro_batch_without_data() -> None:
    query = Replay([by_key(), counting(None)], SCHEMA)
    first = query.run([[row("a", 1), row("b", 16)], [row("a", 17)]])
    assert [result.watermark for result in first] == [None, at(-4), at(11)]
    assert [result.clock is None for result in first] == [False, False, True]
    assert [r["n"] for r in first[2].rows] == [1]
    (second, _) = query.run([[row("b", 18)]])
    assert second.clock is not None
    assert second.clock.joined == 0


@pytest.mark.parametrize(
    ("chain", "watermark", "error", "code"),
    [
        ([by_key(), counting()], None, WatermarkError, "WATERMARK_TWICE"),
        ([by_key(), counting(None)], "5 seconds", WatermarkError, "WATERMARK_TWICE"),
        ([by_key(time="at"), counting(None)], None, SchemaError, "COLUMN_NOT_FOUND"),
        (
            [by_key(), counting(None, allowed_lateness="6 seconds")],
            None,
            WatermarkError,
            "WATERMARK_TOO_TIGHT",
        ),
        ([counting(), by_key()], None, SchemaError, "COLUMN_NOT_FOUND"),
        ([], None, SpecError, "NOT_REPLAYABLE"),
        ("windows", None, SpecError, "NOT_REPLAYABLE"),
        (time.guard("ts"), None, SpecError, "NOT_REPLAYABLE"),
    ],
)
def test_an_invalid_chain_is_refused(
    chain: Any, watermark: Any, error: type[Exception], code: str
) -> None:
    with pytest.raises(error) as caught:
        replay(chain, SCRIPT, watermark=watermark)
    assert getattr(caught.value, "code", None) == code


def test_a_clock_on_another_column_defines_no_watermark_on_the_event_time() -> None:
    script = [[{"k": "a", "ts": at(1), "other": at(1)}]]
    with pytest.raises(WatermarkError) as caught:
        replay([by_key(time="other"), counting(None)], script)
    assert "on 'other', and not on 'ts'" in str(caught.value)


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_shards_and_restarts_change_nothing(shards: int) -> None:
    def run(**options: Any) -> list[Any]:
        return [
            (result.watermark, result.counts, result.state_rows, sorted(map(str, result.rows)))
            for result in replay(counting(), SCRIPT, **options)
        ]

    assert run(shards=shards) == run(shards=shards, restart=True) == run(shards=16)


def test_tables_frames_and_rows_are_the_same_script() -> None:
    tables = [pa.Table.from_pylist(batch, SCHEMA) for batch in SCRIPT]
    frames = [
        pd.DataFrame({"k": t["k"].to_pylist(), "ts": pd.to_datetime(t["ts"].to_pylist(), utc=True)})
        for t in tables
    ]
    expected = replay(counting(), SCRIPT)
    assert replay(counting(), tables) == expected
    assert replay(counting(), frames, schema=SCHEMA) == expected


def test_flush_adds_pending_results() -> None:
    *_, after, flushed = replay(counting(), SCRIPT, flush=True)
    assert after.watermark == flushed.watermark == at(35)
    assert [(row_["k"], row_["window_start"]) for row_ in flushed.rows] == [("c", at(40))]


def test_flush_changes_nothing() -> None:
    flushed, other = Replay(counting(), SCHEMA), Replay(counting(), SCHEMA)
    assert flushed.run(SCRIPT) == other.run(SCRIPT)
    assert flushed.flush() == flushed.flush()
    assert flushed.run([[row("c", 60)]]) == other.run([[row("c", 60)]])


def test_a_replay_can_be_continued() -> None:
    query = Replay(counting(), SCHEMA)
    first = query.run(SCRIPT[:1])
    assert [result.batch for result in first] == [
        0,
        1,
    ]  # the second has no data: the watermark is 2 s - 5 s
    assert [result.batch for result in query.run([])] == []
    assert [result.batch for result in query.run(SCRIPT[1:])] == [2, 3, 4, 5]


def test_a_watermark_of_the_frame_replaces_the_delay() -> None:
    own = replay(counting(allowed_lateness="3 seconds"), SCRIPT)
    of_frame = replay(
        counting(None, allowed_lateness="3 seconds"), SCRIPT, watermark=dt.timedelta(seconds=8)
    )
    assert [(r.watermark, r.rows, r.counts) for r in own] == [
        (r.watermark, r.rows, r.counts) for r in of_frame
    ]


@pytest.mark.parametrize(
    ("transform", "watermark", "code"),
    [
        (counting(None), None, "WATERMARK_MISSING"),
        (counting(), "10 seconds", "WATERMARK_TWICE"),
        (counting(None, allowed_lateness="11 seconds"), "10 seconds", "WATERMARK_TOO_TIGHT"),
    ],
    ids=["missing", "twice", "too tight"],
)
def test_a_replay_has_the_same_errors_as_spark(transform: Any, watermark: Any, code: str) -> None:
    with pytest.raises(WatermarkError) as caught:
        replay(transform, SCRIPT, watermark=watermark)
    assert caught.value.code == code


def test_a_naive_datetime_is_refused_as_event_time() -> None:
    with pytest.raises(SchemaError, match="timestamp_ntz"):
        replay(counting(), [[{"k": "a", "ts": dt.datetime(2024, 1, 1)}]])  # noqa: DTZ001  (naive)


def test_the_error_for_a_missing_column_names_it() -> None:
    with pytest.raises(ColumnNotFound, match="'k'"):
        replay(counting(), [[{"key": "a", "ts": at(1)}]])


def test_another_number_of_shards_is_refused() -> None:
    query = Replay(counting(), SCHEMA, shards=2, restart=True)
    query.run(SCRIPT)
    query._stages[0].count = 3
    with pytest.raises(StateFormatError) as caught:
        query.run([[row("a", 50)]])
    assert caught.value.code == "STATE_SHARDS"


def test_a_restart_detects_numbers_that_spark_could_not_store() -> None:
    query = Replay(counting(), SCHEMA, shards=1, restart=True)
    query.run(SCRIPT)
    fingerprint, *rest = query._stages[0].stored[0]
    query._stages[0].stored[0] = (fingerprint + 2**63, *rest)
    with pytest.raises(OverflowError):
        query.run([[row("a", 50)]])


def test_a_replay_runs_the_kernel_for_every_engine() -> None:
    native = counting()
    native = native.options(engine="native")
    assert replay(native, SCRIPT) == replay(counting(), SCRIPT)


def test_a_replay_does_not_start_a_jvm_or_import_the_extra() -> None:
    code = """
import sys
from streamops import aggregates as agg, windows
from streamops.testing import at, replay
before = {name for name in sys.modules if name.startswith("pyspark")}
per_key = windows.tumbling("10 seconds", time="ts", agg={"n": agg.count()}, delay="0 seconds")
assert replay(per_key, [[{"ts": at(1)}], [{"ts": at(10)}]], flush=True)[2].rows[0]["n"] == 1
from pyspark import SparkContext
assert SparkContext._gateway is None
new = {name for name in sys.modules if name.startswith("pyspark")} - before
assert not new, new
for extra in ("chispa", "pytest", "yaml"):
    assert extra not in sys.modules, extra
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
