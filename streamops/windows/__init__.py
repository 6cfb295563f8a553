"""Event-time windows: which one do I want?

=================  ==============================================================
``tumbling``       fixed, adjacent: every event in exactly one window
``hopping``        fixed, overlapping: a window of ``size`` starts every ``hop``
``calendar``       days, weeks, months, quarters, years in a time zone
``cumulative``     growing through a period: the total since midnight, every minute
``session``        bursts of activity, ended by a ``gap`` of silence
``sliding``        at each event, what happened up to ``size`` before it
``rolling``        over several horizons, such as 1 hour and 30 days, whenever a value changes
``running``        no window: per key over everything so far, whenever it changes
``over``           each row, with values of the rows before and after it: ``lag``, ``lead``,
                   ``difference``, ``rate``, ``ewma``
``resample``       irregular rows on a regular grid, with the row before, or between two rows
``compare``        results of windows beside those of the previous period
=================  ==============================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.windows.calendar import calendar
from streamops.windows.compare import compare
from streamops.windows.core.spec import Early as Early
from streamops.windows.core.spec import Stragglers as Stragglers
from streamops.windows.core.spec import TooLate as TooLate
from streamops.windows.cumulative import cumulative
from streamops.windows.hopping import hopping
from streamops.windows.over import difference, ewma, lag, lead, over, rate
from streamops.windows.resample import resample
from streamops.windows.rolling import rolling
from streamops.windows.running import running
from streamops.windows.session import session
from streamops.windows.sliding import sliding
from streamops.windows.tumbling import tumbling

__all__ = [
    "calendar",
    "compare",
    "cumulative",
    "difference",
    "ewma",
    "hopping",
    "lag",
    "lead",
    "over",
    "rate",
    "resample",
    "rolling",
    "running",
    "session",
    "sliding",
    "tumbling",
]

explain_calls(globals())
