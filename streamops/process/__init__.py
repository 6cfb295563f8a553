"""Operators of your own: a function per key, or an algorithm per shard.

=================  ==============================================================
``per_key``        a function that sees one key at a time: rows, state, timers
``per_shard``      an algorithm over the columns of all keys of a shard
=================  ==============================================================
"""

from streamops.process.core.calls import Timers
from streamops.process.core.spec import Errors as Errors
from streamops.process.core.spec import Stragglers as Stragglers
from streamops.process.per_key import per_key

__all__ = ["Timers", "per_key"]
