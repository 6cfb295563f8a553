"""Properties of a Delta table as Spark reads them, and what a clean-up must not delete."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from tests.sinks.attempts import deliver
from tests.sinks.contract import RUN, run_of
from tests.sinks.test_delta_tables import create, rows

deltalake = pytest.importorskip("deltalake")
transaction = pytest.importorskip("deltalake.transaction")
pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")


def by_driver(sink: Any, table: pa.Table, batch: int, identity: Any) -> None:
    sink._deliver_rows(table, batch, identity)


WAYS = pytest.mark.parametrize("write", [by_driver, deliver], ids=["driver", "tasks"])
SPELLED = pytest.mark.parametrize("text", ["true", "TRUE", "True"])
COLUMNS = (("k", "long"), ("v", "string"))


def table(*keys: int, v: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [v] * len(keys)})


@WAYS
@SPELLED
def test_a_table_that_must_not_lose_rows(tmp_path: Path, write: Any, text: str) -> None:
    path = create(tmp_path, *COLUMNS, appendOnly=text)
    write(sinks.delta(path, key="k"), table(1, 2, v="a"), 0, RUN)
    with pytest.raises(SinkError, match="TARGET_REFUSED"):
        write(sinks.delta(path, key="k"), table(1, v="b"), 1, run_of(2))
    write(sinks.delta(path, key="k"), table(3, v="b"), 1, run_of(2))
    assert sorted(row["v"] for row in rows(path)) == ["a", "a", "b"]


@WAYS
@SPELLED
def test_a_feed_of_changes_has_only_changes(tmp_path: Path, write: Any, text: str) -> None:
    path = create(tmp_path, *COLUMNS, enableChangeDataFeed=text)
    write(sinks.delta(path, key="k"), table(1, 2, v="a"), 0, RUN)
    first = deltalake.DeltaTable(path).version()
    write(sinks.delta(path, key="k"), table(1, v="b"), 1, run_of(2))
    feed = deltalake.DeltaTable(path).load_cdf(starting_version=first + 1)
    found = pa.table(feed.read_all()).to_pylist()
    assert {row["k"] for row in found} == {1}
    assert {row["_change_type"] for row in found} == {"update_preimage", "update_postimage"}


@WAYS
@pytest.mark.parametrize(
    ("name", "text", "is_retained"),
    [
        ("logRetentionDuration", "interval 30 days", False),
        ("logRetentionDuration", "INTERVAL 52 WEEKS", True),
        ("logRetentionDuration", "365 days", True),
        ("logRetentionDuration", "interval 0 seconds 365 days", True),
        ("logRetentionDuration", "interval '365' day", True),
        ("enableExpiredLogCleanup", "FALSE", True),
    ],
)
def test_the_log_is_retained_as_long_as_its_owner_wants(
    tmp_path: Path, write: Any, name: str, text: str, is_retained: bool
) -> None:
    path = create(tmp_path, *COLUMNS, checkpointInterval="2", **{name: text})
    sink, log, old = sinks.delta(path), Path(path, "_delta_log"), time.time() - 100 * 24 * 3600
    for batch in range(5):
        write(sink, table(1, v="a"), batch, RUN)
        for file in log.iterdir():
            os.utime(file, (old, old))
    assert (log / f"{0:020}.json").exists() == is_retained
    assert len(rows(path)) == 5


TAKEN = {
    "checkpointPolicy": "classic",
    "checkpointInterval": "2",
    "isolationLevel": "Serializable",
    "dataSkippingNumIndexedCols": "0",
    "dataSkippingStatsColumns": "v",
    "targetFileSize": "100mb",
    "parquet.compression.codec": "gzip",
    "autoOptimize.optimizeWrite": "true",
    "randomizeFilePrefixes": "TRUE",
    "deletedFileRetentionDuration": "interval 1 week",
    "enableExpiredLogCleanup": "False",
    "columnMapping.mode": "NONE",
    "enableDeletionVectors": "FALSE",
}


@WAYS
@pytest.mark.parametrize("name", TAKEN)
def test_settings_with_which_the_promise_is_true(tmp_path: Path, write: Any, name: str) -> None:
    path = create(tmp_path, *COLUMNS, **{name: TAKEN[name]})
    sink = sinks.delta(path, key="k")
    sink.check()
    for batch in range(3):
        write(sink, table(1, 2 + batch, v=str(batch)), batch, RUN)
    found = sorted((row["k"], row["v"]) for row in rows(path))
    assert found == [(1, "2"), (2, "0"), (3, "1"), (4, "2")]


REFUSED = [
    ("setTransactionRetentionDuration", "interval 365 days"),  # removes the ledger
    ("enableDeletionVectors", "TRUE"),
    ("columnMapping.mode", "Name"),
    ("appendOnly", "yes"),  # which Spark does not read, either
    ("logRetentionDuration", "interval 1 month"),
]


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_what_the_sink_cannot_keep_is_refused_before_the_query_starts(
    tmp_path: Path, name: str, text: str
) -> None:
    path = create(tmp_path, *COLUMNS, **{name: text})
    sink = sinks.delta(path)
    for act in (sink.check, lambda: by_driver(sink, table(1, v="a"), 0, RUN), lambda: deliver(sink, table(1, v="a"), 0, RUN)):  # fmt: skip
        with pytest.raises(SinkError, match="TARGET_FEATURE") as error:
            act()
        assert name.partition(".")[0].removeprefix("enable").lower() in error.value.got.lower()
        assert "TBLPROPERTIES" in error.value.fix
    assert deltalake.DeltaTable(path).version() == 0


def test_files_of_a_new_table_at_the_same_place_stay(tmp_path: Path) -> None:
    """A driver died after its commit; then its log was removed, and the files became another table."""
    path = str(tmp_path / "t")
    deliver(sinks.delta(path), table(1, v="a"), 0, RUN)
    dead = sinks.delta(path)
    object.__setattr__(dead, "_clean_up", lambda _: None)
    for batch in (1, 2):
        deliver(dead, table(batch, v="dead"), batch, RUN)
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    new, folder = deltalake.DeltaTable.create(path, table(1, v="a").schema), Path(path)
    found = [(str(f.relative_to(folder)), f.stat().st_size) for f in folder.rglob("*.parquet")]
    added = [transaction.AddAction(name, size, {}, 0, True, "{}") for name, size in found]
    new.create_write_transaction(added, "append", new.schema())
    assert len(rows(path)) == 3
    sink = sinks.delta(path, new_checkpoint="continue")
    for batch in range(4):
        deliver(sink, table(10 + batch, v="new"), batch, run_of(2, "other"))
    assert len(rows(path)) == 7


@WAYS
@pytest.mark.parametrize("error", [OSError("no answer"), ValueError("cut off"), deltalake.exceptions.DeltaError("a hook failed")], ids=repr)  # fmt: skip
def test_a_commit_that_took_effect_is_no_refusal_of_rows(
    tmp_path: Path, write: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as if the checkpoint after it could not be written."""
    path = create(tmp_path, *COLUMNS)
    sink = sinks.delta(path)
    write(sink, table(1, v="a"), 0, RUN)

    def fail_after(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def run(*arguments: Any, **named: Any) -> None:
            function(*arguments, **named)
            raise error

        monkeypatch.setattr(owner, name, run)

    fail_after(deltalake, "write_deltalake")
    fail_after(deltalake.DeltaTable, "create_write_transaction")
    write(sink, table(2, v="b"), 1, RUN)
    assert sorted(row["v"] for row in rows(path)) == ["a", "b"]


@WAYS
@pytest.mark.parametrize("dtype", ["date", "timestamp_ntz"])
def test_partitions_beyond_the_years_of_a_text_are_refused(
    tmp_path: Path, write: Any, dtype: str
) -> None:
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    path = create(tmp_path, ("p", dtype), ("n", "long"), protocol=protocol, partitions=["p"])
    days = pa.array([-719_163, 2_932_897, -719_162, 2_932_896], pa.int32())
    column = days.cast(pa.date32())
    if dtype != "date":
        micros = [day.as_py() * 24 * 3600 * 1_000_000 for day in days]
        column = pa.array(micros, pa.int64()).cast(pa.timestamp("us"))
    for at in (0, 1):
        with pytest.raises(SinkError, match="TARGET_TYPE"):
            write(sinks.delta(path), pa.table({"p": column.slice(at, 1), "n": [1]}), 0, RUN)
    write(sinks.delta(path), pa.table({"p": column.slice(2), "n": [1, 2]}), 0, RUN)
    assert sorted(row["p"] for row in rows(path)) == sorted(column.slice(2).to_pylist())
