"""Rows of either side that are delivered instead of joined: late ones, and those that cannot be placed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.pairs import SideName
from streamops.kernel.time import Instants

__all__ = ["INSTANT", "deliver", "late_type"]

INSTANT = pa.timestamp("us", tz="UTC")


def late_type(left: pa.Schema, right: pa.Schema) -> pa.StructType:
    """What is said of a late row: of which side it is, why it is late, and the row."""
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
    judged_by: int | None,
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
        Event times of the rows; None for rows that have none to be judged by.
    judged_by : int, optional
        The watermark that the rows were judged by.
    """
    count = len(rows)
    kind = output.field("late").type
    if times is None or judged_by is None:
        lateness, watermark = pa.nulls(count, pa.duration("us")), pa.nulls(count, INSTANT)
    else:
        lateness = pa.array(judged_by - times).cast(pa.duration("us"))
        watermark = pa.repeat(pa.scalar(judged_by).cast(INSTANT), count)
    fields = list(kind.field(side).type)
    whole = [combine_chunks(rows.column(field.name)) for field in fields]
    row = pa.StructArray.from_arrays(whole, fields=fields)
    told = {
        "side": pa.repeat(side, count),
        "reason": pa.array(reason, pa.string()),
        "lateness": lateness,
        "watermark": watermark,
        side: row,
    }
    late = pa.StructArray.from_arrays(
        [told.get(field.name, pa.nulls(count, field.type)) for field in kind], fields=list(kind)
    )
    columns = [late if f.name == "late" else pa.nulls(count, f.type) for f in output]
    return pa.table(columns, schema=output)
