"""Windows beside those of the previous period, as their results come.

The input are results of windows: a row for each key and window, its event time the end of the
window. A comparison is *on time* once the operator's watermark has reached that end; then it is
published. A row is a *straggler* if the end of its window is not above the watermark of the step
before, and *too late* if it lies the allowed lateness or more below it. With corrections, a
straggler changes the comparison of its own window, and those of the windows whose previous one
it is.

What is published is a view of the windows there are: it is looked at before and after the step,
and what differs is columns. A window is stored until no window can come, or change, whose previous one
it is.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    is_change_type,
)
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
    to_floats,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.time import MIN_INSTANT, Instants, format_instant
from streamops.windows.core.compare_spec import WIDEST_DECIMAL, CompareSpec, difference_type
from streamops.windows.core.output import deliver, result_rows
from streamops.windows.core.state_rows import keys_of, micros, usable_times
from streamops.windows.core.window_table import WindowTable, read_windows, window_schema

__all__ = [
    "STATE",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

Revisions = npt.NDArray[np.int32]

STATE = StateFormat("windows.compare", 1)

_BEGINNING, _END = -(1 << 62), 1 << 62


def layout(spec: CompareSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {"windows": window_schema(spec)}


def empty(spec: CompareSpec) -> State:
    """The state before the first step."""
    return State(None, {"windows": window_schema(spec).empty_table()})


def pack(spec: CompareSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows as they are: each is a window of its own."""
    return conform(rows, spec.input)


def step(
    spec: CompareSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring."""
    (packed,) = inputs
    previous_watermark = state.watermark
    watermark = max((w for w in (previous_watermark, watermark) if w is not None), default=None)
    was_by = _BEGINNING if previous_watermark is None else previous_watermark
    now_by = _BEGINNING if watermark is None else watermark
    rows, late, counts = _classify(spec, packed, previous_watermark)
    windows = WindowTable.of(spec, state.tables["windows"], read_windows(spec, rows))

    revision = windows.revision
    emitted, corrected = _correct(spec, windows, revision, was_by)
    prompt = np.flatnonzero((windows.new >= 0) & (windows.end > was_by) & (windows.end <= now_by))
    revision[prompt] = 0
    emitted.append(
        _result_rows(windows, prompt, windows.new, windows.previous(prompt), revision, INSERT)
    )
    counts += corrected + Metrics(results=len(prompt))

    alive = _alive(spec, windows.start, windows.end, now_by)
    tables = {"windows": windows.retain(alive, revision)}
    return Step(State(watermark, tables), concat(emitted), late, counts)


def finish(spec: CompareSpec, state: State) -> pa.Table:
    """Every comparison that is not on time yet."""
    return step(spec, state, [spec.input.empty_table()], _END).output


def run(spec: CompareSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result. Nothing is late; what cannot be placed is delivered where rows are."""
    only = step(spec, empty(spec), inputs, _END)
    return concat([only.output, only.late])


def next_deadline(spec: CompareSpec, state: State) -> int | None:
    """The first comparison that is not on time, or the first moment something can be forgotten."""
    table = state.tables["windows"]
    start, end = micros(table, "start"), micros(table, "end")
    is_open = end > (_BEGINNING if state.watermark is None else state.watermark)
    if spec.corrects:
        is_open &= np.asarray(combine_chunks(table.column("is_there")))
    if not len(table):
        return None
    lasts = spec.previous_period.at_least + spec.retention  # and maybe some days more
    due = np.where(is_open, end, end + lasts)
    first = int(np.argmin(due))
    if is_open[first]:
        return int(due[first])
    until = int(spec.previous_period.over(start[[first]], end[[first]])[0]) + spec.retention
    near = np.flatnonzero(~is_open & (due < until))
    due[near] = spec.previous_period.over(start[near], end[near]) + spec.retention
    return min(until, int(due.min()))


def check(spec: CompareSpec, state: State) -> None:
    """Each window is there once per key, and none is stored beyond its time."""
    table = state.tables["windows"]
    start, end = micros(table, "start"), micros(table, "end")
    codes = key_codes(keys_of(table, spec), len(table))
    watermark = _BEGINNING if state.watermark is None else state.watermark
    details = f"watermark {state.watermark}\n{table.to_pylist()}"
    assert Groups.of(pair_codes(pair_codes(codes, start), end))[0].count == len(table), (
        f"twice: {details}"
    )
    assert (start < end).all(), f"an empty window: {details}"
    assert (spec.previous_period.over(start, end) + spec.retention > watermark).all(), (
        f"overdue: {details}"
    )
    if spec.corrects:
        is_published = micros(table, "revision") >= 0
        is_there = np.asarray(combine_chunks(table.column("is_there")))
        assert (is_published >= (is_there & (end <= watermark))).all(), f"not published: {details}"
        assert (end[is_published] <= watermark).all(), f"published too early: {details}"


def _alive(spec: CompareSpec, start: Instants, end: Instants, by: int) -> Mask:
    """The windows whose time is not over.

    When it is, is asked only of those that may be near it: by the calendar, it takes a while.
    """
    alive = end + (spec.previous_period.at_least + spec.retention) > by
    old = np.flatnonzero(~alive)
    alive[old] = spec.previous_period.over(start[old], end[old]) + spec.retention > by
    return alive


def _correct(
    spec: CompareSpec, windows: WindowTable, revision: Revisions, was_by: int
) -> tuple[list[pa.Table], Metrics]:
    """What stragglers change of what was published; the revisions are raised in place."""
    stale = windows.touched & (windows.end <= was_by)
    if not stale.any():  # what came changes no window that ended before it
        return [], Metrics()
    chosen = np.flatnonzero((windows.end <= was_by) & np.isin(windows.codes, windows.codes[stale]))
    previous = windows.previous(chosen)
    hit = stale[chosen]
    for found in previous:
        hit |= (found >= 0) & stale[found]
    chosen, previous = chosen[hit], [found[hit] for found in previous]

    existed, exists = windows.old[chosen] >= 0, windows.new[chosen] >= 0
    was, now = (windows.values(rows, chosen, previous) for rows in (windows.old, windows.new))
    again = np.flatnonzero(existed & exists & rows_differ(was, now))
    deleted, first = np.flatnonzero(existed & ~exists), np.flatnonzero(~existed & exists)
    anew = int((revision[chosen[first]] >= 0).sum())
    number = revision.copy()
    revision[chosen[first]] = np.maximum(number[chosen[first]] + 1, 1)  # only stragglers made it
    revision[chosen[again]] += 1

    def rows_of_change(positions: Ids, rows: Ids, at: Revisions, change: str) -> pa.Table:
        candidates = [found[positions] for found in previous]
        return _result_rows(windows, chosen[positions], rows, candidates, at, change)

    emitted = [
        rows_of_change(deleted, windows.old, number, DELETE),
        rows_of_change(first, windows.new, revision, INSERT),
    ]
    if spec.retracts:
        emitted.append(rows_of_change(again, windows.old, number, PREIMAGE))
    emitted.append(rows_of_change(again, windows.new, revision, POSTIMAGE))
    counts = Metrics(results=len(first) - anew, corrections=len(again) + anew)
    return emitted, counts


def _result_rows(
    windows: WindowTable,
    chosen: Ids,
    rows: Ids,
    previous: list[Ids],
    revision: Revisions,
    change: str,
) -> pa.Table:
    """Rows of the output for these windows, by what they were or what they are."""
    values = windows.values(rows, chosen, previous)
    count = len(windows.spec.values)
    about = windows.about(chosen)
    columns = compare_values(windows.spec, about, values[:count], values[count:])
    return result_rows(windows.spec, [*about, *columns], revision[chosen], change)


def _classify(
    spec: CompareSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """The rows that say what windows are; late rows to deliver; the count of all."""
    total, pieces = len(packed), [spec.output.empty_table()]
    reason = _reasons(spec, packed)
    bad = np.flatnonzero(reason != "")
    if len(bad):
        if spec.routes:
            pieces.append(deliver(spec, take(packed, bad), None, reason[bad], None))
        packed = take(packed, np.flatnonzero(reason == ""))
    counts = Metrics(rows=total, rejected=len(bad))
    (start, _), (end, _) = (timestamp_micros(packed.column(name)) for name in spec.time_columns)
    accepted = np.ones(len(packed), np.bool_)
    if previous_watermark is not None:
        on_time, too_late = (
            end > previous_watermark,
            end <= previous_watermark - spec.allowed_lateness,
        )
        counts += Metrics(
            stragglers=int((~on_time & ~too_late).sum()), too_late=int(too_late.sum())
        )
        accepted = ~too_late if spec.corrects else on_time
        late = np.flatnonzero(~accepted)
        if spec.routes and len(late):
            word = np.where(too_late[late], "too_late", "straggler")
            missed = (start[late], end[late])
            pieces.append(deliver(spec, take(packed, late), missed, word, previous_watermark))
    counts += Metrics(on_time=len(packed) - counts.stragglers - counts.too_late)
    if spec.revised == "changes":  # a postimage says it all
        accepted &= np.asarray(combine_chunks(packed.column(CHANGE_TYPE))) != PREIMAGE
    if not accepted.all():
        packed = take(packed, np.flatnonzero(accepted))
    return packed, concat(pieces), counts


def _reasons(spec: CompareSpec, rows: pa.Table) -> npt.NDArray[np.str_]:
    """Why each row cannot be taken; "" where it can."""
    end, is_usable = usable_times(spec, rows)
    start, is_known = timestamp_micros(rows.column("window_start"))
    is_present = timestamp_micros(rows.column("window_end"))[1]
    is_window: Mask = is_known & (start >= MIN_INSTANT) & (start < end)
    is_change = np.ones(len(rows), np.bool_)
    if spec.revised != "never":
        is_change &= np.asarray(combine_chunks(rows.column("revision")).is_valid())
    if spec.revised == "changes":
        is_change &= is_change_type(rows.column(CHANGE_TYPE))
    return np.select(
        [~is_present, ~is_usable, ~is_window, ~is_change],
        ["null_time", "time_out_of_range", "bad_window", "bad_change"],
        "",
    )


def compare_values(
    spec: CompareSpec,
    about: Sequence[pa.Array],
    values: Sequence[pa.Array],
    previous: Sequence[pa.Array],
) -> list[pa.Array]:
    """Values, previous values, changes and rates, in the order of the output; ``about`` has the windows."""
    columns = []
    for name, value, before in zip(spec.values, values, previous, strict=True):
        try:
            change = _change(value, before)
        except pa.ArrowInvalid:
            raise _overflow(spec, about, name, value, before) from None
        base = to_floats(before)
        known = np.asarray(change.is_valid()) & (base != 0)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities, as IEEE 754 has them
            rate = np.divide(to_floats(change), base, out=np.zeros(len(base)), where=known)
        columns += [value, before, change, pa.array(rate, mask=~known)]
    return columns


def _change(value: pa.Array, before: pa.Array) -> pa.Array:
    dtype = difference_type(value.type)
    wide = pa.decimal256(WIDEST_DECIMAL + 1, dtype.scale) if pa.types.is_decimal(dtype) else dtype
    return pc.subtract_checked(value.cast(wide), before.cast(wide)).cast(dtype)


def _overflow(
    spec: CompareSpec, about: Sequence[pa.Array], name: str, value: pa.Array, before: pa.Array
) -> CapacityError:
    """The error of the first change that does not fit."""

    def fails(row: int) -> bool:
        try:
            _change(value[: row + 1], before[: row + 1])
        except pa.ArrowInvalid:
            return True
        return False

    row = bisect.bisect_left(range(len(value)), True, key=fails)
    keys = {key: column[row].as_py() for key, column in zip(spec.by, about, strict=False)}
    begin = about[len(spec.by)].cast(pa.int64())[row].as_py()
    dtype = difference_type(value.type)
    type_name = (
        f"decimal({dtype.precision},{dtype.scale})" if pa.types.is_decimal(dtype) else "bigint"
    )
    return CapacityError(
        "CHANGE_OVERFLOW",
        "a change does not fit into its type",
        where="windows.compare",
        got=f"{value[row].as_py()} after {before[row].as_py()} in {name!r} of {keys}, "
        f"window of {format_instant(begin)}",
        expected=f"changes that fit into {type_name}",
        fix=f"cast {name!r} to double before",
    )
