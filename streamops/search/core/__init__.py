"""Stored queries without Spark: the query language, the index of queries, and the core of an operator."""
