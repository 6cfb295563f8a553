"""Why a query has a result, or none: one key of it, replayed from its checkpoint."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamops.kernel.calls import explain_call
from streamops.kernel.time import MAX_INSTANT, format_instant, parse_instant
from streamops.observe import conditions
from streamops.observe.explanation import Explanation
from streamops.observe.key_rows import (
    LATE,
    REJECTED,
    KeyResult,
    KeyRow,
    KeyState,
    bounds_of,
    count,
    instant,
    micros_of,
    show,
)
from streamops.observe.plan import MicroBatch, RecordedSource, read_plan
from streamops.state.checkpoint import Checkpoint, open_checkpoint
from streamops.testing.batches import expand, to_table
from streamops.testing.recorded import OperatorStep, RecordedReplay

if TYPE_CHECKING:
    import pyarrow as pa

    from streamops.testing.batches import Chain

Window = dt.datetime | tuple[dt.datetime, dt.datetime]
Row = Mapping[str, Any]

_LAST_WATERMARK = MAX_INSTANT // 1_000


class Ledger(Protocol):
    """The part of a sink that says what its target has."""

    def read_ledger(self) -> Any:
        """Return the entry of the sink; None if there is none."""


@explain_call("observe.explain")
def explain(
    checkpoint: str | Path,
    operator: Chain,
    source: RecordedSource | tuple[RecordedSource, RecordedSource],
    *,
    where: Mapping[str, Any],
    window: Window | None = None,
    result: Mapping[str, Any] | None = None,
    sink: Ledger | None = None,
    earlier: Mapping[int, Chain] | None = None,
) -> Explanation:
    """Replay one key of a query from its checkpoint, and say why a result exists or does not.

    The checkpoint has the files and the watermark of each micro-batch. An operator is deterministic per
    key, so the replay emits what the query emitted. The query may run meanwhile. Spark is not needed.

    Parameters
    ----------
    checkpoint : str or Path
        The checkpoint, on a local file system. It is not changed.
    operator : Operator, or sequence of Operator
        The operator of the query, or its chain of operators, with the parameters of the query.
    source : RecordedSource, or pair of RecordedSource
        Where the rows are: :func:`files`, :func:`topics` or :func:`table`. With two inputs, one for each.
    where : mapping
        Values of key columns, as the first operator names them in its left input.
    window : datetime, or pair of datetime, optional
        Only results whose window has this instant, or has this start and end.
    result : mapping, optional
        Only results with these values in their columns.
    sink : sink, optional
        The sink of the query, to say which results its target has, as far as its ledger says it.
    earlier : mapping of int to Operator, or to sequence of Operator, optional
        Operators of earlier runs, by the first micro-batch that did not use them any more: ``{17: before}`` if
        the aggregates were changed between the micro-batches 16 and 17.

    Returns
    -------
    Explanation
        ``str()`` is a time line; ``rows``, ``results`` and ``states`` are frames of pandas; ``plot()`` draws it.

    Raises
    ------
    ColumnNotFound
        ``COLUMN_NOT_FOUND``: `where` names a column that is no key.
    SpecError
        ``INVALID_PARAMETER``: the number of sources differs from that of the inputs.
    CheckpointError
        ``CHECKPOINT_PATH``, ``NOT_A_CHECKPOINT``, ``CHECKPOINT_TORN``.
    RequirementError
        ``SOURCE_UNAVAILABLE``: no file of the source exists.

    Examples
    --------
    >>> print(observe.explain("checkpoints/views", per_page, observe.files(), where={"page": "home"}))

    Notes
    -----
    Spark retains the plans of the last 100 micro-batches (``spark.sql.streaming.minBatchesToRetain``).
    Rows of earlier ones count as on time, and a note says so. Limits on the rows of a whole shard are
    not replayed, as the replay has the rows of one key only. The replay has the parameters that are passed:
    where the aggregates of the query have changed, `earlier` says which ones it had before.
    """
    for of in () if window is None else window if isinstance(window, tuple) else (window,):
        parse_instant(of, parameter="window")
    opened = open_checkpoint(checkpoint)
    plan = read_plan(opened)
    first = expand(operator)[0]
    sources = source if isinstance(source, tuple) else (source,)
    if len(sources) != len(first.spec.inputs):
        raise conditions.SOURCES_DIFFER.error(
            inputs=len(first.spec.inputs), got=f"{len(sources)} sources"
        )
    keys = first.spec.inputs[0].by
    for name in where:
        if name not in keys:
            raise conditions.NOT_A_KEY.error(column=name, columns=", ".join(keys), got=name)
    if not plan:
        return Explanation("no_rows", "the query has not planned a micro-batch", (), (), None, ())
    inputs, notes = [], []
    for number, (source_, input_) in enumerate(zip(sources, first.spec.inputs, strict=True)):
        here = {
            name: where[key] for key, name in zip(keys, input_.by, strict=False) if key in where
        }
        tables, missing = source_.read(opened, number, plan, here)
        inputs.append(tables)
        notes += missing
    if plan[0].number > 0:
        notes.append(
            f"the checkpoint has no plan before micro-batch {plan[0].number}: "
            "earlier rows count in this one, as on time"
        )
    if not plan[-1].is_committed:
        notes.append(
            f"micro-batch {plan[-1].number} is not committed: the query is in it, or failed in it"
        )
    if sink is None:
        written = None
    else:
        written, note = _written(sink, opened)
        notes += note
    delays = tuple(of.watermark for of in sources)
    schemas = tuple(tables[0].schema for tables in inputs)
    changes = sorted((earlier or {}).items())
    replay = RecordedReplay(
        changes[0][1] if changes else operator,
        schemas if len(schemas) > 1 else schemas[0],
        watermark=delays if len(delays) > 1 else delays[0],  # type: ignore[arg-type]
    )
    notes += (
        f"{name} groups by other keys, and the replay does not have their rows"
        for at, name in enumerate(replay.names)
        if at and not where.keys() <= set(replay.spec(at).inputs[0].by)
    )
    # From which micro-batch on an operator is the one of the query.
    later = [*(of for _, of in changes[1:]), operator]
    query = _Query(
        replay,
        plan,
        list(zip(*inputs, strict=True)),
        where,
        window,
        result or {},
        written,
        {number: of for (number, _), of in zip(changes, later, strict=True)} if changes else {},
    )
    current = max(batch.watermark for batch in plan)
    if plan[-1].is_committed:
        current = max(current, opened.watermark)
    return query.explain(current, tuple(notes))


def _written(sink: Ledger, checkpoint: Checkpoint) -> tuple[int | None, list[str]]:
    """The last micro-batch that a target has, and what the ledger does not say."""
    entry = sink.read_ledger()
    query = json.loads((checkpoint.path / "metadata").read_text())["id"]
    if entry is None:
        return None, ["the ledger of the sink has no entry"]
    if entry.query != query:
        return None, [f"the ledger of the sink has an entry of another query, {entry.query}"]
    return int(entry.batch), []


@dataclass
class _Query:
    replay: RecordedReplay
    plan: list[MicroBatch]
    tables: list[tuple[pa.Table, ...]]
    where: Row
    window: Window | None
    conditions: Row
    written: int | None
    changes: Mapping[int, Chain]
    rows: list[KeyRow] = field(default_factory=list)

    def explain(self, current: int, notes: tuple[str, ...]) -> Explanation:
        # What would be if nothing were late: all rows without a watermark.
        punctual = self.replay.fork(counts=False)
        # By operator, the rows that it would have read.
        read: list[list[Row]] = [[] for _ in self.replay.names]
        results, states, emitted = list[KeyResult](), list[KeyState](), list[Row]()
        for batch, tables in zip(self.plan, self.tables, strict=True):
            there = self._cast(tables)
            if not batch.has_data and batch is not self.plan[0]:
                there = None
            if batch.number in self.changes:
                self.replay.change(self.changes[batch.number])
                punctual.change(self.changes[batch.number])
            steps, output = self.replay.step(batch.number, there, batch.watermark)
            ideal, undelayed = punctual.step(batch.number, there, 0)
            _collect(read, ideal)
            emitted += filter(self._fits, undelayed.rows)
            self.rows += (KeyRow(batch.number, of.name, row) for of in steps for row in of.rows)
            states += (KeyState(batch.number, *of) for of in self.replay.changed_states())
            written = None if self.written is None else batch.number <= self.written
            for row in filter(self._fits, output.rows):
                made = tuple(of for of in self._made_of([row])[0] if not _is_lost(of))
                results.append(KeyResult(batch.number, row, made, batch.is_committed, written))
        *pending, last = punctual.pending()
        for following, rows in zip(read[1:], pending, strict=True):
            following += rows
        ideal_results = [*emitted, *filter(self._fits, last)]
        is_open = self._is_pending(self.replay)
        targets = [of.row for of in results] + ideal_results
        if not targets and is_open:
            targets = [row for row in self.replay.flush().rows if self._fits(row)]
        relevant = self._made_of(targets, read) if targets else self._near_window(read)
        reason, answer, due, operator = self._reason(
            results, relevant, current, is_open=is_open, is_possible=bool(ideal_results)
        )
        return Explanation(
            reason, answer, tuple(self.rows), tuple(results), due, notes, operator, tuple(states),
            tuple((batch.number, batch.watermark) for batch in self.plan),
        )  # fmt: skip

    def _cast(self, tables: tuple[pa.Table, ...]) -> tuple[pa.Table, ...] | None:
        return tuple(to_table(t, s) for t, s in zip(tables, self.replay.schemas, strict=True))

    def _rows_of(self, position: int) -> list[KeyRow]:
        name = self.replay.names[position]
        return [of for of in self.rows if of.operator == name]

    def _made_of(
        self, results: Sequence[Row], read: Sequence[Sequence[Row]] | None = None
    ) -> list[list[KeyRow]]:
        """By operator, the rows that are part of results, backward through the chain."""
        found, outputs = list[list[KeyRow]](), results
        for position in reversed(range(len(self.replay.names))):
            rows = self._rows_of(position)
            parts = _Parts(self.replay, position, outputs)
            found.insert(0, [of for of in rows if parts.has(of.arrived.row)])
            more = [] if read is None else [row for row in read[position] if parts.has(row)]
            outputs = [of.arrived.row for of in found[0]] + more
        return found

    def _near_window(self, read: Sequence[Sequence[Row]]) -> list[list[KeyRow]]:
        """By operator, the rows in the window that is asked about, if no result has one.

        They are those that rows of the next operator are made of, if it has any, or would have.
        """
        found, following = list[list[KeyRow]](), list[Row]()
        for position in reversed(range(len(self.replay.names))):
            spec, rows = self.replay.spec(position), self._rows_of(position)
            start, end = _span(spec, self.window)
            has: Callable[[Row], bool] = partial(
                _is_between, times=[of.time for of in spec.inputs], start=start, end=end
            )
            if following:
                has = _Parts(self.replay, position, following).has
            found.insert(0, [of for of in rows if has(of.arrived.row)])
            following = [of.arrived.row for of in found[0]] + [
                row for row in read[position] if has(row)
            ]
        return found

    def _reason(
        self,
        results: list[KeyResult],
        relevant: list[list[KeyRow]],
        current: int,
        *,
        is_open: bool,
        is_possible: bool,
    ) -> tuple[str, str, int | None, str | None]:
        names = self.replay.names
        late = [[of for of in rows if of.arrived.outcome in LATE] for rows in relevant]
        if results:
            too_late = [of for rows in late for of in rows]
            more = f"; {_were(too_late)} late" if too_late else ""
            return "result", f"{count(results, 'result')}{more}", None, None
        if is_open:
            due = self._due(current)
            until = "" if due is None else f" until the watermark is {self._watermark(due)}"
            now = f"it is {self._watermark(current)}" if current else "there is none yet"
            return "open", f"the result is open{until}; {now}", due, None
        if not relevant[0]:
            near = sorted(self._rows_of(0), key=self._distance)[:1]
            nearest = f"; the nearest is {near[0]}" if near else ""
            there = "" if self.window is None or not near else " in this window"
            return "no_rows", f"no row of {show(self.where)}{there} arrived{nearest}", None, None
        deepest = max(position for position, rows in enumerate(relevant) if rows)
        for position in range(deepest, -1, -1):
            name, rows = names[position], relevant[position]
            if late[position] and is_possible:
                text = f"{_were(late[position])} late, the first: {late[position][0]}"
                return "late", text, None, name
            if all(of.arrived.outcome in REJECTED for of in rows):
                return "rejected", f"{_were(rows)} rejected: {rows[0]}", None, name
        name = names[deepest]
        if len(self.replay.schemas) > 1 and deepest == 0:
            return "no_partner", self._alone(relevant[0]), None, name
        text = f"{name} has no such result of {count(relevant[deepest], 'row')}"
        return "no_result", text, None, name

    def _alone(self, relevant: list[KeyRow]) -> str:
        """The rows of a join without a partner, and the nearest row of the other input."""
        row = relevant[0]
        sides = {of.arrived.side for of in relevant}
        only = f"{count(relevant, 'row')} of the {row.arrived.side} input only"
        text = only if len(sides) == 1 else f"{len(relevant)} rows, no two of which are partners"
        others = [of for of in self._rows_of(0) if of.arrived.side != row.arrived.side]
        time = row.arrived.time
        timed = [of for of in others if of.arrived.time is not None]
        if time is not None and timed:
            others = [min(timed, key=lambda of: abs((of.arrived.time or 0) - time))]
        return text + (f"; the nearest of the other input is {others[0]}" if others else "")

    def _is_pending(self, replay: RecordedReplay) -> bool:
        return any(map(self._fits, replay.flush().rows))

    def _watermark(self, of_spark: int) -> str:
        """The watermark of the operator that emits the result, which its rows show as well."""
        lag = self.replay.spec(len(self.replay.names) - 1).lag
        return format_instant(of_spark * 1_000 + lag)

    def _due(self, current: int) -> int | None:
        """The least watermark at which the result is emitted, by bisection."""

        def is_emitted(watermark: int) -> bool:
            found: Iterator[dict[str, Any]] = (
                row for result in self.replay.advance(watermark) for row in result.rows
            )
            return any(map(self._fits, found))

        low, step = current, 1_000
        while not is_emitted(min(low + step, _LAST_WATERMARK)):
            if low + step >= _LAST_WATERMARK:
                return None
            step *= 2
        high = min(low + step, _LAST_WATERMARK)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_emitted(middle) else (middle, high)
        return high

    def _fits(self, row: Row) -> bool:
        wanted = {**{k: v for k, v in self.where.items() if k in row}, **self.conditions}
        if any(name not in row or row[name] != value for name, value in wanted.items()):
            return False
        if self.window is None:
            return True
        names = bounds_of(row)
        if names is None:
            return self.window in [v for v in row.values() if isinstance(v, dt.datetime)]
        start, end = (micros_of(row[name]) for name in names)
        if isinstance(self.window, tuple):
            return (start, end) == (micros_of(self.window[0]), micros_of(self.window[1]))
        return start <= micros_of(self.window) < end or micros_of(self.window) == start

    def _distance(self, of: KeyRow) -> float:
        time = instant(of.arrived.time)
        start = self.window[0] if isinstance(self.window, tuple) else self.window
        return (
            float("inf") if time is None or start is None else abs((time - start).total_seconds())
        )


def _were(rows: Sequence[KeyRow]) -> str:
    return f"{count(rows, 'row')} {'was' if len(rows) == 1 else 'were'}"


def _collect(read: list[list[Row]], steps: Sequence[OperatorStep]) -> None:
    for rows, step in zip(read, steps, strict=True):
        rows += (of.row for of in step.rows)


def _is_lost(of: KeyRow) -> bool:
    """Whether a row was dropped. A straggler was not."""
    return of.arrived.outcome in {"too_late", "too_old", *REJECTED}


class _Parts:
    """The input rows of an operator that some of its output rows are made of."""

    def __init__(self, replay: RecordedReplay, position: int, outputs: Sequence[Row]) -> None:
        spec = replay.spec(position)
        self.outputs, self.times = outputs, [of.time for of in spec.inputs]
        size, name = getattr(spec, "size", None), spec.event_time or ""
        self.spans = list[tuple[int, int]]()
        for row in outputs:
            names = bounds_of(row)
            if names is not None and names[0] not in spec.inputs[0].schema.names:
                start, end = (micros_of(row[column]) for column in names)
                # The last row of a match is a part of it, and so is the only one of a window.
                self.spans.append((start, max(end + (names[1] == "match_end"), start + 1)))
            elif names is None and isinstance(size, int) and isinstance(row.get(name), dt.datetime):
                time = micros_of(row[name])
                self.spans.append((time - size + 1, time + 1))
        self.has_spans = len(self.spans) == len(outputs)

    def has(self, row: Row) -> bool:
        """Whether a row is in the window of an output, or else has the same values."""
        if self.has_spans:
            times = [row[n] for n in self.times if n and isinstance(row.get(n), dt.datetime)]
            times = [micros_of(time) for time in times]
            return any(start <= time < end for time in times for start, end in self.spans)
        return any(
            all(out[name] == value for name, value in row.items() if name in out)
            for out in self.outputs
        )


def _is_between(row: Row, times: Sequence[str | None], start: int, end: int) -> bool:
    """Whether a row has such an event time, or none."""
    given = [row[name] for name in times if name and row.get(name) is not None]
    return not given or any(start <= micros_of(time) < end for time in given)


def _span(spec: Any, window: Window | None) -> tuple[int, int]:
    """The event times of the rows in a window."""
    if window is None:
        return -MAX_INSTANT - 1, MAX_INSTANT + 1
    if isinstance(window, tuple):
        return micros_of(window[0]), micros_of(window[1])
    time, size, hop = micros_of(window), getattr(spec, "size", None), getattr(spec, "hop", None)
    if not isinstance(size, int) or not isinstance(hop, int):
        return time, time + 1
    since = (time - (getattr(spec, "origin", None) or 0)) % hop  # since the last window began
    return time - since - (size - 1 - since) // hop * hop, time - since + size
