"""Rows that go and come again at one moment: two changes of the log, and one update."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.table import DELTA_SEQUENCE, KeyedTable
from streamops.kernel.groups import Ids, Mask

__all__ = ["is_replaced"]


def is_replaced(spec: KeyedTable, key: Ids, place: pa.Array, is_delete: Mask) -> Mask:
    """Which deletes are followed by another change of their key in the same commit of Delta's.

    Of other logs nothing says which places are of one moment. Columns that are called alike are no
    place in Delta's: that is one column.

    Parameters
    ----------
    spec : KeyedTable
    key : array of int64
        Of each change; by key and place.
    place : Array
        Where it stands in the log.
    is_delete : array of bool
        Whether it leaves no row.
    """
    if len(spec.sequence) > 1 or place.type != DELTA_SEQUENCE or not len(place):
        return np.zeros(len(place), np.bool_)
    version = np.asarray(pc.struct_field(place, "version"))
    goes_on = (key[1:] == key[:-1]) & (version[1:] == version[:-1])
    result: Mask = is_delete & np.append(goes_on, False)
    return result
