"""Bloom filters, and what was seen by them, are read for ever once they were written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops.kernel.codec import decode, ipc_read
from streamops.kernel.core import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.kernel.frame import checksum_of
from streamops.kernel.segments import INDEX, ROWS, Segment, Segments, read_index
from streamops.sketches.core import seen
from streamops.sketches.core.bloom import Bloom
from streamops.sketches.core.bloom import decode_generations as generations
from streamops.sketches.core.seen import SEEN, SeenCore
from streamops.sketches.core.seen_state import RECENT, read_filters
from tests.golden.bloom_sketches import (
    BATCHES,
    CASES,
    FILE,
    MORE,
    SEEN_FILE,
    SEGMENTED,
    SPEC,
    orders,
    path_of,
    state,
    state_of,
    table,
)
from tests.golden.states import FOLDER, NOW, SECOND, SHARDS
from tests.sketches.seen_specs import change

STORED = ipc_read(FILE.read_bytes())


def read(**known: Any) -> State:
    arguments = {"layout": SeenCore.STATE, "identity": SPEC.identity, "shards": SHARDS} | known
    tables = decode(SEEN_FILE.read_bytes(), **arguments)
    return State(NOW + BATCHES[-1][2] * SECOND, tables)


def test_payloads_of_version_1_are_what_is_written_now() -> None:
    assert STORED.equals(table())


@pytest.mark.parametrize("row", range(len(CASES)))
def test_payloads_of_version_1_are_the_filters_of_their_items(row: int) -> None:
    capacity, rate, _ = CASES[row]
    payload = STORED.column("payload").chunk(0)[row : row + 1]
    revived = Bloom.of("v", "bigint", capacity, rate).revive(payload)
    assert revived == state_of(*CASES[row])


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found = read()
    assert (found.watermark, found.tables) == (state().watermark, state().tables)
    SeenCore().check(SPEC, found)
    cells = [item.cell for item in generations(found.tables["generations"])]
    assert len(cells) > len(set(cells)) > 2


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    _, metrics = seen.annotate(SPEC, read(), [orders(0, 60, 501)])
    decisions = metrics.column(SEEN).to_pylist()
    assert decisions == ["first"] * 40 + ["again"] * 12 + ["first"] * 8


def test_filters_in_segments_contain_the_same() -> None:
    header = (SeenCore.STATE, SPEC.identity, SHARDS)
    files = {
        int(path.stem.rpartition("-")[2]): path.read_bytes()
        for path in FOLDER.glob(f"{SEGMENTED}-*.bin")
    }
    tables = decode(path_of(None).read_bytes(), *header)
    index = read_index(tables.pop(INDEX))
    assert len(index) > 3
    assert sorted(files) == sorted(of.number for of in index)
    assert [checksum_of(files[of.number]) for of in index] == [of.checksum for of in index]
    assert len(tables[RECENT]) > 0

    def load(of: Segment) -> pa.Table:
        return decode(files[of.number], *header)[ROWS]

    plain, _ = seen.annotate(SPEC, read(), [orders(*MORE)])
    state_ = State(plain.watermark, tables, Segments(load, index, 3))
    SeenCore().check(SPEC, state_)
    found, expected = (read_filters(SPEC.shape, of)[0] for of in (state_, plain))
    for one, other in zip(found, expected, strict=True):
        assert (one.cell, one.items, one.bits.tolist()) == (
            other.cell,
            other.items,
            other.bits.tolist(),
        )
    decided = [seen.annotate(SPEC, of, [orders(0, 60, 501)])[1] for of in (state_, plain)]
    assert decided[0] == decided[1]


def test_state_of_version_1_is_refused_by_another_version_and_with_other_parameters() -> None:
    with pytest.raises(StateFormatError) as caught:
        read(layout=StateFormat("sketches.seen", 2))
    assert caught.value.code == "STATE_VERSION"
    for changed in (
        {"horizon": 1},
        {"generations": 3},
        {"capacity": 9},
        {"time": None, "horizon": None},
    ):
        with pytest.raises(StateFormatError) as caught:
            read(identity=change(SPEC, **changed).identity)
        assert caught.value.code == "STATE_PARAMETERS"
        assert next(iter(changed)) in caught.value.what
