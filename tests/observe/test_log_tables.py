"""Tables of Delta Lake as sources: the files between the offsets that the Delta source writes."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamops import observe
from streamops.kernel.errors import RequirementError
from streamops.observe.question import UNVERIFIED
from streamops.testing import at
from tests.observe.test_explain import simulate, table, tumbling

deltalake = pytest.importorskip("deltalake")

BATCHES = [
    table(("a", at(5), 1), ("b", at(6), 1)),
    table(("a", at(7), 2)),
    table(("a", at(8), 4)),
    table(("b", at(200), 1)),
    table(("b", at(201), 1)),
]


ID = "the id of the table"


def write(path: str, rows: pa.Table, **options: Any) -> None:
    deltalake.write_deltalake(path, rows, mode="append", **options)


def offset(version: int, index: int = -1, *, is_snapshot: bool = False) -> str:
    return json.dumps(
        {
            "sourceVersion": 1,
            "reservoirId": ID,
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": is_snapshot,
        }
    )


def checkpoint(folder: Path, ends: list[str], path: str = "") -> Path:
    """A checkpoint of `BATCHES` with these offsets, of the table that is there now."""
    path = path or str((folder if (folder / "table").exists() else folder.parent) / "table")
    if Path(path).exists():
        ends = [end.replace(ID, str(deltalake.DeltaTable(path).metadata().id)) for end in ends]
    simulate(folder / "checkpoint", tumbling(), BATCHES)
    offsets = sorted((folder / "checkpoint" / "offsets").iterdir(), key=lambda of: int(of.name))
    for number, file in enumerate(offsets):
        lines = file.read_text().splitlines()
        file.write_text("\n".join([*lines[:2], ends[min(number, len(ends) - 1)]]))
    return folder / "checkpoint"


def values(found: observe.Explanation) -> list[tuple[int, int]]:
    return [(of.batch, of.arrived.row["v"]) for of in found.key_rows]


def test_each_version_is_a_micro_batch(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for rows in BATCHES:
        write(path, rows, partition_by=["k"])
    # The snapshot is version 0; a version that was read to its end has the next one as its offset.
    folder = checkpoint(tmp_path, [offset(n) for n in range(1, 6)])
    found = observe.explain(folder, tumbling(), observe.table(path), where={"k": "a"})
    assert values(found) == [(0, 1), (1, 2), (2, 4)]
    assert found.reason == "result"
    assert found.notes == (UNVERIFIED,)


def test_a_version_in_several_micro_batches_and_a_first_snapshot(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    names = ["a b", "ä%c", "d"]
    parts = [table((name, at(5), n)) for n, name in enumerate(names)]
    write(path, pa.concat_tables(parts), partition_by=["k"])  # three files
    write(path, pa.concat_tables(parts), partition_by=["k"])
    for is_snapshot, first in ((True, None), (False, 0)):
        ends = [
            offset(0, 0, is_snapshot=is_snapshot),
            offset(0, 1, is_snapshot=is_snapshot),
            offset(1),
            offset(1, 1),
            offset(2),
        ]
        folder = checkpoint(tmp_path / str(is_snapshot), ends)
        source = observe.table(path, starting_version=first)
        batches = []
        for name in names:
            found = observe.explain(folder, tumbling(), source, where={"k": name})
            batches += [number for number, _ in values(found)]
        assert sorted(batches) == [0, 1, 2, 3, 3, 4]


def test_what_the_table_does_not_have_any_more_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "table"
    for rows in BATCHES:
        write(str(path), rows)
    folder = checkpoint(tmp_path, [offset(n) for n in range(1, 6)])
    # A checkpoint of the table makes its later versions readable without the first commits.
    deltalake.DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{1:020}.json").unlink()
    actions = (path / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    (added,) = [json.loads(line)["add"]["path"] for line in actions if '"add"' in line]
    (path / added).unlink()
    found = observe.explain(
        folder, tumbling(), observe.table(str(path), starting_version=0), where={"k": "a"}
    )
    assert values(found) == [(0, 1)]
    assert [note.split(" of the table ")[-1] for note in found.notes] == [
        UNVERIFIED,
        "the table does not have its version 1 any more",
        "does not exist any more",
    ]


def test_a_commit_that_removes_rows_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for rows in BATCHES[:2]:
        write(path, rows)
    deltalake.DeltaTable(path).delete("v = 2")
    folder = checkpoint(tmp_path, [offset(n) for n in range(1, 4)])
    with pytest.raises(RequirementError, match="removes rows"):
        observe.explain(folder, tumbling(), observe.table(path), where={"k": "a"})


def test_types_of_partitions(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = table(("a", at(5), 1)).append_column("day", pa.array([dt.date(2024, 1, 1)]))
    write(path, rows, partition_by=["day", "v"])
    folder = checkpoint(tmp_path, [offset(1)])
    source = observe.table(path, prepare=lambda rows: rows.drop_columns("day"))
    found = observe.explain(folder, tumbling(), source, where={"k": "a"})
    assert values(found) == [(0, 1)]
    write(str(tmp_path / "times"), table(("a", at(5), 1)), partition_by=["ts"])
    with pytest.raises(RequirementError, match="partition by ts"):
        observe.explain(
            folder, tumbling(), observe.table(str(tmp_path / "times")), where={"k": "a"}
        )


def test_another_table_at_the_place_is_noted(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for rows in BATCHES:
        write(path, rows)
    folder = checkpoint(tmp_path, [offset(n) for n in range(1, 6)])
    first = deltalake.DeltaTable(path).metadata().id
    shutil.rmtree(path)
    for rows in BATCHES:
        write(path, rows)
    found = observe.explain(folder, tumbling(), observe.table(path), where={"k": "a"})
    assert any(str(first) in note and "another one" in note for note in found.notes)
