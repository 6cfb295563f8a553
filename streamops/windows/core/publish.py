"""Windows as rows of the output."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT
from streamops.kernel.groups import Ids
from streamops.kernel.time import Instants
from streamops.windows.core.spec import INSTANT, WindowSpec

__all__ = ["EARLY", "LATE", "ON_TIME", "Results", "published", "stated"]

EARLY, ON_TIME, LATE = range(3)
"""When a result is published, as state has it."""

_WORDS = pa.array(["early", "on_time", "late"])


class Results(Protocol):
    """Results to publish: keys, windows and aggregates as columns of one length."""

    @property
    def keys(self) -> list[pa.Array]:
        """Key columns."""

    @property
    def start(self) -> Instants:
        """Start of each window."""

    @property
    def end(self) -> Instants:
        """End of each window."""

    @property
    def values(self) -> list[pa.Array]:
        """The aggregates."""


def published(
    spec: WindowSpec,
    results: Results,
    revision: npt.NDArray[np.int32] | None = None,
    change: str = INSERT,
    timing: Ids | None = None,
) -> pa.Table:
    """Result rows of these windows.

    Parameters
    ----------
    revision : array of int32, optional
        One per window; 0, the on-time value, if not given.
    change : str
        The change type of all of them.
    timing : array of int64, optional
        Whether each is early, on time or late, where the output says so; on time if not given.
    """
    window = [pa.array(each).cast(INSTANT) for each in (results.start, results.end)]
    return stated(spec, [*results.keys, *window, *results.values], revision, change, timing)


def stated(
    spec: WindowSpec,
    columns: list[pa.Array],
    revision: npt.NDArray[np.int32] | None = None,
    change: str = INSERT,
    timing: Ids | None = None,
) -> pa.Table:
    """The same of columns up to the last aggregate."""
    columns, count = list(columns), len(columns[0])
    if spec.revises:
        columns.append(pa.array(np.zeros(count, np.int32) if revision is None else revision))
    if spec.is_early:
        when = np.full(count, ON_TIME) if timing is None else timing
        columns.append(_WORDS.take(pa.array(when)))
    if spec.takes_back:
        columns.append(pa.repeat(change, count))
    if spec.routes:
        columns.append(pa.nulls(count, spec.late))
    return pa.table(columns, schema=spec.output)
