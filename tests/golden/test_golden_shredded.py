"""Shredded values and wrapped keys of each released version are still read, byte by byte."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from streamops.erasure.core.shredding import FORMAT, Wrapping
from tests.erasure.samples import columns_of, entries_of, key_of, shred, unshred

VALUES = {
    pa.string(): "a@x",
    pa.int64(): -7,
    pa.bool_(): True,
    pa.decimal128(10, 2): Decimal("-1.25"),
}
"""Values of the column "v" of the subject "ann", by the type."""

SHREDDED = {
    1: {
        pa.string(): "53450109000001000000ac97222eb80a4091fa688e98c444fcf5a0270ba5a72764be0612372aa8e078",
        pa.int64(): "5345010500000100000042123118820d8de9711d15c89fe884f377132057ccd74a700b3245de1e25083311c8c970",
        pa.bool_(): "534501010000010000009fcfc868c396c57fbe3d36dcfe0714fcf6e75b710247671210776c1fc4",
        pa.decimal128(
            10, 2
        ): "534501080a0201000000ddc9f44fe7d497de3caa39c233d75f5215d870fb558601971992ef4f002168a59c91b298052d5c5c142d2da0",
    }
}
WRAPPED = {
    1: "5701d22ca2fd64c68c4d1f050353778636857f09e8e0e3269faaf996d427dd3e9392394ff8746a92c88ea402b6e71a69ad61d1000ce8fb7c14377d637568"
}
"""The key of "ann", wrapped by 32 zero bytes."""


@pytest.mark.parametrize("version", SHREDDED)
def test_values_of_every_version_are_read(version: int) -> None:
    for dtype, stored in SHREDDED[version].items():
        cells = [bytes.fromhex(stored)]
        (restored,), rejected = unshred(columns_of(v=dtype), ["ann"], entries_of("ann"), v=cells)
        assert restored.to_pylist() == [VALUES[dtype]]
        assert rejected == [None]


def test_values_are_written_in_the_newest_version() -> None:
    assert max(SHREDDED) == FORMAT
    for dtype, stored in SHREDDED[FORMAT].items():
        (cells,), _ = shred(columns_of(v=dtype), ["ann"], entries_of("ann"), v=[VALUES[dtype]])
        assert [cell.hex() for cell in cells.to_pylist()] == [stored]


@pytest.mark.parametrize("version", WRAPPED)
def test_wrapped_keys_of_every_version_are_read(version: int) -> None:
    wrapping = Wrapping.of(lambda: bytes(32))
    assert wrapping is not None
    assert wrapping.unwrap("ann", bytes.fromhex(WRAPPED[version])) == key_of("ann")
