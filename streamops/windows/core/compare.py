"""Windows beside those of the previous period, as their results come.

The input are results of windows: a row for each key and window, its event time the end of the
window. A comparison is *on time* once the operator's watermark has reached that end; then it is
published. A row is a *straggler* if the end of its window is not above the watermark of the step
before, and *too late* if it lies the allowed lateness or more below it. With corrections, a
straggler changes the comparison of its own window, and those of the windows whose previous one
it is.

What is published is a view of the windows there are: it is looked at before and after the step,
and what differs is said. A window is kept until no window can come, or change, whose previous one
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
from streamops.kernel.contract import Counts, State, StateFormat
from streamops.kernel.core import SideName, Step
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.time import MIN_INSTANT, Instants, format_instant
from streamops.windows.core.compare_spec import WIDEST_DECIMAL, CompareSpec, difference_type
from streamops.windows.core.output import deliver, stated
from streamops.windows.core.state_rows import keys_of, micros, placed
from streamops.windows.core.window_table import Book, arrived, window_schema

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
    judged_by = state.watermark
    watermark = max((w for w in (judged_by, watermark) if w is not None), default=None)
    was_by = _BEGINNING if judged_by is None else judged_by
    now_by = _BEGINNING if watermark is None else watermark
    rows, late, counts = _judged(spec, packed, judged_by)
    book = Book.of(spec, state.tables["windows"], arrived(spec, rows))

    revision = book.revision
    emitted, corrected = _corrected(spec, book, revision, was_by)
    prompt = np.flatnonzero((book.new >= 0) & (book.end > was_by) & (book.end <= now_by))
    revision[prompt] = 0
    emitted.append(_said(book, prompt, book.new, book.previous(prompt), revision, INSERT))
    counts += corrected + Counts(results=len(prompt))

    alive = _alive(spec, book.start, book.end, now_by)
    tables = {"windows": book.kept_on(alive, revision)}
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
    """Each window is there once per key, and none is kept beyond its time."""
    table = state.tables["windows"]
    start, end = micros(table, "start"), micros(table, "end")
    codes = key_codes(keys_of(table, spec), len(table))
    watermark = _BEGINNING if state.watermark is None else state.watermark
    shown = f"watermark {state.watermark}\n{table.to_pylist()}"
    assert Groups.of(pair_codes(pair_codes(codes, start), end))[0].count == len(table), (
        f"twice: {shown}"
    )
    assert (start < end).all(), f"an empty window: {shown}"
    assert (spec.previous_period.over(start, end) + spec.retention > watermark).all(), (
        f"overdue: {shown}"
    )
    if spec.corrects:
        is_told = micros(table, "revision") >= 0
        is_there = np.asarray(combine_chunks(table.column("is_there")))
        assert (is_told >= (is_there & (end <= watermark))).all(), f"not published: {shown}"
        assert (end[is_told] <= watermark).all(), f"published too early: {shown}"


def _alive(spec: CompareSpec, start: Instants, end: Instants, by: int) -> Mask:
    """The windows whose time is not over.

    When it is, is asked only of those that may be near it: by the calendar, it takes a while.
    """
    alive = end + (spec.previous_period.at_least + spec.retention) > by
    old = np.flatnonzero(~alive)
    alive[old] = spec.previous_period.over(start[old], end[old]) + spec.retention > by
    return alive


def _corrected(
    spec: CompareSpec, book: Book, revision: Revisions, was_by: int
) -> tuple[list[pa.Table], Counts]:
    """What stragglers change of what was published; the revisions are raised in place."""
    stale = book.touched & (book.end <= was_by)
    if not stale.any():  # what came changes no window that ended before it
        return [], Counts()
    chosen = np.flatnonzero((book.end <= was_by) & np.isin(book.codes, book.codes[stale]))
    previous = book.previous(chosen)
    hit = stale[chosen]
    for found in previous:
        hit |= (found >= 0) & stale[found]
    chosen, previous = chosen[hit], [found[hit] for found in previous]

    stood, stands = book.old[chosen] >= 0, book.new[chosen] >= 0
    was, now = (book.values(rows, chosen, previous) for rows in (book.old, book.new))
    again = np.flatnonzero(stood & stands & rows_differ(was, now))
    gone, first = np.flatnonzero(stood & ~stands), np.flatnonzero(~stood & stands)
    anew = int((revision[chosen[first]] >= 0).sum())
    number = revision.copy()
    revision[chosen[first]] = np.maximum(number[chosen[first]] + 1, 1)  # only stragglers made it
    revision[chosen[again]] += 1

    def said(positions: Ids, rows: Ids, at: Revisions, change: str) -> pa.Table:
        places = [found[positions] for found in previous]
        return _said(book, chosen[positions], rows, places, at, change)

    emitted = [said(gone, book.old, number, DELETE), said(first, book.new, revision, INSERT)]
    if spec.retracts:
        emitted.append(said(again, book.old, number, PREIMAGE))
    emitted.append(said(again, book.new, revision, POSTIMAGE))
    counts = Counts(results=len(first) - anew, corrections=len(again) + anew)
    return emitted, counts


def _said(
    book: Book, chosen: Ids, rows: Ids, previous: list[Ids], revision: Revisions, change: str
) -> pa.Table:
    """Rows of the output for these windows, by what they were or what they are."""
    values = book.values(rows, chosen, previous)
    count = len(book.spec.values)
    about = book.about(chosen)
    said = compared(book.spec, about, values[:count], values[count:])
    return stated(book.spec, [*about, *said], revision[chosen], change)


def _judged(
    spec: CompareSpec, packed: pa.Table, judged_by: int | None
) -> tuple[pa.Table, pa.Table, Counts]:
    """The rows that say what windows are; late rows to deliver; the count of all."""
    total, pieces = len(packed), [spec.output.empty_table()]
    reason = _reasons(spec, packed)
    bad = np.flatnonzero(reason != "")
    if len(bad):
        if spec.routes:
            pieces.append(deliver(spec, take(packed, bad), None, reason[bad], None))
        packed = take(packed, np.flatnonzero(reason == ""))
    counts = Counts(rows=total, rejected=len(bad))
    (start, _), (end, _) = (timestamp_micros(packed.column(name)) for name in spec.time_columns)
    accepted = np.ones(len(packed), np.bool_)
    if judged_by is not None:
        on_time, too_late = end > judged_by, end <= judged_by - spec.allowed_lateness
        counts += Counts(stragglers=int((~on_time & ~too_late).sum()), too_late=int(too_late.sum()))
        accepted = ~too_late if spec.corrects else on_time
        late = np.flatnonzero(~accepted)
        if spec.routes and len(late):
            word = np.where(too_late[late], "too_late", "straggler")
            missed = (start[late], end[late])
            pieces.append(deliver(spec, take(packed, late), missed, word, judged_by))
    counts += Counts(on_time=len(packed) - counts.stragglers - counts.too_late)
    if spec.revised == "changes":  # a postimage says it all
        accepted &= np.asarray(combine_chunks(packed.column(CHANGE_TYPE))) != PREIMAGE
    if not accepted.all():
        packed = take(packed, np.flatnonzero(accepted))
    return packed, concat(pieces), counts


def _reasons(spec: CompareSpec, rows: pa.Table) -> npt.NDArray[np.str_]:
    """Why each row cannot be taken; "" where it can."""
    end, is_usable = placed(spec, rows)
    start, is_known = timestamp_micros(rows.column("window_start"))
    is_present = timestamp_micros(rows.column("window_end"))[1]
    is_window: Mask = is_known & (start >= MIN_INSTANT) & (start < end)
    says_change = np.ones(len(rows), np.bool_)
    if spec.revised != "never":
        says_change &= np.asarray(combine_chunks(rows.column("revision")).is_valid())
    if spec.revised == "changes":
        says_change &= is_change_type(rows.column(CHANGE_TYPE))
    return np.select(
        [~is_present, ~is_usable, ~is_window, ~says_change],
        ["null_time", "time_out_of_range", "bad_window", "bad_change"],
        "",
    )


def compared(
    spec: CompareSpec,
    about: Sequence[pa.Array],
    values: Sequence[pa.Array],
    previous: Sequence[pa.Array],
) -> list[pa.Array]:
    """What is said of the values, in the order of the output; ``about`` says of which windows."""
    said = []
    for name, value, before in zip(spec.values, values, previous, strict=True):
        try:
            change = _change(value, before)
        except pa.ArrowInvalid:
            raise _overflow(spec, about, name, value, before) from None
        base = to_floats(before)
        known = np.asarray(change.is_valid()) & (base != 0)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities, as IEEE 754 has them
            rate = np.divide(to_floats(change), base, out=np.zeros(len(base)), where=known)
        said += [value, before, change, pa.array(rate, mask=~known)]
    return said


def _change(value: pa.Array, before: pa.Array) -> pa.Array:
    kind = difference_type(value.type)
    wide = pa.decimal256(WIDEST_DECIMAL + 1, kind.scale) if pa.types.is_decimal(kind) else kind
    return pc.subtract_checked(value.cast(wide), before.cast(wide)).cast(kind)


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
    kind = difference_type(value.type)
    words = f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else "bigint"
    return CapacityError(
        "CHANGE_OVERFLOW",
        "a change does not fit into its type",
        where="windows.compare",
        got=f"{value[row].as_py()} after {before[row].as_py()} in {name!r} of {keys}, "
        f"window of {format_instant(begin)}",
        expected=f"changes that fit into {words}",
        fix=f"cast {name!r} to double before",
    )
