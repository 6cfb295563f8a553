"""The transcripts of transcripts.yaml: key tables and rows, and the reasons for which values are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from streamops.erasure.core.shredding import SHRED_REASONS, UNSHRED_REASONS
from tests.erasure.samples import Entries, columns_of, key_of, reasons, shred, unshred

FILE = Path(__file__).with_name("transcripts.yaml")
TRANSCRIPTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text(encoding="utf-8")))
LINE = {"keys", "shred", "unshred", "stored"}


def key_table(rows: list[tuple[str, int, str | None]]) -> Entries:
    entries: dict[str, list[tuple[int, bytes | None]]] = {}
    for subject, version, key in rows:
        of_name = None if key is None else b"short" if key == "short" else key_of(key)
        entries.setdefault(subject, []).append((version, of_name))
    return entries


def replaced(cell: bytes | None, by: Any) -> bytes | None:
    """The stored bytes, replaced by text, or with other bytes at some positions."""
    if isinstance(by, str):
        return by.encode()
    changed = bytearray(cell or b"")
    for position, byte in (by or {}).items():
        changed[position] = byte
    return bytes(changed)


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda item: item["name"])
def test_a_transcript(transcript: dict[str, Any]) -> None:
    columns = columns_of(email=pa.string())
    cells: list[bytes | None] = []
    for number, line in enumerate(transcript["script"], 1):
        assert line.keys() <= LINE
        keys, where = key_table(line["keys"]), f"line {number}"
        if "shred" in line:
            subjects, values, expected = (list(part) for part in zip(*line["shred"], strict=True))
            (array,), rejected = shred(columns, subjects, keys, email=values)
            cells = array.to_pylist()
            assert reasons(rejected) == expected, where
            # What is stored is the value, or nothing.
            stored = [v is not None and r is None for v, r in zip(values, expected, strict=True)]
            assert [cell is not None for cell in cells] == stored, where
            for cell, value in zip(cells, values, strict=True):
                assert cell is None or value.encode() not in cell
        if "stored" in line:
            cells = [replaced(*pair) for pair in zip(cells, line["stored"], strict=True)]
        if "unshred" in line:
            subjects, values, expected = (list(part) for part in zip(*line["unshred"], strict=True))
            (array,), rejected = unshred(columns, subjects, keys, email=cells)
            assert (array.to_pylist(), reasons(rejected)) == (values, expected), where


def test_the_transcripts_have_every_reason() -> None:
    found = {
        function: {
            row[2]
            for transcript in TRANSCRIPTS
            for line in transcript["script"]
            for row in line.get(function, ())
        }
        for function in ("shred", "unshred")
    }
    assert found["shred"] == {*SHRED_REASONS, None}
    assert found["unshred"] == {*UNSHRED_REASONS, None}
    names = [transcript["name"] for transcript in TRANSCRIPTS]
    assert len({*names}) == len(names)
