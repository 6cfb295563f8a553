"""Algorithms of joins: columns in, columns out. No Spark."""
