"""Quantiles in windows, as stored sketches, and as values in Python."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import sketches, windows
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SketchFormatError,
    SpecError,
    located,
)
from streamops.kernel.groups import Groups
from streamops.sketches.core.kll import QuantileSketch
from streamops.sketches.core.sketch import Framed, are_valid, pack_frames
from streamops.testing import at, replay

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("ts", UTC), ("ms", pa.int64())])
NAN = float("nan")


def stored(values: Any, k: int = 200) -> Any:
    """A stored sketch of these values."""
    sketch = Framed(QuantileSketch("ms", k))
    rows = pa.table({"ms": pa.array(values, pa.float64())})
    states = sketch.update(Groups(np.zeros(len(values), np.int64), 1), rows)
    return sketches.read(sketch.estimate(states)[0].as_py())


def test_the_99th_percentile_of_the_response_time_over_five_minutes() -> None:
    rng = np.random.default_rng(7)
    rows = [
        {"k": "abc"[int(rng.integers(3))], "ts": at(int(rng.integers(900))), "ms": int(ms)}
        for ms in rng.lognormal(4, 1, 6_000)
    ]
    five_minutes = windows.tumbling(
        "5 minutes",
        time="ts",
        by="k",
        agg={
            "ms": agg.approx_percentile("ms", [0.5, 0.99]),
            "exact": agg.percentile("ms", [0.5, 0.99], at_most=10_000),
            "sketch": sketches.kll_sketch_agg("ms"),
        },
        delay="15 minutes",
    )
    played = replay(five_minutes, [rows[i::6] for i in range(6)], schema=SCHEMA, flush=True)
    found = [row for batch in played for row in batch.rows]
    assert len(found) == 9
    for row in found:
        arguments = row["ms"]
        assert arguments["rank_error"] == pytest.approx(0.0133, abs=1e-4)
        mine = [r["ms"] for r in rows if r["k"] == row["k"] and inside(r["ts"], row)]
        assert arguments["count"] == len(mine)
        for share, value, exact, lower, upper in zip(
            [0.5, 0.99],
            arguments["estimate"],
            row["exact"],
            arguments["lower"],
            arguments["upper"],
            strict=True,
        ):
            assert lower <= exact <= upper
            below = sum(item < value for item in mine) / len(mine)
            upto = sum(item <= value for item in mine) / len(mine)
            assert below - arguments["rank_error"] <= share <= upto + arguments["rank_error"]
        value = sketches.read(row["sketch"])
        assert value.quantiles([0.5, 0.99]) == arguments  # type: ignore[attr-defined]


def inside(ts: Any, row: dict[str, Any]) -> bool:
    return bool(row["window_start"] <= ts < row["window_end"])


def test_few_values_have_exact_quantiles_however_they_arrived() -> None:
    minute = windows.tumbling(
        "1 minute",
        time="ts",
        by="k",
        agg={"ms": agg.approx_percentile("ms", [0, 0.5, 1])},
        delay="0 seconds",
        allowed_lateness="1 hour",
        stragglers="update",
    )
    arrived = [("a", 3, 5), ("a", 1, 9), ("b", 2, None), ("a", 61, 0), ("a", 2, 7)]
    batches = [[{"k": k, "ts": at(second), "ms": ms}] for k, second, ms in arrived]
    played = replay(minute, [*batches[:4], [], batches[4], []], schema=SCHEMA)
    first = {
        (row["k"], row["revision"]): (row["ms"]["estimate"], row["ms"]["count"])
        for batch in played
        for row in batch.rows
        if row["window_start"] == at(0)
    }
    assert first == {
        ("a", 0): ([5.0, 5.0, 9.0], 2),
        ("b", 0): (None, 0),
        ("a", 1): ([5.0, 7.0, 9.0], 3),
    }


def test_minutes_are_merged_to_hours_and_queried() -> None:
    rows = [{"k": "a", "ts": at(i % 1800), "ms": i * 7919 % 10_007} for i in range(10_007)]
    per_minute = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"s": sketches.kll_sketch_agg("ms")}, delay="0 seconds"
    )
    played = replay(per_minute, [rows], schema=SCHEMA, flush=True)
    minutes = [row for batch in played for row in batch.rows]
    assert len(minutes) == 30
    schema = pa.schema([("k", pa.string()), ("window_start", UTC), ("s", pa.binary())])
    stored_items = [{name: row[name] for name in schema.names} for row in minutes]
    per_hour = windows.tumbling(
        "1 hour",
        time="window_start",
        by="k",
        agg={
            "ms": sketches.merge("s", like=agg.approx_percentile("ms", [0.1, 0.9])),
            "s": sketches.merge("s", like=sketches.kll_sketch_agg("ms")),
        },
        delay="0 seconds",
    )
    (hour,) = replay(per_hour, [stored_items[:11], stored_items[11:]], schema=schema, flush=True)[
        -1
    ].rows
    assert hour["ms"]["count"] == 10_007
    for share, value in zip([0.1, 0.9], hour["ms"]["estimate"], strict=True):
        assert abs(value / 10_007 - share) <= hour["ms"]["rank_error"]
    merged = sketches.read(minutes[0]["s"]).merge(*(sketches.read(m["s"]) for m in minutes[1:]))
    assert merged.estimate()["count"] == 10_007
    assert sketches.read(hour["s"]).estimate()["estimate"][::4] == [0.0, 10_006.0]


def test_a_stored_sketch_has_quantiles_and_ranks() -> None:
    value = stored([4.0, 1.0, 3.0, 2.0])
    assert isinstance(value, sketches.StoredKll)
    assert (value.type, value.parameters) == ("kll", {"k": 200})
    assert (value.count, value.rank_error) == (4, 0.0)
    assert value.estimate()["estimate"] == [1.0, 1.0, 2.0, 3.0, 4.0]
    assert value.bounds() == (value.estimate()["lower"], value.estimate()["upper"])
    assert value.quantile(0.5) == 2.0
    assert value.quantiles([0.9])["estimate"] == [4.0]
    assert value.rank(2.5) == 0.5
    assert value.ranks([0, 1, 4]) == [0.0, 0.25, 1.0]
    assert stored(range(1000)).rank_error == pytest.approx(0.0133, abs=1e-4)
    nothing = stored([])
    assert nothing.quantile(0.5) is nothing.rank(1.0) is nothing.ranks([1.0]) is None
    assert nothing.merge(value) == value.merge(nothing) == value
    with pytest.raises(SpecError) as caught:
        value.quantile(1.5)
    assert (caught.value.code, caught.value.where) == (
        "PARAMETER_OUT_OF_RANGE",
        "StoredKll.quantiles",
    )


def test_values_are_exchanged_with_apache() -> None:
    value = stored(np.arange(1000.0), k=100)
    theirs = datasketches.kll_doubles_sketch.deserialize(value.to_datasketches())
    assert theirs.n == 1000
    again = sketches.StoredKll.from_datasketches(theirs.serialize())
    assert again == value
    assert again.parameters == {"k": 100}
    with pytest.raises(SketchFormatError) as caught:
        stored([1.0, NAN]).to_datasketches()
    assert caught.value.code == "SKETCH_UNSUPPORTED"
    for wrong in (b"", bytes(8), theirs.serialize()[:-8]):
        with pytest.raises(SketchFormatError) as caught:
            sketches.StoredKll.from_datasketches(wrong)
        assert caught.value.code == "SKETCH_CORRUPT"
        assert caught.value.where == "StoredKll.from_datasketches"


@functools.cache
def image_of(values: Sequence[int], dtype: str) -> bytes:
    """An image as Spark's function for this type makes it: sketches of Java differ in their items only."""
    if dtype == "bigint":
        image = bytearray(image_of(values, "double"))
        sketch = datasketches.kll_doubles_sketch.deserialize(bytes(image))
        items = sketch.num_retained + 2 * (sketch.n > 1)
        image[-8 * items :] = np.frombuffer(image[-8 * items :], "<f8").astype("<i8").tobytes()
        return bytes(image)
    if dtype == "float":
        floats = datasketches.kll_floats_sketch(200)
        for value in values:
            floats.update(value)
        return bytes(floats.serialize())
    doubles = datasketches.kll_doubles_sketch(200)
    for value in values:
        doubles.update(value)
    return bytes(doubles.serialize())


RANGES = {
    "small": range(1, 151),
    "one": (7,),
    "negative": range(-150, 1),
    "milliseconds": range(1_700_000_000_000, 1_700_000_000_150),
    "largest": (-(2**53), 2**53),
    "many": range(5_000),
}


@pytest.mark.parametrize("values", RANGES.values(), ids=RANGES)
def test_an_image_of_integers_is_read_as_integers_or_refused(values: Sequence[int]) -> None:
    image = image_of(values, "bigint")
    with pytest.raises(SketchFormatError) as refused:
        sketches.StoredKll.from_datasketches(image)
    # As doubles, negative ones are no numbers.
    assert refused.value.code == ("SKETCH_CORRUPT" if min(values) in (-150,) else "SKETCH_KIND")
    for name in ("kll_sketch_agg_bigint", "kll_sketch_agg_float", "kll_sketch_agg_double"):
        assert name in refused.value.fix
    found = sketches.StoredKll.from_datasketches(image, dtype="bigint")
    same = sketches.StoredKll.from_datasketches(image_of(values, "double"), dtype="double")
    assert found == same
    assert found.count == len(values)
    assert found.quantiles([0, 1])["estimate"] == [min(values), max(values)]


@pytest.mark.parametrize("values", [range(1, 151), (7,), range(5_000)], ids=str)
def test_an_image_of_floats_is_read_as_floats_or_refused(values: Sequence[int]) -> None:
    image = image_of(values, "float")
    with pytest.raises(SketchFormatError, match="_float"):
        sketches.StoredKll.from_datasketches(image)
    found = sketches.StoredKll.from_datasketches(image, dtype="float")
    assert found.quantiles([0, 1])["estimate"] == [min(values), max(values)]
    assert found.count == len(values)


def test_an_image_of_other_items_than_named_is_refused() -> None:
    nanoseconds = [n * 10**9 for n in range(1_700_000_000, 1_700_000_010)]
    image = bytearray(image_of(range(10), "double"))
    image[-96:] = np.array([nanoseconds[0], nanoseconds[-1], *nanoseconds], "<i8").tobytes()
    for dtype in (None, "bigint"):  # a double does not have them
        with pytest.raises(SketchFormatError) as refused:
            sketches.StoredKll.from_datasketches(bytes(image), dtype=dtype)
        assert refused.value.code == "SKETCH_KIND"
    for dtype in ("float", "bigint"):
        with pytest.raises(SketchFormatError):
            sketches.StoredKll.from_datasketches(image_of(range(1, 9), "double"), dtype=dtype)
    tiny = sketches.StoredKll.from_datasketches(image_of((0,), "bigint"))
    assert tiny.quantile(0.5) == 0  # the same bytes
    for like in (sketches.kll_sketch_agg("v"), sketches.hll_sketch_agg("v")):
        with pytest.raises(SpecError) as unknown:
            sketches.from_datasketches("image", like=like, dtype="int")
        assert unknown.value.code == "VALUE_TYPE"


def test_the_repr_of_an_aggregate_is_its_call() -> None:
    assert repr(agg.approx_percentile("ms", (0, 0.5), k=80)) == (
        "approx_percentile('ms', [0.0, 0.5], k=80)"
    )
    assert repr(sketches.kll_sketch_agg("ms")) == "kll_sketch_agg('ms', k=200)"


@pytest.mark.parametrize("k", [7, 65_536, 200.0, True, "200", None])
def test_an_invalid_size_is_refused(k: Any) -> None:
    with pytest.raises(SpecError) as caught:
        sketches.kll_sketch_agg("ms", k=k)
    assert caught.value.code == "PARAMETER_OUT_OF_RANGE"


@pytest.mark.parametrize("wrong", [-0.1, 1.1, NAN, "0.5", None, True])
def test_an_invalid_probability_is_refused(wrong: Any) -> None:
    with pytest.raises(SpecError) as caught:
        agg.approx_percentile("ms", [0.5, wrong])
    assert (caught.value.code, caught.value.got) == ("PARAMETER_OUT_OF_RANGE", repr(wrong))


@pytest.mark.parametrize("wrong", [[], 0.5, "0.5", None])
def test_no_probability_is_refused(wrong: Any) -> None:
    with pytest.raises(SpecError) as caught:
        agg.approx_percentile("ms", wrong)
    assert caught.value.code == "PARAMETER_MISSING"


def bound(aggregate: Any, *fields: tuple[str, pa.DataType]) -> Any:
    with located("windows.tumbling"):
        return aggregate.bind(pa.schema(fields), time="ts")


def test_errors_have_a_fix() -> None:
    with pytest.raises(SpecError) as caught:
        sketches.kll_sketch_agg("ms", k=5)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] sketches.kll_sketch_agg: `k` is out of range\n"
        "  got:       k=5\n"
        "  expected:  an integer from 8 to 65,535\n"
        "  fix:       use k=200, the default (1.33% rank error)"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )
    with pytest.raises(SpecError) as caught:
        agg.approx_percentile("ms", [])
    assert str(caught.value) == (
        "[PARAMETER_MISSING] aggregates.approx_percentile: no percentage is given\n"
        "  got:       percentage=[]\n"
        "  expected:  a list of at least one number from 0 to 1\n"
        "  fix:       for example approx_percentile('ms', [0.5, 0.99])"
        "\n  see:       docs/errors.md#parameter_missing"
    )
    with pytest.raises(SchemaError) as wrong:
        bound(sketches.kll_sketch_agg("ms"), ("ms", pa.string()))
    assert str(wrong.value) == (
        "[COLUMN_TYPE] windows.tumbling: kll_sketch_agg('ms', k=200) cannot be computed over this type\n"
        "  got:       column 'ms' of type string\n"
        "  expected:  numbers\n"
        "  fix:       cast it: df.withColumn('ms', F.col('ms').cast(...)); or pick a field of it"
        "\n  see:       docs/errors.md#column_type"
    )


def test_a_missing_column_and_a_change_stream_are_refused() -> None:
    with pytest.raises(ColumnNotFound):
        bound(sketches.kll_sketch_agg("ms"), ("MS", pa.int32()))
    changes = ("_change_type", pa.string())
    with pytest.raises(SchemaError) as caught:
        bound(sketches.kll_sketch_agg("ms"), ("ms", pa.int32()), changes)
    assert caught.value.code == "CHANGE_STREAM_INPUT"
    assert "take aggregates.percentile of it" in caught.value.fix


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint16(), pa.float32(), pa.decimal128(38, 9)])
def test_numbers_of_any_type_are_accepted(dtype: pa.DataType) -> None:
    assert bound(sketches.kll_sketch_agg("ms"), ("ms", dtype)).fields == QuantileSketch("ms").fields


@pytest.mark.parametrize("parameters", [{"k": 5}, {"k": 200.0}, {"k": "200"}, {}])
def test_invalid_parameters_of_stored_sketches_are_refused(parameters: Any) -> None:
    payload = pa.array([bytes.fromhex("02010f01c8000800")])
    (blob,) = pack_frames(QuantileSketch.format, parameters, payload).to_pylist()
    with pytest.raises(SketchFormatError) as caught:
        sketches.read(blob)
    assert caught.value.code == "SKETCH_PARAMETERS"


@pytest.mark.parametrize(
    "count", [pytest.param(2_000), pytest.param(100_000, marks=pytest.mark.exhaustive)]
)
def test_no_damaged_bytes_are_valid(count: int) -> None:
    rng = np.random.default_rng(count)
    sketch = QuantileSketch("ms", 8)
    whole = [stored(rng.normal(size=size), 8).to_bytes() for size in (0, 1, 8, 9, 100)]
    damaged = [hurt(whole[int(rng.integers(len(whole)))], rng) for _ in range(count)]
    blobs = pa.array([item for item in damaged if item not in whole], pa.binary())
    assert len(blobs) > 0.9 * count
    assert not are_valid(blobs, sketch.format, sketch.parameters).any()
    assert are_valid(pa.array(whole), sketch.format, sketch.parameters).all()


def hurt(blob: bytes, rng: np.random.Generator) -> bytes:
    """Cut, flipped, written over, or noise."""
    changed = bytearray(blob)
    match int(rng.integers(4)):
        case 0:
            return blob[: int(rng.integers(len(blob)))]
        case 1:
            return bytes(rng.bytes(int(rng.integers(0, 300))))
        case 2:
            for location in rng.integers(len(blob), size=int(rng.integers(1, 9))):
                changed[int(location)] ^= 1 << int(rng.integers(8))
        case _:
            changed[int(rng.integers(len(blob)))] = int(rng.integers(256))
    return bytes(changed)


def test_nan_is_the_greatest_in_a_window_as_in_the_exact_aggregate() -> None:
    rows = [{"ts": at(i), "v": value} for i, value in enumerate([NAN, 1.0, -math.inf, NAN])]
    both = windows.tumbling(
        "1 minute",
        time="ts",
        agg={
            "sketched": agg.approx_percentile("v", [0, 0.5, 1]),
            "exact": agg.percentile("v", [0, 1], at_most=10),
        },
        delay="0 seconds",
    )
    schema = pa.schema([("ts", UTC), ("v", pa.float64())])
    (row,) = replay(both, [rows], schema=schema, flush=True)[-1].rows
    low, middle, high = row["sketched"]["estimate"]
    assert (low, middle) == (-math.inf, 1.0)
    assert math.isnan(high)
    assert row["exact"][0] == low
    assert math.isnan(row["exact"][1])
