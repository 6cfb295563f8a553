"""Why a query has a result, or none: one key of it, replayed from its checkpoint."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pyarrow as pa

from streamops.kernel.calls import explain_call
from streamops.kernel.columns import concat
from streamops.kernel.time import MAX_INSTANT, format_instant
from streamops.kernel.values import same
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
from streamops.observe.plan import MicroBatch, not_in_the_source, read_plan
from streamops.observe.question import (
    Part,
    Source,
    Window,
    assign,
    cut,
    guarded,
    has_shard_clock,
    is_clock,
    keys_of,
    needs_all_keys,
    parse_window,
    require_mappings,
    require_on_grid,
    require_same,
    running_session,
    split_guards,
    stored_headers,
    typed,
    versions_of,
    with_stored_shards,
)
from streamops.spark.operator import Operator
from streamops.state.checkpoint import Checkpoint, open_checkpoint
from streamops.testing.batches import Chain, to_table
from streamops.testing.recorded import OperatorStep, RecordedReplay
from streamops.testing.results import BatchResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    source: Source,
    *,
    where: Mapping[str, Any],
    window: Annotated[Window | str | None, "an instant, its start and end, or text"] = None,
    result: Mapping[str, Any] | None = None,
    since: Annotated[int | dt.datetime | None, "a micro-batch, or an instant"] = None,
    sink: Ledger | None = None,
    earlier: Mapping[int, Chain] | None = None,
) -> Explanation:
    """Replay one key of a query from its checkpoint, and say why a result exists or does not.

    The checkpoint has the sources and the watermark of each micro-batch. An operator is deterministic per
    key, so the replay emits what the query emitted. Where rows of other keys bear on it, they are
    replayed, too. The query may run meanwhile. Spark is not needed. What cannot be known is a note.

    Parameters
    ----------
    checkpoint : str or Path
        The checkpoint, on a local file system. It is not changed.
    operator : Operator, or sequence of Operator
        The operator of the query, or its chain of operators, with the parameters of the query. A running
        session reads the state of the query, and other parameters are refused.
    source : RecordedSource, or sequence of RecordedSource
        Where the rows are: :func:`files`, :func:`topics` or :func:`table`. With two inputs, a pair. An input
        that is a union of several sources is a list of them; one source is read for all of the same kind.
    where : mapping
        Values of key columns, as the first operator names them in its left input. If it passes its rows
        on, as ``time.producers`` does, also those of the next one.
    window : datetime, pair of datetime, or str, optional
        Only results whose window has this instant, or has this start and end. As text:
        ``"2024-01-31T00:00:00Z"``, or two instants with a slash in between.
    result : mapping, optional
        Only results with these values in their columns.
    since : int or datetime, optional
        The first micro-batch to read: its number, or the time since which it was planned. Rows of earlier
        ones are missing, and a note says so.
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
        ``COLUMN_NOT_FOUND``: `where` names a column that is no key, `result` one that results do not have, or
        the source lacks a column.
    SpecError
        ``INVALID_PARAMETER``: the sources do not fit, the operator is not that of the query, or it has no such
        window; ``VALUE_TYPE``: a value is not of the type of its column.
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
    Rows of earlier ones count as on time, and a note says so. The replay has the parameters that are passed:
    where the aggregates of the query have changed, `earlier` says which ones it had before.
    """
    require_mappings(where=where, result=result or {}, earlier=earlier or {})
    requested = parse_window(window)
    opened = open_checkpoint(checkpoint)
    plan = read_plan(opened)
    guards, chain = split_guards(operator)
    keys = keys_of(chain)
    for name in where:
        if name not in keys:
            raise conditions.NOT_A_KEY.error(column=name, columns=", ".join(keys), got=name)
    if not plan:
        return Explanation("no_rows", "the query has not planned a micro-batch", (), (), None, ())
    read = cut(plan, since)
    if not read:
        text = f"the query has planned no micro-batch since then; the last is {plan[-1].number}"
        return Explanation("no_rows", text, (), (), None, ())
    # A clock passes its rows on, and the checkpoint has the watermarks that it defined.
    clocks = list(map(is_clock, chain))
    first = clocks.index(False) if False in clocks else 0
    parts, notes = assign(source, len(chain[0].spec.inputs), opened, read, sum(clocks))
    for name in {name for of, _ in parts[0] for name in of.columns or ()}.difference(keys):
        raise conditions.NOT_A_KEY.error(
            column=name, columns=", ".join(keys), got=f"columns: {name}"
        )
    session = running_session(parts)
    headers, more = stored_headers(opened, chain, session)
    notes += more
    schemas = tuple(_schema_of(group, guards, session) for group in parts)
    for name in where:
        if name not in schemas[0].names:
            raise not_in_the_source(name, schemas[0].names)
    delays: Any = tuple(group[0][0].watermark for group in parts)
    if first:
        delays = (dt.timedelta(microseconds=chain[first - 1].parameters.delay),)  # type: ignore[union-attr]
    of_inputs: Any = (schemas, delays) if len(schemas) > 1 else (schemas[0], delays[0])
    is_whole = needs_all_keys(chain, where)

    def operators_of(of: Chain) -> list[Operator]:
        return with_stored_shards(split_guards(of)[1][first:], headers)

    def replay_of(of: Chain, shards: int | None, values: Row) -> RecordedReplay:
        return RecordedReplay(
            operators_of(of),
            of_inputs[0],
            watermark=of_inputs[1],
            shards=shards,
            where=values,
            first=first,
        )

    last = replay_of(operator, None, {})
    # From which micro-batch on an operator is the one of the query.
    versions = versions_of(earlier or {}, operator, len(chain))
    begin = versions[max(of for of in versions if of <= read[0].number)]
    if headers:
        require_same(last, headers)
    where = typed(where, schemas[0])
    unknown = [name for name in result or {} if name not in last.output.names]
    if unknown:
        columns = ", ".join(last.output.names)
        raise conditions.NOT_A_RESULT.error(column=unknown[0], columns=columns, got=unknown[0])
    require_on_grid(requested, last.spec(len(last.names) - 1))
    replay = replay_of(begin, None if is_whole else 1, where)
    inputs = []
    for number, (group, input_) in enumerate(zip(parts, chain[first].spec.inputs, strict=True)):
        by = dict(zip(chain[first].spec.inputs[0].by, input_.by, strict=False))
        here = {by.get(name, name): value for name, value in where.items()}
        wanted = {} if is_whole or input_.is_broadcast else here
        inputs.append(_read(group, wanted, schemas[number], guards, session))
    notes += dict.fromkeys(note for group in parts for _, of in group for note in of.notes)
    if is_whole and not headers and any(map(has_shard_clock, chain)):
        shards = sorted({of.execution.shards for of in chain if has_shard_clock(of)})
        notes.append(
            f"rows of other keys of a shard bear on the results: the answer is that of {shards[-1]} shards,"
            " and whether the query has as many is not known without its state"
        )
    if read[0].number > plan[0].number:
        before = plan[plan.index(read[0]) - 1]
        notes.append(f"rows before micro-batch {read[0].number} are not read")
        replay.start(before.watermark)
    elif plan[0].number > 0:
        notes.append(
            f"the checkpoint has no plan before micro-batch {plan[0].number}: "
            "earlier rows count in this one, as on time"
        )
    if not plan[-1].is_committed:
        notes.append(
            f"micro-batch {plan[-1].number} is not committed: the query is in it, or failed in it"
        )
    written, more = (None, []) if sink is None else _written(sink, opened)
    changes = {n: operators_of(of) for n, of in versions.items() if n > read[0].number}
    query = _Query(
        replay,
        read,
        list(zip(*inputs, strict=True)),
        where,
        requested,
        typed(result or {}, last.output),
        written,
        changes,
        is_whole,
    )
    current = max(batch.watermark for batch in plan)
    if plan[-1].is_committed:
        current = max(current, opened.watermark)
    return query.explain(current, (*notes, *more))


def _schema_of(
    group: Sequence[Part], guards: Sequence[Operator], spark: SparkSession | None
) -> pa.Schema:
    """The columns of an input."""
    found = next((of for of in (s.schema_of(r) for s, r in group) if of is not None), None)
    if found is None:
        raise conditions.NO_SOURCE_FILES.error(got="no file that exists")
    return guarded(found.empty_table(), guards, spark, 0).schema if guards else found


def _read(
    group: Sequence[Part],
    where: Row,
    schema: pa.Schema,
    guards: Sequence[Operator],
    spark: SparkSession | None,
) -> list[pa.Table]:
    """The rows of an input in each micro-batch."""
    found: list[list[pa.Table]] = [[] for _ in group[0][1].plan]
    for source, recorded in group:
        for tables, table in zip(found, source.read(recorded, where) or (), strict=False):
            tables.append(table)
    rows = list[pa.Table]()
    for tables, batch in zip(found, group[0][1].plan, strict=True):
        first, *others = tables or [schema.empty_table()]
        table = concat([first, *(to_table(of, first.schema) for of in others)])
        rows.append(guarded(table, guards, spark, batch.planned) if guards and tables else table)
    return rows


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
    is_whole: bool
    """Whether rows of other keys are replayed, too."""
    rows: list[KeyRow] = field(default_factory=list)
    read: list[list[Row]] = field(default_factory=list)
    """By operator, the rows that it would have read if nothing were late."""

    def explain(self, current: int, notes: tuple[str, ...]) -> Explanation:
        # What would be if nothing were late: all rows without a watermark.
        punctual = self.replay.fork(counts=False)
        self.read = [[] for _ in self.replay.names]
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
            _collect(self.read, ideal)
            self.rows += (KeyRow(batch.number, of.name, row) for of in steps for row in of.rows)
            emitted += self._fitting(undelayed, self.read)
            states += (
                KeyState(batch.number, *of, self.where) for of in self.replay.changed_states()
            )
            written = None if self.written is None else batch.number <= self.written
            for row in self._fitting(output):
                made = tuple(self._made_of([row])[0])
                results.append(KeyResult(batch.number, row, made, batch.is_committed, written))
        *pending, last = punctual.pending()
        for following, rows in zip(self.read[1:], pending, strict=True):
            following += rows
        ideal_results = [*emitted, *self._about(last, self.read)]
        is_open = self._is_pending(self.replay)
        targets = [of.row for of in results] + ideal_results
        if not targets and is_open:
            targets = [*self._fitting(self.replay.flush())]
        relevant = self._made_of(targets, self.read) if targets else self._near_window()
        requested = None
        if self.window is not None:
            requested = tuple(of for rows in relevant for of in rows)
        reason, answer, due, operator = self._reason(
            results, relevant, current, is_open=is_open, is_possible=bool(ideal_results)
        )
        return Explanation(
            reason, answer, tuple(self.rows), tuple(results), due, notes, operator, tuple(states),
            tuple((batch.number, batch.watermark) for batch in self.plan), requested,
        )  # fmt: skip

    def _cast(self, tables: tuple[pa.Table, ...]) -> tuple[pa.Table, ...] | None:
        return tuple(to_table(t, s) for t, s in zip(tables, self.replay.schemas, strict=True))

    def _rows_of(self, position: int) -> list[KeyRow]:
        name = self.replay.names[position]
        return [of for of in self.rows if of.operator == name]

    def _made_of(
        self, results: Sequence[Row], read: Sequence[Sequence[Row]] | None = None
    ) -> list[list[KeyRow]]:
        """By operator, the rows that are part of results, backward through the chain.

        With ``read``, those that were lost as well.
        """
        found, outputs = list[list[KeyRow]](), results
        for position in reversed(range(len(self.replay.names))):
            rows = [of for of in self._rows_of(position) if read is not None or not _is_lost(of)]
            parts = _Parts(self.replay, position, outputs)
            found.insert(0, [of for of in rows if parts.has(of.arrived.row)])
            more = [] if read is None else [row for row in read[position] if parts.has(row)]
            outputs = [of.arrived.row for of in found[0]] + more
        return found

    def _near_window(self) -> list[list[KeyRow]]:
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
                row for row in self.read[position] if has(row)
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

    def _fitting(
        self, result: BatchResult, read: Sequence[Sequence[Row]] | None = None
    ) -> list[dict[str, Any]]:
        """The results that the question is about; with ``read``, of rows that were lost as well."""
        return self._about(self.replay.records(result.table), read)

    def _about(
        self, rows: Sequence[dict[str, Any]], read: Sequence[Sequence[Row]] | None
    ) -> list[dict[str, Any]]:
        """The results of the key. Of those that lack a column of it, some may be of other keys only."""
        found = list(filter(self._fits, rows))
        if not self.is_whole:
            return found
        return [
            of for of in found if self.where.keys() <= of.keys() or self._made_of([of], read)[0]
        ]

    def _is_pending(self, replay: RecordedReplay) -> bool:
        return bool(self._fitting(replay.flush()))

    def _watermark(self, of_spark: int) -> str:
        """The watermark of the operator that emits the result, which its rows show as well."""
        lag = self.replay.spec(len(self.replay.names) - 1).lag
        return format_instant(of_spark * 1_000 + lag)

    def _due(self, current: int) -> int | None:
        """The least watermark at which the result is emitted, by bisection."""

        def is_emitted(watermark: int) -> bool:
            return any(map(self._fitting, self.replay.advance(watermark)))

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
        if any(name not in row or not same(row[name], value) for name, value in wanted.items()):
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
        self.by = spec.inputs[0].by
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
            return any(
                start <= time < end and self._has_key(row, output)
                for (start, end), output in zip(self.spans, self.outputs, strict=True)
                for time in times
            )
        return any(
            all(same(out[name], value) for name, value in row.items() if name in out)
            for out in self.outputs
        )

    def _has_key(self, row: Row, output: Row) -> bool:
        return all(same(row[of], output[of]) for of in self.by if of in row and of in output)


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
