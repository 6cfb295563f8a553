"""Wrong expectations in a transcript fail, and malformed transcripts are refused."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from streamops.kernel.errors import RequirementError, SpecError
from streamops.testing.transcripts import assert_replays, load, parse

RIGHT = """
name: right
operator: windows.tumbling
columns: {k: string, ts: timestamp, v: bigint}
spec:
  {size: 10 seconds, delay: 5 seconds, allowed_lateness: 10 seconds, stragglers: retract,
   too_late: route, by: k, agg: {n: count, total: sum v}}
script:
  - rows: [a 1s 1, {k: a, ts: 4s, v: 2}, null 2s 5, b 15s 0]
    watermark: null
  - no_data: true
    watermark: 10s
    expect:
      - {k: a, window: "[0s, 10s)", n: 2, total: 3, revision: 0, change: insert}
      - {k: null, window: "[0s, 10s)", n: 1, total: 5, revision: 0, change: insert}
    counts: {results: 2}
    state_rows: 3
  - rows: [a 3s 7, a -1s 0, a null 0]
    expect:
      - {k: a, window: "[0s, 10s)", n: 2, total: 3, revision: 0, change: update_preimage}
      - {k: a, window: "[0s, 10s)", n: 3, total: 10, revision: 1, change: update_postimage}
    late:
      - {row: a -1s 0, window: "[-10s, 0s)", reason: too_late, lateness: 11s, watermark: 10s}
      - {row: a null 0, reason: null_time}
    counts: {stragglers: 1, corrections: 1, rejected: 1}
  - rows: [b 25s 0]
"""


def edited(*edits: tuple[str, str]) -> str:
    text = RIGHT
    for old, new in edits:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


def test_the_right_transcript_passes() -> None:
    (transcript,) = parse(RIGHT + '  - no_data: true\n    watermark: 20s\n    expect:\n      - '
                          '{k: b, window: "[10s, 20s)", n: 1, total: 0, revision: 0, '
                          "change: insert}\n")  # fmt: skip
    assert_replays(transcript)
    assert_replays(transcript, restart=True, shards=2)


POST = "n: 3, total: 10, revision: 1, change: update_postimage"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "edits"),
    [
        (1, [("    watermark: null", "    watermark: 0s")]),
        (1, [("    watermark: null", "    expect: [{k: a, window: '[0s, 10s)', n: 2, total: 3, "
              "revision: 0, change: insert}]")]),
        (2, [("    watermark: 10s\n", "    watermark: 9s\n")]),
        (2, [("counts: {results: 2}", "counts: {results: 3}")]),
        (2, [("state_rows: 3", "state_rows: 2")]),
        (2, [('{k: null, window: "[0s, 10s)", n: 1', '{k: null, window: "[0s, 10s)", n: 2')]),
        (2, [('{k: null, window: "[0s, 10s)"', '{k: null, window: "[0s, 10.000001s)"')]),
        (2, [("{k: null,", '{k: "null",')]),
        (2, [('      - {k: null, window: "[0s, 10s)", n: 1, total: 5, revision: 0, '
              "change: insert}\n", "")]),
        (2, [("total: 5, revision: 0, change: insert", "total: 5, revision: 1, change: insert")]),
        (3, [(POST, POST.replace("total: 10", "total: null"))]),
        (3, [(POST, POST.replace("revision: 1", "revision: 2"))]),
        (3, [(POST, POST.replace("update_postimage", "insert"))]),
        (3, [("a 3s 7, ", "a 3s 7, a 3s 7, ")]),
        (3, [("lateness: 11s", "lateness: 11.000001s")]),
        (3, [("reason: too_late", "reason: straggler")]),
        (3, [("lateness: 11s, watermark: 10s", "lateness: 11s, watermark: 11s")]),
        (3, [("{row: a -1s 0,", "{row: a -1s 1,")]),
        (3, [("      - {row: a null 0, reason: null_time}\n", "")]),
        (3, [("{stragglers: 1,", "{stragglers: 2,")]),
        (5, []),  # the micro-batch without data has output that the transcript does not list
    ],
)  # fmt: skip
def test_a_wrong_expectation_fails_and_names_its_line(line: int, edits: list[Any]) -> None:
    (transcript,) = parse(edited(*edits))
    with pytest.raises(AssertionError, match=f"'right', line {line}: "):
        assert_replays(transcript)


def test_a_micro_batch_without_data_that_spark_would_not_run_fails() -> None:
    text = RIGHT.replace("  - rows: [b 25s 0]\n", "  - no_data: true\n")
    (transcript,) = parse(text)
    with pytest.raises(AssertionError, match="line 4: there is no micro-batch without") as caught:
        assert_replays(transcript)
    assert {str(entry.path) for entry in caught.traceback.filter(caught)} == {__file__}


@pytest.mark.parametrize(
    ("what", "edits"),
    [
        ("missing keys: name", [("name: right\n", "")]),
        ("unknown or missing keys: note", [("name: right", "name: right\nnote: x")]),
        ("no such operator", [("windows.tumbling", "windows.rolled")]),
        ("no such operator", [("windows.tumbling", "windows.tumbling.x")]),
        ("no such operator", [("windows.tumbling", "os.remove")]),
        ("no such function", [("windows.tumbling", "os:nothing")]),
        ("no such operator", [("windows.tumbling", "os:sep")]),
        ("no such operator", [("windows.tumbling", "builtins:dict")]),
        ("does not return an operator", [("windows.tumbling", "unittest.mock:Mock")]),
        ("does not take this spec", [("windows.tumbling", "tests.process.functions:add_up")]),
        ("does not take this spec", [("delay: 5 seconds", "dely: 5 seconds")]),
        ("does not take this spec", [("windows.tumbling", "windows.session")]),
        ("not an aggregate", [("total: sum v", "total: summ v")]),
        ("not an aggregate", [("total: sum v", "total: Aggregate v")]),
        ("not an aggregate", [("total: sum v", "total: ''")]),
        ("not an aggregate", [("total: sum v", "total: sum")]),
        ("not an aggregate", [("total: sum v", "total: sum v by k")]),
        ("not an aggregate", [("total: sum v", "total: sum v over k")]),
        ("not an aggregate", [("total: sum v", "total: {}")]),
        ("not an aggregate", [("total: sum v", "total: {distinct: v}")]),
        ("not an aggregate", [("total: sum v", "total: {distinct: v, at_least: 3}")]),
        ("not an aggregate", [("total: sum v", "total: {at_most: 3, distinct: v}")]),
        ("no known type", [("v: bigint", "v: long")]),
        ("`columns` is not a mapping", [("columns: {k: string, ts: timestamp, v: bigint}",
                                         "columns: [k, ts, v]")]),
        ("this is not a row", [("[a 1s 1,", "[a 1s,")]),
        ("this is not a row", [("{k: a, ts: 4s, v: 2}", "{k: a, ts: 4s}")]),
        ("this is not a time", [("[a 1s 1,", "[a 1 1,")]),
        ("does not fit its column", [("[a 1s 1,", "[a 1s x,")]),
        ("does not fit its column", [("{k: a, ts: 4s, v: 2}", "{k: 1, ts: 4s, v: 2}")]),
        ("one micro-batch", [("  - no_data: true", "  - no_data: false")]),
        ("one micro-batch", [("  - no_data: true", "  - no_data: true\n    rows: []")]),
        ("one micro-batch", [("  - rows: [b 25s 0]", "  - expect: []")]),
        ("keys: watermrak", [("    watermark: null", "    watermrak: null")]),
        ("`rows` is not a list", [("  - rows: [b 25s 0]", "  - rows: b 25s 0")]),
        ("given twice", [("    state_rows: 3", "    state_rows: 3\n    state_rows: 3")]),
        ("given twice", [("columns: {k: string,", "columns: {k: string, k: bigint,")]),
        ("no such count", [("{stragglers: 1,", "{straglers: 1,")]),
        ("no such count", [("state_rows: 3", "state_rows: three")]),
        ("other columns than the output", [("n: 3, total: 10,", "n: 3,")]),
        ("other columns than the output", [("n: 3, total: 10,", "n: 3, total: 10, x: 1,")]),
        ("other columns than the output", [
            ('{k: null, window: "[0s, 10s)",', "{k: null,")]),
        ("this is not a window", [
            ('{k: null, window: "[0s, 10s)"', '{k: null, window: "[0s, 10s]"')]),
        ("does not fit its column", [("n: 3, total: 10,", "n: three, total: 10,")]),
        ("missing keys: reason", [("{row: a null 0, reason: null_time}", "{row: a null 0}")]),
        ("has no offset", [("name: right", "name: right\nepoch: 2024-01-01T00:00:00")]),
        ("no lines", [(RIGHT[RIGHT.index("script:") :], "script: []\n")]),
        ("not YAML", [("name: right", "name: [right")]),
    ],
)  # fmt: skip
def test_a_malformed_transcript_is_refused(what: str, edits: list[Any]) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        parse(edited(*edits))
    assert caught.value.code == "TRANSCRIPT_MALFORMED"


BEHIND = """
name: behind
behind: {time.producers: {producer: k, delay: 5 seconds, idle: 1 minute}}
operator: windows.tumbling
spec: {size: 10 seconds, agg: {n: count}}
script:
  - rows: [a 1s, b 2s]
    clock: {active: 2, clock: 1s, held_by: a}
"""


def test_an_operator_may_follow_a_clock() -> None:
    (transcript,) = parse(BEHIND)
    assert_replays(transcript)
    chain: Any = transcript.chain
    assert [operator.name for operator in chain] == ["time.producers", "windows.tumbling"]


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (("active: 2", "active: 3"), "active of the clock is 2, expected 3"),
        (("clock: 1s", "clock: 1.000001s"), "clock of the clock is 1704067201000000, expected"),
        (("clock: 1s", "clock: null"), "expected None"),
        (("held_by: a", "held_by: b"), "held_by of the clock is a, expected b"),
    ],
)
def test_metrics_of_a_clock_are_compared(edit: tuple[str, str], what: str) -> None:
    (transcript,) = parse(BEHIND.replace(*edit))
    with pytest.raises(AssertionError, match=f"'behind', line 1: .*{what}"):
        assert_replays(transcript)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (("time.producers", "time.guard"), "does not take this spec"),
        (("time.producers", "time.nonsense"), "no such operator"),
        (("{producer: k, delay: 5 seconds, idle: 1 minute}", "k"), "is not a mapping"),
        (("{producer: k, delay: 5 seconds, idle: 1 minute}", "{}"), "does not take this spec"),
        (("time.producers: {producer: k, delay: 5 seconds, idle: 1 minute}", ""), "not a clock"),
        (
            (
                "time.producers: {producer: k, delay: 5 seconds, idle: 1 minute}",
                "windows.tumbling: {size: 1 second, agg: {}}",
            ),
            "nothing to compute",
        ),
        (("time.producers: {producer: k, delay: 5 seconds, idle: 1 minute}", "time.guard: {}"),
         "not a clock"),
        (("operator: windows.tumbling", "operator: time.guard"), "does not take this spec"),
        (("active: 2", "activ: 2"), "keys: activ"),
        (("clock: 1s", "clock: soon"), "this is not a time"),
    ],
)  # fmt: skip
def test_a_malformed_clock_is_refused(edit: tuple[str, str], what: str) -> None:
    with pytest.raises(SpecError, match=what):
        parse(BEHIND.replace(*edit))


def test_a_late_row_of_sliding_windows_has_no_window() -> None:
    text = """
        name: late
        operator: windows.sliding
        spec: {size: 10 seconds, delay: 0 seconds, stragglers: route, agg: {n: count}}
        script:
          - rows: []
            late: [{row: a null, reason: null_time, window: null}]
    """
    with pytest.raises(SpecError, match="unknown or missing keys: window"):
        parse(text)


@pytest.mark.parametrize("text", ["", "---\n", f"{RIGHT}\n---\n{RIGHT}", "- a list", "word"])
def test_a_file_holds_transcripts_of_different_names(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert caught.value.code == "TRANSCRIPT_MALFORMED"


def test_errors_of_the_operator_are_raised() -> None:
    with pytest.raises(SpecError) as caught:
        parse(edited(("size: 10 seconds", "size: 0 seconds")))
    assert caught.value.code == "INVALID_DURATION"


def test_an_error_names_the_file_the_transcript_and_the_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(edited(("{stragglers: 1,", "{straglers: 1,")), encoding="utf-8")
    with pytest.raises(SpecError, match=r"wrong\.yaml, 'right', line 3: "):
        load(file)


def test_the_error_for_a_missing_yaml_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RequirementError, match=r"streamops\[testing\]") as caught:
        parse(RIGHT)
    assert caught.value.code == "PACKAGE_MISSING"


TABLE = """
name: a table
operator: changes.normalize
columns: {k: string, lsn: bigint, v: string}
spec: {key: k, sequence: lsn, horizon: 100}
script:
  - rows: [a 1 one, null 2 two]
    expect: [{k: a, v: one, revision: 0, change: insert}]
    late: [{row: null 2 two, reason: null_key}]
    counts: {rejected: 1, duplicates: 0}
    state_rows: 1
  - restart: true
    rows: [a 1 one]
    counts: {duplicates: 1}
"""


@pytest.mark.parametrize("shards", [None, 1, 2])
def test_a_transcript_of_an_operator_without_event_time_passes(shards: int | None) -> None:
    (transcript,) = parse(TABLE)
    assert [len(run) for run in transcript.runs()] == [1, 1]
    assert_replays(transcript, restart=shards is None, shards=shards)


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (1, "v: one, revision: 0", "v: two, revision: 0"),
        (1, "    late: [{row: null 2 two, reason: null_key}]\n", ""),
        (1, "reason: null_key", "reason: no_sequence"),
        (1, "{row: null 2 two", "{row: null 3 two"),
        (1, "rejected: 1", "rejected: 0"),
        (1, "state_rows: 1", "state_rows: 2"),
        (2, "counts: {duplicates: 1}", "counts: {duplicates: 0}"),
        (2, "rows: [a 1 one]", "rows: [b 1 one]"),
    ],
)
def test_a_wrong_expectation_without_event_time_fails(line: int, old: str, new: str) -> None:
    assert TABLE.count(old) == 1
    (transcript,) = parse(TABLE.replace(old, new))
    with pytest.raises(AssertionError, match=rf"'a table', line {line}: "):
        assert_replays(transcript)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{rejected: 1", "{too_late: 1"),
        ("reason: null_key}", "reason: null_key, lateness: 1s}"),
        ("{row: null 2 two, reason: null_key}", "{row: null 2 two}"),
        ("restart: true\n    rows: [a 1 one]", "restart: true"),
        ("restart: true", "restart: false"),
    ],
)
def test_a_malformed_line_without_event_time_is_refused(old: str, new: str) -> None:
    assert TABLE.count(old) == 1
    with pytest.raises(SpecError, match=r"\[TRANSCRIPT_MALFORMED\]"):
        parse(TABLE.replace(old, new))


def test_expected_rejected_rows_need_an_operator_that_routes_them() -> None:
    text = """
name: totals
operator: changes.aggregate
columns: {k: string, _change_type: string}
spec: {by: k, agg: {n: count}}
script: [{rows: [a upsert], late: [{row: a upsert, reason: unknown_operation}]}]
"""
    with pytest.raises(SpecError, match="this operator does not route rejected rows"):
        parse(text)
