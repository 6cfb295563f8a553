"""Keys and wrapped keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.erasure.core.shredding import (
    KEY_SIZE,
    WRAPPED_SIZE,
    SubjectKey,
    Wrapping,
    aes_gcm,
    new_key,
    unwrap,
)
from streamops.errors import SpecError
from tests.erasure.samples import columns_of, key_of, reasons, shred, unshred

WRAPPING_KEY = bytes(range(32))


def wrapping(key: bytes = WRAPPING_KEY) -> Wrapping:
    found = Wrapping.of(lambda: key)
    assert found is not None
    return found


def test_keys_are_random_and_of_32_bytes() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {KEY_SIZE}


def test_the_derived_keys_differ_from_each_other_and_from_the_key() -> None:
    key = key_of("ann")
    derived = SubjectKey.of(key, aes_gcm())
    assert len(derived.nonces) == 32
    assert derived.nonces != key
    # The cipher does not use the key of the nonces.
    other = SubjectKey.of(derived.nonces, aes_gcm())
    assert other.cipher.encrypt(bytes(12), b"v", None) != derived.cipher.encrypt(
        bytes(12), b"v", None
    )


def test_neither_a_key_nor_a_wrapping_key_is_in_a_repr() -> None:
    for thing in (SubjectKey.of(key_of("ann"), aes_gcm()), wrapping()):
        text = repr(thing)
        assert key_of("ann").hex() not in text
        assert "cipher" not in text
    spec = columns_of("null", lambda: WRAPPING_KEY, email=pa.string())
    assert "wrapping_key" not in repr(spec)


def test_a_wrapped_key_is_unwrapped_for_its_subject_only() -> None:
    key, of = key_of("ann"), wrapping()
    stored = of.wrap("ann", key)
    assert len(stored) == WRAPPED_SIZE
    assert key not in stored
    assert unwrap("ann", stored, of) == key
    assert unwrap("bob", stored, of) is None
    assert unwrap("ann", stored, wrapping(bytes(32))) is None
    assert unwrap("ann", stored[:-1], of) is None
    assert unwrap("ann", key, of) is None
    assert unwrap("ann", stored, None) is None  # it is not a key
    assert of.wrap("ann", key) != stored


@pytest.mark.parametrize("returned", [b"short", "x" * 32, None, bytes(33)])
def test_a_wrapping_key_of_the_wrong_size_is_refused_without_showing_it(returned: Any) -> None:
    with pytest.raises(SpecError, match="INVALID_PARAMETER") as caught:
        Wrapping.of(lambda: returned)
    assert "short" not in str(caught.value)
    assert "xxx" not in str(caught.value)


def test_values_are_shredded_by_wrapped_keys() -> None:
    entries = {"ann": [(1, wrapping().wrap("ann", key_of("ann")))]}
    wrapped = columns_of("null", lambda: WRAPPING_KEY, email=pa.string())
    (stored,), rejected = shred(wrapped, ["ann"], entries, email=["a"])
    assert rejected == [None]
    readable = columns_of(email=pa.string())
    assert stored == shred(readable, ["ann"], {"ann": [(1, key_of("ann"))]}, email=["a"])[0][0]
    assert unshred(wrapped, ["ann"], entries, email=stored)[0][0].to_pylist() == ["a"]
    lost = columns_of("null", lambda: bytes(32), email=pa.string())
    assert reasons(unshred(lost, ["ann"], entries, email=stored)[1]) == ["unusable_key"]
