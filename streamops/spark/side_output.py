"""Split the output of an operator into results and side output."""

from __future__ import annotations

from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from streamops.kernel.core import SIDES
from streamops.kernel.errors import located
from streamops.kernel.lateness import LATE, LATE_FIELDS
from streamops.kernel.parameters import require_columns, require_name
from streamops.spark import conditions
from streamops.spark.columns import column, require_frame

_TAGS = {LATE: {*LATE_FIELDS}, "rejected": {"reason"}, "guarded": {"reason", "outcome"}}
"""The columns that tag side output, and fields of each."""


@located("split_side_output")
def split_side_output(
    batch: DataFrame, *, tag: str | None = None, time: str | None = None
) -> tuple[DataFrame, ...]:
    """Split the output of an operator into results and side output.

    Use it inside ``foreachBatch``, on a persisted batch: each part is a query of its own, and
    without ``persist()`` Spark computes the micro-batch, including state, once for each.

    Parameters
    ----------
    batch : DataFrame
        Output of an operator with a side output: of ``windows`` with ``stragglers="route"`` or
        ``too_late="route"``, of ``joins`` with these or ``rejected="route"``, of ``changes`` with its
        column ``rejected``, or of ``time.guard``.
    tag : str, optional
        The column that tags the side output: "late", "rejected" or "guarded". Default: the last of
        these in the frame, which is that of the last operator.
    time : str, optional
        The event-time column of results without ``window_end`` and ``match_end``, such as those of
        ``windows.sliding``: late rows keep the columns up to it. By default, ``row`` has them only.

    Returns
    -------
    windows : results, late
        Results, without the column ``late``; late rows: key columns, ``window_start``,
        ``window_end`` (the window missed) or `time`, and the fields of ``late``: ``side``, ``reason``,
        ``lateness``, ``watermark``, ``window``, ``row``.
    matches : results, late
        Results, without the column ``late``; late rows and partial matches: key columns,
        ``match_start``, ``match_end``, the fields of ``late``, ``steps``.
    joins, search : results, late_left, late_right
        Results, without the column ``late``; late or rejected rows of each side: ``reason``,
        ``lateness``, ``watermark``, ``row``; of ``search.match`` also ``position``, ``message``.
    changes : good, rejected
        Changes, without the column ``rejected``; the other rows, with ``rejected``: the reason, and
        the input row.
    guard : good, routed
        Rows with a usable event time, including clamped ones; the other rows. Same columns; the
        original event time is in ``guarded.original``.

    Raises
    ------
    SpecError
        ``NOT_A_FRAME``.
    SchemaError
        ``FRAME_TYPE``: the frame has no such column.
    ColumnNotFound
        There is no column `time`.

    Examples
    --------
    >>> def write(batch, batch_id):
    ...     batch.persist()
    ...     results, late = split_side_output(batch)
    ...     results.write.mode("append").parquet("results")
    ...     late.write.mode("append").parquet("late")
    ...     batch.unpersist()
    """
    require_frame(batch, "the argument")
    columns = [field.name for field in batch.schema.fields]
    tags = side_output_tags(batch)
    if not tags or (tag is not None and tag not in tags):
        raise conditions.NO_SIDE_OUTPUT.error(
            tag=tag or "late, rejected or guarded", got=f"columns {', '.join(columns)}"
        )
    name = tag or list(tags)[-1]
    tagged = cast("StructType", batch.schema[name].dataType)
    joined = "row" in tags[name] and has_sides(tagged["row"].dataType)
    keys = [] if name != "late" or joined else _key_columns(columns, time)
    value = F.col(name)  # not "late.side": a frame of the alias "late" may have a column "side"
    if name == "guarded":
        routed = value["outcome"].eqNullSafe("routed")
        return batch.where(~routed), batch.where(routed)
    results = batch.where(value.isNull()).drop(name)
    if name == "rejected":
        return results, batch.where(value.isNotNull())
    if joined:
        names = [field for field in tags[name] if field not in ("side", "window")]
        left, right = (
            batch.where(value["side"] == side).select(
                *((value[of][side] if of == "row" else value[of]).alias(of) for of in names)
            )
            for side in SIDES
        )
        return results, left, right
    fields = [value[field].alias(field) for field in tags[name]]
    return results, batch.where(value.isNotNull()).select(*map(column, keys), *fields)


def side_output_tags(frame: DataFrame) -> dict[str, list[str]]:
    """The columns that tag side output, and their fields."""
    return {
        field.name: field.dataType.names
        for field in frame.schema.fields
        if isinstance(field.dataType, StructType)
        and field.name in _TAGS
        and _TAGS[field.name] <= {*field.dataType.names}
    }


def has_sides(dtype: DataType) -> bool:
    """Whether the row of a side output is that of one of two inputs."""
    return isinstance(dtype, StructType) and dtype.names == [*SIDES]


def _key_columns(names: list[str], time: str | None) -> list[str]:
    """The columns of results before the values."""
    if time is not None:
        require_name(time, parameter="time")
        require_columns(names, {"time": [time]})
    last = [name for name in (time, "window_end", "match_end") if name in names]
    return names[: names.index(last[0]) + 1] if last else []
