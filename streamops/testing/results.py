"""The result of a micro-batch, replayed or from Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import pyarrow as pa

from streamops.kernel.core import ClockMetrics, Metrics
from streamops.kernel.lateness import has_side_output
from streamops.kernel.operator import Core
from streamops.kernel.versions import pylist
from streamops.spark.operator import Operator
from streamops.testing import conditions

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The output of a micro-batch, and the size of the state after it.

    Parameters
    ----------
    batch : int
        Number of the micro-batch in Spark: from 0, and not reset by restarts.
    table : Table
        Result rows, without the column ``late``.
    late : Table
        Late rows: key columns, ``window_start``, ``window_end`` (in sliding windows the event
        time), and the fields of ``late``: ``side``, ``reason``, ``lateness``, ``watermark``,
        ``window``, ``row``. Of an operator with two inputs: these fields. No columns if the
        operator has no side output.
    watermark : datetime, optional
        The operator's own watermark in this micro-batch. None if there is none yet.
    counts : Metrics, optional
        The metrics of the operator. None under Spark's native engine, which has none.
    state_rows, state_bytes : int, optional
        Rows and bytes of state, over all shards. None under the native engine.
    clock : ClockMetrics, optional
        The metrics of a clock before the operator, such as ``time.producers``; instants in
        microseconds. None without a clock, and in the micro-batch without data.
    upstream : tuple of BatchResult
        In a chain of operators, the results of the operators before this one.
    """

    batch: int
    table: pa.Table = field(default_factory=lambda: pa.table({}))
    late: pa.Table = field(default_factory=lambda: pa.table({}))
    watermark: dt.datetime | None = None
    counts: Metrics | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    clock: ClockMetrics | None = None
    upstream: tuple[BatchResult, ...] = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Result rows; timestamps are aware, in UTC."""
        return records(self.table)

    @property
    def late_rows(self) -> list[dict[str, Any]]:
        """Late rows; ``row`` is the input row, as a dict."""
        return records(self.late)


def read_counts(core: Core[Any], metrics: Mapping[str, Any]) -> Metrics:
    """The metrics of a core from their observed values."""
    values = {field_: metrics.get(name) or 0 for name, field_ in core.METRICS.items()}
    counts: Metrics = core.METRICS_TYPE(**values)
    return counts


def read_clock(metrics: Mapping[str, Any]) -> ClockMetrics | None:
    """The metrics of a clock from their observed values; None if it did not run."""
    if metrics.get("rows") is None:
        return None
    values = {f.name: metrics[f.name] for f in fields(ClockMetrics)}
    return ClockMetrics(**values | {name: _micros(values[name]) for name in ("clock", "newest")})


def _micros(instant: Any) -> int | None:
    """Microseconds of an instant in the progress of a query."""
    if instant is None:
        return None
    if isinstance(instant, int):  # over Connect: milliseconds
        return instant * 1_000
    if isinstance(instant, str):  # in the session's time zone: UTC in tests
        instant = dt.datetime.fromisoformat(instant)
    micros: int = (instant.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
    return micros


def combine_results(
    operators: Sequence[Operator], results: Sequence[BatchResult], output: pa.Table
) -> BatchResult:
    """The result of a chain: the rows and metrics of its last operator, and those of the others.

    ``operators`` includes follow-up operators. An operator and its follow-up have one result: the
    first counts rows, the second results. ``output`` of the last operator includes late rows.
    """
    merged: list[BatchResult] = []
    is_follow_up = False
    for operator, result in zip(operators, results, strict=True):
        if is_follow_up:
            merged[-1] = _combine_follow_up(merged[-1], result)
        else:
            merged.append(result)
        is_follow_up = operator.follow_up is not None
    *upstream, last = merged
    table, late = _split_late(output, operators[-1])
    clocks = [result.clock for result in merged if result.clock is not None]
    clock = clocks[0] if clocks else None
    return replace(last, table=table, late=late, clock=clock, upstream=tuple(upstream))


def _combine_follow_up(first: BatchResult, second: BatchResult) -> BatchResult:
    counts = None
    if first.counts is not None and second.counts is not None:
        totals = second.counts
        counts = replace(first.counts, results=totals.results, corrections=totals.corrections)
    rows, size = (
        None if one is None or other is None else one + other
        for one, other in (
            (first.state_rows, second.state_rows),
            (first.state_bytes, second.state_bytes),
        )
    )
    return replace(
        second, watermark=first.watermark, counts=counts, state_rows=rows, state_bytes=size
    )


def records(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table as dicts; maps are dicts, too."""
    try:
        rows: list[dict[str, Any]] = pylist(table)
    except OverflowError as error:
        raise conditions.TIME_NOT_IN_PYTHON.error(got=str(error)) from error
    return rows


def _split_late(table: pa.Table, operator: Operator) -> tuple[pa.Table, pa.Table]:
    """Split the output of an operator into results and late rows.

    Late rows of an operator with one input have the columns up to its event time: the key of the
    result that the row missed. With two inputs, they have the columns of ``late`` only.
    """
    names = table.column_names
    if not has_side_output(table.schema):
        return table, pa.table({})
    is_late = table.column("late").is_valid()
    results = table.filter(table.column("late").is_null()).drop_columns("late")
    late = table.filter(is_late)
    details = late.column("late").combine_chunks()
    keys: list[str] = []
    if len(operator.spec.times) == 1 and operator.spec.times[0] is not None:
        time = operator.spec.times[0]
        last = next(name for name in ("window_end", "match_end", time) if name in names)
        keys = names[: names.index(last) + 1]
    columns = [*(late.column(name) for name in keys), *details.flatten()]
    return results, pa.table(columns, names=[*keys, *(field.name for field in details.type)])


Published: TypeAlias = Iterable[Mapping[str, Any] | BatchResult] | pa.Table


def results_in(published: Published) -> list[dict[str, Any]]:
    """Results without the side output: without late and rejected rows, and without their columns.

    A column of the user may have such a name; the side output is a struct with a reason.
    """
    rows = list(_rows(published))
    side_output = {
        name
        for name in ("late", "rejected")
        if all(row.get(name) is None or _has_reason(row[name]) for row in rows)
    }
    return [
        {name: value for name, value in row.items() if name not in side_output}
        for row in rows
        if all(row.get(name) is None for name in side_output)
    ]


def _rows(published: Published) -> Iterator[Mapping[str, Any]]:
    if isinstance(published, pa.Table):
        yield from records(published)
        return
    for item in published:
        if isinstance(item, BatchResult):
            yield from item.rows
        else:
            yield item


def _has_reason(value: Any) -> bool:
    return isinstance(value, Mapping) and "reason" in value
