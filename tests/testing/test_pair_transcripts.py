"""Transcripts of operators with two inputs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.errors import SpecError
from streamops.testing.transcripts import Transcript, assert_replays, parse
from tests.spark.pair_cores import earlier, tally

TEXT = """
name: the watermark is the minimum over both sides
operator: joins.earlier
spec: {delay: [5 seconds, 0 seconds], time: [ts, at]}
columns: {left: {k: string, ts: timestamp}, right: {key: string, at: timestamp}}
script:
  - left: [a 20s, b null]
    late:
      - {side: left, row: b null, reason: null_time}
    counts: {rows: 2, rejected: 1}
  - right: [a 15s, a 40s]
    left: []
  - left: [a 14s]
    right: [a 15s]
    watermark: 15s
    expect:
      - {k: a, ts: 14s, n: 0}
    state_rows: 4
  - left: [a 60s]
    right: [a 10s]
    watermark: 15s
    late:
      - {side: right, row: a 10s, reason: too_late, lateness: 5s, watermark: 15s}
  - no_data: true
    watermark: 40s
    expect:
      - {k: a, ts: 20s, n: 2}
"""


@pytest.fixture(autouse=True)
def joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the two operators importable from streamops.joins."""
    named = SimpleNamespace(__all__=["earlier", "tally"], earlier=earlier, tally=tally)
    monkeypatch.setitem(sys.modules, "streamops.joins", named)


def read(text: str = TEXT, **changes: str) -> Transcript:
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (transcript,) = parse(text)
    return transcript


@pytest.mark.parametrize("shards", [None, 1, 5])
@pytest.mark.parametrize("restart", [False, True])
def test_a_script_with_two_inputs_is_replayed(restart: bool, shards: int | None) -> None:
    assert_replays(read(), restart=restart, shards=shards)


def test_a_failure_names_the_line() -> None:
    with pytest.raises(AssertionError, match="line 3"):
        assert_replays(parse(TEXT.replace("ts: 14s, n: 0", "ts: 14s, n: 1"))[0])
    with pytest.raises(AssertionError, match="line 1"):
        assert_replays(
            parse(TEXT.replace("{side: left, row: b null", "{side: left, row: c null"))[0]
        )


def test_both_sides_have_the_same_columns_by_default() -> None:
    text = """
name: both frames have a watermark
operator: joins.earlier
spec: {by: [k, k], time: [ts, ts]}
with_watermark: {left: 1 second, right: 2 seconds}
script:
  - left: [a 5s]
    right: [a 9s]
  - no_data: true
    watermark: 4s
"""
    transcript = read(text)
    default = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
    assert transcript.schema == (default, default)
    assert transcript.watermark == ("1 second", "2 seconds")
    assert_replays(transcript)
    assert read(text.replace("{left: 1 second, right: 2 seconds}", "1 second")).watermark == (
        "1 second",
        "1 second",
    )


MALFORMED: list[tuple[str, str]] = [
    ("  - right: [a 15s, a 40s]\n    left: []", "  - rows: [a 15s]"),
    ("  - right: [a 15s, a 40s]\n    left: []", "  - expect: []"),
    ("  - no_data: true", "  - no_data: true\n    left: [a 1s]"),
    ("{side: left, row: b null", "{side: middle, row: b null"),
    ("{side: left, row: b null", "{row: b null"),
    ("{left: {k: string, ts: timestamp}, right", "{k: {k: string, ts: timestamp}, right"),
]


@pytest.mark.parametrize(("before", "after"), MALFORMED)
def test_a_malformed_transcript_is_refused(before: str, after: str) -> None:
    assert before in TEXT
    with pytest.raises(SpecError) as refused:
        parse(TEXT.replace(before, after))
    assert refused.value.code == "TRANSCRIPT_MALFORMED"


def test_an_operator_with_one_input_has_no_sides() -> None:
    text: Any = """
name: one
operator: windows.tumbling
spec: {size: 10 seconds, delay: 1 second, by: k, agg: {n: count}}
script:
  - left: [a 1s]
"""
    with pytest.raises(SpecError, match="left"):
        parse(text)
