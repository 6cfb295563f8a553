"""Decisions of sinks that need neither Spark nor a target."""
