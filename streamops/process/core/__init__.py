"""The algorithm of functions per key: rows of many keys in columns, each key in Python."""
