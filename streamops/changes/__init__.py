"""Operators on change streams."""
