"""Manifests of a Parquet folder: numbered files, of which each one commits a micro-batch.

A manifest has the ledger entry after its micro-batch, the files of the micro-batch, and the columns of all
rows so far. The first line is the SHA-256 of the rest, so that a file that was written in part is detected.
It names the hash of the manifest before, so that a chain from the first to the last one is complete.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from streamops.sinks.core.ledger import Entry

VERSION = 1


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file: its path below the folder, rows, bytes, and the SHA-256 of its bytes."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A micro-batch that is committed.

    Parameters
    ----------
    entry : Entry
        The entry of the ledger after the micro-batch.
    schema : Schema
        The columns of all rows so far.
    files : tuple of File
        The files of the micro-batch.
    is_first : bool
        Whether the rows of the manifests before are not part of the target any more.
    number : int
        Its position in the folder, starting at 1.
    previous : str
        The hash of the manifest before; of the first one, an empty text.
    digest : str
        The hash of this one, once it is written.
    """

    entry: Entry
    schema: pa.Schema
    files: tuple[File, ...] = field(default=())
    is_first: bool = False
    number: int = 1
    previous: str = ""
    digest: str = field(default="", compare=False)

    def encode(self) -> bytes:
        """Return the manifest as text, with its hash in the first line."""
        values: dict[str, Any] = {
            "version": VERSION,
            "number": self.number,
            "previous": self.previous,
            "entry": asdict(self.entry),
            "is_first": self.is_first,
            "files": [asdict(file) for file in self.files],
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
        }
        body = json.dumps(values, indent=1, ensure_ascii=False).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def decode(text: bytes) -> Manifest | None:
    """Return the manifest of a text; None if it was written in part.

    Examples
    --------
    >>> entry = Entry("query", 1, "run", 0, rows=0, digest=0)
    >>> text = Manifest(entry, pa.schema([("a", pa.int64())])).encode()
    >>> decode(text).entry.batch, decode(text[:-1])
    (0, None)
    """
    digest, _, body = text.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    values = json.loads(body)
    assert values["version"] == VERSION, values["version"]
    entry = values["entry"]
    return Manifest(
        Entry(**{**entry, "former": tuple(entry["former"])}),
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"]))),
        tuple(File(**file) for file in values["files"]),
        values["is_first"],
        values["number"],
        values["previous"],
        digest.decode(),
    )


def find_damage(found: Mapping[int, Manifest | None], newest: int) -> tuple[str, str, str] | None:
    """Return which manifest is missing, what there is, and what should be; None if all are there.

    Parameters
    ----------
    found : mapping
        The manifests by the numbers of their files; None for one that was written in part.
    newest : int
        The last manifest that is known to be complete; 0 if none is known.

    Examples
    --------
    >>> entry = Entry("query", 1, "run", 0, rows=0, digest=0)
    >>> first = decode(Manifest(entry, pa.schema([])).encode())
    >>> find_damage({1: first}, newest=1)
    >>> find_damage({1: first}, newest=2)
    ('manifest 2', 'no file', 'a manifest')
    """
    previous = ""
    for number in range(1, max(newest, *found, 0) + 1):
        manifest = found.get(number)
        if number not in found or (manifest is None and number == newest):
            got = "a file that was written in part" if number in found else "no file"
            return f"manifest {number}", got, "a manifest"
        if manifest is None:
            continue
        if manifest.number != number:
            return f"manifest {number}", f"manifest {manifest.number}", f"manifest {number}"
        if manifest.previous != previous:
            got = f"SHA-256 {previous or 'of none'}"
            return f"the manifest before {number}", got, manifest.previous or "no manifest"
        previous = manifest.digest
    return None
