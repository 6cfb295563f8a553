"""Checks of a session and of frames while the plan is built."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE, REVISION
from streamops.kernel.parameters import require_columns
from streamops.kernel.time import format_duration
from streamops.spark import conditions
from streamops.spark.metadata import (
    INSTANT,
    LATENESS,
    METRICS,
    REVISED,
    STATE_API,
    UPSERTS,
    WATERMARK,
    has_node,
)


def carried_watermark(
    frame: DataFrame,
    delay: int | None,
    lag: int,
    *,
    time: str,
    of_results: bool = False,
    late_by_time: bool = False,
) -> int | None:
    """Delay, in microseconds, of the watermark that a streaming frame brings.

    None if it brings none and the operator defines its own. The watermark must be on the column
    ``time``, or on a window whose start or end the column is.

    Parameters
    ----------
    of_results : bool
        Whether the rows are results of windows. A window with a watermark is then the result of a
        Spark aggregation, which leaves no room for late rows.
    late_by_time : bool
        Whether a row is late once the watermark has reached its ``time``.

    Raises
    ------
    ColumnNotFound
        There is no column ``time``.
    WatermarkError
        ``WATERMARK_MISSING``, ``WATERMARK_LOST``, ``WATERMARK_TWICE`` or ``WATERMARK_TOO_TIGHT``.
    """
    require_columns(frame.schema.names, {"time": [time]})
    marks = [field for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    if not marks:
        _refuse_lost(frame, time)
        if delay is not None:
            return None
        raise conditions.WATERMARK_MISSING.error(
            got=f"a frame without a watermark, and no delay (event time {time!r})"
        )
    about = [f for f in marks if f.name == time] or [f for f in marks if _is_on_window(f)]
    name = (about or marks)[0].name
    if delay is not None:
        condition = conditions.DELAY_ON_WATERMARK if about else conditions.DELAY_ON_OTHER_WATERMARK
        got = f"delay={format_duration(delay)!r} on a frame with a watermark on {name!r}"
        raise condition.error(column=name, time=time, got=got)
    if not about:
        raise conditions.WATERMARK_ON_OTHER_COLUMN.error(
            column=name, time=time, got=f"time={time!r} on a frame with a watermark on {name!r}"
        )
    if late_by_time and time != name and not isinstance(about[0].dataType, StructType):
        raise conditions.WATERMARK_ON_END.error(
            column=name, time=time, got=f"time={time!r} on a frame with a watermark on {name!r}"
        )
    mark = about[0].metadata
    carried = int(mark[WATERMARK]) * 1_000
    # The results of an upstream operator follow its own watermark. With a greater lateness, the
    # watermark of this operator would be ahead of them. Spark's own operators have no lateness.
    is_native = of_results and isinstance(about[0].dataType, StructType)
    room = int(mark.get(LATENESS, 0 if is_native else carried))
    if lag > room:
        condition = conditions.LATENESS_OF_SPARK if is_native else conditions.LATENESS_TOO_LONG
        raise condition.error(
            room=format_duration(room),
            got=f"a lateness of {format_duration(lag)!r} (allowed_lateness, and what the operator adds "
            f"to it), watermark on {name!r} with a delay of {format_duration(carried)!r}",
        )
    return carried


def _refuse_lost(frame: object, time: str) -> None:
    """Refuse a frame whose watermark was lost upstream.

    With a second watermark, Spark fails in the middle of the query, or waits forever.
    """
    if not isinstance(frame, DataFrame) or not has_node(frame, "EventTimeWatermark"):
        return
    raise conditions.WATERMARK_LOST.error(
        got=f"a frame without a watermark, behind withWatermark(...) or an operator with one (event "
        f"time {time!r})"
    )


def _is_on_window(field: StructField) -> bool:
    """Whether the watermark is on a window, from whose columns ``time`` may have been selected.

    Spark marks the struct of a window, the operators of streamops mark ``window_end``.
    """
    is_window_end = STATE_API in field.metadata and INSTANT not in field.metadata
    return isinstance(field.dataType, StructType) or is_window_end


def metric_name(frame: DataFrame, name: str, *others: DataFrame) -> tuple[str, list[str]]:
    """A name of metrics that no upstream operator of the query has, and all names that are taken.

    Parameters
    ----------
    frame : DataFrame
        The operator's input.
    name : str
        The preferred name.
    others : DataFrame
        Further inputs.
    """
    taken: list[str] = []
    for field in (field for input_ in (frame, *others) for field in input_.schema.fields):
        taken += [n for n in (field.metadata or {}).get(METRICS, "").split(",") if n]
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    return unique, [*taken, unique]


def refuse_taken(frame: DataFrame, adds: Sequence[str]) -> None:
    """Refuse a frame that already has a column of this name, regardless of case.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``.
    """
    existing = {name.lower(): name for name in frame.schema.names}
    for name in adds:
        if name.lower() in existing:
            taken = existing[name.lower()]
            raise conditions.NAME_TAKEN.error(
                column=taken, adds=", ".join(adds), got=f"columns {', '.join(frame.schema.names)}"
            )


def refuse_revised(frame: DataFrame) -> None:
    """Refuse revisions and side output where every row must count once.

    Operators mark the columns that distinguish these rows. A frame without those columns is accepted.

    Raises
    ------
    SchemaError
        ``ROWS_REVISED``.
    """
    marked = [field.name for field in frame.schema.fields if REVISED in (field.metadata or {})]
    if not marked:
        return
    condition = conditions.RESULTS_REVISED if REVISION in marked else conditions.CHANGES
    if "late" in marked:
        is_alone = len(marked) == 1
        condition = conditions.LATE_ROWS if is_alone else conditions.REVISIONS_AND_LATE_ROWS
    raise condition.error(
        selection=_on_time(frame.schema.names, marked),
        got=f"results of an operator that revises or routes, with {', '.join(marked)}",
    )


def refuse_upserts(frame: DataFrame) -> None:
    """Refuse updates without preimages where the previous row must be retracted.

    Raises
    ------
    SchemaError
        ``CHANGE_STREAM_INPUT``.
    """
    marked = [field.name for field in frame.schema.fields if UPSERTS in (field.metadata or {})]
    if marked:
        raise conditions.NO_PREIMAGES.error(
            got=f"upserts without preimages, in {', '.join(marked)}"
        )


def _on_time(names: Sequence[str], marked: Sequence[str]) -> str:
    """The expression that selects the on-time results, each once."""
    # Early results begin with revision 0, and a retraction has the revision of its result.
    which = "timing = 'on_time'" if "timing" in names else f"{REVISION} = 0"
    if CHANGE_TYPE in marked:
        which += f" AND {CHANGE_TYPE} IN ('{INSERT}', '{POSTIMAGE}')"
    return f'.where("{which}").drop({", ".join(map(repr, marked))})'
