"""Shredded values one at a time, from the description of the format in docs/erasure.md."""

from __future__ import annotations

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CODES = {
    "boolean": 1,
    "tinyint": 2,
    "smallint": 3,
    "int": 4,
    "bigint": 5,
    "float": 6,
    "double": 7,
    "decimal": 8,
    "string": 9,
    "binary": 10,
    "date": 11,
    "timestamp": 12,
    "timestamp_ntz": 13,
}


def subkeys(key: bytes) -> tuple[bytes, bytes]:
    derived = hmac.new(key, b"streamops.erasure subkeys v1", hashlib.sha512).digest()
    return derived[:32], derived[32:]


def header(type_name: str, version: int, precision: int = 0, scale: int = 0) -> bytes:
    numbers = bytes([1, CODES[type_name], precision, scale])
    return b"SE" + numbers + version.to_bytes(4, "little")


def context(head: bytes, column: str, subject: str) -> bytes:
    parts = b""
    for text in (column, subject):
        parts += struct.pack("<I", len(text.encode())) + text.encode()
    return head + parts


def shred(value: bytes, key: bytes, head: bytes, column: str, subject: str) -> bytes:
    encrypting, deriving = subkeys(key)
    authenticated = context(head, column, subject)
    nonce = hmac.new(deriving, authenticated + value, hashlib.sha256).digest()[:12]
    return head + nonce + AESGCM(encrypting).encrypt(nonce, value, authenticated)


def unshred(stored: bytes, key: bytes, column: str, subject: str) -> bytes | None:
    """The bytes of the value; None if they are not authentic."""
    authenticated = context(stored[:10], column, subject)
    try:
        return AESGCM(subkeys(key)[0]).decrypt(stored[10:22], stored[22:], authenticated)
    except InvalidTag:
        return None
