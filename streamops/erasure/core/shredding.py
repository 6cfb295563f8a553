"""Encrypt and decrypt columns of values, each value by the key of its subject.

A shredded value is a header, a nonce, the encrypted bytes and a tag (docs/erasure.md). The header, the
name of the column and the subject are authenticated: a value that was moved to another column or to
another subject is rejected.

The nonce is derived from the value and its context by a key of its own, so equal values of one subject in
one column are equal bytes: a micro-batch that Spark repeats is the same, and shredded values can be
grouped, joined and deduplicated (decision 40).
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.erasure import conditions
from streamops.erasure.core.values import ValueType
from streamops.kernel.columns import combine_chunks
from streamops.kernel.parameters import require_package

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


MAGIC = b"SE"
FORMAT = 1
_HEADER = struct.Struct("<2sBBBBI")  # magic, format, type, precision, scale, version of the key
_SIZE = struct.Struct("<I")
_MAX_VERSION = (1 << 32) - 1
OVERHEAD = _HEADER.size + NONCE_SIZE + TAG_SIZE
"""By how many bytes a shredded value is larger than the value."""

Rejected = Literal["null", "route", "fail"]

SHRED_REASONS = ("no_subject", "no_key", "erased", "unusable_key")
UNSHRED_REASONS = (
    *SHRED_REASONS,
    "not_shredded",
    "other_format",
    "other_type",
    "no_key_version",
    "not_authentic",
)
_OK = 0
_CODES = {reason: code for code, reason in enumerate(UNSHRED_REASONS, 1)}


@dataclass(frozen=True, slots=True)
class ShreddedColumn:
    """A column whose values are shredded.

    Parameters
    ----------
    name : str
        Column of the frame.
    bound_to : str
        The name that its values are bound to.
    type : ValueType
        The type of the values.
    """

    name: str
    bound_to: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are encrypted or decrypted, and how keys are unwrapped."""

    where: str
    columns: tuple[ShreddedColumn, ...]
    rejected: Rejected
    wrapping_key: WrappingKey | None = field(repr=False)

    def rejected_type(self, *, of_values: bool) -> pa.DataType:
        """The type of the column ``rejected``."""
        fields = [pa.field("reason", pa.string()), pa.field("columns", pa.list_(pa.string()))]
        if of_values and self.rejected == "route":
            values = [pa.field(column.name, column.type.dtype) for column in self.columns]
            fields.append(pa.field("row", pa.struct(values)))
        return pa.struct(fields)


class _Keys:
    """The keys of the subjects of one batch, derived once per subject."""

    def __init__(self, subjects: pa.Array, versions: pa.Array, spec: Columns) -> None:
        encoded = combine_chunks(subjects).dictionary_encode()
        self.codes: list[int | None] = encoded.indices.to_pylist()
        self.subjects: list[str] = encoded.dictionary.to_pylist()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        known = np.flatnonzero(codes >= 0)
        firsts = np.full(len(self.subjects), -1)
        firsts[codes[known][::-1]] = known[::-1]
        # The rows of a subject were joined with the same entries of the key table.
        entries = versions.take(pa.array(firsts))
        lengths = entries.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        self._ends: list[int] = np.cumsum(lengths, dtype=np.int64).tolist()
        self._lengths: list[int] = lengths.tolist()
        numbers, keys = entries.flatten().flatten()
        self._versions: list[int] = numbers.to_pylist()
        self._keys: list[bytes | None] = keys.cast(pa.binary()).to_pylist()
        self._wrapping = Wrapping.of(spec.wrapping_key)
        self._cipher = aes_gcm()
        self._usable: dict[tuple[int, int], SubjectKey | str] = {}

    def latest(self, code: int) -> int | str:
        """The highest version of the keys of a subject; or the reason why there is none."""
        end, length = self._ends[code], self._lengths[code]
        if not length:
            return "no_key"
        # One erased version erases the subject: nothing new is written about a person who is to be forgotten.
        if None in self._keys[end - length : end]:
            return "erased"
        newest = max(self._versions[end - length : end])
        return newest if 0 <= newest <= _MAX_VERSION else "unusable_key"

    def key(self, code: int, version: int) -> SubjectKey | str:
        """The key of a subject; or the reason why it cannot be used."""
        found = self._usable.get((code, version))
        if found is None:
            found = self._usable[code, version] = self._find(code, version)
        return found

    def _find(self, code: int, version: int) -> SubjectKey | str:
        end, length = self._ends[code], self._lengths[code]
        if not length:
            return "no_key"
        versions, keys = self._versions[end - length : end], self._keys[end - length : end]
        stored = [key for of, key in zip(versions, keys, strict=True) if of == version]
        if not stored:
            return "erased" if None in keys else "no_key_version"
        first, *others = stored
        if None in stored or first is None:
            return "erased"
        key = unwrap(self.subjects[code], first, self._wrapping)
        # Two keys of one version: it is not known which one to use.
        for other in others:
            if other is None or unwrap(self.subjects[code], other, self._wrapping) != key:
                return "unusable_key"
        return "unusable_key" if key is None else SubjectKey.of(key, self._cipher)

    def context(self, code: int, header: bytes, column: ShreddedColumn) -> bytes:
        """What is authenticated with a value: its header, its column and its subject."""
        name, subject = column.bound_to.encode(), self.subjects[code].encode()
        return b"".join((header, _SIZE.pack(len(name)), name, _SIZE.pack(len(subject)), subject))


def shred_columns(
    spec: Columns, subjects: pa.Array, versions: pa.Array, values: Sequence[pa.Array]
) -> tuple[list[pa.Array], pa.Array]:
    """Encrypt columns.

    Parameters
    ----------
    spec : Columns
    subjects : Array
        The subject of each row: string.
    versions : Array
        The entries of the subject in the key table: a list of structs of ``version`` and ``key``.
    values : sequence of Array
        One per column of the spec.

    Returns
    -------
    list of Array, Array
        The shredded columns. For each row with a value that was not shredded, a struct with the
        reason and the columns.
    """
    keys = _Keys(subjects, versions, spec)
    results, failures = [], []
    for column, array in zip(spec.columns, values, strict=True):
        cells, codes = _encrypt(column, array, keys)
        results.append(pa.array(cells, pa.binary()))
        failures.append(codes)
    rejected = _rejected(spec, failures, values)
    return results, rejected


def unshred_columns(
    spec: Columns, subjects: pa.Array, versions: pa.Array, values: Sequence[pa.Array]
) -> tuple[list[pa.Array], pa.Array]:
    """Decrypt columns, see :func:`shred_columns`."""
    keys = _Keys(subjects, versions, spec)
    results, failures = [], []
    for column, array in zip(spec.columns, values, strict=True):
        cells, codes = _decrypt(column, array, keys, invalid_tag())
        results.append(column.type.from_bytes(cells))
        failures.append(codes)
    return results, _rejected(spec, failures, None)


def _encrypt(
    column: ShreddedColumn, values: pa.Array, keys: _Keys
) -> tuple[list[bytes | None], npt.NDArray[np.uint8]]:
    """Shredded values, and the code of the reason where there is none."""
    of = column.type
    prepared: dict[int, tuple[bytes, bytes, SubjectKey] | str] = {}

    def prepare(code: int) -> tuple[bytes, bytes, SubjectKey] | str:
        version = keys.latest(code)
        if isinstance(version, str):
            return version
        key = keys.key(code, version)
        if isinstance(key, str):
            return key
        header = _HEADER.pack(MAGIC, FORMAT, of.code, of.precision, of.scale, version)
        return header, keys.context(code, header, column), key

    cells: list[bytes | None] = [None] * len(values)
    failed = np.zeros(len(values), np.uint8)
    # AES encrypts one value per call.
    for row, (code, value) in enumerate(zip(keys.codes, of.to_bytes(values), strict=True)):
        if value is None:
            continue
        if code is None:
            failed[row] = _CODES["no_subject"]
            continue
        found = prepared.get(code)
        if found is None:
            found = prepared[code] = prepare(code)
        if isinstance(found, str):
            failed[row] = _CODES[found]
            continue
        header, context, key = found
        nonce = key.nonce(context, value)
        cells[row] = header + nonce + key.cipher.encrypt(nonce, value, context)
    return cells, failed


def _decrypt(
    column: ShreddedColumn, values: pa.Array, keys: _Keys, invalid: type[Exception]
) -> tuple[list[bytes | None], npt.NDArray[np.uint8]]:
    """The bytes of the values, and the code of the reason where they could not be decrypted."""
    prepared: dict[tuple[int, bytes], tuple[bytes, SubjectKey] | str] = {}
    start, body = _HEADER.size, _HEADER.size + NONCE_SIZE
    cells: list[bytes | None] = [None] * len(values)
    failed = np.zeros(len(values), np.uint8)
    for row, (code, stored) in enumerate(
        zip(keys.codes, values.cast(pa.binary()).to_pylist(), strict=True)
    ):
        if stored is None:
            continue
        if code is None:
            failed[row] = _CODES["no_subject"]
            continue
        header = stored[:start]
        found = prepared.get((code, header))
        if found is None:
            found = prepared[code, header] = _prepare_decryption(column, code, header, keys)
        if len(stored) < OVERHEAD:
            found = "not_shredded"
        if isinstance(found, str):
            failed[row] = _CODES[found]
            continue
        context, key = found
        try:
            value = key.cipher.decrypt(stored[start:body], stored[body:], context)
        except invalid:
            failed[row] = _CODES["not_authentic"]
            continue
        if column.type.accepts(value):
            cells[row] = value
        else:
            failed[row] = _CODES["other_type"]
    return cells, failed


def _prepare_decryption(
    column: ShreddedColumn, code: int, header: bytes, keys: _Keys
) -> tuple[bytes, SubjectKey] | str:
    """The context and the key of values with this header; or the reason why there is none."""
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        return "not_shredded"
    _, version, type_code, precision, scale, key_version = _HEADER.unpack(header)
    if version != FORMAT:
        return "other_format"
    key = keys.key(code, key_version)
    if isinstance(key, str):
        return key
    of = column.type
    if (type_code, precision, scale) != (of.code, of.precision, of.scale):
        return "other_type"
    return keys.context(code, header, column), key


def _rejected(
    spec: Columns, failures: Sequence[npt.NDArray[np.uint8]], values: Sequence[pa.Array] | None
) -> pa.Array:
    """The column ``rejected``: null where all values were processed."""
    dtype = spec.rejected_type(of_values=values is not None)
    matrix = np.stack(failures)
    rows = np.flatnonzero(matrix.any(axis=0))
    if len(rows) and spec.rejected == "fail":
        _fail(matrix[:, rows])
    names = [column.name for column in spec.columns]
    found = matrix[:, rows]
    firsts = found[(found != _OK).argmax(axis=0), np.arange(len(rows))]
    fields = [
        pa.array([UNSHRED_REASONS[code - 1] for code in firsts], pa.string()),
        pa.array(
            [[n for n, code in zip(names, codes, strict=True) if code] for codes in found.T],
            pa.list_(pa.string()),
        ),
    ]
    if len(dtype) > len(fields):
        assert values is not None
        routed = [
            column.type.from_bytes(column.type.to_bytes(array.take(pa.array(rows))))
            for column, array in zip(spec.columns, values, strict=True)
        ]
        fields.append(pa.StructArray.from_arrays(routed, fields=list(dtype.field("row").type)))
    structs = pa.StructArray.from_arrays(fields, fields=list(dtype))
    positions = np.full(matrix.shape[1], -1)
    positions[rows] = np.arange(len(rows))
    return structs.take(pa.array(positions, mask=positions < 0))


def _fail(failures: npt.NDArray[np.uint8]) -> None:
    """Fail the query. The message has neither values nor subjects."""
    codes, counts = np.unique(failures[failures != _OK], return_counts=True)
    reasons = ", ".join(
        f"{UNSHRED_REASONS[code - 1]}: {count}" for code, count in zip(codes, counts, strict=True)
    )
    raise conditions.VALUES_REJECTED.error(got=f"values by reason: {reasons}")
