"""Search the files of a run, and frames, for values that should be erased."""

from __future__ import annotations

import base64
import bz2
import io
import json
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from streamops.erasure import conditions
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import parse_path
from streamops.kernel.versions import to_arrow
from streamops.spark.columns import require_frame

_SHORTEST = 4
_SST = bytes.fromhex("f7cff485b741e288")
"""The last bytes of a sorted table of RocksDB."""
_LZ4_BLOCK = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiii")
_LZ4_RAW, _LZ4 = 0x10, 0x20
_ESCAPES = re.compile(rb'(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))+')
_SAMPLE, _LEAST = 1 << 16, 256
_NOT_DECODED = (
    *(b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"MSCF\0\0\0\0", b"LZIP", b"\x89LZO\0", b"\x1f\x9d"),
    *(b"\x5d\0\0", b"\xff\x06\0\0sNaPpY", b"\x02\x21\x4c\x18", b"\xd0\xcf\x11\xe0", b"%PDF-"),
    *(
        b"PARE",
        b"ARROW1",
        b"FEA1",
        b"PFA1",
        b"-----BEGIN PGP MESSAGE",
        b"age-encryption.org",
        b"Salted__",
    ),
)
"""How files begin that can be compressed or encrypted, and that are not decoded: archives, documents, columns, messages."""


@dataclass(frozen=True, slots=True)
class Match:
    """A value that was found: its name, not the value itself.

    Parameters
    ----------
    name : str
        The name of the value in the mapping that was searched.
    path : str
        The file; within an archive ``file!member``; or the column of a frame. A part of the path that has a
        value is replaced by the name of the value in braces.
    form : str
        How the value is written: "bytes", "utf-16", "base64" or "hex"; "path" if it is a part of the path.
    """

    name: str
    path: str
    form: str


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The result of a search.

    Parameters
    ----------
    matches : tuple of Match
        What was found.
    files : int
        Number of files that were read.
    opaque : tuple of str
        What was not read, or whose bytes were searched as they are, though they may be compressed, encrypted
        or encoded in a way that the search does not decode. Read it by the program that wrote it, and search
        the result.
    """

    matches: tuple[Match, ...]
    files: int
    opaque: tuple[str, ...]


def search_files(
    folders: str | Path | Iterable[str | Path], values: Mapping[str, str | bytes]
) -> SearchReport:
    """Search every byte of all files below folders for values, also in compressed files.

    Decoded, at every depth: gzip, bzip2, zlib, xz, Zstandard, LZ4 as Spark and as LZ4 frames, tar, zip and jar
    archives, Parquet, ORC, and files of Avro, such as the manifests of Iceberg. Names of files and folders are
    searched, too. Listed as ``opaque``: sorted tables of RocksDB, whose state :func:`search_frame` and
    ``streamops.state.read`` search; what cannot be read or decoded; links to folders; other formats that are
    known, such as 7z and PDF; and files of 256 bytes or more that no compression makes smaller. What is never
    noticed is in docs/erasure.md: for example a number in a column of Parquet, which is not text.

    Parameters
    ----------
    folders : path or paths
        Local folders or files: checkpoints, targets of sinks, snapshots, logs.
    values : mapping of str to str or bytes
        What to search for, by names under which it is reported: the texts and bytes in which it is stored,
        not a number or a date. Each value has at least four bytes. It is
        searched as it is, in UTF-16, in base64 at every alignment, and in hexadecimal digits; also behind
        escapes of JSON and of URLs, and across line breaks.

    Returns
    -------
    SearchReport

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``: a folder does not exist, or there are no folders or values.
        ``PARAMETER_OUT_OF_RANGE``, ``PARAMETER_TYPE``.

    Examples
    --------
    >>> from streamops import erasure
    >>> erasure.search_files(["/data/checkpoint", "/data/log"], {"e-mail": "ann@example.com"}).matches
    ()
    """
    paths = _paths(folders)
    needles = _needles(values)
    for path in paths:
        if not path.exists():
            raise _nothing(f"{str(path)!r}, which does not exist")
    found: dict[Match, None] = {}
    opaque: dict[str, None] = {}
    files = 0
    for root in paths:
        for path in [root, *sorted(root.rglob("*"))]:
            for reading in _readings(os.fsencode(path.name)):
                for match in _search(str(path), reading, needles):
                    found[replace(match, form="path")] = None
            if os.path.isfile(path):
                files += 1
                try:
                    content = path.read_bytes()
                except OSError:
                    opaque[str(path)] = None
                    continue
                for where, part in _contents(str(path), content, opaque):
                    found |= dict.fromkeys(_search(where, part, needles))
            elif not (os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK)) or (
                path.is_symlink() and path != root
            ):
                opaque[str(path)] = None
    matches = dict.fromkeys(replace(match, path=_masked(match.path, needles)) for match in found)
    return SearchReport(tuple(matches), files, tuple(_masked(path, needles) for path in opaque))


def search_frame(frame: DataFrame, values: Mapping[str, str | bytes]) -> SearchReport:
    """Search all values of a batch frame, also nested ones, as :func:`search_files` does.

    The frame passes through the driver. Use it for the state of a checkpoint, whose files are encoded:
    ``search_frame(streamops.state.read(checkpoint, 0, batch=n), values)``, for every micro-batch whose
    state Spark still has.
    """
    if require_frame(frame, "the first argument").isStreaming:
        raise conditions.FRAME_IS_A_STREAM.error(got="a streaming frame")
    needles = _needles(values)
    found: dict[Match, None] = {}
    opaque: dict[str, None] = {}
    for name, content in _columns(to_arrow(frame)):
        for where, part in _contents(name, content, opaque, is_column=True):
            found |= dict.fromkeys(_search(where, part, needles))
    return SearchReport(tuple(found), 0, tuple(opaque))


def _paths(folders: Any) -> list[Path]:
    if isinstance(folders, str | os.PathLike):
        folders = [folders]
    if not isinstance(folders, Iterable):
        raise conditions.NOT_FOLDERS.error(got=f"an object of type {type(folders).__name__}")
    paths = [Path(parse_path(path)) for path in folders]
    if not paths:
        raise _nothing("no folders")
    return paths


def _raw(name: object, value: Any) -> bytes:
    """The bytes of a value. Of a number or a date nobody knows the text in which it is stored."""
    got = f"a value of type {type(value).__name__} under the name {name!r}"
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if not (isinstance(value, str) and isinstance(name, str)):
        raise conditions.NOT_SEARCHABLE.error(got=got)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise conditions.NOT_SEARCHABLE.error(got=f"{got} that UTF-8 does not have") from None


def _needles(values: Any) -> list[tuple[str, str, bytes]]:
    """Each value in all forms: its name, the form, and the bytes."""
    if not isinstance(values, Mapping):
        raise conditions.NOT_SEARCHABLE.error(got=f"an object of type {type(values).__name__}")
    found = []
    for name, value in values.items():
        raw = _raw(name, value)
        if len(raw) < _SHORTEST:
            raise conditions.VALUE_TOO_SHORT.error(
                shortest=_SHORTEST, got=f"{name!r}, of {len(raw)} bytes"
            )
        forms = {("bytes", raw), ("hex", raw.hex().encode()), ("hex", raw.hex().upper().encode())}
        if isinstance(value, str):
            forms |= {("utf-16", value.encode(f"utf-16-{end}")) for end in ("le", "be")}
        for shift in range(3):
            # Digits of base64 that depend on the value alone, after any number of bytes before it.
            digits = base64.b64encode(b"\0" * shift + raw)
            first, last = -(-shift * 8 // 6), (shift + len(raw)) * 8 // 6
            forms |= {("base64", digits[first:last])}
            forms |= {("base64", digits[first:last].replace(b"+", b"-").replace(b"/", b"_"))}
        found += [(name, form, needle) for form, needle in sorted(forms)]
    if not found:
        raise _nothing("no values")
    return found


def _search(where: str, content: bytes, needles: list[tuple[str, str, bytes]]) -> Iterator[Match]:
    for name, form, needle in needles:
        if needle in content:
            yield Match(name, where, form)


def _masked(path: str, needles: list[tuple[str, str, bytes]]) -> str:
    """The path without the values."""
    parts = []
    for part in path.split("/"):
        matches = (m for r in _readings(os.fsencode(part)) for m in _search(part, r, needles))
        parts.append(next((f"{{{match.name}}}" for match in matches), part))
    return "/".join(parts)


def _readings(content: bytes) -> Iterator[bytes]:
    """The bytes, also without escapes of JSON and of URLs, which may be inside of each other, and in one line."""
    readings = [content]
    for reading in readings:
        yield from dict.fromkeys((reading, reading.translate(None, b"\r\n")))
        plain = _ESCAPES.sub(_unescape, reading) if b"\\" in reading else reading
        readings += [new for new in (plain, unquote_to_bytes(reading)) if new not in readings]


def _unescape(match: re.Match[bytes]) -> bytes:
    text: str = json.loads(b'"%b"' % match.group())
    return text.encode("utf-8", "surrogatepass")


def _contents(
    where: str, content: bytes, opaque: dict[str, None], *, is_column: bool = False
) -> Iterator[tuple[str, bytes]]:
    """The bytes of a file, and those that it has in compressed form, at every depth."""
    for reading in _readings(content):
        yield where, reading
    try:
        if content.endswith(_SST) or content.startswith(_NOT_DECODED):
            opaque[where] = None
        elif content[:4] == b"PAR1":
            for name, part in _columns(pq.read_table(pa.BufferReader(content))):
                yield from _contents(f"{where}!{name}", part, opaque, is_column=True)
        elif content[:3] == b"ORC":
            from pyarrow import orc

            for name, part in _columns(orc.ORCFile(pa.BufferReader(content)).read()):
                yield from _contents(f"{where}!{name}", part, opaque, is_column=True)
        elif content[:4] == b"Obj\x01":
            for part in _avro_blocks(content):
                yield from _contents(f"{where}!", part, opaque, is_column=True)
        elif content[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
                for member in tar:
                    if (file := tar.extractfile(member)) is not None:
                        yield from _contents(f"{where}!{member.name}", file.read(), opaque)
        elif content[:4] == b"PK\x03\x04" or zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for name in archive.namelist():
                    yield from _contents(f"{where}!{name}", archive.read(name), opaque)
        else:
            for start, decompress in _FORMATS.items():
                if content.startswith(start):
                    yield from _contents(f"{where}!", decompress(content), opaque)
                    return
            if not is_column and _is_dense(content):
                opaque[where] = None
    except _UNREADABLE:
        # Searched as it is, and reported: a damaged file is no reason to stop.
        opaque[where] = None


_UNREADABLE = (
    *(OSError, EOFError, LookupError, RuntimeError, ValueError, ImportError),
    *(
        zlib.error,
        lzma.LZMAError,
        struct.error,
        zipfile.BadZipFile,
        tarfile.TarError,
        pa.ArrowException,
    ),
)


def _is_dense(content: bytes) -> bool:
    """Whether bytes look compressed or encrypted: compression makes them hardly smaller."""
    sample = content[:_SAMPLE]
    return len(sample) >= _LEAST and len(zlib.compress(sample, 1)) > 0.98 * len(sample)


def _avro_blocks(content: bytes) -> Iterator[bytes]:
    """The blocks of a file of Avro."""
    file = io.BytesIO(content[4:])

    def number() -> int:
        bits = shift = 0
        while (byte := file.read(1)[0]) > 0x7F:
            bits, shift = bits | (byte & 0x7F) << shift, shift + 7
        bits |= byte << shift
        return (bits >> 1) ^ -(bits & 1)

    settings = {}
    while count := number():
        if count < 0:
            number()
        for _ in range(abs(count)):
            name = file.read(number())
            settings[name] = file.read(number())
    decompress = _CODECS[settings.get(b"avro.codec", b"null")]
    mark = file.read(16)
    while file.tell() < len(content) - 4:
        number()
        yield decompress(file.read(number()))
        if file.read(16) != mark:
            raise ValueError


def _open(content: bytes, codec: str) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), codec).read())


def _streams(content: bytes, make: Callable[[], Any]) -> bytes:
    """The streams one behind the other, with zeros between them."""
    parts = []
    while content:
        stream = make()
        parts.append(stream.decompress(content))
        if not stream.eof:
            raise EOFError
        content = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _lz4_blocks(content: bytes) -> bytes:
    """The blocks of a stream of lz4-java, in which Spark writes state files."""
    codec, start, blocks = pa.Codec("lz4_raw"), 0, []
    while start < len(content):
        magic, token, packed, size, _ = _LZ4_HEADER.unpack_from(content, start)
        start += _LZ4_HEADER.size
        block = content[start : start + packed]
        is_packed = token & 0xF0 == _LZ4
        if (
            magic != _LZ4_BLOCK
            or len(block) != packed
            or not (is_packed or token & 0xF0 == _LZ4_RAW)
        ):
            raise ValueError
        if is_packed and size:
            block = codec.decompress(block, decompressed_size=size, asbytes=True)
        blocks.append(block)
        start += packed
    return b"".join(blocks)


_CODECS: dict[bytes, Callable[[bytes], bytes]] = {
    b"null": bytes,
    b"deflate": partial(zlib.decompress, wbits=-15),  # some writers leave bytes behind it
    b"bzip2": partial(_streams, make=bz2.BZ2Decompressor),
    b"xz": partial(_streams, make=lzma.LZMADecompressor),
    b"zstandard": partial(_open, codec="zstd"),
}
"""By their names in a file of Avro."""
_FORMATS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": partial(_streams, make=partial(zlib.decompressobj, 31)),
    **dict.fromkeys(
        (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
        partial(_streams, make=zlib.decompressobj),
    ),
    b"BZh": _CODECS[b"bzip2"],
    b"\xfd7zXZ\0": _CODECS[b"xz"],
    b"\x28\xb5\x2f\xfd": _CODECS[b"zstandard"],
    b"\x04\x22\x4d\x18": partial(_open, codec="lz4"),
    _LZ4_BLOCK: _lz4_blocks,
}
"""By how a file begins."""


def _columns(table: pa.Table) -> Iterator[tuple[str, bytes]]:
    """The bytes of the values of each column, nested ones too."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            for buffer in _buffers(chunk):
                yield name, buffer


def _buffers(array: pa.Array) -> Iterator[bytes]:
    if isinstance(array, pa.DictionaryArray):
        yield from _buffers(array.dictionary)
    for buffer in array.buffers():
        if buffer is not None:
            yield buffer.to_pybytes()


def _nothing(got: str) -> SpecError:
    return conditions.NOTHING_TO_SEARCH.error(got=got)
