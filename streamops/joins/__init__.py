"""Joins of streams, of streams and tables, and of tables."""
