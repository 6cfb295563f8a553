"""Event sourcing: commands are decided against the state of their entity, and become events.

=================  ==============================================================
``decide``         commands to numbered events, or to rejections with a reason
``fold``           an event log to the state of each entity, also from a snapshot
=================  ==============================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.sourcing.decide import Rejected, decide
from streamops.sourcing.fold import fold

__all__ = ["Rejected", "decide", "fold"]

explain_calls(globals())
