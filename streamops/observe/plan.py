"""The micro-batches that a checkpoint planned, and what reads the rows of their sources again."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from streamops.kernel.columns import concat
from streamops.kernel.errors import ColumnNotFound, located
from streamops.kernel.time import Duration
from streamops.observe import conditions
from streamops.state.checkpoint import Checkpoint
from streamops.testing.batches import canonical, to_table
from streamops.testing.recorded import of_key

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
    planned : int
        When it was planned, in milliseconds since 1970.
    starts, ends : tuple of str or None
        The offsets of each source as JSON, before and after it.
    is_committed : bool
        Whether it is committed.
    """

    number: int
    watermark: int
    planned: int
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
        of = json.loads(metadata)
        watermark, planned = (
            int(of.get(name, 0)) for name in ("batchWatermarkMs", "batchTimestampMs")
        )
        starts = before or (None,) * len(ends)
        plan.append(MicroBatch(number, watermark, planned, starts, ends, number in committed))
        before = ends
    return plan


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a checkpoint has of one source.

    Parameters
    ----------
    checkpoint : Checkpoint
        The checkpoint.
    number : int
        Number of the source in the query: its line in the offsets.
    folder : int
        Number of its folder in ``sources``. A source that a query reads twice has one folder.
    plan : sequence of MicroBatch
        The micro-batches whose rows are wanted.
    notes : list of str
        What does not exist any more, or is not what the query read. Sources add to it.
    """

    checkpoint: Checkpoint
    number: int
    folder: int
    plan: Sequence[MicroBatch]
    notes: list[str] = field(default_factory=list)

    @property
    def ranges(self) -> list[tuple[str | None, str | None]]:
        """The offsets before and after each micro-batch."""
        return [(batch.starts[self.number], batch.ends[self.number]) for batch in self.plan]

    @property
    def log(self) -> Any:
        """The folder of the source."""
        return self.checkpoint.path / "sources" / str(self.folder)

    def note(self, names: Sequence[str], text: str) -> None:
        """Note what is true of files or versions. Of many, three are named."""
        self.notes.extend(text.format(name) for name in names[:3])
        if len(names) > 3:
            self.notes.append(f"the same is true of {len(names) - 3} more")


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

    OFFSET: ClassVar[str | None] = None
    """A field that offsets of such a source have; None if their fields are names of the user."""

    prepare: Prepare | None = None
    columns: Mapping[str, str] | None = None
    watermark: Duration | None = None
    number: int | None = None

    def require_fit(self, recorded: Recorded) -> None:
        """Refuse the offsets of another kind of source."""
        for _, end in recorded.ranges:
            fields = {} if end is None else json.loads(end)
            known = {"logOffset", "reservoirVersion"}
            fits = isinstance(fields, dict) and (
                self.OFFSET in fields if self.OFFSET else known.isdisjoint(fields)
            )
            if fields and not fits:
                raise conditions.SOURCE_IS_OTHER.error(
                    number=recorded.number, got=f"{type(self).__name__} for the offset {end:.80}"
                )

    def read(self, recorded: Recorded, where: Mapping[str, Any]) -> list[pa.Table] | None:
        """The prepared rows of a key in each micro-batch; None if no file tells the columns."""
        self.require_fit(recorded)
        # Without a prepare, the source has the columns of the operator.
        names = self.columns
        if names is None:
            names = {} if self.prepare is not None else {name: name for name in where}
        wanted = {names[name]: value for name, value in where.items() if name in names}
        found: list[list[pa.Table]] = [[] for _ in recorded.plan]
        empty: pa.Table | None = None
        for at, rows in self.scan(recorded, wanted):
            rows = self._prepared(rows)
            if empty is None:
                empty = canonical(rows.schema).empty_table()
            with located(at=f"source {recorded.number}"):
                for name in where:
                    if name not in rows.column_names:
                        raise not_in_the_source(name, rows.column_names)
                rows = rows.select([n for n in empty.column_names if n in rows.column_names])
                chosen = of_key(to_table(rows, empty.schema), where)
            if len(chosen):
                found[at].append(chosen)
        return None if empty is None else [concat([empty, *tables]) for tables in found]

    def schema_of(self, recorded: Recorded) -> pa.Schema | None:
        """The columns of the prepared rows; None if no file tells them."""
        self.require_fit(recorded)
        rows = next((rows for _, rows in self.scan(recorded, None)), None)
        return None if rows is None else canonical(self._prepared(rows).schema)

    def _prepared(self, rows: pa.Table) -> pa.Table:
        if self.prepare is not None and not callable(self.prepare):
            raise conditions.NOT_A_TABLE.error(got=f"prepare={self.prepare!r}")
        rows = rows if self.prepare is None else self.prepare(rows)
        if not isinstance(rows, pa.Table):
            raise conditions.NOT_A_TABLE.error(got=f"a {type(rows).__name__}")
        return rows

    @abstractmethod
    def scan(self, recorded: Recorded, wanted: Mapping[str, Any] | None) -> Iterator[Piece]:
        """Yield the rows between two offsets of each micro-batch; the first table has their columns.

        Rows whose columns differ from those in ``wanted`` may be left out; None wants the columns only.
        What does not exist any more is noted.
        """


def not_in_the_source(name: str, names: Sequence[str]) -> ColumnNotFound:
    """The error of a source without a column that is asked for."""
    return conditions.NOT_IN_THE_SOURCE.error(column=name, columns=", ".join(names), got=name)
