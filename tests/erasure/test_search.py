"""The search finds a value in every form and in every format, and reports what it cannot decode."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from streamops.erasure import search_files, search_frame
from streamops.errors import SpecError

VALUE = "ann@example.com"
SECRET = {"e-mail": VALUE}
# Its parts come before it, so that compression replaces it by references to them.
TEXT = (
    b"ann@exam... ple.com... "
    + b"; ".join(b"user %d" % n for n in range(50))
    + VALUE.encode()
    + b"; user 1" * 20
)


def as_zip(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/part", content)
    return packed.getvalue()


def as_tar(content: bytes) -> bytes:
    packed, member = io.BytesIO(), tarfile.TarInfo("part.gz")
    member.size = len(content)
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def as_parquet(content: bytes, **options: str) -> bytes:
    rows = pa.table({"id": [1, 2], "nested": [[{"mail": "x"}], [{"mail": content.decode()}]]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return sink.getvalue().to_pybytes()


def as_stream(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def as_lz4_blocks(content: bytes) -> bytes:
    """As Spark's LZ4BlockOutputStream: a block that is stored, one that is packed, and the last one."""
    codec, half = pa.Codec("lz4_raw"), len(content) // 2
    first, second = content[:half], content + content
    packed = codec.compress(second, asbytes=True)
    return b"".join(
        struct.pack("<8sBiii", b"LZ4Block", token, len(block), size, 0) + block
        for token, block, size in (
            (0x10 | 6, first, len(first)),
            (0x20 | 6, packed, len(second)),
            (0x10 | 6, b"", 0),
        )
    )


def as_orc(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.table({"id": [1, 2], "nested": [[{"mail": "x"}], [{"mail": content.decode()}]]})
    orc.write_table(rows, sink, compression="zlib")
    return sink.getvalue().to_pybytes()


def as_avro(content: bytes, codec: str) -> bytes:
    """With a value in each of three blocks, as fastavro writes it."""
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
    file = io.BytesIO()
    values = [b"x" * 99, content, b"y" * 99]
    fastavro.writer(file, schema, [{"a": v} for v in values], codec=codec, sync_interval=1)
    return file.getvalue()


AVRO = {
    f"avro, {codec}": partial(as_avro, codec=codec) for codec in ("deflate", "bzip2", "xz", "null")
}
FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zlib": zlib.compress,
    "zlib, another level": lambda content: zlib.compress(content, 4),
    "gzip in tar": lambda content: as_tar(gzip.compress(content)),
    "zip behind a script": lambda content: b"#!/bin/sh\n" + as_zip(content),
    "zstd": lambda content: as_stream(content, "zstd"),
    "lz4 frame": lambda content: as_stream(content, "lz4"),
    "lz4 blocks": as_lz4_blocks,
    "xz": lzma.compress,
    "orc": as_orc,
    "gzip in orc": lambda content: as_orc(base64.b64encode(content)),
    **AVRO,
    "zip": as_zip,
    "zip in zip": lambda content: as_zip(as_zip(content)),
    "gzip in parquet": lambda content: as_parquet(base64.b64encode(content)),
    "parquet": as_parquet,
    "parquet, gzip": lambda content: as_parquet(content, compression="gzip"),
    "parquet, zstd": lambda content: as_parquet(content, compression="zstd"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_is_found_in_every_format(tmp_path: Path, name: str) -> None:
    packed = FORMATS[name](TEXT)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / ".part").write_bytes(packed)
    report = search_files(tmp_path, SECRET)
    assert {match.name for match in report.matches} == {"e-mail"}
    assert all(str(tmp_path / "deep" / "er" / ".part") in match.path for match in report.matches)
    assert (report.files, report.opaque) == (1, ())
    # Without the value nothing is found.
    (tmp_path / "deep" / "er" / ".part").write_bytes(FORMATS[name](TEXT.replace(b"ann@", b"bob@")))
    assert search_files(tmp_path, SECRET).matches == ()


@pytest.mark.parametrize(
    "name",
    [n for n in FORMATS if n not in ("zip", "avro, null", "gzip in orc") and "parquet" not in n],
)
def test_the_bytes_as_they_are_do_not_have_the_value(name: str) -> None:
    packed = FORMATS[name](TEXT)
    # Otherwise the test above would not show that anything is decoded.
    assert VALUE.encode() not in packed


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("url_safe", [True, False])
def test_a_value_is_found_in_base64_at_every_alignment(
    tmp_path: Path, shift: int, url_safe: bool
) -> None:
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    value = b"\xfb\xff\xfe\x00 key bytes \xff\xff"
    text = json.dumps({"value": encode(b"x" * shift + value + b"rest").decode()})
    (tmp_path / "file").write_text(text)
    report = search_files([tmp_path / "file"], {"key": value})
    assert {(match.name, match.form) for match in report.matches} == {("key", "base64")}


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (VALUE.encode("utf-16-le"), "utf-16"),
        (VALUE.encode("utf-16-be"), "utf-16"),
        (VALUE.encode().hex().encode(), "hex"),
        (VALUE.encode().hex().upper().encode(), "hex"),
        (b"x" + VALUE.encode(), "bytes"),
    ],
)
def test_a_value_is_found_in_other_forms(tmp_path: Path, content: bytes, form: str) -> None:
    (tmp_path / "file").write_bytes(b"before" + content + b"after")
    assert {match.form for match in search_files(tmp_path, SECRET).matches} == {form}


def test_the_report_does_not_have_the_value(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(VALUE)
    report = search_files(tmp_path, SECRET)
    assert report.matches
    assert "ann" not in repr(report).replace(str(tmp_path), "")


def quoted(value: str, depth: int) -> bytes:
    """The value as text of JSON, in text of JSON, ..."""
    text: Any = {"email": value}
    for _ in range(depth):
        text = json.dumps({"stats": text} if isinstance(text, str) else text)
    return str(text).encode()


NAME = 'Jürg "Ann" O\'M\u00fcller\\\U0001f600 <jm@example.com>/\n'


@pytest.mark.parametrize(
    "content",
    [
        *(quoted(NAME, depth) for depth in (1, 2, 5)),
        json.dumps(NAME, ensure_ascii=False).encode(),
        json.dumps(NAME).replace("/", "\\/").replace("<", "\\u003C").encode(),
        quote(NAME, safe="").encode(),
        f"https://example.com/?{urlencode({'name': NAME})}".replace("+", "%20").encode(),
        base64.encodebytes(b"x" * 50 + NAME.encode()),
        # One inside of the other.
        quote(json.dumps(NAME), safe="").encode(),
        quote(quote(NAME, safe=""), safe="").encode(),
        json.dumps(quote(NAME, safe="")).replace("%", "\\u0025").encode(),
        json.dumps(base64.encodebytes(b"x" * 50 + NAME.encode()).decode()).encode(),
        "\r\n".join(NAME.encode().hex()[n : n + 8] for n in range(0, 200, 8)).encode(),
    ],
)
def test_a_value_is_found_behind_escapes_and_line_breaks(tmp_path: Path, content: bytes) -> None:
    for packed in (content, gzip.compress(content), as_parquet(content)):
        (tmp_path / "file").write_bytes(b"" if packed is content else packed)
        assert packed is not content or search_files(tmp_path, {"name": NAME}).matches == ()
        (tmp_path / "file").write_bytes(packed)
        assert {match.name for match in search_files(tmp_path, {"name": NAME}).matches} == {"name"}


def test_what_a_frame_has_is_decoded_as_in_files(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(json.dumps(NAME),), ("x",)], "name string")
    (match,) = search_frame(frame, {"who": NAME}).matches
    assert (match.name, match.path, match.form) == ("who", "name", "bytes")


@pytest.mark.parametrize(
    "name", [VALUE.encode().hex(), quote(quote(VALUE, safe=""), safe=""), f"\udcff{VALUE}"]
)
def test_names_are_searched_in_all_forms_and_not_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("nothing")
    (match,) = search_files(tmp_path, SECRET).matches
    assert (match.path, match.form) == (str(tmp_path / "{e-mail}"), "path")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_listed(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    assert search_files(tmp_path, SECRET).opaque == (str(tmp_path / "closed"),)


def test_what_no_compression_makes_smaller_is_listed_in_archives_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(as_zip(random.Random(7).randbytes(10_000)))
    assert search_files(tmp_path, SECRET).opaque == (f"{tmp_path}/file!folder/part",)
    # A column of hashes is no file that somebody encrypted.
    (tmp_path / "file").write_bytes(as_parquet(random.Random(7).randbytes(5_000).hex().encode()))
    assert search_files(tmp_path, SECRET).opaque == ()


def test_names_of_folders_and_files_are_searched_and_not_shown(tmp_path: Path) -> None:
    """As `partitionBy` writes them, also without files."""
    names = ["email=ann@example.com", "email=ann%40example.com", "part-ann@example.com.txt"]
    for name in names[:2]:
        (tmp_path / name).mkdir()
    (tmp_path / names[0] / "part-0").write_text(VALUE)
    (tmp_path / names[2]).write_text("nothing")
    report = search_files(tmp_path, SECRET)
    assert {(match.path, match.form) for match in report.matches} == {
        (str(tmp_path / "{e-mail}"), "path"),
        (str(tmp_path / "{e-mail}" / "part-0"), "bytes"),
    }
    assert "ann" not in repr(report).replace(str(tmp_path), "")
    assert search_files(tmp_path / names[1], SECRET).matches


@pytest.mark.parametrize("form", ["gzip", "bzip2", "zlib", "xz", "zstd", "lz4 frame", "lz4 blocks"])
def test_a_second_stream_behind_the_first_is_read_or_listed(tmp_path: Path, form: str) -> None:
    for other in (FORMATS[form](TEXT), gzip.compress(TEXT), FORMATS[form](TEXT)[:-9]):
        (tmp_path / "file").write_bytes(FORMATS[form](b"first") + other)
        report = search_files(tmp_path, SECRET)
        assert report.matches or report.opaque


def test_what_is_not_read_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "broken").symlink_to(tmp_path / "missing")
    os.mkfifo(folder / "pipe")
    (folder / "encrypted").write_bytes(random.Random(7).randbytes(10_000))
    (folder / "text").write_bytes(TEXT * 9)
    secret = bytearray(as_zip(TEXT))
    for mark in (b"PK\1\2", b"PK\3\4"):  # the flag of an encrypted member
        at = secret.index(mark)
        secret[at + (8 if mark == b"PK\1\2" else 6)] |= 1
    (folder / "with password").write_bytes(bytes(secret))
    avro = as_avro(TEXT, "deflate").replace(b"deflate", b"unknown")
    (folder / "avro").write_bytes(avro)
    report = search_files(folder, SECRET)
    names = ["link", "broken", "pipe", "encrypted", "with password", "avro"]
    assert set(report.opaque) == {str(folder / name) for name in names}
    # A root that is a link is read.
    (tmp_path / "elsewhere" / "file").write_bytes(TEXT)
    linked = search_files(folder / "link", SECRET)
    assert (len(linked.matches), linked.opaque) == (1, ())


@pytest.mark.parametrize(
    "content",
    [
        b"anything" + bytes.fromhex("f7cff485b741e288"),
        b"PK\x03\x04 and no archive",
        b"PAR1 and no table PAR1",
        b"\x1f\x8b and no gzip",
        b"\x28\xb5\x2f\xfd and no zstd",
        b"LZ4Block\x26\xff\xff\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00abc",
        as_stream(TEXT, "zstd")[:-9],
    ],
)
def test_files_that_are_not_decoded_are_searched_as_they_are_and_listed(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content[:8] + b" " + VALUE.encode() + content[8:])
    (tmp_path / "file").write_bytes(content)
    report = search_files(tmp_path, {**SECRET, "part": content[-8:]})
    assert report.opaque == (str(tmp_path / "file"),)
    assert {match.name for match in report.matches} == {"part"}


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, "PARAMETER_MISSING"),
        ({"age": "31"}, "PARAMETER_OUT_OF_RANGE"),
        ({"k": b"abc"}, "PARAMETER_OUT_OF_RANGE"),
    ],
)
def test_values_that_cannot_be_searched_are_refused(
    tmp_path: Path, values: dict[str, str | bytes], code: str
) -> None:
    with pytest.raises(SpecError, match=code) as caught:
        search_files(tmp_path, values)
    assert "31" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [12345678, 491701234567, True, 3.5, None, date(2024, 5, 1), ["abcdef"], [97] * 4, "\ud800" * 2],
    ids=repr,
)
def test_values_that_are_neither_text_nor_bytes_are_refused(tmp_path: Path, value: Any) -> None:
    (tmp_path / "file").write_bytes(b"12345678")
    for values in ({"v": value}, value):
        with pytest.raises(SpecError, match="PARAMETER_TYPE") as caught:
            search_files(tmp_path, values)
        assert not isinstance(value, int) or str(value) not in str(caught.value.got)
    assert search_files(tmp_path, {"v": "12345678"}).matches


@pytest.mark.parametrize("folders", [[], 5, [5], "", b"x"], ids=repr)
def test_folders_that_are_none_are_refused(folders: Any) -> None:
    with pytest.raises(SpecError, match=r"PARAMETER_(MISSING|TYPE)"):
        search_files(folders, SECRET)


@pytest.mark.parametrize("frame", [pa.table({"a": [VALUE]}), pa.table({"a": [VALUE]}).to_pandas()])
def test_other_frames_are_refused_without_their_rows(frame: Any) -> None:
    with pytest.raises(SpecError, match="NOT_A_FRAME") as caught:
        search_frame(frame, SECRET)
    assert VALUE not in str(caught.value)
    assert "createDataFrame" in caught.value.fix


@pytest.mark.parametrize(
    "start", [b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07\1\0", b"PARE", b"ARROW1\0\0", b"%PDF-1.7"]
)
def test_formats_that_are_not_decoded_are_listed_by_their_signature(
    tmp_path: Path, start: bytes
) -> None:
    (tmp_path / "file").write_bytes(start + b" " * 1000)
    assert search_files(tmp_path, SECRET).opaque == (str(tmp_path / "file"),)
    (tmp_path / "file.zip").write_bytes(as_zip(start + TEXT))
    assert str(tmp_path / "file.zip!folder/part") in search_files(tmp_path, SECRET).opaque


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="PARAMETER_MISSING"):
        search_files([tmp_path, tmp_path / "missing"], SECRET)
