"""Split changes and rejected rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamops.changelog.table import REJECTED
from streamops.kernel.errors import SchemaError
from streamops.spark.parameters import require_frame

__all__ = ["split_rejected"]


def split_rejected(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Split the output of an operator that emits rejected rows.

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
        The other rows, with ``rejected``: the reason, and the input row.

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
    require_frame(batch, "the argument", where="changes.split_rejected")
    types = {field.name: field.dataType for field in batch.schema.fields}
    rejected = types.get(REJECTED)
    if not (isinstance(rejected, StructType) and "reason" in rejected.names):
        raise SchemaError(
            "NOT_ROUTED",
            "the frame has no column of rejected rows",
            where="changes.split_rejected",
            got=f"columns {', '.join(types)}",
            expected="'rejected', a struct with the reason",
            fix="split the output of an operator of changes, with its column rejected",
        )
    is_rejected = F.col(REJECTED).isNotNull()
    return batch.where(~is_rejected).drop(REJECTED), batch.where(is_rejected)
