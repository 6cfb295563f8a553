"""Normalize and apply Delta's change data feed, without Spark."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from streamops import changes
from streamops.changelog.table import DELTA_SEQUENCE
from streamops.testing import fold, replay

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("w", pa.int64()),
        ("_sequence", DELTA_SEQUENCE),
        ("_changed_at", pa.timestamp("us", "UTC")),
        ("_change_type", pa.string()),
    ]
)


def added(key: int, version: int, v: int = 0, w: int = 0) -> dict[str, Any]:
    return image("insert", key, version, v, w)


def removed(key: int, version: int, v: int = 0, w: int = 0) -> dict[str, Any]:
    return image("delete", key, version, v, w)


def image(word: str, key: int, version: int, v: int, w: int) -> dict[str, Any]:
    at = pa.scalar(version * 1_000_000, pa.timestamp("us", "UTC")).as_py()
    sequence = {"version": version, "position": int(word == "insert")}
    row = {"id": key, "v": v, "w": w, "_change_type": word}
    return {**row, "_sequence": sequence, "_changed_at": at}


GIVEN: dict[str, Any] = {
    "sequence": "_sequence",
    "time": "_changed_at",
    "horizon": "1 day",
}


def normalized(*script: list[dict[str, Any]]) -> list[Any]:
    results = replay(
        changes.normalize("id", **GIVEN).options(shards=1), [*script], schema=SCHEMA, restart=True
    )
    return [
        [(row["_change_type"], row["id"], row["v"], row["revision"]) for row in result.rows]
        for result in results
    ]


def intervals(*script: list[dict[str, Any]], **settings: Any) -> list[Any]:
    """The table: key, interval as versions and positions, value."""
    applied = changes.apply("id", history="intervals", **GIVEN, **settings).options(shards=1)
    results = replay(applied, [*script], schema=SCHEMA, restart=True)
    emitted = [
        {**row, "start": row["valid_from"].values()} for result in results for row in result.rows
    ]
    rows = fold(
        [{**r, "start": str([*r["start"]]), "rejected": 0} for r in emitted], key=["id", "start"]
    )
    return sorted(
        (
            row["id"],
            tuple(row["valid_from"].values()),
            row["valid_to"] and tuple(row["valid_to"].values()),
            row["v"],
            row["w"],
        )
        for row in rows
    )


CHANGED_KEY = [added(1, 1, 7), removed(1, 2, 7), added(2, 2, 7)]
SHIFTED_KEYS = [added(1, 1, 1), added(2, 1, 2)]  # and then `id = id + 1`
SHIFTED_KEYS += [removed(1, 2, 1), added(2, 2, 1), removed(2, 2, 2), added(3, 2, 2)]


@pytest.mark.parametrize("every", [37, pytest.param(7, marks=pytest.mark.exhaustive)])
def test_a_key_that_changes_leaves_no_row_in_any_order_and_cut(every: int) -> None:
    for feed, expected in ((CHANGED_KEY, [(2, 7)]), (SHIFTED_KEYS, [(2, 1), (3, 2)])):
        for order in itertools.islice(itertools.permutations(feed), 0, None, every):
            for cut in range(len(feed)):
                emitted = normalized([*order[:cut]], [*order[cut:]])
                keys = ("_change_type", "id", "v", "revision")
                rows = [dict(zip(keys, row, strict=True)) for batch in emitted for row in batch]
                assert sorted((r["id"], r["v"]) for r in fold(rows, key="id")) == expected


def test_a_delete_and_an_insert_of_one_version_are_one_update() -> None:
    emitted = normalized(
        [added(1, 1, 1)], [removed(1, 2, 1), added(1, 2, 5)], [removed(1, 3, 5), added(1, 4, 6)]
    )
    assert emitted == [
        [("insert", 1, 1, 0)],
        [("update_preimage", 1, 1, 0), ("update_postimage", 1, 5, 1)],
        [("delete", 1, 5, 1), ("insert", 1, 6, 2)],
    ]
    assert normalized([added(1, 1, 1), removed(1, 2, 1), added(1, 2, 1)]) == [[("insert", 1, 1, 0)]]
    one_by_one = normalized([added(1, 1, 1)], [removed(1, 2, 1)], [added(1, 2, 5)])
    assert one_by_one[1:] == [[("delete", 1, 1, 0)], [("insert", 1, 5, 1)]]


@pytest.mark.parametrize("cut", range(6))
def test_a_history_has_no_gap_within_a_version(cut: int) -> None:
    feed = [
        added(1, 1, 1, 1),
        removed(1, 2, 1, 1),
        added(1, 2, 1, 2),
        removed(1, 3, 1, 2),
        added(1, 4, 1, 2),
    ]
    for script in ([feed[:cut], feed[cut:]], [feed[cut:], feed[:cut]]):
        assert intervals(*script) == [
            (1, (1, 1), (2, 1), 1, 1),
            (1, (2, 1), (3, 0), 1, 2),
            (1, (4, 1), None, 1, 2),
        ]
        assert intervals(*script, track="v") == [
            (1, (1, 1), (3, 0), 1, 2),
            (1, (4, 1), None, 1, 2),
        ]


def test_a_history_of_a_key_that_changes_ends_with_its_version() -> None:
    for order in itertools.permutations(CHANGED_KEY):
        assert intervals([order[0]], [*order[1:]]) == [
            (1, (1, 1), (2, 0), 7, 0),
            (2, (2, 1), None, 7, 0),
        ]


def test_only_deltas_sequence_makes_a_delete_and_an_insert_one_update() -> None:
    schema = SCHEMA.set(
        3, pa.field("_sequence", pa.struct([("epoch", pa.int64()), ("n", pa.int64())]))
    )
    rows = [added(1, 1), removed(1, 2), added(1, 2)]
    for row in rows:
        row["_sequence"] = dict(zip(("epoch", "n"), row["_sequence"].values(), strict=True))
    (result,) = replay(changes.normalize("id", **GIVEN).options(shards=1), [rows], schema=schema)
    assert [row["_change_type"] for row in result.rows] == ["insert", "delete", "insert"]
