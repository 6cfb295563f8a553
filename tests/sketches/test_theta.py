"""Theta sketches as aggregates, stored, and as values in plain Python."""

from __future__ import annotations

import math
import random
from typing import Any

import datasketches
import pyarrow as pa
import pytest

from streamops import sketches, windows
from streamops.aggregates import approx_count_distinct_theta, approx_overlap
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SketchFormatError,
    SpecError,
    StreamopsError,
    located,
)
from streamops.sketches import StoredTheta, theta_sketch_agg
from streamops.sketches.core.sketch import Format, Framed, are_valid, pack_frames
from streamops.sketches.core.theta import Theta
from streamops.testing import at, replay
from tests.oracles import theta as oracle
from tests.sketches.core.theta_cases import apache, items, one_group, rows_of

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("page", pa.string()), ("user", pa.int64())])


def stored(users: range, k: int = 32) -> StoredTheta:
    summary = Framed(Theta("user", k))
    blob = summary.estimate(summary.update(one_group(len(users)), rows_of(users)))[0].as_py()
    found = sketches.read(blob)
    assert isinstance(found, StoredTheta)
    return found


def refused(dtype: type[StreamopsError], make: Any, *args: Any, **arguments: Any) -> StreamopsError:
    with pytest.raises(dtype) as caught:
        make(*args, **arguments)
    return caught.value


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (range(0), range(0)),
        (range(9), range(5, 20)),
        (range(400), range(300, 900)),
        (range(4_000), range(4_000, 5_000)),
        (range(50), range(5_000)),
    ],
)
def test_set_operations_equal_those_of_apache_and_the_oracle(left: range, right: range) -> None:
    a, b = stored(left), stored(right)
    theirs = apache(left, 5), apache(right, 5)
    both = datasketches.theta_intersection()
    for item in theirs:
        both.update(item)
    found = a.intersection(b)
    assert sorted(reread(found)) == sorted(both.get_result())
    assert found.estimate()["estimate"] == round(both.get_result().get_estimate())
    alone = datasketches.theta_a_not_b().compute(*theirs)
    assert sorted(reread(a.difference(b))) == sorted(alone)
    assert a.difference(b).estimate()["estimate"] == round(alone.get_estimate())
    _, pairs = oracle.overlaps({"a": items(left), "b": items(right)}, 32)
    arguments = a.overlap(b)
    assert {name: part["estimate"] for name, part in arguments.items()} == pairs["a", "b"]


def reread(value: StoredTheta) -> Any:
    """As Apache reads it, after it was stored and read again."""
    again = sketches.read(value.to_bytes())
    assert again == value
    assert isinstance(again, StoredTheta)
    return datasketches.compact_theta_sketch.deserialize(again.to_datasketches())


def test_the_intersection_of_several_and_of_one() -> None:
    one, two, three = (stored(range(start, start + 20)) for start in (0, 5, 10))
    assert one.intersection(two, three).estimate()["estimate"] == 10
    assert one.intersection() == one


def test_results_of_set_operations_are_merged_and_compared() -> None:
    new = stored(range(10)).difference(stored(range(4)))
    merged = new.merge(stored(range(20, 25)))
    assert merged.estimate()["estimate"] == 11
    assert merged.intersection(stored(range(8, 22))).bounds() == (4, 4)


def test_sketches_of_apache_are_read_and_reduced_to_k() -> None:
    image = apache(range(3_000), 10).serialize(compress=True)
    value = StoredTheta.from_datasketches(image, k=32)
    assert value == stored(range(3_000))
    assert (
        StoredTheta.from_datasketches(image).to_datasketches()
        == apache(range(3_000), 10).serialize()
    )
    error = refused(SketchFormatError, StoredTheta.from_datasketches, b"nonsense")
    assert (error.code, error.where) == ("SKETCH_CORRUPT", "sketches.theta")


def test_sketches_of_another_k_or_type_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = stored(range(3))
    for operation in (one.merge, one.intersection, one.difference, one.overlap):
        error = refused(SketchFormatError, operation, stored(range(3), k=64))
        assert error.code == "SKETCH_PARAMETERS"
        assert "k=64" in str(error)


@pytest.mark.parametrize("parameters", [{}, {"k": 12}, {"k": 16.0}, {"k": "16"}, {"k": 16, "p": 1}])
def test_parameters_that_a_theta_sketch_cannot_have_are_refused(parameters: Any) -> None:
    (blob,) = pack_frames(Format("theta", 1), parameters, pa.array([b""], pa.binary())).to_pylist()
    error = refused(SketchFormatError, sketches.read, blob)
    assert error.code == "SKETCH_PARAMETERS"


@pytest.mark.parametrize("k", [0, 8, 17, 2**17, -16, 16.0, True, "16", None])
@pytest.mark.parametrize("make", [approx_count_distinct_theta, theta_sketch_agg])
def test_k_is_a_power_of_two_within_its_bounds(make: Any, k: Any) -> None:
    module = "aggregates" if make is approx_count_distinct_theta else "sketches"
    error = refused(SpecError, make, "user", k=k)
    assert str(error) == (
        f"[PARAMETER_OUT_OF_RANGE] {module}.{make.__name__}: `k` is out of range\n"
        f"  got:       k={k!r}\n"
        "  expected:  a power of two from 16 to 65,536\n"
        "  fix:       use the default, k=4,096 (1.6 % standard error)"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


def test_aggregates_have_a_repr_and_columns() -> None:
    assert (
        repr(approx_count_distinct_theta("user")) == "approx_count_distinct_theta('user', k=4096)"
    )
    assert repr(theta_sketch_agg("user", k=16)) == "theta_sketch_agg('user', k=16)"
    assert refused(SpecError, theta_sketch_agg, 1).code == "PARAMETER_TYPE"
    assert not theta_sketch_agg("user").native


def bound(aggregate: Any, schema: pa.Schema = SCHEMA) -> Any:
    with located("windows.tumbling"):
        return aggregate.bind(schema, time="ts")


@pytest.mark.parametrize(
    "aggregate", [theta_sketch_agg("user"), approx_overlap("user", of="page", between=["a", "b"])]
)
def test_unsupported_columns_are_refused_while_the_plan_is_built(aggregate: Any) -> None:
    changes = SCHEMA.append(pa.field("_change_type", pa.string()))
    assert refused(SchemaError, bound, aggregate, changes).code == "CHANGE_STREAM_INPUT"
    assert refused(ColumnNotFound, bound, aggregate, SCHEMA.remove(2)).code == "COLUMN_NOT_FOUND"
    maps = pa.map_(pa.string(), pa.int64())
    schema = SCHEMA.set(2, pa.field("user", maps))
    assert refused(SchemaError, bound, aggregate, schema).code == "TYPE_UNSUPPORTED"


@pytest.mark.parametrize("restart", [False, True])
def test_minutes_are_stored_merged_and_corrected(restart: bool) -> None:
    script = [
        [{"ts": at(second), "page": "a", "user": second % 40} for second in range(0, 110, 2)],
        [{"ts": at(61), "page": "a", "user": None}, {"ts": at(190), "page": "a", "user": 1}],
        [{"ts": at(5), "page": "a", "user": 777}],
    ]
    agg = {"n": approx_count_distinct_theta("user", k=16), "s": theta_sketch_agg("user", k=16)}
    per_minute = windows.tumbling(
        "1 minute",
        time="ts",
        by="page",
        agg=agg,
        delay="0 seconds",
        allowed_lateness="1 hour",
        stragglers="update",
    )
    played = replay(per_minute, script, schema=SCHEMA, restart=restart)
    rows = [row for batch in played for row in batch.rows]
    first, second = set(range(0, 40, 2)), set(range(20, 40, 2)) | set(range(0, 30, 2))
    expected = {(at(0), 0): first, (at(0), 1): first | {777}, (at(60), 0): second}
    assert {(row["window_start"], row["revision"]) for row in rows} == expected.keys()
    for row in rows:
        seen = expected[row["window_start"], row["revision"]]
        value = sketches.read(row["s"])
        assert value == stored_of(seen)
        assert value.estimate() == row["n"]
        assert row["n"]["estimate"] == oracle.estimate(oracle.sketch(items(seen), 16))


def stored_of(users: set[int]) -> StoredTheta:
    summary = Framed(Theta("user", 16))
    states = summary.update(one_group(len(users)), rows_of(sorted(users)))
    found = sketches.read(summary.estimate(states)[0].as_py())
    assert isinstance(found, StoredTheta)
    return found


def test_the_relative_error_is_at_most_the_stated_one() -> None:
    arguments = stored(range(9_000), k=1_024).estimate()
    assert 0 < arguments["relative_error"] <= 1 / math.sqrt(1_023)


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
def test_changed_frames_are_never_read_as_a_sketch(count: int) -> None:
    rng = random.Random(11)
    blobs = [stored(range(size), k=32).to_bytes() for size in (0, 1, 2, 31, 33, 5_000)]
    changed = []
    while len(changed) < count:
        blob = bytearray(rng.choice(blobs))
        match rng.randrange(3):
            case 0:
                blob = blob[: rng.randrange(len(blob))]
            case 1:
                blob += rng.randbytes(rng.randrange(1, 9))
            case 2:
                for _ in range(rng.randrange(1, 4)):
                    blob[rng.randrange(len(blob))] ^= rng.randrange(1, 256)
        if bytes(blob) not in blobs:
            changed.append(bytes(blob))
    assert not are_valid(pa.array(changed, pa.binary()), Theta.format, {"k": 32}).any()
    for blob in changed[:200]:
        with pytest.raises(SketchFormatError):
            sketches.read(blob)
