"""Manifests of a Parquet folder: numbered files, of which each one commits a micro-batch.

A manifest has the ledger entry after its micro-batch, the files of the micro-batch, and the columns of all
rows so far. The first line is the SHA-256 of the rest, so that a file that was written in part is detected.
It names the hash of the manifest before, so that a chain from the first to the last one is complete.

Each 16th manifest also lists the files of the 15 before it, or what they were merged to; each 256th those of the
255 before it, and so on. These are not read any more: a folder has few manifests and files, however old it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from streamops.kernel.errors import SinkError
from streamops.sinks import conditions
from streamops.sinks.core.ledger import Entry

VERSION = 1
MERGED = 16
"""Of how many manifests one lists the files."""


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
    start : int
        The first manifest whose files are listed here. That of `number`, unless they were merged.
    previous : str
        The hash of the manifest before `start`; of the first one, an empty text.
    digest : str
        The hash of this one, once it is written.
    """

    entry: Entry
    schema: pa.Schema
    files: tuple[File, ...] = field(default=())
    is_first: bool = False
    number: int = 1
    start: int = 1
    previous: str = ""
    digest: str = field(default="", compare=False)

    @property
    def has_merged(self) -> bool:
        """Whether it has files of manifests that had merged others before."""
        return self.number - self.start >= MERGED

    def encode(self) -> bytes:
        """Return the manifest as text, with its hash in the first line."""
        values: dict[str, Any] = {
            "version": VERSION,
            "number": self.number,
            "start": self.start,
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
        Entry.of(*(entry[field.name] for field in fields(Entry))),
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"]))),
        tuple(File(**file) for file in values["files"]),
        values["is_first"],
        values["number"],
        values["start"],
        values["previous"],
        digest.decode(),
    )


def start_of(number: int) -> int:
    """The first manifest whose files a manifest with this number lists.

    Examples
    --------
    >>> start_of(15), start_of(16), start_of(32), start_of(256)
    (15, 1, 17, 1)
    """
    span = 1
    while number % (span * MERGED) == 0:
        span *= MERGED
    return number - span + 1


def read_chain(
    read: Callable[[int], Manifest | None], last: int, newest: int = 0
) -> Iterator[Manifest]:
    """Read the manifests that are not merged, the newest first.

    Parameters
    ----------
    read : function
        Returns the manifest with a number; None if it was written in part.
    last : int
        The highest number that a manifest has.
    newest : int
        The last manifest that is known to be complete; 0 if none is known.

    Raises
    ------
    SinkError
        ``FILE_DAMAGED``: a manifest is missing, or is not the one that was written.

    Examples
    --------
    >>> entry = Entry("query", 1, "run", 0, rows=0, digest=0)
    >>> first = decode(Manifest(entry, pa.schema([])).encode())
    >>> [manifest.number for manifest in read_chain({1: first}.__getitem__, last=1)]
    [1]
    """
    number, expected = max(last, newest), None
    while number > 0 and expected != "":
        try:
            manifest = read(number)
        except FileNotFoundError:
            raise damaged(f"manifest {number}", "no file", "a manifest") from None
        if manifest is None and number == newest:
            got = "a file that was written in part"
            raise damaged(f"manifest {number}", got, "a manifest")
        if manifest is not None:
            if manifest.number != number:
                raise damaged(
                    f"manifest {number}", f"manifest {manifest.number}", f"manifest {number}"
                )
            if expected not in (None, manifest.digest):
                what = f"manifest {number}"
                raise damaged(what, f"SHA-256 {manifest.digest}", f"SHA-256 {expected}")
            yield manifest
            expected = manifest.previous
        number = (number if manifest is None else manifest.start) - 1
    if expected:
        raise damaged("the first manifest", "no file", f"SHA-256 {expected}")


def damaged(what: str, got: str, expected: str) -> SinkError:
    """The error of a file that is not the one that was written."""
    return conditions.FILE_DAMAGED.error(file=what, expected=expected, got=got)
