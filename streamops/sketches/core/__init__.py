"""Sketches as data: many of one kind, one per group, vectorised over all of them."""
