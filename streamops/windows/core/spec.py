"""Settings of windows on a grid, bound to the schema of their input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamops.kernel.contract import Summary
from streamops.kernel.grid import Grid

__all__ = ["INSTANT", "Spec", "Stragglers", "TooLate"]

Stragglers = Literal["drop", "route", "update", "retract"]
TooLate = Literal["drop", "route"]

INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Spec:
    """Tumbling or hopping windows over columns of known types.

    Parameters
    ----------
    grid : Grid
        The windows.
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
    """

    grid: Grid
    by: tuple[str, ...]
    time: str
    aggregates: tuple[tuple[str, str, Summary], ...]
    input: pa.Schema
    delay: int | None
    allowed_lateness: int
    stragglers: Stragglers
    too_late: TooLate

    event_time = "window_end"

    @property
    def corrects(self) -> bool:
        """Whether a published result can change."""
        return self.stragglers in ("update", "retract")

    @property
    def routes(self) -> bool:
        """Whether late rows are delivered, so that rows must travel whole."""
        return self.stragglers == "route" or self.too_late == "route"

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
        """Columns of the output that hold values of one of the input: keys, picked values."""
        found = {name: name for name in self.by}
        for name, _, summary in self.aggregates:
            if summary.inputs and self.input.field(summary.inputs[0]).type == summary.result:
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
        if self.corrects:
            extra.append(("revision", pa.int32()))
        if self.stragglers == "retract":
            extra.append(("_change_type", pa.string()))
        if self.routes:
            extra.append(("late", self.late))
        return pa.schema(
            [
                *self.keys,
                ("window_start", INSTANT),
                ("window_end", INSTANT),
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
            "size": self.grid.size,
            "hop": self.grid.hop,
            "origin": self.grid.origin,
            "by": [[field.name, str(field.type)] for field in self.keys],
            "time": self.time,
            "agg": [
                [name, words, *(f"{part} {kind}" for part, kind in summary.fields)]
                for name, words, summary in self.aggregates
            ],
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "too_late": self.too_late,
        }
