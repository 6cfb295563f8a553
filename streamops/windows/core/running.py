"""Running aggregates: per key over everything so far, emitted whenever a value changes.

There is no event time: no row is late and no result is final. A value changes only when its key
receives rows, so a step reads the keys of its rows and compares the values before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE, PREIMAGE, REVISION
from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.columns import concat, conform, integers, key_codes, rows_differ, take
from streamops.kernel.core import (
    Metrics,
    SideName,
    State,
    StateFormat,
    Step,
)
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.hashing import digests
from streamops.kernel.operator import ShardSpec, Table, checkpointed
from streamops.kernel.parameters import (
    refuse_taken_names,
    require_keys,
    require_most_keys,
)
from streamops.windows import conditions
from streamops.windows.core.aggregating import AggregatingCore
from streamops.windows.core.spec import AggregatingSpec, identity_of_aggregates
from streamops.windows.core.tables import (
    estimate_values,
    keys_of,
    merge_states,
    state_schema,
    states_of,
    update_states,
)

Changes = Literal["update", "retract"]
WhenFull = Literal["fail", "reject_new"]

DEFAULT_MAX_KEYS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSpec(AggregatingSpec, ShardSpec):
    """Parameters of a running aggregate.

    Parameters
    ----------
    operator : str
        Public name of the operator, for errors.
    by : tuple of str
        Key columns.
    agg : tuple of (name, aggregate)
        The aggregates, by the name of their column in the result.
    changes : "update" or "retract"
        How a changed value is emitted.
    max_keys : int
        Keys stored over all shards.
    when_full : "fail" or "reject_new"
        What happens to rows of further keys.
    input : Schema
        Resolved: the columns that are read.
    aggregates : tuple of (name, repr, summary)
        Resolved: each aggregate as the user wrote it, and its implementation.
    limit : int
        Resolved: keys that one shard may store.
    """

    agg: tuple[tuple[str, Aggregation], ...]
    changes: Changes = checkpointed()
    max_keys: int
    when_full: WhenFull
    aggregates: tuple[tuple[str, str, Summary], ...] = checkpointed(
        identity_of_aggregates, {"parameter": "agg"}, default=(), repr=False
    )
    limit: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS)
        self.refuse_no_aggregate()
        given = {"by": list(self.by), "agg": [name for name, _ in self.agg]}
        names, added = [*given["by"], *given["agg"]], (REVISION, CHANGE_TYPE)
        refuse_taken_names(names, added, given)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are aggregated."""
        return self.aggregated

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the aggregates against the schema of the input."""
        (schema,) = schemas
        self.require_columns(schema)
        require_keys(schema, self.by)
        aggregates = self.bind_aggregates(schema, time="")
        # A sketch has already refused a change stream, with its own remedy.
        self._refuse_changes(schema)
        read = {*self.by, *(name for *_, summary in aggregates for name in summary.inputs)}
        read = read or {schema.names[0]}  # rows without columns cannot be counted
        return replace(
            self,
            input=pa.schema([column for column in schema if column.name in read]),
            aggregates=aggregates,
            limit=-(-self.max_keys // shards),
        )

    def _refuse_changes(self, schema: pa.Schema) -> None:
        if CHANGE_TYPE in schema.names:
            raise conditions.CHANGE_STREAM_INPUT.error(
                change_type=CHANGE_TYPE, got=f"a frame with the column {CHANGE_TYPE!r}"
            )

    @property
    def output(self) -> pa.Schema:
        """Keys, values, the revision, and with "retract" the change type."""
        change = [(CHANGE_TYPE, pa.string())] if self.changes == "retract" else []
        return pa.schema([*self.keys, *self.value_columns, (REVISION, pa.int32()), *change])


class RunningCore(AggregatingCore[RunningSpec]):
    """Running aggregates: per key over everything so far, emitted whenever a value changes."""

    STATE = StateFormat("windows.running", 1)
    TABLES: ClassVar = {"keys": Table(lambda spec: state_schema(spec, ("revision", pa.int32())))}
    METRICS: ClassVar = {
        "rows": "rows",
        "ignored": "rejected",
        "results": "results",
        "corrections": "corrections",
    }
    """Names of the observed metrics, and the fields of :class:`Metrics` that they show."""

    def pack(self, spec: RunningSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Aggregate states of the keys over the rows, and the number of rows of each key."""
        rows = conform(rows, spec.input)
        codes = key_codes([rows.column(name) for name in spec.by], len(rows))
        groups, firsts = Groups.of(codes)
        keys = take(rows.select(list(spec.by)), firsts).columns
        states = update_states(spec, groups, rows)
        schema = state_schema(spec, ("rows", pa.int64()))
        return pa.table([*keys, pa.array(groups.sizes()), *states], schema=schema)

    def step(
        self, spec: RunningSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch."""
        (packed,) = inputs
        stored = state.tables["keys"]
        key_columns = zip(keys_of(stored, spec), keys_of(packed, spec), strict=True)
        keys = [pa.concat_arrays(both) for both in key_columns]
        # A stored key is unique and precedes all packed ones: its group number is its row number.
        groups, firsts = Groups.of(key_codes(keys, len(stored) + len(packed)))
        arrived = groups.ids[len(stored) :]
        touched = np.unique(arrived)
        old, new = touched[touched < len(stored)], touched[touched >= len(stored)]
        new = _admit(spec, new, keys, firsts, len(stored))
        slot = np.full(groups.count, -1, np.int64)
        slot[np.concatenate([old, new])] = np.arange(len(old) + len(new))
        admitted = np.flatnonzero(slot[arrived] >= 0)

        states_before = states_of(take(stored, old), spec)
        pairs = zip(states_before, states_of(take(packed, admitted), spec), strict=True)
        members = Groups(np.concatenate([slot[old], slot[arrived[admitted]]]), len(old) + len(new))
        states = merge_states(spec, members, [pa.concat_arrays(pair) for pair in pairs])
        before, after = (
            estimate_values(spec, states_before),
            estimate_values(spec, states),
        )
        differs = rows_differ(before, [value.slice(0, len(old)) for value in after])
        changed, first = np.flatnonzero(differs), len(old) + np.arange(len(new))

        last_revision = integers(stored, "revision").astype(np.int64)[old]
        revision = np.concatenate([last_revision + differs, np.zeros(len(new), np.int64)])
        revision = revision.astype(np.int32)
        index = pa.array(np.concatenate([firsts[old], firsts[new]]))
        key = [column.take(index) for column in keys]
        untouched = np.ones(len(stored), np.bool_)
        untouched[old] = False
        entries = pa.table([*key, pa.array(revision), *states], schema=self.layout(spec)["keys"])
        output = [_rows(spec, key, after, revision, first, INSERT)]
        if spec.changes == "retract":
            output.append(_rows(spec, key, before, revision - 1, changed, PREIMAGE))
        output.append(_rows(spec, key, after, revision, changed, POSTIMAGE))
        sizes = integers(packed, "rows")
        metrics = Metrics(
            rows=int(sizes.sum()),
            rejected=int(sizes.sum() - sizes[admitted].sum()),
            results=len(first),
            corrections=len(changed),
        )
        tables = {"keys": concat([stored.filter(pa.array(untouched)), entries])}
        return Step(State(None, tables), concat(output), spec.output.empty_table(), metrics)

    def check(self, spec: RunningSpec, state: State) -> None:
        """Keys are unique, and no more than the limit."""
        table = state.tables["keys"]
        printed = format_rows(table)
        groups, _ = Groups.of(key_codes(keys_of(table, spec), len(table)))
        assert groups.count == len(table) <= spec.limit, f"duplicate keys, or too many: {printed}"
        assert (integers(table, "revision") >= 0).all(), printed


def _admit(spec: RunningSpec, new: Ids, keys: list[pa.Array], firsts: Ids, stored: int) -> Ids:
    """The new keys that fit below the limit."""
    room = max(spec.limit - stored, 0)
    if len(new) <= room:
        return new
    if spec.when_full == "fail":
        raise conditions.KEYS_FULL.error(
            limit=spec.limit, got=f"{stored + len(new):,} keys in one shard"
        )
    # Choose by hash, so that the choice does not depend on the order of rows.
    index = pa.array(firsts[new])
    hashes = digests([key.take(index) for key in keys])
    return np.sort(new[np.argsort(hashes, kind="stable")[:room]])


def _rows(
    spec: RunningSpec,
    keys: Sequence[pa.Array],
    values: Sequence[pa.Array],
    revision: npt.NDArray[np.int32],
    rows: npt.NDArray[np.integer],
    change: str,
) -> pa.Table:
    """Rows of the output: the values at these positions."""
    index = pa.array(rows)
    columns = [column.take(index) for column in (*keys, *values)]
    columns.append(pa.array(revision[rows]))
    if spec.changes == "retract":
        columns.append(pa.repeat(change, len(rows)))
    return pa.table(columns, schema=spec.output)
