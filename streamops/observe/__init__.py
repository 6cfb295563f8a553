"""What a stream tells about itself: which one do I want?

=====================  ===========================================================
``account_late``       late rows, counted by key, window, producer and lateness
``merge_accounts``     such accounts, merged
``lateness_needed``    the allowed lateness that would have saved a share of them
``AlarmListener``      an ``Alarm`` when a rule finds something in a query's progress
``LateRows``           rule: so many late rows in so many micro-batches
``LateShare``          rule: such a share of the rows is late
``StuckWatermark``     rule: the watermark stands still while event times go on
``PoisonedWatermark``  rule: the watermark is ahead of the clock
``furthest_ahead``     who sends event times from the future
=====================  ===========================================================
"""

from streamops.observe.accounts import account_late, lateness_needed, merge_accounts
from streamops.observe.core.episodes import Alarm
from streamops.observe.core.rules import LateRows, LateShare
from streamops.observe.core.watermarks import PoisonedWatermark, StuckWatermark
from streamops.observe.furthest import furthest_ahead
from streamops.observe.listener import AlarmListener

__all__ = [
    "Alarm",
    "AlarmListener",
    "LateRows",
    "LateShare",
    "PoisonedWatermark",
    "StuckWatermark",
    "account_late",
    "furthest_ahead",
    "lateness_needed",
    "merge_accounts",
]
