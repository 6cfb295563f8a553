"""Windows on a grid: tumbling, hopping, calendar and cumulative.

A window ``[start, end)`` is published on time, once the operator's watermark reaches its end. A row that
arrives after that is a *straggler* for the window, and *too late* once the end of the window is the
allowed lateness or more behind the watermark. Rows are compared with the watermark of the step before, and
windows close by the watermark of the present step: rows that arrive together with the watermark that
closes their window are on time.

With early results, a window is published in every step that changes it, and again once it is on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import DELETE
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    integers,
    key_codes,
    take,
)
from streamops.kernel.core import Identity, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, pair_codes
from streamops.kernel.lateness import STRAGGLER, TOO_LATE, Lateness
from streamops.kernel.operator import Table
from streamops.kernel.segments import UNMERGED, Segments
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL, advance_watermark
from streamops.windows.core.aggregating import WindowCore
from streamops.windows.core.corrections import Borders, Coded, correct, evict_revisions, last_final
from streamops.windows.core.grid_spec import GridSpec
from streamops.windows.core.panes import (
    Windows,
    add_panes,
    aggregate_rows,
    deadlines,
    evict_segments,
    evict_with_empty_windows,
    merge_duplicates,
    merge_panes,
    merge_settled,
    merge_tables,
    move_panes,
    pane_schema,
    read_closing,
    windows_of_panes,
)
from streamops.windows.core.tables import (
    Results,
    convert_revisions,
    find_usable,
    keys_of,
    look_up_revisions,
    number_keys,
    publish_windows,
    revision_schema,
    side_output,
    take_back_revisions,
)


class GridCore(WindowCore[GridSpec]):
    """Windows on a grid: tumbling, hopping, calendar and cumulative."""

    STATE = StateFormat("windows.grid", 1, segmented=True)
    TABLES: ClassVar = {
        "panes": Table(pane_schema),
        "revisions": Table(lambda spec: revision_schema(spec, "window") if spec.revises else None),
    }

    def pack(self, spec: GridSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Aggregate the rows to panes, unless late rows go to the side output."""
        rows = conform(rows, spec.input)
        return rows if spec.routes else aggregate_rows(spec, rows)

    def step(
        self, spec: GridSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        late, panes, counts = classify(spec, packed, previous_watermark)

        columns = pane_schema(spec).names
        stored, panes = state.tables["panes"], panes.select(columns)
        if _publishes_once(spec):
            state, output = _add_and_close(spec, state, panes, watermark)
            counts += Metrics(results=len(output))
            return Step(state, output, late, counts)

        revisions = state.tables.get("revisions", revision_schema(spec, "window").empty_table())
        table = concat([stored, panes]) if len(panes) else stored
        # Number the keys of all tables of this step together.
        keys = [keys_of(table, spec), keys_of(revisions, spec)]
        codes, revision_codes = number_keys(keys, [len(table), len(revisions)])
        merged, merged_codes = merge_panes(spec, stored, codes, table)

        emitted, coded = [], (revisions, revision_codes)
        if spec.turned == "off" and spec.retracts:
            emitted.append(
                _take_back(spec, (stored, codes[: len(stored)]), coded, previous_watermark)
            )
        if spec.is_early or (spec.corrects and previous_watermark is not None and len(panes)):
            change = correct(
                spec,
                new=(panes, codes[len(stored) :]),
                before=(stored, codes[: len(stored)]),
                after=(merged, merged_codes),
                revisions=(revisions, revision_codes),
                borders=Borders.of(spec, previous_watermark, watermark),
            )
            emitted.append(change.emitted)
            revisions = change.revisions
            counts += change.counts
        if watermark is not None:
            # Windows close here: the watermark has passed the ends of those from `due[0]` to `due[1]`.
            due = _first_open(spec, previous_watermark), spec.grid.last_closed(watermark)
            if not spec.is_early:  # else `correct` has emitted them above
                closing = Windows.of(spec, merged, merged_codes, *due)
                emitted.append(_publish_closing(spec, closing, coded))
                counts += Metrics(results=len(closing.results))
            final = last_final(spec, watermark)
            merged, merged_codes = merge_settled(spec, merged, merged_codes, due, final)
            if spec.empty_for is None:
                merged = _evict(spec, merged, watermark)
            else:
                merged = evict_with_empty_windows(spec, merged, merged_codes, due, final)
            revisions = evict_revisions(spec, revisions, watermark)

        tables = {"panes": merged, "revisions": revisions}
        return Step(
            State(watermark, {name: tables[name] for name in self.layout(spec)}, state.segments),
            concat(emitted) if emitted else spec.output.empty_table(),
            late,
            counts,
        )

    def has_segments(self, spec: GridSpec) -> bool:
        """Whether panes of a large state are stored apart until their windows close."""
        return _publishes_once(spec)

    def finish(self, spec: GridSpec, state: State) -> pa.Table:
        """Publish all windows that are still open."""
        panes = state.tables["panes"]
        first = _first_open(spec, state.watermark)
        if _publishes_once(spec):
            further = [*read_closing(state.segments, AFTER_ALL)]
            if UNMERGED in state.tables:
                further.append(merge_duplicates(spec, state.tables[UNMERGED]))
            return publish_windows(spec, _close(spec, [panes, *further], first, AFTER_ALL))
        revisions = state.tables.get("revisions", revision_schema(spec, "window").empty_table())
        both = [keys_of(panes, spec), keys_of(revisions, spec)]
        codes, revision_codes = number_keys(both, [len(panes), len(revisions)])
        if not spec.is_early:
            coded = revisions, revision_codes
            closing = Windows.of(spec, panes, codes, first, AFTER_ALL)
            rows = [_publish_closing(spec, closing, coded)]
            if spec.turned == "off" and spec.retracts:
                rows.insert(0, _take_back(spec, (panes, codes), coded, state.watermark))
            return concat(rows)
        return correct(
            spec,
            new=(panes[:0], codes[:0]),
            before=(panes, codes),
            after=(panes, codes),
            revisions=(revisions, revision_codes),
            borders=Borders(final=first - 1, before=first - 1, now=AFTER_ALL),
        ).emitted

    def run(self, spec: GridSpec, inputs: Sequence[pa.Table]) -> Step:
        """The batch result. Nothing is late; rejected rows go to the side output if there is one."""
        (packed,) = inputs
        late, panes, counts = classify(spec, packed, None)
        panes = panes.select(pane_schema(spec).names)
        codes = key_codes(keys_of(panes, spec), len(panes))
        merged, codes = merge_panes(spec, panes[:0], codes, panes)
        windows = Windows.of(spec, merged, codes, BEFORE_ALL, AFTER_ALL)
        output = publish_windows(spec, windows.results)
        return Step(State(AFTER_ALL, {}), output, late, counts + Metrics(results=len(output)))

    def attune(
        self, spec: GridSpec, state: State, inputs: Sequence[pa.Table]
    ) -> tuple[GridSpec, State, Sequence[pa.Table]]:
        """Compute with what has left the state, and without segments if only other parameters have any."""
        spec, state, inputs = super().attune(spec, state, inputs)
        if self.has_segments(spec):
            return spec, state, inputs
        segments, tables = state.segments, dict(state.tables)
        further = read_closing(segments, AFTER_ALL)
        if UNMERGED in tables:
            further.append(merge_duplicates(spec, tables.pop(UNMERGED)))
        if not further:
            return spec, state, inputs
        panes = merge_tables(spec, [tables["panes"], *further])
        tables["panes"] = _evict(spec, panes, state.watermark)
        segments = None if segments is None else segments.remove(segments.index)
        return spec, replace(state, tables=tables, segments=segments), inputs

    def convert(
        self,
        spec: GridSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """The tables in the layout of the parameters."""
        found = dict(tables)
        convert_revisions(spec, "window", found)
        if spec.turned == "off" and spec.corrects:
            panes, first = found["panes"], _first_open(spec, watermark)
            codes = key_codes(keys_of(panes, spec), len(panes))
            windows = _open_windows(spec, (panes, codes), first)
            results = pa.table(
                [*windows.results.keys, windows.numbers],
                names=revision_schema(spec, "window").names[: len(spec.by) + 1],
            )
            found["revisions"] = take_back_revisions(
                spec, "window", results, found["revisions"], first
            )
        return found

    def next_deadline(self, spec: GridSpec, state: State) -> int | None:
        """When the next window closes, or the next row of state can be evicted."""
        panes = state.tables["panes"]
        pane = integers(panes, "pane")
        if spec.empty_for is None:
            if not spec.retention and len(pane):
                pane = pane.min(keepdims=True)  # it has the first open window
            first, last = spec.grid.windows_of(pane)
            if state.segments is not None:
                first = np.append(first, [of.first for of in state.segments.index])
                last = np.append(last, [of.last for of in state.segments.index])
            first = np.maximum(first, _first_open(spec, state.watermark))
            evicted = spec.grid.end_of(last) + spec.retention
            due = np.where(first <= last, spec.grid.end_of(first), evicted)
        else:
            codes = key_codes(keys_of(panes, spec), len(panes))
            due = deadlines(spec, panes, codes, _first_open(spec, state.watermark))
        if spec.revises:
            numbers = integers(state.tables["revisions"], "window")
            due = np.concatenate([due, spec.grid.end_of(numbers) + spec.retention])
        return int(due.min()) if len(due) else None

    def check(self, spec: GridSpec, state: State) -> None:
        """Panes lie on the grid and are unique per key, and none is stored for too long."""
        panes = state.tables["panes"]
        details = f"watermark {state.watermark}\n{format_rows(panes)}"
        codes = check_panes(spec, panes, details)
        assert panes.schema.equals(pane_schema(spec)), f"another schema: {panes.schema}"
        if state.watermark is not None:
            final = last_final(spec, state.watermark)
            if spec.empty_for is None:
                left = _evict(spec, panes, state.watermark)
            else:
                left = evict_with_empty_windows(spec, panes, codes, (AFTER_ALL, AFTER_ALL), final)
            assert len(left) == len(panes), f"overdue: {details}"
        if state.segments is not None:
            _check_segments(spec, state.segments, state.watermark)
        if spec.revises:
            revisions = state.tables["revisions"]
            assert (integers(revisions, "revision") > 0).all(), f"{format_rows(revisions)}"


def _open_windows(spec: GridSpec, panes: Coded, first: int) -> Windows:
    """The windows from ``first`` that have rows."""
    members = windows_of_panes(spec, *panes, first, AFTER_ALL, last_empty=first - 1)
    return Windows.over(spec, *members)


def _publish_closing(spec: GridSpec, windows: Windows, revisions: Coded) -> pa.Table:
    """The results of windows that are on time now."""
    table, codes = revisions
    found = look_up_revisions(windows.codes, windows.numbers, codes, "window", table)
    return publish_windows(spec, windows.results, found)


def _take_back(spec: GridSpec, panes: Coded, revisions: Coded, watermark: int | None) -> pa.Table:
    """Deletes of the early results of windows that are open."""
    windows = _open_windows(spec, panes, _first_open(spec, watermark))
    table, codes = revisions
    found = look_up_revisions(windows.codes, windows.numbers, codes, "window", table)
    return publish_windows(spec, windows.results, found - 1, DELETE)


def _publishes_once(spec: GridSpec) -> bool:
    """Whether a window needs its own panes only, in the step in which it closes."""
    return not (spec.revises or spec.grid.is_nested or spec.empty_for is not None)


def _add_and_close(
    spec: GridSpec, state: State, panes: pa.Table, watermark: int | None
) -> tuple[State, pa.Table]:
    """The state after a step, and the windows that it publishes.

    Most of the time of a large state would be spent on numbering its keys. So only panes of windows that
    close are numbered, and those that new ones are merged with.
    """
    merged = add_panes(spec, state.tables["panes"], panes)
    segments, output = state.segments, spec.output.empty_table()
    if UNMERGED in state.tables:
        assert segments is not None, "rows of segments without a place for them"
        further = _evict(spec, state.tables[UNMERGED], state.watermark)
        segments = move_panes(spec, merge_duplicates(spec, further), segments)
    first = _first_open(spec, state.watermark)
    if watermark is not None and first <= (last := spec.grid.last_closed(watermark)):
        tables = [merged, *read_closing(segments, last)]
        output = publish_windows(spec, _close(spec, tables, first, last))
        merged = _evict(spec, merged, watermark)
        segments = None if segments is None else evict_segments(segments, last)
    if segments is not None and len(merged) > segments.limit:
        segments = move_panes(spec, merged, segments)
        merged = merged.slice(0, 0)
    return State(watermark, {"panes": merged}, segments), output


def _close(spec: GridSpec, tables: Sequence[pa.Table], first: int, last: int) -> Results:
    """The windows from ``first`` to ``last`` of tables, each of which has a pane at most once."""
    closing = []
    for table in tables:
        starts, ends = spec.grid.windows_of(integers(table, "pane"))
        closing.append(table.filter(pa.array((starts <= last) & (ends >= first))).combine_chunks())
    if spec.grid.is_disjoint:
        # Each window is one pane, which is compared with no other.
        panes = merge_tables(spec, closing)
        codes = np.zeros(len(panes), np.int64)
    else:
        panes = concat(closing)
        codes = key_codes(keys_of(panes, spec), len(panes))
    return Windows.of(spec, panes, codes, first, last).results


def _check_segments(spec: GridSpec, segments: Segments, watermark: int | None) -> None:
    """Segments have the panes that the index says, each at most once, and none is stored for too long."""
    assert len({of.number for of in segments.index}) == len(segments.index), f"{segments.index}"
    for of in segments.index:
        panes = segments.read(of)
        assert watermark is None or of.last > spec.grid.last_closed(watermark), f"overdue: {of}"
        first, last = spec.grid.windows_of(integers(panes, "pane"))
        assert (of.first, of.last, of.rows) == (first.min(), last.max(), len(panes)), f"{of}"
        assert len(merge_duplicates(spec, panes)) == of.rows, f"a pane twice: {format_rows(panes)}"
        assert len(set((first >> of.scale).tolist())) == 1, f"several intervals: {of}"


def check_panes(spec: GridSpec, panes: pa.Table, details: str) -> Ids:
    """Panes lie on the grid and are unique per key. Return the codes of their keys."""
    pane = integers(panes, "pane")
    codes = key_codes(keys_of(panes, spec), len(panes))
    assert np.array_equal(spec.grid.pane_of(pane), pane), f"a pane off the grid: {details}"
    assert Groups.of(pair_codes(codes, pane))[0].count == len(panes), f"a pane twice: {details}"
    return codes


def classify(
    spec: GridSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """The side output, the panes of accepted rows, and metrics."""
    late = spec.output.empty_table()
    rejected = 0
    if spec.routes:
        late, packed, rejected = route(spec, packed, previous_watermark)
        packed = aggregate_rows(spec, packed)
    rejected_panes = np.asarray(combine_chunks(packed.column("pane")).is_null())
    rows = integers(packed, "rows")
    counts = Metrics(
        rows=int(rows.sum()) + rejected, rejected=int(rows[rejected_panes].sum()) + rejected
    )
    if rejected_panes.any():
        packed = packed.filter(pa.array(~rejected_panes))
    counts += _count_pairs(spec, packed, previous_watermark)
    # Late rows are dropped here: all windows of their panes are final by the watermark of the step before.
    # A late row of a pane that stays is not published: see `_first_open`, or `correct`.
    return late, _evict(spec, packed, previous_watermark), counts


def _count_pairs(spec: GridSpec, panes: pa.Table, previous_watermark: int | None) -> Metrics:
    """Count pairs of a row and a window by their lateness."""
    first, last = spec.grid.windows_of(integers(panes, "pane"))
    rows = integers(panes, "rows")
    closed, too_late = BEFORE_ALL, BEFORE_ALL
    if previous_watermark is not None:
        closed = spec.grid.last_closed(previous_watermark)
        too_late = spec.grid.last_closed(previous_watermark - spec.allowed_by(previous_watermark))

    def between(low: int, high: int) -> int:
        """Count pairs with a window above ``low``, up to ``high``."""
        windows = np.minimum(last, high) - np.maximum(first, low + 1) + 1
        return int((rows * np.maximum(windows, 0)).sum())

    return Metrics(
        on_time=between(closed, AFTER_ALL),
        stragglers=between(too_late, closed),
        too_late=between(BEFORE_ALL, too_late),
    )


def _evict(spec: GridSpec, panes: pa.Table, watermark: int | None) -> pa.Table:
    """Remove panes, stored or new, whose windows are all final by the watermark."""
    if watermark is None:
        return panes
    _, last = spec.grid.windows_of(integers(panes, "pane"))
    alive: npt.NDArray[np.bool_] = last > last_final(spec, watermark)
    return panes if alive.all() else panes.filter(pa.array(alive)).combine_chunks()


def _first_open(spec: GridSpec, watermark: int | None) -> int:
    return BEFORE_ALL if watermark is None else spec.grid.last_closed(watermark) + 1


def route(
    spec: GridSpec, rows: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, int]:
    """Build the side output: one row per rejected row, and one per window that a row missed.

    Returns
    -------
    late : Table
        The side output.
    rows : Table
        The rows that are not rejected, late ones included.
    rejected : int
        The number of rejected rows.
    """
    arrived = find_usable(spec, rows)
    rows, late, rejected = arrived.rows, arrived.late, arrived.metrics.rejected
    if previous_watermark is None:
        return late, rows, rejected
    final = last_final(spec, previous_watermark)
    too_late = spec.grid.last_closed(previous_watermark - spec.allowed_by(previous_watermark))
    index, numbers = spec.grid.explode(arrived.times, BEFORE_ALL, final)
    if len(index):
        window = spec.grid.start_of(numbers), spec.grid.end_of(numbers)
        codes = np.where(numbers <= too_late, TOO_LATE, STRAGGLER).astype(np.int8)
        lateness = Lateness(arrived.times[index], codes, previous_watermark)
        late = concat([late, side_output(spec, take(rows, index), window, lateness)])
    return late, rows, rejected
