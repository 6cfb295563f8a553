"""Running summaries: of each key over everything that came, told whenever they say something else.

There is no event time: nothing is late, and nothing is ever final. What a key says changes with its
rows only, so a step looks at the keys of its rows, and what each of them said before is computed
from its state as it was before the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE, PREIMAGE, REVISION
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, rows_differ, take
from streamops.kernel.contract import Counts, State, StateFormat, Step, Summary, aggregate_identity
from streamops.kernel.errors import CapacityError
from streamops.kernel.group_states import estimate_all, merge_all, update_all
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.hashing import xxhash64
from streamops.kernel.without_event_time import finish, next_deadline

__all__ = [
    "STATE",
    "Changes",
    "RunningSpec",
    "WhenFull",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("sketches.running", 1)

Changes = Literal["update", "retract"]
WhenFull = Literal["fail", "ignore_new"]


@dataclass(frozen=True, slots=True)
class RunningSpec:
    """Settings, bound to the schema of their input.

    Parameters
    ----------
    where : str
        The operator, for errors.
    by : tuple of str
        Key columns.
    aggregates : tuple of (name, words, summary)
        What is kept, under which name; the words in which the user asked for it.
    input : Schema
        The columns that are read.
    changes : str
        How a value that changed is told.
    limit : int
        Keys that one shard may keep.
    when_full : str
        What happens to rows of further ones.
    """

    where: str
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str, Summary], ...]
    input: pa.Schema
    changes: Changes
    limit: int
    when_full: WhenFull

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns."""
        return [self.input.field(name) for name in self.by]

    @property
    def summaries(self) -> list[Summary]:
        """The summaries, in order."""
        return [summary for _, _, summary in self.aggregates]

    @property
    def output(self) -> pa.Schema:
        """Keys, values, and how often they were told."""
        values = [(name, summary.result) for name, _, summary in self.aggregates]
        change = [(CHANGE_TYPE, pa.string())] if self.changes == "retract" else []
        return pa.schema([*self.keys, *values, (REVISION, pa.int32()), *change])

    @property
    def origins(self) -> dict[str, str]:
        """Columns of the output that hold values of one of the input."""
        return {name: name for name in self.by}

    @property
    def event_time(self) -> str:
        """There is none; the column that carries what the next operator must know."""
        return REVISION

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. The limit is not in it: it may change."""
        return {
            "by": [[field.name, str(field.type)] for field in self.keys],
            "agg": [
                aggregate_identity(name, words, summary, self.input)
                for name, words, summary in self.aggregates
            ],
            "changes": self.changes,
        }


def layout(spec: RunningSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {"keys": _schema(spec, ("revision", pa.int32()))}


def empty(spec: RunningSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: RunningSpec, rows: pa.Table) -> pa.Table:
    """States of the keys over the rows, and how many these were."""
    rows = conform(rows, spec.input)
    codes = key_codes([rows.column(name) for name in spec.by], len(rows))
    groups, firsts = Groups.of(codes)
    keys = take(rows.select(list(spec.by)), firsts).columns
    states = update_all(spec.summaries, groups, rows)
    schema = _schema(spec, ("rows", pa.int64()))
    return pa.table([*keys, pa.array(groups.sizes()), *states], schema=schema)


def step(spec: RunningSpec, state: State, packed: pa.Table, watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    kept = state.tables["keys"]
    keys = [pa.concat_arrays(both) for both in zip(*map(_keys(spec), (kept, packed)), strict=True)]
    # A kept key is there once and stands first: its number is its place.
    groups, firsts = Groups.of(key_codes(keys, len(kept) + len(packed)))
    came = groups.ids[len(kept) :]
    touched = np.unique(came)
    old, new = touched[touched < len(kept)], touched[touched >= len(kept)]
    new = _within(spec, new, keys, firsts, len(kept))
    slot = np.full(groups.count, -1, np.int64)
    slot[np.concatenate([old, new])] = np.arange(len(old) + len(new))
    entered = np.flatnonzero(slot[came] >= 0)

    was, arrived = _states(spec, kept, old), _states(spec, packed, entered)
    both = [pa.concat_arrays(pieces) for pieces in zip(was, arrived, strict=True)]
    members = Groups(np.concatenate([slot[old], slot[came[entered]]]), len(old) + len(new))
    states = merge_all(spec.summaries, members, both)
    before, after = estimate_all(spec.summaries, was), estimate_all(spec.summaries, states)
    differs = rows_differ(before, [value.slice(0, len(old)) for value in after])
    again, first = np.flatnonzero(differs), len(old) + np.arange(len(new))

    told = np.asarray(combine_chunks(kept.column("revision"))).astype(np.int64)[old]
    revision = np.concatenate([told + differs, np.zeros(len(new), np.int64)]).astype(np.int32)
    index = pa.array(np.concatenate([firsts[old], firsts[new]]))
    key = [column.take(index) for column in keys]
    untouched = np.ones(len(kept), np.bool_)
    untouched[old] = False
    entries = pa.table([*key, pa.array(revision), *states], schema=layout(spec)["keys"])
    said = [_told(spec, key, after, revision, first, INSERT)]
    if spec.changes == "retract":
        said.append(_told(spec, key, before, revision - 1, again, PREIMAGE))
    said.append(_told(spec, key, after, revision, again, POSTIMAGE))
    rows = np.asarray(combine_chunks(packed.column("rows")))
    counts = Counts(
        rows=int(rows.sum()),
        rejected=int(rows.sum() - rows[entered].sum()),
        results=len(first),
        corrections=len(again),
    )
    tables = {"keys": concat([kept.filter(pa.array(untouched)), entries])}
    return Step(State(None, tables), concat(said), spec.output.empty_table(), counts)


def run(spec: RunningSpec, packed: pa.Table) -> pa.Table:
    """The batch result: all rows in one step."""
    return step(spec, empty(spec), packed, None).emitted


def check(spec: RunningSpec, state: State) -> None:
    """Each key is there once, and there are no more than may be."""
    table = state.tables["keys"]
    shown = str(table.to_pylist())
    groups, _ = Groups.of(key_codes(_keys(spec)(table), len(table)))
    assert groups.count == len(table) <= spec.limit, f"a key twice, or too many: {shown}"
    assert (np.asarray(combine_chunks(table.column("revision"))) >= 0).all(), shown


def _within(spec: RunningSpec, new: Ids, keys: list[pa.Array], firsts: Ids, kept: int) -> Ids:
    """The new keys for which there is room."""
    room = max(spec.limit - kept, 0)
    if len(new) <= room:
        return new
    if spec.when_full == "fail":
        raise CapacityError(
            "KEYS_FULL",
            "there are more keys than may be kept",
            where=spec.where,
            got=f"{kept + len(new):,} keys in one shard",
            expected=f"at most {spec.limit:,} there: max_keys, divided by shards",
            fix="raise max_keys, which a checkpoint survives; or leave further keys out: "
            "when_full='ignore_new'",
        )
    # By their hash, so that it is not the order of arrival that says which.
    index = pa.array(firsts[new])
    hashes = xxhash64([key.take(index) for key in keys])
    return np.sort(new[np.argsort(hashes, kind="stable")[:room]])


def _schema(spec: RunningSpec, own: tuple[str, pa.DataType]) -> pa.Schema:
    keys = [(f"key.{i}", field.type) for i, field in enumerate(spec.keys)]
    states = [
        (f"agg.{i}.{name}", kind)
        for i, summary in enumerate(spec.summaries)
        for name, kind in summary.fields
    ]
    return pa.schema([*keys, own, *states])


def _keys(spec: RunningSpec) -> Any:
    return lambda table: [combine_chunks(table.column(i)) for i in range(len(spec.by))]


def _states(spec: RunningSpec, table: pa.Table, rows: npt.NDArray[np.integer]) -> list[pa.Array]:
    index = pa.array(rows)
    return [combine_chunks(column).take(index) for column in table.columns[len(spec.by) + 1 :]]


def _told(
    spec: RunningSpec,
    keys: Sequence[pa.Array],
    values: Sequence[pa.Array],
    revision: npt.NDArray[np.int32],
    rows: npt.NDArray[np.integer],
    change: str,
) -> pa.Table:
    """The values at these positions as rows of the output."""
    index = pa.array(rows)
    columns = [each.take(index) for each in (*keys, *values)]
    columns.append(pa.array(revision[rows]))
    if spec.changes == "retract":
        columns.append(pa.repeat(change, len(rows)))
    return pa.table(columns, schema=spec.output)
