"""The algorithms of the windows: columns in, columns out, no Spark."""
