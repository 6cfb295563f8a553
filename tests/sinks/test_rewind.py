"""Which files a rewind removes, for every format of a checkpoint, without Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.sinks.rewind import later_files, unreadable_stores
from tests.sinks.contract import RUN

LAST = 5
"""The last micro-batch of the query."""


@dataclass(frozen=True)
class Format:
    """Files of a state store, as Spark 4.3 names them."""

    changes: str | None
    snapshot: str
    has_ids: bool = False
    stores: tuple[str, ...] = ("",)

    def of(self, version: int, *, has_snapshot: bool) -> Iterator[str]:
        """The files of a version, with their checksums."""
        id_ = f"_3f0c9c3e-{version:04}-4c7a-9c57-31ad2f3dd7b1" if self.has_ids else ""
        for store, suffix in itertools.product(self.stores, (self.changes, self.snapshot)):
            if suffix and (suffix == self.changes or has_snapshot or self.changes is None):
                name = f"{version}{id_}.{suffix}"
                yield f"{store}{name}"
                yield f"{store}.{name}.crc"
                if self.has_ids:
                    yield f"{store}{name}.crc"


FORMATS = {
    "heap": Format("delta", "snapshot"),
    "joins on the heap": Format("delta", "snapshot", stores=("left-keyToNumValues/", "right-x/")),
    "rocksdb": Format(None, "zip"),
    "rocksdb with changes": Format("changelog", "zip"),
    "format 2": Format(None, "zip", has_ids=True),
    "format 2 with changes": Format("changelog", "zip", has_ids=True),
}


def run_of(files: Format, snapshots: set[int]) -> list[set[str]]:
    """The files after each micro-batch of a query with two runs: one from 0, one from 3."""
    found = {"metadata", ".metadata.crc", "state/0/0/SSTs/000008-1c3f.sst"}
    after = []
    for number in range(LAST + 1):
        for log in ("offsets", "commits"):
            found |= {f"{log}/{number}", f"{log}/.{number}.crc"}
        for operator, partition in itertools.product((0, 1), (0, 1, 11)):
            store = f"state/{operator}/{partition}"
            names = files.of(number + 1, has_snapshot=number + 1 in snapshots)
            found |= {f"{store}/{name}" for name in names} | {"state/0/0/_metadata/schema"}
        if number in (0, 3):  # a run begins, with another schema
            found |= {
                f"state/1/_metadata/v2/{number}",
                f"state/1/_metadata/v2/.{number}.crc",
                f"state/1/_stateSchema/default/{number}_8f1e-22",
            }
        after.append(set(found))
    return after


def write(folder: Path, files: set[str]) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("v1\n")
    (folder / "metadata").write_text(json.dumps({"id": RUN.query}))


def read(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def left_over(number: int, store: str = "") -> set[str]:
    """What a run leaves that fails in a micro-batch."""
    return {
        f"offsets/{number}",
        f"commits/.{number}.5b1e.tmp",
        f"state/0/0/{store}.{number + 1}.delta.5b1e.TID7.tmp",
        f"state/0/1/{store}{number + 1}.zip",
        f"state/0/1/{store}{number + 1}_9d-1.changelog",
    }


SETS = [
    set(some)
    for size in range(LAST + 2)
    for some in itertools.combinations(range(1, LAST + 2), size)
]


@pytest.mark.parametrize("files", FORMATS.values(), ids=FORMATS)
def test_what_stays_is_what_was_there_after_the_micro_batch(files: Format) -> None:
    """For snapshots at every subset of the versions, back to every micro-batch."""
    sources = {f"sources/0/{number}" for number in range(LAST + 1)} | {"sources/0/4.compact"}
    for snapshots in SETS:
        after = run_of(files, snapshots)
        for number in range(LAST + 1):
            there = after[-1] | sources | left_over(LAST + 1)
            assert there - {*later_files(there, number)} == after[number] | sources
            assert not unreadable_stores(after[number], number)


def test_an_interrupted_removal_leaves_no_plan_whose_state_is_too_new() -> None:
    """The query starts from its last plan, with the state before it."""
    there = run_of(FORMATS["rocksdb with changes"], {2, 4, 6})[-1]
    removed = later_files(there, 1)
    for count in range(len(removed) + 1):
        left = there - {*removed[:count]}
        plans = [n for n in range(LAST + 1) if f"offsets/{n}" in left]
        commits = [n for n in range(LAST + 1) if f"commits/{n}" in left]
        assert plans == [*range(len(plans))]
        assert len(plans) - len(commits) in (0, 1)
        assert "state/0/0/3.changelog" not in left or len(plans) == LAST + 1


@pytest.mark.parametrize(
    ("files", "is_readable"),
    [
        ("1.delta 2.delta 3.delta", True),
        ("2.snapshot 3.delta", True),
        ("3.snapshot", True),
        ("3.zip 4.zip", True),
        ("1.zip 2.changelog 3.changelog", True),
        ("1_a.zip 2_b.changelog 3_c.changelog 3_d.changelog", True),
        ("2.delta 3.delta 4.snapshot", False),
        ("1.snapshot 3.delta", False),
        ("4.zip", False),
        ("2.zip 4.zip", False),
        (".3.zip.crc 3.delta.5b1e.tmp 4.delta", False),
    ],
)
def test_the_state_must_be_readable(files: str, is_readable: bool) -> None:
    there = [f"state/0/7/{name}" for name in files.split()]
    assert unreadable_stores(there, 2) == ([] if is_readable else ["state/0/7"])


@pytest.mark.parametrize("files", FORMATS.values(), ids=FORMATS)
def test_a_checkpoint_is_rewound_to_its_target(tmp_path: Path, files: Format) -> None:
    checkpoint, after = tmp_path / "checkpoint", run_of(files, {1, 3, 6})
    write(checkpoint, after[-1] | left_over(LAST + 1, files.stores[0]))
    sink = sinks.parquet(str(tmp_path / "target"))
    for number in range(3):
        sink._deliver_rows(pa.table({"n": [number]}), number, RUN)
    there = read(checkpoint)
    for path in (str(checkpoint), f"{checkpoint}/", f"file://{checkpoint}"):
        planned = sinks.rewind(path, sink)
        assert read(checkpoint) == there
    assert sinks.rewind(str(checkpoint), sink, dry_run=False) == planned
    assert {*planned} == {f"{checkpoint}/{file}" for file in there - read(checkpoint)}
    assert read(checkpoint) == after[2]
    assert sinks.rewind(str(checkpoint), sink, dry_run=False) == []


def test_a_checkpoint_without_that_state_stays_as_it_is(tmp_path: Path) -> None:
    """After it was rescaled, it has the state of its last micro-batch only."""
    checkpoint = tmp_path / "checkpoint"
    state = {f"state/0/0/{name}" for name in (f"{LAST + 1}.snapshot", f"{LAST + 1}.zip")}
    logs = {file for file in run_of(FORMATS["heap"], set())[-1] if not file.startswith("state")}
    write(checkpoint, logs | state)
    sink = sinks.parquet(str(tmp_path / "target"))
    for number in range(2):
        sink._deliver_rows(pa.table({"n": [number]}), number, RUN)
    for dry_run in (True, False):
        with pytest.raises(SinkError, match=r"no state in \['state/0/0'\]") as refused:
            sinks.rewind(str(checkpoint), sink, dry_run=dry_run)
        assert refused.value.code == "REWIND_TOO_FAR"
    assert state < read(checkpoint)
