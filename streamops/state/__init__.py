"""The state of a query: read it, describe it, and rewrite that of a stopped one into a new checkpoint.

================  ==================================================================
``read``          the state of an operator as a frame, one row per key
``describe``      the operators of a checkpoint, and its problems
``pending``       what a stopped query has not emitted yet
``rescale``       a new checkpoint with another number of shards
``migrate``       a new checkpoint in the current formats, or for an operator with other parameters
``check``         compares the operators of a query with a checkpoint, before the query starts
================  ==================================================================

On the command line: ``python -m streamops doctor CHECKPOINT``, and ``python -m streamops state``.
"""

from streamops.kernel.calls import explain_calls
from streamops.state.describe import CheckpointReport, OperatorReport, describe
from streamops.state.ending import pending
from streamops.state.reading import read
from streamops.state.rewrite import Rewritten, migrate, rescale
from streamops.state.starting import check

__all__ = [
    "CheckpointReport",
    "OperatorReport",
    "Rewritten",
    "check",
    "describe",
    "migrate",
    "pending",
    "read",
    "rescale",
]

explain_calls(globals())
