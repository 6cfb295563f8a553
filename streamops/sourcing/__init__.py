"""Event sourcing: commands are decided against the state of their entity, and become events.

=================  ==============================================================
``decide``         commands to numbered events, or to rejections with a reason
=================  ==============================================================
"""

from streamops.sourcing.decide import Rejected, decide

__all__ = ["Rejected", "decide"]
