"""Folds in a batch, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamops.kernel.versions import pylist
from streamops.sourcing.core.fold import fold
from streamops.spark.operator import Operator

Rows = list[dict[str, Any]]


def fold_table(operator: Operator, log: pa.Table, snapshot: Rows | None = None) -> pa.Table:
    """The table that a log folds to, after a snapshot if there is one."""
    spec: Any = operator.parameters
    columns = spec.output(log.schema)
    return fold(spec, log, None if snapshot is None else pa.Table.from_pylist(snapshot, columns))


def fold_log(
    operator: Operator, log: Rows, schema: pa.Schema, snapshot: Rows | None = None
) -> Rows:
    """The rows of this table, sorted by key."""
    spec: Any = operator.parameters
    table = fold_table(operator, pa.Table.from_pylist(log, schema), snapshot)
    rows: Rows = pylist(table)
    return sorted(rows, key=lambda row: [row[name] for name in spec.by])
