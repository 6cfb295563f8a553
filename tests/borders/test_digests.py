"""The digest of a row: equal for equal rows, however they are stored, and different for all others.

Pairs of values of random types differ in one border, one null, or one position. An oracle says which values are
equal: by tuples of Python.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamops import changes, sketches
from streamops.kernel import hashing
from streamops.kernel.columns import key_codes, with_large_types
from streamops.kernel.hashing import digests, hex_digests
from streamops.sinks.core.net import digest
from streamops.testing import replay
from tests.borders import cases

FLOATS = (0.0, -0.0, 1.5, -1.5, math.inf, math.nan, 5e-324)
LEAVES: list[tuple[pa.DataType, Callable[[random.Random], Any]]] = [
    (pa.bool_(), lambda rng: rng.random() < 0.5),
    (pa.int8(), lambda rng: rng.choice((0, 1, -128))),
    (pa.int32(), lambda rng: rng.choice((0, 1, -1, 2**31 - 1))),
    (pa.int64(), lambda rng: rng.choice((0, 1, 2, 3, -(2**63)))),
    (pa.float32(), lambda rng: rng.choice(FLOATS[:-1])),
    (pa.float64(), lambda rng: rng.choice(FLOATS)),
    (pa.string(), lambda rng: "".join(rng.choices("aä\0", k=rng.randrange(4)))),
    (pa.binary(), lambda rng: bytes(rng.choices((0, 1, 255), k=rng.randrange(4)))),
    (pa.decimal128(10, 2), lambda rng: Decimal(rng.choice((0, 1, 100, -100))).scaleb(-2)),
    (pa.decimal128(38, 0), lambda rng: Decimal(rng.choice((0, 1, -1, 10**38 - 1)))),
    (pa.date32(), lambda rng: rng.choice((0, 1, -(2**31)))),
    (pa.timestamp("us"), lambda rng: rng.choice((0, 1, -(2**63)))),
    (pa.timestamp("us", "America/New_York"), lambda rng: rng.choice((0, 1, 2**63 - 1))),
    (pa.duration("us"), lambda rng: rng.choice((0, 1, 2**63 - 1))),
    (pa.null(), lambda rng: None),
]
VALUES = dict(LEAVES)


def type_of(rng: random.Random, depth: int) -> pa.DataType:
    form = rng.choice(("list", "list", "struct", "struct", "map", "leaf")) if depth else "leaf"
    if form == "list":
        return pa.list_(type_of(rng, depth - 1))
    if form == "map":
        return pa.map_(rng.choice((pa.string(), pa.int64())), type_of(rng, depth - 1))
    if form == "struct":
        first = type_of(rng, depth - 1)  # often of one type, so that values can change places
        count = rng.randrange(1, 4)
        types = [rng.choice((first, type_of(rng, depth - 1))) for _ in range(count)]
        return pa.struct([(f"f{at}", dtype) for at, dtype in enumerate(types)])
    return rng.choice(LEAVES)[0]


def value_of(rng: random.Random, dtype: pa.DataType, nulls: float = 0.25) -> Any:
    """A value; a struct is a dict, a map a list of pairs."""
    if rng.random() < nulls:
        return None
    if pa.types.is_list(dtype):
        return [value_of(rng, dtype.value_type) for _ in range(rng.randrange(4))]
    if pa.types.is_struct(dtype):
        return {of.name: value_of(rng, of.type) for of in dtype}
    if pa.types.is_map(dtype):
        keys = {VALUES[dtype.key_type](rng) for _ in range(rng.randrange(4))}
        return [(key, value_of(rng, dtype.item_type)) for key in keys]
    return VALUES[dtype](rng)


def change(rng: random.Random, value: Any, dtype: pa.DataType) -> Any:
    """The value with one change: a null, a border, or two parts that change places."""
    is_leaf = not pa.types.is_nested(dtype)
    if value is None or is_leaf or rng.random() < 0.15:
        return value_of(rng, dtype, 0.0 if value is None else 0.5)
    if pa.types.is_struct(dtype):
        same = [(a.name, b.name) for a in dtype for b in dtype if a.type == b.type and a != b]
        if same and rng.random() < 0.5:
            return _exchange(value, *rng.choice(same))
        at = rng.choice(list(dtype))
        return {**value, at.name: change(rng, value[at.name], at.type)}
    if pa.types.is_map(dtype):
        return [(key, change(rng, item, dtype.item_type)) for key, item in value]
    changed = list(value)
    how = rng.choice(("cut", "add", "exchange", "inside"))
    if how == "add" or not changed:
        changed.insert(rng.randint(0, len(changed)), value_of(rng, dtype.value_type))
    elif how == "cut":
        changed.pop(rng.randrange(len(changed)))
    elif how == "exchange" and len(changed) > 1:
        a, b = rng.sample(range(len(changed)), 2)
        changed = _exchange(dict(enumerate(changed)), a, b)
        changed = list(changed.values())
    else:
        at = rng.randrange(len(changed))
        changed[at] = change(rng, changed[at], dtype.value_type)
    return changed


def _exchange(parts: dict[Any, Any], a: Any, b: Any) -> dict[Any, Any]:
    """Two parts change places, or a border between two lists or texts moves."""
    one, other = parts[a], parts[b]
    is_map = isinstance(one, list) and any(isinstance(item, tuple) for item in one)
    if type(one) is type(other) and isinstance(one, list | str | bytes) and one and not is_map:
        return {**parts, a: one[:-1], b: one[-1:] + other}
    return {**parts, a: other, b: one}


def canonical(value: Any) -> Any:
    """Equal for equal values only."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return ("struct", *map(canonical, value.values()))
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return ("map", frozenset((key, canonical(item)) for key, item in value))
        return ("list", *map(canonical, value))
    return value


def mixed(rng: random.Random, value: Any) -> Any:
    """An equal value: with the entries of maps in another order."""
    if isinstance(value, dict):
        return {name: mixed(rng, part) for name, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return rng.sample([(key, mixed(rng, item)) for key, item in value], len(value))
    return [mixed(rng, item) for item in value] if isinstance(value, list) else value


def stored_otherwise(rng: random.Random, array: pa.Array) -> pa.Array:
    """The same values, with other values below nulls, and other floats that are equal."""
    dtype, missing = array.type, np.asarray(array.is_null())
    if not len(array) or "null" in str(dtype) or pa.types.is_map(dtype):
        return array  # Arrow fails to take values of the null type out of nested ones
    index = np.where(missing, rng.randrange(len(array)), np.arange(len(array)))
    mask = pa.array(missing)
    if pa.types.is_struct(dtype):
        parts = [array.field(at).take(pa.array(index)) for at in range(dtype.num_fields)]
        parts = [stored_otherwise(rng, part) for part in parts]
        return pa.StructArray.from_arrays(parts, fields=list(dtype), mask=mask)
    if pa.types.is_list(dtype):
        filled = array.take(pa.array(index))
        lengths = np.asarray(pc.list_value_length(filled).fill_null(0))
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        return pa.ListArray.from_arrays(
            offsets, stored_otherwise(rng, filled.flatten()), mask=mask
        ).cast(dtype)
    extended = pa.concat_arrays([array, pa.array([VALUES[dtype](rng)], dtype)])
    filled = extended.take(pa.array(np.where(missing, len(array), np.arange(len(array)))))
    if pa.types.is_floating(dtype):
        values = np.array(filled)
        signed = np.array([rng.choice((1.0, -1.0)) for _ in values], values.dtype)
        values = np.where((values == 0) | np.isnan(values), values * signed, values)
        return pa.array(values, dtype, mask=missing, from_pandas=False)
    validity = pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(dtype, len(filled), [validity, *filled.buffers()[1:]])


def layouts(rng: random.Random, array: pa.Array) -> dict[str, Any]:
    """The same values, stored in other ways."""
    around = array.take(pa.array([rng.randrange(len(array)) for _ in range(rng.randrange(1, 9))]))
    cut = rng.randrange(len(array))
    otherwise = stored_otherwise(rng, array)
    found = {
        "otherwise": otherwise,
        "a slice": pa.concat_arrays([around, otherwise, around]).slice(len(around), len(array)),
        "chunks": pa.chunked_array([array.slice(0, cut), otherwise.slice(cut)]),
    }
    if "null" not in str(array.type):  # which Arrow's casts damage inside of other types
        found["large"] = with_large_types(pa.table({"v": array})).column(0)
    if not pa.types.is_nested(array.type) and not pa.types.is_null(array.type):
        found["a dictionary"] = array.dictionary_encode()
    return found


def check(rng: random.Random, count: int) -> int:
    """Compare as many pairs of values of one type; return how many of them differ."""
    dtype = type_of(rng, rng.randrange(1, 5))
    ones = [value_of(rng, dtype) for _ in range(count)]
    others = [change(rng, value, dtype) for value in ones]
    values = ones + others
    numbers: dict[Any, int] = {}
    expected = [numbers.setdefault(canonical(value), len(numbers)) for value in values]
    array = pa.array(values, dtype)
    found = digests([array])
    codes = key_codes([array], len(array))
    groups = {of: number for of, number in zip(found.tolist(), expected, strict=True)}
    assert [groups[of] for of in found.tolist()] == expected, dtype
    assert len(groups) == len(numbers), dtype
    assert len({*zip(codes.tolist(), expected, strict=True)}) == len(numbers), dtype
    assert len({*hex_digests([array]).to_pylist()}) == len(numbers), dtype
    for name, of in layouts(rng, array).items():
        assert (digests([of]) == found).all(), (name, dtype)
    again = pa.array([mixed(rng, value) for value in values], dtype)
    assert (digests([again]) == found).all(), dtype
    # In two columns: what one row has in the first, and the other one in the second.
    pair = digests([array, pa.concat_arrays([array[count:], array[:count]])])
    differ = [one != other for one, other in zip(expected, expected[count:], strict=False)]
    assert ((pair[:count] != pair[count:]) == np.array(differ)).all(), dtype
    if rng.random() < 0.1:
        check_operators(pa.table({"v": array, "n": range(len(array))}), numbers)
    return sum(differ)


def check_operators(rows: pa.Table, numbers: dict[Any, int]) -> None:
    """Identities, identifiers and ledgers tell exactly the same values apart."""
    one = rows.select(["v"])
    for at in range(0, len(rows), 29):
        other = (at * 31 + 1) % len(rows)
        is_same = digests([one["v"].slice(at, 1)]) == digests([one["v"].slice(other, 1)])
        both = (digest(one.slice(of, 1))[0] for of in (at, other))
        assert (len({*both}) == 1) == is_same.item()
    if has_map(one["v"].type) or "null" in str(
        one["v"].type
    ):  # which is no key, or which Arrow damages
        return
    known = len(numbers) - (None in numbers)
    (found,) = replay(sketches.seen("v", capacity=10_000), [rows])
    assert found.table["seen"].to_pylist().count("first") == known
    operator = changes.apply("v", sequence="n", horizon=1, history="intervals", surrogate="vid")
    (found,) = replay(operator, [rows.set_column(1, "n", pa.array([0] * len(rows)))])
    assert len({*found.table["vid"].drop_null().to_pylist()}) == known


def has_map(dtype: pa.DataType) -> bool:
    parts = [dtype.field(at).type for at in range(dtype.num_fields)]
    return pa.types.is_map(dtype) or any(map(has_map, parts))


@pytest.mark.parametrize("seed", range(cases(2, 110)))
def test_a_digest_is_of_one_value(seed: int) -> None:
    rng = random.Random(seed)
    assert sum(check(rng, 200) for _ in range(5)) > 300  # pairs that differ


def test_flat_values_without_nulls_have_no_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """So their digests cost what ``xxhash64`` costs, and are equal to it."""
    shapes = hashing._shapes
    shaped: list[pa.DataType] = []
    monkeypatch.setattr(
        hashing, "_shapes", lambda array, seed: shaped.append(array.type) or shapes(array, seed)
    )
    flat = [pa.array([0, 1, 2]), pa.chunked_array([["a", "b"], [""]])]
    assert digests(flat).tolist() == hashing.xxhash64(flat).tolist()
    assert shaped == []
    digests([*flat, pa.array([0.5, None, 0.5])])
    assert shaped == [pa.float64()]
