"""Settings of aggregates over a change stream, bound to its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import REJECTED
from streamops.changes.core.totals import Total
from streamops.kernel.contract import Summary, aggregate_identity

__all__ = ["AggregateSpec", "Asked", "Rejected"]

Rejected = Literal["drop", "route"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One aggregate.

    Parameters
    ----------
    name, words : str
        What it is called in the result, and in the words of the user.
    summary : Summary
        The summary that says it of rows that are only added.
    total : Total, optional
        What is kept where it can be taken back; None: the rows are kept, and it is computed again.
    counted_once : bool
        Then: whether equal rows are one to it.
    """

    name: str
    words: str
    summary: Summary
    total: Total | None
    counted_once: bool


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """Settings, bound to the schema of their input.

    Parameters
    ----------
    where : str
        The operator, for errors.
    by : tuple of str
        Key columns.
    asked : tuple of Asked
        The aggregates.
    input : Schema
        The columns that are read; where rows are routed, all of them.
    rejected : str
        What happens to rows that are no change.
    """

    where: str
    by: tuple[str, ...]
    asked: tuple[Asked, ...]
    input: pa.Schema
    rejected: Rejected

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns, by what they are called in the state."""
        return [self.input.field(name).with_name(f"key.{i}") for i, name in enumerate(self.by)]

    @property
    def totals(self) -> list[Total]:
        """What can be taken back."""
        return [each.total for each in self.asked if each.total is not None]

    @property
    def again(self) -> list[tuple[Summary, bool]]:
        """What is computed again from the rows, and whether equal ones are one to it."""
        return [(each.summary, each.counted_once) for each in self.asked if each.total is None]

    @property
    def told(self) -> list[str]:
        """Columns that any aggregate reads, by name: the frame may have them in another order."""
        return sorted({name for each in self.asked for name in each.summary.inputs})

    @property
    def columns(self) -> list[str]:
        """Columns of the rows that are kept for that, by name, as above."""
        return sorted({name for summary, _ in self.again for name in summary.inputs})

    @property
    def groups(self) -> pa.Schema:
        """The state of the groups: how many rows each has, and its totals."""
        states = [
            (f"agg.{i}.{name}", kind)
            for i, total in enumerate(self.totals)
            for name, kind in total.fields
        ]
        return pa.schema([*self.keys, ("rows", pa.int64()), *states])

    @property
    def rows(self) -> pa.Schema:
        """The rows that are kept, each with its group and how often it is there."""
        named = [self.input.field(name).with_name(f"c.{i}") for i, name in enumerate(self.columns)]
        return pa.schema([*self.keys, *named, ("weight", pa.int64())])

    @property
    def aside(self) -> list[pa.Field]:
        """Where rejected rows are routed, the column that tells of them."""
        if self.rejected == "drop":
            return []
        told = pa.struct([("reason", pa.string()), ("row", pa.struct(list(self.input)))])
        return [pa.field(REJECTED, told)]

    @property
    def packed(self) -> pa.Schema:
        """Net changes: totals of the groups; or different rows, where rows are kept.

        Rejected rows stand beside them where they are routed.
        """
        counted = [(name, pa.int64()) for name in ("weight", "changes", "bad")]
        if not self.again:
            totals = list(self.groups)[len(self.by) + 1 :]
            return pa.schema([*self.keys, *counted, *totals, *self.aside])
        told = [self.input.field(name).with_name(f"c.{i}") for i, name in enumerate(self.told)]
        return pa.schema([*self.keys, *told, *counted, *self.aside])

    @property
    def output(self) -> pa.Schema:
        """Keys, values, what happens to them, and rejected rows where they are routed."""
        keys = [self.input.field(name) for name in self.by]
        values = [(each.name, each.summary.result) for each in self.asked]
        return pa.schema([*keys, *values, (CHANGE_TYPE, pa.string()), *self.aside])

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input, or lists of them."""
        found = {name: name for name in self.by}
        for each in self.asked:
            if each.summary.inputs:
                kind = self.input.field(each.summary.inputs[0]).type
                if each.summary.result in (kind, pa.list_(kind)):
                    found[each.name] = each.summary.inputs[0]
        return found

    @property
    def event_time(self) -> str:
        """There is none; the column that carries what the next operator must know."""
        return CHANGE_TYPE

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. What happens to rejected rows is not in it."""
        return {
            "by": [[name, str(self.input.field(name).type)] for name in self.by],
            "agg": [
                [
                    *aggregate_identity(each.name, each.words, each.summary, self.input),
                    *(
                        f"{column} {self.input.field(column).type}"
                        for column in each.summary.inputs
                    ),
                    *(["rows"] if each.total is None else [name for name, _ in each.total.fields]),
                ]
                for each in self.asked
            ],
        }
