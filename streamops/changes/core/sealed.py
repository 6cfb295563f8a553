"""Changes older than the horizon: all but the last of each key are forgotten, and it becomes its base."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.changes.core.intervals import Changes, Lists
from streamops.kernel.groups import Ids, Ints, running_max

__all__ = ["Sealed", "sealed"]


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is left to be remembered, and the deletes that keys ended with that were forgotten."""

    changes: Changes
    forgotten: Changes


def sealed(
    changes: Changes,
    revision: Ints,
    counted: Ids,
    values: Lists,
    begun: Ids,
    cutoff: int | None,
) -> Sealed:
    """Seal what is below the cutoff.

    Parameters
    ----------
    changes : Changes
        In order.
    revision : array of int64
        Of the interval that begins at each.
    counted, values, begun
        As ``Intervals.of`` says.
    cutoff : int, optional
        What is older, with all before it, is sealed.
    """
    changes = replace(changes, revision=revision)
    if cutoff is None or not len(changes):
        return Sealed(changes, changes.take(np.empty(0, np.int64)))
    number = np.arange(len(changes))
    oldest = running_max(changes.age, changes.begins)  # with all that is before it
    is_sealed = oldest < cutoff
    counts = np.full(len(changes), -1)
    counts[counted] = np.arange(len(counted))
    base = running_max(np.where(is_sealed & (counts >= 0), number, -1), changes.begins)
    ends = np.append(changes.key[1:] != changes.key[:-1], True)
    of_key = np.cumsum(changes.begins) - 1
    base = base[ends][of_key]  # of the key of each change
    is_base = number == base
    # A key that ends with a delete so old is forgotten as a whole.
    newest = running_max(np.where(counts >= 0, number, -1), changes.begins)[ends][of_key]
    is_gone = (base >= 0) & (base == newest) & changes.is_delete[base]
    stays = np.flatnonzero((number >= base) & ~is_gone)

    since = np.where(is_base, begun[counts], number)
    row = np.where(is_base, len(changes) + counts, number)
    pools = zip(changes.values, values, strict=True)
    kept = replace(
        changes,
        since=changes.since.take(pa.array(since)),
        revision=changes.revision[since],
        is_base=is_base,
        values=[pa.concat_arrays(both).take(pa.array(row)) for both in pools],
    ).take(stays)
    return Sealed(kept, changes.take(np.flatnonzero(is_gone & is_base)))
