"""Windows as rows of the output."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.windows.core.panes import Windows
from streamops.windows.core.spec import INSTANT, Spec

__all__ = ["published"]


def published(
    spec: Spec,
    windows: Windows,
    revision: npt.NDArray[np.int32] | None = None,
    change: str = "insert",
) -> pa.Table:
    """Result rows of these windows.

    Parameters
    ----------
    revision : array of int32, optional
        One per window; 0, the on-time value, if not given.
    change : str
        The change type of all of them.
    """
    start = spec.grid.start_of(windows.numbers)
    columns = [
        *windows.keys,
        pa.array(start).cast(INSTANT),
        pa.array(start + spec.grid.size).cast(INSTANT),
        *windows.values,
    ]
    if spec.corrects:
        columns.append(pa.array(np.zeros(len(windows), np.int32) if revision is None else revision))
    if spec.stragglers == "retract":
        columns.append(pa.repeat(change, len(windows)))
    if spec.routes:
        columns.append(pa.nulls(len(windows), spec.late))
    return pa.table(columns, schema=spec.output)
