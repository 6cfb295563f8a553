"""What a step takes of a micro-batch: net changes of groups, and rows that are no change.

These are counted, and where they are routed they pass through pack and step as they came.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, change_weights
from streamops.changelog.table import REJECTED, UNKNOWN_OPERATION, is_rejected_type
from streamops.changes.core.aggregate_spec import AggregateSpec
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, null_table, take
from streamops.kernel.groups import Groups, Ints

__all__ = ["States", "apart", "pack", "weighed"]

States = list[pa.Array]

_ASIDE = (REJECTED, "late")


def pack(spec: AggregateSpec, rows: pa.Table) -> pa.Table:
    """Net changes: totals of the groups; or different rows, where rows are kept.

    Rows that are no change are only counted, or pass whole where they are routed.
    """
    rows = conform(rows, spec.input)
    weight = change_weights(rows.column(CHANGE_TYPE))
    if not spec.aside or weight.all():
        return _net(spec, rows, weight)
    good, bad = np.flatnonzero(weight), np.flatnonzero(weight == 0)
    return concat([_net(spec, take(rows, good), weight[good]), _passed(spec, take(rows, bad))])


def _net(spec: AggregateSpec, rows: pa.Table, weight: Ints) -> pa.Table:
    names = [*spec.by, *spec.told] if spec.again else [*spec.by]
    columns = [combine_chunks(rows.column(name)) for name in names]
    groups, firsts = Groups.of(key_codes(columns, len(rows)))
    index = pa.array(firsts)
    counted = [groups.sum_ints(weight), groups.sizes(), groups.sum_ints((weight == 0) * 1)]
    states = [] if spec.again else weighed(spec, groups, rows, weight)
    arrays = [*(each.take(index) for each in columns), *map(pa.array, counted), *states]
    arrays += [pa.nulls(groups.count, field.type) for field in spec.aside]
    return pa.table(arrays, schema=spec.packed)


def weighed(spec: AggregateSpec, groups: Groups, rows: pa.Table, weight: Ints) -> States:
    """The totals of the rows of each group."""
    return [state for total in spec.totals for state in total.weighed(groups, rows, weight)]


def _passed(spec: AggregateSpec, rows: pa.Table) -> pa.Table:
    """The rows as rows of a pack: counted, and whole; they add nothing to any group.

    What another operator put aside keeps its reason.
    """
    count = len(rows)
    reason = pa.repeat(UNKNOWN_OPERATION, count)
    for name in _ASIDE:
        if name in spec.input.names and is_rejected_type(spec.input.field(name).type):
            reason = pc.coalesce(
                pc.struct_field(combine_chunks(rows.column(name)), "reason"), reason
            )
    (field,) = spec.aside
    row = pa.StructArray.from_arrays(
        [combine_chunks(c) for c in rows.columns], fields=list(spec.input)
    )
    said: dict[str, pa.Array] = {
        "weight": pa.repeat(0, count),
        "changes": pa.repeat(1, count),
        "bad": pa.repeat(1, count),
        REJECTED: pa.StructArray.from_arrays([reason, row], fields=list(field.type)),
    }
    return pa.table(
        [said.get(f.name, pa.nulls(count, f.type)) for f in spec.packed], schema=spec.packed
    )


def apart(spec: AggregateSpec, packed: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What changes groups, without the column of the other rows; and these, as rows of the output."""
    if not spec.aside:
        return packed, spec.output.empty_table()
    *rest, last = packed.columns
    aside = combine_chunks(last).drop_null()
    net = pa.table(rest, schema=pa.schema(list(spec.packed)[:-1])).filter(last.is_null())
    blank = null_table(pa.schema(list(spec.output)[:-1]), len(aside))
    return net, pa.table([*blank.columns, aside], schema=spec.output)
