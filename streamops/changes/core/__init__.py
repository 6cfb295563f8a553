"""The algorithms on change streams, in NumPy and Arrow."""
