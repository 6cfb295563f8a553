"""The laws of a core."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, permutations
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import decode, encode
from streamops.kernel.columns import combine_chunks, concat, key_codes, take
from streamops.kernel.core import SIDES, Metrics, State, Step, mark_owned
from streamops.kernel.errors import located
from streamops.kernel.groups import Groups
from streamops.kernel.hashing import shard_of
from streamops.kernel.placement import EVERYWHERE, redistribute_states
from streamops.kernel.segments import UNMERGED, Segment, Segments
from streamops.kernel.time import MAX_INSTANT
from streamops.kernel.values import comparable
from streamops.testing.laws.cases import (
    Batch,
    Case,
    Row,
    fold_steps,
    play,
    same_rows,
    same_steps,
    same_tables,
    split_rows,
    to_rows,
)

__tracebackhide__ = True


def stream_equals_batch(case: Case) -> None:
    """As long as no row is late, the folded stream equals the batch result, for every cutting.

    Rows of two inputs may meet in any order, even if one input ends before the other starts.
    """
    rng = np.random.default_rng(case.seed)
    everything, empty = case.all_rows(), case.empty_batch()
    expected = _results(case, to_rows(case.core.run(case.spec, case.pack(everything)).rows))
    one_by_one = [
        [(*empty[:at], everything[at], *empty[at + 1 :]) for at in order]
        for order in permutations(range(len(empty)))
    ]
    for batches in (case.batches, *(_cut(everything, rng) for _ in range(2)), *one_by_one):
        steps = play(case, batches, _marks_without_late_rows(case, batches))
        assert not any(s.metrics.stragglers + s.metrics.too_late for s in steps), "a row was late"
        same_rows(fold_steps(case, steps), expected, "stream and batch")


def stream_equals_batch_over_accepted_rows(case: Case) -> None:
    """The folded stream equals the batch result over the accepted rows, for every cutting."""
    rng = np.random.default_rng(case.seed)
    everything = case.all_rows()
    for batches in (case.batches, *(_cut(everything, rng) for _ in range(2))):
        steps = case.steps if batches is case.batches else play(case, batches)
        marks = [None, *case.watermarks(batches)][: len(batches)]
        accepted = case.run_accepted(list(zip(batches, marks, strict=True)))
        same_rows(
            fold_steps(case, steps),
            _results(case, accepted),
            "stream and batch over accepted rows",
        )


def output_is_a_valid_change_stream(case: Case) -> None:
    """Results are published once, then revised one by one; preimages equal the published rows.

    The first revision is 0, or 1 if all rows of the result were stragglers. It is higher only if the
    result replaces others, which were retracted.
    """
    fold_steps(case, case.steps)
    first: dict[object, int | None] = {}
    retracted = False
    for row in (row for step in case.steps for row in to_rows(step.output) if case.key is not None):
        retracted |= row.get("_change_type") == "delete"
        key = comparable([row[name] for name in case.key or ()])
        revision = first.setdefault(key, row.get("revision"))
        assert revision in {None, 0, 1} or retracted, first


def order_within_a_batch_is_irrelevant(case: Case) -> None:
    """Shuffled micro-batches give the same steps."""
    _play_as_well(case, shuffled=True)


def packing_in_pieces_changes_nothing(case: Case) -> None:
    """Rows may be packed by any number of tasks before the shuffle."""
    _play_as_well(case, in_pieces=True)


def a_restart_changes_nothing(case: Case) -> None:
    """State may be encoded and decoded between any two steps."""
    _play_as_well(case, restarted=True)


_WAYS: Mapping[Callable[[Case], None], str] = {
    order_within_a_batch_is_irrelevant: "shuffled",
    packing_in_pieces_changes_nothing: "in_pieces",
    a_restart_changes_nothing: "restarted",
}
"""Laws that play the same history in another way, and the parameter of ``_play_as_well``."""


def _play_as_well(
    case: Case, *, shuffled: bool = False, in_pieces: bool = False, restarted: bool = False
) -> None:
    """Play the history in another way, which gives the same steps."""
    rng = np.random.default_rng(case.seed)
    header = case.core.STATE, case.spec.identity, 3

    def shuffle(batch: Batch) -> Batch:
        return tuple(take(rows, rng.permutation(len(rows))) for rows in batch)

    def split(rows: pa.Table) -> list[pa.Table]:
        return split_rows(rows, rng) if in_pieces else [rows]

    def restart(state: State) -> State:
        if not restarted:
            return state
        with located("laws"):
            tables = decode(encode(*header, state.tables), *header)
        expected = dict(case.core.layout(case.spec))
        assert {name: table.schema for name, table in tables.items()} == expected
        return State(state.watermark, tables)

    batches = [shuffle(batch) if shuffled else batch for batch in case.batches]
    found = play(case, batches, between=restart, split=split)
    ways = {"shuffled": shuffled, "packed in pieces": in_pieces, "with restarts": restarted}
    same_steps(case.steps, found, ", ".join(way for way, is_so in ways.items() if is_so))


def a_state_is_a_value(case: Case) -> None:
    """Steps do not mutate the state: a step gives the same result after other steps.

    Three of the states are used before the next step, as this takes a step over all rows for each.
    """
    rng = np.random.default_rng(case.seed)
    used = {*rng.permutation(len(case.batches) + 1)[:3].tolist()}
    numbers = count()

    def use(state: State) -> State:
        if next(numbers) not in used:
            return state
        before = [comparable(to_rows(table)) for table in state.tables.values()]
        case.core.step(case.spec, state, case.pack(case.all_rows()), None)
        case.core.finish(case.spec, state)
        assert [comparable(to_rows(table)) for table in state.tables.values()] == before
        return state

    same_steps(case.steps, play(case, case.batches, between=use), "after other steps")


def sharding_changes_nothing(case: Case) -> None:
    """Keys may be assigned to any number of shards, by any function."""
    rng = np.random.default_rng(case.seed)
    shards, marks = int(rng.integers(1, 5)), case.watermarks(case.batches)
    runs = [play(case, batches, marks) for batches in _split_by_key(case, shards, rng)]
    merged = [_merge_steps(steps) for steps in zip(*runs, strict=True)]
    same_steps(case.steps, merged, f"over {shards} shards")


def _merge_steps(steps: Sequence[Step], everywhere: Collection[str] = ()) -> Step:
    """One step with the rows and the states of those of all shards.

    ``everywhere`` has the names of tables with the same rows in all of them.
    """
    tables = {}
    for name in steps[0].state.tables:
        of_shards = [step.state.tables[name] for step in steps]
        tables[name] = of_shards[0] if name in everywhere else concat(of_shards)
    return Step(
        State(steps[0].state.watermark, tables),
        concat([step.output for step in steps]),
        concat([step.late for step in steps]),
        sum((step.metrics for step in steps), Metrics()),
    )


def rescaling_changes_nothing(case: Case) -> None:
    """The number of shards may change between two steps: keys move with all of their state."""
    rng = np.random.default_rng(case.seed)
    few, many = (int(n) for n in rng.integers(1, 5, 2))
    at, marks = int(rng.integers(0, len(case.batches) + 1)), case.watermarks(case.batches)
    shards, placement, identity = few, case.core.placement, case.spec.identity
    states = [State.empty(case.core.layout(case.spec))] * few
    everywhere = [name for name, rule in placement.tables.items() if rule == EVERYWHERE]
    merged = []
    for number, (batch, mark) in enumerate(zip(case.batches, marks, strict=True)):
        if number == at and not placement.is_single:
            _, there = redistribute_states(placement, identity, dict(enumerate(states)), few, many)
            _, back = redistribute_states(placement, identity, dict(enumerate(there)), many, few)
            for one, other in zip(states, back, strict=True):
                if placement.watermark == "equal":
                    same_tables(one, other, f"{few} shards, {many}, and {few} again")
            shards, states = many, there
        steps = [
            case.core.step(case.spec, state, part, mark)
            for state, part in zip(states, _packs_of_shards(case, batch, shards), strict=True)
        ]
        states = [step.state for step in steps]
        for state in states:
            case.core.check(case.spec, state)
        merged.append(_merge_steps(steps, everywhere))
    same_steps(case.steps, merged, f"{few} shards, and {many} from step {at} on")


def _packs_of_shards(case: Case, batch: Batch, shards: int) -> list[Batch]:
    """The packed rows of each shard, as the packer assigns them, with copies of those for every shard."""
    parts = []
    packed = case.pack(batch)
    for number, (input_, rows) in enumerate(zip(case.spec.inputs, batch, strict=True)):
        shard = shard_of(rows, input_.by, shards)
        if input_.is_broadcast:
            own = [packed[number]] * shards
            if input_.by:
                own = [mark_owned(packed[number], pa.array(shard == n)) for n in range(shards)]
            parts.append(own)
            continue
        copies = None if input_.replicate is None else input_.replicate(rows)
        own = [rows.filter(pa.array(shard == n)) for n in range(shards)]
        own = [part if copies is None else concat([part, copies]) for part in own]
        parts.append([case.core.pack(case.spec, part, SIDES[number]) for part in own])
    return list(zip(*parts, strict=True))


@dataclass(slots=True)
class MemorySegments:
    """The segments of a shard in memory, in place of a state store.

    Parameters
    ----------
    limit : int
        Size beyond which a core moves a part of its state to segments.
    rows : dict of int to Table
        The rows of each segment.
    """

    limit: int
    rows: dict[int, pa.Table] = field(default_factory=dict)

    def reopen(self, state: State, *, put_back: bool = False, is_retained: bool = False) -> State:
        """The state as the next step reads it.

        As it was stored, or as a worker retained it, or as the state tools write it.
        """
        index: tuple[Segment, ...] = ()
        tables = dict(state.tables)
        if state.segments is not None:
            for number in state.segments.removed:
                del self.rows[number]
            self.rows |= state.segments.written
            index = state.segments.index
            assert {of.number for of in index} == self.rows.keys()
        if put_back and index:
            tables[UNMERGED], index = concat([self.rows[of.number] for of in index]), ()
            self.rows.clear()
        segments = Segments(lambda of: self.rows[of.number], index, self.limit)
        is_same = is_retained and not put_back
        return State(state.watermark, tables, segments, state.derived if is_same else {})


def segments_change_nothing(case: Case) -> None:
    """Rows of a large state may be stored apart, and put back into it by the state tools."""
    if not case.core.has_segments(case.spec):
        return
    rng = np.random.default_rng(case.seed)
    limit, put_back = int(rng.integers(0, 5)), int(rng.integers(0, max(len(case.batches), 1)))
    stored, numbers = MemorySegments(limit), count()

    def reopen(state: State) -> State:
        return stored.reopen(state, put_back=next(numbers) == put_back)

    found = play(case, case.batches, between=reopen)
    for number, (step, other) in enumerate(zip(case.steps, found, strict=True)):
        for name in ("output", "late"):
            rows, others = (to_rows(getattr(of, name)) for of in (step, other))
            same_rows(rows, others, f"step {number}: {name}, with segments")
        assert step.metrics == other.metrics, f"step {number}: {step.metrics} != {other.metrics}"
    ends = [to_rows(case.core.finish(case.spec, of[-1].state)) for of in (case.steps, found)]
    same_rows(ends[0], ends[1], "at the end, with segments")


def equals_the_oracle(case: Case) -> None:
    """Output, late rows and metrics of every step equal those of the oracle."""
    if case.oracle is None:
        return
    pairs = zip(case.steps, case.expected.steps, strict=True)
    for number, (step, expected) in enumerate(pairs):
        same_rows(to_rows(step.output), expected.emitted, f"step {number}: output, and the oracle")
        same_rows(to_rows(step.late), expected.late, f"step {number}: late, and the oracle")
        metrics = asdict(step.metrics)
        assert metrics == dict(expected.counts), f"step {number}: {metrics} != {expected.counts}"
    end = case.core.finish(case.spec, case.steps[-1].state)
    same_rows(to_rows(end), case.expected.end, "at the end, and the oracle")


def state_stays_within_its_bound(case: Case) -> None:
    """No step leaves more rows in state than the documentation of the operator states."""
    if case.oracle is None:
        return
    for step, bound in zip(case.steps, case.expected.bounds, strict=True):
        assert step.state.rows <= bound, f"{step.state.rows} > {bound}"


def metrics_count_every_row(case: Case) -> None:
    """The metrics count every input row, and every published result."""
    for step, batch in zip(case.steps, case.batches, strict=True):
        metrics, invalid = step.metrics, case.count_invalid(batch)
        assert metrics.rows == sum(map(len, batch))
        if len(batch) == 1:
            assert metrics.rejected == invalid, f"{metrics}: {invalid} without a valid time"
        else:
            # A change may be rejected for another reason. Unlike windows, joins classify a row once.
            assert metrics.rejected >= invalid, f"{metrics}: {invalid} without a valid time"
            on_time_or_late = metrics.on_time + metrics.stragglers + metrics.too_late
            assert not case.has_event_time or metrics.rejected + on_time_or_late == metrics.rows
        changes = [row.get("_change_type") for row in to_rows(step.output)]
        published = len(changes) - changes.count("update_preimage") - changes.count("delete")
        assert metrics.results + metrics.corrections == published, f"{metrics}: {published}"


def the_deadline_is_exact(case: Case) -> None:
    """A step without rows changes something at ``next_deadline``, and nothing before it.

    Without event time there is no watermark, and no deadline.
    """
    core, spec, no_rows = case.core, case.spec, case.pack(case.empty_batch())

    def step_around_deadline(state: State) -> State:
        deadline = core.next_deadline(spec, state)
        assert case.has_event_time or deadline is None, f"no watermark will reach {deadline}"
        before: int | None = MAX_INSTANT - 1 if case.has_event_time else None
        if deadline is not None:
            assert state.watermark is None or deadline > state.watermark, f"overdue: {deadline}"
            step = core.step(spec, state, no_rows, deadline)
            is_changed = step.state.rows < state.rows or _differ(state, step.state)
            assert len(step.output) or is_changed, f"no reason for {deadline}"
            before = deadline - 1
        early = core.step(spec, state, no_rows, before)
        assert not len(early.output) + len(early.late), f"before {deadline}: {early}"
        assert early.metrics == type(early.metrics)()
        same_tables(state, early.state, "before the deadline")
        return state

    play(case, case.batches, between=step_around_deadline)


def _differ(left: State, right: State) -> bool:
    """Whether two states have different rows."""
    try:
        same_tables(left, right, "")
    except AssertionError:
        return True
    return False


def retracting_all_changes_leaves_nothing(case: Case) -> None:
    """Once all changes of the history are retracted, the folded output and the state are empty."""
    if not case.undo:
        return
    batches = [*case.batches, *case.undo]
    steps = play(case, batches, [None] * len(batches))
    remaining = fold_steps(case, steps)
    assert not remaining, f"published and not retracted: {remaining}"
    tables = {name: to_rows(table) for name, table in steps[-1].state.tables.items()}
    assert not steps[-1].state.rows, f"still in state: {tables}"


CORE: tuple[Callable[[Case], None], ...] = (
    stream_equals_batch,
    stream_equals_batch_over_accepted_rows,
    output_is_a_valid_change_stream,
    order_within_a_batch_is_irrelevant,
    packing_in_pieces_changes_nothing,
    a_restart_changes_nothing,
    a_state_is_a_value,
    sharding_changes_nothing,
    rescaling_changes_nothing,
    segments_change_nothing,
    equals_the_oracle,
    state_stays_within_its_bound,
    metrics_count_every_row,
    the_deadline_is_exact,
    retracting_all_changes_leaves_nothing,
)
"""Every law of a core."""


def check_laws(case: Any, laws: Sequence[Callable[[Any], None]] = CORE) -> None:
    """Fail if a case, of a core or of a summary, violates one of the laws, and name the law.

    One call checks all laws: the case is drawn once, and its history is played once. Laws that play it in
    another way are checked together first, and one by one only if that fails.
    """
    ways = [law for law in laws if law in _WAYS]
    together: Exception | None = None
    try:
        if ways:
            _play_as_well(case, **{_WAYS[law]: True for law in ways})
        laws = [law for law in laws if law not in _WAYS]
    except Exception as error:
        together = error
    for law in laws:
        try:
            law(case)
        except Exception as error:
            error.add_note(f"Violated law: {law.__name__}.")
            raise
    if together is not None:
        together.add_note(f"Violated laws, only together: {', '.join(w.__name__ for w in ways)}.")
        raise together


def _results(case: Case, rows: Sequence[Row]) -> list[Row]:
    """Rows of a batch result without its side output, and the columns that a folded stream lacks."""
    ignored = {*case.ignore, "_change_type", "late"}
    # A column of a user's own operator may have the same name, but is no struct.
    results = (
        row for row in rows if row.get("late") is None and not isinstance(row.get("rejected"), dict)
    )
    return [{name: v for name, v in row.items() if name not in ignored} for row in results]


def _cut(batch: Batch, rng: np.random.Generator) -> list[Batch]:
    """Cut each input at random into the same number of micro-batches."""
    pieces = int(rng.integers(1, 7))
    return list(zip(*(split_rows(rows, rng, pieces) for rows in batch), strict=True))


def _marks_without_late_rows(case: Case, batches: Sequence[Batch]) -> list[int | None]:
    """For each micro-batch, a watermark below the times of all later ones."""
    marks: list[int | None] = []
    least: int | None = None
    for batch in reversed(batches):
        marks.insert(0, None if least is None else least - 1)
        least = min([*case.times(batch), *([] if least is None else [least])], default=None)
    return marks


def _split_by_key(case: Case, shards: int, rng: np.random.Generator) -> list[list[Batch]]:
    """The micro-batches of each shard. Rows of one key, of all inputs, are in the same shard."""
    inputs, count = case.spec.inputs, len(case.batches)
    everything = case.all_rows()
    keys = [
        pa.concat_arrays([combine_chunks(t.column(n)) for t, n in zip(everything, by, strict=True)])
        for by in zip(*(input_.by for input_ in inputs), strict=True)
    ]
    groups = Groups.of(key_codes(keys, sum(map(len, everything))))[0]
    shard_of = rng.integers(0, shards, groups.count)[groups.ids]
    tables = [batch[at] for at in range(len(inputs)) for batch in case.batches]
    parts = np.split(shard_of, np.cumsum([len(table) for table in tables])[:-1])
    result = []
    for shard in range(shards):
        pieces = [t.filter(pa.array(part == shard)) for t, part in zip(tables, parts, strict=True)]
        by_input = [pieces[at * count : (at + 1) * count] for at in range(len(inputs))]
        result.append(list(zip(*by_input, strict=True)))
    return result
