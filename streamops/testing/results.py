"""What came of a micro-batch, whoever ran it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import pyarrow as pa

from streamops.kernel.clocks import ClockMetrics
from streamops.kernel.core import Metrics
from streamops.kernel.errors import CapacityError
from streamops.spark.operator import Operator

__all__ = [
    "BatchResult",
    "Published",
    "combine_results",
    "read_clock",
    "records",
    "results_in",
    "split",
]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What one micro-batch put out, and what it left in state.

    Parameters
    ----------
    batch : int
        Number of the micro-batch, as Spark counts them: from 0, on through restarts.
    table : Table
        Result rows, without the column ``late``.
    late : Table
        Late rows: key columns, ``window_start``, ``window_end`` (in sliding windows the event
        time), ``reason``, ``lateness``, ``watermark``, ``row``. Of an operator with two inputs:
        ``side``, ``reason``, ``lateness``, ``watermark``, ``left``, ``right``. Without columns
        where the operator routes none.
    watermark : datetime, optional
        The operator's own watermark that this micro-batch closed by; None while there is none.
    counts : Metrics, optional
        What the operator counted. None under Spark's native engine, which does not count.
    state_rows, state_bytes : int, optional
        Entries and bytes of state, over all shards. None under the native engine.
    clock : Told, optional
        What a clock before the operator, such as ``time.producers``, told; instants in
        microseconds. None where there is no clock, and in the micro-batch without data.
    upstream : tuple of BatchResult
        In a chain of operators, the results of the operators before this one.
    """

    batch: int
    table: pa.Table
    late: pa.Table
    watermark: dt.datetime | None
    counts: Metrics | None
    state_rows: int | None
    state_bytes: int | None
    clock: ClockMetrics | None = None
    upstream: tuple[BatchResult, ...] = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Result rows; timestamps are aware, in UTC."""
        return records(self.table)

    @property
    def late_rows(self) -> list[dict[str, Any]]:
        """Late rows; ``row`` is the row that came, as a dict."""
        return records(self.late)


def read_clock(metrics: Mapping[str, Any]) -> ClockMetrics | None:
    """The metrics of a clock, observed in a micro-batch; None if the clock was not visited."""
    if metrics.get("rows") is None:
        return None
    values = {field.name: metrics[field.name] for field in fields(ClockMetrics)}
    return ClockMetrics(
        **{**values, **{name: _micros(values[name]) for name in ("clock", "newest")}}
    )


def _micros(shown: Any) -> int | None:
    """Microseconds of an instant as a progress has it."""
    if shown is None:
        return None
    if isinstance(shown, int):  # over Connect: milliseconds
        return shown * 1_000
    if isinstance(shown, str):  # in the session's time zone: UTC in tests
        shown = dt.datetime.fromisoformat(shown)
    micros: int = (shown.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
    return micros


def combine_results(
    operators: Sequence[Operator], results: Sequence[BatchResult], output: pa.Table
) -> BatchResult:
    """The result of a chain: the rows and metrics of its last operator, and those of the others.

    An operator and its follow-up operator have one result: the first counts rows, the second results.

    Parameters
    ----------
    operators : sequence of Operator
        The chain, follow-up operators included.
    results : sequence of BatchResult
        Of each operator.
    output : Table
        What the last operator emitted, late rows included.
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
    table, late = split(output, operators[-1])
    clocks = [result.clock for result in merged if result.clock is not None]
    return replace(
        last,
        table=table,
        late=late,
        clock=clocks[0] if clocks else None,
        upstream=tuple(upstream),
    )


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
    """Rows of a table as dicts; maps are dicts, too.

    Raises
    ------
    CapacityError
        ``TIME_NOT_IN_PYTHON``: a window of the last days of the year 9999 ends after it.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    except OverflowError as error:
        raise CapacityError(
            "TIME_NOT_IN_PYTHON",
            "a time lies beyond the years that Python's datetime knows",
            where="streamops.testing",
            got=str(error),
            expected="times in the years 1 to 9999",
            fix="read the result's `table` (or `late`), whose timestamps have no such limit",
        ) from error
    return rows


def split(table: pa.Table, operator: Operator) -> tuple[pa.Table, pa.Table]:
    """Split the output of an operator into results and late rows.

    Late rows of an operator with one input have the columns up to its event time, which say which
    result the row missed. With two inputs, a late row stands for itself.
    """
    names = table.column_names
    if "late" not in names or not _is_late_type(table.schema.field("late").type):
        return table, pa.table({})
    is_late = table.column("late").is_valid()
    results = table.filter(table.column("late").is_null()).drop_columns("late")
    late = table.filter(is_late)
    details = late.column("late").combine_chunks()
    keys: list[str] = []
    if len(operator.parameters.times) == 1 and operator.parameters.times[0] is not None:
        last = "window_end" if "window_end" in names else operator.parameters.times[0]
        keys = names[: names.index(last) + 1]
    columns = [*(late.column(name) for name in keys), *details.flatten()]
    return results, pa.table(columns, names=[*keys, *(field.name for field in details.type)])


def _is_late_type(kind: pa.DataType) -> bool:
    """Whether it is our column; one of the user's own may have the name."""
    return isinstance(kind, pa.StructType) and kind.get_field_index("reason") >= 0


Published: TypeAlias = Iterable[Mapping[str, Any] | BatchResult] | pa.Table


def results_in(published: Published) -> list[dict[str, Any]]:
    """What was published as a result, without the columns that tell of late and rejected rows.

    One of the user's own may have such a name: what tells of a row is a struct with the reason.
    """
    rows = list(_rows(published))
    aside = {
        name
        for name in ("late", "rejected")
        if all(row.get(name) is None or _is_told(row[name]) for row in rows)
    }
    return [
        {name: value for name, value in row.items() if name not in aside}
        for row in rows
        if all(row.get(name) is None for name in aside)
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


def _is_told(value: Any) -> bool:
    return isinstance(value, Mapping) and "reason" in value
