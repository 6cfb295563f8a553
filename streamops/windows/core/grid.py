"""Windows on a grid, whichever it is, with every policy for stragglers.

A window ``[start, end)`` is *on time* once the operator's watermark has reached its end: then
its result is published. A row whose window was on time before it came is a *straggler*, and
*too late* once the window's end lies more than the allowed lateness behind the watermark.
Rows are classified by the watermark of the step before, windows close by that of the present one:
what came together with the news that closes its window is still on time.

Where results come early, a window is published in every step that changes it, and once more
when it is on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Groups, pair_codes
from streamops.windows.core.corrections import (
    Borders,
    correct,
    forget,
    no_revisions,
    revision_schema,
)
from streamops.windows.core.empty_windows import deadlines, known
from streamops.windows.core.grid_spec import FixedSpec
from streamops.windows.core.output import deliver, publish_windows
from streamops.windows.core.panes import Windows, pane_schema, partial, settle, unite
from streamops.windows.core.state_rows import keys_of, micros, number_keys, usable_times

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

STATE = StateFormat("windows.fixed", 1)

_BEGINNING = -(1 << 62)
_END = 1 << 62


def layout(spec: FixedSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    tables = {"panes": pane_schema(spec)}
    return tables | {"revisions": revision_schema(spec)} if spec.revises else tables


def empty(spec: FixedSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: FixedSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """Panes of the rows; the rows themselves where late ones must be delivered."""
    rows = conform(rows, spec.input)
    return rows if spec.routes else partial(spec, rows)


def step(spec: FixedSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring."""
    (packed,) = inputs
    previous_watermark = state.watermark
    watermark = _later(previous_watermark, watermark)
    late, panes, counts = _classify(spec, packed, previous_watermark)

    stored, revisions = state.tables["panes"], state.tables.get("revisions", no_revisions(spec))
    columns = pane_schema(spec).names
    table = concat([stored, panes.select(columns)]) if len(panes) else stored
    # One numbering of the keys for all tables of this step.
    both = [keys_of(table, spec), keys_of(revisions, spec)]
    keys = [pa.concat_arrays(pieces) for pieces in zip(*both, strict=True)]
    codes = key_codes(keys, len(table) + len(revisions))
    codes, revision_codes = codes[: len(table)], codes[len(table) :]
    united, united_codes = unite(spec, stored, codes, table)

    emitted = []
    if spec.is_early or (spec.corrects and previous_watermark is not None and len(panes)):
        change = correct(
            spec,
            new=(panes.select(columns), codes[len(stored) :]),
            before=(stored, codes[: len(stored)]),
            after=(united, united_codes),
            revisions=(revisions, revision_codes),
            borders=Borders.of(spec, previous_watermark, watermark),
        )
        emitted.append(change.emitted)
        revisions = change.revisions
        counts += change.counts
    if watermark is not None:
        due = _first_open(spec, previous_watermark), spec.grid.last_closed(watermark)
        if not spec.is_early:
            closing = Windows.of(spec, united, united_codes, *due)
            emitted.append(publish_windows(spec, closing))
            counts += Metrics(results=len(closing))
        final = spec.grid.last_closed(watermark - spec.retention)
        united, united_codes = settle(spec, united, united_codes, due, final)
        if spec.empty_for is None:
            united = _evicted(spec, united, watermark)
        else:
            united = known(spec, united, united_codes, due, final)
        revisions = forget(spec, revisions, watermark)

    tables = {"panes": united, "revisions": revisions}
    return Step(
        State(watermark, {name: tables[name] for name in layout(spec)}),
        concat(emitted) if emitted else spec.output.empty_table(),
        late,
        counts,
    )


def finish(spec: FixedSpec, state: State) -> pa.Table:
    """Every window that is still open."""
    panes = state.tables["panes"]
    first = _first_open(spec, state.watermark)
    if not spec.is_early:
        codes = key_codes(keys_of(panes, spec), len(panes))
        return publish_windows(spec, Windows.of(spec, panes, codes, first, _END))
    revisions = state.tables["revisions"]
    both = [keys_of(panes, spec), keys_of(revisions, spec)]
    codes, revision_codes = number_keys(both, [len(panes), len(revisions)])
    return correct(
        spec,
        new=(panes[:0], codes[:0]),
        before=(panes, codes),
        after=(panes, codes),
        revisions=(revisions, revision_codes),
        borders=Borders(final=first - 1, before=first - 1, now=_END),
    ).emitted


def run(spec: FixedSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result. Nothing is late; what cannot be placed is delivered where rows are."""
    (packed,) = inputs
    late, panes, _ = _classify(spec, packed, None)
    panes = panes.select(pane_schema(spec).names)
    codes = key_codes(keys_of(panes, spec), len(panes))
    united, codes = unite(spec, panes[:0], codes, panes)
    return concat([publish_windows(spec, Windows.of(spec, united, codes, _BEGINNING, _END)), late])


def next_deadline(spec: FixedSpec, state: State) -> int | None:
    """The first end of an open window, or the first moment something can be forgotten."""
    panes = state.tables["panes"]
    pane = micros(panes, "pane")
    if spec.empty_for is None:
        first, last = spec.grid.windows_of(pane)
        first = np.maximum(first, _first_open(spec, state.watermark))
        forgotten = spec.grid.end_of(last) + spec.retention
        due = np.where(first <= last, spec.grid.end_of(first), forgotten)
    else:
        codes = key_codes(keys_of(panes, spec), len(panes))
        due = deadlines(spec, panes, codes, _first_open(spec, state.watermark))
    if spec.revises:
        numbers = micros(state.tables["revisions"], "window")
        due = np.concatenate([due, spec.grid.end_of(numbers) + spec.retention])
    return int(due.min()) if len(due) else None


def check(spec: FixedSpec, state: State) -> None:
    """Panes lie on the grid, once per key, and none is stored beyond its time."""
    panes = state.tables["panes"]
    pane = micros(panes, "pane")
    codes = key_codes(keys_of(panes, spec), len(panes))
    details = f"watermark {state.watermark}\n{panes.to_pylist()}"
    assert np.array_equal(spec.grid.pane_of(pane), pane), f"a pane off the grid: {details}"
    assert Groups.of(pair_codes(codes, pane))[0].count == len(panes), f"a pane twice: {details}"
    assert panes.schema.equals(pane_schema(spec)), f"another schema: {panes.schema}"
    if state.watermark is not None:
        final = spec.grid.last_closed(state.watermark - spec.retention)
        if spec.empty_for is None:
            left = _evicted(spec, panes, state.watermark)
        else:
            left = known(spec, panes, codes, (_END, _END), final)
        assert len(left) == len(panes), f"overdue: {details}"
    if spec.revises:
        revisions = state.tables["revisions"]
        assert (micros(revisions, "revision") > 0).all(), f"{revisions.to_pylist()}"


def _classify(
    spec: FixedSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """Late rows to deliver, panes to take in, and the count of both."""
    late = spec.output.empty_table()
    rejected = 0
    if spec.routes:
        late, packed, rejected = route(spec, packed, previous_watermark)
        packed = partial(spec, packed)
    unplaced = np.asarray(combine_chunks(packed.column("pane")).is_null())
    rows = micros(packed, "rows")
    counts = Metrics(rows=int(rows.sum()) + rejected, rejected=int(rows[unplaced].sum()) + rejected)
    if unplaced.any():
        packed = packed.filter(pa.array(~unplaced))
    counts += _pairs(spec, packed, previous_watermark)
    return late, _evicted(spec, packed, previous_watermark), counts


def _pairs(spec: FixedSpec, panes: pa.Table, previous_watermark: int | None) -> Metrics:
    first, last = spec.grid.windows_of(micros(panes, "pane"))
    rows = micros(panes, "rows")
    closed, too_late = _BEGINNING, _BEGINNING
    if previous_watermark is not None:
        closed = spec.grid.last_closed(previous_watermark)
        too_late = spec.grid.last_closed(previous_watermark - spec.allowed_lateness)

    def between(low: int, high: int) -> int:
        """Pairs whose window is numbered above ``low``, up to ``high``."""
        windows = np.minimum(last, high) - np.maximum(first, low + 1) + 1
        return int((rows * np.maximum(windows, 0)).sum())

    return Metrics(
        on_time=between(closed, _END),
        stragglers=between(too_late, closed),
        too_late=between(_BEGINNING, too_late),
    )


def _evicted(spec: FixedSpec, panes: pa.Table, watermark: int | None) -> pa.Table:
    """The panes without those in which no window can change any more."""
    if watermark is None:
        return panes
    _, last = spec.grid.windows_of(micros(panes, "pane"))
    alive: npt.NDArray[np.bool_] = last > spec.grid.last_closed(watermark - spec.retention)
    return panes if alive.all() else panes.filter(pa.array(alive)).combine_chunks()


def _first_open(spec: FixedSpec, watermark: int | None) -> int:
    return _BEGINNING if watermark is None else spec.grid.last_closed(watermark) + 1


def _later(one_: int | None, other: int | None) -> int | None:
    return max((w for w in (one_, other) if w is not None), default=None)


def route(
    spec: FixedSpec, rows: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, int]:
    """Take out of the rows what must be delivered.

    Returns
    -------
    late : Table
        A row per window missed, in the output schema; one, without a window, for a row whose
        event time is null or cannot be placed.
    rows : Table
        The rows that can be usable_times, the late ones among them.
    rejected : int
        How many could not.
    """
    times, valid = usable_times(spec, rows)
    bad = np.flatnonzero(~valid)
    pieces = []
    if len(bad):
        present = timestamp_micros(rows.column(spec.time))[1][bad]
        reason = np.where(present, "time_out_of_range", "null_time")
        pieces.append(deliver(spec, take(rows, bad), None, reason, None))
        good = np.flatnonzero(valid)
        rows, times = take(rows, good), times[good]
    if previous_watermark is not None:
        missed = previous_watermark - spec.retention
        too_late = spec.grid.last_closed(previous_watermark - spec.allowed_lateness)
        index, numbers = spec.grid.explode(times, _BEGINNING, spec.grid.last_closed(missed))
        if len(index):
            window = spec.grid.start_of(numbers), spec.grid.end_of(numbers)
            reason = np.where(numbers <= too_late, "too_late", "straggler")
            pieces.append(deliver(spec, take(rows, index), window, reason, previous_watermark))
    late = pa.concat_tables(pieces) if pieces else spec.output.empty_table()
    return late, rows, len(bad)
