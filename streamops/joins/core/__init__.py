"""The algorithms of the joins, in NumPy and Arrow."""
