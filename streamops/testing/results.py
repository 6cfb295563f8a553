"""What came of a micro-batch, whoever ran it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from streamops.kernel.clocks import ClockMetrics
from streamops.kernel.contract import Counts
from streamops.kernel.errors import CapacityError

__all__ = ["BatchResult", "Published", "records", "results_in", "split"]


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
    counts : Counts, optional
        What the operator counted. None under Spark's native engine, which does not count.
    state_rows, state_bytes : int, optional
        Entries and bytes of state, over all shards. None under the native engine.
    clock : Told, optional
        What a clock before the operator, such as ``time.producers``, told; instants in
        microseconds. None where there is no clock, and in the micro-batch without data.
    """

    batch: int
    table: pa.Table
    late: pa.Table
    watermark: dt.datetime | None
    counts: Counts | None
    state_rows: int | None
    state_bytes: int | None
    clock: ClockMetrics | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Result rows; timestamps are aware, in UTC."""
        return records(self.table)

    @property
    def late_rows(self) -> list[dict[str, Any]]:
        """Late rows; ``row`` is the row that came, as a dict."""
        return records(self.late)


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


def split(table: pa.Table, event_time: str | None) -> tuple[pa.Table, pa.Table]:
    """Results and late rows of an operator's output, apart.

    The same two halves as ``windows.split_late``, for a table. ``event_time`` is the column that
    carries its event time: the last of those that say what a result is about. None with two
    inputs, where a late row is about itself.
    """
    names = table.column_names
    if "late" not in names or not _tells_late(table.schema.field("late").type):
        return table, pa.table({})
    is_late = table.column("late").is_valid()
    results = table.filter(table.column("late").is_null()).drop_columns("late")
    late = table.filter(is_late)
    told = late.column("late").combine_chunks()
    keys = [] if event_time is None else names[: names.index(event_time) + 1]
    columns = [*(late.column(name) for name in keys), *told.flatten()]
    return results, pa.table(columns, names=[*keys, *(field.name for field in told.type)])


def _tells_late(kind: pa.DataType) -> bool:
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
