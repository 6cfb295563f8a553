"""The Parquet sink on a local disk and in a file system in memory, without Spark."""

from __future__ import annotations

import datetime as dt
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from streamops import sinks
from streamops.errors import SchemaError, SinkError, SpecError
from streamops.sinks import parquet_folder
from streamops.sinks.parquet_folder import Folder
from tests.sinks.attempts import Attempts, deliver
from tests.sinks.contract import (
    NAN,
    ODD,
    RUN,
    TYPES,
    A,
    AppendContract,
    B,
    Target,
    comparable,
    ordered,
    run_of,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a [folder] {x}*")


def read(path: str, filesystem: pafs.FileSystem | None = None) -> list[dict[str, Any]]:
    dataset = sinks.read_parquet(path, check="content", filesystem=filesystem)
    rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
    return rows


@pytest.fixture
def target(path: str) -> Target:
    return Target(lambda **options: sinks.parquet(path, **options), lambda: read(path))


class TestParquet(AppendContract):
    pass


class TestParquetInMemory(AppendContract):
    """A file system where a file cannot be created exclusively."""

    @pytest.fixture
    def target(self) -> Target:
        memory = pafs._MockFileSystem(dt.datetime.now(dt.UTC))

        def sink(**options: Any) -> sinks.parquet:
            return sinks.parquet("a/folder", filesystem=memory, **options)

        return Target(sink, lambda: read("a/folder", memory))


def manifests(path: str) -> list[Path]:
    return sorted(Path(path, "_manifests").glob("*.json"))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        *TYPES,
        (pa.float64(), [-0.0, 0.0]),
        (pa.time64("us"), [dt.time(23, 59, 59, 999_999)]),
        (pa.duration("us"), [dt.timedelta(days=400, microseconds=1)]),
        (pa.map_(pa.string(), pa.float64()), [[("a", NAN), ("b", None)], []]),
        (pa.struct([("a", pa.list_(pa.decimal128(10, 3)))]), [{"a": []}, {"a": None}]),
        (pa.large_string(), ["x"]),
        (pa.null(), []),
    ],
    ids=lambda value: str(value)[:24],
)
def test_types_are_stored_without_loss(
    target: Target, dtype: pa.DataType, values: list[Any]
) -> None:
    values = [*values, None]
    target.deliver(0, k=range(len(values)), v=pa.array(values, dtype))
    assert comparable(target.content("k", "v")) == comparable(ordered(enumerate(values)))


def test_a_type_that_parquet_does_not_have_is_refused(path: str, target: Target) -> None:
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        target.deliver(0, a=pa.array([{}], pa.struct([])))
    assert not list(Path(path).rglob("*.*"))


def test_changes_are_stored_as_they_are(target: Target) -> None:
    target.deliver(0, k=[1, 1], v=[1.0, 2.0], _change_type=[B, A])
    assert target.content("v", "_change_type") == [(1.0, B), (2.0, A)]


@pytest.mark.parametrize("odd", ["a.b", 'say "hi"', "x'; DROP TABLE t; --", "`tick`", "a/b"])
def test_names_of_columns_are_arbitrary(target: Target, odd: str) -> None:
    target.deliver(0, **{odd: [odd]})
    assert target.rows() == [{odd: odd}]


def test_no_micro_batch_leaves_no_columns(target: Target) -> None:
    with pytest.raises(SinkError, match="TARGET_MISSING"):
        target.rows()
    target.deliver(0, a=pa.array([], pa.int64()))
    assert target.rows() == []
    assert target.sink().read_ledger().batch == 0  # type: ignore[union-attr]


def test_the_time_zone_of_the_session_changes_nothing(target: Target) -> None:
    zoned = pa.array([0, None], pa.timestamp("us", "Europe/Berlin"))
    target.deliver(0, at=zoned)
    target.deliver(1, run_of(2), at=zoned.cast(pa.timestamp("us", "Asia/Tokyo")))
    assert [row["at"] and row["at"].timestamp() for row in target.rows()].count(0) == 2


def test_integers_are_widened(target: Target) -> None:
    target.deliver(0, a=pa.array([1], pa.int64()))
    target.deliver(1, run_of(2), a=pa.array([2], pa.int8()))
    assert target.content("a") == [(1,), (2,)]


def test_of_two_racing_writers_one_writes_each_micro_batch(path: str, target: Target) -> None:
    outcomes: list[str] = []

    def write(writer: int) -> None:
        for batch in range(20):
            sink = target.sink()
            run = RUN._replace(run=f"run {writer} {batch}")
            while True:
                try:
                    sink._deliver_rows(pa.table({"batch": [batch]}), batch, run)
                    outcomes.append("done")
                except SinkError as error:
                    outcomes.append(error.code)
                    if error.code == "BATCH_GAP":
                        continue
                break

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert target.content("batch") == ordered((batch,) for batch in range(20))
    assert set(outcomes) <= {"done", "CHECKPOINT_BEHIND", "BATCH_GAP"}, set(outcomes)


def test_files_that_no_manifest_lists_are_ignored(path: str, target: Target) -> None:
    target.deliver(0, a=[1])
    stored = next(Path(path, "_batches").glob("*/*.parquet"))
    left_over = stored.parent.with_name("00000000000000000001-crashed")
    left_over.mkdir()
    (left_over / "part-00000.parquet").write_bytes(stored.read_bytes()[:100])
    assert target.content("a") == [(1,)]
    target.deliver(1, run_of(2), a=[2])
    assert target.content("a") == [(1,), (2,)]


@pytest.mark.parametrize("length", [0, 10, 200])
def test_a_manifest_that_was_written_in_part_commits_nothing(
    path: str, target: Target, length: int
) -> None:
    """The number of the newest complete one is stored after it."""
    target.deliver(0, a=[1])
    newest = Path(path, "_newest").read_bytes()
    target.deliver(1, run_of(2), a=[2])
    last = manifests(path)[-1]
    last.write_bytes(last.read_bytes()[:length])
    for check in ("size", "content"):
        with pytest.raises(SinkError, match=r"FILE_DAMAGED.*manifest 2"):
            sinks.read_parquet(path, check=check)  # type: ignore[call-overload]
    Path(path, "_newest").write_bytes(newest)
    assert target.content("a") == [(1,)]
    target.deliver(1, run_of(3), a=[2])
    target.deliver(2, run_of(4), a=[3])
    assert target.content("a") == [(1,), (2,), (3,)]


def test_damaged_files_are_an_error(path: str, target: Target) -> None:
    for batch in range(3):
        target.deliver(batch, run_of(batch), a=[batch])
    stored = sorted(Path(path, "_batches").glob("*/*.parquet"))[1]
    content = stored.read_bytes()

    def refused(**options: Any) -> None:
        with pytest.raises(SinkError, match="FILE_DAMAGED"):
            sinks.read_parquet(path, **options)

    stored.write_bytes(content[:-1])
    refused()
    stored.write_bytes(content[:-1] + b"x")
    sinks.read_parquet(path)  # has the right size
    refused(check="content")
    stored.unlink()
    refused()
    stored.write_bytes(content)
    manifests(path)[1].unlink()
    refused()


@pytest.mark.parametrize("choice", ["replace", "continue"])
def test_no_manifest_can_be_missing(path: str, target: Target, choice: str) -> None:
    """Also the first one, the last one, and the one that replaces all before it."""
    other = run_of(2, "other query")
    for batch, run in ((0, RUN), (1, RUN), (0, other), (1, other)):
        options = {} if batch else {"new_checkpoint": choice}
        target.sink(**options)._deliver_rows(pa.table({"a": [batch]}), batch, run)
    expected = target.content("a")
    for manifest in manifests(path):
        content = manifest.read_bytes()
        manifest.unlink()
        for check in ("size", "content"):
            with pytest.raises(SinkError, match="FILE_DAMAGED") as error:
                sinks.read_parquet(path, check=check)  # type: ignore[call-overload]
            assert error.value.got == "no file"
        with pytest.raises(SinkError, match=r"FILE_DAMAGED|BATCH_GAP"):
            target.deliver(2, run_of(3, other.query), a=[2])
        manifest.write_bytes(content)
    first, last = manifests(path)[0], manifests(path)[-1]
    content = first.read_bytes()
    first.write_bytes(last.read_bytes())
    with pytest.raises(SinkError, match="FILE_DAMAGED"):
        target.rows()
    first.write_bytes(content)
    Path(path, "_newest").unlink()
    with pytest.raises(SinkError, match=r"FILE_DAMAGED.*_newest"):
        sinks.read_parquet(path, check="content")
    assert sinks.read_parquet(path).count_rows() == len(expected)
    target.deliver(2, run_of(3, other.query), a=[2])
    assert target.content("a") == ordered([*expected, (2,)])


@pytest.mark.parametrize("after", ["read_newest", "refresh", "write_rows"])
def test_a_folder_that_another_run_writes_meanwhile_is_not_damaged(
    path: str, target: Target, monkeypatch: Any, after: str
) -> None:
    """Another run commits the same micro-batch after each thing that a first delivery reads or writes."""
    function, others = getattr(Folder, after), [run_of(2)]

    def and_then_another_commits(self: Folder, *arguments: Any) -> Any:
        result = function(self, *arguments)
        if others:
            target.deliver(0, others.pop(), a=[1])
        return result

    monkeypatch.setattr(Folder, after, and_then_another_commits)
    target.deliver(0, run_of(1), a=[1])
    assert not others
    assert target.content("a") == [(1,)]
    target.deliver(1, run_of(3), a=[2])
    assert target.content("a") == [(1,), (2,)]


def test_a_crash_before_the_number_of_the_newest_manifest_is_stored(
    path: str, target: Target, monkeypatch: Any
) -> None:
    def crash(*_: Any) -> None:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_mark_newest", crash)
        for number in range(3):
            with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
                target.deliver(0, run_of(number), a=[1])
    assert target.content("a") == [(1,)]
    target.deliver(1, run_of(4), a=[2])
    assert target.content("a") == [(1,), (2,)]


def test_another_query_does_not_go_on_without_the_last_manifest(path: str, target: Target) -> None:
    for batch in range(3):
        target.deliver(batch, a=[batch])
    manifests(path)[-1].unlink()
    with pytest.raises(SinkError, match="FILE_DAMAGED"):
        target.deliver(0, run_of(2, "other"), {"new_checkpoint": "continue"}, a=[7])
    target.deliver(2, run_of(3), a=[2])  # repeated after a crash
    assert target.content("a") == [(0,), (1,), (2,)]


def test_a_folder_that_was_created_again_meanwhile(path: str, target: Target) -> None:
    sink = target.sink()
    for batch in range(3):
        sink._deliver_rows(pa.table({"a": [batch]}), batch, RUN)
    shutil.rmtree(path)
    for batch in range(3):
        target.deliver(batch, run_of(2, "other query"), a=[batch])
    with pytest.raises(SinkError, match="FENCED"):
        sink._deliver_rows(pa.table({"a": [3]}), 3, RUN)
    shutil.rmtree(path)
    with pytest.raises(SinkError, match="LEDGER_LOST"):
        sink._deliver_rows(pa.table({"a": [3]}), 3, RUN)


def test_a_large_micro_batch_has_several_files(path: str, target: Target) -> None:
    target.deliver(0, a=pa.array(range((1 << 20) + 1)))
    assert len(list(Path(path, "_batches").glob("*/*.parquet"))) == 2
    assert sinks.read_parquet(path, check="content").count_rows() == (1 << 20) + 1


@pytest.mark.parametrize("odd", [*ODD, "100%25", "a=b", "#x", "?x=1", "file:x"])
def test_names_of_folders_are_taken_literally(tmp_path: Path, odd: str) -> None:
    for batch in range(2):
        sink = sinks.parquet(str(tmp_path / odd))
        sink._deliver_rows(pa.table({"k": [batch]}), batch, run_of(batch))
    found = sinks.read_parquet(str(tmp_path / odd), check="content").to_table()
    assert found.column("k").to_pylist() == [0, 1]
    assert [found.name for found in tmp_path.iterdir()] == [odd]


def test_credentials_are_never_displayed() -> None:
    sink = sinks.parquet("s3://user:pass%20word@127.0.0.1:1/t?token=hidden")
    text = f"{sink!r} {sink.label}"
    assert "127.0.0.1" in text
    store = pafs.S3FileSystem(
        access_key="key-id", secret_key="very-secret", endpoint_override="127.0.0.1:1",
        region="nowhere", scheme="http", connect_timeout=1, retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
    )  # fmt: skip
    sink = sinks.parquet("bucket/folder", filesystem=store)
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE") as error:
        sink._deliver_rows(pa.table({"a": [1]}), 0, RUN)
    text += f"{sink!r}{error.value}{error.value.__cause__!r}"
    assert not any(secret in text for secret in ("very-secret", "pass%20word", "hidden"))


@pytest.mark.parametrize(
    "options",
    [
        {"path": ""},
        {"path": 1},
        {"columns": "any"},
        {"new_checkpoint": "yes"},
        {"repeated": True},
        {"filesystem": "s3"},
    ],
)
def test_wrong_parameters(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        sinks.parquet(**{"path": "/tmp/t", **options})
    with pytest.raises(SpecError):
        sinks.read_parquet("/tmp/t", check="all")  # type: ignore[call-overload]


@pytest.mark.parametrize("way", ["continue", "replace"])
def test_files_of_tasks_are_not_committed_after_another_query_has_cleaned_up(
    path: str, target: Target, way: str
) -> None:
    """It may have removed them: the query before commits while the tasks of the next one write."""
    before = target.sink()
    deliver(before, pa.table({"a": [0]}), 0, RUN)
    after, identity = target.sink(new_checkpoint=way), run_of(2, "other query")

    def commit() -> None:
        if before.read_ledger().batch == 0:  # type: ignore[union-attr]
            deliver(before, pa.table({"a": [1]}), 1, RUN)

    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(after, Attempts(pa.table({"a": [2]}), tasks=1, after=commit), 0, identity)
    assert target.content("a") == [(0,), (1,)]
    deliver(after, pa.table({"a": [2]}), 0, identity)
    assert target.content("a") == ([(2,)] if way == "replace" else [(0,), (1,), (2,)])
    assert not list(Path(path, "_attempts").glob("*"))


def test_leftovers_that_may_not_be_removed_do_not_fail_a_micro_batch(
    path: str, target: Target, monkeypatch: Any, caplog: Any
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(Folder, "clean_up", refuse)
    target.deliver(0, a=[1])
    assert target.content("a") == [(1,)]
    assert "what failed attempts have left" in caplog.text


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second manifest has the files of the one before, each fourth those of three, and so on."""
    monkeypatch.setattr("streamops.sinks.core.manifest.MERGED", 2)


def test_a_folder_has_few_files_however_many_micro_batches_it_got(
    path: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = target.sink()
    for batch in range(300):
        sink._deliver_rows(pa.table({"a": [batch]}), batch, RUN)
    dataset = sinks.read_parquet(path, check="content")
    assert len(dataset.files) <= 1 + 2 + 15 + 15
    assert sorted(dataset.to_table()["a"].to_pylist()) == list(range(300))
    # What was merged is there until no reader needs it.
    assert len(manifests(path)) == 300
    monkeypatch.setattr(parquet_folder, "_RETENTION", -60)
    sink = target.sink()
    for batch in range(300, 310):
        sink._deliver_rows(pa.table({"a": [batch]}), batch, run_of(2))
    assert len(manifests(path)) < 40
    assert len(list(Path(path, "_batches").iterdir())) < 60
    dataset = sinks.read_parquet(path, check="content")
    assert sorted(dataset.to_table()["a"].to_pylist()) == list(range(310))


@pytest.mark.usefixtures("merging")
@pytest.mark.parametrize("choice", ["replace", "continue"])
def test_merged_files_have_the_rows_of_one_query_or_both(target: Target, choice: str) -> None:
    for batch in range(3):
        target.deliver(batch, a=[batch])
    other = run_of(2, "other query")
    for batch in range(6):
        options = {} if batch else {"new_checkpoint": choice}
        target.deliver(batch, other, options, a=[10 + batch])
        rows = [] if choice == "replace" else [(0,), (1,), (2,)]
        expected = ordered([*rows, *((10 + n,) for n in range(batch + 1))])
        assert target.content("a") == expected


@pytest.mark.usefixtures("merging")
def test_merged_files_have_columns_that_were_added(target: Target) -> None:
    target.deliver(0, a=[0], s=[{"x": 1}])
    target.deliver(1, a=pa.array([1], pa.int8()))
    target.deliver(2, options={"columns": "add"}, a=[2], b=["x"])
    target.deliver(3, a=[3], b=["y"])
    assert target.rows()[0]["s"] == {"x": 1}
    assert target.content("a", "b") == [(0, None), (1, None), (2, "x"), (3, "y")]


@pytest.mark.usefixtures("merging")
def test_a_file_that_is_damaged_is_not_merged(path: str, target: Target) -> None:
    target.deliver(0, a=[0])
    stored = next(Path(path, "_batches").glob("*/*.parquet"))
    content = stored.read_bytes()
    stored.write_bytes(content[:-1] + b"x")
    for batch in range(1, 8):
        target.deliver(batch, a=[batch])
    with pytest.raises(SinkError, match="FILE_DAMAGED"):
        target.rows()
    stored.write_bytes(content)
    assert target.content("a") == [(batch,) for batch in range(8)]


@pytest.mark.usefixtures("merging")
def test_manifests_that_are_merged_can_be_missing_and_others_not(path: str, target: Target) -> None:
    for batch in range(7):
        target.deliver(batch, a=[batch])
    for number, manifest in enumerate(manifests(path), 1):
        content = manifest.read_bytes()
        manifest.unlink()
        if number in (4, 6, 7):  # of 1 to 4, 5 to 6, and 7
            with pytest.raises(SinkError, match="FILE_DAMAGED"):
                target.rows()
        else:
            assert target.content("a") == [(batch,) for batch in range(7)]
        manifest.write_bytes(content)


def test_a_large_file_is_not_written_again(
    path: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_folder, "_SMALL_FILE", 2_000)
    target.deliver(0, a=range(10_000))
    large = next(Path(path, "_batches").glob("*/*.parquet"))
    for batch in range(1, 20):
        target.deliver(batch, a=[-batch])
    assert str(large) in sinks.read_parquet(path).files
    assert len(target.rows()) == 10_019
