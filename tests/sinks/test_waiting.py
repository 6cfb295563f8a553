"""Waiting for what a writer wrote: tokens, ledgers and checkpoints, without Spark."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sinks
from streamops.errors import SinkError, SpecError
from streamops.sinks.core.ledger import Delivery, Entry, decide
from streamops.sinks.core.tokens import parse_token, tokens_of
from streamops.spark.identity import Identity

OFFSETS = ('{"orders":{"0":10,"1":0}}', "", '{"orders":{"0":7},"views":{"0":3}}')


@pytest.mark.parametrize(
    ("token", "offsets", "expected"),
    [
        ("kafka:orders:0:6", OFFSETS, True),
        ("kafka:orders:0:7", OFFSETS, False),  # the second source of the topic is behind
        ("kafka:orders:1:0", OFFSETS, False),
        ("kafka:views:0:2", OFFSETS, True),
        ("kafka:views:1:0", OFFSETS, False),  # a partition that was added
        ("kafka:other:0:0", OFFSETS, False),
        ("kafka:orders:0:0", (), False),
        ("kafka:orders:0:0", ("3", "null", '{"logOffset":2}', "[1]"), False),
        ("lsn:0/10", ('{"system":"7","lsn":"0/F"}',), False),
        ("lsn:0/10", ('{"system":"7","lsn":"0/10"}',), True),
        ("lsn:0/FFFFFFFF", ('{"system":"7","lsn":"1/0"}',), True),
        ("lsn:0/1", ('{"orders":{"0":7}}', "3"), False),
        ("delta:4", ('{"reservoirVersion":4,"index":2}',), False),
        ("delta:4", ('{"reservoirVersion":5,"index":-1}',), True),
        ("delta:4", ('{"reservoirVersion":5,"index":-1}', '{"reservoirVersion":4}'), False),
    ],
)
def test_offsets_have_what_a_token_names(
    token: str, offsets: tuple[str, ...], *, expected: bool
) -> None:
    assert parse_token(token).is_reached(offsets) is expected


@given(st.lists(st.integers(0, 5), min_size=1), st.integers(0, 5), st.integers(0, 5))
def test_a_record_is_read_when_every_source_is_behind_it(
    starts: list[int], number: int, more: int
) -> None:
    offsets = [json.dumps({"t": {"0": start}, "u": {"0": 9}}) for start in starts]
    is_reached = parse_token(f"kafka:t:0:{number}").is_reached
    assert is_reached(offsets) is all(start > number for start in starts)
    later = [json.dumps({"t": {"0": start + more}}) for start in starts]
    assert is_reached(later) >= is_reached(offsets)


@pytest.mark.parametrize(
    "token",
    [
        *("", "kafka", "kafka:a", "kafka:a:0", "kafka:a:0:x", "kafka:a:0:1:2", "lsn:5", "lsn:x/1"),
        *("delta:", "delta:x", "file:", "other:1", "0/16B3748"),
    ],
)
def test_what_is_not_a_token_is_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        sinks.wait_for(sinks.parquet(str(tmp_path)), token)
    assert refused.value.code == "INVALID_PARAMETER"


def deliver(folder: Path, batch: int, *offsets: str, rows: int = 1) -> None:
    sink = sinks.parquet(str(folder))
    run = Identity("query", f"run {batch}", offsets)
    sink._deliver_rows(pa.table({"n": list(range(rows))}), batch, run)


def at(offset: int) -> str:
    return json.dumps({"orders": {"0": offset}})


def test_a_reader_waits_for_the_ledger(tmp_path: Path) -> None:
    reader = sinks.parquet(str(tmp_path))

    def write() -> None:
        for batch, offset in enumerate((3, 6, 9)):
            time.sleep(0.1)
            deliver(tmp_path, batch, at(offset))

    writer = threading.Thread(target=write)
    writer.start()
    sinks.wait_for(reader, "kafka:orders:0:5", timeout="1 minute")
    assert sinks.read_parquet(str(tmp_path)).count_rows() >= 2
    writer.join()
    sinks.wait_for(reader, "kafka:orders:0:8", "kafka:orders:0:0", timeout="0 seconds")
    sinks.wait_for(reader.after(lambda batch: batch), "kafka:orders:0:8", timeout="0 seconds")


def test_a_reader_learns_how_far_the_target_is(tmp_path: Path) -> None:
    reader = sinks.parquet(str(tmp_path))
    with pytest.raises(SinkError, match="no micro-batch") as waited:
        sinks.wait_for(reader, "kafka:orders:0:3", timeout="50 milliseconds")
    assert waited.value.code == "WAIT_TIMEOUT"
    deliver(tmp_path, 0, at(3))
    with pytest.raises(SinkError, match=r"offsets .*3") as waited:
        sinks.wait_for(reader, "kafka:orders:0:2", "kafka:orders:0:3", timeout="50 milliseconds")
    assert "kafka:orders:0:3" in str(waited.value)
    assert "kafka:orders:0:2" not in str(waited.value)


def test_a_ledger_without_offsets_is_refused(tmp_path: Path) -> None:
    deliver(tmp_path, 0)
    with pytest.raises(SinkError) as refused:
        sinks.wait_for(sinks.parquet(str(tmp_path)), "kafka:orders:0:3")
    assert refused.value.code == "OFFSETS_UNKNOWN"
    deliver(tmp_path, 1, at(3))
    with pytest.raises(SpecError) as other:
        sinks.wait_for(sinks.parquet(str(tmp_path)), "file:/in/a.json")
    assert other.value.code == "INVALID_PARAMETER"


@pytest.mark.parametrize("target", [None, 3, sinks.fan_out({"a": sinks.parquet("/a")})])
def test_a_target_has_a_ledger(target: Any) -> None:
    with pytest.raises(SpecError) as refused:
        sinks.wait_for(target, "kafka:orders:0:3")
    assert refused.value.code == "PARAMETER_TYPE"


def test_a_repeated_micro_batch_adds_its_offsets() -> None:
    known = Entry("query", 1, "run", 4, rows=2, digest=7)
    again = Delivery("query", "run 2", 4, rows=2, digest=7, is_first=True, offsets=(at(3),))
    decision = decide(known, again)
    assert (decision.action, decision.entry.offsets) == ("skip", (at(3),))


class Plan:
    """The logs of a query, as Spark writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits", "sources/0"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"query"}')

    def add(
        self,
        batch: int,
        *offsets: str,
        is_committed: bool = True,
        watermarks: tuple[int, int] = (0, 0),
    ) -> None:
        """A micro-batch with its watermark, and the one to which it leads."""
        text = "\n".join(["v1", f'{{"batchWatermarkMs":{watermarks[0]}}}', *offsets])
        (self.folder / "offsets" / str(batch)).write_text(text)
        if is_committed:
            text = f'v1\n{{"nextBatchWatermarkMs":{watermarks[1]}}}'
            (self.folder / "commits" / str(batch)).write_text(text)

    def list_files(self, name: str, *files: tuple[str, int]) -> None:
        lines = [json.dumps({"path": p, "timestamp": 1, "batchId": b}) for p, b in files]
        (self.folder / "sources/0" / name).write_text("\n".join(["v1", *lines]))


def test_a_reader_waits_for_a_checkpoint(tmp_path: Path) -> None:
    plan = Plan(tmp_path)

    def has(token: str) -> bool:
        try:
            sinks.wait_for(str(tmp_path), token, timeout="20 milliseconds")
        except SinkError:
            return False
        return True

    assert not has("kafka:orders:0:2")
    plan.add(0, at(3), "-")
    assert has("kafka:orders:0:2")
    plan.add(1, at(4), at(3), is_committed=False)
    assert not has("kafka:orders:0:3")
    plan.add(1, at(4), at(3))
    assert has("kafka:orders:0:2")
    assert not has("kafka:orders:0:3")  # the second source is behind
    plan.add(9, at(4), at(4))
    plan.add(10, at(5), at(5), is_committed=False)
    assert has("kafka:orders:0:3")
    sinks.wait_for(tmp_path.as_uri(), "kafka:orders:0:3", timeout="0 seconds")


def test_a_reader_waits_for_the_watermark(tmp_path: Path) -> None:
    plan = Plan(tmp_path)

    def has(token: str) -> bool:
        try:
            sinks.wait_for(str(tmp_path), token, timeout="20 milliseconds", watermark=True)
        except SinkError:
            return False
        return True

    plan.add(0, at(3), watermarks=(0, 5_000))
    assert not has("kafka:orders:0:2")
    plan.add(1, at(4), watermarks=(5_000, 9_000), is_committed=False)
    assert not has("kafka:orders:0:2")
    plan.add(1, at(4), watermarks=(5_000, 9_000))
    assert has("kafka:orders:0:2")
    assert not has("kafka:orders:0:3")
    plan.add(2, at(4), watermarks=(9_000, 9_000))  # a micro-batch without rows
    assert has("kafka:orders:0:3")
    plan.add(3, at(7), watermarks=(9_000, 9_000))  # late rows only
    assert has("kafka:orders:0:6")


def test_a_ledger_has_no_watermark(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a ledger does not have the watermark"):
        sinks.wait_for(sinks.parquet(str(tmp_path)), "kafka:orders:0:3", watermark=True)


def test_a_file_is_found_in_the_log_of_its_source(tmp_path: Path) -> None:
    plan = Plan(tmp_path)
    plan.list_files("0", ("file:///in/a%20b.json", 0))
    plan.list_files("1", ("file:///in/c.json", 1))
    plan.add(0, '{"logOffset":0}')

    def has(path: str) -> bool:
        try:
            sinks.wait_for(str(tmp_path), f"file:{path}", timeout="20 milliseconds")
        except SinkError:
            return False
        return True

    assert has("///in/a%20b.json")
    assert has("/in/a%20b.json")
    assert not has("/in/c.json")  # listed, and not read yet
    assert not has("/in/d.json")
    plan.add(1, '{"logOffset":1}')
    assert has("/in/c.json")
    (tmp_path / "sources/0/0").unlink()
    plan.list_files("9.compact", ("file:///in/a%20b.json", 0), ("file:///in/e.json", 9))
    plan.add(5, '{"logOffset":9}')
    assert has("/in/e.json")
    assert has("/in/a%20b.json")


@pytest.mark.parametrize(
    ("second", "read", "has"),
    [
        (("/in/b.json", "/in/a.json"), 0, False),  # a self join, in another order
        (("/in/b.json", "/in/a.json"), 1, True),
        (("/in/b.json",), 5, False),  # it has not listed the file yet
        (("/in/b.csv",), 0, True),
        (("/other/b.json",), 0, True),
        (("/in/day=1/b.json",), 5, False),  # of another partition of the folder
        ((), 0, True),
    ],
)
def test_every_source_that_can_have_a_file_has_read_it(
    tmp_path: Path, second: tuple[str, ...], read: int, *, has: bool
) -> None:
    plan = Plan(tmp_path)
    plan.list_files("0", ("file:///in/a.json", 0))
    (tmp_path / "sources/1").mkdir()
    for number, path in enumerate(second):
        listed = json.dumps({"path": f"file://{path}", "timestamp": 1, "batchId": number})
        (tmp_path / f"sources/1/{number}").write_text(f"v1\n{listed}")
    (tmp_path / "sources/2").mkdir()
    (tmp_path / "sources/2/0").write_text('\0v1\n{"orders":{"0":3}}')  # as a source of Kafka has it
    (tmp_path / "sources/3").mkdir()
    (tmp_path / "sources/3/0").write_text(
        "v1\n1795920058359"
    )  # as a source of rows per second has it
    plan.add(0, '{"logOffset":0}', json.dumps({"logOffset": read}), at(3), "7")

    def wait() -> None:
        sinks.wait_for(str(tmp_path), "file:/in/a.json", timeout="20 milliseconds")

    if has:
        wait()
    else:
        with pytest.raises(SinkError, match="WAIT_TIMEOUT"):
            wait()


@pytest.mark.parametrize("name", ["offsets/0", "commits/0", "sources/0/0"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 20])
def test_a_file_of_a_checkpoint_that_was_cut_off_is_named(
    tmp_path: Path, name: str, size: int
) -> None:
    plan = Plan(tmp_path)
    plan.list_files("0", ("file:///in/a.json", 0))
    plan.add(0, '{"logOffset":0}')
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(SinkError, match="NOT_A_CHECKPOINT") as error:
        sinks.wait_for(str(tmp_path), "file:/in/a.json", timeout="0 seconds", watermark=True)
    assert error.value.got.startswith(f"{name}: ")


def test_another_target_is_as_far(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert sinks.tokens(sinks.parquet(str(old))) == ()
    offsets = '{"orders":{"0":3,"1":0},"views":{"0":1}}', "", "3", '{"system":"7","lsn":"0/F"}'
    deliver(old, 0, *offsets, '{"reservoirVersion":4,"index":-1}', '{"logOffset":3}')
    tokens = sinks.tokens(sinks.parquet(str(old)))
    assert tokens == ("kafka:orders:0:2", "kafka:views:0:0", "lsn:0/F", "delta:3")
    sinks.wait_for(sinks.parquet(str(old)), *tokens, timeout="0 seconds")
    deliver(new, 0, at(2))
    with pytest.raises(SinkError) as waited:
        sinks.wait_for(sinks.parquet(str(new)), *tokens, timeout="0 seconds")
    assert waited.value.code == "WAIT_TIMEOUT"


@given(
    st.lists(st.dictionaries(st.sampled_from("01"), st.integers(0, 3), min_size=1), max_size=3),
    st.lists(st.dictionaries(st.sampled_from("01"), st.integers(0, 3), min_size=1), max_size=3),
)
def test_what_has_all_tokens_is_not_behind(old: list[Any], new: list[Any]) -> None:
    before, after = ([json.dumps({"t": of}) for of in offsets] for offsets in (old, new))
    has_all = all(parse_token(token).is_reached(after) for token in tokens_of(before))
    ends = [(p, of[p]) for of in old for p in of if of[p] > 0]
    assert has_all == (
        not ends or (bool(new) and all(of.get(p, 0) >= end for p, end in ends for of in new))
    )


def test_a_path_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError) as refused:
        sinks.wait_for(str(tmp_path), "kafka:orders:0:3")
    assert refused.value.code == "NOT_A_CHECKPOINT"
