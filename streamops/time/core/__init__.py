"""Cores of operators on time: pure functions over columns, without Spark."""
