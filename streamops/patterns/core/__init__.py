"""The algorithms of pattern matching, without Spark."""
