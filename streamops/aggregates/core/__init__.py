"""Summaries: the algorithms of the aggregates, vectorised over groups."""
