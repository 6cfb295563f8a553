"""Robust bands of earlier values: the median and the scaled median absolute deviation.

A value is an anomaly if it is farther from the median than a number of deviations (Hampel; Iglewicz and
Hoaglin). Nulls, NaN and infinities of earlier periods are not counted.

Medians of integers and decimals, and the distances from them, are exact before they are rounded to doubles:
integers beyond 2^53 and long decimals that differ a little have the band of small numbers, and a value far
from the others takes no digits from their distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import to_doubles, to_floats
from streamops.kernel.groups import Floats
from streamops.kernel.ordering import ranks
from streamops.windows.core.compare_spec import WIDEST_DECIMAL

SCALE = 1.4826
"""1 / 0.6745: the deviation estimates the standard deviation of a normal distribution."""


def find_bands(
    values: pa.Array, earlier: pa.Array, periods: int, *, threshold: float, fewest: int
) -> list[pa.Array]:
    """Return the median, the deviation, the number of earlier values, and whether each is an anomaly.

    Parameters
    ----------
    values : Array
        The value of each window.
    earlier : Array
        The values of all windows one period before, then of those two periods before, and so on.
    periods : int
        How many.
    threshold : float
        Deviations above which a value is an anomaly.
    fewest : int
        How many earlier values there must be.

    Examples
    --------
    >>> found = find_bands(
    ...     pa.array([20]), pa.array([10, 12, None, 11]), 4, threshold=3.5, fewest=3
    ... )
    >>> [column.to_pylist() for column in found]
    [[11.0], [1.4826], [3], [True]]
    """
    count = len(values)
    is_exact = not _are_doubles(values.type, values, earlier)
    plain = np.where(earlier.is_valid(), 0.0, np.nan) if is_exact else to_floats(earlier)
    plain = plain.reshape(periods, count)
    known = np.isfinite(plain)
    number = known.sum(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, as IEEE 754 has them
        if is_exact:
            median, distances, distance = _exact(values, earlier, known)
        else:
            median = _medians(plain, known)
            distances, distance = abs(plain - median), abs(to_floats(values) - median)
        deviation = SCALE * _medians(distances, known)
        is_anomaly = distance > threshold * deviation
    is_comparable = (number >= fewest) & ~np.isnan(to_floats(values))
    none = number == 0
    return [
        pa.array(median, mask=none),
        pa.array(deviation, mask=none),
        pa.array(number.astype(np.int32)),
        pa.array(is_anomaly, mask=~is_comparable),
    ]


def _are_doubles(dtype: pa.DataType, *arrays: pa.Array) -> bool:
    """Return whether doubles hold these numbers, their sums and halves exactly, or they are doubles."""
    if pa.types.is_integer(dtype):
        return all((np.nan_to_num(abs(to_floats(array))) < 2.0**51).all() for array in arrays)
    return bool(pa.types.is_floating(dtype))


def _exact(
    values: pa.Array, earlier: pa.Array, known: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats]:
    """Return medians, distances of earlier values and of values from them: computed exactly, then rounded."""
    periods, count = known.shape
    if pa.types.is_integer(values.type):
        values, earlier = (side.cast(pa.decimal128(20, 0)) for side in (values, earlier))
    wide = pa.decimal256(WIDEST_DECIMAL + 1, values.type.scale)
    ordered = np.argsort(
        np.where(known, ranks(earlier).reshape(known.shape), np.iinfo(np.int64).max), axis=0
    )
    values, earlier = values.cast(wide), earlier.cast(wide)
    low, high = (
        earlier.take(pa.array(row * count + np.arange(count))) for row in _middle(ordered, known)
    )
    twice = pc.add(low, high)
    tiled = twice.take(pa.array(np.tile(np.arange(count), periods)))
    sums = (twice, pc.subtract(pc.add(earlier, earlier), tiled))
    median, distances = (to_doubles(array) / 2 for array in sums)
    distance = to_doubles(pc.subtract(pc.add(values, values), twice)) / 2
    return median, abs(distances).reshape(known.shape), abs(distance)


def _middle(
    ordered: npt.NDArray[Any], known: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the two in the middle of the first ones of each column, which are as many as are known."""
    number = known.sum(axis=0)
    low, high = (
        np.take_along_axis(ordered, np.maximum(at, 0)[np.newaxis], axis=0)[0]
        for at in ((number - 1) // 2, number // 2)
    )
    return low, high


def _medians(values: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """Return the median of each column's known values; NaN for none."""
    number = known.sum(axis=0)
    low, high = _middle(np.sort(np.where(known, values, np.nan), axis=0), known)  # NaN last
    total = low + high
    middle = np.where(np.isfinite(total), total / 2, low / 2 + high / 2)
    medians: Floats = np.where(number % 2, low, middle) + 0.0  # -0.0 + 0.0 is 0.0
    return medians
