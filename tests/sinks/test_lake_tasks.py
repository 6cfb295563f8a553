"""Two runs whose tasks write files of one table: what one has removed is not committed by the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops import sinks
from streamops.errors import SinkError
from tests.sinks.attempts import Attempts, deliver
from tests.sinks.contract import RUN, run_of

deltalake = pytest.importorskip("deltalake")
catalogs = pytest.importorskip("pyiceberg.catalog")


class Lake:
    """A table of Delta or Iceberg in a folder."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form = folder, form
        uri = f"sqlite:///{folder}/catalog.db"
        self.properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}"}

    def sink(self, **options: Any) -> Any:
        if self.form == "delta":
            return sinks.delta(str(self.folder / "a table"), **options)
        return sinks.iceberg(self.properties, "shop.a table", **options)

    def numbers(self) -> list[int]:
        if self.form == "delta":
            table = deltalake.DeltaTable(str(self.folder / "a table"))
            rows = pa.table(table.scan().read_all())
        else:
            table = catalogs.load_catalog(**self.properties).load_table("shop.a table")
            rows = table.scan().to_arrow()
        return sorted(rows["a"].to_pylist())

    def announced(self) -> list[Path]:
        """The files of tasks beside those of the table."""
        folders = [f for f in self.folder.rglob("*") if f.name.strip("_") == "streamops"]
        return [f for folder in folders for f in folder.rglob("*") if f.is_file()]


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


@pytest.mark.parametrize("key", [None, "a"])
@pytest.mark.parametrize("way", ["continue", "replace"])
def test_files_of_tasks_are_not_committed_after_another_query_has_cleaned_up(
    lake: Lake, way: Any, key: str | None
) -> None:
    """It may have removed them: the query before commits while the tasks of the next one write."""
    before = lake.sink(key=key)
    after, identity = lake.sink(key=key, new_checkpoint=way), run_of(2, "other query")
    deliver(before, pa.table({"a": [0]}), 0, RUN)

    def commit() -> None:
        if before.read_ledger().batch == 0:
            deliver(before, pa.table({"a": [1]}), 1, RUN)

    rows = pa.table({"a": [2]})
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(after, Attempts(rows, tasks=1, after=commit), 0, identity)
    assert lake.numbers() == [0, 1]
    deliver(after, rows, 0, identity)
    assert lake.numbers() == ([2] if way == "replace" else [0, 1, 2])
    assert lake.announced() == []


def test_what_another_run_may_still_commit_is_not_removed(lake: Lake) -> None:
    """The run before has committed, and cleans up while the tasks of the next one write."""
    before, after = lake.sink(key="a"), lake.sink(key="a")
    rows = pa.table({"a": [0, 1], "v": [0, 0]})
    deliver(before, rows, 0, RUN)
    cleaned = []

    def clean_up() -> None:
        cleaned.append(len(lake.announced()))
        before._clean_up(before._delivery(rows, 0, RUN))

    changed = Attempts(pa.table({"a": [1, 2], "v": [1, 1]}), tasks=1, after=clean_up)
    deliver(after, changed, 1, run_of(2))
    assert cleaned[0] > 1  # the folder, and what is staged
    assert lake.numbers() == [0, 1, 2]
    assert lake.announced() == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_first_micro_batch_of_another_query_replaces_all_rows(lake: Lake, count: int) -> None:
    """Also if it has none."""
    deliver(lake.sink(), pa.table({"a": [0]}), 0, RUN)
    rows = pa.table({"a": pa.array([7] * count, pa.int64())})
    after = lake.sink(new_checkpoint="replace")
    deliver(after, rows, 0, run_of(2, "other query"))
    assert lake.numbers() == [7] * count


def test_instants_that_python_does_not_have(tmp_path: Path) -> None:
    """They have no statistics, and are found all the same."""
    path = str(tmp_path / "a table")
    far = pa.array([2**62, -(2**62), 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    sink = sinks.delta(path, key="a")
    for batch in range(2):
        rows = pa.table({"at": far, "a": [1, 2, 3], "v": [batch] * 3})
        deliver(sink, Attempts(rows, tasks=1), batch, RUN)
    deliver(sinks.delta(path, name="b", key="at"), rows.set_column(2, "v", [[5, 6, 7]]), 0, RUN)
    found = pa.concat_tables(
        map(pq.read_table, map(unquote, deltalake.DeltaTable(path).file_uris()))
    )
    assert sorted(found["at"].cast(pa.int64()).to_pylist()) == [-(2**62), 0, 2**62]
    assert sorted(found["v"].to_pylist()) == [5, 6, 7]
