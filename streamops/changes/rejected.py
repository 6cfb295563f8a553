"""Changes and rejected rows, apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.changelog.table import REJECTED
from streamops.kernel.errors import SchemaError
from streamops.spark.parameters import require_frame

__all__ = ["split_rejected"]


def split_rejected(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Split the output of an operator that keeps what it rejects.

    For use inside ``foreachBatch``, on a batch that was persisted; or on the frame itself, for
    two queries.

    Parameters
    ----------
    batch : DataFrame
        Output of ``from_debezium``, ``from_delta``, ``normalize``, ``apply``, or ``aggregate`` with
        ``rejected="route"``.

    Returns
    -------
    good : DataFrame
        The changes, without the column ``rejected``.
    rejected : DataFrame
        The other rows, in the same columns and with ``rejected``: the reason, and what came.

    Raises
    ------
    SpecError
        ``NOT_A_FRAME``.
    SchemaError
        ``NOT_ROUTED``: the frame is not the output of such an operator.

    Examples
    --------
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     batch.persist()
    ...     good, rejected = split_rejected(batch)
    ...     good.write.mode("append").parquet("changes")
    ...     rejected.select("rejected.*").write.mode("append").parquet("rejected")
    ...     batch.unpersist()
    """
    require_frame(batch, "what is to be split", where="changes.split_rejected")
    kinds = {field.name: field.dataType for field in batch.schema.fields}
    said = kinds.get(REJECTED)
    if not (isinstance(said, StructType) and "reason" in said.names):
        raise SchemaError(
            "NOT_ROUTED",
            "the frame does not say which rows are rejected",
            where="changes.split_rejected",
            got=f"columns {', '.join(kinds)}",
            expected="'rejected', a struct with the reason",
            fix="split what an operator of changes put out, and keep its column rejected",
        )
    is_rejected = F.col(REJECTED).isNotNull()
    return batch.where(~is_rejected).drop(REJECTED), batch.where(is_rejected)
