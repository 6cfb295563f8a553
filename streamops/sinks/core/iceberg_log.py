"""Whether an Iceberg table still has the rows that a ledger entry counts.

An entry is in two places, which one commit writes. The summary of a snapshot has the entries of all sinks of
the table as of that snapshot: which of them belongs to the rows follows from the ancestors of the current
snapshot, also after a rollback. A property of the table has the newest entry of each sink: it stays when
snapshots are expired, and says which run may write after a rollback.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from streamops.sinks.core.ledger import Decision, Entry

_PREFIX = "streamops.ledger."
_ACTION = "streamops.action"
"""In the summary of a snapshot: what the sink did, and of which sink the entry changed."""
_SINK = "streamops.sink"


@dataclass(frozen=True, slots=True)
class Found:
    """An entry with the snapshot of its rows, and what has removed them; an empty text if they are there."""

    entry: Entry | None
    removed_by: str = ""
    snapshot: int = 0


def to_text(entry: Entry, snapshot: int) -> str:
    """Return an entry, and the snapshot of its rows, as text.

    Examples
    --------
    >>> text = to_text(Entry("query", 1, "run", 0, rows=2, digest=-7, former=("old",)), 5)
    >>> text
    '[5,"query",1,"run",0,2,-7,"","",["old"],[]]'
    >>> from_text(text) == (5, Entry("query", 1, "run", 0, rows=2, digest=-7, former=("old",)))
    True
    """
    return json.dumps([snapshot, *astuple(entry)], separators=(",", ":"), ensure_ascii=False)


def from_text(text: str) -> tuple[int, Entry]:
    """Return the snapshot and the entry of a text."""
    snapshot, *values = json.loads(text)
    return snapshot, Entry.of(*values)


def property_of(sink: str) -> str:
    """The property of a table, and of a summary, that has the entry of a sink."""
    return f"{_PREFIX}{sink}"


def sinks_of(properties: Mapping[str, str]) -> list[str]:
    """The names of all sinks that have an entry."""
    return [name[len(_PREFIX) :] for name in properties if name.startswith(_PREFIX)]


def summary(
    sink: str, decision: Decision, snapshot: int, others: Mapping[str, Found]
) -> dict[str, str]:
    """Return what the summary of a snapshot says: the entries of all sinks whose rows it has.

    An entry of another sink whose rows were removed is not among them.
    """
    entries = {
        property_of(name): to_text(found.entry, found.snapshot)
        for name, found in others.items()
        if found.entry is not None and not found.removed_by and decision.action != "replace"
    }
    own = {property_of(sink): to_text(decision.entry, snapshot)}
    return {**entries, **own, _SINK: sink, _ACTION: decision.action}


class History:
    """The snapshots of a table, also those that are expired, as long as its older metadata can be read.

    Parameters
    ----------
    generations : iterator of mappings
        Snapshots by their ids: those of the table, and then those of its older metadata, the newest first.
    """

    def __init__(self, generations: Iterator[Mapping[int, Any]]) -> None:
        self._unread, self._read = generations, list[Mapping[int, Any]]()

    def versions(self, number: int) -> Iterator[Any]:
        """Yield a snapshot as each metadata has it, the newest first; None where it does not exist."""
        for at in itertools.count():
            if at == len(self._read):
                older = next(self._unread, None)
                if older is None:
                    return
                self._read.append(older)
            yield self._read[at].get(number)

    def find(self, number: int) -> Any:
        """The newest version of a snapshot; None if it is unknown."""
        return next(filter(None, self.versions(number)), None)

    def parent(self, number: int) -> int | None:
        """The snapshot before; None if there is none, and -1 if it is unknown.

        Some clients remove the id of a parent that is expired, so that the first snapshot is the one that
        older metadata does not have.
        """
        found = None
        for snapshot in self.versions(number):
            if snapshot is None and found is not None:
                return None
            if snapshot is not None:
                found = snapshot
                if snapshot.parent_snapshot_id is not None:
                    return int(snapshot.parent_snapshot_id)
        return None if found is not None and found.sequence_number == 1 else -1


def find_entry(
    properties: Mapping[str, str], current: int | None, sink: str, history: History
) -> Found:
    """Return the entry that belongs to the rows of a table.

    Parameters
    ----------
    properties : mapping of str to str
        The properties of the table.
    current : int, optional
        The current snapshot.
    sink : str
        Name of the sink.
    history : History
        The snapshots. Older metadata is only read if snapshots are expired.
    """
    name = property_of(sink)
    if name not in properties:
        return Found(None)
    newest_snapshot, newest = from_text(properties[name])
    number, removed_by = current, ""
    while number is not None:
        snapshot = history.find(number)
        if snapshot is None:  # nobody is known to have removed the rows
            return Found(newest, removed_by, newest_snapshot)
        values = _values(snapshot)
        if name in values:
            at, entry = from_text(values[name])
            if at == newest_snapshot:
                return Found(newest, removed_by, at)
            if entry.query == newest.query:  # whose newest run still is the one that may write
                entry = replace(entry, run=newest.run, generation=newest.generation)
            return Found(entry, removed_by, at)
        removed_by = removed_by or _removes_all(number, values)
        number = history.parent(number)
    return Found(None, removed_by or f"snapshot {current}, which has no rows of this sink")


def is_of(snapshot: Any, sink: str) -> bool:
    """Whether a sink has committed a snapshot."""
    return _values(snapshot).get(_SINK) == sink


def files_since(snapshots: Iterable[Any], after: int, io: Any) -> set[str]:
    """The data files of snapshots in manifests after a sequence number, which those of version 1 do not have."""
    listed = (manifest for snapshot in snapshots for manifest in snapshot.manifests(io))
    manifests = {of.manifest_path: of for of in listed}.values()
    new = (of for of in manifests if not of.sequence_number or of.sequence_number > after)
    entries = (entry for manifest in new for entry in manifest.fetch_manifest_entry(io))
    return {entry.data_file.file_path for entry in entries}


def _values(snapshot: Any) -> dict[str, str]:
    found = snapshot.summary
    if found is None:
        return {}
    return {**found.additional_properties, "operation": found.operation.value}


def _removes_all(number: int, values: Mapping[str, str]) -> str:
    """What a snapshot of others did, if it has no file of the snapshot before; an empty text otherwise.

    An update that rewrites each file of a small table looks like one that overwrites the table.
    """
    operation = values.get("operation", "")
    is_of_sink = values.get(_ACTION, "replace") != "replace"
    if operation not in {"overwrite", "delete"} or is_of_sink:
        return ""
    names = ("deleted-data-files", "added-data-files", "total-data-files")
    deleted, added, total = (int(values.get(name, "0")) for name in names)
    return f"snapshot {number}: {operation}" if deleted and total <= added else ""
