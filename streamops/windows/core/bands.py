"""Robust bands of earlier values: the median and the scaled median absolute deviation.

A value is an anomaly if it is farther from the median than a number of deviations (Hampel; Iglewicz and
Hoaglin). Nulls, NaN and infinities of earlier periods are not counted.

The distances between values are exact before they are rounded to doubles: integers beyond 2^53 and long
decimals that differ a little have the band of small numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import to_doubles, to_floats
from streamops.kernel.groups import Floats
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
    plain = to_doubles(earlier).reshape(periods, count)
    known = np.isfinite(plain)
    number = known.sum(axis=0)
    nearest = np.argmax(known, axis=0) * count + np.arange(count)
    reference = earlier.take(pa.array(nearest))
    tiled = reference.take(pa.array(np.tile(np.arange(count), periods)))
    distances = _distances(earlier, tiled).reshape(periods, count)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, as IEEE 754 has them
        center = _medians(distances, known)
        deviation = SCALE * _medians(abs(distances - center), known)
        is_anomaly = abs(_distances(values, reference) - center) > threshold * deviation
        median = _medians(plain, known)
    is_comparable = (number >= fewest) & ~np.isnan(to_floats(values))
    none = number == 0
    return [
        pa.array(median, mask=none),
        pa.array(deviation, mask=none),
        pa.array(number.astype(np.int32)),
        pa.array(is_anomaly, mask=~is_comparable),
    ]


def _distances(values: pa.Array, reference: pa.Array) -> Floats:
    """Subtract integers and decimals exactly, and round; floats are distances from 0."""
    if pa.types.is_floating(values.type):
        return to_floats(values)
    if pa.types.is_decimal(values.type):
        wide = pa.decimal256(WIDEST_DECIMAL + 1, values.type.scale)
        return to_doubles(pc.subtract(values.cast(wide), reference.cast(wide)))
    whole, base = (np.asarray(side.cast(pa.int64()).fill_null(0)) for side in (values, reference))
    is_above = whole >= base
    # Modulo 2^64 the difference is exact, and of the right sign it fits.
    size = np.where(is_above, whole - base, base - whole).view(np.uint64).astype(np.float64)
    known = np.asarray(values.is_valid()) & np.asarray(reference.is_valid())
    return np.where(known, np.where(is_above, size, -size), np.nan)


def _medians(values: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    """Return the median of each column's known values; NaN for none."""
    number = known.sum(axis=0)
    ordered = np.sort(np.where(known, values, np.nan), axis=0)  # NaN last
    low, high = (
        np.take_along_axis(ordered, np.maximum(at, 0)[np.newaxis], axis=0)[0]
        for at in ((number - 1) // 2, number // 2)
    )
    total = low + high
    middle = np.where(np.isfinite(total), total / 2, low / 2 + high / 2)
    medians: Floats = np.where(number % 2, low, middle) + 0.0  # -0.0 + 0.0 is 0.0
    return medians
