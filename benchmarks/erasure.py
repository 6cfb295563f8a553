"""CPU time of shredding without Spark: `python -m benchmarks.erasure`. Half a minute.

Values of 18 to 24 bytes, in Arrow batches of 10,000 rows as on Spark. The first table is that of docs/erasure.md;
the second one compares the ways to derive a nonce (decision 40).
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV, AESSIV

from streamops.erasure.core.shredding import (
    Columns,
    ShreddedColumn,
    new_key,
    shred_columns,
    unshred_columns,
)
from streamops.erasure.core.values import ValueType

ROWS, BATCH = 200_000, 10_000
ENTRIES = pa.list_(pa.struct([("version", pa.int64()), ("key", pa.binary())]))


def main() -> None:
    print("| subjects | in a batch | shred, µs per value | unshred, µs per value |")
    print("|---|---|---|---|")
    for subjects in (1_000, 100_000, 10_000_000):
        distinct, shred, unshred = measure(subjects)
        print(f"| {subjects:,} | {distinct:,.0f} | {shred:.1f} | {unshred:.1f} |")
    print("\n| encryption of a value of 20 bytes | µs |\n|---|---|")
    for name, encrypt in ways().items():
        print(f"| {name} | {microseconds(encrypt):.2f} |")


def measure(subjects: int) -> tuple[float, float, float]:
    """Distinct subjects per batch; microseconds per value to shred and to unshred."""
    numbers = np.random.default_rng(1).integers(0, subjects, ROWS)
    keys = {number: new_key() for number in np.unique(numbers).tolist()}
    text = ValueType.of(pa.string())
    assert text is not None
    spec = Columns("benchmark", (ShreddedColumn("email", "email", text),), "null", None)
    shredding = unshredding = distinct = 0.0
    for start in range(0, ROWS, BATCH):
        of_batch = numbers[start : start + BATCH].tolist()
        distinct += len(set(of_batch)) * BATCH / ROWS
        names = pa.array([f"user-{number}" for number in of_batch])
        entries = pa.array([[{"version": 1, "key": keys[n]}] for n in of_batch], ENTRIES)
        values = pa.array([f"user-{number}@example.com" for number in of_batch])
        before = time.process_time()
        shredded, _ = shred_columns(spec, names, entries, [values])
        between = time.process_time()
        restored, _ = unshred_columns(spec, names, entries, shredded)
        unshredding += time.process_time() - between
        shredding += between - before
        assert restored[0].equals(values)
    return distinct, shredding * 1e6 / ROWS, unshredding * 1e6 / ROWS


def ways() -> dict[str, Callable[[bytes], bytes]]:
    """Ways to encrypt a value; all but the first are deterministic."""
    key, other, context, zero = new_key(), new_key(), bytes(40), bytes(12)
    gcm, siv = AESGCM(key), AESSIV(key + other)

    def by_hmac(value: bytes) -> bytes:
        nonce = hmac.digest(other, context + value, "sha256")[:12]
        return gcm.encrypt(nonce, value, context)

    def by_blake(value: bytes) -> bytes:
        nonce = hashlib.blake2b(context + value, key=other, digest_size=12).digest()
        return gcm.encrypt(nonce, value, context)

    found: dict[str, Callable[[bytes], bytes]] = {
        "AES-GCM alone, with a given nonce": lambda value: gcm.encrypt(zero, value, context),
        "AES-GCM, nonce by HMAC-SHA256": by_hmac,
        "AES-GCM, nonce by keyed BLAKE2b": by_blake,
        "AES-SIV": lambda value: siv.encrypt(value, [context]),
    }
    try:
        resistant = AESGCMSIV(key)
        found["AES-GCM-SIV"] = lambda value: resistant.encrypt(zero, value, context)
    except UnsupportedAlgorithm:
        pass  # OpenSSL before 3.2
    return found


def microseconds(encrypt: Callable[[bytes], bytes]) -> float:
    """The least of three measurements."""
    values = [b"%020d" % number for number in range(50_000)]
    best = float("inf")
    for _ in range(3):
        before = time.process_time()
        for value in values:
            encrypt(value)
        best = min(best, time.process_time() - before)
    return best * 1e6 / len(values)


if __name__ == "__main__":
    main()
