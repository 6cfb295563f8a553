"""The bases of an operator: its algorithm, for all keys of one shard.

An operator is a pure function over (spec, state, inputs, watermark). Spark's streaming queries, Spark's
batch jobs and the replay of the test kit call the same functions. States are values: nothing mutates a
state after a function returned it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from streamops.kernel.columns import conform
from streamops.kernel.core import SIDES, Metrics, SideName, Spec, State, StateFormat, Step
from streamops.kernel.placement import BY_KEY, Placement, Rule
from streamops.kernel.segments import UNMERGED
from streamops.kernel.time import AFTER_ALL

S = TypeVar("S", bound=Spec)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a state.

    Parameters
    ----------
    schema : callable
        From the spec to the columns of the table; None if an operator with this spec does not have it.
        Key columns are ``key.0``, ``key.1``, ….
    placement : ByKey, Greatest or Everywhere
        Which shard its rows belong to.
    """

    schema: Callable[[Any], pa.Schema | None]
    placement: Rule = BY_KEY


class Core(Generic[S]):
    """The algorithm of an operator over the columns of all keys of a shard.

    A subclass defines ``STATE``, ``TABLES`` and ``step``; with event time, ``next_deadline``, too.

    Attributes
    ----------
    STATE : StateFormat
        Name and version of the state.
    TABLES : mapping of str to Table
        The tables of the state by name.
    PLACEMENT : Placement
        How states are placed on shards, beyond the rules of their tables.
    METRICS_TYPE : type
        The class of the metrics of a step.
    METRICS : mapping of str to str
        The observed metrics: names, and fields of the metrics that they show.
    STEPS_WITHOUT_ROWS : bool
        Whether a step without rows emits output though no deadline has passed.
    RETAINED_BYTES : int
        How much a worker retains of the decoded states of its shards for their next steps: for states that
        take longer to decode than to compare.
    """

    STATE: ClassVar[StateFormat]
    TABLES: ClassVar[Mapping[str, Table]] = {}
    PLACEMENT: ClassVar[Placement] = Placement()
    METRICS_TYPE: ClassVar[type[Any]] = Metrics
    METRICS: ClassVar[Mapping[str, str]] = {name: name for name in Metrics.__dataclass_fields__}
    STEPS_WITHOUT_ROWS: ClassVar[bool] = False
    RETAINED_BYTES: ClassVar[int] = 0

    @property
    def placement(self) -> Placement:
        """How states are placed on shards."""
        rules = {name: table.placement for name, table in self.TABLES.items()}
        if self.STATE.segmented is not None:
            rules[UNMERGED] = BY_KEY
        return replace(self.PLACEMENT, tables=rules)

    def layout(self, spec: S) -> dict[str, pa.Schema]:
        """Schemas of the tables of the state."""
        schemas = {name: table.schema(spec) for name, table in self.TABLES.items()}
        return {name: schema for name, schema in schemas.items() if schema is not None}

    def has_segments(self, spec: S) -> bool:
        """Whether rows of a large state are stored apart, see :mod:`streamops.kernel.segments`.

        Then ``STATE`` has a version for such states, and ``step`` and ``finish`` also accept a state with
        the table ``_unmerged``.
        """
        return False

    def pack(self, spec: S, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Prepare rows of one input for ``step``, before the shuffle and without state."""
        return conform(rows, spec.inputs[SIDES.index(side)].schema)

    def step(
        self, spec: S, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch.

        ``inputs`` has the packed rows of each input. Rows are late by ``state.watermark``, the
        watermark of the step before, and windows close by ``watermark``. It is None if there is no
        watermark yet, and always without event time.
        """
        raise NotImplementedError

    def finish(self, spec: S, state: State) -> pa.Table:
        """Results that are still pending when the stream ends: those of a step at the end of time."""
        if _end_of_time(spec) is None:
            return spec.output.empty_table()
        return self.step(spec, state, self.no_rows(spec), AFTER_ALL).output

    def run(self, spec: S, inputs: Sequence[pa.Table]) -> Step:
        """The batch result: one step over all packed rows at the end of time. Nothing is late."""
        return self.step(spec, State.empty(self.layout(spec)), inputs, _end_of_time(spec))

    def next_deadline(self, spec: S, state: State) -> int | None:
        """The watermark at which a step without rows has something to do. By default, there is none."""
        return None

    def check(self, spec: S, state: State) -> None:
        """Fail and print the state if an invariant is violated. By default, there is none."""

    def no_rows(self, spec: S) -> list[pa.Table]:
        """The packed rows of inputs without rows."""
        sides = zip(spec.inputs, SIDES, strict=False)
        return [self.pack(spec, of.schema.empty_table(), side) for of, side in sides]


def _end_of_time(spec: Spec) -> int | None:
    """The watermark of a batch; None without event time."""
    return None if all(of.time is None for of in spec.inputs) else AFTER_ALL
