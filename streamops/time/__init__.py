"""Event times that can be trusted, and the watermark that is defined on them.

=====================  ==========================================================
``guard``              no event time from the future, from before a bound, or unusable
``correct_clock``      event times of devices, by the clock of the server
``track_clock``        the same, by the least delay that each device had of late
``producers``          a watermark that waits for the slowest producer, unless it is silent
``split_quarantined``  good and quarantined rows of a micro-batch, apart
``processing_time``    when a row was processed, for windows by processing time
=====================  ==========================================================
"""

from streamops.time.correct_clock import correct_clock
from streamops.time.guard import guard, split_quarantined
from streamops.time.processing_time import processing_time
from streamops.time.producers import producers
from streamops.time.track_clock import track_clock

__all__ = [
    "correct_clock",
    "guard",
    "processing_time",
    "producers",
    "split_quarantined",
    "track_clock",
]
