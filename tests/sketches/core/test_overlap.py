"""Overlaps of audiences: against Python's sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups
from streamops.sketches.core.theta import PARTS, Overlap, compare_samples
from tests.oracles import theta as oracle
from tests.sketches.core.theta_cases import items, joined, one_group, samples

NAMES = ["a", "b", "c"]
Row = tuple[int, int | None, str | None]  # group, user, audience


def overlap(*audiences: Any, k: int = 16, dtype: pa.DataType | None = None) -> Overlap:
    return Overlap("user", "page", pa.array(audiences or NAMES, dtype or pa.string()), k)


def table(rows: list[Row]) -> tuple[Groups, pa.Table]:
    columns = {"user": pa.int64(), "page": pa.string()}
    data = {
        name: pa.array([row[i] for row in rows], columns[name])
        for i, name in ((1, "user"), (2, "page"))
    }
    return Groups(np.array([row[0] for row in rows], np.int64), 3), pa.table(data)


def expected(rows: list[Row], group: int, k: int = 16) -> Any:
    users = {
        name: items(
            {
                user
                for owner, user, page in rows
                if (owner, page) == (group, name) and user is not None
            }
        )
        for name in NAMES
    }
    return oracle.overlaps(users, k)


def estimates(result: dict[str, Any]) -> Any:
    """The estimates of a group, without bounds."""
    sizes = {entry["audience"]: entry["estimate"] for entry in result["audiences"]}
    pairs = {
        (entry["left"], entry["right"]): {name: entry[name]["estimate"] for name, _ in PARTS}
        for entry in result["pairs"]
    }
    return sizes, pairs


rows_of_few = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.none() | st.integers(0, 40),
        st.none() | st.sampled_from([*NAMES, "another"]),
    ),
    max_size=120,
)


@given(rows_of_few, st.sampled_from([16, 64]))
def test_sizes_and_overlaps_are_those_of_the_sets(rows: list[Row], k: int) -> None:
    groups, data = table(rows)
    summary = overlap(k=k)
    result = summary.estimate(summary.update(groups, data))
    assert result.type == summary.result
    for group in range(3):
        assert estimates(result[group].as_py()) == expected(rows, group, k)


def many(size: int = 3_000) -> list[Row]:
    """Users that see two pages of three."""
    return [(0, user, page) for user in range(size) for page in NAMES if user % 3 != ord(page) % 3]


def near(result: dict[str, float], truth: float) -> bool:
    """Whether the truth is no further off than four standard errors."""
    return abs(result["estimate"] - truth) <= result["upper"] - result["lower"]


def test_sizes_of_overlaps_add_up_and_are_close_to_the_truth() -> None:
    groups, data = table(many())
    summary = overlap(k=1_024)
    (result,) = summary.estimate(summary.update(groups, data))[:1].to_pylist()
    assert [entry["audience"] for entry in result["audiences"]] == NAMES
    for entry in result["audiences"]:
        assert near(entry, 2_000)
    assert [(entry["left"], entry["right"]) for entry in result["pairs"]] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    for entry in result["pairs"]:
        for part in ("both", "only_left", "only_right"):
            assert near(entry[part], 1_000)
        together = sum(entry[part]["estimate"] for part in ("both", "only_left", "only_right"))
        assert abs(together - entry["either"]["estimate"]) <= 2
        assert near(entry["jaccard"], 1 / 3)


def test_merged_parts_equal_the_whole() -> None:
    rows = many(400)
    summary, (groups, data) = overlap(), table(rows)
    whole = summary.update(groups, data)
    halves = [
        summary.update(groups.where(mask), data.filter(pa.array(mask)))
        for mask in (np.arange(len(rows)) % 2 == 0, np.arange(len(rows)) % 2 == 1)
    ]
    merged = summary.merge(Groups(np.tile(np.arange(3), 2), 3), joined(halves))
    assert [a.to_pylist() for a in merged] == [a.to_pylist() for a in whole]
    assert [state.type for state in merged] == [dtype for _, dtype in summary.fields]


@pytest.mark.parametrize(
    ("dtype", "first", "second"),
    [
        (pa.int32(), 1, -1),
        (pa.date32(), 0, 1),
        (pa.bool_(), True, False),
        (pa.binary(), b"", b"\0"),
    ],
    ids=str,
)
def test_audiences_may_have_any_type_that_can_be_compared(
    dtype: pa.DataType, first: Any, second: Any
) -> None:
    summary = overlap(first, second, dtype=dtype)
    rows = pa.table({"user": [1, 2, 3, 1], "page": pa.array([first, second, None, second], dtype)})
    result = summary.estimate(summary.update(one_group(4), rows))
    (entry,) = result[0].as_py()["pairs"]
    assert (entry["both"]["estimate"], entry["either"]["estimate"]) == (1, 2)
    assert result.type == summary.result


def test_no_groups_have_no_overlaps() -> None:
    summary = overlap()
    found = summary.update(Groups(np.zeros(0, np.int64), 0), table([])[1])
    assert len(summary.estimate(summary.merge(Groups(np.zeros(0, np.int64), 0), found))) == 0


def test_its_inputs() -> None:
    assert overlap().inputs == ("user", "page")


@pytest.mark.parametrize("k", [16, 4_096])
def test_samples_are_compared_row_by_row(k: int) -> None:
    lefts = [range(0), range(10), range(1_000)]
    rights = [range(5), range(5, 20), range(500, 2_000)]
    result = compare_samples(samples(*lefts, k=k), samples(*rights, k=k))
    for row, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        _, pairs = oracle.overlaps({"l": items(left), "r": items(right)}, k)
        assert {name: result[row].as_py()[name]["estimate"] for name, _ in PARTS} == pairs["l", "r"]
