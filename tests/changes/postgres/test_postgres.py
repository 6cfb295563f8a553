"""The changes of a PostgreSQL server fold to the rows of its tables, and to those that a trigger saw."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import changes, split_side_output
from streamops.changelog.change_types import DELETE, INSERT, PREIMAGE, TRUNCATE
from streamops.testing import assert_rows, fold, replay, stream
from tests.changes.postgres.pgoutput import Row
from tests.changes.postgres.traffic import IDENTITY, Traffic, key_updates, traffic, truncations
from tests.oracles.history import HistoryOracle

KEY, SEQUENCE = ("relation", "id"), ("commit_lsn", "position")
ROW = pa.schema(
    [
        ("relation", pa.string()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 4)),
        ("placed_at", pa.timestamp("us", "UTC")),
        ("paid", pa.bool_()),
        ("body", pa.string()),
    ]
)
CHANGE_FIELDS = [
    pa.field("_changed_at", pa.timestamp("us", "UTC")),
    pa.field("_change_type", pa.string()),
    pa.field("_unavailable", pa.list_(pa.string())),
    pa.field("_snapshot", pa.bool_()),
]
VALUES = tuple(name for name in ROW.names if name not in KEY)
HISTORIES = ["overwrite", "intervals"]
FILES = 10


@pytest.fixture(scope="module")
def shop(postgres: str) -> Traffic:
    return traffic(postgres, seed=1, statements=2_000)


def table_of(log: list[Row], *sequence: str) -> pa.Table:
    """Changes with these columns as their sequence."""
    schema = pa.schema([*ROW, *CHANGE_FIELDS, *((name, pa.int64()) for name in sequence)])
    return pa.Table.from_pylist(log, schema=schema)


def delivered(shop: Traffic) -> list[list[Row]]:
    """The log in files that overlap, with some changes twice."""
    rng = random.Random(2)
    files: list[list[Row]] = [[] for _ in range(FILES)]
    for log, earliest, latest in ((shop.whole, -1, 2), (shop.again, 0, FILES)):
        for number, change in enumerate(log):
            file = number * FILES // len(log) + rng.randint(earliest, latest)
            files[min(max(file, 0), FILES - 1)].append(change)
    for file in files:
        rng.shuffle(file)
    return files


def disorder(files: list[list[Row]]) -> int:
    """The greatest distance of a change to the newest change of its file or an earlier one."""
    seen: set[tuple[Any, ...]] = set()
    newest, farthest = 0, 0
    for file in files:
        newest = max(newest, *(row["lsn"] for row in file))
        for row in file:
            change = (row["relation"], row["lsn"], row["id"], row["_change_type"])
            if change not in seen:
                farthest = max(farthest, newest - row["lsn"])
            seen.add(change)
    return farthest


def intervals_of(shop: Traffic, *sequence: str) -> list[Row]:
    """All intervals, as the oracle computes them from the ordered log."""
    oracle = HistoryOracle(KEY, VALUES, track=VALUES, time="lsn")
    for row in shop.whole:
        parts = {name: row[name] for name in sequence}
        oracle.step([{**row, "seq": parts if len(sequence) > 1 else parts[sequence[0]]}])
    return list(oracle.rows())


def require_history(rows: list[Row], shop: Traffic, *sequence: str) -> None:
    """Assert that these are the intervals of the log, and their rows those that a trigger saw."""
    assert_rows(rows, intervals_of(shop, *sequence))
    passed = {
        key: [row for row, _ in itertools.groupby(versions)]
        for key, versions in shop.passed.items()
    }
    for key, versions in itertools.groupby(sorted(rows, key=_since), key=_key):
        own = list(versions)
        for interval, following in itertools.pairwise(own):
            assert interval["valid_to"] is not None
            assert _parts(interval["valid_to"]) <= _parts(following["valid_from"])
        actual = [{name: row[name] for name in ROW.names} for row in own]
        assert actual == [row for row in passed.pop(key) if row is not None]
    assert passed == {}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _since(row: Row) -> tuple[Any, ...]:
    return (*_key(row), _parts(row["valid_from"]))


def _parts(sequence: Any) -> tuple[int, ...]:
    return tuple(sequence.values()) if isinstance(sequence, dict) else (sequence,)


def test_the_log_has_rollbacks_overlaps_repetitions_and_unavailable_values(shop: Traffic) -> None:
    log = shop.log
    assert shop.counts["done"] > 1_000
    assert (
        min(shop.counts[event] for event in ("ROLLBACK", "COMMIT", "refused", "rolled back")) > 20
    )
    assert log == sorted(log, key=lambda row: [row[name] for name in SEQUENCE])
    assert sum(first["lsn"] > second["lsn"] for first, second in itertools.pairwise(log)) > 50
    assert len(shop.again) > 100
    assert all(row in log for row in shop.again)  # a change that is read again is the same
    assert sum(row["_unavailable"] == ["body"] for row in log) > 50
    pairs = itertools.pairwise(row for row in log if row["_change_type"] != PREIMAGE)
    moved = [
        first["relation"]
        for first, second in pairs
        if (first["_change_type"], second["_change_type"]) == (DELETE, INSERT)
        and first["lsn"] == second["lsn"]
    ]
    assert min(moved.count(table) for table in IDENTITY) > 5
    assert len(shop.tables) > 20


@pytest.mark.parametrize(
    ("history", "api"),
    [*zip(HISTORIES, ["transformWithStateInPandas", "applyInPandasWithState"], strict=True)],
)
def test_a_stream_of_the_log_folds_to_the_rows_of_the_tables(
    spark: SparkSession, tmp_path: Path, shop: Traffic, history: Any, api: Any
) -> None:
    applied = changes.apply(
        KEY,
        sequence=SEQUENCE,
        horizon="1 hour",
        time="_changed_at",
        history=history,
    ).options(shards=2, state_api=api)
    script = [table_of(file, *SEQUENCE) for file in delivered(shop)]
    results = [
        result
        for part in (script[:6], script[6:])  # a restart
        for result in stream(spark, applied, part, directory=tmp_path, source="files")
    ]
    again = [row for row in shop.again if row["_change_type"] != PREIMAGE]
    assert sum(result.counts.duplicates + result.counts.stale for result in results) >= len(again)
    published = spark.createDataFrame(pa.concat_tables([result.table for result in results]))
    good, rejected = split_side_output(published)
    assert rejected.count() == 0
    key = KEY if history == "overwrite" else (*KEY, "valid_from")
    table = good.transform(changes.fold(key)).drop("revision")
    if history == "intervals":
        require_history(table.toArrow().to_pylist(), shop, *SEQUENCE)
        table = table.where("valid_to IS NULL").drop("valid_from", "valid_to")
    selected = spark.createDataFrame(pa.Table.from_pylist(shop.tables, schema=ROW))
    changes.differences(table, selected, key=KEY).raise_if_any()


@pytest.mark.parametrize("history", HISTORIES)
def test_a_horizon_as_long_as_the_disorder_is_enough(shop: Traffic, history: Any) -> None:
    # Ordered by lsn: two open transactions cannot change the same key.
    files = delivered(shop)
    applied = changes.apply(KEY, sequence="lsn", horizon=disorder(files), history=history).options(
        shards=2
    )
    results = replay(applied, [table_of(file, "lsn") for file in files], restart=True)
    rows = [row for result in results for row in result.rows]
    # Only changes that are delivered again, beyond the horizon.
    reasons = [row["rejected"]["reason"] for row in rows if row["rejected"]]
    assert set(reasons) == {"forgotten"}
    key = KEY if history == "overwrite" else (*KEY, "valid_from")
    table = fold([row for row in rows if not row["rejected"]], key=key)
    table = [
        {name: row[name] for name in row if name in (*key, *VALUES, "valid_to")} for row in table
    ]
    if history == "intervals":
        require_history(table, shop, "lsn")
        table = [row for row in table if row["valid_to"] is None]
    assert_rows([{name: row[name] for name in ROW.names} for row in table], shop.tables)


def test_a_large_value_of_a_row_whose_key_changes_needs_the_full_replica_identity(
    postgres: str,
) -> None:
    applied = changes.apply(KEY, sequence="lsn", horizon=10**9).options(shards=1)
    (result,) = replay(applied, [table_of(key_updates(postgres), "lsn")])
    bodies = {(row["relation"], row["id"]): row["body"] for row in fold(result.rows, key=KEY)}
    moved = {table: bodies[table, -1] for table in IDENTITY}
    assert moved == {"orders": None, "returns": "x" * 5_000}


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("table", IDENTITY)
def test_truncated_tables_fold_to_their_rows_in_any_order(
    postgres: str, table: str, seed: int | None
) -> None:
    log, selected = truncations(postgres)
    log = [row for row in log if row["relation"] == table]
    assert sum(row["_change_type"] == TRUNCATE for row in log) == 2
    expected = [
        {name: row[name] for name in ROW.names} for row in selected if row["relation"] == table
    ]
    assert {row["id"] for row in expected} == {
        id_ for number in ((2, 3) if table == "orders" else (3,)) for id_ in (number, 100 + number)
    }
    if seed is not None:
        random.Random(seed).shuffle(log)
    third = len(log) // 3
    batches = [
        table_of(log[start : start + third], *SEQUENCE) for start in range(0, len(log), third)
    ]
    applied = changes.apply("id", sequence=SEQUENCE, horizon="1 hour", time="_changed_at")
    results = replay(applied.options(shards=3), batches, restart=True)
    rows = [row for result in results for row in result.rows]
    assert not any(row["rejected"] for row in rows)
    folded = [{name: row[name] for name in ROW.names} for row in fold(rows, key="id")]
    assert_rows(folded, expected)


def test_a_history_rejects_the_truncates_of_a_table(postgres: str) -> None:
    log, _ = truncations(postgres)
    log = [row for row in log if row["relation"] == "orders"]
    applied = changes.apply("id", sequence="lsn", horizon=10**9, history="intervals")
    (result,) = replay(applied, [table_of(log, "lsn")])
    rejected = [row["rejected"] for row in result.rows if row["rejected"]]
    assert [row["reason"] for row in rejected] == ["unknown_operation"] * 2
    assert [row["row"]["_change_type"] for row in rejected] == [TRUNCATE] * 2
