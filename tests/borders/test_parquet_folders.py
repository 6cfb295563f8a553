"""Folders of `sinks.parquet` in which one file is not as it was written.

Every file of random folders is deleted, cut, changed, replaced by another one, exchanged with another one, and
copied to the next free name. The law: reading the folder gives exactly the rows that were delivered, or an error.
A sink that goes on must not make the damage invisible.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.borders import cases

Rows = list[dict[str, Any]]


def make_folder(path: Path, seed: int) -> tuple[Rows, Identity, int]:
    """Deliver random micro-batches of one or several queries. Return the rows, the query, the next micro-batch."""
    chance = random.Random(seed)
    expected: Rows = []
    query, run, batch = 0, Identity("query 0", "run 0"), 0
    for number in range(chance.randint(1, 7)):
        options: dict[str, Any] = {}
        if batch and chance.random() < 0.3:
            query, batch = query + 1, 0
            run = Identity(f"query {query}", f"run {number}")
            options["new_checkpoint"] = chance.choice(["replace", "continue"])
        elif batch and chance.random() < 0.3:
            run = Identity(run.query, f"run {number}")
        rows = [{"n": chance.randint(0, 9), "at": number} for _ in range(chance.randint(0, 3))]
        if options.get("new_checkpoint") == "replace":
            expected = []
        expected += rows
        deliver(path, rows, batch, run, **options)
        if chance.random() < 0.2:  # again, after a crash
            run = Identity(run.query, f"again {number}")
            deliver(path, rows, batch, run)
        if chance.random() < 0.2:
            leave_files(path, chance)
        batch += 1
    return expected, run, batch


def deliver(path: Path, rows: Rows, batch: int, run: Identity, **options: Any) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.int64())])
    sinks.parquet(str(path), **options)._deliver_rows(
        pa.Table.from_pylist(rows, schema), batch, run
    )


def leave_files(path: Path, chance: random.Random) -> None:
    """Files of a driver that crashed, and of other programs."""
    stored = next(path.rglob("*.parquet"), None)
    content = stored.read_bytes() if stored else b""
    crashed = path / "_batches" / f"{chance.randint(0, 9):020}-crashed"
    crashed.mkdir(parents=True, exist_ok=True)
    (crashed / "part-00000.parquet").write_bytes(content[: len(content) // chance.randint(1, 2)])
    (path / "other.parquet").write_bytes(content)
    (path / "_manifests" / f"{chance.randint(1, 9):020}.json.abc").write_bytes(b"{}")
    (path / "_manifests" / "readme.txt").write_text("not a manifest")


def damages(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every damage of one file, for a folder of the same content."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        content = file.read_bytes()
        yield f"{file.name} deleted", file.unlink
        for length in {0, 1, len(content) // 2, len(content) - 1} - {len(content), -1}:
            yield (
                f"{file.name} cut at {length}",
                lambda f=file, c=content[:length]: f.write_bytes(c),
            )
        for position in {0, len(content) // 3, len(content) - 1} if content else ():
            flipped = bytearray(content)
            flipped[position] ^= 1
            yield (
                f"{file.name} changed at {position}",
                lambda f=file, c=bytes(flipped): f.write_bytes(c),
            )
        yield f"{file.name} with more bytes", lambda f=file, c=content: f.write_bytes(c + b"\n")
        for other in files:
            if other != file and other.suffix == file.suffix:
                yield f"{file.name} is a copy of {other}", lambda f=file, o=other: shutil.copy(o, f)
                if other > file:
                    yield f"{file.name} and {other} exchanged", lambda f=file, o=other: swap(f, o)
        if re.fullmatch(r"\d{20}\.json", file.name):
            free = file.with_name(f"{len(list(path.glob('_manifests/*.json'))) + 1:020}.json")
            yield f"{file.name} copied to {free.name}", lambda f=file, o=free: shutil.copy(f, o)


def swap(first: Path, second: Path) -> None:
    other = first.with_name("exchanged")
    os.rename(first, other)
    os.rename(second, first)
    os.rename(other, second)


def read(path: Path, check: Any) -> Rows | None:
    """The rows; None if the folder is refused."""
    try:
        return ordered(sinks.read_parquet(str(path), check=check).to_table().to_pylist())
    except SinkError as error:
        if error.code not in {"FILE_DAMAGED", "TARGET_MISSING"}:
            raise
        return None


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def test_every_damage_of_one_file_is_an_error_or_harmless(tmp_path: Path) -> None:
    counts = {"damages": 0, "refused": 0, "refused by size": 0, "harmless": 0}
    for seed in range(cases(2, 40)):
        path, copy = tmp_path / f"folder {seed}", tmp_path / "copy"
        rows, run, batch = make_folder(path, seed)
        expected = ordered(rows)
        assert read(path, "content") == read(path, "size") == expected
        new = [{"n": -1, "at": -1}]
        shutil.copytree(path, copy)
        for number, (name, _) in enumerate(list(damages(copy))):
            shutil.rmtree(copy)
            shutil.copytree(path, copy)
            next(d for at, (_, d) in enumerate(damages(copy)) if at == number)()
            found = read(copy, "content")
            assert found in (None, expected), (seed, name)
            counts["damages"] += 1
            counts["refused"] += found is None
            counts["harmless"] += found is not None
            if re.search(r"deleted|cut|more bytes|\.json|_newest", name):
                by_size = read(copy, "size")
                assert by_size in (None, expected), (seed, name)
                counts["refused by size"] += by_size is None
            try:
                deliver(copy, new, batch, Identity(run.query, "after"))
            except SinkError as error:
                if error.code not in {"FILE_DAMAGED", "BATCH_GAP", "LEDGER_LOST", "FENCED"}:
                    raise
                after = expected
            else:
                after = ordered([*rows, *new])
            assert read(copy, "content") in (None, after), (
                seed,
                name,
                "after the next micro-batch",
            )
        shutil.rmtree(copy)
    assert counts["refused"] > counts["refused by size"] > 0, counts
    print(counts)
