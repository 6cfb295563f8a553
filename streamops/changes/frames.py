"""Split off rejected rows; checks of batch frames for ``fold``, ``compact`` and ``differences``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from streamops.changelog.table import REJECTED
from streamops.kernel.errors import ColumnNotFound, SchemaError
from streamops.spark.columns import column, refuse_duplicates
from streamops.spark.comparing import parts_of
from streamops.spark.parameters import require_frame

__all__ = ["has_null_part", "refuse_others", "refuse_stream", "require_columns", "split_rejected"]


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


def refuse_stream(frame: DataFrame, *, where: str) -> None:
    """Refuse a streaming frame (``STREAMING_FRAME``), and two columns of one name."""
    if frame.isStreaming:
        raise SchemaError(
            "STREAMING_FRAME",
            "a stream has no end, and this operator needs all rows",
            where=where,
            got="a streaming frame",
            expected="a batch frame",
            fix="call it inside foreachBatch, or on the table that the stream wrote",
        )
    refuse_duplicates(frame, where=where)


def require_columns(frame: DataFrame, names: Sequence[str], *, role: str, where: str) -> None:
    """Refuse a frame without these columns."""
    for name in names:
        if name not in frame.columns:
            raise ColumnNotFound(name, frame.columns, where=where, role=role)


def has_null_part(frame: DataFrame, sequence: Sequence[str]) -> Column:
    """Whether a sequence, or a field of it at any depth, is null."""
    types = {part.name: part.dataType for part in frame.schema.fields}
    parts = (_has_null(column(name), types[name]) for name in sequence)
    return reduce(Column.__or__, parts, F.lit(False))


def _has_null(value: Column, dtype: DataType) -> Column:
    parts = parts_of(value, dtype) if isinstance(dtype, StructType) else []
    return reduce(Column.__or__, (_has_null(*part) for part in parts), value.isNull())


def refuse_others(
    left: StructType, right: StructType, *, code: str, sides: tuple[str, str], where: str
) -> None:
    """Refuse two frames that do not have the same columns, in any order."""
    types = [{f.name: f.dataType.simpleString() for f in side.fields} for side in (left, right)]
    if types[0] == types[1]:
        return
    differing = [
        f"{name}: {types[0].get(name, 'none')} and {types[1].get(name, 'none')}"
        for name in dict.fromkeys([*types[0], *types[1]])
        if types[0].get(name) != types[1].get(name)
    ]
    raise SchemaError(
        code,
        f"the columns of {sides[0]} and of {sides[1]} differ",
        where=where,
        got="; ".join(differing),
        expected="the same names with the same types",
        fix="select or cast the columns of one of them",
    )
