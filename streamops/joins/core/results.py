"""Rows of the result: pairs and lone rows, gathered column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.sides import EARLY, EXPIRED, LATE, MATCHED, Rows, Said
from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids

__all__ = ["Told", "lone", "told"]

_STATUS = pa.array(["early", "expired", "matched", "late_match"])
_CHANGES = pa.array([DELETE, INSERT])
_FIRST = EARLY
assert (EARLY, EXPIRED, MATCHED, LATE) == (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Told:
    """Results to publish or to take back.

    Parameters
    ----------
    left, right : arrays of int64
        The row of either side; -1 where there is none.
    status : array of int8
    inserts : bool
        Whether they are published, or taken back.
    """

    left: Ids
    right: Ids
    status: Said
    inserts: bool = True

    def __len__(self) -> int:
        return len(self.left)


def lone(side: str, rows: Ids, status: Said, *, inserts: bool = True) -> Told:
    """Rows of one side by themselves."""
    nobody = np.full(len(rows), -1, np.int64)
    left, right = (rows, nobody) if side == "left" else (nobody, rows)
    return Told(left, right, status[rows], inserts)


def told(spec: IntervalSpec, left: Rows, right: Rows, results: Sequence[Told]) -> pa.Table:
    """The rows of the output, in this order."""
    results = [each for each in results if len(each)]
    if not results:
        return spec.output.empty_table()
    ours = np.concatenate([each.left for each in results])
    theirs = np.concatenate([each.right for each in results])
    status = np.concatenate([each.status for each in results])
    mine, other = _index(ours), _index(theirs)
    columns = {
        name: combine_chunks(left.table.column(name)).take(mine) for name in spec.left.input.names
    }
    if spec.joins:
        if (ours < 0).any():
            # Where there is no row of the left, the key is that of the right's.
            whole = np.where(ours >= 0, ours, len(left) + theirs)
            for name, own in zip(spec.left.by, spec.right.by, strict=True):
                both = [
                    combine_chunks(left.table.column(name)),
                    combine_chunks(right.table.column(own)),
                ]
                columns[name] = pa.concat_arrays(both).take(pa.array(whole))
        for own, name in spec.names.right:
            columns[name] = combine_chunks(right.table.column(own)).take(other)
    columns[spec.into] = _STATUS.take(pa.array(status - _FIRST))
    if spec.takes_back:
        inserts = np.repeat([each.inserts for each in results], [len(each) for each in results])
        columns[CHANGE_TYPE] = _CHANGES.take(pa.array(inserts.astype(np.int8)))
    count = len(ours)
    return pa.table(
        [columns.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )


def _index(rows: Ids) -> pa.Array:
    missing = rows < 0
    return pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
