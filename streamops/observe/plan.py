"""The micro-batches that a checkpoint planned, and what reads the rows of their sources again."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, concat
from streamops.kernel.time import Duration
from streamops.state.checkpoint import Checkpoint

Prepare = Callable[[pa.Table], pa.Table]
Piece = tuple[int, pa.Table]
"""Rows of a source, and the position of their micro-batch in the plan."""

_NO_OFFSET = "-"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch that a checkpoint planned.

    Parameters
    ----------
    number : int
        Its number.
    watermark : int
        Spark's watermark, in milliseconds.
    starts, ends : tuple of str or None
        The offsets of each source as JSON, before and after it.
    is_committed : bool
        Whether it is committed.
    """

    number: int
    watermark: int
    starts: tuple[str | None, ...]
    ends: tuple[str | None, ...]
    is_committed: bool

    @property
    def has_data(self) -> bool:
        """Whether a source had new rows."""
        return self.starts != self.ends


def read_plan(checkpoint: Checkpoint) -> list[MicroBatch]:
    """The micro-batches whose plan the checkpoint still has, oldest first."""
    committed, plan = set(checkpoint.commits), list[MicroBatch]()
    before: tuple[str | None, ...] | None = None
    for number in checkpoint.offsets:
        if not (checkpoint.path / "offsets" / str(number)).exists():
            continue  # the running query has removed it since
        _, (metadata, *lines) = checkpoint.read_log("offsets", number)
        ends = tuple(None if line == _NO_OFFSET else line for line in lines)
        watermark = int(json.loads(metadata).get("batchWatermarkMs", 0))
        starts = before or (None,) * len(ends)
        plan.append(MicroBatch(number, watermark, starts, ends, number in committed))
        before = ends
    return plan


@dataclass(frozen=True, kw_only=True)
class RecordedSource(ABC):
    """A source of a query, whose rows can be read again: see :func:`files`, :func:`topics`, :func:`table`.

    Parameters
    ----------
    prepare : callable, optional
        What the query does between the source and the operator, row by row.
    columns : mapping of str to str, optional
        Names of key columns in the source, by their names in the operator.
    watermark : duration, optional
        The delay of ``withWatermark`` before the operator.
    number : int, optional
        Number of the source in the query.
    """

    prepare: Prepare | None = None
    columns: Mapping[str, str] | None = None
    watermark: Duration | None = None
    number: int | None = None

    def read(
        self, checkpoint: Checkpoint, number: int, plan: list[MicroBatch], where: Mapping[str, Any]
    ) -> tuple[list[pa.Table], list[str]]:
        """The prepared rows of a key in each micro-batch, and notes about what does not exist any more."""
        number = number if self.number is None else self.number
        # Without a prepare, the source has the columns of the operator.
        names = self.columns
        if names is None:
            names = {} if self.prepare is not None else {name: name for name in where}
        wanted = {names[name]: value for name, value in where.items() if name in names}
        notes = list[str]()
        prepare = self.prepare or (lambda rows: rows)
        found: list[list[pa.Table]] = [[] for _ in plan]
        empty: pa.Table | None = None
        for at, rows in self.scan(checkpoint, number, _ranges(plan, number), wanted, notes):
            chosen = filter_rows(prepare(rows), where)
            empty = chosen.schema.empty_table() if empty is None else empty
            if len(chosen):
                found[at].append(chosen)
        assert empty is not None, "a source yields its columns at least"
        return [concat([empty, *tables]) for tables in found], notes

    def schema_of(self, checkpoint: Checkpoint, number: int, plan: list[MicroBatch]) -> pa.Schema:
        """The columns of the prepared rows."""
        number = number if self.number is None else self.number
        _, rows = next(self.scan(checkpoint, number, _ranges(plan, number), {}, []))
        return rows.schema if self.prepare is None else self.prepare(rows).schema

    @abstractmethod
    def scan(
        self,
        checkpoint: Checkpoint,
        number: int,
        ranges: Sequence[tuple[str | None, str | None]],
        wanted: Mapping[str, Any],
        notes: list[str],
    ) -> Iterator[Piece]:
        """Yield the rows between two offsets of each micro-batch, and at least one table without rows.

        Rows whose columns differ from those in ``wanted`` may be left out. What does not exist any more is
        added to ``notes``.
        """


def _ranges(plan: list[MicroBatch], number: int) -> list[tuple[str | None, str | None]]:
    return [(batch.starts[number], batch.ends[number]) for batch in plan]


def filter_rows(table: pa.Table, where: Mapping[str, Any]) -> pa.Table:
    """The rows whose columns have these values."""
    for name, value in where.items():
        column = combine_chunks(table.column(name))
        table = table.filter(pc.is_null(column) if value is None else pc.equal(column, value))
    return table
