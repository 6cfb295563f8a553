"""Sinks: write micro-batches to a target, each exactly once."""

from streamops.sinks.fan_out import fan_out
from streamops.sinks.postgres import postgres
from streamops.sinks.rewind import rewind
from streamops.sinks.side_outputs import side_outputs

__all__ = ["fan_out", "postgres", "rewind", "side_outputs"]
