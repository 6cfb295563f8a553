"""What a sample says about the set that it was taken from, and how surely.

Each item of a set is in the sample with the same probability p, so that n of N items are, n
binomial in N and p. Estimate: n / p. Bounds: the N from which n is two standard errors away,
with the correction for continuity, as Apache DataSketches has it for more than 120 items
(E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Floats, Ints
from streamops.sketches.core.samples import WHOLE

__all__ = ["NUMBER", "SHARE", "bounds", "number", "number_of", "relative_error", "share_of"]

NUMBER = pa.struct(
    [
        ("estimate", pa.int64()),
        ("lower", pa.int64()),
        ("upper", pa.int64()),
        ("relative_error", pa.float64()),
    ]
)
"""A number of items, between which bounds it lies, and its relative standard error."""

SHARE = pa.struct([("estimate", pa.float64()), ("lower", pa.float64()), ("upper", pa.float64())])
"""A share, and between which bounds it lies."""

_ERRORS = 2.0  # how many standard errors the bounds are away
_LARGEST = 2.0**63 - 1024  # the largest double that is an int64


def number(found: Ints, theta: Ints) -> Ints:
    """How many items the sets have of which so many were found below theta.

    Examples
    --------
    >>> number(np.array([7, 7]), np.array([WHOLE, 2**60])).tolist()
    [7, 56]
    """
    return _whole(np.rint(found / _probability(theta)))


def bounds(found: Ints, theta: Ints) -> tuple[Ints, Ints]:
    """Between which numbers that of the items lies, in 95 cases of 100; exactly, in a whole set.

    Examples
    --------
    >>> [bound.tolist() for bound in bounds(np.array([7, 4096]), np.array([WHOLE, 2**60]))]
    [[7, 31820], [7, 33745]]
    """
    p = _probability(theta)
    spread = _ERRORS * np.sqrt((1 - p) / p)
    lower = _edge(np.maximum(found - 0.5, 0) / p, spread, -1)
    upper = _edge((found + 0.5) / p, spread, +1)
    whole = theta == WHOLE
    lower = np.where(whole, found, np.maximum(np.floor(lower), found))
    return _whole(lower), _whole(np.where(whole, found, np.ceil(upper)))


def _edge(centre: Floats, spread: Floats, side: int) -> Floats:
    """The N for which (N - centre)^2 = spread^2 N."""
    reach = spread / 2 * np.sqrt(spread**2 + 4 * centre)
    edge: Floats = centre + spread**2 / 2 + side * reach
    return edge


def relative_error(found: Ints, theta: Ints) -> Floats:
    """Standard error of the estimate, as a part of it; NaN where nothing was found.

    It is 0 for a whole set, and not above 1 / sqrt(found - 1).
    """
    error = np.sqrt((1 - _probability(theta)) / np.maximum(found - 1, 1))
    return np.where((found == 0) & (theta < WHOLE), np.nan, error)


def number_of(found: Ints, theta: Ints) -> pa.Array:
    """All of this, as ``NUMBER``."""
    error = relative_error(found, theta)
    parts = [pa.array(each) for each in (number(found, theta), *bounds(found, theta))]
    parts.append(pa.array(error, mask=np.isnan(error)))
    return pa.StructArray.from_arrays(parts, fields=list(NUMBER))


def share_of(found: Ints, among: Ints, theta: Ints) -> pa.Array:
    """Which share of the items of a set has something that so many of the sampled ones have.

    Returns
    -------
    array of ``SHARE``
        The estimate is null where the sample is empty.
    """
    whole, nothing = theta == WHOLE, among == 0
    n = np.maximum(among, 1)
    # Of a finite set: what was sampled is known.
    spread = np.where(whole, 0.0, _ERRORS**2 * (1 - _probability(theta)))
    step = np.where(whole, 0.0, 0.5)
    lower = _score(np.maximum(found - step, 0), n, spread, -1)
    upper = _score(np.minimum(found + step, n), n, spread, +1)
    unknown = nothing & ~whole
    parts = [
        pa.array(found / n, mask=nothing),
        pa.array(np.where(unknown, 0.0, np.maximum(lower, 0.0)), mask=nothing & whole),
        pa.array(np.where(unknown, 1.0, np.minimum(upper, 1.0)), mask=nothing & whole),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(SHARE))


def _score(found: Floats, n: Ints, spread: Floats, side: int) -> Floats:
    reach = np.sqrt(spread * (spread / 4 + found * (1 - found / n)))
    edge: Floats = (found + spread / 2 + side * reach) / (n + spread)
    return edge


def _probability(theta: Ints) -> Floats:
    return theta / 2.0**63


def _whole(numbers: Floats) -> Ints:
    return np.minimum(numbers, _LARGEST).astype(np.int64)
