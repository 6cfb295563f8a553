"""Frames of sketches: unpacked as they were packed, or refused with the reason."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.errors import SketchFormatError, located
from streamops.kernel.frame import Header
from streamops.sketches.core.buffers import make_binary
from streamops.sketches.core.sketch import (
    Format,
    Parameter,
    are_valid,
    pack_frames,
    read_header,
    unpack_frames,
)

FORMAT = Format("hll", 3)
PARAMETERS: dict[str, Parameter] = {"p": 12, "how": "ä", "rate": 0.01}
PAYLOADS = [b"", b"abc", bytes(range(256)) * 5, b"\x00" * 1024, b"\x00" * 1025, b"z" * 300_000]
BLOBS = pack_frames(FORMAT, PARAMETERS, pa.array(PAYLOADS, pa.binary()))
NAMES = b'hll{"how":"\\u00e4","p":12,"rate":0.01}'


def framed(
    names: bytes, payload: bytes, *, layout: int = 1, dtype: int = 3, shards: int = 0
) -> bytes:
    """A frame whose checksum fits, whatever the header contains."""
    sizes = (dtype, len(names) - dtype, len(payload))
    start = struct.pack("<4sHHIIIQ", b"SOPS", layout, 3, shards, *sizes)
    return start + struct.pack("<I", zlib.crc32(start + names + payload)) + names + payload


def refused(blob: bytes, **known: Any) -> SketchFormatError:
    found: dict[str, Any] = {"format": FORMAT, "parameters": PARAMETERS} | known
    good = BLOBS[1].as_py()
    with pytest.raises(SketchFormatError) as caught, located("day"):
        unpack_frames(pa.array([None, good, blob, blob[:3]], pa.binary()), **found)
    if not known:
        assert caught.value.where == "day, sketch 2"
    return caught.value


def test_packed_frames_are_unpacked() -> None:
    assert unpack_frames(BLOBS, FORMAT, PARAMETERS).to_pylist() == PAYLOADS
    assert BLOBS.type == pa.binary()


def test_the_bytes_are_those_of_the_document() -> None:
    assert BLOBS.to_pylist() == [framed(NAMES, payload) for payload in PAYLOADS]


def test_the_bytes_of_version_1_are_unchanged() -> None:
    known = Format("hll", 1), {"p": 12}
    blobs = pack_frames(*known, pa.array([b"abc", b"z" * 3000]))
    assert blobs[0].as_py() == (
        b"SOPS\x01\x00\x01\x00\x00\x00\x00\x00\x03\x00\x00\x00\x08\x00\x00\x00"
        b'\x03\x00\x00\x00\x00\x00\x00\x00\x81\x39\xcf\xf4hll{"p":12}abc'
    )
    assert blobs[1].as_py()[20:32].hex() == "b80b0000000000004d021fae"


def test_a_state_with_the_name_of_a_sketch_is_refused() -> None:
    state = Header(FORMAT, PARAMETERS, shards=16).frame(b"abc")
    assert refused(state).code == "SKETCH_CORRUPT"


def test_a_null_is_no_sketch() -> None:
    some = pa.array([None, *BLOBS.to_pylist(), None], pa.binary())
    assert unpack_frames(some, FORMAT, PARAMETERS).to_pylist() == [None, *PAYLOADS, None]
    nothing = pa.nulls(2, pa.binary())
    assert unpack_frames(nothing, FORMAT, PARAMETERS).equals(nothing)


@pytest.mark.parametrize("dtype", [pa.binary(), pa.large_binary()])
def test_columns_may_be_chunked_sliced_and_have_large_offsets(dtype: pa.DataType) -> None:
    parts = pa.chunked_array(
        [BLOBS.cast(dtype)[1:3], BLOBS.cast(dtype)[4:4], BLOBS.cast(dtype)[3:]]
    )
    assert unpack_frames(parts, FORMAT, PARAMETERS).to_pylist() == PAYLOADS[1:]
    for none in (BLOBS[:0], pa.chunked_array([], pa.binary()), pa.array([], pa.binary())):
        assert len(unpack_frames(none, FORMAT, PARAMETERS)) == 0
    assert pack_frames(FORMAT, PARAMETERS, pa.array([], pa.binary())).equals(BLOBS[:0])
    assert pack_frames(FORMAT, PARAMETERS, pa.array(PAYLOADS)[2:4]).equals(BLOBS[2:4])


def test_a_header_is_read_without_knowing_the_sketch() -> None:
    for blob in BLOBS.to_pylist():
        assert read_header(blob) == Header(FORMAT, PARAMETERS)


@pytest.mark.parametrize("blob", [b"", b"SOPS", b"\x01\x01\x07" * 40, b"SOSK" + bytes(40)])
def test_other_bytes_are_foreign(blob: bytes) -> None:
    error = refused(blob)
    assert str(error) == (
        "[SKETCH_CORRUPT] day, sketch 2: these bytes are not a sketch of streamops\n"
        f"  got:       {len(blob)} bytes that begin with {blob[:4]!r}\n"
        "  expected:  a frame that begins with b'SOPS'\n"
        "  fix:       name the column that has the sketches; a sketch of another library has no "
        "frame"
        "\n  see:       docs/errors.md#sketch_corrupt"
    )


@pytest.mark.parametrize("payload", PAYLOADS[:4])
def test_truncated_extended_and_changed_frames_are_corrupt(payload: bytes) -> None:
    blob = framed(NAMES, payload)
    for wrong in (blob[:-1], blob + b"\x00", blob[:40], blob[:-1] + bytes([blob[-1] ^ 64])):
        assert refused(wrong).code == "SKETCH_CORRUPT"
    rest = len(blob) - 32
    error = refused(blob + b"\x00")
    assert str(error).startswith(
        "[SKETCH_CORRUPT] day, sketch 2: this sketch is damaged\n"
        f"  got:       {rest + 1} bytes with checksum "
    )
    (checksum,) = struct.unpack_from("<I", blob, 28)
    assert error.expected == f"{rest} bytes with checksum {checksum:08x}"
    assert refused(blob[:31]).code == "SKETCH_CORRUPT"


@pytest.mark.parametrize(
    "found",
    [b"[1]", b"{", b'{"p":[1]}', b'{"p": 12}', b'{"q":1,"p":1}', b"\xff", b"[" * 60_000, b"1"],
)
def test_a_header_that_no_sketch_has_is_corrupt(found: bytes) -> None:
    assert refused(framed(b"hll" + found, b"abc")).code == "SKETCH_CORRUPT"


def test_another_version_of_the_frame_or_of_the_sketch_is_refused() -> None:
    newer = framed(b"\xff" * 30, b"abc", layout=2)
    assert str(refused(newer)) == (
        "[SKETCH_UNSUPPORTED] day, sketch 2: this sketch was written in another format\n"
        "  got:       frame 2\n"
        "  expected:  frame 1\n"
        "  fix:       use a release of streamops that reads it (docs/state-formats.md)"
        "\n  see:       docs/errors.md#sketch_unsupported"
    )
    (other,) = pack_frames(Format("hll", 4), PARAMETERS, pa.array([b"abc"])).to_pylist()
    error = refused(other)
    assert (error.code, error.got) == ("SKETCH_UNSUPPORTED", "hll version 4")
    assert error.expected == "hll version 3"


def test_another_type_is_refused() -> None:
    (other,) = pack_frames(Format("theta", 3), PARAMETERS, pa.array([b"abc"])).to_pylist()
    assert str(refused(other)) == (
        "[SKETCH_KIND] day, sketch 2: this is a sketch of another type\n"
        "  got:       theta\n"
        "  expected:  hll\n"
        "  fix:       only sketches of one type can be merged: use the aggregate that made these"
        "\n  see:       docs/errors.md#sketch_kind"
    )


def test_other_parameters_are_refused_by_name() -> None:
    found = {"p": 14, "rate": 0.01, "wide": "ä"}
    (other,) = pack_frames(FORMAT, found, pa.array([b"abc"])).to_pylist()
    assert str(refused(other)) == (
        "[SKETCH_PARAMETERS] day, sketch 2: this sketch has other parameters: "
        "how, p, wide\n"
        "  got:       how=None, p=14, wide='ä'\n"
        "  expected:  how='ä', p=12, wide=None\n"
        "  fix:       only sketches of equal parameters can be merged: use those that these "
        "were made with"
        "\n  see:       docs/errors.md#sketch_parameters"
    )


def test_an_integer_parameter_differs_from_a_float() -> None:
    (other,) = pack_frames(FORMAT, PARAMETERS | {"p": 12.0}, pa.array([b"abc"])).to_pylist()
    error = refused(other)
    assert (error.code, error.got, error.expected) == ("SKETCH_PARAMETERS", "p=12.0", "p=12")


@given(
    parts=st.lists(
        st.one_of(st.none(), st.binary(max_size=50), st.integers(1020, 9000)), max_size=8
    )
)
def test_any_payloads_are_read_unchanged(parts: list[Any]) -> None:
    payloads = [random.Random(n).randbytes(n) if isinstance(n, int) else n for n in parts]
    there = [payload for payload in payloads if payload is not None]
    blobs = iter(pack_frames(FORMAT, {}, pa.array(there, pa.binary())).to_pylist())
    some = pa.array([None if p is None else next(blobs) for p in payloads], pa.binary())
    assert unpack_frames(some, FORMAT, {}).to_pylist() == payloads


def mutated(blob: bytes, dice: random.Random) -> bytes:
    match dice.randrange(3):
        case 0:
            return blob[: dice.randrange(len(blob))] + dice.randbytes(dice.randrange(3))
        case 1:
            wrong = bytearray(blob)
            for _ in range(dice.randrange(1, 9)):
                wrong[dice.randrange(len(blob))] ^= dice.randrange(1, 256)
            return bytes(wrong)
        case _:
            return dice.randbytes(dice.randrange(2 * len(blob)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "count", [2_000, pytest.param(100_000, marks=pytest.mark.exhaustive, id="many")]
)
@pytest.mark.parametrize("number", [1, 2])
def test_no_mutated_frame_is_valid(number: int, count: int) -> None:
    dice, blob = random.Random(7), BLOBS[number].as_py()
    wrong = [mutated(blob, dice) for _ in range(count)]
    valid = are_valid(pa.array([*wrong, blob], pa.binary()), FORMAT, PARAMETERS)
    assert valid.tolist() == [item == blob for item in wrong] + [True]
    for item in wrong[:500]:
        if item != blob:
            assert refused(item).code.startswith("SKETCH_")


def test_many_frames_are_packed_like_single_ones() -> None:
    sizes = np.random.default_rng(3).integers(0, 5_000, 300)
    payloads = pa.array([b"q" * int(size) for size in sizes], pa.binary())
    alone = [pack_frames(FORMAT, {}, payloads[i : i + 1])[0].as_py() for i in range(len(sizes))]
    assert pack_frames(FORMAT, {}, payloads).to_pylist() == alone


def test_more_bytes_than_an_array_can_hold_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        make_binary(np.array([0, 1 << 31]), np.empty(0, np.uint8))
