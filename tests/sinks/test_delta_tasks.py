"""Two runs whose tasks write files of one Delta table: what one has removed is not committed by the other."""

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


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


def numbers(path: str) -> list[int]:
    found: list[int] = pa.table(deltalake.DeltaTable(path).scan().read_all())["a"].to_pylist()
    return sorted(found)


def announced(path: str) -> list[Path]:
    return [found for found in Path(path, "_streamops").rglob("*") if found.is_file()]


@pytest.mark.parametrize("key", [None, "a"])
@pytest.mark.parametrize("way", ["continue", "replace"])
def test_files_of_tasks_are_not_committed_after_another_query_has_cleaned_up(
    path: str, way: Any, key: str | None
) -> None:
    """It may have removed them: the query before commits while the tasks of the next one write."""
    before = sinks.delta(path, key=key)
    after, identity = sinks.delta(path, key=key, new_checkpoint=way), run_of(2, "other query")
    deliver(before, pa.table({"a": [0]}), 0, RUN)

    def commit() -> None:
        if before.read_ledger().batch == 0:  # type: ignore[union-attr]
            deliver(before, pa.table({"a": [1]}), 1, RUN)

    rows = pa.table({"a": [2]})
    with pytest.raises(SinkError, match="TARGET_UNAVAILABLE"):
        deliver(after, Attempts(rows, tasks=1, after=commit), 0, identity)
    assert numbers(path) == [0, 1]
    deliver(after, rows, 0, identity)
    assert numbers(path) == ([2] if way == "replace" else [0, 1, 2])
    assert announced(path) == []


def test_what_another_run_may_still_commit_is_not_removed(path: str) -> None:
    """The run before has committed, and cleans up while the tasks of the next one write."""
    before, after = sinks.delta(path, key="a"), sinks.delta(path, key="a")
    rows = pa.table({"a": [0, 1], "v": [0, 0]})
    deliver(before, rows, 0, RUN)
    cleaned = []

    def clean_up() -> None:
        cleaned.append(len(announced(path)))
        before._clean_up(before._delivery(rows, 0, RUN))

    changed = Attempts(pa.table({"a": [1, 2], "v": [1, 1]}), tasks=1, after=clean_up)
    deliver(after, changed, 1, run_of(2))
    assert cleaned[0] > 1  # the folder, and what is staged
    assert numbers(path) == [0, 1, 2]
    assert announced(path) == []


def test_instants_that_python_does_not_have(path: str) -> None:
    """They have no statistics, and are found all the same."""
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


@pytest.mark.parametrize("count", [0, 1])
def test_a_first_micro_batch_of_another_query_replaces_all_rows(path: str, count: int) -> None:
    """Also if it has none."""
    deliver(sinks.delta(path), pa.table({"a": [0]}), 0, RUN)
    rows = pa.table({"a": pa.array([7] * count, pa.int64())})
    after = sinks.delta(path, new_checkpoint="replace")
    deliver(after, rows, 0, run_of(2, "other query"))
    assert numbers(path) == [7] * count
