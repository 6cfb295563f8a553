"""What is remembered of the rows of a table whose changes come: pure NumPy and Arrow."""
