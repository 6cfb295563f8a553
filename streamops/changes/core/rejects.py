"""Rejected rows among what is told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.changes.core.spec import TableSpec
from streamops.kernel.columns import nulls, one
from streamops.kernel.judged import Judged
from streamops.kernel.keyed import REJECTED

__all__ = ["rejected_rows"]


def rejected_rows(spec: TableSpec, judged: Judged) -> pa.Table:
    """The rejected rows as rows of the output."""
    at = np.flatnonzero(judged.is_rejected)
    rows = [one(judged.rows.column(name)).take(pa.array(at)) for name in spec.input.names]
    told = spec.output.field(REJECTED).type
    inner = pa.StructArray.from_arrays(rows, fields=list(spec.input))
    struct = pa.StructArray.from_arrays([judged.reasons(at), inner], fields=list(told))
    table = nulls(pa.schema(list(spec.output)[:-1]), len(at))
    return table.append_column(spec.output.field(REJECTED), struct)
