"""Results and late rows, apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.kernel.errors import ColumnNotFound, SchemaError
from streamops.spark.columns import require_name

__all__ = ["split_late"]

_TOLD = ("reason", "lateness", "watermark", "row")


def split_late(batch: DataFrame, *, time: str | None = None) -> tuple[DataFrame, DataFrame]:
    """Split the output of an operator that routes late rows.

    For use inside ``foreachBatch``, on a batch that was persisted: each half is a query of its
    own, and without ``persist()`` Spark would compute the micro-batch, state included, twice.

    Parameters
    ----------
    batch : DataFrame
        Output of an operator with ``stragglers="route"`` or ``too_late="route"``.
    time : str, optional
        The event-time column of an operator whose results have no ``window_end`` but an event
        time, as those of ``sliding``: nothing else in the frame tells it from an aggregate.

    Returns
    -------
    results : DataFrame
        Result rows, without the column ``late``.
    late : DataFrame
        Late rows: key columns, ``window_start``, ``window_end`` (the window missed) or `time`,
        ``reason``, ``lateness``, ``watermark``, ``row``.

    Raises
    ------
    SchemaError
        ``NOT_ROUTED``: the frame is not the output of such an operator.
        ``EVENT_TIME_UNKNOWN``: it has no ``window_end``, and `time` was not given.
    ColumnNotFound
        There is no column `time`.

    Examples
    --------
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     batch.persist()
    ...     results, late = split_late(batch)
    ...     results.write.mode("append").parquet("results")
    ...     late.write.mode("append").parquet("late")
    ...     batch.unpersist()
    """
    kinds = {field.name: field.dataType for field in batch.schema.fields}
    said = kinds.get("late")
    routed = isinstance(said, StructType) and set(_TOLD) <= set(said.names)
    if not routed:
        raise SchemaError(
            "NOT_ROUTED",
            "the frame carries no late rows",
            where="windows.split_late",
            got=f"columns {', '.join(kinds)}",
            expected=f"'late', a struct of {', '.join(_TOLD)}",
            fix="joins.split_late, of the output of a join"
            if isinstance(said, StructType) and "side" in said.names
            else "stragglers='route', or too_late='route' beside 'update' and 'retract'",
        )
    names = list(kinds)
    last = _last_of_keys(names, time)
    results = batch.where(F.col("late").isNull()).drop("late")
    keys = names[: names.index(last) + 1]
    late = batch.where(F.col("late").isNotNull()).select(
        *("`" + name.replace("`", "``") + "`" for name in keys), "late.*"
    )
    return results, late


def _last_of_keys(names: list[str], time: str | None) -> str:
    """The last column before the aggregates."""
    if time is not None:
        require_name(time, parameter="time", where="windows.split_late")
        if time not in names:
            raise ColumnNotFound(time, names, where="windows.split_late", role="time")
        return time
    if "window_end" not in names:
        raise SchemaError(
            "EVENT_TIME_UNKNOWN",
            "nothing tells which columns say what a late row is about",
            where="windows.split_late",
            got=f"columns {', '.join(names)}",
            expected="a column 'window_end', or time=...",
            fix="name the event-time column of the operator, as in "
            'split_late(batch, time="ts") behind windows.sliding',
        )
    return "window_end"
