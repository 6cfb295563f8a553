"""Comparison of values in tests, as everywhere in the library.

>>> comparable([1, float("nan")]) == comparable([1.0, float("nan")]), same(0.0, -0.0)
(True, True)
"""

from streamops.kernel.values import comparable, same

__all__ = ["comparable", "same"]
