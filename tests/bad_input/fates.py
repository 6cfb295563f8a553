"""Micro-batches with good and bad rows, each row with what becomes of it.

A fate is "accepted", the reason in the side output, or the name of a metric that counts the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.testing import Replay, at
from streamops.testing.laws import to_rows
from streamops.testing.results import BatchResult

ACCEPTED = "accepted"
TS = pa.timestamp("us", tz="UTC")
SECOND = 1_000_000
START = int(at(0).timestamp()) * SECOND

Row = tuple[Any, ...]
"""The fate, and the values."""


def after(seconds: float) -> int:
    """An instant, in microseconds."""
    return START + int(seconds * SECOND)


@dataclass(frozen=True)
class Side:
    """The rows of one input.

    Parameters
    ----------
    schema : Schema
        The columns.
    batches : sequence of sequence of Row
        The rows of each micro-batch.
    """

    schema: pa.Schema
    batches: Sequence[Sequence[Row]]

    def table(self, number: int, *, only_accepted: bool = False) -> pa.Table:
        """A micro-batch; instants are integers, since some are beyond those of Python."""
        rows = [r[1:] for r in self.batches[number] if not only_accepted or r[0] == ACCEPTED]
        columns = list(zip(*rows, strict=True)) or [()] * len(self.schema)
        arrays = [
            pa.array(values, pa.int64()).cast(part.type)
            if pa.types.is_timestamp(part.type)
            else pa.array(values, part.type)
            for values, part in zip(columns, self.schema, strict=True)
        ]
        return pa.table(arrays, schema=self.schema)

    @property
    def fates(self) -> Counter[str]:
        return Counter(row[0] for batch in self.batches for row in batch)


@dataclass(frozen=True)
class Played:
    """The results of an operator over all micro-batches, and what was pending at the end."""

    results: Sequence[BatchResult]

    @classmethod
    def of(cls, operator: Any, sides: Sequence[Side], *, only_accepted: bool = False) -> Played:
        schemas: Any = tuple(side.schema for side in sides)
        query = Replay(operator, schemas if len(sides) > 1 else schemas[0], shards=2)
        batches: list[Any] = [
            tuple(side.table(number, only_accepted=only_accepted) for side in sides)
            for number in range(len(sides[0].batches))
        ]
        done = query.run(batches if len(sides) > 1 else [tables[0] for tables in batches])
        return cls([*done, query.flush()])

    def metric(self, name: str) -> int:
        """The sum of a metric."""
        return sum(getattr(result.counts, name, 0) for result in self.results if result.counts)

    def reasons(self) -> Counter[str]:
        """The rows of the side output: late and rejected ones."""
        found: Counter[str] = Counter()
        for result in self.results:
            if result.late.num_rows:
                found.update(result.late.column("reason").to_pylist())
            for row in self._rows(result.table):
                if row.get("rejected") is not None:
                    found[row["rejected"]["reason"]] += 1
        return found

    def rows(self, *, pending: bool = True) -> Counter[str]:
        """The results without side output, or without those that were pending at the end."""
        results = self.results if pending else self.results[:-1]
        return amount(result.table for result in results)

    def values(self, name: str) -> Counter[Any]:
        """How often each value of a column was emitted."""
        return Counter(row[name] for result in self.results for row in self._rows(result.table))

    @staticmethod
    def _rows(table: pa.Table) -> list[dict[str, Any]]:
        return to_rows(table) if table.num_rows else []


def amount(tables: Iterable[pa.Table]) -> Counter[str]:
    """The rows of tables, or the rows that changes amount to."""
    found: Counter[str] = Counter()
    for table in tables:
        for row in to_rows(table) if table.num_rows else []:
            if row.pop("rejected", None) is not None:
                continue
            change = row.pop("_change_type", "insert")
            row.pop("revision", None)
            sign = -1 if change in ("delete", "update_preimage") else 1
            found[repr(sorted(row.items()))] += sign
    assert min(found.values(), default=0) >= 0
    return +found


@dataclass(frozen=True)
class Poisoned:
    """An operator, and inputs of which all rows have a fate.

    Parameters
    ----------
    operator : Operator
    sides : tuple of Side
    counted : tuple of str
        The metrics that count rows which are neither results nor side output.
    """

    operator: Any
    sides: tuple[Side, ...]
    counted: tuple[str, ...] = ()
    fates: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fates", sum((side.fates for side in self.sides), Counter()))


FAR = MAX_INSTANT
"""The end of the year 9999: a row with this time is on time, and all after it are late."""

TOO_FAR, TOO_EARLY = MAX_INSTANT + 1, MIN_INSTANT - 1
