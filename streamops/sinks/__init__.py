"""Sinks: write micro-batches to a target, each exactly once."""

from streamops.sinks.postgres import postgres

__all__ = ["postgres"]
