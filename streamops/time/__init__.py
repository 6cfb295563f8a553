"""Validation and correction of event times, and watermarks defined on them.

=====================  ==========================================================
``guard``              reject event times from the future, before a bound, or unusable
``correct_clock``      correct event times of devices by the clock of the server
``track_clock``        the same, by the minimum delay observed for each device
``producers``          a watermark that waits for the slowest active producer
``processing_time``    the processing time of each row, for windows
=====================  ==========================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.time.correct_clock import correct_clock
from streamops.time.guard import guard
from streamops.time.processing_time import processing_time
from streamops.time.producers import producers
from streamops.time.track_clock import track_clock

__all__ = [
    "correct_clock",
    "guard",
    "processing_time",
    "producers",
    "track_clock",
]

explain_calls(globals())
