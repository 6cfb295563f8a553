"""Erasure: delete a person's values from logs, states and copies that cannot be changed.

================  ==================================================================
``shred``         encrypts values by a key per subject, before they are stored
``unshred``       decrypts them, as long as the subject has its key
``KeyTable``      keys in a database: exactly one per subject, created and deleted
``search_files``  searches all files of a run for values, to verify that they are gone
``search_frame``  searches a frame, such as the state of a query
================  ==================================================================
"""

from streamops.erasure.key_table import KeyTable
from streamops.erasure.search import search_files, search_frame
from streamops.erasure.shred import shred, unshred
from streamops.kernel.calls import explain_calls

__all__ = ["KeyTable", "search_files", "search_frame", "shred", "unshred"]

explain_calls(globals())
