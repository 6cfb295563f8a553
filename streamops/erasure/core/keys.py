"""Keys of subjects: created, wrapped, and derived."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streamops.erasure import conditions
from streamops.kernel.packages import require_package

KEY_SIZE = 32
"""The size of the key of a subject, and of a wrapping key, in bytes."""
NONCE_SIZE, TAG_SIZE = 12, 16

_WRAPPED = b"W\x01"
WRAPPED_SIZE = len(_WRAPPED) + NONCE_SIZE + KEY_SIZE + TAG_SIZE

_SUBKEYS = b"streamops.erasure subkeys v1"
_WRAPS = b"streamops.erasure wrapped key v1\0"

WrappingKey = Callable[[], bytes]
"""A function that returns the wrapping key, 32 bytes. It runs wherever keys are unwrapped."""


def aes_gcm() -> Callable[[bytes], Any]:
    """AES-GCM as a function of the key. It is imported once per batch, not once per key."""
    module = require_package(
        "cryptography.hazmat.primitives.ciphers.aead",
        package="cryptography",
        extra="erasure",
    )
    found: Callable[[bytes], Any] = module.AESGCM
    return found


def invalid_tag() -> type[Exception]:
    """The exception of bytes that are not authentic."""
    module = require_package("cryptography.exceptions", package="cryptography", extra="erasure")
    found: type[Exception] = module.InvalidTag
    return found


def new_key() -> bytes:
    """A key from the generator of the operating system."""
    return secrets.token_bytes(KEY_SIZE)


@dataclass(frozen=True, slots=True, repr=False)
class SubjectKey:
    """What encrypts and decrypts the values of one subject. Its repr does not show the key."""

    cipher: Any = field(repr=False)
    nonces: bytes = field(repr=False)
    """The key from which nonces are derived."""

    @classmethod
    def of(cls, key: bytes, cipher: Callable[[bytes], Any]) -> SubjectKey:
        """Derive two independent keys: one encrypts, the other one derives nonces."""
        derived = hmac.digest(key, _SUBKEYS, "sha512")
        return cls(cipher(derived[:KEY_SIZE]), derived[KEY_SIZE:])

    def nonce(self, context: bytes, value: bytes) -> bytes:
        """The nonce of a value: the same for the same value in the same context."""
        return hmac.digest(self.nonces, context + value, "sha256")[:NONCE_SIZE]


@dataclass(frozen=True, slots=True, repr=False)
class Wrapping:
    """Encrypts the keys of a key table by a wrapping key."""

    cipher: Any = field(repr=False)

    @classmethod
    def of(cls, wrapping_key: WrappingKey | None) -> Wrapping | None:
        """Call the function of the wrapping key; None if keys are not wrapped."""
        if wrapping_key is None:
            return None
        key: object = wrapping_key()
        if not isinstance(key, bytes) or len(key) != KEY_SIZE:
            # The message has the size, and never the bytes.
            size = f", of {len(key)} bytes" if isinstance(key, bytes | str) else ""
            raise conditions.WRAPPING_KEY_SIZE.error(
                key_size=KEY_SIZE, got=f"a value of type {type(key).__name__}{size}"
            )
        return cls(aes_gcm()(key))

    def wrap(self, subject: str, key: bytes) -> bytes:
        """Encrypt a key. The result is bound to the subject."""
        nonce = secrets.token_bytes(NONCE_SIZE)
        encrypted: bytes = self.cipher.encrypt(nonce, key, _WRAPS + subject.encode())
        return _WRAPPED + nonce + encrypted

    def unwrap(self, subject: str, stored: bytes) -> bytes | None:
        """Decrypt a key; None if it is not one of this subject, wrapped by this wrapping key."""
        start = len(_WRAPPED)
        if len(stored) != WRAPPED_SIZE or not stored.startswith(_WRAPPED):
            return None
        nonce, rest = stored[start : start + NONCE_SIZE], stored[start + NONCE_SIZE :]
        try:
            found: bytes = self.cipher.decrypt(nonce, rest, _WRAPS + subject.encode())
        except invalid_tag():
            return None
        return found


def unwrap(subject: str, stored: bytes, wrapping: Wrapping | None) -> bytes | None:
    """The key of a subject from a key table; None if it cannot be used."""
    key = stored if wrapping is None else wrapping.unwrap(subject, stored)
    return key if key is not None and len(key) == KEY_SIZE else None
