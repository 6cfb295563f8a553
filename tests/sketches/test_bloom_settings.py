"""Bloom filters as a user makes, stores and asks them, in plain Python."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates, sketches
from streamops.kernel.errors import SchemaError, SketchFormatError, SpecError
from streamops.kernel.groups import Groups
from streamops.sketches.core.items import items
from streamops.sketches.core.sketch import Format, Framed, pack_frames
from tests.sketches.linear import Linear

UTC = dt.UTC


def stored(
    values: pa.Array, *, capacity: int = 1_000, rate: float = 1e-6
) -> sketches.StoredBloomFilter:
    made = sketches.bloom_filter_agg("v", capacity=capacity, false_positive_rate=rate)
    rows = pa.table({"v": values})
    summary = made.bind(rows.schema, time="ts")
    states = summary.update(Groups(np.zeros(len(values), np.int64), 1), rows)
    value = sketches.read(summary.estimate(states)[0].as_py())
    assert isinstance(value, sketches.StoredBloomFilter)
    return value


def test_a_filter_is_queried_in_python() -> None:
    found = stored(pa.array(["ann", "bob", None]))
    assert found.may_contain(["ann", "eve", None, "bob"]).tolist() == [True, False, False, True]
    assert found.may_contain([]).tolist() == []
    assert found.estimate()["estimate"] == 2
    assert (found.type, found.parameters["type"]) == ("bloom", "string")
    both = found.merge(stored(pa.array(["eve"])))
    assert both.may_contain(["ann", "eve", "dan"]).tolist() == [True, True, False]
    assert both == stored(pa.array(["eve", "bob", "ann"]))


@pytest.mark.parametrize(
    ("dtype", "values", "other"),
    [
        (pa.int32(), [1, -7], 2),
        (pa.float64(), [0.0, float("nan")], 1.5),
        (pa.bool_(), [True], False),
        (pa.binary(), [b"a", b""], b"b"),
        (pa.date32(), [dt.date(2026, 1, 1)], dt.date(2026, 1, 2)),
        (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=UTC)],
         dt.datetime(2026, 1, 2, tzinfo=UTC)),
        (pa.decimal128(6, 2), [Decimal("1.50")], Decimal("1.51")),
    ],
)  # fmt: skip
def test_values_of_any_flat_type_are_converted_to_it(dtype: Any, values: Any, other: Any) -> None:
    found = stored(pa.array(values, dtype))
    assert found.may_contain(values).all()
    assert found.may_contain([other]).tolist() == [False]
    assert found.may_contain(pa.array([values[0]], dtype)).tolist() == [True]


def test_values_of_nested_types_are_queried_as_arrays() -> None:
    dtype = pa.list_(pa.int64())
    found = stored(pa.array([[1, 2], []], dtype))
    requested = pa.chunked_array([pa.array([[1, 2], [2, 1]], dtype)])
    assert found.may_contain(requested).tolist() == [True, False]
    for wrong in ([[1, 2]], pa.array([[1]], pa.list_(pa.int32()))):
        with pytest.raises(SpecError) as caught:
            found.may_contain(wrong)
        assert caught.value.code == "VALUE_TYPE"
        assert caught.value.expected == "values of type array<bigint>"


@pytest.mark.parametrize("wrong", [["a"], [2**40], [1.5], 7, pa.array(["a"])])
def test_values_of_another_type_are_refused(wrong: Any) -> None:
    found = stored(pa.array([1, 2], pa.int32()))
    with pytest.raises(SpecError) as caught:
        found.may_contain(wrong)
    assert (caught.value.code, caught.value.expected) == ("VALUE_TYPE", "values of type int")


def test_a_sketch_of_another_type_is_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "streamops.sketches.stored.SKETCH_TYPES", {"linear": "tests.sketches.linear"}
    )
    sketch = Linear("v", 4)
    states = sketch.update(Groups(np.zeros(1, np.int64), 1), pa.table({"v": ["a"]}))
    blob = Framed(sketch).estimate(states)[0].as_py()
    with pytest.raises(SpecError) as caught:
        sketches.may_contain(blob, "v")
    assert (caught.value.code, caught.value.got) == (
        "PARAMETER_TYPE", "a sketch of the type 'linear'"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"column": 7}, "PARAMETER_TYPE"),
        ({"capacity": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"capacity": 10**9}, "PARAMETER_OUT_OF_RANGE"),
        ({"false_positive_rate": 1.0}, "PARAMETER_OUT_OF_RANGE"),
        ({"item_type": 7}, "PARAMETER_TYPE"),
        ({"item_type": "long"}, "VALUE_TYPE"),
    ],
)
@pytest.mark.parametrize("function", [sketches.bloom_filter_agg, aggregates.bloom_filter_stats])
def test_invalid_parameters_are_refused_where_they_are_given(
    function: Any, arguments: Any, code: str
) -> None:
    module = "aggregates" if function is aggregates.bloom_filter_stats else "sketches"
    given = {"column": "v", "capacity": 10} | arguments
    with pytest.raises(SpecError) as caught:
        function(given.pop("column"), **given)
    assert caught.value.code == code
    assert caught.value.where == f"{module}.{function.__name__}"


def test_stored_filters_are_read_with_the_type_of_their_values() -> None:
    like = sketches.bloom_filter_agg("v", capacity=10)
    with pytest.raises(SpecError) as caught:
        sketches.merge("s", like=like).bind(pa.schema([("s", pa.binary())]), time="ts")
    assert caught.value.code == "PARAMETER_MISSING"
    assert 'item_type="string"' in caught.value.fix
    typed = sketches.bloom_filter_agg("v", capacity=10, item_type="array<int>")
    assert repr(typed) == (
        "bloom_filter_agg('v', capacity=10, false_positive_rate=0.001, item_type='array<int>')"
    )
    assert typed.sketch(None).parameters["type"] == "array<int>"
    with pytest.raises(SchemaError) as other:
        typed.bind(pa.schema([("v", pa.int64())]), time="ts")
    assert (other.value.code, other.value.got) == (
        "VALUE_TYPE", "column 'v' of type bigint"
    )  # fmt: skip
    with pytest.raises(SchemaError) as unhashed:
        like.bind(pa.schema([("v", pa.map_(pa.int8(), pa.int8()))]), time="ts")
    assert unhashed.value.code == "TYPE_UNSUPPORTED"


GOOD = {"type": "bigint", "capacity": 10, "false_positive_rate": 0.01, "bits": 128, "probes": 7}


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": 100},
        {"bits": 1 << 29},
        {"probes": 129},
        {"probes": 0},
        {"capacity": 1.5},
        {"capacity": True},
        {"type": 7},
        {"false_positive_rate": 2.0},
        {"false_positive_rate": "x"},
    ],
    ids=repr,
)
def test_bytes_with_impossible_parameters_are_refused(wrong: dict[str, Any]) -> None:
    def blob(parameters: Any) -> bytes:
        found: bytes = pack_frames(Format("bloom", 1), parameters, pa.array([b""]))[0].as_py()
        return found

    assert sketches.read(blob(GOOD)).estimate()["estimate"] == 0
    for parameters in (GOOD | wrong, {key: GOOD[key] for key in GOOD if key not in wrong}):
        with pytest.raises(SketchFormatError) as caught:
            sketches.read(blob(parameters))
        assert caught.value.code == "SKETCH_PARAMETERS"


def test_its_bits_follow_from_its_parameters() -> None:
    found = stored(pa.array([7]))
    hashed, _ = items(pa.array([7]))
    assert found.core.contains(found.states, hashed).tolist() == [True]
    assert int(np.unpackbits(found.filter.view(np.uint8)).sum()) == found.parameters["probes"]
