"""The ledger of a sink in the commits of Delta's connector for Spark.

A commit of the connector has room for one application transaction and for a text, its ``userMetadata``. The text
has the entry. It is lost with the file of its commit after ``delta.logRetentionDuration``. The transaction stays,
and the connector skips a commit whose number is not above the last one: this lets one of two drivers write a
micro-batch. So the number has what must never be lost:

=======  =====================================================================
bits     part of the number
=======  =====================================================================
51-62    how many other queries have written before this one
13-50    the last micro-batch
0-12     how many runs have taken over since then, by repeating it
=======  =====================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from typing import Any

from streamops.sinks.core.delta_log import Found, from_integers, identifier
from streamops.sinks.core.ledger import Decision, Entry

_PREFIX = "streamops/"
_BATCH, _QUERY = 13, 51
_UNKNOWN = "unknown"
"""The query and the run of an entry whose commit the log does not have any more."""

_ALL_ROWS = {"", "[]", "true", '["true"]'}
_EMPTYING = {"RESTORE", "TRUNCATE", "CLONE", "CREATE OR REPLACE TABLE", "REPLACE TABLE"}


def application(sink: str) -> str:
    """Return the identifier of the transactions of a sink."""
    return f"{_PREFIX}{sink}"


def next_number(number: int | None, entry: Entry | None, decision: Decision) -> int:
    """Return the number of a commit, after the one with this number and entry.

    Two commits of a micro-batch of one query, and two first ones, have the same number: only one is made.

    Examples
    --------
    >>> first = Entry("query", 1, "run", 0, rows=2, digest=7)
    >>> second = Entry("query", 2, "run 2", 1, rows=2, digest=7)
    >>> next_number(None, None, Decision("write", first))
    0
    >>> next_number(0, first, Decision("write", second)), next_number(0, first, Decision("skip", second))
    (8192, 1)
    """
    if number is None:
        return decision.entry.batch << _BATCH
    if decision.action == "skip":
        return number + 1
    queries = (number >> _QUERY) + (entry is None or entry.query != decision.entry.query)
    return queries << _QUERY | decision.entry.batch << _BATCH


def to_text(sink: str, number: int, entry: Entry) -> str:
    """Return what a commit with this number says."""
    values = {"streamops": sink, "number": number, "entry": astuple(entry)}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def _from_text(text: str | None) -> tuple[str, int, Entry] | None:
    try:
        found = json.loads(text or "")
        return found["streamops"], found["number"], Entry.of(*found["entry"])
    except (ValueError, KeyError, TypeError):
        return None  # of somebody else


def find_entry(
    numbers: Mapping[str, int], sink: str, commits: Iterable[Mapping[str, Any]]
) -> Found:
    """Return the entry that belongs to the rows of a table.

    Parameters
    ----------
    numbers : mapping of str to int
        The application transactions of the table.
    sink : str
        Name of the sink.
    commits : iterable of mappings
        Rows of ``DESCRIBE HISTORY``, the newest first.
    """
    number, removed = numbers.get(application(sink)), ""
    if number is None:  # the other writer may have written before
        return Found(from_integers(lambda position: numbers.get(identifier(sink, position))))
    for commit in commits:
        found = _from_text(commit["userMetadata"])
        if found is not None and found[:2] == (sink, number):
            return Found(found[2], removed)
        if not removed and _removes_all(commit):
            removed = f"version {commit['version']}: {commit['operation']}"
    batch = (number >> _BATCH) & ((1 << _QUERY - _BATCH) - 1)
    return Found(Entry(_UNKNOWN, 0, _UNKNOWN, batch, 0, 0), removed)


def recalled(entry: Entry | None, query: str, batch: int, rows: int, digest: int) -> Entry | None:
    """Return the entry, and what is unknown of it as in this micro-batch of a query.

    A first micro-batch may be of another query: then it stays unknown.
    """
    if entry is None or entry.query != _UNKNOWN or not batch:
        return entry
    return replace(entry, query=query, rows=rows, digest=digest)


def other_entries(
    numbers: Mapping[str, int], sink: str, commits: Iterable[Mapping[str, Any]]
) -> dict[str, Entry]:
    """Return the entries of other sinks, as long as the history has them."""
    result: dict[str, Entry] = {}
    if {name for name in numbers if name.startswith(_PREFIX)} - {application(sink)}:
        for commit in commits:
            found = _from_text(commit["userMetadata"])
            if found is not None and found[0] != sink:
                result.setdefault(found[0], found[2])
    return result


def _removes_all(commit: Mapping[str, Any]) -> bool:
    """Whether a commit removes all rows of the table, or sets them back."""
    operation, parameters = commit["operation"], commit["operationParameters"] or {}
    is_partial = str(parameters.get("predicate") or "").strip() not in _ALL_ROWS
    overwrites = operation == "WRITE" and parameters.get("mode") == "Overwrite"
    return operation in _EMPTYING or ((operation == "DELETE" or overwrites) and not is_partial)
