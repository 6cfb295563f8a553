"""Paths, logs and problems of a checkpoint, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamops.environment.settings import PARTITIONS, PROVIDER, ROCKSDB
from streamops.errors import CheckpointError, StreamopsError
from streamops.state.checkpoint import (
    MARKER,
    Checkpoint,
    find_problems,
    local_path,
    open_checkpoint,
    require_target,
)
from streamops.state.describe import describe

SETTINGS = {PARTITIONS: "2", PROVIDER: ROCKSDB}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint without stateful operators, after two micro-batches."""
    path = tmp_path / "checkpoint"
    for folder in ("offsets", "commits", "sources/0"):
        (path / folder).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"5f0c"}')
    for batch in (0, 1):
        write_offset(path, batch)
        write_commit(path, batch)
    return Checkpoint(path)


def write_offset(path: Path, batch: int, version: str = "v1", **settings: str) -> None:
    entry = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": SETTINGS | settings}
    text = f'{version}\n{json.dumps(entry)}\n{{"logOffset":{batch}}}'
    (path / "offsets" / str(batch)).write_text(text)


def write_commit(path: Path, batch: int, version: str = "v1") -> None:
    text = f'{version}\n{{"nextBatchWatermarkMs":{batch * 1_000}}}'
    (path / "commits" / str(batch)).write_text(text)


def codes(checkpoint: Checkpoint) -> list[str]:
    return [problem.code for problem in find_problems(checkpoint)]


def refused(function: Any, *arguments: Any) -> StreamopsError:
    with pytest.raises(CheckpointError) as caught:
        function(*arguments)
    assert caught.value.fix
    return caught.value


def test_a_checkpoint_without_problems(checkpoint: Checkpoint) -> None:
    assert codes(open_checkpoint(checkpoint.path)) == []
    assert (checkpoint.last, checkpoint.partitions, checkpoint.watermark) == (1, 2, 1_000)
    report = describe(checkpoint.path)
    assert report.operators == report.problems == []
    assert "micro-batch   1" in str(report)


@pytest.mark.parametrize("missing", ["metadata", "offsets"])
def test_a_directory_that_is_not_a_checkpoint_is_refused(
    checkpoint: Checkpoint, missing: str
) -> None:
    (checkpoint.path / missing).rename(checkpoint.path.parent / missing)
    error = refused(open_checkpoint, checkpoint.path)
    assert error.code == "NOT_A_CHECKPOINT"
    assert missing in error.got
    assert refused(open_checkpoint, checkpoint.path / "none").code == "NOT_A_CHECKPOINT"


def test_paths_are_resolved() -> None:
    assert local_path("file:/tmp/a%20b/../c") == Path("/tmp/c").resolve()
    assert local_path("/tmp/./a") == Path("/tmp/a").resolve()
    assert refused(local_path, "s3a://bucket/checkpoint").code == "CHECKPOINT_PATH"


@pytest.mark.parametrize("to", ["", "new", "state/0", "..", "../other/../checkpoint/x"])
def test_a_new_checkpoint_does_not_overlap_with_the_original(
    checkpoint: Checkpoint, to: str
) -> None:
    assert refused(require_target, checkpoint.path / to, checkpoint).code == "CHECKPOINT_PATH"
    assert codes(checkpoint) == []


def test_nor_through_a_link(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkpoint.path)
    error = refused(require_target, tmp_path / "link" / "new", checkpoint)
    assert error.code == "CHECKPOINT_PATH"


def test_a_new_checkpoint_goes_into_an_empty_directory(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    assert require_target(new, checkpoint) == new
    new.mkdir()
    assert require_target(new, checkpoint) == new
    (new / "file").touch()
    assert refused(require_target, new, checkpoint).code == "CHECKPOINT_PATH"
    (new / MARKER).touch()
    assert "did not end" in refused(require_target, new, checkpoint).what
    assert refused(require_target, new / "file", checkpoint).code == "CHECKPOINT_PATH"


def test_links_are_not_followed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for a copy")
    (checkpoint.path / "sources" / "0" / "0").symlink_to(secret)
    with pytest.raises(CheckpointError) as caught:
        codes(checkpoint)
    assert caught.value.code == "CHECKPOINT_PATH"


def test_an_unfinished_batch(checkpoint: Checkpoint) -> None:
    write_offset(checkpoint.path, 2)
    assert codes(checkpoint) == ["BATCH_UNFINISHED"]
    assert "PROBLEM  BATCH_UNFINISHED" in str(describe(checkpoint.path))


@pytest.mark.parametrize("text", ["", "v1", 'v1\n{"batchWaterma', "garbage\n{}", "v1\n\x00\x00"])
def test_a_torn_file(checkpoint: Checkpoint, text: str) -> None:
    (checkpoint.path / "offsets" / "2").write_text(text)
    report = describe(checkpoint.path)
    assert [problem.code for problem in report.problems] == ["CHECKPOINT_TORN"]
    assert "delete it" in report.problems[0].fix


def test_an_unfinished_rewrite(checkpoint: Checkpoint) -> None:
    (checkpoint.path / MARKER).touch()
    (checkpoint.path / "metadata").unlink()
    assert codes(open_checkpoint(checkpoint.path)) == ["CHECKPOINT_UNFINISHED"]
    assert "remedy: delete the directory" in str(describe(checkpoint.path))


def test_nothing_committed(checkpoint: Checkpoint) -> None:
    for batch in (0, 1):
        (checkpoint.path / "commits" / str(batch)).unlink()
    assert codes(checkpoint) == ["CHECKPOINT_EMPTY"]


def test_the_first_plan_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for folder in ("offsets", "state"):
        (path / folder).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"5f0c"}')
    checkpoint = open_checkpoint(path)
    assert codes(checkpoint) == ["CHECKPOINT_EMPTY"]
    (path / "offsets" / ".0.8d1f.tmp").write_text("v1")
    assert codes(checkpoint) == ["CHECKPOINT_TORN"]
    assert [problem.code for problem in describe(path).problems] == ["CHECKPOINT_TORN"]


def test_a_torn_plan_of_a_later_micro_batch_is_no_problem(checkpoint: Checkpoint) -> None:
    (checkpoint.path / "offsets" / ".2.8d1f.tmp").write_text("v1")
    assert codes(checkpoint) == []


def test_a_commit_without_offsets(checkpoint: Checkpoint) -> None:
    write_commit(checkpoint.path, 2)
    assert codes(checkpoint) == ["CHECKPOINT_TORN"]


def test_formats_that_cannot_be_rewritten(checkpoint: Checkpoint) -> None:
    store = "spark.sql.streaming.stateStore"
    for settings, code in (
        ({f"{store}.checkpointFormatVersion": "2"}, "CHECKPOINT_FORMAT"),
        ({PROVIDER: "org.example.OwnProvider"}, "CHECKPOINT_UNSUPPORTED"),
        ({f"{store}.rowChecksum.enabled": "true"}, "CHECKPOINT_UNSUPPORTED"),
        ({f"{store}.encodingFormat": "avro"}, "CHECKPOINT_UNSUPPORTED"),
    ):
        write_offset(checkpoint.path, 1, **settings)
        assert codes(Checkpoint(checkpoint.path)) == [code]
    write_offset(checkpoint.path, 1)
    write_commit(checkpoint.path, 1, "v2")
    assert codes(Checkpoint(checkpoint.path)) == ["CHECKPOINT_FORMAT"]
    write_commit(checkpoint.path, 1)
    write_offset(checkpoint.path, 1, "v2")
    assert codes(Checkpoint(checkpoint.path)) == ["CHECKPOINT_FORMAT"]
