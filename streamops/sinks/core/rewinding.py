"""Which files of a checkpoint are later than a micro-batch, and whether it can continue without them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_LOG = re.compile(r"(?P<log>commits|offsets)/\.?(?P<batch>\d+)(?:\..*)?")
"""Also checksums such as ``.7.crc``, and temporary files."""

_STATE = re.compile(
    r"(?P<store>state/\d+/\d+(?:/[^/]+)?)/(?P<hidden>\.?)(?P<version>\d+)(?:_[^/.]+)?"
    r"\.(?P<type>zip|snapshot|changelog|delta)(?P<rest>\..*)?"
)
"""A snapshot, or the changes of a micro-batch, of RocksDB and of HDFSBackedStateStoreProvider.

Format 2 of a checkpoint has an identifier behind the version.
"""

_SCHEMA = re.compile(r"state/\d+/(?:_metadata/v2|_stateSchema/[^/]+)/\.?(?P<batch>\d+)(?:[._].*)?")
"""Metadata of an operator, and a schema of its state, which a run writes in its first micro-batch."""


def later_files(files: Iterable[str], batch: int) -> list[str]:
    """The files that are later than a micro-batch, in the order in which they are removed.

    The state is first. If the removal is interrupted, Spark does not start from micro-batches whose state is
    missing, so the query neither skips a micro-batch nor uses a state that is too new. The data files of
    RocksDB stay: they have unique names, and Spark removes those that no snapshot refers to.

    Parameters
    ----------
    files : iterable of str
        Paths below the checkpoint.
    batch : int
        The last micro-batch that stays.

    Examples
    --------
    >>> later_files(["offsets/8", "offsets/9", "commits/9", "state/0/0/9.delta", "state/0/0/10.delta"], 8)
    ['state/0/0/10.delta', 'commits/9', 'offsets/9']
    """
    found = []
    for file in files:
        if of := _STATE.fullmatch(file):  # version N + 1 is the state after micro-batch N
            found.append((0, 1 - int(of["version"]), file))
        elif of := _SCHEMA.fullmatch(file):
            found.append((1, -int(of["batch"]), file))
        elif of := _LOG.fullmatch(file):
            found.append((2, -int(of["batch"]), file))
    return [file for *_, number, file in sorted(found) if -number > batch]


def unreadable_stores(files: Iterable[str], batch: int) -> list[str]:
    """The state stores that cannot be read as of a micro-batch.

    A state is read from the last snapshot at or before it, or from nothing, and all changes since.

    Examples
    --------
    >>> unreadable_stores(["state/0/0/4.zip", "state/0/0/6.zip", "state/0/1/5.zip"], 4)
    ['state/0/0']
    """
    snapshots: defaultdict[str, set[int]] = defaultdict(set)
    changes: defaultdict[str, set[int]] = defaultdict(set)
    for file in files:
        of = _STATE.fullmatch(file)
        if of and not of["hidden"] and not of["rest"]:
            versions = snapshots if of["type"] in {"zip", "snapshot"} else changes
            versions[of["store"]].add(int(of["version"]))
    wanted = batch + 1
    return [
        store
        for store in sorted({*snapshots, *changes})
        for last in [max((n for n in snapshots[store] if n <= wanted), default=0)]
        if not changes[store].issuperset(range(last + 1, wanted + 1))
    ]
