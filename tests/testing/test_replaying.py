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
from streamops.testing import Replay, at, replay

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def counting(delay: str | None = "5 seconds", **said: Any) -> Any:
    return windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=delay, **said
    )


def row(key: str, seconds: float) -> dict[str, Any]:
    return {"k": key, "ts": at(seconds)}


SCRIPT = [[row("a", 1), row("b", 2)], [row("a", 12)], [], [row("a", 3), row("c", 40)]]


def test_one_result_per_micro_batch_and_one_for_the_watermark_that_moved() -> None:
    results = replay(counting(), SCRIPT)
    assert [result.batch for result in results] == [0, 1, 2, 3, 4]
    assert [result.watermark for result in results] == [None, at(-3), at(7), at(7), at(35)]
    assert [result.counts and result.counts.rows for result in results] == [2, 1, 0, 2, 0]
    assert [len(result.rows) for result in results] == [0, 0, 0, 0, 3]


def test_there_is_no_further_micro_batch_where_the_watermark_did_not_move() -> None:
    assert len(replay(counting(), [[row("a", 12)], [row("a", 3)]])) == 2
    assert replay(counting(), [], schema=SCHEMA) == []


def test_rows_are_dicts_with_aware_timestamps() -> None:
    (_, after) = replay(counting(), [[row("a", 1), row("a", 15)]])
    assert after.rows == [{"k": "a", "window_start": at(0), "window_end": at(10), "n": 1}]
    assert after.table.num_rows == 1


def test_late_rows_stand_apart() -> None:
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
    }
    assert results[2].rows == []
    assert "late" not in results[2].table.column_names


def by_key(**said: Any) -> Any:
    return time.producers("k", **{"time": "ts", "delay": "5 seconds", "idle": "1 hour"} | said)


def test_a_clock_before_the_operator_defines_the_watermark() -> None:
    chain = [by_key(), counting(None)]
    # It starts, as on Spark, when it starts; nobody is silent for an hour.
    results = replay(chain, SCRIPT, restart=True)
    assert [result.watermark for result in results] == [None, at(-4), at(-3), at(-3)]
    told = [result.clock for result in results]
    assert [each and each.held_by for each in told] == ["a", "b", "b", "b"]
    assert [each and each.active for each in told] == [2, 2, 2, 3]
    assert replay(chain[1:], SCRIPT, watermark="5 seconds")[0].clock is None


def test_a_replay_of_a_clock_can_be_continued_and_has_a_micro_batch_without_data() -> None:
    played = Replay([by_key(), counting(None)], SCHEMA)
    first = played.run([[row("a", 1), row("b", 16)], [row("a", 17)]])
    assert [result.watermark for result in first] == [None, at(-4), at(11)]
    assert [result.clock is None for result in first] == [False, False, True]
    assert [r["n"] for r in first[2].rows] == [1]
    (second, _) = played.run([[row("b", 18)]])
    assert second.clock is not None
    assert second.clock.joined == 0


@pytest.mark.parametrize(
    ("chain", "watermark", "error", "code"),
    [
        ([by_key(), counting()], None, WatermarkError, "WATERMARK_TWICE"),
        ([by_key(), counting(None)], "5 seconds", WatermarkError, "CLOCK_BEHIND_WATERMARK"),
        ([by_key(time="at"), counting(None)], None, SchemaError, "COLUMN_NOT_FOUND"),
        (
            [by_key(), counting(None, allowed_lateness="6 seconds")],
            None,
            WatermarkError,
            "WATERMARK_TOO_TIGHT",
        ),
        ([counting(), by_key()], None, SchemaError, "COLUMN_NOT_FOUND"),
        ([], None, SpecError, "NOT_A_CHAIN"),
        ("windows", None, SpecError, "NOT_A_CHAIN"),
        (time.guard("ts"), None, SpecError, "NOT_A_CHAIN"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(
    chain: Any, watermark: Any, error: type[Exception], code: str
) -> None:
    with pytest.raises(error) as caught:
        replay(chain, SCRIPT, watermark=watermark)
    assert getattr(caught.value, "code", None) == code


def test_a_clock_on_another_column_is_no_watermark_on_the_event_time() -> None:
    script = [[{"k": "a", "ts": at(1), "other": at(1)}]]
    with pytest.raises(WatermarkError) as caught:
        replay([by_key(time="other"), counting(None)], script)
    assert "says nothing about 'ts'" in str(caught.value)


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_shards_and_restarts_change_nothing(shards: int) -> None:
    def shown(**how: Any) -> list[Any]:
        return [
            (result.watermark, result.counts, result.state_rows, sorted(map(str, result.rows)))
            for result in replay(counting(), SCRIPT, **how)
        ]

    assert shown(shards=shards) == shown(shards=shards, restart=True) == shown(shards=16)


def test_tables_frames_and_rows_are_the_same_script() -> None:
    tables = [pa.Table.from_pylist(batch, SCHEMA) for batch in SCRIPT]
    frames = [
        pd.DataFrame({"k": t["k"].to_pylist(), "ts": pd.to_datetime(t["ts"].to_pylist(), utc=True)})
        for t in tables
    ]
    expected = replay(counting(), SCRIPT)
    assert replay(counting(), tables) == expected
    assert replay(counting(), frames, schema=SCHEMA) == expected


def test_flush_adds_what_is_still_open() -> None:
    *_, after, open_ = replay(counting(), SCRIPT, flush=True)
    assert after.watermark == open_.watermark == at(35)
    assert [(row_["k"], row_["window_start"]) for row_ in open_.rows] == [("c", at(40))]


def test_flush_changes_nothing() -> None:
    flushed, other = Replay(counting(), SCHEMA), Replay(counting(), SCHEMA)
    assert flushed.run(SCRIPT) == other.run(SCRIPT)
    assert flushed.flush() == flushed.flush()
    assert flushed.run([[row("c", 60)]]) == other.run([[row("c", 60)]])


def test_a_replay_can_be_continued_as_a_query_can() -> None:
    played = Replay(counting(), SCHEMA)
    first = played.run(SCRIPT[:1])
    assert [result.batch for result in first] == [0, 1]  # the second has no data: 2 s - 5 s moved
    assert [result.batch for result in played.run([])] == []
    assert [result.batch for result in played.run(SCRIPT[1:])] == [2, 3, 4, 5]


def test_a_watermark_of_the_frame_stands_in_for_the_delay() -> None:
    own = replay(counting(allowed_lateness="3 seconds"), SCRIPT)
    brought = replay(
        counting(None, allowed_lateness="3 seconds"), SCRIPT, watermark=dt.timedelta(seconds=8)
    )
    assert [(r.watermark, r.rows, r.counts) for r in own] == [
        (r.watermark, r.rows, r.counts) for r in brought
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
def test_a_replay_refuses_what_spark_would(transform: Any, watermark: Any, code: str) -> None:
    with pytest.raises(WatermarkError) as caught:
        replay(transform, SCRIPT, watermark=watermark)
    assert caught.value.code == code


def test_a_naive_datetime_is_no_event_time() -> None:
    with pytest.raises(SchemaError, match="timestamp_ntz"):
        replay(counting(), [[{"k": "a", "ts": dt.datetime(2024, 1, 1)}]])  # noqa: DTZ001  (naive)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="'k'"):
        replay(counting(), [[{"key": "a", "ts": at(1)}]])


def test_other_shards_than_before_are_refused() -> None:
    played = Replay(counting(), SCHEMA, shards=2, restart=True)
    played.run(SCRIPT)
    played._stages[0].count = 3
    with pytest.raises(StateFormatError) as caught:
        played.run([[row("a", 50)]])
    assert caught.value.code == "STATE_SHARDS"


def test_a_number_that_spark_could_not_store_is_found_by_a_restart() -> None:
    played = Replay(counting(), SCHEMA, shards=1, restart=True)
    played.run(SCRIPT)
    fingerprint, *rest = played._stages[0].stored[0]
    played._stages[0].stored[0] = (fingerprint + 2**63, *rest)
    with pytest.raises(OverflowError):
        played.run([[row("a", 50)]])


def test_the_kernel_is_replayed_whatever_the_engine() -> None:
    native = counting()
    native = native.options(engine="native")
    assert replay(native, SCRIPT) == replay(counting(), SCRIPT)


def test_a_replay_starts_no_jvm_and_needs_no_extra() -> None:
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
