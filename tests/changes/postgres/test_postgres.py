"""Changes of a real PostgreSQL: its log, applied, is what ``SELECT *`` says, and what a trigger saw."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import changes
from streamops.changelog.change_types import DELETE, INSERT, PREIMAGE
from streamops.testing import assert_rows, fold, replay, stream
from tests.changes.postgres.pgoutput import Row
from tests.changes.postgres.traffic import IDENTITY, Traffic, moved_untouched, traffic
from tests.oracles.history import HistoryOracle

KEY, PLACE = ("relation", "id"), ("commit_lsn", "position")
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
SAID = [
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
    """Changes with these columns for their place, and no others."""
    schema = pa.schema([*ROW, *SAID, *((name, pa.int64()) for name in sequence)])
    return pa.Table.from_pylist(log, schema=schema)


def delivered(shop: Traffic) -> list[list[Row]]:
    """The log in files: each has changes of others, and some that were there before."""
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
    """How far behind the newest change of its file, or of one before, a change comes first."""
    seen: set[tuple[Any, ...]] = set()
    newest, farthest = 0, 0
    for file in files:
        newest = max(newest, *(row["lsn"] for row in file))
        for row in file:
            place = (row["relation"], row["lsn"], row["id"], row["_change_type"])
            if place not in seen:
                farthest = max(farthest, newest - row["lsn"])
            seen.add(place)
    return farthest


def intervals_of(shop: Traffic, *sequence: str) -> list[Row]:
    """Every interval, as the oracle derives them from the whole log in its order."""
    oracle = HistoryOracle(KEY, VALUES, track=VALUES)
    for row in shop.whole:
        place = {name: row[name] for name in sequence}
        oracle.step([{**row, "seq": place if len(sequence) > 1 else place[sequence[0]]}])
    return list(oracle.rows())


def require_history(rows: list[Row], shop: Traffic, *sequence: str) -> None:
    """Fail unless these are the intervals of the log, and their rows those that a trigger saw."""
    assert_rows(rows, intervals_of(shop, *sequence))
    passed = {key: [row for row, _ in itertools.groupby(all_)] for key, all_ in shop.passed.items()}
    for key, versions in itertools.groupby(sorted(rows, key=_since), key=_key):
        own = list(versions)
        for one, next_ in itertools.pairwise(own):
            assert one["valid_to"] is not None
            assert _point(one["valid_to"]) <= _point(next_["valid_from"])
        got = [{name: row[name] for name in ROW.names} for row in own]
        assert got == [row for row in passed.pop(key) if row is not None]
    assert passed == {}


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _since(row: Row) -> tuple[Any, ...]:
    return (*_key(row), _point(row["valid_from"]))


def _point(place: Any) -> tuple[int, ...]:
    return tuple(place.values()) if isinstance(place, dict) else (place,)


def test_the_log_has_what_makes_logs_hard(shop: Traffic) -> None:
    log = shop.log
    assert shop.counts["done"] > 1_000
    assert min(shop.counts[each] for each in ("ROLLBACK", "COMMIT", "refused", "regretted")) > 20
    assert log == sorted(log, key=lambda row: [row[name] for name in PLACE])
    assert sum(one["lsn"] > next_["lsn"] for one, next_ in itertools.pairwise(log)) > 50
    assert len(shop.again) > 100
    assert all(row in log for row in shop.again)  # read once more, a change has the same place
    assert sum(row["_unavailable"] == ["body"] for row in log) > 50
    pairs = itertools.pairwise(row for row in log if row["_change_type"] != PREIMAGE)
    moved = [
        one["relation"]
        for one, other in pairs
        if (one["_change_type"], other["_change_type"]) == (DELETE, INSERT)
        and one["lsn"] == other["lsn"]
    ]
    assert min(moved.count(table) for table in IDENTITY) > 5
    assert len(shop.tables) > 20


@pytest.mark.parametrize(
    ("history", "api"),
    [*zip(HISTORIES, ["transformWithStateInPandas", "applyInPandasWithState"], strict=True)],
)
def test_a_stream_of_the_log_folds_to_what_is_selected(
    spark: SparkSession, tmp_path: Path, shop: Traffic, history: Any, api: Any
) -> None:
    applied = changes.apply(
        KEY,
        sequence=PLACE,
        horizon="1 hour",
        time="_changed_at",
        history=history,
    ).options(shards=2, state_api=api)
    script = [table_of(file, *PLACE) for file in delivered(shop)]
    results = [
        each
        for part in (script[:6], script[6:])  # a restart
        for each in stream(spark, applied, part, directory=tmp_path, source="files")
    ]
    again = [row for row in shop.again if row["_change_type"] != PREIMAGE]
    assert sum(each.counts.duplicates + each.counts.stale for each in results) >= len(again)
    published = spark.createDataFrame(pa.concat_tables([each.table for each in results]))
    good, rejected = changes.split_rejected(published)
    assert rejected.count() == 0
    key = KEY if history == "overwrite" else (*KEY, "valid_from")
    table = good.transform(changes.fold(key)).drop("revision")
    if history == "intervals":
        require_history(table.toArrow().to_pylist(), shop, *PLACE)
        table = table.where("valid_to IS NULL").drop("valid_from", "valid_to")
    selected = spark.createDataFrame(pa.Table.from_pylist(shop.tables, schema=ROW))
    changes.differences(table, selected, key=KEY).raise_if_any()


@pytest.mark.parametrize("history", HISTORIES)
def test_a_horizon_as_long_as_the_disorder_is_enough(shop: Traffic, history: Any) -> None:
    # By where a change was written: the server lets no two open transactions change one key.
    files = delivered(shop)
    applied = changes.apply(KEY, sequence="lsn", horizon=disorder(files), history=history).options(
        shards=2
    )
    results = replay(applied, [table_of(file, "lsn") for file in files], restart=True)
    rows = [row for each in results for row in each.rows]
    # Nothing but what was delivered again, beyond the horizon.
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


def test_a_large_value_of_a_key_that_changes_is_in_the_log_with_the_whole_row_only(
    postgres: str,
) -> None:
    applied = changes.apply(KEY, sequence="lsn", horizon=10**9).options(shards=1)
    (result,) = replay(applied, [table_of(moved_untouched(postgres), "lsn")])
    bodies = {(row["relation"], row["id"]): row["body"] for row in fold(result.rows, key=KEY)}
    moved = {table: bodies[table, -1] for table in IDENTITY}
    assert moved == {"orders": None, "returns": "x" * 5_000}
