"""Comparison of values in tests: as everywhere in the library."""

from streamops.kernel.values import comparable, same

__all__ = ["comparable", "same"]
