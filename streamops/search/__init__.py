"""Search over streams: stored queries, which match documents as they arrive.

=========  ==================================================================
``match``  each document with the ids of the stored queries that it matches
=========  ==================================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.search.match import match

__all__ = ["match"]

explain_calls(globals())
