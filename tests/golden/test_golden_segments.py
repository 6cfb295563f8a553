"""A state with segments that was written once is read for ever."""

from __future__ import annotations

from dataclasses import astuple, replace

from streamops.kernel.codec import ipc_read, read_stored
from streamops.kernel.columns import concat
from streamops.kernel.segments import INDEX
from streamops.spark.step import Stored, to_text
from streamops.testing.laws import to_rows
from streamops.testing.replaying import MemoryStore
from tests.golden.reading import multiset
from tests.golden.segment_states import HISTORY, pack, path_of, run, step_with

NUMBERS = sorted(
    int(path.stem.rpartition("-")[2]) for path in path_of(None).parent.glob(f"{HISTORY.name}-*.bin")
)


def stored() -> tuple[Stored, MemoryStore]:
    """The stored value and its segments."""
    files = MemoryStore({n: to_text(path_of(n).read_bytes()) for n in NUMBERS})
    return replace(run(3)[0], blob=to_text(path_of(None).read_bytes())), files


def test_the_value_and_its_segments_have_version_1() -> None:
    assert len(NUMBERS) > 1
    for number in (None, *NUMBERS):
        frame = read_stored(path_of(number).read_bytes())
        assert (frame.layout, frame.version) == ("windows.grid", 1)
    value = read_stored(path_of(None).read_bytes()).tables()
    assert value[INDEX].column("number").to_pylist() == NUMBERS


def test_a_stream_goes_on_from_it_as_from_a_state_without_segments() -> None:
    published = []
    for before, files, limit in ((*stored(), 3), (*run(1_000), 1_000)):
        step, row = step_with(limit), astuple(before)
        tables = []
        for rows, pace in (([(8, "JFK", float("nan"), 2, None, 15)], 14), ([], 100)):
            packs, mark = [pack(step, HISTORY.table(rows))], HISTORY.at(pace) // 1_000
            after, frame = step(row, packs, mark, store=files)
            assert after is not None
            row = after
            tables += [ipc_read(cell) for cell in frame["emitted"] if cell is not None]
        assert not files
        published.append(multiset(to_rows(concat(tables))))
    assert published[0] == published[1]
    assert len(published[0]) > 5
