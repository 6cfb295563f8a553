"""Options of a JVM that lives for seconds or minutes, next to others."""

from __future__ import annotations

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Without the optimising compiler and the threads of a parallel collector: a sixth less CPU time in the tests, half in a driver of seconds."""
