"""Rejected rows among what is told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.table import REJECTED
from streamops.changes.core.spec import TableSpec
from streamops.kernel.columns import combine_chunks, null_table

__all__ = ["rejected_rows"]


def rejected_rows(spec: TableSpec, judged: ClassifiedChanges) -> pa.Table:
    """The rejected rows as rows of the output."""
    at = np.flatnonzero(judged.is_rejected)
    rows = [
        combine_chunks(judged.rows.column(name)).take(pa.array(at)) for name in spec.input.names
    ]
    told = spec.output.field(REJECTED).type
    inner = pa.StructArray.from_arrays(rows, fields=list(spec.input))
    struct = pa.StructArray.from_arrays([judged.reasons(at), inner], fields=list(told))
    table = null_table(pa.schema(list(spec.output)[:-1]), len(at))
    return table.append_column(spec.output.field(REJECTED), struct)
