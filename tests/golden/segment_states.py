"""A state with segments, as bytes: ``python -m tests.golden.segment_states`` writes missing files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streamops.kernel.codec import ipc_write
from streamops.spark.packing import pack_rows
from streamops.spark.step import ShardStep, Stored, to_frame
from streamops.testing.replaying import MemoryStore
from streamops.windows.core.grid import GridCore
from tests.golden.states import FOLDER, HISTORIES, SHARDS, History

HISTORY: History = replace(HISTORIES[0], name="windows.grid-v1-segments")
"""Hopping windows without corrections."""

SECOND = 1_000_000


def step_with(limit: int) -> ShardStep:
    """The step of the history."""
    return ShardStep("windows.hopping", GridCore(), HISTORY.spec, SHARDS, segment_rows=limit)


def pack(step: ShardStep, rows: pa.Table) -> bytes:
    """Rows as a worker packs them."""
    return ipc_write(pack_rows(step.core, step.spec, "left", rows))


def run(limit: int) -> tuple[Stored, MemoryStore]:
    """The stored state and its segments after the history."""
    step, files, stored = step_with(limit), MemoryStore(), None
    for rows, watermark in HISTORY.batches:
        packs, mark = [pack(step, HISTORY.table(rows))], (watermark or 0) // 1_000
        after, _ = step(stored, packs, mark, store=files)
        stored = stored if after is None else after
    assert stored is not None
    return Stored(*stored), files


def path_of(number: int | None) -> Path:
    """The file of a segment, or of the value."""
    return FOLDER / f"{HISTORY.name}{'' if number is None else f'-{number}'}.bin"


def files() -> dict[Path, bytes]:
    """The stored value, and its segments."""
    value, segments = run(3)
    frames = {path_of(number): to_frame(blob) for number, blob in segments.items()}
    return {path_of(None): value.frame} | frames
