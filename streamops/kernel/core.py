"""The values of the contract of an operator: inputs, states, steps, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streamops.kernel.segments import Segments


@dataclass(frozen=True, slots=True)
class ClockMetrics:
    """Exact metrics of a step about the producers of a stream.

    Parameters
    ----------
    rows, rejected : int
        Input rows; those of them that were ignored, because their event time or their arrival is
        null or outside the years 1 to 9999.
    active, behind : int
        Producers that are active; those of them that are behind the clock.
    joined, forgotten : int
        Producers that became active in this step; those that became idle.
    clock, newest : int, optional
        In microseconds: the clock, and the greatest event time of an active producer.
    held_by, led_by : str, optional
        The alphabetically first active producer whose newest event time is the clock, and the
        first whose is `newest`. ``held_by`` is None if there is none.
    """

    rows: int = 0
    rejected: int = 0
    active: int = 0
    behind: int = 0
    joined: int = 0
    forgotten: int = 0
    clock: int | None = None
    newest: int | None = None
    held_by: str | None = None
    led_by: str | None = None


CLOCK_OUTPUT = pa.schema(
    [
        (f.name, pa.string() if f.name in ("held_by", "led_by") else pa.int64())
        for f in fields(ClockMetrics)
    ]
)
"""One row per micro-batch: the metrics."""


SideName = Literal["left", "right"]

Identity = Mapping[str, Any]
"""Parameters that a state depends on, as JSON."""

OWNED = "_is_owned"
"""Last column of packed rows that every shard receives: whether the shard is that of their ``Input.by``."""

SIDES: tuple[SideName, SideName] = ("left", "right")
"""Names of the inputs. An operator with one input has the left one only."""


@dataclass(frozen=True, slots=True)
class StateFormat:
    """Name and version of a state layout, written into every checkpoint.

    ``segmented`` is whether the state may have segments. A reader without segments refuses such a state.
    """

    kind: str
    version: int
    segmented: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class State:
    """The state of one shard of an operator.

    Parameters
    ----------
    watermark : int, optional
        The operator's watermark after the last step, in microseconds. Rows of the next step are
        compared with it to decide whether they are late, as Spark does.
    tables : mapping of str to Table
        The state tables by name, with the schemas of ``Core.layout``.
    segments : Segments, optional
        Rows that are stored apart. None if the core, the spec or the state API does not support it.
    derived : mapping of int to array
        What the core computed from tables and segments, by number of a segment. It is not stored, but a
        worker retains it with them.
    """

    watermark: int | None
    tables: Mapping[str, pa.Table]
    segments: Segments | None = field(default=None, compare=False)
    derived: Mapping[int, np.ndarray[Any, Any]] = field(default_factory=dict, compare=False)

    @classmethod
    def empty(cls, layout: Mapping[str, pa.Schema]) -> State:
        """The state before the first step."""
        return cls(None, {name: schema.empty_table() for name, schema in layout.items()})

    @property
    def rows(self) -> int:
        """The number of rows in all state tables and segments."""
        in_segments = 0 if self.segments is None else self.segments.rows
        found: int = sum(table.num_rows for table in self.tables.values())
        return found + in_segments


@dataclass(frozen=True, slots=True)
class Metrics:
    """Exact metrics of a step: numbers of rows, unless stated otherwise.

    Parameters
    ----------
    rows : int
        Input rows, including rejected ones.
    rejected : int
        Rows without a usable event time: null, or outside the years 1 to 9999.
    on_time, stragglers, too_late : int
        Pairs of a row and a window, by the time at which the row arrived: before the window
        closed; after it closed, within the allowed lateness; beyond the allowed lateness. In
        tumbling windows every row is one pair.
    results : int
        Results published for the first time.
    corrections : int
        Results published again with another value.
    """

    rows: int = 0
    rejected: int = 0
    on_time: int = 0
    stragglers: int = 0
    too_late: int = 0
    results: int = 0
    corrections: int = 0

    def __add__(self, other: Metrics) -> Metrics:
        result_type = type(other) if isinstance(other, type(self)) else type(self)
        if not issubclass(result_type, type(other)):
            return NotImplemented
        names = [field_.name for field_ in fields(result_type)]
        return result_type(**{n: getattr(self, n, 0) + getattr(other, n, 0) for n in names})


@dataclass(frozen=True, slots=True)
class Input:
    """One input of an operator.

    Parameters
    ----------
    by : tuple of str
        Columns that determine the shard of a row. Rows of two inputs that may meet agree in the values
        and types of these columns; the names may differ.
    time : str, optional
        Event-time column. None if the operator works without event time.
    schema : Schema
        Columns that ``Core.pack`` reads; no columns before ``Spec.resolve``.
    delay : int, optional
        Delay of the watermark that the operator defines on this input, in microseconds. None if the
        frame brings a watermark, or if none is needed.
    columns : tuple of str
        Further columns whose values are compared or computed with.
    accepts_revisions : bool
        Whether the input may have rows that revise others, instead of rows that count once.
    needs_preimages : bool
        Whether an update must come with its preimage.
    replicate : callable, optional
        From rows of the input to those of them that every shard receives, or None if there are none.
    is_broadcast : bool
        Whether every shard receives all rows of the input; those of the other input are distributed by
        their ``by``. Without ``by``, no shard has rows of its own. With it, the last column of packed
        rows is ``OWNED``, which is true in one shard: this one counts the row, and emits it if it is late.
    is_late_by_time : bool
        Whether a row is late once the watermark has reached its ``time``. The start of a window is then no
        event time of a stream: the window is published once the watermark has reached its end.
    """

    by: tuple[str, ...]
    time: str | None = None
    schema: pa.Schema = field(default=pa.schema([]))
    delay: int | None = None
    columns: tuple[str, ...] = ()
    accepts_revisions: bool = False
    needs_preimages: bool = False
    replicate: Callable[[pa.Table], pa.Table | None] | None = None
    is_broadcast: bool = False
    is_late_by_time: bool = False

    def resolve(self, schema: pa.Schema, carried: int | None) -> Input:
        """The input with these columns. A watermark that the frame brings replaces its delay."""
        return replace(self, schema=schema, delay=None if carried is not None else self.delay)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    Parameters
    ----------
    state : State
        For the next step.
    output : Table
        Results, in the output schema of the spec.
    late : Table
        Rows of the side output, in the same schema.
    metrics : Metrics
        What happened.
    """

    state: State
    output: pa.Table
    late: pa.Table
    metrics: Any = field(default_factory=Metrics)

    @property
    def rows(self) -> pa.Table:
        """Results and late rows."""
        return pa.concat_tables([self.output, self.late]).combine_chunks()


def mark_owned(packed: pa.Table, is_owned: pa.Array) -> pa.Table:
    """Packed rows of a broadcast input, for the shard that owns some of them."""
    return packed.set_column(packed.num_columns - 1, OWNED, is_owned)
