"""Results and late rows, apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.kernel.errors import SchemaError

__all__ = ["split_late"]

_TOLD = ("reason", "lateness", "watermark", "row")


def split_late(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Split the output of an operator that routes late rows.

    For use inside ``foreachBatch``, on a batch that was persisted: each half is a query of its
    own, and without ``persist()`` Spark would compute the micro-batch, state included, twice.

    Parameters
    ----------
    batch : DataFrame
        Output of an operator with ``stragglers="route"`` or ``too_late="route"``.

    Returns
    -------
    results : DataFrame
        Result rows, without the column ``late``.
    late : DataFrame
        Late rows: key columns, ``window_start``, ``window_end`` (the window missed),
        ``reason``, ``lateness``, ``watermark``, ``row``.

    Raises
    ------
    SchemaError
        ``NOT_ROUTED``: the frame is not the output of such an operator.

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
    if not routed or "window_end" not in kinds:
        raise SchemaError(
            "NOT_ROUTED",
            "the frame carries no late rows",
            where="windows.split_late",
            got=f"columns {', '.join(kinds)}",
            expected=f"'window_end' and 'late', a struct of {', '.join(_TOLD)}",
            fix="stragglers='route', or too_late='route' beside 'update' and 'retract'",
        )
    results = batch.where(F.col("late").isNull()).drop("late")
    names = list(kinds)
    keys = names[: names.index("window_end") + 1]
    late = batch.where(F.col("late").isNotNull()).select(
        *("`" + name.replace("`", "``") + "`" for name in keys), "late.*"
    )
    return results, late
