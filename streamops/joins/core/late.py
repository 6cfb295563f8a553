"""Side output of joins: late and rejected rows of either input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import SideName
from streamops.kernel.time import Instants

__all__ = ["INSTANT", "deliver", "late_type"]

INSTANT = pa.timestamp("us", tz="UTC")


def late_type(left: pa.Schema, right: pa.Schema) -> pa.StructType:
    """Type of the column `late`: input, reason, lateness, watermark, and the row."""
    return pa.struct(
        [
            ("side", pa.string()),
            ("reason", pa.string()),
            ("lateness", pa.duration("us")),
            ("watermark", INSTANT),
            ("left", pa.struct(list(left))),
            ("right", pa.struct(list(right))),
        ]
    )


def deliver(
    output: pa.Schema,
    side: SideName,
    rows: pa.Table,
    reason: npt.NDArray[np.str_],
    times: Instants | None,
    watermark_before: int | None,
) -> pa.Table:
    """The rows in the output schema: all null but ``late``, which says the rest.

    Parameters
    ----------
    output : Schema
        With a column ``late`` of :func:`late_type`.
    side : "left" or "right"
        Which side the rows are of.
    rows : Table
        All columns of that side, in any order.
    reason : array of str
    times : array of int64, optional
        Event times of the rows; None if they have none.
    watermark_before : int, optional
        The watermark by which the rows are late.
    """
    count = len(rows)
    dtype = output.field("late").type
    if times is None or watermark_before is None:
        lateness, watermark = pa.nulls(count, pa.duration("us")), pa.nulls(count, INSTANT)
    else:
        lateness = pa.array(watermark_before - times).cast(pa.duration("us"))
        watermark = pa.repeat(pa.scalar(watermark_before).cast(INSTANT), count)
    fields = list(dtype.field(side).type)
    whole = [combine_chunks(rows.column(field.name)) for field in fields]
    row = pa.StructArray.from_arrays(whole, fields=fields)
    values = {
        "side": pa.repeat(side, count),
        "reason": pa.array(reason, pa.string()),
        "lateness": lateness,
        "watermark": watermark,
        side: row,
    }
    late = pa.StructArray.from_arrays(
        [values.get(field.name, pa.nulls(count, field.type)) for field in dtype], fields=list(dtype)
    )
    columns = [late if f.name == "late" else pa.nulls(count, f.type) for f in output]
    return pa.table(columns, schema=output)
