"""Change streams: their types, columns, and the algorithms that joins and changes share."""
