"""Folds in a batch, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamops.sourcing.core.fold import FoldCore
from streamops.spark.operator import Operator

Rows = list[dict[str, Any]]


def fold_log(
    operator: Operator, log: Rows, schema: pa.Schema, snapshot: Rows | None = None
) -> Rows:
    """The table that a log, after a snapshot if there is one, folds to; sorted by key."""
    spec: Any = operator.parameters
    names = [*spec.by]
    inputs = [pa.Table.from_pylist(log, schema)]
    if snapshot is not None:
        spec = replace(spec, has_snapshot=True)
        keys = [schema.field(name) for name in names]
        columns = pa.schema([*keys, (spec.version, pa.int64()), *spec.state])
        inputs.append(pa.Table.from_pylist(snapshot, columns))
    schemas = [table.schema for table in inputs]
    spec = spec.resolve(schemas, carried=(None,) * len(schemas), shards=1)
    packed = [
        FoldCore().pack(spec, t, side) for t, side in zip(inputs, ("left", "right"), strict=False)
    ]
    rows: Rows = FoldCore().run(spec, packed).rows.to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: [row[name] for name in names])
