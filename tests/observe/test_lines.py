"""Files of lines without Spark: what is read, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from streamops import observe
from streamops.kernel.errors import RequirementError, SchemaError, SpecError
from streamops.observe.lines import read_lines
from tests.observe.lines_of_files import FILES, SCHEMA

CASES = [(format, *case) for format, cases in FILES.items() for case in cases]


@pytest.mark.parametrize(("format", "content", "is_read"), CASES)
def test_a_file_is_read_or_refused(
    tmp_path: Path, format: str, content: str, is_read: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode())
    if is_read:
        assert read_lines(fs.LocalFileSystem(), str(path), format, SCHEMA, {}) is not None
        return
    with pytest.raises(RequirementError, match="SOURCE_UNFIT"):
        read_lines(fs.LocalFileSystem(), str(path), format, SCHEMA, {})


def test_a_file_that_is_not_utf8_is_refused_without_its_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"s3cret \xff\n")
    with pytest.raises(RequirementError) as error:
        read_lines(fs.LocalFileSystem(), str(tmp_path / "file"), "text", SCHEMA, {})
    assert "s3cret" not in str(error.value)


def test_a_compressed_file_with_a_header(tmp_path: Path) -> None:
    path, schema = tmp_path / "file.csv.gz", pa.schema([("k", pa.string()), ("n", pa.int64())])
    path.write_bytes(gzip.compress(b"key;number\na;1\n;\n"))
    options = {"header": "true", "sep": ";"}
    found = read_lines(fs.LocalFileSystem(), str(path), "csv", schema, options)
    assert found.to_pylist() == [{"k": "a", "n": 1}, {"k": None, "n": None}]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"format": "orc"}, "UNKNOWN_CHOICE"),
        ({"format": "json"}, "PARAMETER_MISSING"),
        ({"format": "csv", "schema": SCHEMA, "options": {"quote": "'"}}, "UNKNOWN_CHOICE"),
        ({"format": "csv", "schema": SCHEMA, "options": {"sep": "||"}}, "UNKNOWN_CHOICE"),
        ({"format": "json", "schema": pa.schema([("x", pa.float32())])}, "TYPE_UNSUPPORTED"),
        ({"format": "json", "schema": pa.schema([("x", pa.timestamp("us"))])}, "TYPE_UNSUPPORTED"),
    ],
)
def test_what_only_spark_reads_is_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises((SpecError, SchemaError), match=code):
        observe.files(**options)
