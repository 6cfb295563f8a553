"""State as bytes: read as written, or refused."""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel import codec
from streamops.kernel.codec import decode, encode, ipc_read, ipc_write
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import StateFormatError, located
from streamops.kernel.segments import INDEX, UNMERGED

LAYOUT = StateFormat("doc.example", 3)
IDENTITY = {"size": 10, "by": [["k", "string"]], "hop": None}
TABLES = {
    "panes": pa.table({"k": ["a", None], "n": pa.array([1, None], pa.int32())}),
    "ännchen": pa.table({"t": pa.array([-1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))}),
    "empty": pa.schema([("d", pa.decimal128(38, 2))]).empty_table(),
}
FRAME = encode(LAYOUT, IDENTITY, 16, TABLES)


def read(
    blob: bytes,
    layout: StateFormat = LAYOUT,
    identity: Mapping[str, Any] = IDENTITY,
    shards: int = 16,
) -> dict[str, pa.Table]:
    with located("windows.tumbling"):
        return decode(blob, layout, identity, shards)


def refused(blob: bytes, **known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(blob, **known)
    assert caught.value.where == "windows.tumbling"
    return caught.value


def with_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that fits it: damage that only malice makes."""
    checksum = zlib.crc32(frame[32:], zlib.crc32(frame[:28]))
    return frame[:28] + struct.pack("<I", checksum) + frame[32:]


def test_an_encoded_state_is_decoded() -> None:
    found = read(FRAME)
    assert list(found) == list(TABLES)
    for name, table in TABLES.items():
        assert found[name].equals(table)
        assert found[name].schema.equals(table.schema)


def test_the_layout_of_the_frame_is_as_documented() -> None:
    magic, frame, version, shards, operator_size, identity, body = struct.unpack_from(
        "<4sHHIIIQ", FRAME
    )
    assert (magic, frame, version, shards) == (b"SOPS", 1, 3, 16)
    (checksum,) = struct.unpack_from("<I", FRAME, 28)
    assert checksum == zlib.crc32(FRAME[32:], zlib.crc32(FRAME[:28]))
    assert FRAME[32 : 32 + operator_size] == b"doc.example"
    assert (
        FRAME[32 + operator_size : 32 + operator_size + identity]
        == b'{"by":[["k","string"]],"hop":null,"size":10}'
    )
    assert len(FRAME) == 32 + operator_size + identity + body
    (name_size,) = struct.unpack_from("<H", FRAME, 32 + operator_size + identity)
    assert FRAME[32 + operator_size + identity + 2 :][:name_size] == b"panes"


def test_state_without_tables_is_read() -> None:
    assert read(encode(LAYOUT, IDENTITY, 16, {})) == {}


def test_bytes_of_any_buffer_type_are_read() -> None:
    assert list(read(bytearray(FRAME))) == list(TABLES)  # type: ignore[arg-type]


def test_the_order_of_parameters_does_not_matter() -> None:
    assert list(read(FRAME, identity=dict(reversed(IDENTITY.items())))) == list(TABLES)


def test_a_tuple_parameter_equals_the_list_that_is_stored() -> None:
    assert list(read(FRAME, identity=IDENTITY | {"by": (("k", "string"),)})) == list(TABLES)


def test_the_same_state_gives_the_same_bytes() -> None:
    assert encode(LAYOUT, IDENTITY, 16, TABLES) == FRAME


@pytest.mark.parametrize(
    "blob", [b"", b"S", b"\x80\x04\x95pickled" * 9, FRAME[:31], b"SOPT" + FRAME[4:]]
)
def test_foreign_bytes_are_refused(blob: bytes) -> None:
    error = refused(blob)
    assert str(error) == (
        "[STATE_CORRUPT] windows.tumbling: these bytes are not a state of streamops\n"
        f"  got:       {len(blob)} bytes that begin with {blob[:4]!r}\n"
        "  expected:  a frame that begins with b'SOPS'\n"
        "  fix:       check that the checkpoint belongs to this query"
        "\n  see:       docs/errors.md#state_corrupt"
    )


def test_a_damaged_frame_is_refused() -> None:
    error = refused(FRAME[:-1] + bytes([FRAME[-1] ^ 1]))
    assert error.code == "STATE_CORRUPT"
    assert error.what == "this state is damaged"
    (checksum,) = struct.unpack_from("<I", FRAME, 28)
    assert error.expected == f"{len(FRAME) - 32} bytes with checksum {checksum:08x}"
    assert error.got.startswith(f"{len(FRAME) - 32} bytes with checksum ")
    assert error.fix == "restore the checkpoint from a copy, or start from a new one and replay"


def forged(old: bytes, new: bytes) -> bytes:
    """The frame with other bytes in its body, and the checksum that fits them."""
    assert FRAME.count(old, 32) >= 1
    return with_checksum(FRAME[:32] + FRAME[32:].replace(old, new))


def test_a_small_frame_cannot_claim_memory() -> None:
    # A column of two int32: its compressed buffer begins with its size, 8 bytes.
    prefix = struct.pack("<qI", 8, 0xFD2FB528)  # followed by the magic of Zstandard
    raw = struct.pack("<q", -1)
    old = prefix if FRAME.count(prefix, 32) else raw
    error = refused(forged(old, struct.pack("<q", 1 << 50) + old[8:]))
    assert error.code == "STATE_FULL"
    assert error.expected == "at most 4,294,967,296 bytes"
    smaller = struct.pack("<q", 1 << 20)  # below the limit, and not the size of what is compressed
    assert refused(forged(old, smaller + old[8:])).code == "STATE_CORRUPT"


def test_zeros_that_compress_to_nothing_count_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(rows: int) -> dict[str, pa.Table]:
        column = pa.array([0] * rows)
        return {"a": pa.table({"n": column}), "b": pa.table({"n": column})}

    monkeypatch.setattr(codec, "LARGEST", 16_000)  # two tables of 1,000 int64
    blob = encode(LAYOUT, IDENTITY, 16, zeros(1_000))
    assert len(blob) < 1_000
    assert read(blob)["a"].num_rows == 1_000
    monkeypatch.setattr(codec, "LARGEST", 15_999)
    assert refused(blob).got == "16,000 bytes without compression"
    with pytest.raises(StateFormatError, match="STATE_FULL"):
        encode(LAYOUT, IDENTITY, 16, zeros(1_000))


def test_tables_that_are_no_streams_are_refused() -> None:
    for body in (b"\x01\x00a" + struct.pack("<Q", 8) + b"\xff" * 8,):
        header = struct.pack("<4sHHIIIQ", b"SOPS", 1, 3, 16, 11, 2, len(body))
        blob = with_checksum(header + bytes(4) + b"doc.example{}" + body)
        assert refused(blob, identity={}).code == "STATE_CORRUPT"


def test_a_frame_with_trailing_bytes_is_refused() -> None:
    assert refused(FRAME + b"\x00").code == "STATE_CORRUPT"
    assert refused(with_checksum(FRAME + b"\x00")).code == "STATE_CORRUPT"


def test_a_truncated_frame_is_refused() -> None:
    assert refused(FRAME[:-1]).code == "STATE_CORRUPT"
    assert refused(with_checksum(FRAME[:-1])).code == "STATE_CORRUPT"


def test_another_version_of_the_state_is_refused() -> None:
    error = refused(FRAME, layout=StateFormat("doc.example", 4))
    assert str(error) == (
        "[STATE_VERSION] windows.tumbling: this checkpoint was written in another state format\n"
        "  got:       frame 1, doc.example version 3\n"
        "  expected:  frame 1, doc.example version 4\n"
        "  fix:       use a release of streamops that reads it (docs/state-formats.md), "
        "or start from a new checkpoint"
        "\n  see:       docs/errors.md#state_version"
    )


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_of_the_frame_is_refused(version: int) -> None:
    error = refused(with_checksum(FRAME[:4] + struct.pack("<H", version) + FRAME[6:]))
    assert error.code == "STATE_VERSION"
    assert (error.got, error.expected) == (f"frame {version}", "frame 1")


@pytest.mark.parametrize("table", [INDEX, UNMERGED])
def test_a_reader_without_segments_refuses_a_state_with_some(table: str) -> None:
    frame = encode(LAYOUT, IDENTITY, 16, {**TABLES, table: TABLES["panes"]})
    error = refused(frame)
    assert error.code == "STATE_VERSION"
    assert error.got == f"{error.expected} with segments"
    assert table in read(frame, layout=replace(LAYOUT, segmented=True))


def test_a_frame_of_a_later_version_is_refused_by_its_version() -> None:
    # Nothing says that the first bytes after the header of frame 2 are text.
    later = FRAME[:4] + struct.pack("<H", 2) + FRAME[6:32] + b"\xff" * 11 + FRAME[43:]
    assert refused(with_checksum(later)).code == "STATE_VERSION"


def test_the_state_of_another_operator_is_refused() -> None:
    error = refused(FRAME, layout=StateFormat("doc.other", 3))
    assert str(error) == (
        "[STATE_KIND] windows.tumbling: this checkpoint belongs to another operator\n"
        "  got:       doc.example\n"
        "  expected:  doc.other\n"
        "  fix:       start from a new checkpoint, or use the code that wrote this one"
        "\n  see:       docs/errors.md#state_kind"
    )


def test_another_operator_is_refused_by_name_even_if_its_version_differs_too() -> None:
    assert refused(FRAME, layout=StateFormat("doc.other", 9)).code == "STATE_KIND"


def test_another_number_of_shards_is_refused_with_the_number_to_pass() -> None:
    error = refused(FRAME, shards=8)
    assert str(error) == (
        "[STATE_SHARDS] windows.tumbling: "
        "this checkpoint has another number of shards\n"
        "  got:       shards=8\n"
        "  expected:  shards=16, as in the checkpoint\n"
        "  fix:       pass shards=16; or stop the query, and run python -m streamops state rescale "
        "CHECKPOINT --to NEW --shards 8"
        "\n  see:       docs/errors.md#state_shards"
    )


@pytest.mark.parametrize("shards", [1, 15, 17, 32])
def test_fewer_and_more_shards_are_refused(shards: int) -> None:
    assert refused(FRAME, shards=shards).code == "STATE_SHARDS"


def test_other_parameters_are_refused_by_name_with_both_values() -> None:
    error = refused(FRAME, identity=IDENTITY | {"size": 20, "hop": 5})
    assert str(error) == (
        "[STATE_PARAMETERS] windows.tumbling: "
        "this checkpoint was written with other parameters: hop, size\n"
        "  got:       hop=5, size=20\n"
        "  expected:  hop=None, size=10, as written\n"
        "  fix:       pass the parameters of the checkpoint, or start from a new checkpoint"
        "\n  see:       docs/errors.md#state_parameters"
    )


def test_a_missing_or_additional_parameter_is_refused() -> None:
    assert refused(FRAME, identity=IDENTITY | {"new": 1}).code == "STATE_PARAMETERS"
    assert refused(FRAME, identity={"size": 10, "hop": None}).code == "STATE_PARAMETERS"


def test_a_table_survives_serialization() -> None:
    for table in TABLES.values():
        assert ipc_read(ipc_write(table)).equals(table)


def test_a_chunked_table_survives_serialization() -> None:
    table = pa.table({"a": pa.chunked_array([[1], [], [2]])})
    assert ipc_read(ipc_write(table)).equals(table)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(blob: bytes) -> None:
    error = refused(blob)
    assert (error.code, error.what) == (
        "STATE_CORRUPT",
        "these bytes are not a state of streamops",
    )
    assert refused(b"SOPS" + blob).code == "STATE_CORRUPT"


def test_every_single_flipped_bit_is_refused() -> None:
    for bit in range(8 * len(FRAME)):
        assert broken(FRAME, bit) is not None, bit


def test_every_truncation_is_refused() -> None:
    for length in range(len(FRAME)):
        assert code_of(FRAME[:length]) == "STATE_CORRUPT", length


def test_twenty_thousand_mutations_are_refused() -> None:
    assert survivors(20_000, seed=1) == Counter()


@pytest.mark.slow
def test_a_million_mutations_are_refused() -> None:
    assert survivors(1_000_000, seed=2) == Counter()


def code_of(blob: bytes) -> str | None:
    """Code of the refusal, or None if the bytes were read."""
    try:
        read(blob)
    except StateFormatError as error:
        return error.code
    return None


def broken(frame: bytes, bit: int) -> str | None:
    damaged = bytearray(frame)
    damaged[bit // 8] ^= 1 << bit % 8
    return code_of(bytes(damaged))


def survivors(cases: int, seed: int) -> Counter[str]:
    """What was not refused as foreign or corrupt, of so many mutated frames."""
    dice = random.Random(seed)
    small = encode(LAYOUT, IDENTITY, 16, {"panes": pa.table({"n": [1, 2, 3]})})
    found: Counter[str] = Counter()
    for case in range(cases):
        way = case % 5
        if way == 0:  # noise
            blob = dice.randbytes(dice.randrange(200))
        elif way == 1:  # noise that claims to be ours
            blob = b"SOPS\x01\x00\x03\x00" + dice.randbytes(dice.randrange(100))
        elif way == 2:  # cut short, or filled up with zeros as after a crash
            length = dice.randrange(len(small))
            blob = small[:length] + bytes(dice.choice([0, len(small) - length]))
            if blob == small:
                continue
        else:  # one bit, or some bytes overwritten
            damaged = bytearray(small)
            at = dice.randrange(len(small))
            if way == 3:
                damaged[at] ^= 1 << dice.randrange(8)
            else:
                damaged[at : at + 4] = dice.randbytes(4)
            blob = bytes(damaged)
            if blob == small:
                continue
        code = code_of(blob)
        if code != "STATE_CORRUPT":
            found[f"{code} by way {way}"] += 1
    return found


def test_a_refused_change_names_what_the_state_does_not_have() -> None:
    layout = StateFormat("joins.interval", 1)
    stored = {"how": "inner", "stragglers": "drop", "early": "never", "matches": "every"}
    with pytest.raises(StateFormatError) as error:
        decode(encode(layout, stored, 1, {}), layout, {**stored, "how": "left"}, 1)
    assert "how needs which stored rows had a partner" in str(error.value)
