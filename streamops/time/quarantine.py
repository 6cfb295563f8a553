"""Good and quarantined rows, apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.kernel.errors import SchemaError
from streamops.time.guard_settings import GUARDED, QUARANTINED

__all__ = ["split_quarantined"]


def split_quarantined(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Split the output of a guard.

    For use inside ``foreachBatch``, on a batch that was persisted; or on the frame itself, for
    two queries.

    Parameters
    ----------
    batch : DataFrame
        Output of :func:`streamops.time.guard`, with its column ``guarded``.

    Returns
    -------
    good : DataFrame
        Rows whose event time can be used, the clamped ones among them, in the same columns.
    quarantined : DataFrame
        The other rows, in the same columns. Nothing is lost: their event time is in
        ``guarded.original``.

    Raises
    ------
    SchemaError
        ``NOT_GUARDED``: the frame is not the output of a guard.

    Examples
    --------
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     batch.persist()
    ...     good, quarantined = split_quarantined(batch)
    ...     good.drop("guarded").write.mode("append").parquet("good")
    ...     quarantined.write.mode("append").parquet("quarantined")
    ...     batch.unpersist()
    """
    kinds = {field.name: field.dataType for field in batch.schema.fields}
    said = kinds.get(GUARDED)
    if not (isinstance(said, StructType) and {"reason", "outcome"} <= set(said.names)):
        raise SchemaError(
            "NOT_GUARDED",
            "the frame does not say which rows are quarantined",
            where="time.split_quarantined",
            got=f"columns {', '.join(kinds)}",
            expected="'guarded', a struct of reason, outcome, original, bound",
            fix='df.transform(time.guard("ts")) before, and keep its column guarded',
        )
    is_quarantined = F.col(GUARDED)["outcome"].eqNullSafe(QUARANTINED)
    return batch.where(~is_quarantined), batch.where(is_quarantined)
