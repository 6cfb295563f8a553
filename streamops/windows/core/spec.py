"""Settings of windows, bound to the schema of their input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.contract import Summary, aggregate_identity
from streamops.kernel.grids import Grid

__all__ = [
    "INSTANT",
    "Early",
    "Empty",
    "FixedSpec",
    "SessionSpec",
    "SlidingSpec",
    "Stragglers",
    "TooLate",
    "WhenLonger",
    "WindowSpec",
]

Stragglers = Literal["drop", "route", "update", "retract"]
TooLate = Literal["drop", "route"]
Early = Literal["never", "every batch"]
Empty = Literal["skip", "publish"]
WhenLonger = Literal["split", "fail"]

INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class WindowSpec(ABC):
    """What all windows have in common.

    Parameters
    ----------
    by, time : key columns, event-time column
    aggregates : tuple of (name, words, summary)
        What is computed, under which name; the words in which the user asked for it.
    input : Schema
        The columns that are read; every column of the frame where rows may be routed.
    delay : int, optional
        Microseconds that a result waits before it is called on time; None where the frame
        brings a watermark of its own.
    allowed_lateness : int
        Microseconds that stragglers are accepted beyond it.
    stragglers, too_late : str
        What happens to rows whose window is already on time, and beyond the lateness.
    early : str
        Whether results are published before they are on time.
    """

    by: tuple[str, ...]
    time: str
    aggregates: tuple[tuple[str, str, Summary], ...]
    input: pa.Schema
    delay: int | None
    allowed_lateness: int
    stragglers: Stragglers
    too_late: TooLate
    early: Early

    @property
    def place(self) -> tuple[str, ...]:
        """Columns of the output, behind the keys, that say what a result is about; the last of
        them carries its event time.
        """
        return ("window_start", "window_end")

    @property
    def event_time(self) -> str:
        """Column of the output that carries its event time."""
        return self.place[-1]

    @property
    def corrects(self) -> bool:
        """Whether a published result can change."""
        return self.stragglers in ("update", "retract")

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness

    @property
    def routes(self) -> bool:
        """Whether late rows are delivered, so that rows must travel whole."""
        return self.stragglers == "route" or self.too_late == "route"

    @property
    def revises(self) -> bool:
        """Whether a result can be published more than once."""
        return self.corrects or self.is_early

    @property
    def is_early(self) -> bool:
        """Whether results are published before they are on time."""
        return self.early != "never"

    @property
    def takes_back(self) -> bool:
        """Whether the output is a change stream."""
        return self.stragglers == "retract"

    @property
    def retention(self) -> int:
        """How long after its end a window can still change."""
        return self.allowed_lateness if self.corrects else 0

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns."""
        return [self.input.field(name) for name in self.by]

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input: keys, values, lists of them."""
        found = {name: name for name in self.by}
        for name, _, summary in self.aggregates:
            if summary.inputs:
                kind = self.input.field(summary.inputs[0]).type
                if summary.result in (kind, pa.list_(kind)):
                    found[name] = summary.inputs[0]
        return found

    @property
    def summaries(self) -> list[Summary]:
        """The summaries, in order."""
        return [summary for _, _, summary in self.aggregates]

    @property
    def output(self) -> pa.Schema:
        """Keys, window, aggregates; then what corrections and routing add."""
        extra: list[tuple[str, pa.DataType]] = []
        if self.revises:
            extra.append((REVISION, pa.int32()))
        if self.is_early:
            extra.append(("timing", pa.string()))
        if self.takes_back:
            extra.append((CHANGE_TYPE, pa.string()))
        if self.routes:
            extra.append(("late", self.late))
        return pa.schema(
            [
                *self.keys,
                *((name, INSTANT) for name in self.place),
                *((name, summary.result) for name, _, summary in self.aggregates),
                *extra,
            ]
        )

    @property
    def late(self) -> pa.StructType:
        """What is said of a late row."""
        return pa.struct(
            [
                ("reason", pa.string()),
                ("lateness", pa.duration("us")),
                ("watermark", INSTANT),
                ("row", pa.struct(list(self.input))),
            ]
        )

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. ``delay`` is not in it: it may change."""
        return {
            **self.shape,
            "by": [[field.name, str(field.type)] for field in self.keys],
            "time": self.time,
            "agg": [
                aggregate_identity(name, words, summary, self.input)
                for name, words, summary in self.aggregates
            ],
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "too_late": self.too_late,
            # Said only where it is used: states are older than the parameter.
            **({"early": self.early} if self.is_early else {}),
        }

    @property
    @abstractmethod
    def shape(self) -> Mapping[str, Any]:
        """The part of the identity that says which windows these are."""


@dataclass(frozen=True, slots=True)
class FixedSpec(WindowSpec):
    """Windows on a grid over columns of known types.

    Empty ones are published for ``empty_for`` microseconds after one with rows, or not at all.
    """

    grid: Grid
    empty_for: int | None = None

    @property
    def shape(self) -> Mapping[str, Any]:
        """The grid; and what is published of it, said only where it is used."""
        said = {} if self.empty_for is None else {"empty_for": self.empty_for}
        return {**self.grid.identity, **said}


@dataclass(frozen=True, slots=True)
class SessionSpec(WindowSpec):
    """Session windows over columns of known types.

    Parameters
    ----------
    gap : int
        Microseconds of silence that end a session; the longest of them where rows have their
        own.
    gap_column : str, optional
        The gap of each row.
    until : str, optional
        A boolean column: true for a row that ends its session.
    max_length : int, optional
        Microseconds; a longer session is cut, or an error.
    """

    gap: int
    gap_column: str | None
    until: str | None
    max_length: int | None
    when_longer: WhenLonger

    @property
    def cuts(self) -> bool:
        """Whether sessions can end otherwise than by silence, so that they can be split."""
        return self.until is not None or self.max_length is not None

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own.

        A closing row up to a gap behind the watermark ends its session back there.
        """
        return self.allowed_lateness + (self.gap if self.until is not None else 0)

    @property
    def takes_back(self) -> bool:
        """Whether the output is a change stream: a session that grows leaves another behind."""
        return self.revises

    @property
    def retention(self) -> int:
        """How long after its end a session can still be touched by a row that is accepted."""
        return self.gap + (self.allowed_lateness if self.corrects else 0)

    @property
    def shape(self) -> dict[str, Any]:
        """What makes a session."""
        return {
            "gap": self.gap,
            "gap_column": self.gap_column,
            "until": self.until,
            "max_length": self.max_length,
            "when_longer": self.when_longer,
        }


@dataclass(frozen=True, slots=True)
class SlidingSpec(WindowSpec):
    """Sliding windows over columns of known types.

    Parameters
    ----------
    size : int
        Microseconds that a window reaches back from an event.
    """

    size: int

    @property
    def place(self) -> tuple[str, ...]:
        """The event time, under its own name."""
        return (self.time,)

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input: the event time as well."""
        return {self.time: self.time, **super(SlidingSpec, self).origins}

    @property
    def reach(self) -> int:
        """How long after an event, in microseconds, its last window can still be computed."""
        return self.size - 1 + self.retention

    @property
    def shape(self) -> dict[str, Any]:
        """The size."""
        return {"size": self.size}
