"""Operators of your own: a function per key, or an algorithm per shard.

=================  ==============================================================
``per_key``        a function that sees one key at a time: rows, state, timers
``per_shard``      an algorithm over the columns of all keys of a shard
``checkpointed``   a field of its parameters on which the state depends
=================  ==============================================================

The other names are for authors of algorithms per shard: the bases, ``Arrivals``, which splits rows by the
watermark, ``late_field``, which declares the side output, and ``key_codes``, which numbers keys.
"""

from streamops.kernel.calls import explain_calls
from streamops.kernel.columns import key_codes
from streamops.kernel.core import Metrics, State, StateFormat, Step
from streamops.kernel.groups import Groups
from streamops.kernel.lateness import Arrivals, late_field
from streamops.kernel.operator import Core, ShardSpec, Table, checkpointed
from streamops.kernel.placement import BY_KEY, Placement
from streamops.process.core.calls import Timers
from streamops.process.core.spec import Errors as Errors
from streamops.process.core.spec import Stragglers as Stragglers
from streamops.process.per_key import per_key
from streamops.process.per_shard import per_shard

__all__ = [
    "BY_KEY",
    "Arrivals",
    "Core",
    "Groups",
    "Metrics",
    "Placement",
    "ShardSpec",
    "State",
    "StateFormat",
    "Step",
    "Table",
    "Timers",
    "checkpointed",
    "key_codes",
    "late_field",
    "per_key",
    "per_shard",
]

explain_calls(globals())
