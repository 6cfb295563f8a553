"""The theta sketch: against its oracle, and to the bit against Apache's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import SchemaError
from streamops.kernel.groups import Groups
from streamops.sketches.core.samples import Samples
from streamops.sketches.core.theta import Theta, hash_values
from tests.oracles import theta as oracle
from tests.sketches.core.theta_cases import (
    apache,
    items,
    one_group,
    rows_of,
    sample,
    samples,
    state,
    states,
)

SIZES = [0, 1, 2, 31, 32, 33, 34, 59, 60, 61, 64, 65, 100, 1_000, 20_000]  # of k = 32: all borders


@pytest.mark.parametrize("size", SIZES)
def test_a_sketch_has_the_bytes_of_apache(size: int) -> None:
    users = range(-size, size, 2)
    (mine,) = Theta("user", 32).payload(state(users, k=32)).to_pylist()
    assert mine == apache(users, 5).serialize()
    assert sample(samples(users, k=32)) == oracle.sketch(items(users), 32)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (range(0), range(0)),
        (range(0), range(5)),
        (range(20), range(10, 40)),
        (range(20), range(20, 40)),
        (range(300), range(200, 9_000)),
        (range(5_000), range(2_500, 7_500)),
        (range(5_000), range(5_000)),
    ],
)
def test_unions_are_those_of_apache(left: range, right: range) -> None:
    union = datasketches.theta_union(5)
    for users in (left, right):
        union.update(apache(users, 5))
    theta = Theta("user", 32)
    merged = theta.merge(one_group(2), states(left, right, k=32))
    assert theta.payload(merged).to_pylist() == [union.get_result().serialize()]
    assert theta.payload(merged).equals(theta.payload(state([*left, *right], k=32)))


@pytest.mark.parametrize("size", [0, 1, 32, 33, 5_000])
def test_the_estimate_is_that_of_apache_and_the_bounds_hold(size: int) -> None:
    theirs = apache(range(size), 5)
    found = Theta("user", 32).estimate(state(range(size), k=32))[0].as_py()
    assert found["estimate"] == round(theirs.get_estimate())
    assert found["lower"] <= size <= found["upper"]
    exact = size <= 32
    assert (found["lower"] == found["upper"]) == exact
    assert found["relative_error"] <= (0 if exact else 31**-0.5)


def test_bounds_are_those_of_the_estimate() -> None:
    found = states([1, 2], range(5_000), [])
    lower, upper = Theta("user", 16).bounds(found)
    estimates = Theta("user", 16).estimate(found)
    assert (lower.to_pylist(), upper.to_pylist()) == (
        estimates.field("lower").to_pylist(),
        estimates.field("upper").to_pylist(),
    )


def test_groups_are_independent_and_may_be_empty() -> None:
    rows = rows_of([3, 1, None, 3, 2])
    found = Theta("user", 16).update(Groups(np.array([2, 0, 0, 2, 2]), 4), rows)
    assert Theta("user", 16).estimate(found).field("estimate").to_pylist() == [1, 0, 2, 0]


@pytest.mark.parametrize(
    "members",
    [[], [0], [1, 0], [0, 0, 0], [2, 0, 2], [1, 2, 0, 2]],
    ids=lambda members: f"groups {members}",
)
def test_single_states_are_copied_and_groups_without_states_are_empty(
    members: list[int],
) -> None:
    theta = Theta("user", 16)
    parts = [range(30 * item, 30 * item + 40) for item in range(len(members))]
    groups = Groups(np.array(members, np.int64), 3)
    found = states(*parts, k=16) if parts else [column[:0] for column in state([])]
    merged = Samples.of(*theta.merge(groups, found))
    for group in range(3):
        mine = [
            user
            for item, users in zip(members, parts, strict=True)
            if item == group
            for user in users
        ]
        assert sample(merged, group) == oracle.sketch(items(mine), 16)


def test_hashes_that_are_bounds_are_no_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 1, 2, 2**64 - 1], np.uint64)
    monkeypatch.setattr("streamops.sketches.core.theta.murmur3", lambda _: (ends, ends))
    hashes, there = hash_values(pa.array([1, 2, 3, 4]))
    assert there.tolist() == [False, False, True, False]
    assert hashes[2] == 1


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.int32(), [1, 2, 2]),
        (pa.string(), ["a", "ä", "a"]),
        (pa.binary(), [b"", b"\0", b""]),
        (pa.decimal128(20, 2), [None, 1, 1]),
        (pa.timestamp("us", tz="UTC"), [0, 1, None]),
        (pa.float64(), [0.0, -0.0, float("nan")]),
        (pa.list_(pa.int64()), [[1], [1], []]),
        (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": 2}, None]),
    ],
    ids=str,
)
def test_items_may_be_of_any_type_that_has_a_hash(dtype: pa.DataType, values: list[Any]) -> None:
    rows = pa.table({"user": pa.array(values, dtype)})
    found = Theta("user", 16).estimate(Theta("user", 16).update(one_group(3), rows))
    assert found.field("estimate").to_pylist() == [1 if dtype == pa.decimal128(20, 2) else 2]


def test_a_map_has_no_hash() -> None:
    rows = pa.table({"user": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(SchemaError, match="TYPE_UNSUPPORTED"):
        Theta("user", 16).update(one_group(1), rows)


def test_states_round_trip_through_the_codec() -> None:
    names = [name for name, _ in Theta.fields]
    before = pa.table(states([1, 2], range(500), []), names=names)
    after = ipc_read(ipc_write(before, compression="zstd"))
    assert after.equals(before)
    assert after.schema == pa.schema(Theta.fields)


def test_its_inputs_and_parameters() -> None:
    assert Theta("user", 16).inputs == ("user",)
    assert Theta("user", 16).parameters == {"k": 16}
    assert Theta.format == StateFormat("theta", 1)


@pytest.mark.parametrize("chunk", [lambda column: column, lambda column: column[1:]])
def test_payloads_revive_also_from_a_slice(chunk: Callable[[pa.Array], pa.Array]) -> None:
    theta = Theta("user", 16)
    payloads = chunk(theta.payload(states([7], range(500), [], range(12))))
    assert theta.payload(theta.revive(payloads)).equals(payloads)
