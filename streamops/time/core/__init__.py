"""Cores about event times."""
