"""Frames that were written once are read for ever: numbers apart, of every width."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from streamops.kernel.codec import decode, encode
from streamops.kernel.core import StateFormat
from tests.golden.states import FOLDER

FILE = FOLDER / "frame-v1.bin"
KNOWN = StateFormat("doc.example", 1), {"size": 10}, 16
INSTANT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
TABLES = {
    "numbers": pa.table(
        {
            "byte": pa.array([1, None, -3], pa.int8()),
            "short": pa.array([1, None, -300], pa.int16()),
            "int": pa.array([1, 70_000, None], pa.int32()),
            "long": pa.array([-1, None, 2**62], pa.int64()),
            "double": pa.array([0.25, None, float("-inf")], pa.float64()),
            "decimal": pa.array([Decimal("1.50"), None, Decimal(-(10**20))], pa.decimal128(30, 2)),
            "time": pa.array([INSTANT, None, INSTANT], pa.timestamp("us", tz="UTC")),
            "there": pa.array([True, None, False]),
        }
    ),
    "others": pa.table(
        {
            "text": ["ä", None],
            "list": pa.array([[1, 2], None], pa.list_(pa.int64())),
            "struct": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())])),
        }
    ),
    "empty": pa.schema([("n", pa.int64())]).empty_table(),
}


def test_a_frame_of_version_1_is_read() -> None:
    written = FILE.read_bytes()
    assert written[4:6] == b"\x01\x00"
    found = decode(written, *KNOWN)
    assert list(found) == list(TABLES)
    for name, table in TABLES.items():
        assert found[name].equals(table)


def files() -> dict[Path, bytes]:
    """The stored frame."""
    return {FILE: encode(*KNOWN, TABLES)}
