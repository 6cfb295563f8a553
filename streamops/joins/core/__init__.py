"""Joins without Spark: pure NumPy and Arrow."""
