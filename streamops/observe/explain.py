"""Why a query has a result, or none: one key of it, replayed from its checkpoint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamops.kernel.calls import explain_call
from streamops.kernel.time import MAX_INSTANT, format_duration, format_instant
from streamops.observe import conditions
from streamops.observe.plan import MicroBatch, RecordedSource, read_plan
from streamops.state.checkpoint import open_checkpoint
from streamops.testing.batches import expand, to_table
from streamops.testing.recorded import ArrivedRow, RecordedReplay

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from streamops.testing.batches import Chain

Window = dt.datetime | tuple[dt.datetime, dt.datetime]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BOUNDS = (("window_start", "window_end"), ("match_start", "match_end"))
_LAST_WATERMARK = MAX_INSTANT // 1_000
_NAMES = {"stragglers": "straggler", "accepted": "accepted"}
_LATE = {"too_late", "straggler", "stragglers", "too_old"}
_REJECTED = {"rejected", "null_time", "time_out_of_range"}


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A row of the key: its micro-batch, its operator, and what it counted as."""

    batch: int
    operator: str
    arrived: ArrivedRow

    def __str__(self) -> str:
        row = self.arrived
        outcome = _NAMES.get(row.outcome, row.outcome.replace("_", " "))
        behind = ""
        if row.lateness is not None and row.outcome in _LATE:
            behind = f" by {format_duration(row.lateness)}"
        side = f" {row.side}" if row.side else ""
        return (
            f"micro-batch {self.batch}: {self.operator}{side}: {outcome}{behind}, "
            f"watermark {format_instant(row.watermark)}: {_show(row.row)}"
        )


@dataclass(frozen=True, slots=True)
class KeyResult:
    """A result of the key, and the rows that its window has at this time."""

    batch: int
    row: dict[str, Any]
    rows: tuple[KeyRow, ...]
    is_committed: bool

    def __str__(self) -> str:
        state = "" if self.is_committed else ", not committed"
        made = f", from {len(self.rows)} rows" if self.rows else ""
        return f"micro-batch {self.batch}{state}: result{made}: {_show(self.row)}"


@dataclass(frozen=True)
class Explanation:
    """The rows and results of one key, and why a result exists or does not.

    Parameters
    ----------
    reason : str
        "result", "open", "late", "rejected", "no_rows", "no_partner" or "no_result".
    answer : str
        The reason as a sentence.
    key_rows : tuple of KeyRow
        The rows that arrived, in their order.
    key_results : tuple of KeyResult
        The results that fit the conditions, in their order.
    due : int, optional
        Of an open result: Spark's watermark in milliseconds at which it is emitted.
    notes : tuple of str
        What the checkpoint or the source does not have any more.
    """

    reason: str
    answer: str
    key_rows: tuple[KeyRow, ...]
    key_results: tuple[KeyResult, ...]
    due: int | None
    notes: tuple[str, ...]

    def __str__(self) -> str:
        both: list[KeyRow | KeyResult] = [*self.key_rows, *self.key_results]
        events = sorted(both, key=lambda event: event.batch)
        return "\n".join([self.answer, *map(str, events), *(f"note: {n}" for n in self.notes)])

    @property
    def rows(self) -> pd.DataFrame:
        """One row per row of the key: micro-batch, operator, outcome, watermark, lateness, columns."""
        import pandas as pd

        found = [
            {
                "batch": of.batch,
                "operator": of.operator,
                "side": of.arrived.side,
                "outcome": of.arrived.outcome,
                "watermark": _instant(of.arrived.watermark),
                "lateness": None
                if of.arrived.lateness is None
                else dt.timedelta(microseconds=of.arrived.lateness),
                "row": of.arrived.row,
            }
            for of in self.key_rows
        ]
        return pd.DataFrame(found, columns=list(found[0]) if found else list(_ROW_COLUMNS))

    @property
    def results(self) -> pd.DataFrame:
        """One row per result: its micro-batch, the number of its rows, and its columns."""
        import pandas as pd

        return pd.DataFrame(
            [{"batch": of.batch, "rows": len(of.rows), **of.row} for of in self.key_results]
        )


_ROW_COLUMNS = ("batch", "operator", "side", "outcome", "watermark", "lateness", "row")


@explain_call("observe.explain")
def explain(
    checkpoint: str | Path,
    operator: Chain,
    source: RecordedSource | tuple[RecordedSource, RecordedSource],
    *,
    where: Mapping[str, Any],
    window: Window | None = None,
    result: Mapping[str, Any] | None = None,
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

    Returns
    -------
    Explanation
        ``str()`` is a time line; ``rows`` and ``results`` are frames of pandas.

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
    not replayed, as the replay has the rows of one key only.
    """
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
    inputs, notes = [], []
    for number, (of, input_) in enumerate(zip(sources, first.spec.inputs, strict=True)):
        here = {
            name: where[key] for key, name in zip(keys, input_.by, strict=False) if key in where
        }
        tables, missing = of.read(opened, number, plan, here)
        inputs.append(tables)
        notes += missing
    if plan and plan[0].number > 0:
        notes.append(
            f"the checkpoint has no plan before micro-batch {plan[0].number}: "
            "earlier rows count in this one, as on time"
        )
    delays = tuple(of.watermark for of in sources)
    schemas = tuple(tables[0].schema for tables in inputs)
    replay = RecordedReplay(
        operator,
        schemas if len(schemas) > 1 else schemas[0],
        watermark=delays if len(delays) > 1 else delays[0],  # type: ignore[arg-type]
    )
    commits = [batch.number for batch in plan if batch.is_committed]
    query = _Query(replay, plan, list(zip(*inputs, strict=True)), where, window, result or {})
    current = max((batch.watermark for batch in plan), default=0)
    if commits and plan[-1].is_committed:
        current = max(current, opened.watermark)
    return query.explain(current, tuple(notes))


@dataclass
class _Query:
    replay: RecordedReplay
    plan: list[MicroBatch]
    tables: list[tuple[pa.Table, ...]]
    where: Mapping[str, Any]
    window: Window | None
    conditions: Mapping[str, Any]

    def explain(self, current: int, notes: tuple[str, ...]) -> Explanation:
        # What would be if nothing were late: all rows without a watermark.
        punctual = self.replay.fork()
        rows, results = list[KeyRow](), list[KeyResult]()
        for batch, tables in zip(self.plan, self.tables, strict=True):
            there = self._cast(tables)
            if not batch.has_data and batch is not self.plan[0]:
                there = None
            steps, output = self.replay.step(batch.number, there, batch.watermark)
            punctual.step(batch.number, there, 0)
            rows += (KeyRow(batch.number, of.name, row) for of in steps for row in of.rows)
            for row in filter(self._fits, output.rows):
                made = tuple(of for of in rows if _is_part(of, row, steps[0].name))
                results.append(KeyResult(batch.number, row, made, batch.is_committed))
        # The bounds of the result are those of any that fits: emitted, open, or without lateness.
        others = [*self.replay.flush().rows, *punctual.flush().rows]
        fitting = [of.row for of in results] + [row for row in others if self._fits(row)]
        bounds = _bounds(fitting[0]) if fitting and self.window is not None else None
        self.window = bounds or self.window
        first = [of for of in rows if of.operator == self.replay.names[0]]
        relevant = [of for of in first if self._in_window(of)]
        reason, answer, due = self._reason(results, relevant, first, current, punctual)
        return Explanation(reason, answer, tuple(rows), tuple(results), due, notes)

    def _cast(self, tables: tuple[pa.Table, ...]) -> tuple[pa.Table, ...] | None:
        return tuple(to_table(t, s) for t, s in zip(tables, self.replay.schemas, strict=True))

    def _reason(
        self,
        results: list[KeyResult],
        relevant: list[KeyRow],
        first: list[KeyRow],
        current: int,
        punctual: RecordedReplay,
    ) -> tuple[str, str, int | None]:
        late = [of for of in relevant if of.arrived.outcome in _LATE]
        if results:
            more = f"; {len(late)} rows were late" if late else ""
            return "result", f"{len(results)} results{more}", None
        if self._is_pending(self.replay):
            due = self._due(current)
            until = "" if due is None else f" until the watermark is {format_instant(due * 1_000)}"
            return (
                "open",
                f"the result is open{until}; it is {format_instant(current * 1_000)}",
                due,
            )
        if not relevant:
            near = sorted(first, key=self._distance)[:1]
            nearest = f"; the nearest is {near[0]}" if near else ""
            return "no_rows", f"no row of {_show(self.where)} arrived{nearest}", None
        if late and self._is_pending(punctual):
            return "late", f"{len(late)} rows were late, the first: {late[0]}", None
        rejected = [of for of in relevant if of.arrived.outcome in _REJECTED]
        if len(rejected) == len(relevant):
            return "rejected", f"all {len(rejected)} rows were rejected: {rejected[0]}", None
        sides = {of.arrived.side for of in relevant}
        if len(sides) == 1 and None not in sides:
            return "no_partner", f"{len(relevant)} rows of the {sides.pop()} input only", None
        return "no_result", f"the operator has no such result of {len(relevant)} rows", None

    def _is_pending(self, replay: RecordedReplay) -> bool:
        return any(map(self._fits, replay.flush().rows))

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

    def _fits(self, row: Mapping[str, Any]) -> bool:
        wanted = {**{k: v for k, v in self.where.items() if k in row}, **self.conditions}
        if any(name not in row or row[name] != value for name, value in wanted.items()):
            return False
        if self.window is None:
            return True
        bounds = _bounds(row)
        if bounds is None:
            return self.window in [v for v in row.values() if isinstance(v, dt.datetime)]
        if isinstance(self.window, tuple):
            return bounds == self.window
        return bounds[0] <= self.window < bounds[1] or self.window == bounds[0]

    def _in_window(self, of: KeyRow) -> bool:
        time = _instant(of.arrived.time)
        if self.window is None or time is None:
            return True
        if isinstance(self.window, tuple):
            return self.window[0] <= time < self.window[1]
        if self._span is None:
            return time == self.window
        return abs(time - self.window) < self._span

    @property
    def _span(self) -> dt.timedelta | None:
        size = getattr(self.replay.spec, "size", None)
        return dt.timedelta(microseconds=size) if isinstance(size, int) else None

    def _distance(self, of: KeyRow) -> float:
        time = _instant(of.arrived.time)
        start = self.window[0] if isinstance(self.window, tuple) else self.window
        return (
            float("inf") if time is None or start is None else abs((time - start).total_seconds())
        )


def _is_part(of: KeyRow, row: Mapping[str, Any], operator: str) -> bool:
    """Whether a row of the first operator lies in the window of a result, and was accepted."""
    time, bounds = _instant(of.arrived.time), _bounds(row)
    dropped = {"too_late", "too_old", *_REJECTED}
    if of.operator != operator or of.arrived.outcome in dropped:
        return False
    if bounds is None or time is None:
        return True
    return bounds[0] <= time < bounds[1] or time == bounds[0]


def _bounds(row: Mapping[str, Any]) -> tuple[dt.datetime, dt.datetime] | None:
    for start, end in _BOUNDS:
        if row.get(start) is not None and row.get(end) is not None:
            return row[start], row[end]
    return None


def _instant(micros: int | None) -> dt.datetime | None:
    if micros is None or abs(micros) > MAX_INSTANT:
        return None
    return _EPOCH + dt.timedelta(microseconds=micros)


def _show(row: Mapping[str, Any] | Sequence[Any]) -> str:
    values = row.items() if isinstance(row, Mapping) else enumerate(row)
    return ", ".join(f"{name}={_value(value)}" for name, value in values)


def _value(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else repr(value)
