"""Results and late rows of either side, apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.kernel.errors import SchemaError
from streamops.spark.parameters import require_frame

__all__ = ["split_late"]

_TOLD = ("side", "reason", "lateness", "watermark", "left", "right")


def split_late(batch: DataFrame) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Split the output of a join that routes late rows.

    For use inside ``foreachBatch``, on a batch that was persisted: each part is a query of its
    own, and without ``persist()`` Spark would compute the micro-batch, state included, three times.

    Parameters
    ----------
    batch : DataFrame
        Output of a join with ``stragglers="route"``, ``too_late="route"`` or ``rejected="route"``.

    Returns
    -------
    results : DataFrame
        Result rows, without the column ``late``.
    late_left, late_right : DataFrame
        Late rows of each side: ``reason``, ``lateness``, ``watermark``, ``row``.

    Raises
    ------
    SpecError
        ``NOT_A_FRAME``.
    SchemaError
        ``NOT_ROUTED``: the frame is not the output of such a join.

    Examples
    --------
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     batch.persist()
    ...     results, late_searches, late_clicks = split_late(batch)
    ...     results.write.mode("append").parquet("results")
    ...     late_clicks.write.mode("append").parquet("late_clicks")
    ...     batch.unpersist()
    """
    require_frame(batch, "what is to be split", where="joins.split_late")
    kinds = {field.name: field.dataType for field in batch.schema.fields}
    said = kinds.get("late")
    if not (isinstance(said, StructType) and set(_TOLD) <= set(said.names)):
        raise SchemaError(
            "NOT_ROUTED",
            "the frame carries no late rows of a join",
            where="joins.split_late",
            got=f"columns {', '.join(kinds)}",
            expected=f"'late', a struct of {', '.join(_TOLD)}",
            fix="stragglers='route', or too_late='route' beside corrections; of joins.enrich and "
            "joins.tables, rejected='route'",
        )
    late = F.col(
        "late"
    )  # and not "late.side", which is a column of a frame called late, if it has one
    results = batch.where(late.isNull()).drop("late")
    left, right = (
        batch.where(late["side"] == side).select(
            *(late[name].alias(name) for name in _TOLD[1:4]), late[side].alias("row")
        )
        for side in ("left", "right")
    )
    return results, left, right
